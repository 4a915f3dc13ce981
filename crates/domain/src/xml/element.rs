//! Elements, and the fields that hold them.

use super::error::{ReadError, ValueError};
use super::read::{In, Tag};
use super::write::Out;

/// The namespaces that occur in a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Namespace {
    /// None: libvirt's own elements.
    #[default]
    None,
    /// KubeVirt's part of `<metadata>`.
    KubeVirt,
    /// QEMU's command line.
    Qemu,
    /// Any other; the schema has no element there.
    Other,
}

impl Namespace {
    /// The address that names it in the document; empty where there is none.
    #[must_use]
    pub const fn uri(self) -> &'static str {
        match self {
            Self::KubeVirt => "http://kubevirt.io",
            Self::Qemu => "http://libvirt.org/schemas/domain/qemu/1.0",
            Self::None | Self::Other => "",
        }
    }

    pub(super) fn named(uri: &str) -> Self {
        match uri {
            "" => Self::None,
            uri if uri == Self::KubeVirt.uri() => Self::KubeVirt,
            uri if uri == Self::Qemu.uri() => Self::Qemu,
            _ => Self::Other,
        }
    }
}

/// A type that is one XML element. Implemented by `elements!`; by default it is empty.
pub trait XmlElement {
    /// Whether text between the tags means anything here.
    const TEXT: bool = false;
    /// The namespace of the element and those inside; `None`: that of the element around it.
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
    /// What is wrong with its value.
    fn attribute(&mut self, _name: &str, _value: &str) -> Result<(), ValueError> {
        Ok(())
    }
    /// Takes the child if it is known; an unknown one is for the caller to skip.
    ///
    /// # Errors
    /// The first unreadable value inside.
    fn child(&mut self, _tag: &Tag<'_>, _input: &mut In<'_>) -> Result<bool, ReadError> {
        Ok(false)
    }
    /// Takes the text between the tags.
    ///
    /// # Errors
    /// What is wrong with it.
    fn text(&mut self, _value: &str) -> Result<(), ValueError> {
        Ok(())
    }
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
            out.raw_attribute("xmlns", namespace.uri());
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
