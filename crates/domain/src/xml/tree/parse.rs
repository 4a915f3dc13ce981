//! Reading a document into a tree.

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};

use super::super::input::In;
use super::super::source;
use super::super::{MAX_ALL_ATTRIBUTES, MAX_DEPTH, ReadError, quoted};
use super::{Element, Node};

/// Reads a whole document.
pub(super) fn document(text: &str) -> Result<Element, ReadError> {
    source::check(text)?;
    let input = In::new(text);
    let parser = Parser {
        input,
        attributes: 0,
    };
    parser.document()
}

struct Parser<'a> {
    input: In<'a>,
    attributes: usize,
}

impl Parser<'_> {
    /// The line on which the last event ended.
    fn line(&self) -> usize {
        self.input.line(self.input.position())
    }

    /// Most often what a script has printed beside the document: its own words are shown, and their
    /// line.
    fn stray(&self, text: &str) -> ReadError {
        let text = text.trim_start();
        let lines = text.bytes().filter(|&byte| byte == b'\n').count();
        ReadError::StrayText {
            // Line ends of other kinds are not counted on the way there.
            line: self.line().saturating_sub(lines).max(1),
            text: quoted(text.lines().next().unwrap_or_default()),
        }
    }

    fn document(mut self) -> Result<Element, ReadError> {
        let mut root = None;
        // The elements that are open, outermost first.
        let mut open: Vec<Element> = Vec::new();
        loop {
            let done = match self.input.next()? {
                Event::Start(tag) => {
                    open.last_mut().into_iter().for_each(drop_white_space);
                    let depth = open.len() + 1;
                    self.input.at_most(MAX_DEPTH, depth, "levels of nesting")?;
                    open.push(self.element(&tag)?);
                    continue;
                }
                Event::Empty(tag) => {
                    open.last_mut().into_iter().for_each(drop_white_space);
                    self.element(&tag)?
                }
                Event::End(_) => {
                    let mut done = open
                        .pop()
                        .ok_or_else(|| self.input.malformed("an end tag without its start"))?;
                    drop_white_space(&mut done);
                    done
                }
                Event::DocType(_) => return Err(ReadError::DocumentType { line: self.line() }),
                Event::Eof if open.is_empty() => {
                    return root.ok_or_else(|| self.input.malformed("there is no element"));
                }
                Event::Eof => {
                    return Err(self.input.malformed(format_args!(
                        "<{}> is not closed",
                        quoted(open.last().map_or("", |e| &e.name))
                    )));
                }
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) => continue,
                other => {
                    self.text(&other, open.last_mut())?;
                    continue;
                }
            };
            match open.last_mut() {
                Some(parent) => parent.nodes.push(Node::Element(done)),
                None if root.is_some() => {
                    return Err(self.input.malformed("there is a second root element"));
                }
                None => root = Some(done),
            }
        }
    }

    fn element(&mut self, tag: &BytesStart<'_>) -> Result<Element, ReadError> {
        self.input.count_element()?;
        let mut element = Element {
            name: self.name(tag.name().into_inner())?,
            ..Element::default()
        };
        for attribute in tag.attributes() {
            let attribute = attribute.map_err(|error| self.input.malformed(error))?;
            self.input.check_count(element.attributes.len())?;
            self.attributes += 1;
            (self.input).at_most(MAX_ALL_ATTRIBUTES, self.attributes, "attributes in all")?;
            let value = attribute
                .normalized_value(XmlVersion::Implicit1_0)
                .map_err(|error| self.input.malformed(error))?
                .into_owned();
            self.input.check_unescaped(&value)?;
            element
                .attributes
                .push((self.name(attribute.key.into_inner())?, value));
        }
        Ok(element)
    }

    fn name(&self, name: &str) -> Result<String, ReadError> {
        if is_name(name) {
            Ok(name.to_owned())
        } else {
            Err(self
                .input
                .malformed(format_args!("{:?} is not a name", quoted(name))))
        }
    }

    fn text(&self, event: &Event<'_>, parent: Option<&mut Element>) -> Result<(), ReadError> {
        let text = match event {
            Event::Text(text) => text.xml10_content(),
            Event::CData(text) => text.xml10_content(),
            Event::GeneralRef(entity) => self.input.reference(entity)?.to_string().into(),
            _ => return Ok(()),
        };
        match parent {
            None if text.trim().is_empty() => Ok(()),
            None => Err(self.stray(&text)),
            Some(parent) => {
                append(parent, &text);
                Ok(())
            }
        }
    }
}

/// Joins text that the parser gives in pieces, around entities.
fn append(parent: &mut Element, text: &str) {
    match parent.nodes.last_mut() {
        Some(Node::Text(before)) => before.push_str(text),
        _ => parent.nodes.push(Node::Text(text.to_owned())),
    }
}

/// White space between tags is not text; only where the next tag begins is it known to be just
/// that.
fn drop_white_space(parent: &mut Element) {
    if matches!(parent.nodes.last(), Some(Node::Text(text)) if text.trim().is_empty()) {
        parent.nodes.pop();
    }
}

/// Whether it can name an element or an attribute, which the parser leaves open. Beyond ASCII
/// everything is taken.
fn is_name(name: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || matches!(c, '_' | ':') || !c.is_ascii();
    name.starts_with(first)
        && name
            .chars()
            .all(|c| first(c) || c.is_ascii_digit() || matches!(c, '-' | '.'))
}
