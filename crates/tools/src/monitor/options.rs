//! The few of the launcher's flags that concern the monitor. All others are the launcher's business.

use std::ffi::OsString;
use std::path::PathBuf;

use api::pod_paths::CONTAINER_DISK_DIR;
use os::logging;
use pod::Root;

const KEEP: &str = "--keep-after-failure";

/// What the monitor is told.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Ours: all of the pod's paths are below it.
    pub root: Root,
    /// Not to end after a failure, for somebody to look around.
    pub keep_after_failure: bool,
    container_disk_dir: PathBuf,
    verbosity: Option<u8>,
}

impl Options {
    /// Reads them in pflag's spellings (`--flag=value`, `--flag value`, `-v3`); what is not understood is left alone.
    #[must_use]
    pub fn of(arguments: &[OsString]) -> Self {
        let arguments: Vec<&str> = arguments
            .iter()
            .filter_map(|argument| argument.to_str())
            .collect();
        let value = |name: &str| {
            let given = |(at, argument): (usize, &&str)| match argument
                .strip_prefix(name)?
                .strip_prefix('=')
            {
                Some(value) => Some(value.to_owned()),
                None if *argument == name => arguments.get(at + 1).map(|value| (*value).to_owned()),
                None => None,
            };
            arguments.iter().enumerate().rev().find_map(given)
        };
        let short = || {
            arguments
                .iter()
                .rev()
                .find_map(|argument| argument.strip_prefix("-v")?.parse().ok())
        };
        let number = |name| value(name).and_then(|text| text.parse().ok());
        Self {
            root: value("--root").map_or_else(Root::default, Root::new),
            keep_after_failure: arguments
                .iter()
                .rev()
                .find(|argument| is_keep(argument))
                .is_some_and(|last| !last.ends_with("=false")),
            container_disk_dir: value("--container-disk-dir")
                .unwrap_or_else(|| CONTAINER_DISK_DIR.to_owned())
                .into(),
            verbosity: number("-v").or_else(|| number("--v")).or_else(short),
        }
    }

    /// Where the sockets of container disks are.
    #[must_use]
    pub fn container_disk_dir(&self) -> PathBuf {
        self.root.path(&self.container_disk_dir)
    }

    /// The environment's verbosity comes from the VMI, and counts more.
    pub fn set_verbosity(&self) {
        if let Some(verbosity) = self.verbosity {
            logging::set_verbosity(verbosity);
        }
        if let Some(text) = std::env::var_os(logging::VERBOSITY_VARIABLE) {
            logging::set_verbosity_of_label(&text.to_string_lossy());
        }
    }
}

fn is_keep(argument: &str) -> bool {
    argument
        .strip_prefix(KEEP)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

/// The launcher's arguments.
#[must_use]
pub fn without_ours(mut arguments: Vec<OsString>) -> Vec<OsString> {
    arguments.retain(|argument| !argument.to_str().is_some_and(is_keep));
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
            options.container_disk_dir(),
            PathBuf::from("/var/run/kubevirt/container-disks")
        );
        assert_eq!(
            (options.keep_after_failure, options.verbosity),
            (false, None)
        );
    }

    #[test]
    fn flags_may_be_one_argument_or_two_and_the_last_one_counts() {
        for spelled in [
            ["--container-disk-dir=/x", "--name=vm"],
            ["--container-disk-dir", "/x"],
        ] {
            assert_eq!(options(&spelled).container_disk_dir(), PathBuf::from("/x"));
        }
        assert_eq!(
            options(&["--container-disk-dir=/x", "--container-disk-dir", "/y"])
                .container_disk_dir(),
            PathBuf::from("/y")
        );
        assert_eq!(options(&["--container-disk-dir-more=/x"]), options(&[]));
        assert_eq!(
            options(&["--root", "/r"]).container_disk_dir(),
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
            assert_eq!(options(spelled).verbosity, Some(4), "{spelled:?}");
        }
        assert_eq!(options(&["-v", "high"]).verbosity, None);
    }

    #[test]
    fn who_wants_to_look_at_a_failure_says_so_to_the_monitor_only() {
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
        assert_eq!(without_ours(arguments), ["--name", "vm", "--uid", "1"]);
    }
}
