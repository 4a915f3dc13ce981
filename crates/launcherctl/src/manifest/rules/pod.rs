//! Rules for what the VM's pod gets from the VMI: its names, its DNS and its probes.

use serde_json::Value;

use super::{Found, is_label, not_a_label, pointer};
use crate::json::{copy_at, is_object_at, list_at, text_at};

/// What a probe may do.
const HANDLERS: [&str; 4] = ["httpGet", "tcpSocket", "exec", "guestAgentPing"];
/// Of a DNS subdomain.
const MAX_SUBDOMAIN_BYTES: usize = 253;

impl Found {
    pub(super) fn pod(&mut self, vmi: &Value) {
        let hostname = text_at(vmi, "/spec/hostname");
        if !hostname.is_empty() && !is_label(hostname) {
            self.add("spec.hostname", not_a_label(hostname));
        }
        let subdomain = text_at(vmi, "/spec/subdomain");
        if !subdomain.is_empty() && !is_subdomain(subdomain) {
            self.add(
                "spec.subdomain",
                format!(
                    "{subdomain:?} is not valid: at most {MAX_SUBDOMAIN_BYTES} characters of a to z, 0 to 9, '-' and '.', with a letter or digit first and last, and beside each '.'"
                ),
            );
        }
        let policies = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
        self.one_of(vmi, "spec.dnsPolicy", &policies);
        let has_pod_network = list_at(vmi, "/spec/networks")
            .iter()
            .any(|network| is_object_at(network, "/pod"));
        for field in ["spec.readinessProbe", "spec.livenessProbe"] {
            let probe = copy_at(vmi, &pointer(field));
            if probe.is_object() {
                self.probe(field, &probe, has_pod_network || !has_networks(vmi));
            }
        }
    }

    fn probe(&mut self, field: &str, probe: &Value, has_pod_network: bool) {
        let has = |handler: &&str| is_object_at(probe, &pointer(handler));
        let set: Vec<&str> = HANDLERS.into_iter().filter(has).collect();
        match set.as_slice() {
            [] => self.add(
                field,
                format!("it does nothing; expected one of {}", HANDLERS.join(", ")),
            ),
            [_] => {}
            several => self.add(
                field,
                format!(
                    "it does several things ({}); choose one",
                    several.join(", ")
                ),
            ),
        }
        for handler in ["httpGet", "tcpSocket"] {
            if set.contains(&handler) && !has_pod_network {
                self.add(
                    format!("{field}.{handler}"),
                    "it needs the pod network: a network with pod: {} in spec.networks",
                );
            }
        }
    }
}

/// Without any, a VMI is on the pod network.
fn has_networks(vmi: &Value) -> bool {
    !list_at(vmi, "/spec/networks").is_empty()
        || copy_at(vmi, "/spec/domain/devices/autoattachPodInterface") == false
}

fn is_subdomain(name: &str) -> bool {
    let is_outer = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= MAX_SUBDOMAIN_BYTES
        && name.split('.').all(|part| {
            part.starts_with(is_outer)
                && part.ends_with(is_outer)
                && part.chars().all(|c| is_outer(c) || c == '-')
        })
}

#[cfg(test)]
mod tests {
    use super::super::tests::refused;
    use serde_json::{Value, json};

    #[test]
    fn names_and_dns_policy_are_those_of_a_pod() {
        for (spec, is_refused) in [
            (json!({"subdomain": "web.example"}), false),
            (json!({"subdomain": "Web_1"}), true),
            (json!({"subdomain": "a..b"}), true),
            (json!({"hostname": "a.b"}), true),
            (json!({"dnsPolicy": "None"}), false),
            (json!({"dnsPolicy": "Nonne"}), true),
        ] {
            assert_eq!(!refused(spec.clone()).is_empty(), is_refused, "{spec}");
        }
    }

    #[test]
    fn a_probe_does_one_thing() {
        let of = |probe: Value| refused(json!({"readinessProbe": probe}));
        assert_eq!(of(json!({"tcpSocket": {"port": 22}})), [""; 0]);
        assert_eq!(of(json!({"periodSeconds": 3})), ["spec.readinessProbe"]);
        let two = json!({"tcpSocket": {"port": 22}, "exec": {"command": ["true"]}});
        assert_eq!(of(two), ["spec.readinessProbe"]);
    }

    #[test]
    fn a_probe_by_network_needs_the_pods() {
        let found = refused(json!({
            "domain": {"devices": {"autoattachPodInterface": false}},
            "livenessProbe": {"httpGet": {"port": 80}},
        }));
        assert_eq!(found, ["spec.livenessProbe.httpGet"]);
    }
}
