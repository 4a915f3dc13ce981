//! `<clock>`: base, offset and timers.

use super::{ConvertError, DomainSpec, Input};
use api::vmi::{self, Vmi};
use domain::clock::{Clock, Timer};

/// The clock that is asked for, and the TSC frequency that a migratable guest with an invariant
/// TSC needs.
pub(super) fn clock(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    domain.clock = input.spec.clock.as_ref().map(wanted_clock);
    if let Some(frequency) = tsc_frequency(input.vmi) {
        let timer = Timer {
            name: String::from("tsc"),
            frequency: frequency.to_string(),
            ..Timer::default()
        };
        domain.clock.get_or_insert_default().timer.push(timer);
    }
    Ok(())
}

fn wanted_clock(wanted: &vmi::clock::Clock) -> Clock {
    let mut clock = Clock::default();
    if let Some(utc) = &wanted.utc {
        clock.offset = String::from("utc");
        clock.adjustment = utc
            .offset_seconds
            .map_or(String::from("reset"), |seconds| seconds.to_string());
    } else if let Some(timezone) = &wanted.timezone {
        clock.offset = String::from("timezone");
        clock.timezone = timezone.clone();
    }
    clock.timer = wanted.timer.as_ref().map_or_else(Vec::new, timers);
    clock
}

/// The timers of the VMI with `tickPolicy` and `track`; each is present unless `present` is false.
fn timers(wanted: &vmi::clock::Timer) -> Vec<Timer> {
    let timer = |name, present: Option<bool>, tick_policy: &String, track: &String| Timer {
        name: String::from(name),
        present: present.unwrap_or(true).into(),
        tick_policy: tick_policy.clone(),
        track: track.clone(),
        frequency: String::default(),
    };
    let none = String::default();
    [
        wanted
            .rtc
            .as_ref()
            .map(|rtc| timer("rtc", rtc.present, &rtc.tick_policy, &rtc.track)),
        wanted
            .pit
            .as_ref()
            .map(|pit| timer("pit", pit.present, &pit.tick_policy, &none)),
        wanted
            .kvm
            .as_ref()
            .map(|kvm| timer("kvmclock", kvm.present, &none, &none)),
        wanted
            .hpet
            .as_ref()
            .map(|hpet| timer("hpet", hpet.present, &hpet.tick_policy, &none)),
        wanted
            .hyperv
            .as_ref()
            .map(|hyperv| timer("hypervclock", hyperv.present, &none, &none)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The frequency that the scheduler chose for the VMI, where its TSC must not change: with the
/// CPU feature `invtsc`, or with Hyper-V reenlightenment.
fn tsc_frequency(vmi: &Vmi) -> Option<i64> {
    let domain = &vmi.spec.domain;
    let features = domain.cpu.as_ref().map_or(&[][..], |cpu| &cpu.features);
    let invariant = features.iter().any(|feature| {
        feature.name == "invtsc" && matches!(feature.policy.as_str(), "require" | "force")
    });
    let reenlightenment = || {
        let hyperv = domain.features.as_ref()?.hyperv.as_ref()?;
        hyperv.reenlightenment.as_ref()?.enabled
    };
    if !invariant && reenlightenment() != Some(true) {
        return None;
    }
    vmi.status
        .topology_hints
        .as_ref()?
        .tsc_frequency
        .filter(|&frequency| frequency > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utc_without_an_offset_is_reset_and_wins_over_a_time_zone() {
        let clock = |json| wanted_clock(&serde_json::from_str(json).unwrap());
        let utc = clock(r#"{"utc":{},"timezone":"Europe/Berlin"}"#);
        assert_eq!(
            (
                utc.offset.as_str(),
                utc.adjustment.as_str(),
                utc.timezone.as_str()
            ),
            ("utc", "reset", "")
        );
        assert_eq!(clock(r#"{"utc":{"offsetSeconds":-60}}"#).adjustment, "-60");
    }

    #[test]
    fn a_frequency_is_set_only_where_the_tsc_must_not_change() {
        let vmi = |domain: &str| -> Vmi {
            let hints = r#""status":{"topologyHints":{"tscFrequency":1000}}"#;
            serde_json::from_str(&format!(r#"{{"spec":{{"domain":{domain}}},{hints}}}"#)).unwrap()
        };
        assert_eq!(tsc_frequency(&vmi("{}")), None);
        assert_eq!(
            tsc_frequency(&vmi(
                r#"{"cpu":{"features":[{"name":"invtsc","policy":"require"}]}}"#
            )),
            Some(1000)
        );
        assert_eq!(
            tsc_frequency(&vmi(
                r#"{"cpu":{"features":[{"name":"invtsc","policy":"optional"}]}}"#
            )),
            None
        );
        assert_eq!(
            tsc_frequency(&vmi(
                r#"{"features":{"hyperv":{"reenlightenment":{"enabled":true}}}}"#
            )),
            Some(1000)
        );
        // On by default in the XML, but not for this.
        assert_eq!(
            tsc_frequency(&vmi(r#"{"features":{"hyperv":{"reenlightenment":{}}}}"#)),
            None
        );
    }
}
