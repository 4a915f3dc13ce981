//! What libvirt has left out of a domain that it has defined. It ignores elements and attributes
//! that it does not know, so an older libvirt starts a VM that lacks what was asked for.

use std::collections::{BTreeSet, HashSet};

use domain::xml::ReadError;
use domain::xml::tree::{Element, Foreign};

/// Parts that libvirt leaves out and the guest does not miss: KubeVirt's own, defaults, and those
/// that say nothing new.
const WITHOUT_EFFECT: [&str; 9] = [
    "metadata",
    "sysinfo/system/entry",
    "devices/disk/capacity",
    "devices/disk/filesystemOverhead",
    "devices/disk/source@name",
    "devices/disk/target@tray",
    "devices/filesystem@accessMode",
    "devices/hostdev/source/address@type",
    "devices/memballoon/address",
];
/// Parts that libvirt knows and leaves out where they are empty, besides those that the launcher
/// itself leaves empty.
const EMPTY_GROUPS: [&str; 22] = [
    "blkiotune",
    "cpu",
    "cputune",
    "description",
    "features",
    "features/capabilities",
    "features/tcg",
    "idmap",
    "iothreadids",
    "keywrap",
    "memoryBacking",
    "memtune",
    "numatune",
    "perf",
    "pm",
    "seclabel",
    "sysinfo/baseBoard",
    "sysinfo/bios",
    "sysinfo/chassis",
    "sysinfo/oemStrings",
    "throttlegroups",
    "title",
];
/// Parts without which a host device is not the one that was asked for.
const HOST_DEVICE_PARTS: [&str; 3] = ["iommufd", "devices/hostdev/", "devices/iommu/"];

/// Paths below `<domain>`, such as `devices/hostdev/acpi` and `devices/disk/driver@queues`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct IgnoredParts {
    /// Parts whose absence breaks the domain's host devices.
    pub of_host_devices: BTreeSet<String>,
    pub others: BTreeSet<String>,
}

/// The parts of the `written` domain that are nowhere in the `kept` one. `own` is the domain before
/// hooks have changed it: libvirt leaves out many empty elements of that one.
///
/// # Errors
/// One of them cannot be read.
pub fn ignored_parts(written: &str, own: &str, kept: &str) -> Result<IgnoredParts, ReadError> {
    let written = Element::parse(written)?;
    let parts = |xml: &str| -> Result<HashSet<String>, ReadError> {
        let mut parts = HashSet::new();
        add_parts(&Element::parse(xml)?, "", &mut parts);
        Ok(parts)
    };
    let known = Known {
        kept: parts(kept)?,
        own: parts(own)?,
    };
    let mut missing = BTreeSet::new();
    known.find_missing(&written, "", &mut missing);
    missing.extend(written.foreign().into_iter().map(foreign_part));
    let devices = written.child("devices");
    let has_host_devices = devices.is_some_and(|devices| devices.child("hostdev").is_some());
    let is_of_host_devices = |part: &String| {
        let mut parts = HOST_DEVICE_PARTS.iter();
        has_host_devices && parts.any(|start| part.starts_with(start))
    };
    let (of_host_devices, others) = missing.into_iter().partition(is_of_host_devices);
    Ok(IgnoredParts {
        of_host_devices,
        others,
    })
}

/// With what is wrong with its namespace, as the name may look right.
fn foreign_part(element: Foreign<'_>) -> String {
    let Foreign { name, namespace } = element;
    match namespace {
        Some(uri) => format!("{name} (of the namespace {uri:?})"),
        None => format!("{name} (whose prefix is not declared: <domain> lacks its xmlns)"),
    }
}

fn add_parts(element: &Element, path: &str, known: &mut HashSet<String>) {
    for (name, _) in &element.attributes {
        known.insert(format!("{path}@{name}"));
    }
    for child in element.children() {
        let path = below(path, child);
        add_parts(child, &path, known);
        known.insert(path);
    }
}

/// The parts of two domains.
struct Known {
    kept: HashSet<String>,
    own: HashSet<String>,
}

impl Known {
    /// Collects the missing parts; of an element that is missing, not what is in it.
    fn find_missing(&self, element: &Element, path: &str, missing: &mut BTreeSet<String>) {
        for (name, value) in &element.attributes {
            let part = format!("{path}@{name}");
            let is_set = !matches!(value.as_str(), "" | "0") && !is_of_document(path, name);
            if is_set && !self.kept.contains(&part) && !WITHOUT_EFFECT.contains(&&*part) {
                missing.insert(part);
            }
        }
        for child in element.children() {
            let path = below(path, child);
            if WITHOUT_EFFECT.contains(&&*path) || is_left_out(child) {
                continue;
            }
            if self.kept.contains(&path) || is_empty(child) && self.may_be_empty(&path) {
                self.find_missing(child, &path, missing);
            } else {
                missing.insert(path);
            }
        }
    }

    fn may_be_empty(&self, path: &str) -> bool {
        self.own.contains(path) || EMPTY_GROUPS.contains(&path)
    }
}

