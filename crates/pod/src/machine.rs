//! The machine below the pod, as the launcher reads it from `/sys`, `/dev` and its environment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{LauncherFlags, PodError};
use convert::parse_list;

/// The machine's files and environment. Tests make a machine of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Machine {
    /// `/`, except in tests.
    pub root: PathBuf,
    pub environment: BTreeMap<String, String>,
}

impl Machine {
    pub fn this() -> Self {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self {
            root: "/".into(),
            environment,
        }
    }

    /// Where a path of the machine is.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The hypervisor's device is there and the launcher may use it; never with
    /// `--force-emulation`.
    pub fn hypervisor_device_available(&self, flags: &LauncherFlags) -> bool {
        let device = if flags.hypervisor == "hyperv-direct" {
            "/dev/mshv"
        } else {
            "/dev/kvm"
        };
        let usable = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
        !flags.force_emulation && rustix::fs::access(self.path(device), usable).is_ok()
    }

    /// The emulators that a conversion may name and that are not installed.
    pub fn missing_emulators(&self) -> Vec<String> {
        [
            "/usr/bin/qemu-system-aarch64",
            "/usr/bin/qemu-system-s390x",
            "/usr/bin/qemu-system-x86_64",
        ]
        .into_iter()
        .filter(|path| !self.path(path).exists())
        .map(String::from)
        .collect()
    }

    /// Variables that the conversion reads.
    pub fn relevant_environment(&self) -> BTreeMap<String, String> {
        self.environment
            .iter()
            .filter(|(name, _)| {
                *name == "VIRT_LAUNCHER_LOG_VERBOSITY" || name.starts_with("USB_RESOURCE_")
            })
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    /// CPUs that the container may use, and `dedicatedCpuPlacement` pins to: from its cgroup,
    /// version 2 or 1, else the scheduler.
    pub fn cpu_set(&self) -> Result<Vec<u32>, PodError> {
        for file in [
            "/sys/fs/cgroup/cpuset.cpus.effective",
            "/sys/fs/cgroup/cpuset/cpuset.cpus",
        ] {
            let path = self.path(file);
            match std::fs::read_to_string(&path) {
                Ok(text) => {
                    let list = text.lines().next().unwrap_or_default().trim();
                    return parse_list(list).ok_or_else(|| {
                        let reason = format!("{text:?} is not a list of CPUs such as 0-3,8");
                        PodError::invalid(path, reason)
                    });
                }
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(PodError::io("read", path)(e)),
            }
        }
        let set = rustix::thread::sched_getaffinity(None).map_err(PodError::io(
            "ask the scheduler for",
            Path::new("the launcher's CPUs"),
        ))?;
        Ok((0..rustix::thread::CpuSet::MAX_CPU)
            .filter(|&cpu| set.is_set(cpu))
            .filter_map(|cpu| u32::try_from(cpu).ok())
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let machine = Machine {
            root: dir.path().into(),
            environment: BTreeMap::new(),
        };
        (dir, machine)
    }

    #[test]
    fn cpus_come_from_either_version_of_cgroups() {
        let (_dir, v2) = machine(&[("sys/fs/cgroup/cpuset.cpus.effective", "2-4,8\n")]);
        assert_eq!(v2.cpu_set().unwrap(), [2, 3, 4, 8]);
        let (_dir, v1) = machine(&[("sys/fs/cgroup/cpuset/cpuset.cpus", "0\n")]);
        assert_eq!(v1.cpu_set().unwrap(), [0]);
    }

    #[test]
    fn without_cgroups_the_scheduler_knows() {
        let (_dir, none) = machine(&[]);
        assert!(!none.cpu_set().unwrap().is_empty());
    }

    #[test]
    fn nonsense_in_a_cpu_list_is_refused() {
        for list in ["", "1,", "a", "3-", "0-4000000000"] {
            assert_eq!(parse_list(list), None, "{list:?}");
        }
        let (_dir, bad) = machine(&[("sys/fs/cgroup/cpuset.cpus.effective", "x\n")]);
        assert!(
            bad.cpu_set()
                .unwrap_err()
                .to_string()
                .contains("is not a list of CPUs")
        );
    }

    #[test]
    fn a_missing_hypervisor_device_is_not_available() {
        let (_dir, none) = machine(&[]);
        assert!(!none.hypervisor_device_available(&LauncherFlags::default()));
        let (_dir, kvm) = machine(&[("dev/kvm", "")]);
        assert!(kvm.hypervisor_device_available(&LauncherFlags::default()));
        assert!(!kvm.hypervisor_device_available(&LauncherFlags {
            force_emulation: true,
            ..LauncherFlags::default()
        }));
        assert!(!kvm.hypervisor_device_available(&LauncherFlags {
            hypervisor: "hyperv-direct".into(),
            ..LauncherFlags::default()
        }));
    }

    #[test]
    fn only_relevant_variables_are_passed_on() {
        let environment = [
            ("USB_RESOURCE_X", "1:2"),
            ("HOME", "/"),
            ("VIRT_LAUNCHER_LOG_VERBOSITY", "3"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let machine = Machine {
            root: "/".into(),
            environment: environment.into(),
        };
        assert_eq!(
            machine
                .relevant_environment()
                .into_keys()
                .collect::<Vec<_>>(),
            ["USB_RESOURCE_X", "VIRT_LAUNCHER_LOG_VERBOSITY"]
        );
    }
}
