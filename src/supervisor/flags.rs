//! The command line of the `compute` container, in pflag's spellings.
//!
//! Accepted are `--flag=value`, `--flag value`, `--bool`, `--bool=true`, `-v 3`, `-v=3` and `-v3`; the last one of several
//! counts; arguments that are no flags are passed over, as in KubeVirt.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use lexopt::{Arg, Parser, ValueExt};

use super::values::{self, BadValue};

/// Which libvirt driver runs QEMU (`--libvirt`, not in KubeVirt).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LibvirtMode {
    /// virtqemud where it is installed, else libvirtd.
    #[default]
    Auto,
    /// The modular daemon.
    Virtqemud,
    /// The monolithic daemon.
    Libvirtd,
    /// The driver inside this process: no daemon, no root.
    Embed,
}

/// Every flag, with KubeVirt's defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "named and explained as the flags, see `USAGE`")]
pub struct Flags {
    pub qemu_timeout: Duration,
    pub kubevirt_share_dir: String,
    pub ephemeral_disk_dir: String,
    pub container_disk_dir: String,
    pub hotplug_disk_dir: String,
    pub name: String,
    pub uid: String,
    pub namespace: String,
    pub grace_period: Duration,
    pub allow_emulation: bool,
    pub allow_cross_arch_emulation: bool,
    pub run_as_nonroot: bool,
    pub image_volume: bool,
    pub libvirt_hook_server_and_client: bool,
    pub upgrade_ordinal_ifaces: bool,
    pub vgpu_dedicated_hook: bool,
    pub vm_stats_collector: bool,
    pub firmware_auto_selection: bool,
    pub hook_sidecars: u32,
    pub disk_memory_limit: u64,
    pub ovmf_path: String,
    pub qemu_agent_sys_interval: Duration,
    pub qemu_agent_file_interval: Duration,
    pub qemu_agent_user_interval: Duration,
    pub qemu_agent_version_interval: Duration,
    pub qemu_fsfreeze_status_interval: Duration,
    pub simulate_crash: bool,
    pub keep_after_failure: bool,
    pub libvirt_log_filters: String,
    pub hypervisor: String,
    pub verbosity: u8,
    pub root: PathBuf,
    pub libvirt: LibvirtMode,
    pub force_emulation: bool,
}

impl Default for Flags {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            qemu_timeout: seconds(180),
            kubevirt_share_dir: "/var/run/kubevirt".into(),
            ephemeral_disk_dir: "/var/run/kubevirt-ephemeral-disks".into(),
            container_disk_dir: "/var/run/kubevirt/container-disks".into(),
            hotplug_disk_dir: "/var/run/kubevirt/hotplug-disks/".into(),
            name: String::new(),
            uid: String::new(),
            namespace: String::new(),
            grace_period: seconds(30),
            allow_emulation: false,
            allow_cross_arch_emulation: false,
            run_as_nonroot: false,
            image_volume: false,
            libvirt_hook_server_and_client: false,
            upgrade_ordinal_ifaces: false,
            vgpu_dedicated_hook: false,
            vm_stats_collector: false,
            firmware_auto_selection: false,
            hook_sidecars: 0,
            disk_memory_limit: 2000 * 1024 * 1024,
            ovmf_path: "/usr/share/edk2/ovmf".into(),
            qemu_agent_sys_interval: seconds(120),
            qemu_agent_file_interval: seconds(300),
            qemu_agent_user_interval: seconds(10),
            qemu_agent_version_interval: seconds(300),
            qemu_fsfreeze_status_interval: seconds(5),
            simulate_crash: false,
            keep_after_failure: false,
            libvirt_log_filters: String::new(),
            hypervisor: "kvm".into(),
            verbosity: os::logging::DEFAULT_VERBOSITY,
            root: PathBuf::from("/"),
            libvirt: LibvirtMode::Auto,
            force_emulation: false,
        }
    }
}

/// What `--help` prints.
pub const USAGE: &str = "\
Usage: virt-launcher [flags]

The virtual machine:
  --name NAME                            of the VirtualMachineInstance
  --namespace NAMESPACE                  its namespace
  --uid UID                              its UID
  --grace-period-seconds N               from a signal to pulling the plug (30)
  --qemu-timeout DURATION                how long to wait for sidecars, and for a domain (3m)
  --hook-sidecars N                      how many sidecars to wait for (0)
  --hypervisor NAME                      (kvm)
