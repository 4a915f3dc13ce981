//! Edits an element tree by name and path, and makes missing elements.

use domain::xml::tree::{Element, Node};

/// Sets an attribute; `None` removes it.
pub fn set_attribute(attributes: &mut Vec<(String, String)>, name: &str, value: Option<String>) {
    let Some(value) = value else {
        attributes.retain(|(key, _)| key != name);
        return;
    };
    match attributes.iter_mut().find(|(key, _)| key == name) {
        Some((_, old)) => *old = value,
        None => attributes.push((name.to_owned(), value)),
    }
}

/// Edits the first child element of that name, and makes it if it is missing.
pub fn edit_child<T>(nodes: &mut Vec<Node>, name: &str, edit: impl FnOnce(&mut Element) -> T) -> T {
    for node in nodes.iter_mut() {
        if let Node::Element(child) = node
            && child.name == name
        {
            return edit(child);
        }
    }
    let mut child = Element::new(name);
    let result = edit(&mut child);
    nodes.push(Node::Element(child));
    result
}

/// Edits the element at the end of a path, and makes missing elements.
pub fn edit_at<T>(element: &mut Element, path: &[&str], edit: impl FnOnce(&mut Element) -> T) -> T {
    match path.split_first() {
        None => edit(element),
        Some((name, rest)) => {
            edit_child(&mut element.nodes, name, |child| edit_at(child, rest, edit))
        }
    }
}

/// Removes all elements of that name below a path of parents.
pub fn remove_at(element: &mut Element, parents: &[&str], name: &str) {
    match parents.split_first() {
        None => element.retain_children(|child| child.name != name),
        Some((parent, rest)) => {
            if let Some(parent) = element.child_mut(parent) {
                remove_at(parent, rest, name);
            }
        }
    }
}

/// Replaces all elements of that name with `elements`.
pub fn replace_children(parent: &mut Element, name: &str, elements: Vec<Element>) {
    let is_named = |node: &Node| matches!(node, Node::Element(child) if child.name == name);
    let mut elements = Some(elements.into_iter().map(Node::Element));
    let mut nodes = Vec::new();
    for node in std::mem::take(&mut parent.nodes) {
        if !is_named(&node) {
            nodes.push(node);
        } else if let Some(elements) = elements.take() {
            nodes.extend(elements);
        }
    }
    nodes.extend(elements.into_iter().flatten());
    parent.nodes = nodes;
}
