//! `pause`, `shutdown`, …: calls that change the domain and send its VMI. Each prints what it did to
//! which VM.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::target::{VmiTarget, vm_name};
use crate::error::{CtlError, TextError, fail};
use crate::reports::guest_state::{GuestState, check_runs, is_migrating, is_starting, no_domain};
use crate::view::output::{Format, answer};
use api::Action;

/// libvirt resumes the guest at the target, whatever was requested at the source meanwhile.
const PAUSED_IN_MIGRATION: &str = " for the rest of its migration only: it then runs at the target. To keep it paused, pause it there, or cancel the migration first";

/// `pause`, `unpause`, `reset`, `soft-reboot`, `shutdown`, `kill`, `delete`.
///
/// # Errors
/// There is no launcher, or it refuses; for `delete`, if the guest runs.
pub async fn act(action: Action, target: &VmiTarget, format: Format) -> Result<ExitCode, CtlError> {
    let (client, vmi) = target.connect_by_identity().await?;
    let Some(vmi) = vmi else {
        return without_guest(action, format);
    };
    // A libvirt that does not answer must not prevent killing a guest.
    let domain = client.domain().await.ok();
    let mut before = GuestState::Running;
    if let Some(domain) = &domain {
        before = GuestState::of(domain.as_ref());
        check_possible(action, domain.as_ref(), &vmi)?;
    }
    let has_none_to_ask = action == Action::Shutdown && before == GuestState::Absent;
    // The launcher then does nothing, and the start goes on.
    if has_none_to_ask && is_starting(&client).await {
        fail!(
            "{} is still starting, and cannot be asked to shut down yet: launcherctl shutdown --wait waits for its start, launcherctl kill cancels it",
            vm_name(&vmi)
        );
    }
    client.act(action, &vmi).await?;
    let mut message = done(action, before, &vm_name(&vmi));
    // A pause from before the migration is kept.
    let pauses = action == Action::Pause && before == GuestState::Running;
    if pauses && is_migrating(domain.flatten().as_ref()) {
        message += PAUSED_IN_MIGRATION;
    }
    print_done(format, &vmi, &message)
}

/// Refuses what this guest cannot do, and what would lead to another state than the verb promises.
fn check_possible(action: Action, domain: Option<&Value>, vmi: &Value) -> Result<(), TextError> {
    let state = GuestState::of(domain);
    match action {
        Action::Delete if state.has_process() => fail!(
            "{} has a running guest, and delete only removes the domain of an ended one; launcherctl shutdown or launcherctl kill ends it first",
            vm_name(vmi)
        ),
        // It would see the request only once it is resumed.
        Action::Shutdown | Action::SoftReboot if state == GuestState::Paused => check_runs(domain),
        // The launcher knows of a starting guest, which is not reported yet.
        Action::Pause | Action::Unpause | Action::Reset | Action::SoftReboot
            if state == GuestState::Ended =>
        {
            check_runs(domain)
        }
        _ => Ok(()),
    }
}

/// Without a guest, verbs that end one have nothing to do.
fn without_guest(action: Action, format: Format) -> Result<ExitCode, CtlError> {
    if !matches!(action, Action::Shutdown | Action::Kill | Action::Delete) {
        return Err(no_domain().into());
    }
    let message = "the launcher has no guest; nothing was done";
    let json = json!({"success": true, "message": message});
    answer(format, &json, || [message.to_owned()])
}

/// Prints what was done to a VM.
pub(super) fn print_done(format: Format, vmi: &Value, message: &str) -> Result<ExitCode, CtlError> {
    let json = json!({"success": true, "vm": vm_name(vmi), "message": message});
    answer(format, &json, || [message.to_owned()])
}

