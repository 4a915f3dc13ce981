//! Waits a moment for a new agent's first answers, before virt-handler gets documents or answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::launcher::vm::{Agent, Phase, Snapshot, Vm};

/// Limit of that wait. Afterwards virt-handler sees the agent without answers.
const FIRST_ANSWERS_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether there is an agent and the guest lets it answer.
pub(super) fn can_be_asked(vm: &Snapshot) -> bool {
    let runs = matches!(vm.phase, Phase::Running | Phase::MigratingOut);
    runs && vm.agent != Agent::Away
}

/// Shows virt-handler new agents that do not answer in time or are not asked.
pub(super) async fn show_in_time(vm: Arc<Vm>) {
    let mut state = vm.subscribe();
    loop {
        // Cannot fail: the sender lives in the VM.
        drop(state.wait_for(|vm| vm.agent == Agent::New).await);
        let known = state.wait_for(|vm| vm.agent != Agent::New);
        if timeout(FIRST_ANSWERS_TIMEOUT, known).await.is_err() {
            vm.agent_is_known();
        }
    }
}

/// Waits for a new agent's first answers while they may come.
pub(super) async fn wait(vm: &Vm) {
    let mut state = vm.subscribe();
    let answered = state.wait_for(|vm| vm.agent != Agent::New || !can_be_asked(vm));
    drop(timeout(FIRST_ANSWERS_TIMEOUT, answered).await);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launcher::vm::Observed;
    use domain::DomainSpec;
    use libvirt::{DomainState, PausedReason, RunningReason};
    use tokio::time::Instant;

    const RUNNING: DomainState = DomainState::Running(RunningReason::Booted);
    const PAUSED: DomainState = DomainState::Paused(PausedReason::User);

    fn show(vm: &Vm, state: DomainState, channel: &str) {
        let xml = format!(
            "<domain type='kvm'><devices><channel type='unix'>\
             <target type='virtio' name='org.qemu.guest_agent.0' state='{channel}'/>\
             </channel></devices></domain>"
        );
        let spec = DomainSpec::from_xml(&xml).unwrap();
        let observed = Observed { state, spec };
        drop(vm.observe(observed));
    }

    fn vm() -> Arc<Vm> {
        Vm::new("ns1", "vm1", "u-1", Arc::default())
    }

    #[tokio::test(start_paused = true)]
    // D-agent-13 (docs/differences.md).
    async fn an_agent_that_does_not_answer_is_shown_in_time() {
        let vm = vm();
        tokio::spawn(show_in_time(vm.clone()));
        for state in [RUNNING, PAUSED] {
            show(&vm, state, "disconnected");
            show(&vm, state, "connected");
            let begin = Instant::now();
            let mut changes = vm.subscribe();
            changes
                .wait_for(|vm| vm.agent == Agent::Known)
                .await
                .unwrap();
            assert_eq!(begin.elapsed(), FIRST_ANSWERS_TIMEOUT, "{state:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_waits_for_the_first_answers_of_an_agent_that_is_asked() {
        let vm = vm();
        let waited = async || {
            let begin = Instant::now();
            wait(&vm).await;
            begin.elapsed()
        };
        assert_eq!(waited().await, Duration::ZERO, "there is no domain");
        show(&vm, RUNNING, "disconnected");
        assert_eq!(waited().await, Duration::ZERO, "nor an agent");
        show(&vm, RUNNING, "connected");
        let answer = async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            vm.agent_is_known();
        };
        let (waiting, ()) = tokio::join!(waited(), answer);
        assert_eq!(waiting, Duration::from_millis(30));
        assert_eq!(waited().await, Duration::ZERO, "it has answered");

        show(&vm, RUNNING, "disconnected");
        show(&vm, RUNNING, "connected");
        assert_eq!(waited().await, FIRST_ANSWERS_TIMEOUT, "it is silent");
        show(&vm, PAUSED, "connected");
        assert_eq!(waited().await, Duration::ZERO, "it is not asked");
    }
}
