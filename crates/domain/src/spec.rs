//! The root of the document, `<domain>`.
//!
//! libvirt: [element and attribute
//! overview](https://libvirt.org/formatdomain.html#element-and-attribute-overview)
use super::clock::Clock;
use super::cpu::{Cpu, CpuTune, NumaTune, Vcpu, Vcpus};
use super::devices::Devices;
use super::features::Features;
use super::firmware::Os;
use super::launch_security::LaunchSecurity;
use super::memory::{MaxMemory, Memory, MemoryBacking};
use super::metadata::Metadata;
use super::sysinfo::SysInfo;
use super::vocabulary::YesNo;
use super::xml::elements;

elements! {
/// `<domain>`: what libvirt defines, and what it reports.
DomainSpec {
    name "domain",
    attr "type" "Type" r#type: String,
    /// Declares the prefix `qemu`. Never shown: Go's decoder does not find it.
    attr? "xmlns:qemu" (always "XmlNS" "") xmlns: String,
    leaf "name" "Name" name: String,
    leaf? "uuid" "UUID" uuid: String,
    child "memory" "Memory" memory: Memory,
    /// Memory that the balloon leaves to the guest.
    child "currentMemory" "CurrentMemory" current_memory: Option<Memory>,
    child "maxMemory" "MaxMemory" max_memory: Option<MaxMemory>,
    child "memoryBacking" "MemoryBacking" memory_backing: Option<MemoryBacking>,
    child "os" "OS" os: Os,
    child "sysinfo" "SysInfo" sys_info: Option<SysInfo>,
    child "devices" "Devices" devices: Devices,
    child "clock" "Clock" clock: Option<Clock>,
    child "resource" "Resource" resource: Option<Resource>,
    /// Never shown, for the same reason.
    child "qemu:commandline" (always "QEMUCmd" None::<()>) qemu_cmd: Option<Commandline>,
    /// Always written, even if it is empty.
    child "metadata" "Metadata" metadata: Metadata,
    child "features" "Features" features: Option<Features>,
    child "cpu" "CPU" cpu: Cpu,
    child "vcpu" "VCPU" vcpu: Option<Vcpu>,
    child "vcpus" "VCPUs" vcpus: Option<Vcpus>,
    child "cputune" "CPUTune" cputune: Option<CpuTune>,
    child "numatune" "NUMATune" numa_tune: Option<NumaTune>,
    child "iothreads" "IOThreads" iothreads: Option<IoThreads>,
    child "launchSecurity" "LaunchSecurity" launch_security: Option<LaunchSecurity>,
    /// `destroy` or `restart`.
    leaf? "on_reboot" "OnReboot" on_reboot: String,
    child "iommufd" "IOMMUFD" iommufd: Option<Iommufd>,
}
/// `<resource>`: the cgroup; libvirt reports it.
Resource {
    leaf "partition" "Partition" partition: String,
}
/// `<qemu:commandline>`: words for QEMU that libvirt does not understand.
Commandline {
    namespace Qemu,
    child "qemu:env" "QEMUEnv" env: Vec<Env>,
    child "qemu:arg" "QEMUArg" args: Vec<Arg>,
}
/// `<qemu:env>`: a variable of QEMU's environment.
Env {
    attr "name" "Name" name: String,
    attr "value" "Value" value: String,
}
/// `<qemu:arg>`: a word of QEMU's command line.
Arg {
    attr "value" "Value" value: String,
}
/// `<iothreads>`: how many I/O threads there are; disks refer to them from 1.
IoThreads {
    text "IOThreads" iothreads: u64,
}
/// `<iommufd>`: host devices go through a descriptor that was handed in.
Iommufd {
    name "iommufd",
    attr "enabled" "Enabled" enabled: YesNo,
    attr? "fdgroup" "FDGroup" fd_group: String,
}
}

impl DomainSpec {
    /// How many CPUs are plugged in.
    #[must_use]
    pub fn plugged_cpus(&self) -> Option<u64> {
        let Some(all) = &self.vcpus else {
            return self.vcpu.as_ref().map(|vcpu| vcpu.cpus.into());
        };
        let plugged = all.vcpu.iter().filter(|vcpu| vcpu.enabled == YesNo::Yes);
        plugged.count().try_into().ok()
    }

    /// The guest's memory in bytes, as libvirt reports it: in KiB.
    #[must_use]
    pub fn memory_bytes(&self) -> Option<u64> {
        let is_known = self.memory.unit == "KiB";
        is_known.then(|| self.memory.value.saturating_mul(1024))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_running_guest_has_is_what_is_plugged_in() {
        let xml = "<domain><memory unit='KiB'>262144</memory><vcpu>4</vcpu><vcpus>\
             <vcpu id='0' enabled='yes'/><vcpu id='1' enabled='no'/></vcpus></domain>";
        let spec = DomainSpec::from_xml(xml).unwrap();
        assert_eq!(
            (spec.plugged_cpus(), spec.memory_bytes()),
            (Some(1), Some(256 << 20))
        );
        assert_eq!(DomainSpec::default().plugged_cpus(), None);
    }
}
