//! Reading: a stream of tags and texts, handed to the elements that know them.

use std::borrow::Cow;

use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

use super::element::{Children, Namespace, XmlElement};
use super::error::{ReadError, ValueError, quoted};
use super::source::{self, is_xml, not_xml};
use super::value::Value;
use super::{MAX_ATTRIBUTES, MAX_DEPTH, MAX_ELEMENTS};

/// Reads a document whose root element is `root`. What stands around the root element does not count.
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

/// A start tag in the input.
#[derive(Debug)]
pub struct Tag<'a> {
    start: BytesStart<'a>,
    /// Where the name goes on after its prefix, in bytes.
    local: usize,
    /// It is `<empty/>`.
    empty: bool,
    namespace: Namespace,
    /// The namespace of the element around it, for which the schema's names without prefix stand.
    around: Namespace,
    /// Where the tag ends, in bytes.
    at: usize,
}

impl Tag<'_> {
    /// The name without its prefix.
    #[must_use]
    pub fn local(&self) -> &str {
        self.start
            .name()
            .into_inner()
            .get(self.local..)
            .unwrap_or_default()
    }

    /// Whether the element has this name without prefix, in this namespace or else in that of the
    /// element around it.
    #[must_use]
    pub fn is(&self, local: &str, namespace: Option<Namespace>) -> bool {
        self.local() == local && self.namespace == namespace.unwrap_or(self.around)
    }
}

/// A prefix and its namespace. The empty prefix is the default one.
#[derive(Debug)]
struct Binding {
    prefix: String,
    namespace: Namespace,
}

/// The document being read.
#[derive(Debug)]
pub struct In<'a> {
    reader: Reader<&'a [u8]>,
    source: &'a str,
    depth: usize,
    elements: usize,
    /// Prefixes in scope, the innermost last.
    bindings: Vec<Binding>,
}

impl<'a> In<'a> {
    fn new(source: &'a str) -> Self {
        Self {
            reader: Reader::from_str(source),
            source,
            depth: 0,
            elements: 0,
            bindings: Vec::new(),
        }
    }

    /// The line of a position, counted from 1.
    fn line(&self, at: usize) -> usize {
        source::line(self.source, at)
    }

    fn position(&self) -> usize {
        usize::try_from(self.reader.buffer_position()).unwrap_or(usize::MAX)
    }

    fn malformed(&self, reason: impl std::fmt::Display) -> ReadError {
        ReadError::malformed(self.line(self.position()), reason)
    }

    fn value(&self, tag: &Tag<'_>, path: String, reason: ValueError) -> ReadError {
        ReadError::Value {
            line: self.line(tag.at),
            path,
            reason,
        }
    }

    fn next(&mut self) -> Result<Event<'a>, ReadError> {
        self.reader.read_event().map_err(|e| {
            let at = usize::try_from(self.reader.error_position()).unwrap_or(usize::MAX);
            ReadError::malformed(self.line(at), e)
        })
    }

    /// Takes a start tag; its declarations of namespaces come into scope.
    fn tag(
        &mut self,
        start: BytesStart<'a>,
        empty: bool,
        around: Option<&Tag<'_>>,
    ) -> Result<Tag<'a>, ReadError> {
        self.elements += 1;
        if self.elements > MAX_ELEMENTS {
            return Err(ReadError::TooMany {
                line: self.line(self.position()),
            });
        }
        if start.attributes_raw().contains("xmlns") {
            self.bind(&start)?;
        }
        let prefix = start
            .name()
            .into_inner()
            .split_once(':')
            .map_or("", |(prefix, _)| prefix);
        let local = if prefix.is_empty() {
            0
        } else {
            prefix.len() + 1
        };
        let bound = self
            .bindings
            .iter()
            .rev()
            .find(|binding| binding.prefix == prefix)
            .map(|binding| binding.namespace);
        let namespace = bound.unwrap_or(if prefix.is_empty() {
            Namespace::None
        } else {
            Namespace::Other
        });
        let around = around.map_or(namespace, |tag| tag.namespace);
        Ok(Tag {
            start,
            local,
            empty,
            namespace,
            around,
            at: self.position(),
        })
    }

    fn bind(&mut self, start: &BytesStart<'_>) -> Result<(), ReadError> {
        for (index, attribute) in start.attributes().enumerate() {
            self.check_count(index)?;
            let attribute = attribute.map_err(|e| self.malformed(e))?;
            let prefix = match attribute.key.into_inner() {
                "xmlns" => "",
                name => match name.strip_prefix("xmlns:") {
                    Some(prefix) => prefix,
                    None => continue,
                },
            };
            let uri = attribute
                .normalized_value(XmlVersion::Implicit1_0)
                .map_err(|e| self.malformed(e))?;
            self.bindings.push(Binding {
                prefix: prefix.to_owned(),
                namespace: Namespace::named(&uri),
            });
        }
        Ok(())
    }

    /// Refuses an attribute that is one too many in its element; `index` is counted from 0.
    fn check_count(&self, index: usize) -> Result<(), ReadError> {
        if index < MAX_ATTRIBUTES {
            Ok(())
        } else {
            Err(ReadError::TooManyAttributes {
                line: self.line(self.position()),
            })
        }
    }

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
            // Only what was unescaped can hold what the document itself cannot.
            if let Cow::Owned(text) = &value
                && let Some((_, c)) = source::first_invalid(text)
            {
                return Err(self.malformed(not_xml(c)));
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

    /// Skips to the end of the element whose start tag was read last.
    fn skip(&mut self) -> Result<(), ReadError> {
        let outside = self.depth;
        self.descend()?;
        while self.depth > outside {
            match self.next()? {
                Event::Start(_) => self.descend()?,
                Event::End(_) => self.depth -= 1,
                Event::Eof => return Err(self.ends_early()),
                _ => {}
            }
        }
        Ok(())
    }

    fn descend(&mut self) -> Result<(), ReadError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            Err(ReadError::TooDeep {
                line: self.line(self.position()),
            })
        } else {
            Ok(())
        }
    }

    fn ends_early(&self) -> ReadError {
        self.malformed("the document ends inside an element")
    }

    /// What `&name;` stands for.
    fn reference(&self, reference: &BytesRef<'_>) -> Result<char, ReadError> {
        match &**reference {
            "lt" => Ok('<'),
            "gt" => Ok('>'),
            "amp" => Ok('&'),
            "quot" => Ok('"'),
            "apos" => Ok('\''),
            name => match reference
                .resolve_char_ref()
                .map_err(|e| self.malformed(e))?
            {
                Some(c) if is_xml(c) => Ok(c),
                Some(c) => Err(self.malformed(not_xml(c))),
                None => Err(self.malformed(format!("unknown entity &{};", quoted(name)))),
            },
        }
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

/// An element of which only the text counts.
struct Leaf<T>(T);

impl<T: Value> XmlElement for Leaf<T> {
    const TEXT: bool = true;

    fn text(&mut self, value: &str) -> Result<(), ValueError> {
        self.0 = T::parse(value)?;
        Ok(())
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

/// Adds a piece of text; the first one is only borrowed.
fn append<'a>(text: &mut Cow<'a, str>, piece: Cow<'a, str>) {
    if text.is_empty() {
        *text = piece;
    } else {
        text.to_mut().push_str(&piece);
    }
}
