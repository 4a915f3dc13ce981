//! What a sidecar changed, by path: `~ os/bootmenu@enable: "no" → "yes"`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use domain::xml::tree::{Element, Node};

/// Longest value that is shown.
const VALUE: usize = 80;

/// One difference between two documents. The path starts below the root; an element of which
/// there are several is told by what names it: `devices/disk[vda]/driver@cache`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    /// An element or attribute that was not there.
    Added {
        /// Where.
        path: String,
        /// What it holds.
        value: String,
    },
    /// An element or attribute that is there no more.
    Removed {
        /// Where.
        path: String,
    },
    /// An attribute or a text with another value.
    Changed {
        /// Where.
        path: String,
        /// The value before.
        before: String,
        /// The value now.
        after: String,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added { path, value } if value.is_empty() => write!(f, "+ {path}"),
            Self::Added { path, value } => write!(f, "+ {path}: {value:?}"),
            Self::Removed { path } => write!(f, "- {path}"),
            Self::Changed {
                path,
                before,
                after,
            } => write!(f, "~ {path}: {before:?} → {after:?}"),
        }
    }
}

/// All differences, in document order.
#[must_use]
pub fn diff(before: &Element, after: &Element) -> Vec<Change> {
    let mut changes = Vec::new();
    compare(
        &plain(before, &[], ""),
        &plain(after, &[], ""),
        "",
        &mut changes,
    );
    changes
}

/// libvirt's own namespaces; what follows is the prefix that everybody uses.
const LIBVIRT: &str = "http://libvirt.org/schemas/domain/";

/// Most prefixes that are known at one place; a domain has two. More are shown as they are, and cost no time.
const PREFIXES: usize = 32;

/// The element as it would be with the usual prefixes: libraries that write XML make up their own, such as `ns0`, and
/// leave out what is not used. `declared` are the prefixes around it, innermost last, and `around` the namespace.
fn plain(element: &Element, declared: &[(&str, &str)], around: &str) -> Element {
    let own = element
        .attributes
        .iter()
        .filter_map(|(name, uri)| Some((prefix_of(name)?, uri.as_str())));
    let declared: Vec<_> = declared.iter().copied().chain(own).take(PREFIXES).collect();
    let (prefix, local) = element.name.split_once(':').unwrap_or(("", &element.name));
    let namespace = declared
        .iter()
        .rev()
        .find(|(known, _)| *known == prefix)
        .map_or("", |(_, uri)| *uri);
    let name = match namespace
        .strip_prefix(LIBVIRT)
        .and_then(|rest| rest.split('/').next())
    {
        Some(usual) => format!("{usual}:{local}"),
        None if namespace.is_empty() => element.name.clone(),
        None => local.to_owned(),
    };
    let mut attributes: Vec<_> = element
        .attributes
        .iter()
        .filter(|(name, _)| prefix_of(name).is_none())
        .cloned()
        .collect();
    if namespace != around && !namespace.starts_with(LIBVIRT) {
        attributes.push(("xmlns".to_owned(), namespace.to_owned()));
    }
    let nodes = element.nodes.iter().map(|node| match node {
        Node::Element(child) => Node::Element(plain(child, &declared, namespace)),
        text => text.clone(),
    });
    Element {
        name,
        attributes,
        nodes: nodes.collect(),
    }
}

/// The prefix that an attribute declares; the empty one is for names without.
fn prefix_of(attribute: &str) -> Option<&str> {
    match attribute.strip_prefix("xmlns")? {
        "" => Some(""),
        prefix => prefix.strip_prefix(':'),
    }
}

/// The first `most` differences in one line, and how many more there are.
#[must_use]
pub fn one_line(changes: &[Change], most: usize) -> String {
    let mut line = changes
        .iter()
        .take(most)
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ");
    if changes.len() > most {
        line.push_str(&format!("; and {} more", changes.len() - most));
    }
    line
}

fn compare(before: &Element, after: &Element, path: &str, changes: &mut Vec<Change>) {
    if before == after {
        return;
    }
    attributes(before, after, path, changes);
    let (old, new) = (before.text(), after.text());
    if old != new {
        changes.push(Change::Changed {
            path: path.to_owned(),
            before: shown(&old),
            after: shown(&new),
        });
    }
    children(before, after, path, changes);
}

