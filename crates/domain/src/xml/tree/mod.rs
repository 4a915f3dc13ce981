//! A domain document as a tree of all its elements, whether the schema knows them or not.
//!
//! Sidecars and plugins may add any element that libvirt has, and libvirt reports elements that the
//! schema does not have: whoever edits or compares such documents works on this tree. Only
//! comments, processing instructions and the white space between tags are lost. Reading is bounded
//! in size, depth and number of elements, and refuses a document type declaration: entities cannot
//! be defined.

mod parse;

use std::collections::HashMap;
use std::fmt;

use super::escape::escape;
use super::{Namespace, ReadError};
use crate::excerpt;

/// An element with all that is in it, in document order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Element {
    /// Its name, with the prefix if there is one.
    pub name: String,
    pub attributes: Vec<(String, String)>,
    /// Elements and text inside.
    pub nodes: Vec<Node>,
}

/// What can be inside an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    Element(Element),
    /// Text that is not only white space.
    Text(String),
}

impl Element {
    /// Reads a document.
    ///
    /// # Errors
    /// When it is not well-formed or beyond a limit, see [`ReadError`].
    pub fn parse(text: &str) -> Result<Self, ReadError> {
        parse::document(text)
    }

    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// The element with one more attribute.
    #[must_use]
    pub fn with_attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.attributes.push((name.into(), value.into()));
        self
    }

    /// The element with one more element inside, behind all others.
    #[must_use]
    pub fn with_child(mut self, child: Self) -> Self {
        self.push(child);
        self
    }

    /// Adds an element inside, behind all others.
    pub fn push(&mut self, child: Self) {
        self.nodes.push(Node::Element(child));
    }

    pub fn children(&self) -> impl Iterator<Item = &Self> {
        self.nodes.iter().filter_map(|node| match node {
            Node::Element(child) => Some(child),
            Node::Text(_) => None,
        })
    }

    /// The elements inside, to be changed.
    pub fn children_mut(&mut self) -> impl Iterator<Item = &mut Self> {
        self.nodes.iter_mut().filter_map(|node| match node {
            Node::Element(child) => Some(child),
            Node::Text(_) => None,
        })
    }

    /// The first element of that name inside.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children().find(|child| child.name == name)
    }

    /// The first element of that name inside, to be changed.
    pub fn child_mut(&mut self, name: &str) -> Option<&mut Self> {
        self.children_mut().find(|child| child.name == name)
    }

    /// Removes the elements inside for which `keep` is false; text stays.
    pub fn retain_children(&mut self, mut keep: impl FnMut(&Self) -> bool) {
        self.nodes.retain(|node| match node {
            Node::Element(child) => keep(child),
            Node::Text(_) => true,
        });
    }

    /// The value of an attribute.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// The elements in it that libvirt ignores for their namespace: the prefix is declared neither
    /// on them nor around them (`xmlns:`), or not as QEMU's. `<metadata>` may have any.
    #[must_use]
    pub fn foreign(&self) -> Vec<Foreign<'_>> {
        let (mut declared, mut found) = (HashMap::new(), Vec::new());
        self.find_foreign(&mut declared, &mut found);
        found
    }

    /// `declared` has the namespaces of each prefix, the innermost last.
    fn find_foreign<'a>(
        &'a self,
        declared: &mut HashMap<&'a str, Vec<&'a str>>,
        found: &mut Vec<Foreign<'a>>,
    ) {
        let mut new = Vec::new();
        for (name, uri) in &self.attributes {
            if let Some(prefix) = name.strip_prefix("xmlns:") {
                declared.entry(prefix).or_default().push(uri);
                new.push(prefix);
            }
        }
        let prefix = self.name.split_once(':').map(|(prefix, _)| prefix);
        let namespace = prefix.map(|prefix| declared.get(prefix)?.last().copied());
        match namespace {
            Some(namespace) if namespace != Some(Namespace::Qemu.uri()) => found.push(Foreign {
                name: &self.name,
                namespace,
            }),
            _ => {
                for child in self.children().filter(|it| it.name != "metadata") {
                    child.find_foreign(declared, found);
                }
            }
        }
        for prefix in new {
            declared.entry(prefix).and_modify(|uris| {
                uris.pop();
            });
        }
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
}

/// Longest name or namespace in a message.
const MAX_SHOWN_CHARS: usize = 128;

/// An element in a namespace that libvirt does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foreign<'a> {
    /// With its prefix.
    pub name: &'a str,
    /// `None` if the prefix is not declared.
    pub namespace: Option<&'a str>,
}

