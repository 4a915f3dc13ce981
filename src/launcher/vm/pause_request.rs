//! Whether a pause was requested (KubeVirt's `pausedVMIs`). No sync resumes such a guest, and
//! virt-handler sees `User` as the reason of its pause.

use super::phase::{PauseReason, Phase};

const PAUSED_BY_USER: Phase = Phase::Paused(PauseReason::User);

/// A request to pause the guest, which may still run for a moment. Only its methods write it, each
/// for one writer, with what that one knows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PauseRequest(bool);

impl PauseRequest {
    pub fn is_made(self) -> bool {
        self.0
    }

    /// The user asks, and libvirt has done it or keeps the guest paused for a job: Pause, Unpause,
    /// or a start as the VMI's `startStrategy` says. That ends what was asked before.
    pub fn ask(&mut self, pause: bool) {
        self.0 = pause;
    }

    /// An earlier launcher has started the guest: only libvirt knows whether it was asked to pause.
    pub fn adopt(&mut self, phase: Phase) {
        self.0 = phase == PAUSED_BY_USER;
    }

    /// A guest is arriving. That takes no request back.
    // D-mig-22 (docs/differences.md).
    pub fn arrive(&mut self, phase: Phase) {
        self.0 |= phase == PAUSED_BY_USER;
    }
}
