//! When a launcher hook of a plugin is called (KubeVirt v1.10).

use std::fmt;

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum LauncherHookPoint {
    /// Changes the domain before it is defined, as `domainHooks` do.
    GuestDefinition,
    /// Changes the cloud-init image and the NVRAM between the definition and the start.
    PreBoot,
    /// Changes the settings of a migration before libvirt begins it.
    PreMigrationSource,
}

impl LauncherHookPoint {
    /// In the order in which a virtual machine comes to them.
    pub const ALL: [Self; 3] = [
        Self::GuestDefinition,
        Self::PreBoot,
        Self::PreMigrationSource,
    ];

    /// The name in `hookPoint` and `permittedHooks`, and of the gRPC method.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::GuestDefinition => "GuestDefinition",
            Self::PreBoot => "PreBoot",
            Self::PreMigrationSource => "PreMigrationSource",
        }
    }
}

impl fmt::Display for LauncherHookPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
