//! The launcher's command line: every flag once, with its type, default and help.
//! [`LauncherFlags`], its default, parsing and the text of `--help` follow from the table.
//!
//! Names and defaults are KubeVirt's virt-launcher's, but for the last group.

mod parse;
#[cfg(test)]
mod tests;
mod value;

use std::time::Duration;

use api::pod_paths;

use super::Root;
pub use parse::{FlagError, Parsed};
use value::FlagValue;
pub use value::{BadValue, LibvirtMode, Seconds};

/// One flag, for parsing and for the help.
struct Flag {
    /// The flag as the help writes it: `--name`, then a space and a word for the value.
    spelling: &'static str,
    help: &'static str,
    /// On or off: the value may be left out.
    is_switch: bool,
    /// Reads the value into its field.
    set: fn(&mut LauncherFlags, &str) -> Result<(), BadValue>,
    /// The value of its field, as it would be written.
    show: fn(&LauncherFlags) -> String,
}

impl Flag {
    /// The name, with its dashes.
    fn name(&self) -> &'static str {
        self.spelling.split(' ').next().unwrap_or_default()
    }
}

/// Flags that the help shows together.
struct Group {
    title: &'static str,
    flags: &'static [Flag],
}

macro_rules! flags {
    ($($title:literal { $($spelling:literal $field:ident: $type:ty = $default:expr, $help:literal;)* })*) => {
        /// What the launcher's command line says. Paths are those of the pod, without the root.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct LauncherFlags {
            $($(
                #[doc = concat!("`", $spelling, "`: ", $help, ".")]
                pub $field: $type,
            )*)*
        }

        impl Default for LauncherFlags {
            fn default() -> Self {
                Self { $($($field: $default,)*)* }
            }
        }

        const GROUPS: &[Group] = &[$(Group {
            title: $title,
            flags: &[$(Flag {
                spelling: $spelling,
                help: $help,
                is_switch: <$type as FlagValue>::IS_SWITCH,
                set: |config, text| {
                    config.$field = FlagValue::parse(text)?;
                    Ok(())
                },
                show: |config| FlagValue::show(&config.$field),
            },)*],
        },)*];
    };
}

flags! {
    "The virtual machine" {
        "--name NAME" name: String = String::new(), "name of the VirtualMachineInstance";
        "--namespace NAMESPACE" namespace: String = String::new(), "its namespace";
        "--uid UID" uid: String = String::new(), "its UID";
        "--grace-period-seconds N" grace_period: Seconds = Seconds::new(30),
            "time from the first signal to forcing the guest off";
        "--qemu-timeout DURATION" qemu_timeout: Duration = Duration::from_secs(180),
            "how long to wait for sidecars, and for a domain";
        "--hook-sidecars N" hook_sidecars: u32 = 0, "number of hook sidecars to wait for";
        "--hypervisor NAME" hypervisor: String = "kvm".to_owned(), "kvm or hyperv-direct";
    }
    "Directories" {
        "--kubevirt-share-dir DIR" share_dir: String = pod_paths::SHARE_DIR.to_owned(),
            "sockets shared with virt-handler";
        "--ephemeral-disk-dir DIR" ephemeral_disk_dir: String = pod_paths::EPHEMERAL_DISK_DIR.to_owned(),
            "overlays and images made by the launcher";
        "--container-disk-dir DIR" container_disk_dir: String = pod_paths::CONTAINER_DISK_DIR.to_owned(),
            "images of container disks";
        "--hotplug-disk-dir DIR" hotplug_disk_dir: String = format!("{}/", pod_paths::HOTPLUG_DISK_DIR),
            "hotplugged volumes";
        "--ovmf-path DIR" ovmf_path: String = "/usr/share/edk2/ovmf".to_owned(),
            "EFI firmware, not below the root; empty on s390x";
    }
    "Switches" {
        "--allow-emulation" allow_emulation: bool = false, "emulate where there is no /dev/kvm";
        "--allow-cross-arch-emulation" allow_cross_arch_emulation: bool = false, "emulate another architecture";
        "--run-as-nonroot" run_as_nonroot: bool = false, "libvirt's session instead of its system mode";
        "--image-volume" image_volume: bool = false, "container disks are mounted as image volumes";
        "--firmware-auto-selection" firmware_auto_selection: bool = false, "let libvirt choose the EFI firmware";
        "--libvirt-hook-server-and-client" libvirt_hook_server_and_client: bool = false, "pre-migration hooks";
        "--upgrade-ordinal-ifaces" upgrade_ordinal_ifaces: bool = false,
            "pre-migration hook: hashed instead of ordinal interface names";
        "--vgpu-dedicated-hook" vgpu_dedicated_hook: bool = false, "pre-migration hook: the target's vGPU";
        "--vm-stats-collector" vm_stats_collector: bool = false, "poll more of the guest agent's data";
    }
    "Limits and intervals" {
        "--disk-memory-limit BYTES" disk_memory_limit: u64 = 2000 << 20,
            "address space of qemu-img while it inspects an untrusted image";
        "--qemu-agent-sys-interval DURATION" qemu_agent_sys_interval: Duration = Duration::from_secs(120),
            "between guest agent calls about the system";
        "--qemu-agent-file-interval DURATION" qemu_agent_file_interval: Duration = Duration::from_secs(300),
            "between guest agent calls about file systems";
        "--qemu-agent-user-interval DURATION" qemu_agent_user_interval: Duration = Duration::from_secs(10),
            "between guest agent calls about users";
        "--qemu-agent-version-interval DURATION" qemu_agent_version_interval: Duration = Duration::from_secs(300),
            "between guest agent calls about its version";
        "--qemu-fsfreeze-status-interval DURATION" qemu_fsfreeze_status_interval: Duration = Duration::from_secs(5),
            "between guest agent calls about frozen file systems";
    }
    "Log" {
        "--v N" verbosity: u8 = os::logging::DEFAULT_VERBOSITY, "verbosity; also -v N";
        "--libvirt-log-filters FILTERS" libvirt_log_filters: String = String::new(), "filters of libvirt's own log";
    }
    "For tests" {
        "--simulate-crash" simulate_crash: bool = false, "fail at once";
        "--keep-after-failure" keep_after_failure: bool = false,
            "read by virt-launcher-monitor: keep the container after a failure";
    }
    "Not in KubeVirt" {
        "--root DIR" root: Root = Root::default(), "directory below which all of the pod's paths are";
        "--libvirt MODE" libvirt: LibvirtMode = LibvirtMode::Auto,
            "what runs QEMU: virtqemud, libvirtd, embed (the driver in this process) or auto";
        "--metrics-socket PATH" metrics_socket: String = String::new(),
            "serve metrics by HTTP on a unix socket there";
        "--restart-launcher" restart_launcher: bool = false,
            "read by virt-launcher-monitor: start a launcher that dies again";
        "--force-emulation" force_emulation: bool = false, "emulate even where there is a /dev/kvm";
    }
}

/// The text of `--help`.
#[must_use]
pub fn usage() -> String {
    let defaults = LauncherFlags::default();
    let mut text = "Usage: virt-launcher [flags]\n".to_owned();
    for group in GROUPS {
        text.push_str(&format!("\n{}:\n", group.title));
        for flag in group.flags {
            let default = match (flag.show)(&defaults).as_str() {
                "" | "false" => String::new(),
                value => format!(" (default {value})"),
            };
            text.push_str(&format!("  {:<41} {}{default}\n", flag.spelling, flag.help));
        }
    }
    text.push_str("\n  -h, --help, --version\n");
    text
}
