//! Finds a hook's changes by path: `~ os/bootmenu@enable: "no" → "yes"`.
//!
//! Elements are paired by their identity, such as the target device of a disk, so that removing a
//! disk does not make all disks after it look changed.
//!
//! The documents are not trusted. A comparison takes time and memory in proportion to their size,
//! copies nothing of them, and stops at [`MAX_CHANGES`].

mod changes;
mod path;
mod scope;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use domain::xml::secrets::{self, HIDDEN};
use domain::xml::tree::Element;

use changes::truncated;
pub use changes::{Change, Changes, MAX_CHANGES, summary};
use path::{Label, Numbering, Path, Sibling};
use scope::{Namespaces, Scoped};

/// The differences, in document order. Namespace prefixes, white space and comments do not count.
#[must_use]
pub fn diff(before: &Element, after: &Element) -> Changes {
    let mut comparison = Comparison::default();
    let before = Scoped::root(before, &mut comparison.namespaces);
    let after = Scoped::root(after, &mut comparison.namespaces);
    // Breaks once MAX_CHANGES is reached.
    let _ = comparison.compare(&before, &after, Path::Root);
    comparison.changes
}

#[derive(Debug, Default)]
struct Comparison<'t> {
    namespaces: Namespaces<'t>,
    changes: Changes,
}

impl<'t> Comparison<'t> {
    fn compare(
        &mut self,
        before: &Scoped<'t>,
        after: &Scoped<'t>,
        path: Path<'_, 't>,
    ) -> ControlFlow<()> {
        self.compare_attributes(before, after, path)?;
        if secrets::is_secret_element(&after.element.name) {
            return match before.element.nodes == after.element.nodes {
                true => ControlFlow::Continue(()),
                false => self.changes.push(Change::Changed {
                    path: path.to_string(),
                    before: HIDDEN.to_owned(),
                    after: HIDDEN.to_owned(),
                }),
            };
        }
        let (old, new) = (before.element.text(), after.element.text());
        if old != new {
            self.changes.push(Change::Changed {
                path: path.to_string(),
                before: truncated(&old),
                after: truncated(&new),
            })?;
        }
        drop((old, new));
        self.compare_children(before, after, path)
    }

    fn compare_attributes(
        &mut self,
        before: &Scoped<'t>,
        after: &Scoped<'t>,
        path: Path<'_, 't>,
    ) -> ControlFlow<()> {
        for (name, value) in after.attributes() {
            let change = match before.element.attribute(name) {
                Some(old) if old == value => continue,
                Some(old) => changed(name, old, value, path),
                None => added(name, value, path),
            };
            self.changes.push(change)?;
        }
        // Compares numbers and not texts, which may be long and repeated in every element.
        let change = match (before.new_namespace, after.new_namespace) {
            (Some(old), Some(new)) if old != new => Some(changed(XMLNS, old.uri, new.uri, path)),
            (None, Some(new)) => Some(added(XMLNS, new.uri, path)),
            _ => None,
        };
        if let Some(change) = change {
            self.changes.push(change)?;
        }
        for (name, _) in before.attributes() {
            if after.element.attribute(name).is_none() {
                self.removed(path.attribute(name))?;
            }
        }
        if before.new_namespace.is_some() && after.new_namespace.is_none() {
            self.removed(path.attribute(XMLNS))?;
        }
        ControlFlow::Continue(())
    }

