//! The document that goes to the target: libvirt's own, changed where source and target differ.
//! libvirt refuses it if the guest would see another machine.

use std::collections::BTreeMap;

use api::pod_paths::PodPaths;
use api::vmi::Vmi;
use domain::xml::tree::Element;

use super::dedicated_cpus::pin_to_target_cpus;
use super::error::DocumentError;
use super::moved_volumes::move_volumes;
use crate::premigration::disk_paths;

/// Who adapts CPUs and paths to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetRewrite {
    /// The source, which has them from the VMI's status.
    BySource,
    /// The target's hook server.
    ByTargetHook,
}

/// The document for the target. `migratable` is libvirt's, `sizes` has the sizes that the guest
/// sees of disks whose volumes move, in bytes by the disk's target.
///
/// # Errors
/// When the document cannot be read, or a needed fact about the target is not known.
pub fn migration_xml(
    migratable: &str,
    vmi: &Vmi,
    sizes: &BTreeMap<String, u64>,
    rewrite: TargetRewrite,
    paths: &PodPaths<'_>,
) -> Result<String, DocumentError> {
    let mut domain = Element::parse(migratable).map_err(DocumentError::Xml)?;
    strip_metadata(&mut domain);
    move_volumes(&mut domain, vmi, sizes, paths)?;
    let state = vmi.status.migration_state.as_ref();
    let target = state.and_then(|state| state.target_state.as_ref());
    if rewrite == TargetRewrite::BySource {
        pin_to_target_cpus(&mut domain, vmi)?;
        disk_paths::rewrite(&mut domain, vmi);
    }
    let xml = domain.to_xml();
    let uid = target.and_then(|target| target.virtual_machine_instance_uid.as_deref());
    Ok(match uid {
        // Also in paths of sockets and logs.
        Some(uid) if !vmi.metadata.uid.is_empty() => xml.replace(&vmi.metadata.uid, uid),
        _ => xml,
    })
}

/// KubeVirt's metadata keep what belongs to the VM: its UID and its grace period. How far a
/// migration, a backup or a shutdown is, belongs to this pod.
// D-mig-1 (docs/differences.md).
fn strip_metadata(domain: &mut Element) {
    let Some(metadata) = domain.child_mut("metadata") else {
        return;
    };
    for kubevirt in metadata
        .children_mut()
        .filter(|it| is_named(it, "kubevirt"))
    {
        kubevirt.retain_children(|child| is_named(child, "uid") || is_named(child, "graceperiod"));
        for grace in kubevirt.children_mut() {
            grace.retain_children(|child| is_named(child, "deletionGracePeriodSeconds"));
        }
    }
}

