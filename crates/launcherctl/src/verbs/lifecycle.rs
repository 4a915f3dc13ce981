//! `pause`, `shutdown`, …: calls that change the domain and send its VMI. Each prints what it did
//! to which VM.

use std::process::ExitCode;

use serde_json::json;

use super::target::{VmArgs, vm_name};
use crate::error::CtlError;
use crate::view::output::{Format, answer};
use api::Action;
use client::GuestState;
use client::running::{NotRunning, check_runs, no_domain};
use domain::Domain;

/// `pause`, `unpause`, `reset`, `soft-reboot`.
///
/// # Errors
/// There is no launcher, or it refuses.
pub async fn act(action: Action, args: &VmArgs, format: Format) -> Result<ExitCode, CtlError> {
    let vm = args.target().connect().await?;
    let vmi = vm.known_vmi().await?.ok_or_else(no_domain)?;
    let domain = vm.client.domain().await?;
    check_possible(action, domain.as_ref())?;
    vm.client.act(action, &vmi).await?;
    let message = done(action, &vm_name(&vmi));
    let json = json!({"success": true, "vm": vm_name(&vmi), "message": message});
    answer(format, &json, || [message])
}

/// Refuses what this guest cannot do, and what would lead to another state than the verb promises.
fn check_possible(action: Action, domain: Option<&Domain>) -> Result<(), NotRunning> {
    let is_refused = match GuestState::of(domain) {
        GuestState::Ended => true,
        // It would see the request only once it is resumed.
        GuestState::Paused => matches!(action, Action::SoftReboot),
        // The launcher knows of a starting guest, which is not reported yet.
        _ => false,
    };
    if is_refused {
        check_runs(domain)
    } else {
        Ok(())
    }
}

/// The result, for people.
fn done(action: Action, vm: &str) -> String {
    match action {
        Action::Pause => format!("paused {vm}"),
        Action::Unpause => format!("resumed {vm}"),
        Action::Reset => format!("reset {vm}"),
        Action::SoftReboot => format!("asked the guest of {vm} to reboot"),
        Action::Kill | Action::Shutdown | Action::Delete => format!("ended the guest of {vm}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
