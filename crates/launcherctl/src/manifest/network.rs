//! The VMI's network interfaces without a cluster: as a network binding plugin has them, which adds
//! its own devices to the domain. The plugin is `run` (its module `network`).

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Manifest;
use super::error::FieldError;
use super::rules::violations;
use crate::json::{copy_at, find_named, is_object_at, list_at, set, text_at};

pub(super) const INTERFACES: &str = "/spec/domain/devices/interfaces";
pub(super) const NETWORKS: &str = "/spec/networks";
/// Names of KubeVirt's own bindings in an interface.
const BINDINGS: [&str; 3] = ["bridge", "masquerade", "passtBinding"];
const PLUGIN: &str = "launcherctl";

/// A network card of the VMI.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// The interface's name in the VMI.
    pub name: String,
    /// `virtio`, `e1000e`, …
    pub model: String,
    /// Its MAC address.
    pub mac: String,
    /// Its boot order.
    pub boot_order: Option<u64>,
}

impl Manifest {
    /// Adds the interface that a cluster adds to a VMI without any, and turns interfaces with
    /// KubeVirt's own bindings into the plugin's. Returns their cards, and the names of skipped
    /// interfaces that need a cluster.
    pub fn use_plugin_network(&mut self) -> (Vec<Card>, Vec<String>) {
        super::defaults::default_interface(&mut self.vmi);
        let (mut kept, mut cards, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
        let interfaces = list_at(&self.vmi, INTERFACES).iter();
        for interface in interfaces.filter(|one| text_at(one, "/state") != "absent") {
            match as_plugins(&self.vmi, interface) {
                Some((interface, card)) => {
                    kept.push(interface);
                    cards.push(card);
                }
                None => left_out.push(text_at(interface, "/name").to_owned()),
            }
        }
        let is_kept =
            |network: &&Value| cards.iter().any(|it| it.name == text_at(network, "/name"));
        let networks = list_at(&self.vmi, NETWORKS).iter().filter(is_kept);
        let networks: Vec<Value> = networks.cloned().collect();
        set(&mut self.vmi, INTERFACES, kept.into());
        set(&mut self.vmi, NETWORKS, networks.into());
        (cards, left_out)
    }

    /// Refuses an interface whose binding KubeVirt does not have. `run` leaves out those that it
    /// has and that need a cluster.
    ///
    /// # Errors
    /// The first such interface, and what is wrong with it.
    pub fn check_bindings(&self) -> Result<(), FieldError> {
        let is_interface = |field: &str| {
            field.starts_with("spec.domain.devices.interfaces[") && field.ends_with(']')
        };
        let wrong = violations(&self.vmi).find(|it| is_interface(&it.field));
        wrong.map_or(Ok(()), Err)
    }

    pub fn strip_network(&mut self) {
        let attach = "/spec/domain/devices/autoattachPodInterface";
        set(&mut self.vmi, attach, json!(false));
        if !list_at(&self.vmi, INTERFACES).is_empty() {
            set(&mut self.vmi, INTERFACES, json!([]));
            set(&mut self.vmi, NETWORKS, json!([]));
        }
    }
}

/// Whether the interface is SR-IOV, of a cluster's plugin, or on another network than the pod's,
/// such as a Multus network.
pub fn needs_cluster(vmi: &Value, interface: &Value) -> bool {
    let is_own = |binding: &str| is_object_at(interface, &format!("/{binding}"));
    let network = find_named(vmi, NETWORKS, text_at(interface, "/name"));
    let is_pods = network.is_none_or(|network| is_object_at(network, "/pod"));
    !is_pods || !BINDINGS.iter().any(|binding| is_own(binding))
}

/// `None` if it needs a cluster.
fn as_plugins(vmi: &Value, interface: &Value) -> Option<(Value, Card)> {
    let fields = interface
        .as_object()
        .filter(|_| !needs_cluster(vmi, interface))?;
    let mut plugins = fields.clone();
    plugins.retain(|field, _| !BINDINGS.contains(&field.as_str()));
    let mut plugins = Value::from(plugins);
    set(&mut plugins, "/binding/name", json!(PLUGIN));
    let model = match text_at(interface, "/model") {
        "" => "virtio",
        model => model,
    };
    let mac = match text_at(interface, "/macAddress") {
        "" => random_mac(),
        // The API accepts both.
        mac => mac.replace('-', ":"),
    };
    let card = Card {
        name: text_at(interface, "/name").to_owned(),
        model: model.to_owned(),
        mac,
        boot_order: copy_at(interface, "/bootOrder").as_u64(),
    };
    Some((plugins, card))
}

/// In QEMU's range.
fn random_mac() -> String {
    let uuid = super::defaults::random_uuid();
    let mut digits = uuid.chars().filter(char::is_ascii_hexdigit);
    let mut octet = || digits.by_ref().take(2).collect::<String>();
    format!("52:54:00:{}:{}:{}", octet(), octet(), octet())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(spec: &str) -> Manifest {
        Manifest::parse(&format!(
            "kind: VirtualMachineInstance\nmetadata: {{name: a}}\nspec:\n  domain: {{memory: {{guest: 64Mi}}, devices: {{{spec}}}}}\n  networks: [{{name: default, pod: {{}}}}, {{name: fast, multus: {{networkName: x}}}}]\n"
        ))
        .unwrap()
    }

    #[test]
    fn interfaces_become_the_plugins() {
        let mut manifest = manifest(
            "interfaces: [{name: default, masquerade: {}, macAddress: 02-00-00-00-00-01, model: e1000e, bootOrder: 2}, {name: fast, sriov: {}}]",
        );
        let (cards, left_out) = manifest.use_plugin_network();
        let card = Card {
            name: "default".into(),
            model: "e1000e".into(),
            mac: "02:00:00:00:00:01".into(),
            boot_order: Some(2),
        };
        assert_eq!((cards, left_out), (vec![card], vec!["fast".to_owned()]));
        let vmi = manifest.value();
        let interfaces = list_at(vmi, INTERFACES);
        assert_eq!(interfaces.len(), 1);
        assert_eq!(interfaces[0]["binding"]["name"], PLUGIN);
        assert!(interfaces[0].get("masquerade").is_none());
        assert_eq!(list_at(vmi, "/spec/networks").len(), 1);
    }

    #[test]
    fn a_vmi_without_interfaces_is_on_the_network_unless_it_says_otherwise() {
        let vmi = |devices| {
            Manifest::parse(&format!(
                "kind: VirtualMachineInstance\nmetadata: {{name: a}}\nspec: {{domain: {{memory: {{guest: 64Mi}}, devices: {{{devices}}}}}}}\n"
            ))
            .unwrap()
        };
        let (cards, _) = vmi("").use_plugin_network();
        assert_eq!(cards[0].name, "default");
        assert!(cards[0].mac.starts_with("52:54:00:") && cards[0].mac.len() == 17);
        assert_eq!(
            vmi("autoattachPodInterface: false").use_plugin_network().0,
            []
        );
    }
}
