//! Resets each member of the context and compares the resulting documents.

use super::Converted;
use super::probe::Finding;
use crate::Context;
use api::vmi::Vmi;

/// A member of the context: its name in JSON, and how it is set to something else.
struct Member {
    name: &'static str,
    change: fn(&mut Context),
}

/// Lists the members of the context: those that say something by being false as well, and those
/// that count when they are set. The pattern fails to compile when one is missing.
macro_rules! members {
    (flip { $($flag:ident $flag_name:literal,)* } reset { $($field:ident $name:literal,)* }) => {
        const MEMBERS: &[Member] = &[
            $(Member { name: $flag_name, change: |ctx| ctx.$flag = !ctx.$flag },)*
            $(Member { name: $name, change: |ctx| ctx.$field = Default::default() },)*
        ];
        const _: fn(Context) = |ctx| {
            let Context { $($flag: _,)* $($field: _,)* } = ctx;
        };
    };
}

members! {
    flip {
        hypervisor_device_available "hypervisorDeviceAvailable",
    }
    reset {
        allow_emulation "allowEmulation",
        allow_cross_arch_emulation "allowCrossArchEmulation",
        iommufd_enabled "iommufdEnabled",
        use_virtio_transitional "useVirtioTransitional",
        use_launch_security_sev "useLaunchSecuritySEV",
        use_launch_security_tdx "useLaunchSecurityTDX",
        use_launch_security_pv "useLaunchSecurityPV",
        free_page_reporting "freePageReporting",
        serial_console_log "serialConsoleLog",
        bochs_for_efi_guests "bochsForEFIGuests",
        pci_numa_aware_topology_enabled "pciNUMAAwareTopologyEnabled",
        grace_io_virtualization_enabled "graceIOVirtualizationEnabled",
        architecture "architecture",
        host_architecture "hostArchitecture",
        hypervisor_name "hypervisorName",
        missing_emulator_binaries "missingEmulatorBinaries",
        environment "environment",
        cpu_set "cpuSet",
        topology "topology",
        host_files "hostFiles",
        host_links "hostLinks",
        is_block_pvc "isBlockPVC",
        is_block_dv "isBlockDV",
        apply_cbt "applyCBT",
        hotplug_volumes "hotplugVolumes",
        permanent_volumes "permanentVolumes",
        migrated_volumes "migratedVolumes",
        volumes_discard_ignore "volumesDiscardIgnore",
        disks_info "disksInfo",
        ephemeral_disk_dir "ephemeralDiskDir",
        cloud_init_dir "cloudInitDir",
        ignition_dir "ignitionDir",
        container_disk_dir "containerDiskDir",
        block_device_probes "blockDeviceProbes",
        file_block_sizes "fileBlockSizes",
        disk_modes "diskModes",
        generic_host_devices "genericHostDevices",
        gpu_host_devices "gpuHostDevices",
        sriov_devices "sriovDevices",
        domain_attachment_by_interface_name "domainAttachmentByInterfaceName",
        smbios "smbios",
        efi_configuration "efiConfiguration",
        mem_balloon_stats_period "memBalloonStatsPeriod",
        grace_host_device_aliases "graceHostDeviceAliases",
        hotplug_disk_dir "hotplugDiskDir",
        root "root",
    }
}

/// Probes all members of the context.
pub fn probe(
    vmi: &Vmi,
    ctx: &Context,
    converted: &Converted<'_>,
    note: &mut dyn FnMut(Finding<'_>),
) {
    for member in MEMBERS {
        let mut other = ctx.clone();
        (member.change)(&mut other);
        if other == *ctx {
            continue;
        }
        let field = format!("context.{}", member.name);
        match crate::domain(vmi, &other) {
            Ok(domain) => {
                // A domain that has become too large says nothing about a fact.
                for key in converted.keys_changed_in(&domain).into_iter().flatten() {
                    note(Finding::Source { key, field: &field });
                }
            }
            Err(refusal) => note(Finding::Needed {
                field: &field,
                refusal: &refusal,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_named_as_in_json() {
        for member in MEMBERS {
            let mut text = serde_json::Map::new();
            text.insert(member.name.to_owned(), serde_json::Value::Null);
            let unknown = serde_json::from_value::<Context>(text.into())
                .err()
                .filter(|e| e.to_string().contains("unknown field"));
            assert!(unknown.is_none() || member.name == "root", "{unknown:?}");
        }
    }
}
