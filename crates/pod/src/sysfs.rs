//! Files of the kernel that the conversion reads: sysfs, for placing PCI devices next to their NUMA
//! cells, and the file that says whose vsock addresses the pod has.

use std::fs;

use super::machine::Machine;
use api::vmi::Vmi;
use convert::context::Context;
use convert::{NODE_DIRS_WITHOUT_LINKS, NODE_LINK_DEPTH};
use domain::PciAddress;

const NODES: &str = "/sys/devices/system/node";

pub(super) fn collect(machine: &Machine, vmi: &Vmi, ctx: &mut Context) {
    if vmi.status.vsockcid.is_some() {
        file_of(machine, ctx, convert::VSOCK_NS_MODE);
    }
    collect_pci(machine, ctx);
}

/// Copies the files and links that PCI placement reads, if it is on: what `grace_host`, `guest_cell`
/// and `numa` of `convert`'s `pci` name. A missing one has a meaning there.
fn collect_pci(machine: &Machine, ctx: &mut Context) {
    if !ctx.pci_numa_aware_topology_enabled && !ctx.grace_io_virtualization_enabled {
        return;
    }
    let devices: Vec<PciAddress> = ctx
        .generic_host_devices
        .iter()
        .chain(&ctx.gpu_host_devices)
        .chain(&ctx.sriov_devices)
        .filter_map(|device| device.source_address.as_ref()?.pci())
        .collect();
    if devices.is_empty() {
        return;
    }
    for device in &devices {
        for file in ["numa_node", "vendor", "device", "resource"] {
            file_of(
                machine,
                ctx,
                &format!("/sys/bus/pci/devices/{device}/{file}"),
            );
        }
    }
    for file in ["online", "has_generic_initiator"] {
        file_of(machine, ctx, &format!("{NODES}/{file}"));
    }
    for node in names(machine, NODES)
        .into_iter()
        .filter(|name| name.strip_prefix("node").is_some_and(is_number))
    {
        for file in ["distance", "meminfo", "cpulist"] {
            file_of(machine, ctx, &format!("{NODES}/{node}/{file}"));
        }
        file_of(
            machine,
            ctx,
            &format!("/sys/bus/node/devices/{node}/cpulist"),
        );
        links_below(machine, ctx, &format!("{NODES}/{node}"), NODE_LINK_DEPTH);
    }
    for name in names(machine, "/sys/class/iommu") {
        link_of(machine, ctx, &format!("/sys/class/iommu/{name}"));
    }
}

/// Copies the links of a NUMA node's directory, and of those below it down to `depth`.
fn links_below(machine: &Machine, ctx: &mut Context, dir: &str, depth: u32) {
    // Thousands of links to CPUs and memory blocks say nothing about PCI devices.
    let is_bulk = |name: &str| {
        ["cpu", "memory"]
            .iter()
            .any(|prefix| name.strip_prefix(prefix).is_some_and(is_number))
    };
    for name in names(machine, dir) {
        let path = format!("{dir}/{name}");
        if is_bulk(&name) || NODE_DIRS_WITHOUT_LINKS.contains(&name.as_str()) {
            continue;
        }
        if fs::symlink_metadata(machine.path(&path)).is_ok_and(|it| it.is_symlink()) {
            link_of(machine, ctx, &path);
        } else if depth > 0 {
            links_below(machine, ctx, &path, depth - 1);
        }
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn names(machine: &Machine, dir: &str) -> Vec<String> {
    let entries = fs::read_dir(machine.path(dir))
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

fn file_of(machine: &Machine, ctx: &mut Context, path: &str) {
    if let Ok(text) = fs::read_to_string(machine.path(path)) {
        ctx.host_files.insert(path.into(), text);
    }
}

fn link_of(machine: &Machine, ctx: &mut Context, path: &str) {
    if let Ok(target) = fs::read_link(machine.path(path)) {
        ctx.host_links
            .insert(path.into(), target.to_string_lossy().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use convert::context::{AddressSpec, HostDeviceSpec};

    #[test]
    fn data_is_copied_only_where_placement_needs_it() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/bus/pci/devices/0000:3b:10.0/numa_node", "1\n");
        write("sys/devices/system/node/node1/cpulist", "4-7\n");
        write("sys/devices/system/node/power/x", "");
        for name in ["cpu4", "memory12", "initiator0"] {
            std::os::unix::fs::symlink(
                "../../target",
                dir.path().join("sys/devices/system/node/node1").join(name),
            )
            .unwrap();
        }
        let initiators = dir
            .path()
            .join("sys/devices/system/node/node1/access0/initiators");
        fs::create_dir_all(&initiators).unwrap();
        std::os::unix::fs::symlink("../../../node0", initiators.join("node0")).unwrap();
        let machine = Machine {
            root: dir.path().into(),
            environment: Default::default(),
        };
        let address = |text: &str| text.into();
        let device = HostDeviceSpec {
            source_address: Some(AddressSpec {
                r#type: address("pci"),
                domain: address("0x0000"),
                bus: address("0x3b"),
                slot: address("0x10"),
                function: address("0x0"),
                ..AddressSpec::default()
            }),
            ..HostDeviceSpec::default()
        };
        let mut ctx = Context {
            gpu_host_devices: vec![device],
            ..Context::default()
        };
        collect_pci(&machine, &mut ctx);
        assert!(ctx.host_files.is_empty(), "not asked for");
        ctx.pci_numa_aware_topology_enabled = true;
        collect_pci(&machine, &mut ctx);
        let files: Vec<&str> = ctx.host_files.keys().map(|path| path.as_str()).collect();
        assert_eq!(
            files,
            [
                "/sys/bus/pci/devices/0000:3b:10.0/numa_node",
                "/sys/devices/system/node/node1/cpulist"
            ]
        );
        assert_eq!(
            ctx.host_links.keys().collect::<Vec<_>>(),
            [
                "/sys/devices/system/node/node1/access0/initiators/node0",
                "/sys/devices/system/node/node1/initiator0"
            ]
        );
    }
}
