//! `GetVMStats`: answers the requested statistics in one message.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tonic::Status;

use super::answers::{response, success};
use crate::launcher::{AgentCommand, Launcher};
use api::proto::cmd::v1;
use os::logging::chain;

/// virt-handler waits 5 s for the whole answer. Statistics that are late are left out, with a
/// reason.
// D-stats-2 (docs/differences.md).
const ANSWER_TIMEOUT: Duration = Duration::from_millis(4500);

/// Answers `GetDomainStats`.
pub(super) async fn domain_stats(launcher: &Launcher) -> v1::DomainStatsResponse {
    let stats = launcher.statistics.domain().await;
    v1::DomainStatsResponse {
        response: Some(response(&stats)),
        domain_stats: stats.map(|stats| stats.to_json()).unwrap_or_default(),
    }
}

/// Answers `GetDomainDirtyRateStats`.
pub(super) async fn dirty_rate(launcher: &Launcher) -> v1::DirtyRateStatsResponse {
    let rate = launcher.statistics.dirty_rate().await;
    v1::DirtyRateStatsResponse {
        response: Some(response(&rate)),
        dirty_rate_mbs: rate.unwrap_or_default(),
    }
}

/// Answers `GetVMStats`.
pub(super) async fn vm_stats(
    launcher: &Launcher,
    request: &v1::VmStatsRequest,
) -> Result<v1::VmStatsResponse, Status> {
    if !launcher.inspection.collects_vm_stats {
        return Err(Status::unknown(
            "GetVMStats is off: the launcher was started without --vm-stats-collector",
        ));
    }
    let commands = AgentCommand::all_of(request);
    // Only a virt-handler of v1.10 asks for the devices, and takes a missing command as no answer.
    let lacks_are_answers = request.guest_get_devices.is_some();
    let deadline = os::time::deadline(ANSWER_TIMEOUT);
    let (domain_stats, dirty_rate_stats, agent_answers) = tokio::join!(
        wanted(request.domain_stats.is_some(), domain_stats(launcher)),
        wanted(request.dirty_rate.is_some(), dirty_rate(launcher)),
        agent_answers(launcher, &commands, lacks_are_answers, deadline),
    );
    let mut failures = Vec::new();
    failures.extend(failure(
        "domain stats",
        domain_stats.as_ref().and_then(|it| it.response.as_ref()),
    ));
    failures.extend(failure(
        "dirty rate stats",
        dirty_rate_stats
            .as_ref()
            .and_then(|it| it.response.as_ref()),
    ));
    let mut answer = v1::VmStatsResponse {
        domain_stats,
        dirty_rate_stats,
        guest_agent_version: (!commands.is_empty()).then(|| v1::Response {
            message: launcher.guest.known.agent_version(),
            ..success()
        }),
        ..v1::VmStatsResponse::default()
    };
    for (command, part) in agent_answers {
        failures.extend(failure(
            &format!("agent data {}", command.name()),
            Some(&part),
        ));
        *command.field(&mut answer) = Some(part);
    }
    answer.response = Some(v1::Response {
        success: failures.is_empty(),
        message: failures.join("; "),
    });
    Ok(answer)
}

async fn wanted<T>(wanted: bool, part: impl Future<Output = T>) -> Option<T> {
    if wanted { Some(part.await) } else { None }
}

/// One after the other: the agent handles one command at a time.
async fn agent_answers(
    launcher: &Launcher,
    commands: &[AgentCommand],
    lacks_are_answers: bool,
    deadline: Instant,
) -> Vec<(AgentCommand, v1::Response)> {
    let data = &launcher.statistics.agent_data;
    let mut answers = Vec::new();
    for &command in commands {
        let answer = async {
            match lacks_are_answers {
                true => data.answer_if_known(command).await,
                false => data.answer(command).await,
            }
        };
        let message = match timeout_at(deadline, answer).await {
            Ok(Ok(message)) => Ok(message),
            Ok(Err(error)) => Err(chain(&error)),
            Err(_) => Err("the guest agent takes too long".to_owned()),
        };
        let success = message.is_ok();
        let message = message.unwrap_or_else(|reason| reason);
        answers.push((command, v1::Response { success, message }));
    }
    answers
}

/// `None` if it succeeded or was not requested.
fn failure(part: &str, answer: Option<&v1::Response>) -> Option<String> {
    let failed = answer.filter(|answer| !answer.success)?;
    Some(format!("{part}: {}", failed.message))
}
