//! Statistics of a running domain: from libvirt's parameters to the JSON that virt-handler decodes
//! for its metrics.
//!
//! libvirt names a value by a path such as `block.0.rd.bytes` (`virConnectGetAllDomainStats` lists
//! them). In the JSON each value has Go's name and a flag beside it that says whether libvirt has
//! reported it: `RdBytes` and `RdBytesSet`.

use std::collections::HashMap;

use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Map;

use crate::xml::or_default;

use crate::guest_agent::params::FromValue;
pub use crate::guest_agent::params::TypedValue;

/// A limit for the numbers of vCPUs, interfaces and disks that libvirt announces, far above what it
/// supports.
const MAX_ENTRIES: u32 = 16_384;

/// `VIR_VCPU_OFFLINE`
const VCPU_OFFLINE: i32 = 0;

/// libvirt's values by name.
pub type Parameters = HashMap<String, TypedValue>;

/// The value of this name in the JSON, if its flag says that there is one.
fn flagged<T: DeserializeOwned>(json: &Map<String, serde_json::Value>, name: &str) -> Option<T> {
    json.get(&format!("{name}Set"))?
        .as_bool()
        .filter(|is_set| *is_set)?;
    T::deserialize(json.get(name)?).ok()
}

fn get<T: FromValue>(parameters: &Parameters, name: &str) -> Option<T> {
    parameters.get(name).and_then(T::from_value)
}

