//! The context of a conversion: everything but the VMI that it needs, from the pod, the machine and
//! the request.

use super::machine::Machine;
use super::volumes::ContainerDisks;
use super::{LauncherFlags, PodError, block_sizes, firmware, host_devices, sysfs, volumes};
use api::proto::cmd::v1::{self as wire, VirtualMachineOptions};
use api::vmi::Vmi;
use convert::context::{
    CellCpu, CellDistance, CellMemory, CellPages, Context, NumaCell, Smbios, Topology,
};

/// Reads the pod, the machine and the options of the request. `known`: the images of container
/// disks that were found before. Blocks; changes nothing.
///
/// # Errors
/// A container disk's image, the firmware or a device that the VMI asks for is missing or is not
/// allowed.
pub fn collect_context(
    flags: &LauncherFlags,
    vmi: &Vmi,
    options: &VirtualMachineOptions,
    known: &ContainerDisks,
) -> Result<Context, PodError> {
    collect_on(&Machine::this(), flags, vmi, options, known)
}

pub(super) fn collect_on(
    machine: &Machine,
    flags: &LauncherFlags,
    vmi: &Vmi,
    options: &VirtualMachineOptions,
    known: &ContainerDisks,
) -> Result<Context, PodError> {
    let mut ctx = collect_without_host_devices(machine, flags, vmi, options, known)?;
    host_devices::collect(&flags.root, machine, vmi, &mut ctx)?;
    sysfs::collect(machine, vmi, &mut ctx);
    Ok(ctx)
}

/// All but the host devices and the node's facts about them.
pub(super) fn collect_without_host_devices(
    machine: &Machine,
    flags: &LauncherFlags,
    vmi: &Vmi,
    options: &VirtualMachineOptions,
    known: &ContainerDisks,
) -> Result<Context, PodError> {
    let mut ctx = of_flags(machine, flags, vmi)?;
    of_vmi(vmi, &mut ctx);
    of_options(vmi, options, &mut ctx);
    volumes::collect(flags, vmi, known, &mut ctx)?;
    block_sizes::collect(flags, machine, vmi, &mut ctx)?;
    ctx.efi_configuration = firmware::choose(flags, vmi, &ctx.architecture)?;
    Ok(ctx)
}

/// KubeVirt's name of the architecture that we run on.
fn host_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn of_flags(machine: &Machine, flags: &LauncherFlags, vmi: &Vmi) -> Result<Context, PodError> {
    let host = host_architecture();
    let asked = vmi.spec.architecture.as_str();
    let is_foreign = flags.allow_cross_arch_emulation && !asked.is_empty() && asked != host;
    Ok(Context {
        architecture: if is_foreign {
            asked.into()
        } else {
            host.into()
        },
        host_architecture: host.into(),
        hypervisor_name: flags.hypervisor.clone(),
        hypervisor_device_available: machine.hypervisor_device_available(flags),
        allow_emulation: flags.allow_emulation || flags.force_emulation,
        allow_cross_arch_emulation: is_foreign,
        missing_emulator_binaries: machine.missing_emulators(),
        environment: machine.relevant_environment(),
        cpu_set: machine.cpu_set()?,
        ephemeral_disk_dir: flags.overlay_dir(),
        cloud_init_dir: flags.cloud_init_dir(),
        ignition_dir: flags.ignition_dir(),
        container_disk_dir: flags.container_disk_dir().into(),
        hotplug_disk_dir: flags.hotplug_dir().into(),
        root: flags.root.prefix(),
        iommufd_enabled: super::iommufd::is_offered(flags),
        ..Context::default()
    })
}

/// Fields that the VMI alone decides: `launchSecurity` and `useVirtioTransitional`.
pub fn of_vmi(vmi: &Vmi, ctx: &mut Context) {
    let security = vmi.spec.domain.launch_security.as_ref();
    ctx.use_launch_security_sev =
        security.is_some_and(|security| security.sev.is_some() || security.snp.is_some());
    ctx.use_launch_security_tdx = security.is_some_and(|security| security.tdx.is_some());
    ctx.use_launch_security_pv = security.is_some() && vmi.spec.architecture == "s390x";
    ctx.use_virtio_transitional = vmi.spec.domain.devices.use_virtio_transitional == Some(true);
}

