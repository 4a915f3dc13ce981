//! A control group with a limit, where the machine lets us have one.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Removed with the test.
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// With a limit of memory; `None`, with a message, where there are none for us.
    pub fn with_limit(bytes: u64) -> Option<Self> {
        let cgroup = Self::make("memory")?;
        cgroup.limit(bytes).then_some(cgroup)
    }

    /// Limits its memory from now on. Returns whether it could.
    pub fn limit(&self, bytes: u64) -> bool {
        let files = ["memory.max", "memory.limit_in_bytes"];
        files.iter().any(|file| self.set(file, &bytes.to_string()))
    }

    /// One whose processes and threads can be counted and limited.
    pub fn of_pids() -> Option<Self> {
        Self::make("pids")
    }

    fn make(controller: &str) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("virt-launcher-test-{}-{number}", std::process::id());
        let parents = [unified(controller), of_version_1(controller)];
        let made = parents.into_iter().flatten().find_map(|parent| {
            let path = parent.join(&name);
            std::fs::create_dir(&path).ok().map(|()| Self(path))
        });
        if made.is_none() {
            println!("skipped: no cgroup with a limit of {controller} can be made here");
        }
        made
    }

    /// Writes one of its files.
    pub fn set(&self, file: &str, value: &str) -> bool {
        let file = self.0.join(file);
        file.exists() && std::fs::write(file, value).is_ok()
    }

    /// The content of one of its files.
    pub fn get(&self, file: &str) -> String {
        let content = std::fs::read_to_string(self.0.join(file)).unwrap();
        content.trim().to_owned()
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

/// Where groups of version 2 with this controller are made.
fn unified(controller: &str) -> Option<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let controllers = std::fs::read_to_string(root.join("cgroup.subtree_control")).ok()?;
    let has_it = controllers
        .split_whitespace()
        .any(|name| name == controller);
    has_it.then(|| root.to_owned())
}

/// The same of version 1: below our own, so that our limits hold too.
fn of_version_1(controller: &str) -> Option<PathBuf> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let mark = format!(":{controller}:");
    let own = own.lines().find_map(|line| line.split_once(&mark))?.1;
    let root = Path::new("/sys/fs/cgroup").join(controller);
    Some(root.join(own.trim_start_matches('/')))
}
