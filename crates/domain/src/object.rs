//! The Domain document: what virt-handler knows of a domain. Its keys are Go's field names, and
//! null and empty stand where Go's encoder puts them (docs/contract.md §6). `Spec` is the same
//! schema as the XML.

use serde::{Deserialize, Serialize, Serializer};

use super::DomainSpec;
use super::alias::Alias;
use super::guest_agent::FreezeStatus;
use super::metadata::Time;
use super::status::{LifeCycle, StateChangeReason};
use super::xml::{go, or_default};

/// `kind` of every document.
pub const KIND: &str = "Domain";
/// `apiVersion` of every document; it has not changed since KubeVirt's first releases.
pub const API_VERSION: &str = "1.2.2";

/// A domain as virt-handler decodes it. The default is the empty document, without even a kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Domain {
    /// [`KIND`].
    #[serde(rename = "kind", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// [`API_VERSION`].
    #[serde(rename = "apiVersion", skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Whose domain it is.
    #[serde(rename = "ObjectMeta")]
    pub meta: ObjectMeta,
    #[serde(with = "go")]
    pub spec: DomainSpec,
    pub status: DomainStatus,
}

/// `ObjectMeta`: the VMI's identity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectMeta {
    /// Name of the VMI.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Namespace of the VMI.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// UID of the VMI.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Present once libvirt does not know the domain any more: for virt-handler it is then gone.
    #[serde(with = "go", skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Time>,
}

/// `Status`: how the domain is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct DomainStatus {
    #[serde(with = "go")]
    pub status: LifeCycle,
    #[serde(with = "go")]
    pub reason: StateChangeReason,
    /// Addresses, as the guest agent has them.
    #[serde(serialize_with = "list", deserialize_with = "or_default")]
    pub interfaces: Vec<InterfaceStatus>,
    /// The guest's operating system, as the guest agent has it.
    #[serde(rename = "OSInfo")]
    pub os_info: GuestOsInfo,
    /// Whether the guest's file systems are frozen, if that is known.
    #[serde(rename = "FSFreezeStatus", with = "freeze")]
    pub fs_freeze_status: Option<FreezeStatus>,
    pub guest_panic_info: Option<GuestPanicInfo>,
    /// Panics so far; never goes backwards.
    pub panic_count: u64,
}

impl DomainStatus {
    /// The reason, if KubeVirt has one.
    #[must_use]
    pub fn known_reason(&self) -> Option<&str> {
        match &self.reason {
            StateChangeReason::Unset | StateChangeReason::Unknown => None,
            reason => Some(reason.as_str()),
        }
    }
}

/// An interface inside the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct InterfaceStatus {
    /// Hardware address.
    pub mac: String,
    pub ip: String,
    #[serde(
        rename = "IPs",
        serialize_with = "list",
        deserialize_with = "or_default"
    )]
    pub ips: Vec<String>,
    /// Name in the guest.
    pub interface_name: String,
}

/// The guest's operating system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct GuestOsInfo {
    pub name: String,
    pub kernel_release: String,
    pub version: String,
    pub pretty_name: String,
    pub version_id: String,
    pub kernel_version: String,
    pub machine: String,
    pub id: String,
}

/// What QEMU logged about a panic. The arguments are Windows' bug check code and parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct GuestPanicInfo {
    /// `hyper-v`, `unknown`, …
    #[serde(rename = "Type")]
    pub kind: String,
    pub arg1: u64,
    pub arg2: u64,
    pub arg3: u64,
    pub arg4: u64,
    pub arg5: u64,
}

impl Domain {
    /// A document of this VMI's, with nothing known about its domain yet.
    #[must_use]
    pub fn new(namespace: &str, name: &str, uid: &str) -> Self {
        let meta = ObjectMeta {
            name: name.into(),
            namespace: namespace.into(),
            uid: uid.into(),
            deletion_timestamp: None,
        };
        let mut document = Self {
            kind: KIND.into(),
            api_version: API_VERSION.into(),
            meta,
            ..Self::default()
        };
        document.spec.metadata.kube_virt.uid = uid.into();
        document
    }

    /// Makes the document safe for virt-handler, which reads the alias of every disk and the alias
    /// and MAC of every interface without asking whether they are there: a null stops the daemon of
    /// the whole node. libvirt names every device of a running domain, but no device of a
    /// definition, and a sidecar may add any device.
    pub fn fill_required_fields(&mut self) {
        for disk in &mut self.spec.devices.disks {
            // No volume can have this name (a volume's is a DNS label), so that it is not mistaken
            // for one.
            disk.alias
                .get_or_insert_with(|| Alias::libvirt(format!("disk:{}", disk.target.device)));
        }
        self.spec
            .devices
            .interfaces
            .retain(|interface| interface.mac.is_some());
        for (index, interface) in self.spec.devices.interfaces.iter_mut().enumerate() {
            interface
                .alias
                .get_or_insert_with(|| Alias::libvirt(format!("net:{index}")));
        }
    }

    /// The document as JSON.
    ///
    /// # Errors
    /// None that a document could cause; the serializer's own.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
}

