//! Reading: a stream of tags and texts, handed to the elements that know them.

use std::borrow::Cow;

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};

use super::element::XmlElement;
use super::error::{ReadError, ValueError, quoted};
use super::input::{In, Tag};
use super::source;
use super::value::Value;

/// Reads a document with the root element `root`. Comments and declarations around it do not count.
///
/// # Errors
/// When the text is not such a document, see [`ReadError`].
pub fn from_str<T: XmlElement + Default>(root: &'static str, text: &str) -> Result<T, ReadError> {
    source::check(text)?;
    let mut input = In::new(text);
    let tag = loop {
        match input.next()? {
            Event::Start(start) => break input.tag(start, false, None)?,
            Event::Empty(start) => break input.tag(start, true, None)?,
            Event::Eof => return Err(input.malformed("there is no element")),
            _ => {}
        }
    };
    if tag.local() != root {
        return Err(ReadError::Root {
            expected: root,
            found: quoted(tag.local()),
        });
    }
    let mut document = T::default();
    input.element(&mut document, &tag)?;
    loop {
        match input.next()? {
            Event::Eof => return Ok(document),
            Event::Start(_) | Event::Empty(_) => {
                return Err(input.malformed("there is a second root element"));
            }
            _ => {}
        }
    }
}

impl<'a> In<'a> {
    /// Reads the element whose start tag is `tag`, up to and with its end tag.
    pub(super) fn element<T: XmlElement>(
        &mut self,
        into: &mut T,
        tag: &Tag<'_>,
    ) -> Result<(), ReadError> {
        self.attributes(into, tag)
            .and_then(|()| self.content(into, tag))
            .map_err(|e| e.inside(tag.local()))
    }

    fn attributes<T: XmlElement>(&self, into: &mut T, tag: &Tag<'_>) -> Result<(), ReadError> {
        for (index, attribute) in tag.start.attributes().enumerate() {
            // The parser compares each name with those before it.
            self.check_count(index)?;
            let attribute = attribute.map_err(|e| self.malformed(e))?;
            let name = attribute.key.into_inner();
            let value = attribute
                .normalized_value(XmlVersion::Implicit1_0)
                .map_err(|e| self.malformed(e))?;
            // Only unescaped text can hold characters that the document itself cannot.
            if let Cow::Owned(text) = &value {
                self.check_unescaped(text)?;
            }
            into.attribute(name, &value)
                .map_err(|reason| self.value(tag, format!("/@{name}"), reason))?;
        }
        Ok(())
    }

    fn content<T: XmlElement>(&mut self, into: &mut T, tag: &Tag<'_>) -> Result<(), ReadError> {
        let text = if tag.empty {
            Cow::Borrowed("")
        } else {
            self.inside(into, tag)?
        };
        if T::TEXT {
            into.text(&text)
                .map_err(|reason| self.value(tag, String::new(), reason))
        } else {
            Ok(())
        }
    }

    /// Reads children up to the end tag; returns the text between them.
    fn inside<T: XmlElement>(
        &mut self,
        into: &mut T,
        tag: &Tag<'_>,
    ) -> Result<Cow<'a, str>, ReadError> {
        let mut text = Cow::Borrowed("");
        self.descend()?;
        loop {
            match self.next()? {
                Event::Start(start) => self.child(into, start, false, tag)?,
                Event::Empty(start) => self.child(into, start, true, tag)?,
                Event::End(_) => break,
                Event::Eof => return Err(self.ends_early()),
                Event::GeneralRef(r) => append(&mut text, Cow::Owned(self.reference(&r)?.into())),
                Event::Text(t) if T::TEXT => append(&mut text, t.xml10_content()),
                Event::CData(t) if T::TEXT => append(&mut text, t.xml10_content()),
                _ => {}
            }
        }
        self.depth -= 1;
        Ok(text)
    }

    fn child<T: XmlElement>(
        &mut self,
        into: &mut T,
        start: BytesStart<'a>,
        empty: bool,
        around: &Tag<'_>,
    ) -> Result<(), ReadError> {
        let outside = self.bindings.len();
        let tag = self.tag(start, empty, Some(around))?;
        if !into.child(&tag, self)? && !empty {
            self.skip()?;
        }
        self.bindings.truncate(outside);
        Ok(())
    }

    /// The text of a leaf element.
    ///
    /// # Errors
    /// If the element is not well-formed or the text is not such a value.
    pub fn leaf<T: Value>(&mut self, tag: &Tag<'_>) -> Result<T, ReadError> {
        let mut leaf = Leaf(T::default());
        self.element(&mut leaf, tag)?;
        Ok(leaf.0)
    }
}

/// An element of which only the text counts.
struct Leaf<T>(T);

impl<T: Value> XmlElement for Leaf<T> {
    const TEXT: bool = true;

    fn text(&mut self, value: &str) -> Result<(), ValueError> {
        self.0 = T::parse(value)?;
        Ok(())
    }
}

/// Adds a piece of text; the first one is only borrowed.
fn append<'a>(text: &mut Cow<'a, str>, piece: Cow<'a, str>) {
    if text.is_empty() {
        *text = piece;
    } else {
        text.to_mut().push_str(&piece);
    }
}
