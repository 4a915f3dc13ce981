//! `<clock>` and its timers.
//!
//! libvirt: [time keeping](https://libvirt.org/formatdomain.html#time-keeping)
use super::vocabulary::YesNo;
use super::xml::elements;

elements! {
/// `<clock>`: the start of the guest's clock.
Clock {
    attr? "offset" "Offset" offset: String,
    attr? "timezone" "Timezone" timezone: String,
    attr? "adjustment" "Adjustment" adjustment: String,
    child "timer" "Timer" timer: Vec<Timer>,
}
/// `<timer>`: a source of time that the guest may have.
Timer {
    attr "name" "Name" name: String,
    /// What happens to ticks that the guest missed: `delay`, `catchup`, …
    attr? "tickpolicy" "TickPolicy" tick_policy: String,
    attr? "present" "Present" present: YesNo,
    attr? "track" "Track" track: String,
    attr? "frequency" "Frequency" frequency: String,
}
}
