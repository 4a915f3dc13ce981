//! Compares XML by meaning: attributes as a map, children grouped by name (the order among siblings
//! of one name counts, the order between names does not), text trimmed, namespaces expanded.

use std::collections::BTreeMap;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// An element with its names expanded: `{namespace}local`, or `local` outside of any.
#[derive(Debug, Default, Clone)]
pub struct Node {
    /// Expanded name.
    pub name: String,
    /// Attributes by expanded name, without the declarations of namespaces.
    pub attributes: BTreeMap<String, String>,
    /// Text before the first child.
    pub text: String,
    /// Elements inside.
    pub children: Vec<Node>,
    /// Text after the element, which belongs to its parent.
    pub tail: String,
}

/// The differences between two documents, each with its path; one line if `got` is not XML.
///
/// # Panics
/// When `want` is not XML: the test itself is broken then.
pub fn differences(want: &str, got: &str) -> Vec<String> {
    let want =
        parse(want).unwrap_or_else(|e| panic!("the expected document is not well-formed XML: {e}"));
    match parse(got) {
        Ok(got) => node_differences(&want, &got),
        Err(e) => vec![format!("output is not well-formed XML: {e}")],
    }
}

/// The differences between two elements, each with its path.
pub fn node_differences(want: &Node, got: &Node) -> Vec<String> {
    let mut out = Vec::new();
    compare(want, got, &format!("/{}", short(&want.name)), &mut out);
    out
}

fn compare(want: &Node, got: &Node, path: &str, out: &mut Vec<String>) {
    if want.name != got.name {
        out.push(format!("{path}: element {}, got {}", want.name, got.name));
        return;
    }
    let names = want.attributes.keys().chain(
        got.attributes
            .keys()
            .filter(|k| !want.attributes.contains_key(*k)),
    );
    for name in names {
        let (w, g) = (want.attributes.get(name), got.attributes.get(name));
        if w != g {
            out.push(format!(
                "{path}/@{}: {}, got {}",
                short(name),
                show(w),
                show(g)
            ));
        }
    }
    let (w, g) = (want.text.trim(), got.text.trim());
    if w != g {
        out.push(format!("{path}: text {w:?}, got {g:?}"));
    }
    let mut groups: BTreeMap<&str, [Vec<&Node>; 2]> = BTreeMap::new();
    for (side, element) in [want, got].into_iter().enumerate() {
        for child in &element.children {
            if !child.tail.trim().is_empty() {
                out.push(format!(
                    "{path}: stray text {:?} after {}",
                    child.tail.trim(),
                    short(&child.name)
                ));
            }
            groups.entry(&child.name).or_default()[side].push(child);
        }
    }
    for (name, [ws, gs]) in groups {
        let many = ws.len().max(gs.len());
        for i in 0..many {
            let index = if many > 1 {
                format!("[{i}]")
            } else {
                String::new()
            };
            let path = format!("{path}/{}{index}", short(name));
            match (ws.get(i), gs.get(i)) {
                (Some(w), Some(g)) => compare(w, g, &path, out),
                (Some(w), None) => out.push(format!("{path}: missing ({})", summary(w))),
                (None, Some(g)) => out.push(format!("{path}: unexpected ({})", summary(g))),
                (None, None) => {}
            }
        }
    }
}

/// Reads a document.
///
/// # Errors
/// When the text is not well-formed XML.
pub fn parse(text: &str) -> Result<Node, String> {
    let mut reader = Reader::from_str(text);
    let mut namespaces = Namespaces(vec![(
        "xml".into(),
        "http://www.w3.org/XML/1998/namespace".into(),
    )]);
    // Open elements, each with how many namespaces were known outside of it; the first is a
    // stand-in for the document.
    let mut open = vec![(Node::default(), 0)];
    loop {
        match reader.read_event().map_err(|e| e.to_string())? {
            Event::Start(start) => {
                let outside = namespaces.0.len();
                open.push((namespaces.node(&start)?, outside));
            }
            Event::Empty(start) => {
                let outside = namespaces.0.len();
                let node = namespaces.node(&start)?;
                namespaces.0.truncate(outside);
                innermost(&mut open).children.push(node);
            }
            Event::End(_) => {
                let (node, outside) = open.pop().ok_or("an end tag too many")?;
                namespaces.0.truncate(outside);
                innermost(&mut open).children.push(node);
            }
            Event::Text(t) => add_text(&mut open, &t.xml10_content()),
            Event::CData(t) => add_text(&mut open, &t.xml10_content()),
            Event::GeneralRef(r) => {
                let entity = format!("&{};", r.xml10_content());
                add_text(
                    &mut open,
                    &quick_xml::escape::unescape(&entity).map_err(|e| e.to_string())?,
                );
            }
            Event::Eof => break,
            _ => {}
        }
    }
    match (open.len(), open.pop()) {
        (1, Some((mut document, _))) if document.children.len() == 1 => {
            Ok(document.children.remove(0))
        }
        (1, _) => Err("there is not exactly one root element".to_owned()),
        _ => Err("the document ends inside an element".to_owned()),
    }
}