/// The result, for people.
fn done(action: Action, before: GuestState, vm: &str) -> String {
    match (action, before) {
        (Action::Pause, GuestState::Paused) => format!("{vm} was already paused"),
        (Action::Unpause, GuestState::Running) => format!("{vm} was not paused"),
        (Action::Shutdown, GuestState::Absent) => format!("{vm} has no guest; nothing was done"),
        (Action::Kill, GuestState::Absent) => {
            format!("{vm} has no guest; if its start was under way, it is cancelled")
        }
        (Action::Shutdown | Action::Kill, GuestState::Ended) => {
            format!("the guest of {vm} has already ended; nothing was done")
        }
        (Action::Delete, GuestState::Absent) => format!("{vm} has no domain; nothing was done"),
        (Action::Pause, _) => format!("paused {vm}"),
        (Action::Unpause, _) => format!("resumed {vm}"),
        (Action::Reset, GuestState::Paused) => {
            format!("reset {vm}; it is still paused: launcherctl unpause starts it")
        }
        (Action::Reset, _) => format!("reset {vm}"),
        (Action::SoftReboot, _) => format!("asked the guest of {vm} to reboot"),
        (Action::Shutdown, _) => format!("asked the guest of {vm} to shut down"),
        (Action::Kill, _) => format!("forced the guest of {vm} off"),
        (Action::Delete, _) => format!("removed the domain of {vm}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_said_with_the_vm() {
        let done = |action, before| done(action, before, "default/web");
        let cases = [
            (Action::Pause, GuestState::Running, "paused default/web"),
            (
                Action::Pause,
                GuestState::Paused,
                "default/web was already paused",
            ),
            (
                Action::Unpause,
                GuestState::Running,
                "default/web was not paused",
            ),
            (
                Action::Kill,
                GuestState::Running,
                "forced the guest of default/web off",
            ),
            (
                Action::Shutdown,
                GuestState::Absent,
                "default/web has no guest; nothing was done",
            ),
            // The launcher gives up the start.
            (
                Action::Kill,
                GuestState::Absent,
                "default/web has no guest; if its start was under way, it is cancelled",
            ),
            (
                Action::Kill,
                GuestState::Ended,
                "the guest of default/web has already ended; nothing was done",
            ),
            (
                Action::Reset,
                GuestState::Paused,
                "reset default/web; it is still paused: launcherctl unpause starts it",
            ),
            (
                Action::Delete,
                GuestState::Ended,
                "removed the domain of default/web",
            ),
        ];
        for (action, before, text) in cases {
            assert_eq!(done(action, before), text);
        }
    }

    #[test]
    fn without_a_guest_only_what_ends_one_succeeds() {
        for (action, succeeds) in [
            (Action::Kill, true),
            (Action::Shutdown, true),
            (Action::Delete, true),
            (Action::Pause, false),
            (Action::SoftReboot, false),
        ] {
            let done = without_guest(action, Format::Text);
            assert_eq!(done.is_ok(), succeeds, "{action:?}");
        }
    }

    #[test]
    fn what_the_guest_cannot_do_is_refused() {
        let possible = |action, status: &str| {
            let domain = json!({"Status": {"Status": status, "Reason": "User"}});
            check_possible(action, Some(&domain), &Value::Null).is_ok()
        };
        assert!(!possible(Action::Delete, "Running"));
        assert!(possible(Action::Delete, "Shutoff"));
        for action in [Action::Shutdown, Action::SoftReboot] {
            assert!(possible(action, "Running"));
            assert!(!possible(action, "Paused"), "{action:?}");
        }
        for action in [Action::Pause, Action::Unpause, Action::Reset] {
            assert!(possible(action, "Paused"));
            assert!(!possible(action, "Shutoff"), "{action:?}");
        }
        for action in [Action::Kill, Action::Shutdown] {
            assert!(possible(action, "Shutoff"));
            assert!(check_possible(action, None, &Value::Null).is_ok());
        }
        assert!(possible(Action::Kill, "Paused"));
        assert!(check_possible(Action::Pause, None, &Value::Null).is_ok());
    }
}
