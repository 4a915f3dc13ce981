//! Explains from outside why a guest does not work, and what to do.

use std::time::Duration;

use super::error::RunError;
use crate::reports::events::LauncherEvent;
use crate::reports::guest_state::remedy;
use domain::Domain;
use domain::status::{LifeCycle, StateChangeReason as Reason};

/// A console that stays blank for so long is explained.
pub const SILENCE: Duration = Duration::from_secs(20);
/// An internal error of a guest under KVM this soon after its start is KVM's.
const EARLY: Duration = Duration::from_secs(10);

/// What a domain event of the VM `name`, `after` the guest's start, shows of a problem, and what to
/// do; `None` if all is well.
///
/// # Errors
/// KVM has failed.
pub fn of_event(
    event: &LauncherEvent,
    name: &str,
    after: Duration,
) -> Result<Option<String>, RunError> {
    use LifeCycle::{Crashed, Paused, Shutoff};
    let Some(Domain { spec, status, .. }) = event.domain() else {
        return Ok(None);
    };
    let is_early = spec.r#type == "kvm" && after < EARLY;
    Ok(Some(match (&status.status, &status.reason) {
        // libvirt has no reason for QEMU's internal error.
        (Paused, Reason::Unknown) if is_early => return Err(RunError::KvmFailed),
        (Paused, Reason::Unknown) => format!(
            "the guest is paused by QEMU with an internal error; QEMU's log says more (launcherctl debug --name {name} has it), launcherctl reset {name} starts the guest again"
        ),
        (
            Paused,
            reason @ (Reason::User | Reason::IoError | Reason::Watchdog | Reason::Crashed),
        ) => {
            format!("the guest of {name} is paused: {}", remedy(reason))
        }
        (Crashed, Reason::Panicked) | (Shutoff, Reason::Crashed) => format!(
            "the guest has crashed; launcherctl logs {name} --console shows what it wrote last, launcherctl logs {name} the launcher's log"
        ),
        _ => return Ok(None),
    }))
}

/// The note about a console that stayed blank for [`SILENCE`].
pub fn of_silence(name: &str, is_emulated: bool) -> String {
    let slow = if is_emulated {
        "Without KVM a start takes minutes. If nothing comes then, the"
    } else {
        "The"
    };
    format!(
        "nothing has appeared on the serial console for {} s. {slow} guest may write to its screen only (Linux needs console=ttyS0): launcherctl screenshot --name {name} screen.png shows it",
        SILENCE.as_secs()
    )
}

/// Whether a start failed because of KVM.
pub fn is_kvm_failure(message: &str) -> bool {
    let signs = [
        "failed to initialize kvm",
        "Could not access KVM kernel module",
        "KVM is not supported",
        "KVM not supported",
        "ioctl(KVM_CREATE_VM)",
        "/dev/kvm",
        // QEMU's assertions: target/i386/kvm/kvm.c, accel/kvm/kvm-all.c.
        "/kvm/kvm",
        "failed to set MSR",
    ];
    signs.iter().any(|sign| message.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn symptom(
        kind: &str,
        status: &str,
        reason: &str,
        after: u64,
    ) -> Result<Option<String>, RunError> {
        let domain =
            json!({"Spec": {"Type": kind}, "Status": {"Status": status, "Reason": reason}});
        let event = LauncherEvent::Domain {
            kind: "MODIFIED".to_owned(),
            domain: Some(Box::new(crate::json::domain(domain))),
            status: Value::Null,
        };
        of_event(&event, "web", Duration::from_secs(after))
    }

    #[test]
    fn a_guest_that_stops_has_a_cause_and_a_remedy() {
        assert!(matches!(symptom("kvm", "Running", "Unknown", 1), Ok(None)));
        let text = |found: Result<Option<String>, RunError>| format!("{found:?}");
        assert!(
            text(symptom("kvm", "Paused", "User", 1))
                .contains("of web is paused: launcherctl unpause")
        );
        assert!(text(symptom("qemu", "Paused", "IOError", 1)).contains("df"));
        assert!(text(symptom("qemu", "Paused", "Unknown", 1)).contains("internal error"));
        let crashed = text(symptom("qemu", "Shutoff", "Crashed", 100));
        assert!(
            crashed.contains("launcherctl logs web --console"),
            "{crashed}"
        );
    }

    #[test]
    fn an_emulated_guest_is_slow_before_its_console_is_wrong() {
        let emulated = of_silence("web", true);
        assert!(emulated.contains("for 20 s. Without KVM a start takes minutes. If"));
        let with_kvm = of_silence("web", false);
        assert!(with_kvm.contains("for 20 s. The guest may") && !with_kvm.contains("KVM"));
    }

    #[test]
    fn only_kvm_right_after_the_start_is_replaced_by_emulation() {
        let is_kvm = |found| matches!(found, Err(RunError::KvmFailed));
        assert!(is_kvm(symptom("kvm", "Paused", "Unknown", 1)));
        assert!(!is_kvm(symptom("kvm", "Paused", "Unknown", 60)));
        assert!(!is_kvm(symptom("qemu", "Paused", "Unknown", 1)));
        assert!(is_kvm_failure(
            "internal error: process exited while connecting to monitor: Could not access KVM kernel module: No such device"
        ));
        assert!(is_kvm_failure(
            "qemu-system-x86_64: target/i386/kvm/kvm.c:3849: kvm_buf_set_msrs: Assertion `ret == cpu->kvm_msr_buf->nmsrs' failed."
        ));
        assert!(!is_kvm_failure("disk full"));
    }
}
