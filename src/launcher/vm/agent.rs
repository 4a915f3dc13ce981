//! The state of the guest agent's channel, and when virt-handler sees it connected (its condition
//! `AgentConnected`).
//!
//! ```text
//!   away ──connects──► new ──its first answers, or no time left for them──► known
//!    ▲                  │                                                     │
//!    └──── disconnects ─┴─────────────────────────────────────────────────────┘
//! ```
//!
//! virt-handler asks for the agent's version as soon as it sees the channel connected, and treats
//! an agent without a version as unsupported. So a new agent stays hidden until its first answers
//! arrive, and one document shows both.

use domain::DomainSpec;

/// libvirt's word for a channel that is not connected.
const DISCONNECTED: &str = "disconnected";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Agent {
    /// No agent is connected.
    #[default]
    Away,
    /// An agent is connected, and its first answers are still expected.
    New,
    /// An agent is connected and has answered, or has not answered in time.
    Known,
}

impl Agent {
    /// The next state, given libvirt's view of the domain.
    pub(super) fn after(self, domain: &DomainSpec) -> Self {
        match (self, domain.devices.has_agent()) {
            (_, false) => Self::Away,
            (Self::Away, true) => Self::New,
            (same, true) => same,
        }
    }
}

/// Shows the agent's channel as not connected.
pub(super) fn hide(domain: &mut DomainSpec) {
    let targets = domain
        .devices
        .channels
        .iter_mut()
        .filter_map(|channel| channel.target.as_mut());
    for target in targets.filter(|target| target.is_connected_agent()) {
        target.state = DISCONNECTED.into();
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{RUNNING, seen, vm};
    use super::super::{Observed, Vm};
    use super::*;
    use domain::character::AGENT_CHANNEL;

    const CONNECTED: &str = "connected";

    /// libvirt's view: the agent's channel, and another, connected one.
    fn with_channel(state: &str) -> Observed {
        let xml = format!(
            "<domain type='kvm'><devices>\
             <channel type='unix'><target type='virtio' name='other' state='connected'/></channel>\
             <channel type='unix'><target type='virtio' name='{AGENT_CHANNEL}' state='{state}'/></channel>\
             </devices></domain>"
        );
        let mut observed = seen(RUNNING);
        observed.spec = DomainSpec::from_xml(&xml).unwrap();
        observed
    }

    /// Whether the document shows an agent.
    fn shows(vm: &Vm, state: &str) -> bool {
        vm.observe(with_channel(state))
            .unwrap()
            .spec
            .devices
            .has_agent()
    }

    #[test]
    // D-agent-13 (docs/differences.md).
    fn a_new_agent_is_shown_when_it_is_known() {
        let vm = vm();
        assert!(!shows(&vm, DISCONNECTED));
        // A read before the event.
        let read = vm.describe(with_channel(CONNECTED)).unwrap();
        assert!(!read.spec.devices.has_agent());
        assert!(!shows(&vm, CONNECTED));
        assert_eq!(vm.snapshot().agent, Agent::New, "it is there to be asked");
        vm.agent_is_known();
        assert!(shows(&vm, CONNECTED));
        assert_eq!(vm.snapshot().agent, Agent::Known);
        assert!(!shows(&vm, DISCONNECTED));
        assert!(!shows(&vm, CONNECTED), "the guest has rebooted");
        vm.gone();
        assert_eq!(vm.snapshot().agent, Agent::Away);
    }

    #[test]
    fn an_agent_that_virt_handler_knows_stays_shown() {
        let adopting = vm();
        assert!(
            shows(&adopting, CONNECTED),
            "the first document of this launcher"
        );
        assert!(shows(&adopting, CONNECTED));
        assert_eq!(adopting.snapshot().agent, Agent::New);
    }

    #[test]
    fn what_a_new_agent_says_goes_out_with_it() {
        let vm = vm();
        shows(&vm, DISCONNECTED);
        shows(&vm, CONNECTED);
        drop(vm.events.take());
        vm.report_guest(|guest| guest.os_info.name = "Debian".into());
        assert_eq!(vm.events.take(), <_>::default(), "it waits");
        vm.agent_is_known();
        assert_ne!(vm.events.take(), <_>::default());
        vm.agent_is_known();
        assert_eq!(vm.events.take(), <_>::default(), "once");
        vm.report_guest(|guest| guest.os_info.name = "Fedora".into());
        assert_ne!(vm.events.take(), <_>::default());
    }
}