/// Fields that the options of the request decide; `logSerialConsole` of the VMI wins over
/// `SerialConsoleLogDisabled`.
pub fn of_options(vmi: &Vmi, options: &VirtualMachineOptions, ctx: &mut Context) {
    let cluster = options.cluster_config.unwrap_or_default();
    ctx.smbios = options.virtual_machine_sm_bios.as_ref().map(smbios);
    ctx.topology = options.topology.as_ref().map(topology);
    ctx.mem_balloon_stats_period = options.mem_balloon_stats_period.into();
    ctx.volumes_discard_ignore = options.preallocated_volumes.clone();
    ctx.domain_attachment_by_interface_name = options
        .interface_domain_attachment
        .clone()
        .into_iter()
        .collect();
    ctx.grace_host_device_aliases = options.grace_host_device_aliases.clone();
    ctx.free_page_reporting = !cluster.free_page_reporting_disabled && reports_free_pages(vmi);
    ctx.serial_console_log = vmi
        .spec
        .domain
        .devices
        .log_serial_console
        .unwrap_or(!cluster.serial_console_log_disabled);
    ctx.bochs_for_efi_guests = cluster.bochs_display_for_efi_guests;
    ctx.pci_numa_aware_topology_enabled = cluster.pcinuma_aware_topology_enabled;
    ctx.grace_io_virtualization_enabled = cluster.grace_io_virtualization_enabled;
}

/// `freePageReporting` (the cluster has `FreePageReportingDisabled`): off without a balloon, where
/// latency counts more than memory, and if the user says no.
fn reports_free_pages(vmi: &Vmi) -> bool {
    let domain = &vmi.spec.domain;
    let has_balloon = domain.devices.autoattach_mem_balloon != Some(false);
    let is_high_performance = domain
        .cpu
        .as_ref()
        .is_some_and(|cpu| cpu.dedicated_cpu_placement || cpu.realtime.is_some())
        || domain
            .memory
            .as_ref()
            .is_some_and(|memory| memory.hugepages.is_some());
    let is_off = vmi
        .metadata
        .annotations
        .get("kubevirt.io/free-page-reporting-disabled")
        .is_some_and(|value| value == "true");
    has_balloon && !is_high_performance && !is_off
}

fn smbios(system: &wire::SmBios) -> Smbios {
    Smbios {
        manufacturer: system.manufacturer.clone(),
        product: system.product.clone(),
        version: system.version.clone(),
        sku: system.sku.clone(),
        family: system.family.clone(),
    }
}

fn topology(topology: &wire::Topology) -> Topology {
    Topology {
        numa_cells: topology.numa_cells.iter().map(cell).collect(),
    }
}