Directories:
  --kubevirt-share-dir DIR               sockets shared with virt-handler (/var/run/kubevirt)
  --ephemeral-disk-dir DIR               overlays and images made here (/var/run/kubevirt-ephemeral-disks)
  --container-disk-dir DIR               (/var/run/kubevirt/container-disks)
  --hotplug-disk-dir DIR                 (/var/run/kubevirt/hotplug-disks/)
  --ovmf-path DIR                        where the EFI firmware is (/usr/share/edk2/ovmf)
Switches:
  --allow-emulation                      emulate where there is no /dev/kvm
  --allow-cross-arch-emulation           emulate another architecture
  --run-as-nonroot                       libvirt's session instead of its system mode
  --image-volume                         container disks are image volumes
  --firmware-auto-selection              let libvirt choose the EFI firmware
  --libvirt-hook-server-and-client       pre-migration hooks
  --upgrade-ordinal-ifaces               a pre-migration hook
  --vgpu-dedicated-hook                  a pre-migration hook
  --vm-stats-collector                   more questions to the guest agent
Limits and intervals:
  --disk-memory-limit BYTES              of qemu-img (2097152000)
  --qemu-agent-{sys,file,user,version}-interval DURATION, --qemu-fsfreeze-status-interval DURATION
Log:
  -v N, --v N                            verbosity (2)
  --libvirt-log-filters FILTERS          libvirt's own log
For tests:
  --simulate-crash                       fail at once
  --keep-after-failure                   read by virt-launcher-monitor
Not in KubeVirt:
  --root DIR                             put all of the pod's paths below DIR (/)
  --libvirt virtqemud|libvirtd|embed|auto  what runs QEMU (auto)
  --force-emulation                      emulate even where there is a /dev/kvm
";

/// What the command line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// Run.
    Run(Box<Flags>),
    /// Print [`USAGE`].
    Help,
}

/// Why a command line is refused (exit status 2).
#[derive(Debug, thiserror::Error)]
pub enum FlagError {
    /// There is no such flag.
    #[error("unknown flag: {0}")]
    Unknown(String),
    /// The flag stands at the end, without its value.
    #[error("flag needs an argument: {0}")]
    NoValue(String),
    /// The value is not of the flag's kind.
    #[error("invalid argument {value:?} for {flag:?} flag")]
    Invalid {
        /// The flag, with its dashes.
        flag: String,
        /// What was given.
        value: String,
        /// What is wrong with it.
        #[source]
        source: BadValue,
    },
    /// An argument is no text.
    #[error("argument {0:?} is not UTF-8")]
    NotText(OsString),
}

/// Parses the arguments that follow the program's name.
///
/// # Errors
/// At the first flag that is unknown, lacks its value or has a wrong one.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Parsed, FlagError> {
    let mut flags = Flags::default();
    let mut parser = Parser::from_args(args);
    loop {
        let name = match parser.next().map_err(refused)? {
            None => return Ok(Parsed::Run(Box::new(flags))),
            Some(Arg::Value(_)) => continue,
            Some(Arg::Short('h')) => return Ok(Parsed::Help),
            Some(Arg::Short('v')) => "v".to_owned(),
            Some(Arg::Short(other)) => return Err(FlagError::Unknown(format!("-{other}"))),
            Some(Arg::Long("help")) => return Ok(Parsed::Help),
            Some(Arg::Long(name)) => name.to_owned(),
        };
        set(&mut flags, &name, &mut parser)?;
    }
}

