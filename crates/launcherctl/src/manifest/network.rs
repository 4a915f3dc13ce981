//! The VMI's network interfaces without a cluster: as a network binding plugin has them, which adds
//! its own devices to the domain. The plugin is `run` (its module `network`).

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Manifest;
use super::error::FieldError;
use super::rules::violations;
use crate::json::{
    copy_at, find_named, is_object_at, list_at, names_at, push, remove_named, set, text_at,
};

const INTERFACES: &str = "/spec/domain/devices/interfaces";
const NETWORKS: &str = "/spec/networks";
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

/// Names of interfaces in which a file differs from a running guest's.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ChangedInterfaces {
    /// The guest has them, and the file does not.
    pub lost: Vec<String>,
    /// The file has them, and the guest does not.
    pub new: Vec<String>,
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

    /// The names of the plugin's interfaces whose link should be down, which the plugin does not
    /// support.
    pub fn links_down(&self) -> Vec<String> {
        let interfaces = list_at(&self.vmi, INTERFACES).iter();
        let plugins = interfaces.filter(|one| text_at(one, "/binding/name") == PLUGIN);
        let down = plugins.filter(|one| text_at(one, "/state") == "down");
        down.map(|one| text_at(one, "/name").to_owned()).collect()
    }

    pub fn strip_network(&mut self) {
        let attach = "/spec/domain/devices/autoattachPodInterface";
        set(&mut self.vmi, attach, json!(false));
        if !list_at(&self.vmi, INTERFACES).is_empty() {
            set(&mut self.vmi, INTERFACES, json!([]));
            set(&mut self.vmi, NETWORKS, json!([]));
        }
    }

    /// Takes the network of the previously `sent` VMI, and leaves out what `run` did. Returns which
    /// interfaces only a start would change.
    pub fn network_as_in(&mut self, sent: &Value) -> ChangedInterfaces {
        self.leave_out_node_parts();
        let interfaces = list_at(sent, INTERFACES);
        let is_plugins = |interface: &Value| is_object_at(interface, "/binding");
        if interfaces.is_empty() {
            self.strip_network();
        }
        if !interfaces.iter().any(is_plugins) {
            return ChangedInterfaces::default();
        }
        self.use_plugin_network();
        let (before, after) = (names_at(sent, INTERFACES), names_at(&self.vmi, INTERFACES));
        let without = |names: &[String], others: &[String]| {
            let left = names.iter().filter(|name| !others.contains(name));
            left.cloned().collect::<Vec<_>>()
        };
        let changed = ChangedInterfaces {
            lost: without(&before, &after),
            new: without(&after, &before),
        };
        for list in [INTERFACES, NETWORKS] {
            for name in &changed.new {
                remove_named(&mut self.vmi, list, name);
            }
            for item in changed
                .lost
                .iter()
                .filter_map(|it| find_named(sent, list, it))
            {
                push(&mut self.vmi, list, item.clone());
            }
        }
        changed
    }
}

/// Whether the interface is SR-IOV, of a cluster's plugin, or on another network than the pod's.
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
    #![allow(clippy::unwrap_used)]
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
    fn a_link_that_is_to_be_down_is_named() {
        let spec =
            "interfaces: [{name: default, masquerade: {}, state: down}, {name: fast, bridge: {}}]";
        let mut plugins = manifest(spec);
        let (_, left_out) = plugins.use_plugin_network();
        assert_eq!(plugins.links_down(), ["default"]);
        assert_eq!(left_out, ["fast"], "its network is not the pod's");
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

    #[test]
    fn an_update_keeps_the_interfaces_of_the_start_and_names_the_others() {
        let mut sent = manifest("interfaces: [{name: default, bridge: {}}]");
        sent.use_plugin_network();
        let mut update = manifest("autoattachPodInterface: false");
        let changed = update.network_as_in(sent.value());
        assert_eq!(
            (changed.lost, changed.new),
            (vec!["default".to_owned()], vec![])
        );
        assert_eq!(
            copy_at(update.value(), INTERFACES),
            copy_at(sent.value(), INTERFACES)
        );
        let mut update = manifest("interfaces: [{name: default, bridge: {}}]");
        let interfaces = json!([{"name": "default", "bridge": {}}, {"name": "b", "bridge": {}}]);
        set(&mut update.vmi, INTERFACES, interfaces);
        let changed = update.network_as_in(sent.value());
        assert_eq!((changed.lost, changed.new), (vec![], vec!["b".to_owned()]));
        assert_eq!(names_at(update.value(), INTERFACES), ["default"]);
    }

    #[test]
    fn an_update_has_a_network_if_the_vm_has_one() {
        let spec = "interfaces: [{name: default, bridge: {}}]";
        let mut sent = manifest(spec);
        sent.use_plugin_network();
        let mut update = manifest(spec);
        update.network_as_in(sent.value());
        assert_eq!(
            update.value()["spec"]["domain"],
            sent.value()["spec"]["domain"]
        );
        sent.strip_network();
        update.network_as_in(sent.value());
        assert_eq!(update.value()["spec"]["networks"], json!([]));
        assert_eq!(copy_at(update.value(), INTERFACES), json!([]));
    }
}
