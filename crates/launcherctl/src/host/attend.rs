//! Serves a running guest's console until the guest ends or should be shut down.

use std::pin::pin;

use tokio::sync::broadcast::error::RecvError;

use super::console_hub::{self, ConsoleBytes};
use super::control::{RunPhase, StopRequests, Update};
use super::error::RunError;
use super::launcher::{LauncherProcess, Vm};
use super::status;
use crate::error::{CtlError, fail};
use crate::json::text_at;
use client::Until;
use client::problems::{self, Problem};

/// Serves the console until the VM ends or should be shut down. Returns the last update.
///
/// # Errors
/// The guest is not up in time, KVM fails, or the launcher ended under it.
pub(super) async fn attend(
    vm: Vm<'_>,
    launcher: &mut LauncherProcess<'_>,
    stop: &mut StopRequests,
) -> Result<Update, CtlError> {
    let Vm { args, progress, .. } = vm;
    let mut output = console_hub::serve(text_at(vm.vmi, "/metadata/uid"), vm.dir).await?;
    progress.send(Update::Console(output.is_some()));
    let mut until = Until::new(args.start.until.as_deref());
    let timeout = args.start.limit();
    let mut deadline = pin!(tokio::time::sleep(timeout));
    loop {
        tokio::select! {
            Some(bytes) = next_output(&mut output) => {
                if until.seen_in(&bytes) {
                    progress.phase(RunPhase::GuestUp);
                    if args.stop_when_up { return Ok(Update::Ended(None)); }
                }
            },
            event = launcher.next_event() => {
                event?;
                if launcher.is_down {
                    launcher.check_end()?;
                    if until.is_waiting() { fail!("the guest ended before it was up"); }
                    return Ok(Update::Ended(None));
                }
            },
            () = stop.requested() => {
                let why = "the guest was stopped before the text of --until appeared";
                return Ok(Update::Ended(until.is_waiting().then(|| why.to_owned())));
            }
            () = &mut deadline, if until.is_waiting() => {
                let text = args.start.until.clone().unwrap_or_default();
                progress.note(&format!(
                    "{text:?} has not appeared within {} s; the guest is asked to shut down, and forced off after {} s (Ctrl-C: at once)",
                    timeout.as_secs(),
                    vm.grace().as_secs()
                ));
                let why = why_not_up(vm).await.map(|problem| problem.of_ended());
                return Err(RunError::NotUp(text, timeout, why).into());
            }
        }
    }
}

/// Why the guest does not come up, if that is known.
async fn why_not_up(vm: Vm<'_>) -> Option<Problem> {
    let (_, facts) = status::collect_facts(vm.dir).await;
    problems::why_not_up(&facts)
}

/// `None` once there is no more output.
async fn next_output(output: &mut Option<ConsoleBytes>) -> Option<Vec<u8>> {
    loop {
        match output.as_mut()?.recv().await {
            Ok(bytes) => return Some(bytes),
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => *output = None,
        }
    }
}