/// `xmlns` and the id of a running domain are not the definition's.
fn is_of_document(path: &str, attribute: &str) -> bool {
    path.is_empty() && (attribute == "id" || attribute.starts_with("xmlns"))
}

/// libvirt leaves out what is off or unset, and may give a namespace another prefix.
fn is_left_out(element: &Element) -> bool {
    let is_off = element.attribute("state") == Some("off");
    let is_unset = element.name == "entry" && element.text().is_empty();
    is_off || is_unset || element.name.contains(':')
}

fn below(path: &str, child: &Element) -> String {
    if path.is_empty() {
        child.name.clone()
    } else {
        format!("{path}/{}", child.name)
    }
}

fn is_empty(element: &Element) -> bool {
    element.attributes.is_empty()
        && element.text().is_empty()
        && element
            .children()
            .all(|child| is_left_out(child) || is_empty(child))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(written: &str, kept: &str) -> (Vec<String>, Vec<String>) {
        let document = |content: &str| format!("<domain>{content}</domain>");
        let written = document(written);
        let found = ignored_parts(&written, &written, &document(kept)).unwrap();
        let of_host_devices = found.of_host_devices.into_iter().collect();
        (of_host_devices, found.others.into_iter().collect())
    }

    #[test]
    // D-start-6 (docs/differences.md).
    fn parts_that_libvirt_does_not_know_are_found_and_those_of_host_devices_told_apart() {
        let iommufd = "<iommufd enabled='yes' fdgroup='iommu'/>";
        let disk = "<disk><source><reservations managed='no' migration='yes'/></source></disk>";
        let written = format!(
            "{iommufd}<devices>{disk}<hostdev type='pci'><driver iommufd='yes'/><acpi nodeset='1-8'/></hostdev><iommu model='smmuv3'><driver pciBus='1'/></iommu></devices>"
        );
        let kept = "<uuid>u</uuid><devices><disk><source><reservations managed='no'/></source></disk><hostdev type='pci'><alias name='a'/></hostdev><iommu model='smmuv3'/></devices>";
        let (of_host_devices, others) = missing(&written, kept);
        let expected = [
            "devices/hostdev/acpi",
            "devices/hostdev/driver",
            "devices/iommu/driver",
            "iommufd",
        ];
        assert_eq!(of_host_devices, expected);
        assert_eq!(others, ["devices/disk/source/reservations@migration"]);
        // Without a host device nothing goes through it.
        let without = missing(iommufd, "");
        assert_eq!(without, (vec![], vec!["iommufd".to_owned()]));
    }

    #[test]
    fn an_element_with_attributes_is_missing_though_what_is_in_it_has_no_effect() {
        let written = "<devices><tpm model='new'><backend/></tpm></devices>";
        let (_, others) = missing(written, "<devices/>");
        assert_eq!(others, ["devices/tpm"]);
    }

    #[test]
    fn what_a_hook_has_added_is_missing_though_it_is_empty() {
        let own = "<domain type='kvm'><sysinfo><bios/></sysinfo><new/><devices/></domain>";
        let written = "<domain type='kvm' id='1' xmlns:q='u' foo='bar'><sysinfo><bios/></sysinfo><new/><memoryBacking><nosharepage/></memoryBacking><cputune/><os><a><b/></a></os><devices/></domain>";
        let kept = "<domain type='kvm'><os/><devices/></domain>";
        let found = ignored_parts(written, own, kept).unwrap().others;
        let expected = ["@foo", "memoryBacking/nosharepage", "os/a"].map(str::to_owned);
        assert_eq!(found, BTreeSet::from(expected));
    }

    #[test]
    fn an_element_in_a_namespace_that_libvirt_does_not_know_is_missing() {
        let element = "<qemu:commandline><qemu:arg value='-s'/></qemu:commandline>";
        let (_, others) = missing(element, "");
        let expected = "qemu:commandline (whose prefix is not declared: <domain> lacks its xmlns)";
        assert_eq!(others, [expected]);
        let (_, others) = missing(
            "<q:commandline xmlns:q='u'><q:arg value='-s'/></q:commandline>",
            "",
        );
        assert_eq!(others, [r#"q:commandline (of the namespace "u")"#]);
    }

    #[test]
    fn what_libvirt_writes_otherwise_is_not_missing() {
        let written = "<features><hyperv><stimer state='off'><direct state='off'/></stimer></hyperv></features><maxMemory slots='0'>1</maxMemory><sysinfo><bios/><system><entry name='uuid'/></system></sysinfo><metadata><a xmlns='b'>c</a></metadata><q:commandline xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0'><q:arg value='-s'/></q:commandline><devices><disk><source file='f' name='n'/><capacity>1</capacity></disk></devices>";
        let kept = "<features><hyperv/></features><maxMemory>1</maxMemory><devices><disk><source file='f'/></disk></devices>";
        assert_eq!(missing(written, kept), (vec![], vec![]));
    }
}
