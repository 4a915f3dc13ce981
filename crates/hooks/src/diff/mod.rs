//! What a hook changed, by path: `~ os/bootmenu@enable: "no" → "yes"`.
//!
//! Elements are paired by what identifies them, such as the target device of a disk, so that a removed disk does not make
//! all disks after it look changed.

mod namespaces;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use domain::xml::tree::Element;

/// Limit of a value that is shown, in characters.
const MAX_VALUE_CHARS: usize = 80;
/// Limit of the changes in a log line.
const MAX_LOGGED_CHANGES: usize = 20;

/// One difference between two documents. The path starts below the root element. Among several elements of one name, what
/// identifies it is in brackets: `devices/disk[vda]/driver@cache`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    /// A new element or attribute.
    Added {
        /// Path of the element or attribute.
        path: String,
        /// Its content.
        value: String,
    },
    /// A removed element or attribute.
    Removed {
        /// Path of the element or attribute.
        path: String,
    },
    /// An attribute or text with another value.
    Changed {
        /// Path of the element or attribute.
        path: String,
        /// The old value.
        before: String,
        /// The new value.
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

/// All differences, in document order. Prefixes of namespaces, white space and comments make no difference.
#[must_use]
pub fn diff(before: &Element, after: &Element) -> Vec<Change> {
    let mut changes = Vec::new();
    compare(
        &namespaces::normalized(before),
        &namespaces::normalized(after),
        "",
        &mut changes,
    );
    changes
}

/// The first changes on one line, and how many more there are.
#[must_use]
pub fn summary(changes: &[Change]) -> String {
    let shown = changes.iter().take(MAX_LOGGED_CHANGES);
    let mut line = shown
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ");
    let more = changes.len().saturating_sub(MAX_LOGGED_CHANGES);
    if more > 0 {
        line.push_str(&format!("; and {more} more"));
    }
    line
}

fn compare(before: &Element, after: &Element, path: &str, changes: &mut Vec<Change>) {
    if before == after {
        return;
    }
    compare_attributes(before, after, path, changes);
    let (old, new) = (before.text(), after.text());
    if old != new {
        changes.push(Change::Changed {
            path: path.to_owned(),
            before: truncated(&old),
            after: truncated(&new),
        });
    }
    compare_children(before, after, path, changes);
}

fn compare_attributes(before: &Element, after: &Element, path: &str, changes: &mut Vec<Change>) {
    for (name, value) in &after.attributes {
        let path = || format!("{path}@{name}");
        match before.attribute(name) {
            None => changes.push(Change::Added {
                path: path(),
                value: shown(name, value),
            }),
            Some(old) if old != value => changes.push(Change::Changed {
                path: path(),
                before: shown(name, old),
                after: shown(name, value),
            }),
            Some(_) => {}
        }
    }
    let removed = before
        .attributes
        .iter()
        .filter(|(name, _)| after.attribute(name).is_none());
    changes.extend(removed.map(|(name, _)| Change::Removed {
        path: format!("{path}@{name}"),
    }));
}

fn compare_children(before: &Element, after: &Element, path: &str, changes: &mut Vec<Change>) {
    let child_path = |label: &str| match path {
        "" => label.to_owned(),
        _ => format!("{path}/{label}"),
    };
    let old = labelled(before);
    let mut unpaired: BTreeMap<&str, &Element> = old
        .iter()
        .map(|(label, child)| (label.as_str(), *child))
        .collect();
    for (label, child) in &labelled(after) {
        match unpaired.remove(label.as_str()) {
            Some(other) => compare(other, child, &child_path(label), changes),
            None => changes.push(Change::Added {
                path: child_path(label),
                value: content(child),
            }),
        }
    }
    let removed = old
        .iter()
        .filter(|(label, _)| unpaired.contains_key(label.as_str()));
    changes.extend(removed.map(|(label, _)| Change::Removed {
        path: child_path(label),
    }));
}

/// The children, each with a label of its own: `name` or `name[identity]`, and `#2`, `#3` where a label repeats.
fn labelled(parent: &Element) -> Vec<(String, &Element)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut label = |child: &Element| {
        let label = match identity(child) {
            Some(identity) => format!("{}[{identity}]", child.name),
            None => child.name.clone(),
        };
        let count = counts.entry(label.clone()).or_default();
        *count = count.saturating_add(1);
        match *count {
            1 => label,
            n => format!("{label}#{n}"),
        }
    };
    parent
        .children()
        .map(|child| (label(child), child))
        .collect()
}

/// What identifies an element among others of its name.
fn identity(element: &Element) -> Option<String> {
    let of_child =
        |child: &str, attribute: &str| element.child(child).and_then(|c| c.attribute(attribute));
    let alias = || of_child("alias", "name");
    let identity = match element.name.as_str() {
        "disk" | "filesystem" => of_child("target", "dev").or_else(|| of_child("target", "dir")),
        "interface" => of_child("mac", "address"),
        "channel" => of_child("target", "name"),
        "controller" => {
            let kind = element.attribute("type")?;
            return Some(match element.attribute("index") {
                Some(index) => format!("{kind},{index}"),
                None => kind.to_owned(),
            });
        }
        "hostdev" | "input" | "serial" | "console" | "tpm" | "watchdog" | "rng" | "sound"
        | "memory" | "shmem" | "redirdev" | "vsock" => alias(),
        _ => element
            .attribute("name")
            .or_else(|| element.attribute("id")),
    };
    identity.or_else(alias).map(truncated)
}

/// The attributes and the text of a new element.
fn content(element: &Element) -> String {
    let attributes = element
        .attributes
        .iter()
        .map(|(name, value)| format!("{name}={}", shown(name, value)));
    let text = Some(element.text()).filter(|text| !text.is_empty());
    truncated(&attributes.chain(text).collect::<Vec<_>>().join(" "))
}

/// An attribute's value as it may be logged.
fn shown(name: &str, value: &str) -> String {
    match name {
        "passwd" => "(secret)".to_owned(),
        _ => truncated(value),
    }
}

fn truncated(value: &str) -> String {
    let mut text: String = value.chars().take(MAX_VALUE_CHARS).collect();
    if text.len() < value.len() {
        text.push('…');
    }
    text
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
    fn white_space_and_comments_are_no_difference() {
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
    fn elements_without_an_identity_are_numbered() {
        assert_eq!(
            lines("<d><e/><e/></d>", "<d><e/><e/><e x='1'/></d>"),
            [r#"+ e#3: "x=1""#]
        );
    }

    #[test]
    fn passwords_are_hidden_and_long_values_are_truncated() {
        let changes = lines(
            "<d><g passwd='old'/></d>",
            &format!("<d><g passwd='new'/><t>{}</t></d>", "é".repeat(100)),
        );
        assert_eq!(changes[0], r#"~ g@passwd: "(secret)" → "(secret)""#);
        assert_eq!(
            changes[1].chars().filter(|&c| c == 'é').count(),
            MAX_VALUE_CHARS
        );
    }

    #[test]
    fn a_summary_says_how_many_more_changes_there_are() {
        let changes: Vec<Change> = (0..MAX_LOGGED_CHANGES + 3)
            .map(|n| Change::Removed {
                path: n.to_string(),
            })
            .collect();
        let line = summary(&changes);
        assert!(
            line.starts_with("- 0; - 1; ") && line.ends_with("- 19; and 3 more"),
            "{line}"
        );
        assert_eq!(summary(&changes[..2]), "- 0; - 1");
    }
}
