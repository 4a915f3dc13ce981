//! The Domain document: what virt-handler knows of a domain. Its keys are Go's field names, and
//! null and empty stand where Go's encoder puts them (docs/contract.md §6). `Spec` is the same
//! schema as the XML.

use serde::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};

use super::DomainSpec;
use super::alias::Alias;
use super::guest_agent::FreezeStatus;
use super::metadata::Time;
use super::status::{LifeCycle, StateChangeReason};
use super::xml::Go;

/// `kind` of every document.
pub const KIND: &str = "Domain";
/// `apiVersion` of every document; it has not changed since KubeVirt's first releases.
pub const API_VERSION: &str = "1.2.2";

/// A domain as virt-handler decodes it. The default is the empty document, without even a kind.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Domain {
    /// [`KIND`].
    pub kind: String,
    /// [`API_VERSION`].
    pub api_version: String,
    /// Whose domain it is.
    pub meta: ObjectMeta,
    pub spec: DomainSpec,
    pub status: DomainStatus,
}

/// `ObjectMeta`: the VMI's identity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Name of the VMI.
    pub name: String,
    /// Namespace of the VMI.
    pub namespace: String,
    /// UID of the VMI.
    pub uid: String,
    /// Present once libvirt does not know the domain any more: for virt-handler it is then gone.
    pub deletion_timestamp: Option<Time>,
}

/// `Status`: how the domain is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DomainStatus {
    pub status: LifeCycle,
    pub reason: StateChangeReason,
    /// Addresses, as the guest agent has them.
    pub interfaces: Vec<InterfaceStatus>,
    /// The guest's operating system, as the guest agent has it.
    pub os_info: GuestOsInfo,
    /// Whether the guest's file systems are frozen, if that is known.
    pub fs_freeze_status: Option<FreezeStatus>,
    pub guest_panic_info: Option<GuestPanicInfo>,
    /// Panics so far; never goes backwards.
    pub panic_count: u64,
}

/// An interface inside the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterfaceStatus {
    /// Hardware address.
    pub mac: String,
    pub ip: String,
    pub ips: Vec<String>,
    /// Name in the guest.
    pub interface_name: String,
}

/// The guest's operating system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestPanicInfo {
    /// `hyper-v`, `unknown`, …
    pub kind: String,
    /// `arg1` to `arg5`.
    pub args: [u64; 5],
}

impl Domain {
    /// A document of this VMI's, with nothing known about its domain yet.
    #[must_use]
    pub fn new(namespace: &str, name: &str, uid: &str) -> Self {
        let mut document = Self {
            kind: KIND.into(),
            api_version: API_VERSION.into(),
            ..Self::default()
        };
        document.meta = ObjectMeta {
            name: name.into(),
            namespace: namespace.into(),
            uid: uid.into(),
            deletion_timestamp: None,
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

impl Serialize for Domain {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut out = s.serialize_map(None)?;
        entries(
            &mut out,
            &[("kind", &self.kind), ("apiVersion", &self.api_version)],
        )?;
        out.serialize_entry("ObjectMeta", &self.meta)?;
        out.serialize_entry("Spec", &Go(&self.spec))?;
        out.serialize_entry("Status", &self.status)?;
        out.end()
    }
}

/// Entries that are left out when empty, as Go does it with `omitempty`.
fn entries<M: SerializeMap>(out: &mut M, fields: &[(&str, &String)]) -> Result<(), M::Error> {
    fields
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .try_for_each(|(name, value)| out.serialize_entry(*name, value.as_str()))
}

impl Serialize for ObjectMeta {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut out = s.serialize_map(None)?;
        entries(
            &mut out,
            &[
                ("name", &self.name),
                ("namespace", &self.namespace),
                ("uid", &self.uid),
            ],
        )?;
        if let Some(time) = &self.deletion_timestamp {
            out.serialize_entry("deletionTimestamp", &Go(time))?;
        }
        out.end()
    }
}

impl Serialize for DomainStatus {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut out = s.serialize_struct("DomainStatus", 7)?;
        out.serialize_field("Status", self.status.as_str())?;
        out.serialize_field("Reason", self.reason.as_str())?;
        out.serialize_field("Interfaces", &list(&self.interfaces))?;
        out.serialize_field("OSInfo", &self.os_info)?;
        out.serialize_field("FSFreezeStatus", &FsFreeze(self.fs_freeze_status))?;
        out.serialize_field("GuestPanicInfo", &self.guest_panic_info)?;
        out.serialize_field("PanicCount", &self.panic_count)?;
        out.end()
    }
}

/// Go writes a list without elements as null.
fn list<T>(items: &[T]) -> Option<&[T]> {
    (!items.is_empty()).then_some(items)
}

struct FsFreeze(Option<FreezeStatus>);

impl Serialize for FsFreeze {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut out = s.serialize_struct("FSFreeze", 1)?;
        let status = self.0.map(FreezeStatus::as_str).unwrap_or_default();
        out.serialize_field("Status", status)?;
        out.end()
    }
}

impl Serialize for InterfaceStatus {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut out = s.serialize_struct("InterfaceStatus", 4)?;
        out.serialize_field("Mac", self.mac.as_str())?;
        out.serialize_field("Ip", self.ip.as_str())?;
        out.serialize_field("IPs", &list(&self.ips))?;
        out.serialize_field("InterfaceName", self.interface_name.as_str())?;
        out.end()
    }
}

impl Serialize for GuestOsInfo {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut out = s.serialize_struct("GuestOSInfo", 8)?;
        out.serialize_field("Name", self.name.as_str())?;
        out.serialize_field("KernelRelease", self.kernel_release.as_str())?;
        out.serialize_field("Version", self.version.as_str())?;
        out.serialize_field("PrettyName", self.pretty_name.as_str())?;
        out.serialize_field("VersionId", self.version_id.as_str())?;
        out.serialize_field("KernelVersion", self.kernel_version.as_str())?;
        out.serialize_field("Machine", self.machine.as_str())?;
        out.serialize_field("Id", self.id.as_str())?;
        out.end()
    }
}

impl Serialize for GuestPanicInfo {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut out = s.serialize_struct("GuestPanicInfo", 6)?;
        out.serialize_field("Type", self.kind.as_str())?;
        for (name, value) in ["Arg1", "Arg2", "Arg3", "Arg4", "Arg5"]
            .into_iter()
            .zip(&self.args)
        {
            out.serialize_field(name, value)?;
        }
        out.end()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
            args: [0x5a, 1, 0, 0, 0],
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
