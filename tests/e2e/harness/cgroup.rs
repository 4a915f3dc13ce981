//! A control group with a memory limit, where the machine lets us have one.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Removed with the test.
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// `None`, with a message, where there are none for us.
    pub fn with_limit(bytes: u64) -> Option<Self> {
        let made = Self::unified(bytes).or_else(|| Self::memory_controller(bytes));
        if made.is_none() {
            println!("without the pod's memory limit: no cgroup can be made here");
        }
        made
    }

    /// Of version 2.
    fn unified(bytes: u64) -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let controllers = std::fs::read_to_string(root.join("cgroup.subtree_control")).ok()?;
        let memory = controllers.split_whitespace().any(|name| name == "memory");
        memory.then(|| Self::make(root, "memory.max", bytes))?
    }

    /// Of version 1, below our own, so that our limits hold too.
    fn memory_controller(bytes: u64) -> Option<Self> {
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own
            .lines()
            .find_map(|line| line.split_once(":memory:"))
            .map(|(_, path)| path.trim_start_matches('/').to_owned())?;
        let parent = Path::new("/sys/fs/cgroup/memory").join(own);
        Self::make(&parent, "memory.limit_in_bytes", bytes)
    }

    fn make(parent: &Path, limit: &str, bytes: u64) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!(
            "virt-launcher-test-{}-{number}",
            std::process::id()
        ));
        std::fs::create_dir(&path).ok()?;
        let cgroup = Self(path);
        std::fs::write(cgroup.0.join(limit), bytes.to_string()).ok()?;
        Some(cgroup)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Its last process may not quite have gone.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}
