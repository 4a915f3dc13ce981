//! `FinalizeVirtualMachineMigration`: refreshes the arrived guest's links and sets its clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::launcher::admit;
use crate::launcher::apply::error::{DeviceFailure, DeviceFailures};
use crate::launcher::error::LauncherError;
use crate::launcher::guest_agent::clock::GuestClock;
use crate::launcher::libvirt_domain::LibvirtDomain;
use crate::launcher::vm::{Admission, Request};
use api::proto::cmd::v1::VirtualMachineOptions;
use domain::alias::Alias;
use domain::xml::tree::Element;
use libvirt::{ChangeableDomain, XmlKind};
use os::lock::lock;

/// Refreshes an interface: the guest sees the link go down and up, and asks for a new DHCP lease.
const LINK_REFRESH: &str = "link-refresh";
/// How long a link is down. On a busy node a guest misses a fifth of this time.
const LINK_DOWN_TIME: Duration = Duration::from_millis(500);

/// Interfaces by name that are refreshed after the migration to this pod, with their XML from
/// before, or `None` once they are. virt-handler finalizes it twice.
#[derive(Default)]
pub(in crate::launcher) struct RefreshedInterfaces(Mutex<BTreeMap<String, Option<Element>>>);

impl RefreshedInterfaces {
    /// The XML that sets the link up again: `now`, or the one from before an earlier refresh that
    /// could only set it down. `None` if the interface was refreshed.
    fn with_link_up(&self, name: &str, now: &Element) -> Option<Element> {
        let known = lock(&self.0).get(name).cloned();
        known.unwrap_or_else(|| Some(now.clone()))
    }

    fn set(&self, name: &str, before: Option<Element>) {
        lock(&self.0).insert(name.to_owned(), before);
    }
}

/// Finishes a migration in the guest.
pub struct Finalization {
    pub(in crate::launcher) libvirt: Arc<LibvirtDomain>,
    pub(in crate::launcher) clock: Arc<GuestClock>,
    pub(in crate::launcher) refreshed: Arc<RefreshedInterfaces>,
}

impl Finalization {
    /// Refreshes the interfaces named in the options (`interfaceMigration`), once each, and sets
    /// the guest's clock.
    ///
    /// # Errors
    /// libvirt's error.
    // D-mig-23 (docs/differences.md).
    pub async fn run(&self, options: &VirtualMachineOptions) -> Result<(), LauncherError> {
        admit::look(&self.libvirt.vm).await?;
        if self.libvirt.vm.admit(Request::Finalize)? == Admission::AlreadySo {
            return Ok(());
        }
        let migrations = options.interface_migration.iter();
        let to_refresh: BTreeSet<String> = migrations
            .filter(|(_, migration)| migration.method == LINK_REFRESH)
            .map(|(name, _)| name.clone())
            .collect();
        if !to_refresh.is_empty() {
            let refreshed = self.refreshed.clone();
            let what = "refreshing the guest's network links";
            let refresh = move |domain: Option<ChangeableDomain>| {
                let domain = domain.ok_or(LauncherError::NoDomain)?;
                refresh(&domain, &to_refresh, &refreshed)
            };
            admit::change(&self.libvirt, Request::Finalize, what, refresh).await?;
        }
        self.clock.set();
        Ok(())
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "there is no event for a link that the guest has seen down, and this is a blocking thread"
)]
fn refresh(
    domain: &ChangeableDomain,
    wanted: &BTreeSet<String>,
    refreshed: &RefreshedInterfaces,
) -> Result<(), LauncherError> {
    let live = Element::parse(&domain.xml(XmlKind::Live)?).map_err(LauncherError::Xml)?;
    for (name, interface) in interfaces(&live, wanted) {
        let Some(before) = refreshed.with_link_up(&name, interface) else {
            continue;
        };
        // First: libvirt's answer may be lost.
        refreshed.set(&name, Some(before.clone()));
        set_link(
            domain,
            &name,
            "set the link down",
            &with_link_down(interface),
        )?;
        std::thread::sleep(LINK_DOWN_TIME);
        set_link(domain, &name, "set the link up", &before)?;
        refreshed.set(&name, None);
    }
    Ok(())
}

fn set_link(
    domain: &ChangeableDomain,
    name: &str,
    action: &str,
    interface: &Element,
) -> Result<(), LauncherError> {
    let changed = domain.update_device(&interface.to_xml());
    changed.map_err(|refusal| {
        let failure = DeviceFailure::Interface {
            name: name.to_owned(),
            action: action.to_owned(),
            refusal,
        };
        DeviceFailures(vec![failure]).into()
    })
}

/// Those interfaces of a domain that have one of these names in the VMI.
fn interfaces<'a>(
    live: &'a Element,
    wanted: &BTreeSet<String>,
) -> impl Iterator<Item = (String, &'a Element)> {
    let devices = live.child("devices").into_iter();
    let devices = devices.flat_map(Element::children);
    let interfaces = devices.filter(|device| device.name == "interface");
    let named = interfaces.filter_map(|it| Some((name(it)?, it)));
    named.filter(|(name, _)| wanted.contains(name))
}

/// The interface's name in the VMI.
fn name(interface: &Element) -> Option<String> {
    let alias = interface.child("alias")?.attribute("name")?;
    let name = Alias::from_qualified(alias).name;
    (!name.is_empty()).then(|| name.to_string())
}

fn with_link_down(interface: &Element) -> Element {
    let mut down = interface.clone();
    down.retain_children(|child| child.name != "link");
    down.with_child(Element::new("link").with_attribute("state", "down"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_could_not_go_up_goes_up_the_next_time_and_then_stays() {
        let parse = |xml| Element::parse(xml).unwrap();
        let (up, down) = (
            parse("<interface/>"),
            parse("<interface><link state='down'/></interface>"),
        );
        let refreshed = RefreshedInterfaces::default();
        let before = refreshed.with_link_up("default", &up);
        assert_eq!(before, Some(up.clone()));
        refreshed.set("default", before);
        assert_eq!(refreshed.with_link_up("default", &down), Some(up.clone()));
        refreshed.set("default", None);
        assert_eq!(refreshed.with_link_up("default", &up), None);
    }

    #[test]
    fn interfaces_that_nobody_names_stay_as_they_are() {
        let interface = |name: &str| format!("<interface><alias name='ua-{name}'/></interface>");
        let all = ["blue", "red", "green"].map(interface).concat();
        let xml = format!("<domain><devices><disk/>{all}<interface/></devices></domain>");
        let live = Element::parse(&xml).unwrap();
        let wanted = BTreeSet::from(["red".to_owned(), "gone".to_owned()]);
        let found: Vec<String> = interfaces(&live, &wanted).map(|(name, _)| name).collect();
        assert_eq!(found, ["red"]);
    }

    #[test]
    fn an_interface_is_down_whatever_its_link_was_and_else_as_it_is() {
        let interface = Element::parse(
            "<interface type='ethernet'><target dev='tap0'/><link state='up'/><alias name='ua-default'/></interface>",
        )
        .unwrap();
        assert_eq!(name(&interface).unwrap(), "default");
        let expected = Element::parse(
            "<interface type='ethernet'><target dev='tap0'/><alias name='ua-default'/><link state='down'/></interface>",
        );
        assert_eq!(with_link_down(&interface), expected.unwrap());
    }
}
