//! What processes take up, for tests that look for leaks.

/// Of the launcher and its guest's QEMU.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    pub descriptors: usize,
    pub threads: usize,
    pub resident_kib: usize,
    pub qemu_descriptors: usize,
}

impl Usage {
    pub(super) fn of(launcher: u32, qemu: u32) -> Self {
        let count = |pid: u32, what: &str| {
            std::fs::read_dir(format!("/proc/{pid}/{what}"))
                .unwrap()
                .count()
        };
        let status = std::fs::read_to_string(format!("/proc/{launcher}/status")).unwrap();
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        Self {
            descriptors: count(launcher, "fd"),
            threads: count(launcher, "task"),
            resident_kib: resident.trim().trim_end_matches(" kB").parse().unwrap(),
            qemu_descriptors: count(qemu, "fd"),
        }
    }
}
