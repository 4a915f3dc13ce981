//! What a type has to do to be one XML element.

use super::error::{ReadError, ValueError};
use super::input::{In, Tag};
use super::namespace::Namespace;
use super::write::Out;

/// A type that is one XML element. Implemented by `elements!`; by default it is empty.
pub trait XmlElement {
    /// Whether text between the tags means anything here.
    const TEXT: bool = false;
    /// The namespace of the element and of its children; `None`: the namespace of the element
    /// around it.
    const NAMESPACE: Option<Namespace> = None;

    /// Writes the attributes into the open start tag.
    fn attributes(&self, _out: &mut Out) {}
    /// Writes text and children; returns whether there was a child element.
    fn content(&self, _out: &mut Out) -> bool {
        false
    }
    /// Takes an attribute if it is known.
    ///
    /// # Errors
    /// The value is not of the attribute's type.
    fn attribute(&mut self, _name: &str, _value: &str) -> Result<(), ValueError> {
        Ok(())
    }
    /// Takes the child if it is known. An unknown one is dropped with all in it, as is an unknown
    /// attribute; where they must stay, `xml::tree` reads the document.
    ///
    /// # Errors
    /// The first unreadable value inside.
    fn child(&mut self, _tag: &Tag<'_>, _input: &mut In<'_>) -> Result<bool, ReadError> {
        Ok(false)
    }
    /// Takes the text between the tags.
    ///
    /// # Errors
    /// The text is not of the element's type.
    fn text(&mut self, _value: &str) -> Result<(), ValueError> {
        Ok(())
    }
}

/// Elements that contain themselves are boxed.
impl<T: XmlElement> XmlElement for Box<T> {
    const TEXT: bool = T::TEXT;
    const NAMESPACE: Option<Namespace> = T::NAMESPACE;

    fn attributes(&self, out: &mut Out) {
        (**self).attributes(out);
    }
    fn content(&self, out: &mut Out) -> bool {
        (**self).content(out)
    }
    fn attribute(&mut self, name: &str, value: &str) -> Result<(), ValueError> {
        (**self).attribute(name, value)
    }
    fn child(&mut self, tag: &Tag<'_>, input: &mut In<'_>) -> Result<bool, ReadError> {
        (**self).child(tag, input)
    }
    fn text(&mut self, value: &str) -> Result<(), ValueError> {
        (**self).text(value)
    }
}