impl fmt::Display for Foreign<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = excerpt(self.name, MAX_SHOWN_CHARS);
        let prefix = name.split(':').next().unwrap_or_default();
        let why = match self.namespace.map(|uri| excerpt(uri, MAX_SHOWN_CHARS)) {
            None => "its prefix is not declared".to_owned(),
            Some(uri) => format!("it is in the namespace {uri:?}"),
        };
        let uri = Namespace::Qemu.uri();
        write!(f, "{name}: {why}; write xmlns:{prefix}={uri:?} on it")
    }
}

impl Element {
    /// The document as text, in the form in which Go writes it: tabs, and `<a></a>` where there is
    /// nothing inside. Users' scripts match exactly that.
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

/// Deepest indentation. Deeper elements are rare, and many of them would be mostly tabs.
// D-hook-16 (docs/differences.md).
const MAX_INDENT: usize = 32;

fn new_line(depth: usize, out: &mut String) {
    out.push('\n');
    out.extend(std::iter::repeat_n('\t', depth.min(MAX_INDENT)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xml::{MAX_ALL_ATTRIBUTES, MAX_ATTRIBUTES, MAX_BYTES, MAX_DEPTH, MAX_ELEMENTS};

    #[test]
    fn a_prefix_is_declared_on_the_element_or_around_it() {
        let text =
            "<domain xmlns:a='u'><a:x/><b:y><c:z/></b:y><d xmlns:e='u'><e:f/></d><e:g/></domain>";
        let tree = Element::parse(text).unwrap();
        let found = tree.foreign().into_iter();
        let found: Vec<_> = found.map(|it| (it.name, it.namespace)).collect();
        let other = Some("u");
        assert_eq!(
            found,
            [("a:x", other), ("b:y", None), ("e:f", other), ("e:g", None)]
        );
        let qemu = Namespace::Qemu.uri();
        let text = format!(
            "<domain xmlns:q='{qemu}'><q:commandline/><metadata><a:b/></metadata><d xmlns:q='u'><q:x/></d><q:y/></domain>"
        );
        let tree = Element::parse(&text).unwrap();
        let found = tree
            .foreign()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>();
        assert_eq!(
            found,
            [format!(
                "q:x: it is in the namespace \"u\"; write xmlns:q=\"{qemu}\" on it"
            )]
        );
    }

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
    fn an_invalid_name_is_refused_with_its_line() {
        assert_eq!(
            refusal("<d>\n<a&b/></d>"),
            "line 2: not well-formed XML: \"a&b\" is not a name"
        );
        assert_eq!(
            refusal("<d 1='x'/>"),
            "line 1: not well-formed XML: \"1\" is not a name"
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
        assert!(refusal(&format!("<a{attributes}/>")).contains("attributes in one element"));
        let full: String = (0..MAX_ATTRIBUTES).map(|n| format!(" a{n}=''")).collect();
        let elements = format!("<b{full}/>").repeat(MAX_ALL_ATTRIBUTES / MAX_ATTRIBUTES);
        assert!(Element::parse(&format!("<a>{elements}</a>")).is_ok());
        assert!(refusal(&format!("<a>{elements}<b c=''/></a>")).contains("attributes in all"));
    }

    #[test]
    // D-hook-16 (docs/differences.md).
    fn deep_elements_are_not_mostly_indentation() {
        let deep = format!(
            "{}{}{}",
            "<a>".repeat(200),
            "<b/>".repeat(1_000),
            "</a>".repeat(200)
        );
        let text = Element::parse(&deep).unwrap().to_xml();
        assert!(
            text.len() < 12 * deep.len(),
            "{} of {}",
            text.len(),
            deep.len()
        );
    }

    #[test]
    fn an_attribute_given_twice_is_refused() {
        assert!(refusal("<a b='1' b='2'/>").contains("not well-formed"));
    }

    #[test]
    fn characters_outside_of_xml_are_refused() {
        for text in ["<d>a\u{1}</d>", "<d>&#1;</d>", "<d a='&#xFFFE;'/>"] {
            assert!(refusal(text).contains("cannot be in XML"), "{text:?}");
        }
    }

    #[test]
    fn an_edited_tree_keeps_everything_else() {
        let mut tree =
            Element::parse("<d><devices><a n='1'/><b/>text<a n='2'/></devices><x:y/></d>").unwrap();
        let devices = tree.child_mut("devices").unwrap();
        devices.retain_children(|child| child.attribute("n") != Some("1"));
        devices.push(Element::new("c").with_child(Element::new("e").with_attribute("f", "<")));
        assert_eq!(
            tree,
            Element::parse(
                "<d><devices><b/>text<a n='2'/><c><e f='&lt;'/></c></devices><x:y/></d>"
            )
            .unwrap()
        );
    }
}
