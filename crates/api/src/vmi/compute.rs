//! CPU, memory, clock and resources.

use std::collections::BTreeMap;

use super::firmware::FeatureState;
use super::{Quantity, Text};
use crate::api;

api! {
/// `currentCPUTopology` of `VirtualMachineInstanceStatus`.
CpuTopology {
    "cores" cores: u32,
    "sockets" sockets: u32,
    "threads" threads: u32,
}
/// `resources` of `DomainSpec`.
ResourceRequirements {
    "requests" requests: BTreeMap<Text, Quantity>,
    "limits" limits: BTreeMap<Text, Quantity>,
    "overcommitGuestOverhead" overcommit_guest_overhead: bool,
}
/// `cpu` of `DomainSpec`.
Cpu {
    "cores" cores: u32,
    "sockets" sockets: u32,
    "maxSockets" max_sockets: u32,
    "threads" threads: u32,
    "model" model: Text,
    "features" features: Vec<CpuFeature>,
    "dedicatedCpuPlacement" dedicated_cpu_placement: bool,
    "numa" numa: Option<Numa>,
    "isolateEmulatorThread" isolate_emulator_thread: bool,
    "realtime" realtime: Option<Realtime>,
}
/// `memory` of `DomainSpec`.
Memory {
    "hugepages" hugepages: Option<Hugepages>,
    "guest" guest: Option<Quantity>,
    "maxGuest" max_guest: Option<Quantity>,
    "reservedOverhead" reserved_overhead: Option<ReservedOverhead>,
}
/// `clock` of `DomainSpec`.
Clock {
    "utc" utc: Option<ClockOffsetUtc>,
    "timezone" timezone: Option<Text>,
    "timer" timer: Option<Timer>,
}
/// `features` of `Cpu`.
CpuFeature {
    "name" name: Text,
    "policy" policy: Text,
}
/// `numa` of `Cpu`.
Numa {
    "guestMappingPassthrough" guest_mapping_passthrough: Option<NumaGuestMappingPassthrough>,
}
/// `realtime` of `Cpu`.
Realtime {
    "mask" mask: Text,
}
/// `hugepages` of `Memory`.
Hugepages {
    "pageSize" page_size: Text,
}
/// `reservedOverhead` of `Memory`.
ReservedOverhead {
    "addedOverhead" added_overhead: Option<Quantity>,
    "memLock" mem_lock: Option<Text>,
}
/// `utc` of `Clock`.
ClockOffsetUtc {
    "offsetSeconds" offset_seconds: Option<i64>,
}
/// `timer` of `Clock`.
Timer {
    "hpet" hpet: Option<HpetTimer>,
    "kvm" kvm: Option<KvmTimer>,
    "pit" pit: Option<PitTimer>,
    "rtc" rtc: Option<RtcTimer>,
    "hyperv" hyperv: Option<HypervTimer>,
}
/// `guestMappingPassthrough` of `Numa`.
NumaGuestMappingPassthrough {
}
/// `hpet` of `Timer`.
HpetTimer {
    "tickPolicy" tick_policy: Text,
    "present" present: Option<bool>,
}
/// `kvm` of `Timer`.
KvmTimer {
    "present" present: Option<bool>,
}
/// `pit` of `Timer`.
PitTimer {
    "tickPolicy" tick_policy: Text,
    "present" present: Option<bool>,
}
/// `rtc` of `Timer`.
RtcTimer {
    "tickPolicy" tick_policy: Text,
    "present" present: Option<bool>,
    "track" track: Text,
}
/// `hyperv` of `Timer`.
HypervTimer {
    "present" present: Option<bool>,
}
/// `synictimer` of `FeatureHyperv`.
SynicTimer {
    "enabled" enabled: Option<bool>,
    "direct" direct: Option<FeatureState>,
}
}