fn attributes(before: &Element, after: &Element, path: &str, changes: &mut Vec<Change>) {
    for (name, value) in &after.attributes {
        let path = || format!("{path}@{name}");
        match before.attribute(name) {
            None => changes.push(Change::Added {
                path: path(),
                value: secret(name, value),
            }),
            Some(old) if old != value => {
                changes.push(Change::Changed {
                    path: path(),
                    before: secret(name, old),
                    after: secret(name, value),
                });
            }
            Some(_) => {}
        }
    }
    for (name, _) in &before.attributes {
        if after.attribute(name).is_none() {
            changes.push(Change::Removed {
                path: format!("{path}@{name}"),
            });
        }
    }
}

/// Pairs the children of the two elements: by what names them, else by their place.
fn children(before: &Element, after: &Element, path: &str, changes: &mut Vec<Change>) {
    let below = |label: &str| {
        if path.is_empty() {
            label.to_owned()
        } else {
            format!("{path}/{label}")
        }
    };
    let old = labelled(before);
    let mut gone: BTreeMap<&str, &Element> = old
        .iter()
        .map(|(label, child)| (label.as_str(), *child))
        .collect();
    for (label, child) in &labelled(after) {
        match gone.remove(label.as_str()) {
            Some(other) => compare(other, child, &below(label), changes),
            None => changes.push(Change::Added {
                path: below(label),
                value: summary(child),
            }),
        }
    }
    let removed = old
        .iter()
        .filter(|(label, _)| gone.contains_key(label.as_str()));
    changes.extend(removed.map(|(label, _)| Change::Removed { path: below(label) }));
}

/// The children with their labels, each label once: `name` or `name[key]`, with a number from the
/// second of the same.
fn labelled(parent: &Element) -> Vec<(String, &Element)> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut label = |child: &Element| {
        let name = key(child).map_or_else(
            || child.name.clone(),
            |key| format!("{}[{key}]", child.name),
        );
        let number = seen.entry(name.clone()).or_default();
        *number += 1;
        if *number == 1 {
            name
        } else {
            format!("{name}#{number}")
        }
    };
    parent
        .children()
        .map(|child| (label(child), child))
        .collect()
}

/// What tells an element from others of its name.
fn key(element: &Element) -> Option<String> {
    let of =
        |child: &str, attribute: &str| element.child(child).and_then(|c| c.attribute(attribute));
    let key = match element.name.as_str() {
        "disk" | "filesystem" => of("target", "dev").or_else(|| of("target", "dir")),
        "interface" => of("mac", "address").or_else(|| of("alias", "name")),
        "channel" => of("target", "name"),
        "controller" => {
            let kind = element.attribute("type")?;
            return Some(
                element
                    .attribute("index")
                    .map_or_else(|| kind.to_owned(), |index| format!("{kind},{index}")),
            );
        }
        "hostdev" | "input" | "serial" | "console" | "tpm" | "watchdog" | "rng" | "sound"
        | "memory" | "shmem" | "redirdev" | "vsock" => of("alias", "name"),
        _ => element
            .attribute("name")
            .or_else(|| element.attribute("id")),
    };
    key.or_else(|| of("alias", "name")).map(shown)
}

/// A new element in a few words: its attributes and its text.
fn summary(element: &Element) -> String {
    let mut words: Vec<String> = element
        .attributes
        .iter()
        .map(|(name, value)| format!("{name}={}", secret(name, value)))
        .collect();
    let text = element.text();
    if !text.is_empty() {
        words.push(text);
    }
    shown(&words.join(" "))
}

/// The value as it may be logged.
fn secret(name: &str, value: &str) -> String {
    if name == "passwd" {
        "(secret)".to_owned()
    } else {
        shown(value)
    }
}

