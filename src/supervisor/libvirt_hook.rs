//! Installs libvirt's hook (`/etc/libvirt/hooks/qemu`), by which a migration target changes the
//! arriving domain. The hook is a link to the client of the launcher's hook server, in place of the
//! image's script. KubeVirt v1.9 asks for it by `--libvirt-hook-server-and-client`. v1.10 always
//! wants it, and its image has the client there already.

use std::io::{self, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use api::pod_paths::{LIBVIRT_HOOK_CLIENT, LIBVIRT_QEMU_HOOK};
use pod::LauncherFlags;

/// Size limit of the script, in bytes: `KubeVirt`'s has 250, and a longer file is another hook.
const MAX_SCRIPT_BYTES: u64 = 4096;
/// The file that `KubeVirt`'s script touches.
const MIGRATED_MARKER: &str = "backend-storage-meta/migrated";

/// Why libvirt will not call the hook server.
#[derive(Debug, thiserror::Error)]
pub enum LibvirtHookError {
    /// The program is not in the image.
    #[error("libvirt hook client binary not found at {}", .0.display())]
    NoClient(PathBuf),
    /// The link cannot be made.
    #[error("failed to create symlink for qemu hook at {}", path.display())]
    Link {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Installs the client before the daemon looks for hooks. Unless `flags` ask for it, the client
/// only replaces `KubeVirt`'s own script.
///
/// # Errors
/// [`LibvirtHookError`].
// D-mig-32 (docs/differences.md).
pub fn install(flags: &LauncherFlags) -> Result<(), LibvirtHookError> {
    let (client, hook) = (Path::new(LIBVIRT_HOOK_CLIENT), Path::new(LIBVIRT_QEMU_HOOK));
    let is_wanted = flags.libvirt_hook_server_and_client || is_kubevirts_script(hook);
    if flags.has_libvirt_hook() && is_wanted {
        link(client, hook)
    } else {
        Ok(())
    }
}

/// Whether this is the script that marks a migrated guest, as the client does too.
fn is_kubevirts_script(hook: &Path) -> bool {
    let mut start = String::new();
    let read = std::fs::File::open(hook)
        .and_then(|file| file.take(MAX_SCRIPT_BYTES).read_to_string(&mut start));
    read.is_ok() && start.starts_with("#!") && start.contains(MIGRATED_MARKER)
}

/// Replaces the hook atomically.
fn link(client: &Path, hook: &Path) -> Result<(), LibvirtHookError> {
    if !client.exists() {
        return Err(LibvirtHookError::NoClient(client.into()));
    }
    let beside = hook.with_extension("new");
    drop(std::fs::remove_file(&beside));
    let linked = symlink(client, &beside).and_then(|()| std::fs::rename(&beside, hook));
    linked.map_err(|source| LibvirtHookError::Link {
        path: hook.into(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kubevirts_script_is_replaced_unasked() {
        let dir = tempfile::tempdir().unwrap();
        let hook = dir.path().join("qemu");
        assert!(!is_kubevirts_script(&hook));
        let image = Path::new(env!("CARGO_MANIFEST_DIR")).join("container/qemu-hook");
        assert!(is_kubevirts_script(&image));
        for other in [
            "#!/bin/sh\nlogger migrated\n",
            "\u{7f}ELF backend-storage-meta/migrated",
        ] {
            std::fs::write(&hook, other).unwrap();
            assert!(!is_kubevirts_script(&hook), "{other}");
        }
    }

    #[test]
    fn the_clients_link_takes_the_place_of_the_script_as_often_as_asked() {
        let dir = tempfile::tempdir().unwrap();
        let (client, hook) = (dir.path().join("client"), dir.path().join("qemu"));
        std::fs::write(&hook, "#!/bin/sh").unwrap();
        assert!(matches!(
            link(&client, &hook),
            Err(LibvirtHookError::NoClient(_))
        ));
        assert_eq!(std::fs::read_to_string(&hook).unwrap(), "#!/bin/sh");
        std::fs::write(&client, "").unwrap();
        for _ in 0..2 {
            link(&client, &hook).unwrap();
            assert_eq!(std::fs::read_link(&hook).unwrap(), client);
        }
    }
}