/// Values with Go's name, libvirt's name, and a flag in the JSON that says whether there is one.
/// Those of `unflagged` have no flag there.
macro_rules! stats {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$field_doc:meta])* $go:literal $libvirt:literal $field:ident: $type:ty,)*
        $(unflagged { $($(#[$plain_doc:meta])* $plain_go:literal $plain:ident: $plain_type:ty,)* })?
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: Option<$type>,)*
            $($($(#[$plain_doc])* pub $plain: Option<$plain_type>,)*)?
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(None)?;
                $(
                    map.serialize_entry(concat!($go, "Set"), &self.$field.is_some())?;
                    map.serialize_entry($go, &self.$field.clone().unwrap_or_default())?;
                )*
                $($(map.serialize_entry($plain_go, &self.$plain.clone().unwrap_or_default())?;)*)?
                map.end()
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let json = Map::deserialize(deserializer)?;
                Ok(Self {
                    $($field: flagged(&json, $go),)*
                    $($($plain: json.get($plain_go).and_then(|it| <$plain_type>::deserialize(it).ok()),)*)?
                })
            }
        }

        impl $name {
            /// The values below `prefix`, such as `net.0.`.
            #[allow(dead_code, reason = "some are filled in another way")]
            fn read(parameters: &Parameters, prefix: &str) -> Self {
                Self {
                    $($field: get(parameters, &format!("{prefix}{}", $libvirt)),)*
                    $($($plain: None,)*)?
                }
            }
        }
    };
}

stats! {
    /// CPU time, in nanoseconds.
    Cpu {
        /// All of it.
        "Time" "time" time: u64,
        /// In user space.
        "User" "user" user: u64,
        /// In the kernel.
        "System" "system" system: u64,
    }
}

stats! {
    /// The guest's memory, in KiB, and how often it had to swap or fault.
    Memory {
        /// Not used at all, as the guest sees it.
        "Unused" "" unused: u64,
        /// The guest's cache of disks.
        "Cached" "" cached: u64,
        /// Memory that the guest can use.
        "Available" "" available: u64,
        /// Memory that the balloon leaves to the guest.
        "ActualBalloon" "" actual_balloon: u64,
        /// Resident memory of the QEMU process.
        "RSS" "" rss: u64,
        /// Read from swap space.
        "SwapIn" "" swap_in: u64,
        /// Written to swap space.
        "SwapOut" "" swap_out: u64,
        /// Page faults that read from a disk.
        "MajorFault" "" major_fault: u64,
        /// Page faults that did not.
        "MinorFault" "" minor_fault: u64,
        /// Memory that the guest can give to programs without swapping.
        "Usable" "" usable: u64,
        /// Memory that the domain has now.
        "Total" "" total: u64,
    }
}

stats! {
    /// A migration's progress, in bytes and bytes a second.
    MigrationJob {
        /// To be sent.
        "DataTotal" "" data_total: u64,
        /// Sent.
        "DataProcessed" "" data_processed: u64,
        /// Speed.
        "MemoryBps" "" memory_bytes_per_second: u64,
        /// Left.
        "DataRemaining" "" data_remaining: u64,
        /// How fast the guest writes to its memory.
        "MemDirtyRate" "" dirty_bytes_per_second: u64,
    }
}

stats! {
    /// A vCPU; times in nanoseconds.
    Vcpu {
        /// `VIR_VCPU_*`
        "State" "state" state: i32,
        "Time" "time" time: u64,
        /// Waiting for I/O.
        "Wait" "wait" wait: u64,
        /// Waiting for one of the host's CPUs.
        "Delay" "delay" delay: u64,
    }
}

stats! {
    Interface {
        /// The tap device.
        "Name" "name" name: String,
        /// The interface's name in the VMI.
        "Alias" "" alias: String,
        /// Bytes received.
        "RxBytes" "rx.bytes" rx_bytes: u64,
        "RxPkts" "rx.pkts" rx_packets: u64,
        "RxErrs" "rx.errs" rx_errors: u64,
        /// Packets dropped in receiving.
        "RxDrop" "rx.drop" rx_drops: u64,
        /// Bytes sent.
        "TxBytes" "tx.bytes" tx_bytes: u64,
        "TxPkts" "tx.pkts" tx_packets: u64,
        "TxErrs" "tx.errs" tx_errors: u64,
        /// Packets dropped in sending.
        "TxDrop" "tx.drop" tx_drops: u64,
    }
}

stats! {
    /// A disk; times in nanoseconds, sizes in bytes.
    Disk {
        /// The target, such as `vda`.
        "Name" "name" name: String,
        /// The image's index in its backing chain.
        "BackingIndex" "backingIndex" backing_index: u32,
        "Path" "path" path: String,
        "RdReqs" "rd.reqs" read_requests: u64,
        /// Bytes read.
        "RdBytes" "rd.bytes" read_bytes: u64,
        "RdTimes" "rd.times" read_time: u64,
        "WrReqs" "wr.reqs" write_requests: u64,
        /// Bytes written.
        "WrBytes" "wr.bytes" write_bytes: u64,
        "WrTimes" "wr.times" write_time: u64,
        "FlReqs" "fl.reqs" flush_requests: u64,
        "FlTimes" "fl.times" flush_time: u64,
        /// Errors (only Xen reports them).
        "Errors" "errors" errors: u64,
        /// The highest offset that is written in the image.
        "Allocation" "allocation" allocation: u64,
        /// The size that the guest sees.
        "Capacity" "capacity" capacity: u64,
        /// Bytes that the image takes up.
        "Physical" "physical" physical: u64,
        unflagged {
            /// The disk's name in the VMI.
            "Alias" alias: String,
        }
    }
}

stats! {
    /// How fast the guest writes to its memory.
    DirtyRate {
        /// `VIR_DOMAIN_DIRTYRATE_*`
        "CalcStatus" "calc_status" status: i32,
        /// When the measurement began, in seconds of the host's monotonic clock.
        "CalcStartTime" "calc_start_time" start_time: i64,
        /// How long it took, in seconds.
        "CalcPeriod" "calc_period" period: i32,
        /// The rate, in MiB/s.
        "MegabytesPerSecond" "megabytes_per_second" mebibytes_per_second: i64,
    }
}

stats! {
    /// The guest's load averages, by its agent.
    Load {
        /// Of one minute.
        "Load1m" "" one_minute: f64,
        /// Of five minutes.
        "Load5m" "" five_minutes: f64,
        /// Of fifteen minutes.
        "Load15m" "" fifteen_minutes: f64,
    }
}

impl DirtyRate {
    /// `VIR_DOMAIN_DIRTYRATE_MEASURED`
    const MEASURED: i32 = 2;

    #[must_use]
    pub fn of(parameters: &Parameters) -> Self {
        Self::read(parameters, "dirtyrate.")
    }

    /// The measurement is over.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.status == Some(Self::MEASURED)
    }
}

impl Memory {
    /// From libvirt's memory statistics, by tag (`VIR_DOMAIN_MEMORY_STAT_*`), and the memory that
    /// the domain has now.
    fn of(stats: &[(u32, u64)], parameters: &Parameters) -> Self {
        let mut memory = Self {
            total: get(parameters, "balloon.current"),
            ..Self::default()
        };
        for &(tag, value) in stats {
            let field = match tag {
                0 => &mut memory.swap_in,
                1 => &mut memory.swap_out,
                2 => &mut memory.major_fault,
                3 => &mut memory.minor_fault,
                4 => &mut memory.unused,
                5 => &mut memory.available,
                6 => &mut memory.actual_balloon,
                7 => &mut memory.rss,
                8 => &mut memory.usable,
                10 => &mut memory.cached,
                _ => continue,
            };
            *field = Some(value);
        }
        memory
    }
}

/// All statistics of a domain, as `GetDomainStats` returns them.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct DomainStats {
    pub name: String,
    #[serde(rename = "UUID")]
    pub uuid: String,
    #[serde(deserialize_with = "or_default")]
    pub cpu: Cpu,
    #[serde(deserialize_with = "or_default")]
    pub memory: Memory,
    /// A migration's progress; empty where there is none.
    #[serde(rename = "MigrateDomainJobInfo", deserialize_with = "or_default")]
    pub migration_job: MigrationJob,
    /// The vCPUs, also those that are not plugged in.
    #[serde(deserialize_with = "or_default")]
    pub vcpu: Vec<Vcpu>,
    #[serde(deserialize_with = "or_default")]
    pub net: Vec<Interface>,
    #[serde(deserialize_with = "or_default")]
    pub block: Vec<Disk>,
    /// `cpu_map` is known.
    #[serde(rename = "CPUMapSet")]
    pub cpu_map_set: bool,
    /// For each vCPU, on which of the host's CPUs it may run.
    #[serde(rename = "CPUMap", deserialize_with = "or_default")]
    pub cpu_map: Vec<Vec<bool>>,
    /// The last measurement of the dirty rate.
    #[serde(deserialize_with = "or_default")]
    pub dirty_rate: DirtyRate,
    #[serde(deserialize_with = "or_default")]
    pub load: Load,
}

