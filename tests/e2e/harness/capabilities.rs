//! libvirt's cache of QEMU's capabilities, handed from pod to pod: probing QEMU takes half of the
//! processor time of a pod whose guest is small. libvirt itself checks that the cache is about this
//! machine and its QEMU. Measurements start without it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Pod, give_to_qemu};

/// Where libvirt has the cache below a pod's root: embedded, as a system daemon, as a session's.
const DIRS: [&str; 3] = [
    "cache/qemu/capabilities",
    "var/cache/libvirt/qemu/capabilities",
    "var/run/kubevirt-private/libvirt/qemu/cache/capabilities",
];

/// Pairs of a directory that outlives the pods and one of the pod. The image's QEMU is not the
/// machine's.
fn places(pod: &Path, is_container: bool) -> impl Iterator<Item = (PathBuf, PathBuf)> {
    let is_measured = std::env::var_os("PROGRAMS").is_some();
    let owner = if is_container { "image" } else { "machine" };
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-capabilities");
    let dirs = DIRS.into_iter().filter(move |_| !is_measured);
    dirs.map(move |dir| (target.join(owner).join(dir), pod.join(dir)))
}

/// Copies the cache of earlier pods into one in which nothing runs yet.
pub fn give(pod: &Path, is_container: bool) {
    for (kept, place) in places(pod, is_container) {
        for (name, content) in files(&kept) {
            std::fs::create_dir_all(&place).unwrap();
            std::fs::write(place.join(&name), content).unwrap();
            if is_container {
                give_to_qemu(&place);
                give_to_qemu(&place.join(name));
            }
        }
    }
}

impl Pod {
    /// Removes the cache, so that libvirt probes QEMU in this pod.
    pub fn forget_capabilities(&self) {
        for dir in DIRS {
            let _ = std::fs::remove_dir_all(self.root().join(dir));
        }
    }
}

/// Copies the pod's cache for later pods.
pub fn keep(pod: &Path, is_container: bool) {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    for (kept, place) in places(pod, is_container) {
        for (name, content) in files(&place) {
            if std::fs::read(kept.join(&name)).is_ok_and(|before| before == content) {
                continue;
            }
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let new = kept.join(format!(".{}-{number}", std::process::id()));
            let written = std::fs::create_dir_all(&kept)
                .and_then(|()| std::fs::write(&new, content))
                .and_then(|()| std::fs::rename(new, kept.join(name)));
            if let Err(error) = written {
                println!("QEMU's capabilities are not kept: {error}");
            }
        }
    }
}

/// Names and contents of the cache's files; without those that libvirt is still writing.
fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let named = files.map(|file| (file.file_name().to_string_lossy().into_owned(), file.path()));
    let read = named.filter_map(|(name, path)| Some((name, std::fs::read(path).ok()?)));
    read.filter(|(_, content)| content.trim_ascii_end().ends_with(b"</qemuCaps>"))
        .collect()
}
