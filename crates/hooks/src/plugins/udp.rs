//! A UDP character device has two `<source>` elements, and Go's types one struct with four fields. So the two are one
//! while expressions look at the document, with attributes that no document has:
//!
//! ```text
//!  <source mode="bind" host="a"/> <source mode="connect" host="b"/>   ◄──►   <source bind:host="a" connect:host="b"/>
//! ```

use std::sync::Arc;

use domain::xml::tree::{Element, Node};

/// The modes, in the order in which they are written.
const MODES: [&str; 2] = ["bind", "connect"];

/// The document with one `<source>` in each UDP device.
pub fn joined(document: &Arc<Element>) -> Arc<Element> {
    if !has_udp(document) {
        return Arc::clone(document);
    }
    let mut document = Element::clone(document);
    join(&mut document);
    Arc::new(document)
}

fn has_udp(element: &Element) -> bool {
    element.attribute("type") == Some("udp") || element.children().any(has_udp)
}

/// Which of the two sources it is.
fn mode(source: &Element) -> Option<&'static str> {
    let mode = source
        .attribute("mode")
        .filter(|_| source.name == "source")?;
    MODES.into_iter().find(|known| *known == mode)
}

fn join(element: &mut Element) {
    let udp = element.attribute("type") == Some("udp");
    let mut both: Option<Element> = None;
    let mut at = 0;
    for node in std::mem::take(&mut element.nodes) {
        match node {
            Node::Element(source) if udp && let Some(mode) = mode(&source) => {
                at = both.as_ref().map_or(element.nodes.len(), |_| at);
                let both = both.get_or_insert_with(|| Element {
                    name: source.name,
                    ..Element::default()
                });
                let others = source
                    .attributes
                    .into_iter()
                    .filter(|(name, _)| name != "mode");
                both.attributes
                    .extend(others.map(|(name, value)| (format!("{mode}:{name}"), value)));
                both.nodes.extend(source.nodes);
            }
            Node::Element(mut child) => {
                join(&mut child);
                element.nodes.push(Node::Element(child));
            }
            text => element.nodes.push(text),
        }
    }
    if let Some(both) = both {
        element.nodes.insert(at, Node::Element(both));
    }
}

/// Gives each mode its own `<source>` again.
pub fn split(element: &mut Element) {
    for node in std::mem::take(&mut element.nodes) {
        match node {
            Node::Element(source)
                if source.name == "source"
                    && source.attributes.iter().any(|(name, _)| is_joined(name)) =>
            {
                element.nodes.extend(parts(source).map(Node::Element));
            }
            Node::Element(mut child) => {
                split(&mut child);
                element.nodes.push(Node::Element(child));
            }
            text => element.nodes.push(text),
        }
    }
}

fn is_joined(name: &str) -> bool {
    name.split_once(':')
        .is_some_and(|(mode, _)| MODES.contains(&mode))
}

fn parts(both: Element) -> impl Iterator<Item = Element> {
    let Element {
        name,
        attributes,
        mut nodes,
    } = both;
    MODES.into_iter().filter_map(move |mode| {
        let own = attributes
            .iter()
            .filter_map(|(name, value)| Some((name.strip_prefix(mode)?.strip_prefix(':')?, value)));
        let own: Vec<_> = own
            .map(|(name, value)| (name.to_owned(), value.clone()))
            .collect();
        let mode = ("mode".to_owned(), mode.to_owned());
        let attributes = std::iter::once(mode).chain(own.iter().cloned()).collect();
        (!own.is_empty()).then(|| Element {
            name: name.clone(),
            attributes,
            nodes: std::mem::take(&mut nodes),
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_document_comes_back_as_it_was() {
        for text in [
            "<d><serial type=\"tcp\"><source mode=\"bind\" host=\"h\"/></serial></d>",
            "<d><serial type=\"udp\"><alias name=\"a\"/><source mode=\"bind\" host=\"h\" service=\"1\"/><source mode=\"connect\" host=\"i\"/><target port=\"0\"/></serial><x/></d>",
            "<d><interface type=\"udp\"><source address=\"127.0.0.1\" port=\"1\"><local address=\"127.0.0.1\" port=\"2\"/></source></interface></d>",
        ] {
            let document = Arc::new(Element::parse(text).unwrap());
            let mut back = Element::clone(&joined(&document));
            split(&mut back);
            assert_eq!(back, *document, "{text}");
        }
    }
}
