//! A domain document as a tree of all its elements, whether the schema knows them or not.
//!
//! Sidecars and plugins may add any element that libvirt has, and libvirt reports elements that the
//! schema does not have: whoever edits or compares such documents works on this tree, which loses
//! nothing but comments and processing instructions. Reading is bounded in size, depth and number
//! of elements, and refuses a document type declaration: entities cannot be defined.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::write::escape;
use super::{MAX_BYTES, MAX_DEPTH};

/// Most elements that are read; a domain with a hundred devices has some two thousand.
pub const MAX_ELEMENTS: usize = 50_000;
/// Most attributes of one element; libvirt's largest has about twenty.
pub const MAX_ATTRIBUTES: usize = 128;

/// An element with all that is in it, in document order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Element {
    /// Its name, with the prefix if there is one.
    pub name: String,
    /// Its attributes.
    pub attributes: Vec<(String, String)>,
    /// Elements and text inside; comments are not kept.
    pub nodes: Vec<Node>,
}

/// What can be inside an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// An element.
    Element(Element),
    /// Text that is not only white space.
    Text(String),
}

/// Why a text is no document that can be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// More bytes than [`MAX_BYTES`].
    #[error("the document has {bytes} bytes; at most {MAX_BYTES} are taken")]
    TooLarge {
        /// Its length.
        bytes: usize,
    },
    /// Not well-formed XML.
    #[error("line {line}: not well-formed XML: {reason}")]
    Malformed {
        /// Counted from 1.
        line: usize,
        /// What the parser found.
        reason: String,
    },
    /// It defines a document type, which is the way to define entities.
    #[error(
        "line {line}: a document type is declared; a domain needs none, and entities are not taken"
    )]
    DocumentType {
        /// Counted from 1.
        line: usize,
    },
    /// Nested deeper than [`MAX_DEPTH`], more than [`MAX_ELEMENTS`] or [`MAX_ATTRIBUTES`].
    #[error("line {line}: more than {limit} {what}")]
    TooMany {
        /// Counted from 1.
        line: usize,
        /// The limit that was passed.
        limit: usize,
        /// What there is too much of.
        what: &'static str,
    },
}

impl Element {
    /// The elements inside.
    pub fn children(&self) -> impl Iterator<Item = &Self> {
        self.nodes.iter().filter_map(|node| match node {
            Node::Element(child) => Some(child),
            Node::Text(_) => None,
        })
    }

    /// The first element of that name inside.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children().find(|child| child.name == name)
    }

    /// The value of an attribute.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// The text directly inside, without the white space around it.
    #[must_use]
    pub fn text(&self) -> String {
        let parts = self.nodes.iter().filter_map(|node| match node {
            Node::Text(text) => Some(text.as_str()),
            Node::Element(_) => None,
        });
        parts.collect::<String>().trim().to_owned()
    }

    /// Reads a document.
    ///
    /// # Errors
    /// When it is not well-formed or beyond a limit, see [`TreeError`].
    pub fn parse(text: &str) -> Result<Self, TreeError> {
        if text.len() > MAX_BYTES {
            return Err(TreeError::TooLarge { bytes: text.len() });
        }
        Parser {
            reader: Reader::from_str(text),
            source: text,
            elements: 0,
        }
        .document()
    }
}

// ---- writing ------------------------------------------------------------------------------------

impl Element {
    /// The document as text, in the form in which Go writes it: tabs, and `<a></a>` where there is
    /// nothing inside. Scripts of users look for exactly that.
    #[must_use]
    pub fn to_xml(&self) -> String {
        let mut out = String::new();
        self.write(0, &mut out);
        out
    }

    fn write(&self, depth: usize, out: &mut String) {
        out.push('<');
        out.push_str(&self.name);
        for (name, value) in &self.attributes {
            out.push(' ');
            out.push_str(name);
            out.push_str("=\"");
            escape(value, out);
            out.push('"');
        }
        out.push('>');
        // Where there is text, white space may count: nothing is added.
        let indent = !self.nodes.is_empty()
            && self
                .nodes
                .iter()
                .all(|node| matches!(node, Node::Element(_)));
        for node in &self.nodes {
            match node {
                Node::Element(child) => {
                    if indent {
                        new_line(depth + 1, out);
                    }
                    child.write(depth + 1, out);
                }
                Node::Text(text) => escape(text, out),
            }
        }
        if indent {
            new_line(depth, out);
        }
        out.push_str("</");
        out.push_str(&self.name);
        out.push('>');
    }
}

fn new_line(depth: usize, out: &mut String) {
    out.push('\n');
    out.extend(std::iter::repeat_n('\t', depth));
}