/// Reads the value of flag `name` into its place.
fn set(flags: &mut Flags, name: &str, parser: &mut Parser) -> Result<(), FlagError> {
    let mut value = Value { name, parser };
    match name {
        "name" => flags.name = value.text()?,
        "namespace" => flags.namespace = value.text()?,
        "uid" => flags.uid = value.text()?,
        "hypervisor" => flags.hypervisor = value.text()?,
        "kubevirt-share-dir" => flags.kubevirt_share_dir = value.text()?,
        "ephemeral-disk-dir" => flags.ephemeral_disk_dir = value.text()?,
        "container-disk-dir" => flags.container_disk_dir = value.text()?,
        "hotplug-disk-dir" => flags.hotplug_disk_dir = value.text()?,
        "ovmf-path" => flags.ovmf_path = value.text()?,
        "libvirt-log-filters" => flags.libvirt_log_filters = value.text()?,
        "root" => flags.root = value.text()?.into(),
        "qemu-timeout" => flags.qemu_timeout = value.parsed(values::duration)?,
        "qemu-agent-sys-interval" => {
            flags.qemu_agent_sys_interval = value.parsed(values::duration)?
        }
        "qemu-agent-file-interval" => {
            flags.qemu_agent_file_interval = value.parsed(values::duration)?
        }
        "qemu-agent-user-interval" => {
            flags.qemu_agent_user_interval = value.parsed(values::duration)?
        }
        "qemu-agent-version-interval" => {
            flags.qemu_agent_version_interval = value.parsed(values::duration)?
        }
        "qemu-fsfreeze-status-interval" => {
            flags.qemu_fsfreeze_status_interval = value.parsed(values::duration)?
        }
        "grace-period-seconds" => flags.grace_period = value.parsed(values::seconds)?,
        "hook-sidecars" => flags.hook_sidecars = value.parsed(values::number)?,
        "disk-memory-limit" => flags.disk_memory_limit = value.parsed(values::number)?,
        "v" => flags.verbosity = value.parsed(values::number)?,
        "libvirt" => flags.libvirt = value.parsed(libvirt_mode)?,
        other => {
            *switch(flags, other).ok_or_else(|| FlagError::Unknown(format!("--{other}")))? =
                value.switch()?
        }
    }
    Ok(())
}

/// The place of a flag that is on or off.
fn switch<'a>(flags: &'a mut Flags, name: &str) -> Option<&'a mut bool> {
    Some(match name {
        "allow-emulation" => &mut flags.allow_emulation,
        "allow-cross-arch-emulation" => &mut flags.allow_cross_arch_emulation,
        "run-as-nonroot" => &mut flags.run_as_nonroot,
        "image-volume" => &mut flags.image_volume,
        "libvirt-hook-server-and-client" => &mut flags.libvirt_hook_server_and_client,
        "upgrade-ordinal-ifaces" => &mut flags.upgrade_ordinal_ifaces,
        "vgpu-dedicated-hook" => &mut flags.vgpu_dedicated_hook,
        "vm-stats-collector" => &mut flags.vm_stats_collector,
        "firmware-auto-selection" => &mut flags.firmware_auto_selection,
        "simulate-crash" => &mut flags.simulate_crash,
        "keep-after-failure" => &mut flags.keep_after_failure,
        "force-emulation" => &mut flags.force_emulation,
        _ => return None,
    })
}

fn libvirt_mode(text: &str) -> Result<LibvirtMode, BadValue> {
    Ok(match text {
        "auto" => LibvirtMode::Auto,
        "virtqemud" => LibvirtMode::Virtqemud,
        "libvirtd" => LibvirtMode::Libvirtd,
        "embed" => LibvirtMode::Embed,
        _ => return Err(BadValue("virtqemud, libvirtd, embed or auto is expected")),
    })
}

/// The value of one flag, still to be read.
struct Value<'a> {
    name: &'a str,
    parser: &'a mut Parser,
}

impl Value<'_> {
    fn flag(&self) -> String {
        format!("--{}", self.name)
    }

    fn text(&mut self) -> Result<String, FlagError> {
        let value = self
            .parser
            .value()
            .map_err(|_| FlagError::NoValue(self.flag()))?;
        value.string().map_err(refused)
    }

    fn parsed<T>(
        &mut self,
        parse: impl FnOnce(&str) -> Result<T, BadValue>,
    ) -> Result<T, FlagError> {
        let value = self.text()?;
        parse(&value).map_err(|source| FlagError::Invalid {
            flag: self.flag(),
            value,
            source,
        })
    }

    /// On, unless `=false` says otherwise; the next argument is never the value.
    fn switch(&mut self) -> Result<bool, FlagError> {
        let Some(value) = self.parser.optional_value() else {
            return Ok(true);
        };
        let value = value.string().map_err(refused)?;
        values::boolean(&value).map_err(|source| FlagError::Invalid {
            flag: self.flag(),
            value,
            source,
        })
    }
}

/// What the argument parser itself refuses.
fn refused(error: lexopt::Error) -> FlagError {
    match error {
        lexopt::Error::NonUnicodeValue(value) => FlagError::NotText(value),
        lexopt::Error::UnexpectedOption(name) => FlagError::Unknown(name),
        other => FlagError::Unknown(other.to_string()),
    }
}

#[cfg(test)]
#[path = "flags_tests.rs"]
mod tests;
