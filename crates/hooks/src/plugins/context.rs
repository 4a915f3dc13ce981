//! Why a hook of a plugin is called.

use api::proto::hooks::plugins::SidecarContext;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvocationContext {
    /// The virtual machine is about to start.
    Boot,
    /// The virtual machine is about to migrate out of this pod.
    MigrationSource,
    /// The virtual machine is about to migrate into this pod.
    MigrationTarget,
}

impl InvocationContext {
    pub(super) fn message(self) -> Option<SidecarContext> {
        let name = match self {
            Self::Boot => "Boot",
            Self::MigrationSource => "MigrationSource",
            Self::MigrationTarget => "MigrationTarget",
        };
        Some(SidecarContext {
            invocation_context: name.to_owned(),
        })
    }
}