// ---- reading ------------------------------------------------------------------------------------

struct Parser<'a> {
    reader: Reader<&'a [u8]>,
    source: &'a str,
    elements: usize,
}

impl Parser<'_> {
    /// The line on which the last event ended.
    fn line(&self) -> usize {
        let at = usize::try_from(self.reader.buffer_position())
            .unwrap_or(usize::MAX)
            .min(self.source.len());
        1 + self.source.as_bytes()[..at]
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count()
    }

    fn malformed(&self, reason: impl std::fmt::Display) -> TreeError {
        TreeError::Malformed {
            line: self.line(),
            reason: reason.to_string(),
        }
    }

    /// Most often what a script has printed beside the document: its own words are shown, and their line.
    fn stray(&self, text: &str) -> TreeError {
        let text = text.trim_start();
        let lines = text.bytes().filter(|&byte| byte == b'\n').count();
        let first: String = text
            .lines()
            .next()
            .unwrap_or_default()
            .chars()
            .take(40)
            .collect();
        // Line ends of other kinds are not counted on the way there.
        let line = self.line().saturating_sub(lines).max(1);
        TreeError::Malformed {
            line,
            reason: format!("there is text outside of the root element: {first:?}"),
        }
    }

    fn too_many(&self, limit: usize, what: &'static str) -> TreeError {
        TreeError::TooMany {
            line: self.line(),
            limit,
            what,
        }
    }

    fn document(mut self) -> Result<Element, TreeError> {
        let mut root = None;
        // The elements that are open, outermost first.
        let mut open: Vec<Element> = Vec::new();
        loop {
            let event = self
                .reader
                .read_event()
                .map_err(|error| self.malformed(error))?;
            let done = match event {
                Event::Start(tag) => {
                    open.last_mut().into_iter().for_each(drop_white_space);
                    if open.len() >= MAX_DEPTH {
                        return Err(self.too_many(MAX_DEPTH, "levels of nesting"));
                    }
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
                        .ok_or_else(|| self.malformed("an end tag without its start"))?;
                    drop_white_space(&mut done);
                    done
                }
                Event::DocType(_) => return Err(TreeError::DocumentType { line: self.line() }),
                Event::Eof if open.is_empty() => {
                    return root.ok_or_else(|| self.malformed("there is no element"));
                }
                Event::Eof => {
                    return Err(self.malformed(format_args!(
                        "<{}> is not closed",
                        open.last().map_or("", |e| &e.name)
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
                    return Err(self.malformed("there is a second root element"));
                }
                None => root = Some(done),
            }
        }
    }

    fn element(&mut self, tag: &BytesStart<'_>) -> Result<Element, TreeError> {
        self.elements += 1;
        if self.elements > MAX_ELEMENTS {
            return Err(self.too_many(MAX_ELEMENTS, "elements"));
        }
        let mut element = Element {
            name: self.name(tag.name().into_inner())?,
            ..Element::default()
        };
        for attribute in tag.attributes() {
            let attribute = attribute.map_err(|error| self.malformed(error))?;
            if element.attributes.len() == MAX_ATTRIBUTES {
                return Err(self.too_many(MAX_ATTRIBUTES, "attributes in one element"));
            }
            let value = attribute
                .normalized_value(quick_xml::XmlVersion::Implicit1_0)
                .map_err(|error| self.malformed(error))?
                .into_owned();
            element
                .attributes
                .push((self.name(attribute.key.into_inner())?, value));
        }
        Ok(element)
    }

    fn name(&self, name: &str) -> Result<String, TreeError> {
        if is_name(name) {
            Ok(name.to_owned())
        } else {
            Err(self.malformed(format_args!("{name:?} is no name")))
        }
    }

    fn text(&self, event: &Event<'_>, parent: Option<&mut Element>) -> Result<(), TreeError> {
        let text = match event {
            Event::Text(text) => text.xml10_content(),
            Event::CData(text) => text.xml10_content(),
            Event::GeneralRef(entity) => {
                let entity = format!("&{};", entity.xml10_content());
                quick_xml::escape::unescape(&entity)
                    .map_err(|error| self.malformed(error))?
                    .into_owned()
                    .into()
            }
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

/// White space between tags is no text; only where the next tag begins is it known to be just that.
fn drop_white_space(parent: &mut Element) {
    if matches!(parent.nodes.last(), Some(Node::Text(text)) if text.trim().is_empty()) {
        parent.nodes.pop();
    }
}

/// Whether it can name an element or an attribute, which the parser leaves open. Beyond ASCII everything is taken.
fn is_name(name: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || matches!(c, '_' | ':') || !c.is_ascii();
    name.starts_with(first)
        && name
            .chars()
            .all(|c| first(c) || c.is_ascii_digit() || matches!(c, '-' | '.'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn attributes_text_entities_and_cdata_are_read() {
        let tree =
            Element::parse("<?xml version='1.0'?>\n<d a='1 &amp; 2'> <t>x &lt; <![CDATA[<y>]]>&#33;</t><!-- c --><e/></d>\n").unwrap();
        assert_eq!(tree.attribute("a"), Some("1 & 2"));
        assert_eq!(tree.child("t").unwrap().text(), "x < <y>!");
        assert_eq!(tree.children().count(), 2);
        assert_eq!(tree.text(), "");
    }

    #[test]
    fn text_is_written_as_go_writes_it_and_reads_back_the_same() {
        let tree =
            Element::parse("<d><a b='&lt;\"&#10;'/><t> x &amp; <i/>y</t><e>\n  <f/>\n</e></d>")
                .unwrap();
        let text = tree.to_xml();
        assert_eq!(
            text,
            "<d>\n\t<a b=\"&lt;&#34;&#xA;\"></a>\n\t<t> x &amp; <i></i>y</t>\n\t<e>\n\t\t<f></f>\n\t</e>\n</d>"
        );
        assert_eq!(Element::parse(&text).unwrap(), tree);
    }

    #[test]
    fn white_space_before_an_entity_is_part_of_the_text() {
        let tree = Element::parse("<d>\n <t> &lt;a</t> <u><![CDATA[ <b]]> </u> </d>").unwrap();
        assert_eq!(tree.nodes.len(), 2);
        assert_eq!(
            tree.to_xml(),
            "<d>\n\t<t> &lt;a</t>\n\t<u> &lt;b </u>\n</d>"
        );
        assert_eq!(Element::parse(&tree.to_xml()).unwrap(), tree);
    }

    #[test]
    fn what_is_no_name_is_refused_with_its_line() {
        assert_eq!(
            refusal("<d>\n<a&b/></d>"),
            "line 2: not well-formed XML: \"a&b\" is no name"
        );
        assert_eq!(
            refusal("<d 1='x'/>"),
            "line 1: not well-formed XML: \"1\" is no name"
        );
        assert!(Element::parse("<d xmlns:q-1='u'><q-1:é.b/></d>").is_ok());
    }

    fn refusal(text: &str) -> String {
        Element::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn an_unclosed_element_is_named_with_its_line() {
        assert_eq!(
            refusal("<domain>\n<os>\n"),
            "line 3: not well-formed XML: <os> is not closed"
        );
    }

    #[test]
    fn a_wrong_end_tag_is_refused_with_its_line() {
        assert!(refusal("<a>\n<b></c></a>").starts_with("line 2: not well-formed XML: "));
    }

    #[test]
    fn a_second_root_and_text_beside_the_root_are_refused() {
        assert!(refusal("<a/><b/>").contains("second root"));
        assert!(refusal("<a/>debug output").contains("text outside"));
        assert!(refusal("hello").contains("text outside"));
        let stray =
            "line 2: not well-formed XML: there is text outside of the root element: \"debug\"";
        assert_eq!(refusal("<a/>\ndebug\n\noutput\n"), stray);
        assert_eq!(refusal("\n debug\n<a/>\n"), stray);
        assert!(refusal("<a/>debug\r\r\r").starts_with("line 1: "));
        assert!(refusal("").contains("no element"));
    }

    #[test]
    fn a_document_type_is_refused_before_its_entities_count() {
        let bomb = "<!DOCTYPE d [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;&a;'>]>\n<d>&b;</d>";
        assert!(refusal(bomb).contains("document type"));
        assert!(refusal("<d>&unknown;</d>").contains("not well-formed"));
    }

    #[test]
    fn depth_size_elements_and_attributes_are_bounded() {
        assert!(refusal(&"<a>".repeat(MAX_DEPTH + 1)).contains("levels of nesting"));
        assert!(refusal(&format!("<a>{}</a>", " ".repeat(MAX_BYTES))).contains("bytes"));
        assert!(refusal(&format!("<a>{}</a>", "<b/>".repeat(MAX_ELEMENTS))).contains("elements"));
        let attributes: String = (0..=MAX_ATTRIBUTES).map(|n| format!(" a{n}=''")).collect();
        assert!(refusal(&format!("<a{attributes}/>")).contains("attributes"));
    }

    #[test]
    fn an_attribute_given_twice_is_refused() {
        assert!(refusal("<a b='1' b='2'/>").contains("not well-formed"));
    }
}
