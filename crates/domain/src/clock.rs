//! `<clock>` and its timers.
//!
//! libvirt: [time keeping](https://libvirt.org/formatdomain.html#time-keeping)

use super::Text;
use super::vocabulary::YesNo;
use super::xml::elements;

elements! {
/// `<clock>`: what the guest's clock starts from.
Clock {
    attr? "offset" "Offset" offset: Text,
    attr? "timezone" "Timezone" timezone: Text,
    attr? "adjustment" "Adjustment" adjustment: Text,
    child "timer" "Timer" timer: Vec<Timer>,
}
/// `<timer>`: a source of time that the guest may have.
Timer {
    attr "name" "Name" name: Text,
    /// What happens to ticks that the guest missed: `delay`, `catchup`, …
    attr? "tickpolicy" "TickPolicy" tick_policy: Text,
    attr? "present" "Present" present: YesNo,
    attr? "track" "Track" track: Text,
    attr? "frequency" "Frequency" frequency: Text,
}
}
