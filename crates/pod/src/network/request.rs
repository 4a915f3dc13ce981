//! What phase 2 reads of a VMI.

use api::vmi::Vmi;
use api::vmi::interfaces::Interface;
use convert::Context;

use crate::network::error::NetworkError;

/// virt-handler's name for attachment by a tap device (`interfaceDomainAttachment`).
const TAP_ATTACHMENT: &str = "tap";

/// A VMI, and how virt-handler says that its interfaces are attached to the domain.
#[derive(Debug, Clone, Copy)]
pub struct NetworkRequest<'v> {
    pub vmi: &'v Vmi,
    pub context: &'v Context,
}

/// Which networks to set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope<'a> {
    /// Those of all interfaces that are not absent: at a start, and on a migration target.
    All,
    /// The network of an interface of a running VM: one that is plugged in, or that was taken over.
    Network(&'a str),
}

impl<'v> NetworkRequest<'v> {
    /// The interfaces of `scope` that are attached by a tap, in the order of the spec. All others
    /// are left alone.
    ///
    /// # Errors
    /// No interface uses the one network that is asked for.
    pub fn tapped(&self, scope: Scope<'_>) -> Result<Vec<&'v Interface>, NetworkError> {
        let no_interface = |name: &str| NetworkError::NoInterface {
            network: name.to_owned(),
        };
        let selected: Vec<&Interface> = match scope {
            Scope::All => {
                let interfaces = self.interfaces().iter();
                interfaces.filter(|one| one.state != "absent").collect()
            }
            Scope::Network(name) => {
                vec![self.interface(name).ok_or_else(|| no_interface(name))?]
            }
        };
        let attachments = &self.context.domain_attachment_by_interface_name;
        let has_tap = |one: &&Interface| {
            attachments
                .get(&one.name)
                .is_some_and(|it| it == TAP_ATTACHMENT)
        };
        Ok(selected.into_iter().filter(has_tap).collect())
    }

    /// All of them in the order of the spec: the address of a bridge's DHCP server depends on it.
    pub fn interfaces(&self) -> &'v [Interface] {
        &self.vmi.spec.domain.devices.interfaces
    }

    /// The interface of a network, which has the same name.
    pub fn interface(&self, name: &str) -> Option<&'v Interface> {
        self.interfaces().iter().find(|one| one.name == name)
    }

    /// `podInterfaceName` of the interface's entry in `status.interfaces`; may be empty.
    pub fn pod_interface_name(&self, interface: &str) -> &'v str {
        let mut statuses = self.vmi.status.interfaces.iter();
        let status = statuses.find(|status| status.name == interface);
        status.map_or("", |status| &status.pod_interface_name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_stays_and_has_a_tap_is_set_up() {
        let interfaces = json!([
            {"name": "default", "masquerade": {}},
            {"name": "blue", "bridge": {}, "state": "absent"},
            {"name": "passt", "passtBinding": {}},
            {"name": "plugin", "binding": {"name": "p"}}]);
        let vmi = serde_json::from_value(json!({
            "spec": {"domain": {"devices": {"interfaces": interfaces}}},
            "status": {"interfaces": [{"name": "default", "podInterfaceName": "ovn-udn1"}]}}));
        let attachments = [
            ("default", "tap"),
            ("blue", "tap"),
            ("plugin", "managedTap"),
        ];
        let context = Context {
            domain_attachment_by_interface_name: attachments
                .map(|(name, attachment)| (name.into(), attachment.into()))
                .into(),
            ..Context::default()
        };
        let request = NetworkRequest {
            vmi: &vmi.unwrap(),
            context: &context,
        };
        let names = |scope| {
            let tapped = request.tapped(scope).unwrap().into_iter();
            tapped.map(|one| one.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(names(Scope::All), ["default"]);
        assert_eq!(names(Scope::Network("blue")), ["blue"]);
        assert!(names(Scope::Network("plugin")).is_empty());
        assert!(request.tapped(Scope::Network("none")).is_err());
        assert_eq!(request.pod_interface_name("default"), "ovn-udn1");
        assert_eq!(request.pod_interface_name("blue"), "");
    }
}
