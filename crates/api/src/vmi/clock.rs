//! `spec.domain.clock`: base, offset and timers.
use crate::api;

api! {
/// `clock` of `DomainSpec`.
Clock {
    "utc" utc: Option<ClockOffsetUtc>,
    "timezone" timezone: Option<String>,
    "timer" timer: Option<Timer>,
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
/// `hpet` of `Timer`.
HpetTimer {
    "tickPolicy" tick_policy: String,
    "present" present: Option<bool>,
}
/// `kvm` of `Timer`.
KvmTimer {
    "present" present: Option<bool>,
}
/// `pit` of `Timer`.
PitTimer {
    "tickPolicy" tick_policy: String,
    "present" present: Option<bool>,
}
/// `rtc` of `Timer`.
RtcTimer {
    "tickPolicy" tick_policy: String,
    "present" present: Option<bool>,
    "track" track: String,
}
/// `hyperv` of `Timer`.
HypervTimer {
    "present" present: Option<bool>,
}
}
