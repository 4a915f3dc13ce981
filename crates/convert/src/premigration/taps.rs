//! Tap devices that an older source has numbered (`tap1`): this pod's are named after a hash of the
//! network's name (`--upgrade-ordinal-ifaces`).

use super::PreMigrationError;
use api::link_names::{PRIMARY_LINK, hashed_link, tap};
use api::vmi::Vmi;
use domain::xml::tree::Element;

/// Prefix of the aliases that KubeVirt chooses.
const ALIAS_PREFIX: &str = "ua-";

/// Gives numbered tap devices, but for `tap0` of the primary network, the names that they have in
/// this pod.
pub(super) fn rewrite(domain: &mut Element, vmi: &Vmi) -> Result<(), PreMigrationError> {
    for interface in super::devices_mut(domain, "interface") {
        let alias = interface
            .child("alias")
            .and_then(|alias| alias.attribute("name"))
            .map(str::to_owned);
        let target = interface.child_mut("target");
        let attributes = target.map(|target| &mut target.attributes);
        let mut attributes = attributes.into_iter().flatten();
        let Some((_, device)) =
            attributes.find(|(name, device)| name == "dev" && is_numbered(device))
        else {
            continue;
        };
        *device = new_name(device, alias.as_deref(), vmi)?;
    }
    Ok(())
}

fn is_numbered(device: &str) -> bool {
    let number = device.strip_prefix("tap").unwrap_or_default();
    device != "tap0" && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

fn new_name(device: &str, alias: Option<&str>, vmi: &Vmi) -> Result<String, PreMigrationError> {
    let refuse = |reason| PreMigrationError::Tap {
        device: device.to_owned(),
        reason,
    };
    let alias = alias.ok_or_else(|| refuse("its interface has no alias to tell its network by"))?;
    let name = alias
        .strip_prefix(ALIAS_PREFIX)
        .ok_or_else(|| refuse("the alias of its interface does not begin with \"ua-\""))?;
    let mut networks = vmi.spec.networks.iter();
    let network = networks
        .find(|network| network.name == name)
        .ok_or_else(|| refuse("the VMI has no network of its interface's name"))?;
    Ok(tap(
        &if network.is_primary() {
            PRIMARY_LINK.to_owned()
        } else {
            hashed_link(name)
        },
        true,
    ))
}