    fn compare_children(
        &mut self,
        before: &Scoped<'t>,
        after: &Scoped<'t>,
        path: Path<'_, 't>,
    ) -> ControlFlow<()> {
        let mut numbering = Numbering::default();
        let old = numbering.siblings(before, &mut self.namespaces);
        let new = numbering.siblings(after, &mut self.namespaces);
        drop(numbering);
        let places = old.iter().enumerate();
        let mut unpaired: HashMap<_, _> = places
            .map(|(place, it)| (it.key, (place, it.element)))
            .collect();
        let mut paired: HashMap<_, Vec<(usize, Label<'t>)>> = HashMap::new();
        for Sibling { key, element } in new {
            let child = after.child(element, &mut self.namespaces);
            let label = Label::new(&child, key.1);
            let path = path.child(label);
            match unpaired.remove(&key) {
                Some((place, other)) => {
                    paired.entry(label.name).or_default().push((place, label));
                    let other = before.child(other, &mut self.namespaces);
                    self.compare(&other, &child, path)?;
                }
                None => self.added(&child, path)?,
            }
        }
        for Sibling { key, element } in old {
            if unpaired.contains_key(&key) {
                let child = before.child(element, &mut self.namespaces);
                self.removed(path.child(Label::new(&child, key.1)).to_string())?;
            }
        }
        let moved = paired.into_values();
        let mut moved: Vec<_> = moved
            .filter(|it| !it.is_sorted_by_key(|(place, _)| *place))
            .collect();
        moved.sort_by_key(|it| it.first().map(|(place, _)| *place));
        moved.iter().try_for_each(|it| self.moved(it, path))
    }

    /// Notes that siblings of one name have another order, by which libvirt gives them addresses.
    /// Each sibling in `now` has its place in the old order.
    fn moved(&mut self, now: &[(usize, Label<'t>)], path: Path<'_, 't>) -> ControlFlow<()> {
        const MAX_SHOWN: usize = 4;
        let mut before = now.to_vec();
        before.sort_unstable_by_key(|(place, _)| *place);
        let is_same = |(now, before): &(&(usize, _), &(usize, _))| now.0 == before.0;
        let same = now.iter().zip(&before).take_while(is_same).count();
        let order = |siblings: &[(usize, Label<'t>)]| {
            let shown = siblings.iter().skip(same).take(MAX_SHOWN);
            let labels: Vec<String> = shown.map(|(_, label)| label.to_string()).collect();
            truncated(&labels.join(", "))
        };
        let Some((_, label)) = now.first() else {
            return ControlFlow::Continue(());
        };
        self.changes.push(Change::Changed {
            path: format!("order of {}", path.child(label.of_name())),
            before: order(&before),
            after: order(now),
        })
    }

    /// Notes a new element. One that only contains others, such as `qemu:commandline`, says nothing
    /// by itself, so its children are noted in its place.
    fn added(&mut self, new: &Scoped<'t>, path: Path<'_, 't>) -> ControlFlow<()> {
        static NOTHING: LazyLock<Element> = LazyLock::new(|| Element::new(""));
        let value = content(new);
        if value.is_empty() && new.element.children().next().is_some() {
            let nothing = Scoped::root(&NOTHING, &mut self.namespaces);
            return self.compare_children(&nothing, new, path);
        }
        let path = path.to_string();
        self.changes.push(Change::Added { path, value })
    }

    fn removed(&mut self, path: String) -> ControlFlow<()> {
        self.changes.push(Change::Removed { path })
    }
}

/// The attribute name under which a namespace is shown.
const XMLNS: &str = "xmlns";

fn added(name: &str, value: &str, path: Path<'_, '_>) -> Change {
    Change::Added {
        path: path.attribute(name),
        value: shown(name, value),
    }
}

fn changed(name: &str, before: &str, after: &str, path: Path<'_, '_>) -> Change {
    Change::Changed {
        path: path.attribute(name),
        before: shown(name, before),
        after: shown(name, after),
    }
}

/// The attributes and the text of a new element.
fn content(element: &Scoped<'_>) -> String {
    let namespace = element
        .new_namespace
        .map(|namespace| (XMLNS, namespace.uri));
    let attributes = element
        .attributes()
        .chain(namespace)
        .map(|(name, value)| format!("{}={}", truncated(name), shown(name, value)));
    let text = match secrets::is_secret_element(&element.element.name) {
        true => HIDDEN.to_owned(),
        false => element.element.text(),
    };
    let text = Some(text).filter(|text| !text.is_empty());
    truncated(&attributes.chain(text).collect::<Vec<_>>().join(" "))
}

/// An attribute's value, with secrets replaced.
fn shown(name: &str, value: &str) -> String {
    truncated(&secrets::shown(name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(before: &str, after: &str) -> Vec<String> {
        diff(
            &Element::parse(before).unwrap(),
            &Element::parse(after).unwrap(),
        )
        .list
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
        // Python's ElementTree writes namespaces in this form.
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
        assert_eq!(
            lines("<d/>", given).last().unwrap(),
            r#"+ qemu:commandline/qemu:arg: "value=-x""#
        );
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
                r#"+ sysinfo/baseBoard/entry[manufacturer]: "name=manufacturer R. Edward""#,
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
    fn another_order_of_elements_of_one_name_is_a_change() {
        let before = "<d><a/><i name='x'/><i name='y'/><i name='z'/></d>";
        let after = "<d><i name='x'/><i name='z'/><a/><i name='y' new='1'/></d>";
        assert_eq!(
            lines(before, after),
            [
                r#"+ i[y]@new: "1""#,
                r#"~ order of i: "i[y], i[z]" → "i[z], i[y]""#
            ]
        );
        // Which of them is removed or new does not matter.
        let other = "<d><i name='w'/><i name='y'/><i name='z'/><a/></d>";
        assert_eq!(lines(before, other), ["+ i[w]: \"name=w\"", "- i[x]"]);
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
        assert_eq!(changes[1].chars().filter(|&c| c == 'é').count(), 80);
        let strings = |text: &str| format!("<d><oemStrings><entry>{text}</entry></oemStrings></d>");
        assert_eq!(
            lines(&strings("old"), &strings("new")),
            [r#"~ oemStrings: "(secret)" → "(secret)""#]
        );
        assert_eq!(
            lines("<d/>", &strings("new")),
            [r#"+ oemStrings: "(secret)""#]
        );
    }

    #[test]
    fn comparing_stops_after_the_changes_that_are_kept() {
        let after = format!("<d>{}</d>", "<a/>".repeat(2 * MAX_CHANGES));
        let changes = diff(
            &Element::parse("<d/>").unwrap(),
            &Element::parse(&after).unwrap(),
        );
        assert!(changes.more);
        assert_eq!(changes.list.len(), MAX_CHANGES);
    }

    #[test]
    fn long_names_and_paths_are_cut() {
        let long = "n".repeat(1_000);
        let deep =
            |inside: &str| format!("{0}{inside}{1}", "<abcd>".repeat(99), "</abcd>".repeat(99));
        for (before, after) in [
            (deep(""), deep(&format!("<{long}/>"))),
            (deep(""), deep("<e/>")),
            (deep("<e/>"), deep(&format!("<e {long}='1'/>"))),
            (
                deep("<e/>"),
                deep(&format!("<x><e/><y {long}='{long}'/></x>")),
            ),
        ] {
            let lines = lines(&before, &after);
            assert!(lines.iter().all(|line| line.len() < 500), "{lines:?}");
            assert!(lines[0].starts_with("+ …/abcd/abcd"), "{lines:?}");
        }
    }
}