fn cell(cell: &wire::Cell) -> NumaCell {
    let pages = |page: &wire::Pages| CellPages {
        count: page.count,
        unit: page.unit.clone(),
        size: page.size,
    };
    NumaCell {
        id: cell.id,
        memory: cell.memory.as_ref().map(|memory| CellMemory {
            amount: memory.amount,
            unit: memory.unit.clone(),
        }),
        pages: cell.pages.iter().map(pages).collect(),
        distances: cell
            .distances
            .iter()
            .map(|distance| CellDistance {
                id: distance.id,
                value: distance.value,
            })
            .collect(),
        cpus: cell
            .cpus
            .iter()
            .map(|cpu| CellCpu {
                id: cpu.id,
                siblings: cpu.siblings.clone(),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::Root;
    use super::*;

    struct Pod {
        dir: tempfile::TempDir,
        flags: LauncherFlags,
        machine: Machine,
    }

    impl Pod {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let flags = LauncherFlags {
                root: Root::new(dir.path()),
                ..LauncherFlags::default()
            };
            let machine = Machine {
                root: dir.path().join("machine"),
                environment: BTreeMap::new(),
            };
            let pod = Self {
                dir,
                flags,
                machine,
            };
            pod.write("machine/sys/fs/cgroup/cpuset.cpus.effective", b"0-1\n");
            pod
        }

        fn write(&self, path: &str, content: &[u8]) {
            let path = self.dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }

        fn collect(&self, vmi: &str) -> Result<Context, String> {
            self.collect_with(vmi, &ContainerDisks::default())
        }

        #[track_caller]
        fn refuses(&self, vmi: &str, why: &str) {
            let error = self.collect(vmi).unwrap_err();
            assert!(error.contains(why), "{vmi}: {error}");
        }

        fn link(&self, target: &str, path: &str) {
            let path = self.dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(target, path).unwrap();
        }

        /// The size of the container disk.
        fn size(&self, vmi: &str) -> u64 {
            self.collect(vmi).unwrap().disks_info["root"].virtual_size
        }

        fn collect_with(&self, vmi: &str, known: &ContainerDisks) -> Result<Context, String> {
            let vmi = serde_json::from_str(vmi).unwrap();
            let options = VirtualMachineOptions::default();
            collect_on(&self.machine, &self.flags, &vmi, &options, known)
                .map_err(|error| os::logging::chain(&error))
        }
    }

    fn volumes(json: &str) -> String {
        format!(r#"{{"spec":{{"volumes":[{json}]}}}}"#)
    }

    const CLAIM: &str = r#"{"name":"data","persistentVolumeClaim":{"claimName":"c"}}"#;
    const CONTAINER_DISK: &str = r#"{"name":"root","containerDisk":{"image":"registry/disk:1"}}"#;

    #[test]
    fn a_claim_without_a_device_is_a_file() {
        let pod = Pod::new();
        assert!(!pod.collect(&volumes(CLAIM)).unwrap().is_block_pvc["data"]);
        pod.write("dev/data", b"a file, not a device");
        assert!(!pod.collect(&volumes(CLAIM)).unwrap().is_block_pvc["data"]);
    }

    #[test]
    fn the_namespace_of_vsock_addresses_is_looked_at_for_a_guest_with_one() {
        let pod = Pod::new();
        let vmi = r#"{"status":{"VSOCKCID":7}}"#;
        assert!(
            pod.collect(vmi).unwrap().host_files.is_empty(),
            "an older kernel"
        );
        pod.write(&format!("machine{}", convert::VSOCK_NS_MODE), b"local\n");
        assert_eq!(
            pod.collect(vmi).unwrap().host_files[convert::VSOCK_NS_MODE],
            "local\n"
        );
        assert!(pod.collect("{}").unwrap().host_files.is_empty());
    }

    #[test]
    fn volumes_are_hotplugged_or_permanent_as_the_status_says() {
        let vmi = r#"{"status":{"volumeStatus":[{"name":"a"},{"name":"b","hotplugVolume":{}}]}}"#;
        let ctx = Pod::new().collect(vmi).unwrap();
        assert!(ctx.permanent_volumes.keys().eq(["a"]));
        assert!(ctx.hotplug_volumes.keys().eq(["b"]));
    }

    #[test]
    fn a_container_disk_is_inspected() {
        let pod = Pod::new();
        pod.write("var/run/kubevirt/container-disks/disk_0.img", &[0; 4096]);
        let info = &pod.collect(&volumes(CONTAINER_DISK)).unwrap().disks_info["root"];
        assert_eq!((info.format.as_str(), info.virtual_size), ("raw", 4096));
    }

    #[test]
    fn a_container_disk_is_the_same_when_a_volume_before_it_is_unplugged() {
        let pod = Pod::new();
        pod.write("var/run/kubevirt/container-disks/disk_1.img", &[0; 4096]);
        let before = volumes(&format!("{CLAIM},{CONTAINER_DISK}"));
        let known = pod.collect(&before).unwrap().disks_info;
        let after = pod.collect_with(&volumes(CONTAINER_DISK), &known).unwrap();
        assert_eq!(after.disks_info, known);
        assert_eq!(known["root"].virtual_size, 4096);
        assert!(pod.collect(&volumes(CONTAINER_DISK)).is_err());
    }

    #[test]
    fn a_missing_container_disk_names_its_image_and_path() {
        let (pod, vmi) = (Pod::new(), volumes(CONTAINER_DISK));
        pod.refuses(&vmi, "volume \"root\"");
        fs::create_dir_all(pod.dir.path().join("var/run/kubevirt/container-disks")).unwrap();
        let image = "no image of the container disk \"registry/disk:1\" at ";
        let place = "/container-disks/disk_0.img; has virt-handler mounted it?";
        for why in [image, place] {
            pod.refuses(&vmi, why);
        }
    }

    #[test]
    fn an_image_volume_has_its_image_in_the_directory_disk() {
        let mut pod = Pod::new();
        pod.flags.image_volume = true;
        let mount = "var/run/kubevirt-image-volume/disk_0";
        pod.write(&format!("{mount}/disk/any.raw"), &[0; 512]);
        assert_eq!(pod.size(&volumes(CONTAINER_DISK)), 512);
        pod.write(&format!("{mount}/disk/more.raw"), b"");
        let why = "has several files in /disk (any.raw, more.raw)";
        pod.refuses(&volumes(CONTAINER_DISK), why);
    }

    #[test]
    fn an_image_volume_with_a_single_file_is_that_file() {
        let mut pod = Pod::new();
        pod.flags.image_volume = true;
        let mount = "var/run/kubevirt-image-volume/disk_0";
        pod.write(&format!("{mount}/any.raw"), &[0; 512]);
        assert_eq!(pod.size(&volumes(CONTAINER_DISK)), 512);
        pod.write(&format!("{mount}/more.raw"), b"");
        let why = "no single file or directory /disk in the container disk";
        pod.refuses(&volumes(CONTAINER_DISK), why);
        pod.write(&format!("{mount}/disk/the.raw"), &[0; 1024]);
        assert_eq!(pod.size(&volumes(CONTAINER_DISK)), 1024);
    }

    #[test]
    fn links_of_an_image_volume_stay_inside_it() {
        let mut pod = Pod::new();
        pod.flags.image_volume = true;
        pod.write("etc/shadow", &[0; 512]);
        let mount = "var/run/kubevirt-image-volume/disk_0";
        pod.write(&format!("{mount}/images/real.raw"), &[0; 1024]);
        pod.link("/images/real.raw", &format!("{mount}/link"));
        pod.link("/etc/shadow", &format!("{mount}/absolute"));
        pod.link("../../../../etc/shadow", &format!("{mount}/relative"));
        let at = |path: &str| {
            volumes(&format!(
                r#"{{"name":"root","containerDisk":{{"image":"i","path":"{path}"}}}}"#
            ))
        };
        assert_eq!(pod.size(&at("/link")), 1024);
        for hostile in [
            "/absolute",
            "/relative",
            "/../../../../etc/shadow",
            "../../../../etc/shadow",
            "/proc/self/root/etc/shadow",
        ] {
            pod.refuses(&at(hostile), "in the container disk \"i\", mounted at ");
        }
    }

    #[test]
    fn a_link_in_place_of_the_mounted_image_is_refused() {
        let pod = Pod::new();
        pod.write("etc/shadow", b"secret");
        let image = "var/run/kubevirt/container-disks/disk_0.img";
        pod.link("/etc/shadow", image);
        let why = "is reached through a symbolic link";
        pod.refuses(&volumes(CONTAINER_DISK), why);
    }

    #[test]
    fn a_volume_name_cannot_leave_its_directory() {
        for name in ["..", "../etc", "a/b", "", ".hidden", "a,b", "a\\u0000b"] {
            let volume = format!(r#"{{"name":"{name}","persistentVolumeClaim":{{}}}}"#);
            Pod::new().refuses(&volumes(&volume), "cannot be a file name");
        }
    }

    #[test]
    fn the_context_says_where_the_pods_directories_are() {
        let pod = Pod::new();
        let ctx = pod.collect("{}").unwrap();
        assert_eq!(ctx.root, pod.dir.path().to_string_lossy());
        assert_eq!(
            ctx.ephemeral_disk_dir,
            "/var/run/kubevirt-ephemeral-disks/disk-data"
        );
        assert_eq!(ctx.cpu_set, [0, 1]);
    }

    #[test]
    fn forced_emulation_hides_the_device_and_allows_emulation() {
        let mut pod = Pod::new();
        pod.write("machine/dev/kvm", b"");
        assert!(pod.collect("{}").unwrap().hypervisor_device_available);
        pod.flags.force_emulation = true;
        let ctx = pod.collect("{}").unwrap();
        assert!(!ctx.hypervisor_device_available && ctx.allow_emulation);
    }

    #[test]
    fn free_pages_are_not_reported_where_that_costs() {
        let on = |vmi: &str| Pod::new().collect(vmi).unwrap().free_page_reporting;
        assert!(on("{}"));
        for vmi in [
            r#"{"spec":{"domain":{"devices":{"autoattachMemBalloon":false}}}}"#,
            r#"{"spec":{"domain":{"cpu":{"dedicatedCpuPlacement":true}}}}"#,
            r#"{"spec":{"domain":{"memory":{"hugepages":{}}}}}"#,
            r#"{"metadata":{"annotations":{"kubevirt.io/free-page-reporting-disabled":"true"}}}"#,
        ] {
            assert!(!on(vmi), "{vmi}");
        }
    }

    #[test]
    fn the_vmi_decides_about_the_serial_log_before_the_cluster() {
        let logged = |vmi: &str, disabled: bool| {
            let cluster_config = Some(wire::ClusterConfig {
                serial_console_log_disabled: disabled,
                ..Default::default()
            });
            let options = VirtualMachineOptions {
                cluster_config,
                ..Default::default()
            };
            let (pod, known) = (Pod::new(), ContainerDisks::default());
            let vmi = serde_json::from_str(vmi).unwrap();
            let context = collect_on(&pod.machine, &pod.flags, &vmi, &options, &known);
            context.unwrap().serial_console_log
        };
        assert_eq!((logged("{}", false), logged("{}", true)), (true, false));
        let asked = r#"{"spec":{"domain":{"devices":{"logSerialConsole":true}}}}"#;
        assert!(logged(asked, true));
    }

    #[test]
    fn tracked_volumes_have_an_overlay() {
        let mut pod = Pod::new();
        let vmi = format!(
            r#"{{"spec":{{"volumes":[{CLAIM}]}},"status":{{"changedBlockTracking":{{"state":"Enabled"}}}}}}"#
        );
        for (run_as_nonroot, expected) in [
            (false, "/var/lib/libvirt/qemu/cbt/data.qcow2"),
            (
                true,
                "/var/run/kubevirt-private/libvirt/qemu/cbt/data.qcow2",
            ),
        ] {
            pod.flags.run_as_nonroot = run_as_nonroot;
            let overlay = pod.collect(&vmi).unwrap().apply_cbt["data"].clone();
            assert!(overlay.ends_with(expected), "{overlay}");
        }
        assert!(pod.collect(&volumes(CLAIM)).unwrap().apply_cbt.is_empty());
    }

    #[test]
    fn block_sizes_are_those_of_the_file_system_even_before_the_image_is_made() {
        let pod = Pod::new();
        let vmi = r#"{"spec":{"domain":{"devices":{"disks":[{"name":"e","disk":{},"blockSize":{"matchVolume":{}}},{"name":"f","disk":{}}]}},
                      "volumes":[{"name":"e","emptyDisk":{"capacity":"1Gi"}},{"name":"f","emptyDisk":{"capacity":"1Gi"}}]}}"#;
        let ctx = pod.collect(vmi).unwrap();
        let expected = pod.dir.path().join("var/run/libvirt/empty-disks/e.qcow2");
        assert!(
            ctx.file_block_sizes.is_empty(),
            "nothing exists below the root yet"
        );
        fs::create_dir_all(expected.parent().unwrap().parent().unwrap()).unwrap();
        let ctx = pod.collect(vmi).unwrap();
        let mut paths = ctx.file_block_sizes.keys().map(|path| path.as_str());
        assert_eq!(paths.next(), expected.to_str());
        assert_eq!(paths.next(), None);
    }
}