fn innermost(open: &mut [(Node, usize)]) -> &mut Node {
    &mut open
        .last_mut()
        .expect("the stand-in for the document is never closed")
        .0
}

fn add_text(open: &mut [(Node, usize)], text: &str) {
    let node = innermost(open);
    match node.children.last_mut() {
        Some(child) => child.tail.push_str(text),
        None => node.text.push_str(text),
    }
}

/// Prefixes in scope with their namespaces, the innermost last.
struct Namespaces(Vec<(String, String)>);

impl Namespaces {
    /// An element without its content; its namespaces come into scope.
    fn node(&mut self, start: &BytesStart<'_>) -> Result<Node, String> {
        let mut plain = Vec::new();
        for attribute in start.attributes() {
            let attribute = attribute.map_err(|e| e.to_string())?;
            let name = attribute.key.into_inner();
            let value = attribute
                .normalized_value(quick_xml::XmlVersion::Implicit1_0)
                .map_err(|e| e.to_string())?;
            match name
                .strip_prefix("xmlns")
                .map(|rest| (rest, rest.strip_prefix(':')))
            {
                Some(("", _)) => self.0.push((String::new(), value.into_owned())),
                Some((_, Some(prefix))) => self.0.push((prefix.to_owned(), value.into_owned())),
                _ => plain.push((name, value.into_owned())),
            }
        }
        let mut node = Node {
            name: self.expand(start.name().into_inner(), true)?,
            ..Node::default()
        };
        for (name, value) in plain {
            node.attributes.insert(self.expand(name, false)?, value);
        }
        Ok(node)
    }

    fn expand(&self, name: &str, element: bool) -> Result<String, String> {
        let (prefix, local) = name.split_once(':').unwrap_or(("", name));
        if prefix.is_empty() && !element {
            return Ok(local.to_owned());
        }
        match self.0.iter().rev().find(|(p, _)| p == prefix) {
            Some((_, uri)) if !uri.is_empty() => Ok(format!("{{{uri}}}{local}")),
            _ if prefix.is_empty() => Ok(local.to_owned()),
            _ => Err(format!("the prefix of {name} is not declared")),
        }
    }
}

/// The name without its namespace, unless that is KubeVirt's.
fn short(name: &str) -> &str {
    match name.split_once('}') {
        Some((uri, local)) if !uri.contains("kubevirt") => local,
        _ => name,
    }
}

fn show(value: Option<&String>) -> String {
    value.map_or_else(|| "absent".to_owned(), |v| format!("{v:?}"))
}

fn summary(node: &Node) -> String {
    let mut out = String::new();
    summarize(node, &mut out);
    shorten(&out, 160)
}

fn summarize(node: &Node, out: &mut String) {
    out.push('<');
    out.push_str(short(&node.name));
    for (name, value) in &node.attributes {
        out.push_str(&format!(" {}={value:?}", short(name)));
    }
    out.push('>');
    out.push_str(node.text.trim());
    node.children.iter().for_each(|child| summarize(child, out));
    out.push_str(&format!("</{}>", short(&node.name)));
}

/// The text, cut after `limit` characters.
pub fn shorten(text: &str, limit: usize) -> String {
    let end = text.char_indices().nth(limit).map(|(end, _)| end);
    match end.and_then(|end| text.get(..end)) {
        Some(start) => format!("{start}…"),
        None => text.to_owned(),
    }
}
