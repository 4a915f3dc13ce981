//! A UDP character device has two `<source>` elements in XML, but one struct with four fields in
//! Go. So before an expression reads the document, the two elements are joined. The joined element
//! has attributes that libvirt does not know:
//!
//! ```text
//!  <source mode="bind" host="a"/> <source mode="connect" host="b"/>   ◄──►   <source bind:host="a" connect:host="b"/>
//! ```

use std::sync::Arc;

use domain::xml::tree::{Element, Node};

/// The values of `mode`, in the order in which [`split`] writes them.
const MODES: [&str; 2] = ["bind", "connect"];

/// Joins each UDP device's `<source>` elements.
pub fn join(document: &Arc<Element>) -> Arc<Element> {
    if !has_udp(document) {
        return Arc::clone(document);
    }
    let mut document = Element::clone(document);
    join_sources(&mut document);
    Arc::new(document)
}

fn has_udp(element: &Element) -> bool {
    is_udp(element) || element.children().any(has_udp)
}

fn is_udp(element: &Element) -> bool {
    element.attribute("type") == Some("udp")
}

fn mode(node: &Node) -> Option<&'static str> {
    let Node::Element(source) = node else {
        return None;
    };
    let mode = source.attribute("mode")?;
    MODES
        .into_iter()
        .find(|known| source.name == "source" && *known == mode)
}

fn join_sources(element: &mut Element) {
    element.children_mut().for_each(join_sources);
    let position = element.nodes.iter().position(|node| mode(node).is_some());
    let Some(position) = position.filter(|_| is_udp(element)) else {
        return;
    };
    let mut joined = Element::new("source");
    let mut nodes = Vec::new();
    for node in std::mem::take(&mut element.nodes) {
        match (mode(&node), node) {
            (Some(mode), Node::Element(source)) => {
                let own = source.attributes.into_iter();
                let own = own.filter(|(name, _)| name != "mode");
                let prefixed = own.map(|(name, value)| (format!("{mode}:{name}"), value));
                joined.attributes.extend(prefixed);
                joined.nodes.extend(source.nodes);
            }
            (_, node) => nodes.push(node),
        }
    }
    nodes.insert(position, Node::Element(joined));
    element.nodes = nodes;
}

/// Splits each joined `<source>` into one for each mode.
pub fn split(element: &mut Element) {
    element.children_mut().for_each(split);
    let nodes = std::mem::take(&mut element.nodes).into_iter();
    let nodes = nodes.flat_map(|node| match node {
        Node::Element(source) if is_joined(&source) => split_source(source),
        node => vec![node],
    });
    element.nodes = nodes.collect();
}

fn is_joined(source: &Element) -> bool {
    let has_mode =
        |name: &str| matches!(name.split_once(':'), Some((mode, _)) if MODES.contains(&mode));
    source.name == "source" && source.attributes.iter().any(|(name, _)| has_mode(name))
}

/// Makes one `<source>` for each mode with attributes. Child elements stay in the first one.
fn split_source(mut joined: Element) -> Vec<Node> {
    let mut sources = Vec::new();
    for mode in MODES {
        let own = joined.attributes.iter().filter_map(|(name, value)| {
            let name = name.strip_prefix(mode)?.strip_prefix(':')?;
            Some((name.to_owned(), value.clone()))
        });
        let own: Vec<_> = own.collect();
        if !own.is_empty() {
            let mut source = Element::new("source").with_attribute("mode", mode);
            source.attributes.extend(own);
            source.nodes = std::mem::take(&mut joined.nodes);
            sources.push(Node::Element(source));
        }
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_restores_a_joined_document() {
        for text in [
            "<d><serial type=\"tcp\"><source mode=\"bind\" host=\"h\"/></serial></d>",
            "<d><serial type=\"udp\"><alias name=\"a\"/><source mode=\"bind\" host=\"h\" service=\"1\"/><source mode=\"connect\" host=\"i\"/><target port=\"0\"/></serial><x/></d>",
            "<d><interface type=\"udp\"><source address=\"127.0.0.1\" port=\"1\"><local address=\"127.0.0.1\" port=\"2\"/></source></interface></d>",
        ] {
            let document = Arc::new(Element::parse(text).unwrap());
            let mut back = Element::clone(&join(&document));
            split(&mut back);
            assert_eq!(back, *document, "{text}");
        }
    }
}
