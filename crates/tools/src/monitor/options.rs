//! The few launcher flags that concern the monitor.

use std::ffi::OsString;
use std::path::PathBuf;

use api::pod_paths::{COMMAND_SOCKET, STARTING_COMMAND_SOCKET};
use os::logging;
use pod::{LauncherFlags, Root};

const KEEP_AFTER_FAILURE: &str = "--keep-after-failure";

/// The monitor's part of the launcher's command line.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The root of all pod paths. Not in KubeVirt.
    pub root: Root,
    /// Keeps the pod after a failure, for inspection.
    pub keep_after_failure: bool,
    /// The directory of the container disks' sockets.
    pub container_disk_dir: PathBuf,
    /// Restarts a launcher that dies: the flag, or the image's switch. Not in KubeVirt.
    pub restart_launcher: bool,
    /// The command socket's temporary name, and its name once the launcher is ready.
    pub sockets: (PathBuf, PathBuf),
    verbosity: u8,
}

impl Options {
    /// Reads the flags. Ignores invalid ones, which the launcher will refuse.
    #[must_use]
    pub fn of(arguments: &[OsString]) -> Self {
        let config = LauncherFlags::parse_known(arguments.iter().cloned());
        Self {
            container_disk_dir: config.root.path(&config.container_disk_dir),
            keep_after_failure: config.keep_after_failure,
            restart_launcher: config.restart_launcher || pod::restart::is_on_in_image(),
            sockets: (
                config.shared(STARTING_COMMAND_SOCKET),
                config.shared(COMMAND_SOCKET),
            ),
            verbosity: config.verbosity,
            root: config.root,
        }
    }

    /// The environment's verbosity comes from the VMI and takes precedence.
    pub fn set_verbosity(&self) {
        logging::set_verbosity(self.verbosity);
        if let Some(text) = std::env::var_os(logging::VERBOSITY_VARIABLE) {
            logging::set_verbosity_of_label(&text.to_string_lossy());
        }
    }
}

fn is_keep_after_failure(argument: &str) -> bool {
    argument
        .strip_prefix(KEEP_AFTER_FAILURE)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

/// The monitor's arguments, without the one that is only the monitor's.
#[must_use]
pub fn for_launcher(mut arguments: Vec<OsString>) -> Vec<OsString> {
    arguments.retain(|argument| !argument.to_str().is_some_and(is_keep_after_failure));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> Options {
        Options::of(&arguments.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn without_flags_paths_and_verbosity_are_the_pods() {
        let options = options(&["--qemu-timeout", "300s", "--name", "vm"]);
        assert_eq!(
            options.container_disk_dir,
            PathBuf::from("/var/run/kubevirt/container-disks")
        );
        assert_eq!((options.keep_after_failure, options.verbosity), (false, 2));
    }

    #[test]
    fn flags_may_be_one_argument_or_two_and_the_last_one_counts() {
        for spelled in [
            ["--container-disk-dir=/x", "--name=vm"],
            ["--container-disk-dir", "/x"],
        ] {
            assert_eq!(options(&spelled).container_disk_dir, PathBuf::from("/x"));
        }
        assert_eq!(
            options(&["--container-disk-dir=/x", "--container-disk-dir", "/y"]).container_disk_dir,
            PathBuf::from("/y")
        );
        assert_eq!(options(&["--container-disk-dir-more=/x"]), options(&[]));
        assert_eq!(
            options(&["--root", "/r"]).container_disk_dir,
            PathBuf::from("/r/var/run/kubevirt/container-disks")
        );
    }

    #[test]
    fn verbosity_has_many_spellings() {
        for spelled in [
            &["-v", "4"][..],
            &["-v=4"],
            &["-v4"],
            &["--v", "4"],
            &["--v=4"],
        ] {
            assert_eq!(options(spelled).verbosity, 4, "{spelled:?}");
        }
        assert_eq!(options(&["-v", "high"]).verbosity, 2);
    }

    #[test]
    fn keep_after_failure_is_the_monitors_own_flag() {
        assert!(options(&["--keep-after-failure"]).keep_after_failure);
        assert!(options(&["--keep-after-failure=true"]).keep_after_failure);
        assert!(!options(&["--keep-after-failure=false"]).keep_after_failure);
        let arguments = [
            "--name",
            "vm",
            "--keep-after-failure",
            "--uid",
            "1",
            "--keep-after-failure=true",
        ]
        .map(OsString::from)
        .to_vec();
        assert_eq!(for_launcher(arguments), ["--name", "vm", "--uid", "1"]);
    }
}