/// Go writes a list without elements as null.
fn list<T: Serialize, S: Serializer>(items: &[T], s: S) -> Result<S::Ok, S::Error> {
    (!items.is_empty()).then_some(items).serialize(s)
}

/// `{"Status": "frozen"}`, with an empty text for what is not known.
mod freeze {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::guest_agent::FreezeStatus;

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Freeze<T> {
        status: T,
    }

    pub fn serialize<S: Serializer>(known: &Option<FreezeStatus>, s: S) -> Result<S::Ok, S::Error> {
        let status = known.map(FreezeStatus::as_str).unwrap_or_default();
        Freeze { status }.serialize(s)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<FreezeStatus>, D::Error> {
        let Freeze { status } = Freeze::<serde_json::Value>::deserialize(d)?;
        Ok(FreezeStatus::deserialize(status).ok())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn json(document: &Domain) -> Value {
        serde_json::from_str(&document.to_json().unwrap()).unwrap()
    }

    #[test]
    fn the_empty_document_has_no_kind_and_a_full_status() {
        let empty = json(&Domain::default());
        assert_eq!(empty["ObjectMeta"], json!({}));
        assert!(empty.get("kind").is_none());
        assert_eq!(
            empty["Status"],
            json!({"Status": "", "Reason": "", "Interfaces": null, "FSFreezeStatus": {"Status": ""}, "GuestPanicInfo": null, "PanicCount": 0,
                "OSInfo": {"Name": "", "KernelRelease": "", "Version": "", "PrettyName": "", "VersionId": "", "KernelVersion": "",
                    "Machine": "", "Id": ""}})
        );
        assert_eq!(empty["Spec"]["Devices"]["Disks"], Value::Null);
    }

    #[test]
    fn a_document_says_whose_it_is() {
        let mut document = Domain::new("ns1", "vm1", "u-1");
        document.meta.deletion_timestamp = Some("2026-01-02T03:04:05.5Z".parse().unwrap());
        let json = json(&document);
        assert_eq!(
            (&json["kind"], &json["apiVersion"]),
            (&json!("Domain"), &json!("1.2.2"))
        );
        assert_eq!(
            json["ObjectMeta"],
            json!({"name": "vm1", "namespace": "ns1", "uid": "u-1", "deletionTimestamp": "2026-01-02T03:04:05Z"})
        );
        assert_eq!(json["Spec"]["Metadata"]["KubeVirt"]["UID"], "u-1");
    }

    #[test]
    fn what_the_guest_agent_knows_is_in_the_status() {
        let mut document = Domain::default();
        document.status.interfaces = vec![InterfaceStatus {
            mac: "02:00:00:00:00:01".into(),
            ip: "10.0.0.2".into(),
            ips: vec!["10.0.0.2".into()],
            interface_name: "eth0".into(),
        }];
        document.status.guest_panic_info = Some(GuestPanicInfo {
            kind: "hyper-v".into(),
            arg1: 0x5a,
            arg2: 1,
            ..GuestPanicInfo::default()
        });
        let status = &json(&document)["Status"];
        assert_eq!(
            status["Interfaces"],
            json!([{"Mac": "02:00:00:00:00:01", "Ip": "10.0.0.2", "IPs": ["10.0.0.2"], "InterfaceName": "eth0"}])
        );
        assert_eq!(
            status["GuestPanicInfo"],
            json!({"Type": "hyper-v", "Arg1": 0x5a, "Arg2": 1, "Arg3": 0, "Arg4": 0, "Arg5": 0})
        );
    }

    #[test]
    fn what_virt_handler_reads_without_asking_is_never_null() {
        let mut document = Domain::new("ns1", "vm1", "u-1");
        document.spec = DomainSpec::from_xml(
            "<domain type='kvm'><name>ns1_vm1</name><devices>
               <disk type='file' device='disk'><target dev='vda'/><alias name='ua-root'/></disk>
               <disk type='file' device='disk'><target dev='vdb'/></disk>
               <interface type='ethernet'><mac address='02:00:00:00:00:01'/></interface>
               <interface type='ethernet'><alias name='net1'/></interface>
             </devices></domain>",
        )
        .unwrap();
        document.fill_required_fields();
        let read: Domain = serde_json::from_str(&document.to_json().unwrap()).unwrap();
        assert_eq!(read, document);
        let devices = &json(&document)["Spec"]["Devices"];
        assert_eq!(
            devices["Disks"][0]["Alias"],
            json!({"Name": "root", "UserDefined": true})
        );
        assert_eq!(
            devices["Disks"][1]["Alias"],
            json!({"Name": "disk:vdb", "UserDefined": false})
        );
        assert_eq!(devices["Interfaces"].as_array().unwrap().len(), 1);
        assert_eq!(
            devices["Interfaces"][0]["Alias"],
            json!({"Name": "net:0", "UserDefined": false})
        );
        assert_eq!(
            devices["Interfaces"][0]["MAC"],
            json!({"MAC": "02:00:00:00:00:01"})
        );
    }
}
