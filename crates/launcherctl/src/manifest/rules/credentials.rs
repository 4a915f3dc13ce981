//! Rules for SSH keys and passwords that the guest gets from Secrets.

use serde_json::Value;

use super::{Found, pointer};
use crate::json::{copy_at, is_object_at, list_at};

/// How each kind reaches the guest.
const METHODS: [(&str, &[&str]); 2] = [
    (
        "sshPublicKey",
        &["noCloud", "configDrive", "qemuGuestAgent"],
    ),
    ("userPassword", &["qemuGuestAgent"]),
];
/// The volume that a method writes into.
const VOLUMES: [(&str, &str); 2] = [
    ("noCloud", "cloudInitNoCloud"),
    ("configDrive", "cloudInitConfigDrive"),
];

impl Found {
    pub(super) fn credentials(&mut self, vmi: &Value) {
        let volumes = list_at(vmi, "/spec/volumes");
        let credentials = list_at(vmi, "/spec/accessCredentials");
        for (index, credential) in credentials.iter().enumerate() {
            let path = format!("spec.accessCredentials[{index}]");
            let kinds = METHODS.map(|(kind, _)| kind);
            self.exactly_one(&path, credential, &kinds);
            for (kind, methods) in METHODS {
                let part = copy_at(credential, &pointer(kind));
                if part.is_object() {
                    self.credential(&format!("{path}.{kind}"), &part, methods, volumes);
                }
            }
        }
    }

    fn credential(&mut self, path: &str, part: &Value, methods: &[&str], volumes: &[Value]) {
        let source = copy_at(part, "/source");
        self.exactly_one(&format!("{path}.source"), &source, &["secret"]);
        let path = format!("{path}.propagationMethod");
        let method = copy_at(part, "/propagationMethod");
        self.exactly_one(&path, &method, methods);
        for (name, volume) in VOLUMES {
            let has_volume = volumes
                .iter()
                .any(|other| is_object_at(other, &pointer(volume)));
            if is_object_at(&method, &pointer(name)) && !has_volume {
                self.add(
                    format!("{path}.{name}"),
                    format!("it needs a volume {volume} in spec.volumes"),
                );
            }
        }
        let is_of_keys = methods.len() > 1;
        if is_of_keys
            && is_object_at(&method, "/qemuGuestAgent")
            && list_at(&method, "/qemuGuestAgent/users").is_empty()
        {
            self.add(
                format!("{path}.qemuGuestAgent.users"),
                "missing; it lists the guest's users who get the key",
            );
        }
    }

    fn exactly_one(&mut self, path: &str, object: &Value, fields: &[&str]) {
        let is_set = |field: &&&str| !copy_at(object, &pointer(field)).is_null();
        let set: Vec<&str> = fields.iter().filter(is_set).copied().collect();
        match set.as_slice() {
            [_] => {}
            [] => self.add(path, format!("missing; expected {}", fields.join(" or "))),
            several => self.add(
                path,
                format!("it has several ({}); choose one", several.join(", ")),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::refused;
    use serde_json::{Value, json};

    #[test]
    fn a_credential_has_one_source_and_one_way_into_the_guest() {
        let of = |credential: Value| {
            let seed = json!({"name": "seed", "cloudInitNoCloud": {"userData": "x"}});
            let found = refused(json!({"volumes": [seed], "accessCredentials": [credential]}));
            let path = "spec.accessCredentials[0]";
            let inner = |field: &String| field.strip_prefix(path).map(str::to_owned);
            found.iter().filter_map(inner).collect::<Vec<_>>()
        };
        let source = json!({"secret": {"secretName": "keys"}});
        let key = |method: Value| json!({"sshPublicKey": {"source": source, "propagationMethod": method}});
        assert_eq!(of(key(json!({"noCloud": {}}))), [""; 0]);
        let agent = json!({"qemuGuestAgent": {"users": ["root"]}});
        assert_eq!(of(key(agent.clone())), [""; 0]);
        let password = json!({"userPassword": {"source": source, "propagationMethod": {"qemuGuestAgent": {}}}});
        assert_eq!(of(password), [""; 0]);

        let method = ".sshPublicKey.propagationMethod";
        assert_eq!(of(json!({})), [""]);
        assert_eq!(of(json!({"sshPublicKey": {"source": source}})), [method]);
        assert_eq!(
            of(json!({"sshPublicKey": {"propagationMethod": agent}})),
            [".sshPublicKey.source"]
        );
        let two = json!({"noCloud": {}, "qemuGuestAgent": {"users": ["root"]}});
        assert_eq!(of(key(two)), [method]);
        assert_eq!(
            of(key(json!({"configDrive": {}}))),
            [format!("{method}.configDrive")]
        );
        assert_eq!(
            of(key(json!({"qemuGuestAgent": {}}))),
            [format!("{method}.qemuGuestAgent.users")]
        );
    }
}
