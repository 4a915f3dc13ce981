//! Fields that hold child elements, and the document around the root element.

use super::element::XmlElement;
use super::error::ReadError;
use super::input::{In, Tag};
use super::namespace::Namespace;
use super::write::Out;

/// Names the root of elements that are documents of their own, as libvirt's calls take them.
macro_rules! documents {
    ($($element:ty: $root:literal,)*) => {$(
        impl $element {
            /// The element as a document of its own.
            #[must_use]
            pub fn to_xml(&self) -> String {
                $crate::xml::to_string($root, self)
            }
        }
    )*};
}
pub(crate) use documents;

/// The document as indented XML text.
#[must_use]
pub fn to_string<T: XmlElement>(root: &str, document: &T) -> String {
    let mut out = Out::new();
    document.write(root, &mut out);
    out.finish()
}

/// Fields that are child elements: one, at most one, or many.
pub trait Children {
    /// See [`XmlElement::NAMESPACE`].
    const NAMESPACE: Option<Namespace>;

    /// Writes as many elements as there are; returns whether there was one.
    fn write(&self, name: &str, out: &mut Out) -> bool;
    /// Takes one more element of that name. Where there can be only one, the second adds to the
    /// first, as in Go.
    ///
    /// # Errors
    /// The first unreadable value inside.
    fn read(&mut self, tag: &Tag<'_>, input: &mut In<'_>) -> Result<(), ReadError>;
}

impl<T: XmlElement> Children for T {
    const NAMESPACE: Option<Namespace> = T::NAMESPACE;

    fn write(&self, name: &str, out: &mut Out) -> bool {
        out.start(name);
        // A name with a prefix has its namespace declared further up.
        if let Some(namespace) = T::NAMESPACE.filter(|_| !name.contains(':')) {
            out.attribute("xmlns", &namespace.uri().to_owned());
        }
        self.attributes(out);
        let children = self.content(out);
        out.end(name, children);
        true
    }
    fn read(&mut self, tag: &Tag<'_>, input: &mut In<'_>) -> Result<(), ReadError> {
        input.element(self, tag)
    }
}
impl<T: Children + Default> Children for Option<T> {
    const NAMESPACE: Option<Namespace> = T::NAMESPACE;

    fn write(&self, name: &str, out: &mut Out) -> bool {
        self.as_ref().is_some_and(|child| child.write(name, out))
    }
    fn read(&mut self, tag: &Tag<'_>, input: &mut In<'_>) -> Result<(), ReadError> {
        self.get_or_insert_default().read(tag, input)
    }
}
impl<T: Children + Default> Children for Vec<T> {
    const NAMESPACE: Option<Namespace> = T::NAMESPACE;

    fn write(&self, name: &str, out: &mut Out) -> bool {
        let mut any = false;
        for child in self {
            any |= child.write(name, out);
        }
        any
    }
    fn read(&mut self, tag: &Tag<'_>, input: &mut In<'_>) -> Result<(), ReadError> {
        let mut child = T::default();
        child.read(tag, input)?;
        self.push(child);
        Ok(())
    }
}

impl In<'_> {
    /// Reads the elements of that name inside the element `tag`.
    ///
    /// # Errors
    /// The first unreadable value inside.
    pub fn list<T: Children + Default>(
        &mut self,
        name: &'static str,
        items: &mut Vec<T>,
        tag: &Tag<'_>,
    ) -> Result<(), ReadError> {
        self.element(&mut List { name, items }, tag)
    }
}

/// An element of which only the children of one name count.
struct List<'l, T> {
    name: &'static str,
    items: &'l mut Vec<T>,
}

impl<T: Children + Default> XmlElement for List<'_, T> {
    fn child(&mut self, tag: &Tag<'_>, input: &mut In<'_>) -> Result<bool, ReadError> {
        let known = tag.is(self.name, T::NAMESPACE);
        if known {
            self.items.read(tag, input)?;
        }
        Ok(known)
    }
}
