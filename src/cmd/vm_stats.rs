//! `GetVMStats`: in one answer those statistics that the request names.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tonic::Status;

use super::LauncherApi;
use super::service::{response, success};
use api::proto::cmd::v1;
use os::logging::chain;

/// virt-handler waits 5 s for the whole answer. What is not there by then is left out, with a reason.
// D-stats-2 (docs/differences.md).
const ANSWER_TIMEOUT: Duration = Duration::from_millis(4500);

/// The commands of the guest agent that a request may name: the command, and its field in the request and in the answer.
macro_rules! agent_commands {
    ($($(#[$doc:meta])* $variant:ident $name:literal $field:ident,)*) => {
        /// A command of the guest agent whose answer virt-handler may ask for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum AgentCommand {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl AgentCommand {
            /// The agent's name of the command.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            fn all_of(request: &v1::VmStatsRequest) -> Vec<Self> {
                let named = [$((Self::$variant, request.$field.is_some()),)*];
                named.into_iter().filter(|(_, named)| *named).map(|(it, _)| it).collect()
            }

            fn field(self, answer: &mut v1::VmStatsResponse) -> &mut Option<v1::Response> {
                match self {
                    $(Self::$variant => &mut answer.$field,)*
                }
            }
        }
    };
}
agent_commands! {
    Load "guest-get-load" guest_get_load,
    CpuStats "guest-get-cpustats" guest_get_cpu_stats,
    DiskStats "guest-get-diskstats" guest_get_disk_stats,
    Time "guest-get-time" guest_get_time,
    Vcpus "guest-get-vcpus" guest_get_vcpus,
    MemoryBlockInfo "guest-get-memory-block-info" guest_get_memory_block_info,
    Users "guest-get-users" guest_get_users,
    OsInfo "guest-get-osinfo" guest_get_os_info,
    Disks "guest-get-disks" guest_get_disks,
    HostName "guest-get-host-name" guest_get_host_name,
    Timezone "guest-get-timezone" guest_get_timezone,
    Route "guest-network-get-route" guest_network_get_route,
    Interfaces "guest-network-get-interfaces" guest_network_get_interfaces,
    MemoryBlocks "guest-get-memory-blocks" guest_get_memory_blocks,
}

/// The answer to `GetDomainStats`.
pub(super) async fn domain_stats<L: LauncherApi>(launcher: &Arc<L>) -> v1::DomainStatsResponse {
    let stats = launcher.domain_stats().await;
    v1::DomainStatsResponse {
        response: Some(response(&stats)),
        domain_stats: stats.map(|stats| stats.to_json()).unwrap_or_default(),
    }
}

/// The answer to `GetDomainDirtyRateStats`.
pub(super) async fn dirty_rate<L: LauncherApi>(launcher: &Arc<L>) -> v1::DirtyRateStatsResponse {
    let rate = launcher.dirty_rate().await;
    v1::DirtyRateStatsResponse {
        response: Some(response(&rate)),
        dirty_rate_mbs: rate.unwrap_or_default(),
    }
}

/// The answer to `GetVMStats`.
pub(super) async fn vm_stats<L: LauncherApi>(
    launcher: &Arc<L>,
    request: &v1::VmStatsRequest,
) -> Result<v1::VmStatsResponse, Status> {
    if !launcher.collects_vm_stats() {
        return Err(Status::unknown(
            "GetVMStats is off: the launcher was started without --vm-stats-collector",
        ));
    }
    let commands = AgentCommand::all_of(request);
    let deadline = os::time::deadline(ANSWER_TIMEOUT);
    let (domain_stats, dirty_rate_stats, agent_answers) = tokio::join!(
        wanted(request.domain_stats.is_some(), domain_stats(launcher)),
        wanted(request.dirty_rate.is_some(), dirty_rate(launcher)),
        agent_answers(launcher, &commands, deadline),
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
            message: launcher.guest_agent_version(),
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

/// One after the other: the agent does one thing at a time.
async fn agent_answers<L: LauncherApi>(
    launcher: &Arc<L>,
    commands: &[AgentCommand],
    deadline: Instant,
) -> Vec<(AgentCommand, v1::Response)> {
    let mut answers = Vec::new();
    for &command in commands {
        let message = match timeout_at(deadline, launcher.agent_data(command)).await {
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

/// `None` for what succeeded, or was not asked for.
fn failure(part: &str, answer: Option<&v1::Response>) -> Option<String> {
    let failed = answer.filter(|answer| !answer.success)?;
    Some(format!("{part}: {}", failed.message))
}
