//! The pod's environment variables.

use std::ffi::OsString;

use os::logging::VERBOSITY_VARIABLE;

/// Variables of the `compute` container that the supervisor reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// `VIRT_LAUNCHER_LOG_VERBOSITY`, unparsed.
    pub verbosity: Option<String>,
    /// `LIBVIRT_DEBUG_LOGS` is set.
    pub libvirt_debug: bool,
    /// `VIRTIOFSD_DEBUG_LOGS` is `1`.
    pub virtiofsd_debug: bool,
    /// `SHARED_FILESYSTEM_PATHS`.
    pub shared_filesystems: Vec<String>,
    /// `POD_NAME`; empty if unset.
    pub pod_name: String,
    /// `STANDALONE_VMI`: a VMI as YAML or JSON, to start without virt-handler.
    pub standalone_vmi: Option<String>,
}

impl Environment {
    /// Reads this process's environment.
    pub fn of_process() -> Self {
        Self::read(|name| std::env::var_os(name))
    }

    /// Reads each variable with `get`.
    pub fn read(get: impl Fn(&str) -> Option<OsString>) -> Self {
        let text = |name| get(name).map(|value| value.to_string_lossy().into_owned());
        let shared = text("SHARED_FILESYSTEM_PATHS").unwrap_or_default();
        Self {
            verbosity: text(VERBOSITY_VARIABLE),
            libvirt_debug: get("LIBVIRT_DEBUG_LOGS").is_some(),
            virtiofsd_debug: text("VIRTIOFSD_DEBUG_LOGS").as_deref() == Some("1"),
            shared_filesystems: shared
                .split(':')
                .filter(|path| !path.is_empty())
                .map(str::to_owned)
                .collect(),
            pod_name: text("POD_NAME").unwrap_or_default(),
            standalone_vmi: text("STANDALONE_VMI"),
        }
    }

    /// The verbosity as a number; `None` if unset or not a number.
    pub fn verbosity_number(&self) -> Option<i64> {
        self.verbosity
            .as_deref()
            .and_then(|text| text.trim().parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Environment {
        Environment::read(|name| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.into())
        })
    }

    #[test]
    fn empty_is_the_default() {
        assert_eq!(of(&[]), Environment::default());
    }

    #[test]
    fn what_virt_controller_sets() {
        let env = of(&[
            ("VIRT_LAUNCHER_LOG_VERBOSITY", "6"),
            ("LIBVIRT_DEBUG_LOGS", "1"),
            ("VIRTIOFSD_DEBUG_LOGS", "1"),
            ("SHARED_FILESYSTEM_PATHS", "/a:/b"),
            ("POD_NAME", "virt-launcher-vm-x7k2p"),
        ]);
        assert_eq!(env.pod_name, "virt-launcher-vm-x7k2p");
        assert_eq!(env.verbosity_number(), Some(6));
        assert!(env.libvirt_debug && env.virtiofsd_debug);
        assert_eq!(env.shared_filesystems, ["/a", "/b"]);
    }

    #[test]
    fn verbosity_that_is_no_number_is_none() {
        assert_eq!(
            of(&[("VIRT_LAUNCHER_LOG_VERBOSITY", "high")]).verbosity_number(),
            None
        );
    }

    #[test]
    fn virtiofsd_debug_is_1_and_nothing_else() {
        assert!(!of(&[("VIRTIOFSD_DEBUG_LOGS", "true")]).virtiofsd_debug);
    }
}
