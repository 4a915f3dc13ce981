//! The input: start tags with their namespaces, within bounds.

use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

use super::error::{ReadError, ValueError, quoted};
use super::namespace::Namespace;
use super::source::{self, is_xml, not_xml};
use super::{MAX_ATTRIBUTES, MAX_DEPTH, MAX_ELEMENTS};

/// A start tag in the input.
#[derive(Debug)]
pub struct Tag<'a> {
    pub(super) start: BytesStart<'a>,
    /// Where the name goes on after its prefix, in bytes.
    local: usize,
    /// It is `<empty/>`.
    pub(super) empty: bool,
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

    /// Whether the element has this name without prefix, in this namespace or else in the namespace
    /// of the element around it.
    #[must_use]
    pub fn is(&self, local: &str, namespace: Option<Namespace>) -> bool {
        self.local() == local && self.namespace == namespace.unwrap_or(self.around)
    }
}

/// A prefix and its namespace. The empty prefix is the default one.
#[derive(Debug)]
pub(super) struct Binding {
    prefix: String,
    namespace: Namespace,
}

/// The document being read.
#[derive(Debug)]
pub struct In<'a> {
    reader: Reader<&'a [u8]>,
    source: &'a str,
    pub(super) depth: usize,
    elements: usize,
    /// Prefixes in scope, the innermost last.
    pub(super) bindings: Vec<Binding>,
}

impl<'a> In<'a> {
    pub(super) fn new(source: &'a str) -> Self {
        Self {
            reader: Reader::from_str(source),
            source,
            depth: 0,
            elements: 0,
            bindings: Vec::new(),
        }
    }

    /// The line of a position, counted from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        source::line(self.source, at)
    }

    pub(super) fn position(&self) -> usize {
        usize::try_from(self.reader.buffer_position()).unwrap_or(usize::MAX)
    }

    pub(super) fn malformed(&self, reason: impl std::fmt::Display) -> ReadError {
        ReadError::malformed(self.line(self.position()), reason)
    }

    pub(super) fn value(&self, tag: &Tag<'_>, path: String, reason: ValueError) -> ReadError {
        ReadError::Value {
            line: self.line(tag.at),
            path,
            reason,
        }
    }

    pub(super) fn next(&mut self) -> Result<Event<'a>, ReadError> {
        self.reader.read_event().map_err(|e| {
            let at = usize::try_from(self.reader.error_position()).unwrap_or(usize::MAX);
            ReadError::malformed(self.line(at), e)
        })
    }

    /// Takes a start tag; its declarations of namespaces come into scope.
    pub(super) fn tag(
        &mut self,
        start: BytesStart<'a>,
        empty: bool,
        around: Option<&Tag<'_>>,
    ) -> Result<Tag<'a>, ReadError> {
        self.count_element()?;
        if start.attributes_raw().contains("xmlns") {
            self.bind(&start)?;
        }
        let name = start.name().into_inner();
        let prefix = name.split_once(':').map_or("", |(prefix, _)| prefix);
        let local = prefix.len() + usize::from(!prefix.is_empty());
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

    pub(super) fn bind(&mut self, start: &BytesStart<'_>) -> Result<(), ReadError> {
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
    pub(super) fn check_count(&self, index: usize) -> Result<(), ReadError> {
        self.at_most(MAX_ATTRIBUTES, index + 1, "attributes in one element")
    }

    /// Only unescaped text can hold characters that the document itself cannot.
    pub(super) fn check_unescaped(&self, text: &str) -> Result<(), ReadError> {
        match source::first_invalid(text) {
            Some((_, found)) => Err(self.malformed(not_xml(found))),
            None => Ok(()),
        }
    }

    pub(super) fn count_element(&mut self) -> Result<(), ReadError> {
        self.elements += 1;
        self.at_most(MAX_ELEMENTS, self.elements, "elements")
    }

    pub(super) fn at_most(
        &self,
        most: usize,
        count: usize,
        of: &'static str,
    ) -> Result<(), ReadError> {
        if count > most {
            let line = self.line(self.position());
            return Err(ReadError::TooMuch { line, most, of });
        }
        Ok(())
    }

    /// Skips to the end of the element whose start tag was read last.
    pub(super) fn skip(&mut self) -> Result<(), ReadError> {
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

    pub(super) fn descend(&mut self) -> Result<(), ReadError> {
        self.depth += 1;
        self.at_most(MAX_DEPTH, self.depth, "levels of nesting")
    }

    pub(super) fn ends_early(&self) -> ReadError {
        self.malformed("the document ends inside an element")
    }

    /// What `&name;` stands for.
    pub(super) fn reference(&self, reference: &BytesRef<'_>) -> Result<char, ReadError> {
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
}