/// Whether it has this name, whatever its prefix is.
fn is_named(element: &Element, name: &str) -> bool {
    let local = element.name.rsplit_once(':');
    local.map_or(element.name.as_str(), |(_, local)| local) == name
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::premigration::PreMigrationError;

    fn document(xml: &str, vmi: &Value, rewrite: TargetRewrite) -> Element {
        let vmi = serde_json::from_value(vmi.clone()).unwrap();
        let xml = migration_xml(xml, &vmi, &BTreeMap::new(), rewrite, &PodPaths::default());
        Element::parse(&xml.unwrap()).unwrap()
    }

    #[test]
    fn metadata_of_this_pod_stay_here() {
        let xml = "<domain><metadata><x:os xmlns:x='u'/><kubevirt:kubevirt xmlns:kubevirt='http://kubevirt.io'>\
             <kubevirt:uid>u-1</kubevirt:uid><kubevirt:graceperiod>\
             <kubevirt:deletionGracePeriodSeconds>7</kubevirt:deletionGracePeriodSeconds>\
             <kubevirt:deletionTimestamp>t</kubevirt:deletionTimestamp></kubevirt:graceperiod>\
             <kubevirt:migration/></kubevirt:kubevirt></metadata><foreign/></domain>";
        let expected = "<domain><metadata><x:os xmlns:x='u'/><kubevirt:kubevirt xmlns:kubevirt='http://kubevirt.io'>\
             <kubevirt:uid>u-1</kubevirt:uid><kubevirt:graceperiod>\
             <kubevirt:deletionGracePeriodSeconds>7</kubevirt:deletionGracePeriodSeconds></kubevirt:graceperiod>\
             </kubevirt:kubevirt></metadata><foreign/></domain>";
        let found = document(xml, &json!({}), TargetRewrite::BySource);
        assert_eq!(found, Element::parse(expected).unwrap());
    }

    #[test]
    fn a_vm_that_moves_to_another_cluster_gets_its_uid_and_namespace() {
        let xml = "<domain><devices><disk><source file='/d/ns1/vm/a.iso'/></disk>\
             <serial><source path='/private/u-1/serial'/></serial></devices></domain>";
        let vmi = json!({
            "metadata": {"namespace": "ns1", "uid": "u-1"},
            "status": {"migrationState": {"targetState":
                {"domainNamespace": "ns2", "virtualMachineInstanceUID": "u-2"}}},
        });
        let moved = document(xml, &vmi, TargetRewrite::BySource).to_xml();
        assert!(moved.contains("/d/ns2/vm/a.iso") && moved.contains("/private/u-2/serial"));
        let hook = document(xml, &vmi, TargetRewrite::ByTargetHook).to_xml();
        assert!(hook.contains("/d/ns1/vm/a.iso") && hook.contains("/private/u-2/serial"));
    }

    fn dedicated(cpu: &Value, cpu_set: &[u32]) -> Value {
        let cpus: Vec<_> = (4..10)
            .map(|id| json!({"id": id, "siblings": [id]}))
            .collect();
        let topology = json!({"numa_cells": [{"id": 1, "cpus": cpus}]});
        json!({
            "spec": {"architecture": "amd64", "domain": {"cpu": cpu}},
            "status": {"migrationState":
                {"targetCPUSet": cpu_set, "targetNodeTopology": topology.to_string()}},
        })
    }

    const PINNED: &str = "<domain><name>vm</name><vcpu>2</vcpu><cputune><vcpupin vcpu='0' cpuset='0'/>\
         <vcpupin vcpu='1' cpuset='1'/><emulatorpin cpuset='2'/></cputune><cpu><model>x</model></cpu></domain>";

    #[test]
    fn dedicated_cpus_are_the_targets() {
        let cpu = json!({"cores": 2, "dedicatedCpuPlacement": true, "isolateEmulatorThread": true});
        let vmi = dedicated(&cpu, &[6, 7, 8]);
        let expected = "<cputune><vcpupin vcpu='0' cpuset='6'/><vcpupin vcpu='1' cpuset='7'/>\
             <emulatorpin cpuset='8'/></cputune>";
        let found = document(PINNED, &vmi, TargetRewrite::BySource);
        assert_eq!(
            found.child("cputune"),
            Some(&Element::parse(expected).unwrap())
        );
        let left = document(PINNED, &vmi, TargetRewrite::ByTargetHook);
        assert_eq!(left, Element::parse(PINNED).unwrap());
    }

    #[test]
    fn sockets_that_are_not_plugged_in_are_not_pinned() {
        let xml = "<domain><name>vm</name><vcpu current='1'>2</vcpu><vcpus><vcpu id='0' enabled='yes'/>\
             <vcpu id='1' enabled='no'/></vcpus></domain>";
        let cpu = json!({"sockets": 2, "maxSockets": 2, "dedicatedCpuPlacement": true});
        let found = document(xml, &dedicated(&cpu, &[6, 7]), TargetRewrite::BySource);
        let pins = found.child("cputune").unwrap();
        assert_eq!(
            pins.to_xml(),
            "<cputune>\n\t<vcpupin vcpu=\"0\" cpuset=\"6\"></vcpupin>\n</cputune>"
        );
    }

    #[test]
    fn too_few_cpus_on_the_target_are_an_error_that_names_the_field() {
        let vmi = dedicated(&json!({"cores": 2, "dedicatedCpuPlacement": true}), &[6]);
        let vmi: Vmi = serde_json::from_value(vmi).unwrap();
        let none = BTreeMap::new();
        let refused = migration_xml(
            PINNED,
            &vmi,
            &none,
            TargetRewrite::BySource,
            &PodPaths::default(),
        );
        let DocumentError::Target(PreMigrationError::Cpus(refused)) = refused.unwrap_err() else {
            panic!("another error");
        };
        assert!(
            refused.to_string().contains("dedicatedCpuPlacement"),
            "{refused}"
        );
    }
}