impl DomainStats {
    /// From what libvirt reports. `aliases` are the VMI's names of devices, by target.
    #[must_use]
    pub fn new(
        parameters: &Parameters,
        memory: &[(u32, u64)],
        aliases: &HashMap<String, String>,
    ) -> Self {
        let alias = |name: &Option<String>| name.as_ref().and_then(|name| aliases.get(name));
        let mut stats = Self {
            cpu: Cpu::read(parameters, "cpu."),
            memory: Memory::of(memory, parameters),
            vcpu: vcpus(parameters),
            net: entries(parameters, "net", Interface::read),
            block: entries(parameters, "block", Disk::read),
            dirty_rate: DirtyRate::of(parameters),
            ..Self::default()
        };
        for interface in &mut stats.net {
            interface.alias = alias(&interface.name).cloned();
        }
        for disk in &mut stats.block {
            disk.alias = alias(&disk.name).cloned();
        }
        stats
    }

    #[must_use]
    pub fn to_json(&self) -> String {
        // Only maps with keys that are not text and failing writers make this fail; there are
        // neither.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The entries `GROUP.0.` to `GROUP.COUNT-1.`.
fn entries<T>(
    parameters: &Parameters,
    group: &str,
    read: impl Fn(&Parameters, &str) -> T,
) -> Vec<T> {
    let count: u32 = get(parameters, &format!("{group}.count")).unwrap_or(0);
    (0..count.min(MAX_ENTRIES))
        .map(|index| read(parameters, &format!("{group}.{index}.")))
        .collect()
}

/// libvirt numbers all vCPUs that the domain may have, and says nothing of those that are not
/// plugged in.
fn vcpus(parameters: &Parameters) -> Vec<Vcpu> {
    let count: u32 = get(parameters, "vcpu.maximum")
        .or_else(|| get(parameters, "vcpu.current"))
        .unwrap_or(0);
    (0..count.min(MAX_ENTRIES))
        .map(|index| {
            let prefix = format!("vcpu.{index}.");
            let halted: Option<i32> = get(parameters, &format!("{prefix}halted"));
            let mut vcpu = Vcpu::read(parameters, &prefix);
            if vcpu == Vcpu::default() && halted.is_none() {
                vcpu.state = Some(VCPU_OFFLINE);
            }
            vcpu
        })
        .collect()
}

#[cfg(test)]
mod tests;
