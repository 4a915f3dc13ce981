//! Whether a guest can do what only a running one can, and what to do if not.

use super::GuestState;
use super::problems::pause_cause;
use domain::Domain;
use domain::object::DomainStatus;
use domain::status::StateChangeReason;

/// Why there is no running guest, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotRunning(String);

/// The launcher has no domain.
#[must_use]
pub fn no_domain() -> NotRunning {
    let text = "there is no guest (yet): launcherctl launcher timeline shows how far its start is, launcherctl logs what it waits for";
    NotRunning(text.to_owned())
}

/// Status and reason, such as `Paused (User)`, without KubeVirt's reason `Unknown`.
#[must_use]
pub fn status_text(status: &DomainStatus) -> String {
    let state = match status.status.as_str() {
        "" => "-",
        state => state,
    };
    match status.known_reason() {
        Some(reason) => format!("{state} ({reason})"),
        None => state.to_owned(),
    }
}

/// Refuses what only a running guest can do, with the remedy.
///
/// # Errors
/// There is no guest, or it is paused.
pub fn check_runs(domain: Option<&Domain>) -> Result<(), NotRunning> {
    let Some(Domain { meta, status, .. }) = domain else {
        return Err(no_domain());
    };
    let (name, reason) = (format!("{}/{}", meta.namespace, meta.name), &status.reason);
    Err(NotRunning(match GuestState::of(domain) {
        GuestState::Absent | GuestState::Running => return Ok(()),
        GuestState::Ended => {
            format!("the guest of {name} has ended; only a new start of the VM brings it back")
        }
        GuestState::Paused if *reason == StateChangeReason::User => {
            format!("the guest of {name} is paused: launcherctl unpause first")
        }
        GuestState::Paused => {
            let (cause, next) = pause_cause(reason);
            let next = next.replace("{vm}", "");
            format!("the guest of {name} is paused: {cause}; {next}")
        }
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn domain(status: &str, reason: &str) -> Domain {
        let meta = json!({"namespace": "default", "name": "web"});
        let status = json!({"Status": status, "Reason": reason});
        serde_json::from_value(json!({"ObjectMeta": meta, "Status": status})).unwrap()
    }

    #[test]
    fn a_reason_that_says_nothing_is_left_out() {
        let text = |state, reason| status_text(&domain(state, reason).status);
        assert_eq!(text("Paused", "User"), "Paused (User)");
        assert_eq!(text("Running", "Unknown"), "Running");
        assert_eq!(text("Running", ""), "Running");
        assert_eq!(text("", ""), "-");
    }

    #[test]
    fn a_guest_that_cannot_do_it_says_what_to_do_first() {
        let refusal = |status, reason| {
            let refused = check_runs(Some(&domain(status, reason)));
            refused.err().map(|error| error.to_string())
        };
        assert_eq!(refusal("Running", "Unknown"), None);
        // A memory dump: the guest continues after it.
        assert_eq!(refusal("Paused", "Dump"), None);
        assert_eq!(
            refusal("Paused", "User").as_deref(),
            Some("the guest of default/web is paused: launcherctl unpause first")
        );
        assert!(refusal("Paused", "IOError").is_some_and(|text| text.contains("df")));
        assert!(refusal("Shutoff", "Shutdown").is_some_and(|text| text.contains("has ended")));
        assert!(check_runs(None).is_err());
    }
}