fn shown(value: &str) -> String {
    let end = value.char_indices().nth(VALUE).map(|(end, _)| end);
    match end.and_then(|end| value.get(..end)) {
        Some(start) => format!("{start}…"),
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn lines(before: &str, after: &str) -> Vec<String> {
        diff(
            &Element::parse(before).unwrap(),
            &Element::parse(after).unwrap(),
        )
        .iter()
        .map(ToString::to_string)
        .collect()
    }

    #[test]
    fn the_same_document_with_other_white_space_and_comments_has_no_difference() {
        assert!(
            lines(
                "<d><a b='1'>x</a></d>",
                "<d>\n  <!-- c -->\n  <a b=\"1\">x</a>\n</d>"
            )
            .is_empty()
        );
    }

    #[test]
    fn other_prefixes_for_the_same_namespaces_are_no_difference() {
        let given = "<d xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><metadata><kubevirt xmlns='http://kubevirt.io'>\
                     <uid>u</uid></kubevirt></metadata><qemu:commandline><qemu:arg value='-x'/></qemu:commandline></d>";
        // As Python's ElementTree writes it.
        let python = "<d xmlns:ns0='http://kubevirt.io' xmlns:ns1='http://libvirt.org/schemas/domain/qemu/1.0'><metadata><ns0:kubevirt>\
                      <ns0:uid>UID</ns0:uid></ns0:kubevirt></metadata><ns1:commandline><ns1:arg value='-x'/></ns1:commandline></d>";
        assert!(lines(given, &python.replace("UID", "u")).is_empty());
        assert_eq!(
            lines(given, &python.replace("UID", "v")),
            [r#"~ metadata/kubevirt/uid: "u" → "v""#]
        );
        assert_eq!(
            lines(given, &given.replace("kubevirt.io", "example.org"))[0],
            r#"~ metadata/kubevirt@xmlns: "http://kubevirt.io" → "http://example.org""#
        );
        assert_eq!(lines("<d/>", given).last().unwrap(), "+ qemu:commandline");
        assert_eq!(lines("<d><x:a/></d>", "<d><y:a/></d>"), ["+ y:a", "- x:a"]);
    }

    #[test]
    fn added_removed_and_changed_are_shown_by_path() {
        let before = "<domain><os><bootmenu enable='no'/></os><vcpu>1</vcpu><a/></domain>";
        let after = "<domain><os><bootmenu enable='yes' timeout='3'/></os><vcpu>2</vcpu>\
                     <sysinfo><baseBoard><entry name='manufacturer'>R. Edward</entry></baseBoard></sysinfo></domain>";
        assert_eq!(
            lines(before, after),
            [
                r#"~ os/bootmenu@enable: "no" → "yes""#,
                r#"+ os/bootmenu@timeout: "3""#,
                r#"~ vcpu: "1" → "2""#,
                "+ sysinfo",
                "- a",
            ]
        );
    }

    #[test]
    fn a_removed_disk_does_not_make_the_others_look_changed() {
        let disk = |dev: &str, cache: &str| {
            format!("<disk><driver cache='{cache}'/><target dev='{dev}'/></disk>")
        };
        let before = format!("<d>{}{}</d>", disk("vda", "none"), disk("vdb", "none"));
        let after = format!("<d>{}</d>", disk("vdb", "writeback"));
        assert_eq!(
            lines(&before, &after),
            [
                r#"~ disk[vdb]/driver@cache: "none" → "writeback""#,
                "- disk[vda]"
            ]
        );
    }

    #[test]
    fn elements_without_a_name_are_told_by_their_place() {
        assert_eq!(
            lines("<d><e/><e/></d>", "<d><e/><e/><e x='1'/></d>"),
            [r#"+ e#3: "x=1""#]
        );
    }

    #[test]
    fn passwords_are_not_shown_and_long_values_are_cut() {
        let changes = lines(
            "<d><g passwd='old'/></d>",
            &format!("<d><g passwd='new'/><t>{}</t></d>", "é".repeat(100)),
        );
        assert_eq!(changes[0], r#"~ g@passwd: "(secret)" → "(secret)""#);
        assert_eq!(changes[1].chars().filter(|&c| c == 'é').count(), VALUE);
    }

    #[test]
    fn one_line_says_how_many_more_there_are() {
        let changes: Vec<Change> = (0..5)
            .map(|n| Change::Removed {
                path: n.to_string(),
            })
            .collect();
        assert_eq!(one_line(&changes, 2), "- 0; - 1; and 3 more");
    }
}
