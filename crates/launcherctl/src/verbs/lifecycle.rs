//! `pause`, `shutdown`, …: calls that change the domain and send its VMI. Each prints what it did
//! to which VM.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::target::{Target, check_processes, vm_name};
use crate::error::{CtlError, TextError, fail};
use crate::host::registry::VmDir;
use crate::host::status::{collect, last_vmi};
use crate::view::output::{Format, answer};
use api::Action;
use client::running::{NotRunning, check_runs, no_domain};
use client::{GuestState, is_migrating};
use domain::Domain;
use domain::status::StateChangeReason;

/// A guest whose disk still fails is paused again within this time.
const RESUME_CHECK_DELAY: Duration = Duration::from_secs(1);

/// libvirt resumes the guest at the target, whatever was requested at the source meanwhile.
const PAUSED_IN_MIGRATION: &str = " for the rest of its migration only: it then runs at the target. To keep it paused, pause it there, or cancel the migration first";

/// `pause`, `unpause`, `reset`, `soft-reboot`.
///
/// # Errors
/// There is no launcher, or it refuses.
pub async fn act(action: Action, target: &Target, format: Format) -> Result<ExitCode, CtlError> {
    let (dir, client, vmi) = target.connect_to_vm().await?;
    let Some(vmi) = vmi else {
        return Err(no_domain().into());
    };
    check_processes(&dir)?;
    let domain = client.domain().await?;
    let domain = domain.as_ref();
    let before = GuestState::of(domain);
    check_possible(action, domain)?;
    client.act(action, &vmi).await?;
    let by_itself = domain.is_some_and(|domain| domain.status.reason != StateChangeReason::User);
    if action == Action::Unpause && before == GuestState::Paused && by_itself {
        check_goes_on(&dir).await?;
    }
    let mut message = done(action, before, &vm_name(&vmi));
    // A pause from before the migration is kept.
    let pauses = action == Action::Pause && before == GuestState::Running;
    if pauses && is_migrating(domain) {
        message += PAUSED_IN_MIGRATION;
    }
    let json = json!({"success": true, "vm": vm_name(&vmi), "message": message});
    answer(format, &json, || [message])
}

/// What has paused the guest may do so again at once.
///
/// # Errors
/// It has.
async fn check_goes_on(dir: &VmDir) -> Result<(), TextError> {
    sleep(RESUME_CHECK_DELAY).await;
    let name = last_vmi(dir).await.metadata.name;
    let status = collect(&name, dir).await;
    match status.problems.first() {
        Some(why) if status.state == "Paused" => {
            fail!(
                "the guest was resumed, and is paused again: {}; {}",
                why.cause,
                why.next
            )
        }
        _ => Ok(()),
    }
}

/// Refuses what this guest cannot do, and what would lead to another state than the verb promises.
fn check_possible(action: Action, domain: Option<&Domain>) -> Result<(), NotRunning> {
    match (action, GuestState::of(domain)) {
        // It would see the request only once it is resumed.
        (Action::SoftReboot, GuestState::Paused) => check_runs(domain),
        // The launcher knows of a starting guest, which is not reported yet.
        (
            Action::Pause | Action::Unpause | Action::Reset | Action::SoftReboot,
            GuestState::Ended,
        ) => check_runs(domain),
        _ => Ok(()),
    }
}

/// The result, for people.
fn done(action: Action, before: GuestState, vm: &str) -> String {
    match (action, before) {
        (Action::Pause, GuestState::Paused) => format!("{vm} was already paused"),
        (Action::Unpause, GuestState::Running) => format!("{vm} was not paused"),
        (Action::Pause, _) => format!("paused {vm}"),
        (Action::Unpause, _) => format!("resumed {vm}"),
        (Action::Reset, GuestState::Paused) => {
            format!("reset {vm}; it is still paused: launcherctl unpause starts it")
        }
        (Action::Reset, _) => format!("reset {vm}"),
        (Action::SoftReboot, _) => format!("asked the guest of {vm} to reboot"),
        (Action::Kill | Action::Shutdown | Action::Delete, _) => {
            format!("forced the guest of {vm} off")
        }
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
                Action::Reset,
                GuestState::Paused,
                "reset default/web; it is still paused: launcherctl unpause starts it",
            ),
        ];
        for (action, before, text) in cases {
            assert_eq!(done(action, before), text);
        }
    }

    #[test]
    fn what_the_guest_cannot_do_is_refused() {
        let possible = |action, status: &str| {
            let status = json!({"Status": {"Status": status, "Reason": "User"}});
            let domain = crate::json::domain(status);
            check_possible(action, Some(&domain)).is_ok()
        };
        assert!(possible(Action::SoftReboot, "Running"));
        assert!(!possible(Action::SoftReboot, "Paused"));
        for action in [Action::Pause, Action::Unpause, Action::Reset] {
            assert!(possible(action, "Paused"));
            assert!(!possible(action, "Shutoff"), "{action:?}");
        }
        assert!(check_possible(Action::Pause, None).is_ok());
    }
}
