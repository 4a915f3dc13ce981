//! `spec.domain.cpu`.
use crate::api;

api! {
/// `cpu` of `DomainSpec`.
Cpu {
    "cores" cores: u32,
    "sockets" sockets: u32,
    "maxSockets" max_sockets: u32,
    "threads" threads: u32,
    "model" model: String,
    "features" features: Vec<CpuFeature>,
    "dedicatedCpuPlacement" dedicated_cpu_placement: bool,
    "numa" numa: Option<Numa>,
    "isolateEmulatorThread" isolate_emulator_thread: bool,
    "realtime" realtime: Option<Realtime>,
}
/// `features` of `Cpu`.
CpuFeature {
    "name" name: String,
    "policy" policy: String,
}
/// `numa` of `Cpu`.
Numa {
    "guestMappingPassthrough" guest_mapping_passthrough: Option<NumaGuestMappingPassthrough>,
}
/// `guestMappingPassthrough` of `Numa`.
NumaGuestMappingPassthrough {
}
/// `realtime` of `Cpu`.
Realtime {
}
}

impl Cpu {
    /// How many vCPUs the guest has at its start; a count that is missing is one.
    #[must_use]
    pub fn vcpus(&self) -> u64 {
        let parts = [self.sockets, self.cores, self.threads].map(|count| u64::from(count.max(1)));
        parts.into_iter().fold(1, u64::saturating_mul)
    }
}
