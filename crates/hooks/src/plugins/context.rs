//! Why a hook of a plugin is called.

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
    /// The name in the protocol.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Boot => "Boot",
            Self::MigrationSource => "MigrationSource",
            Self::MigrationTarget => "MigrationTarget",
        }
    }
}
