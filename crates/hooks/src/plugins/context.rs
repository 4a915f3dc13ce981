//! Why a hook of a plugin is called.

/// Why a hook of a plugin is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvocationContext {
    /// The virtual machine is about to start.
    Boot,
    /// It is about to be migrated out of this pod.
    MigrationSource,
    /// It is about to be migrated into this pod.
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
