//! Installs libvirt's hook, by which a migration target changes the arriving domain: a link to the
//! client of the launcher's hook server, in place of the image's script.

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use api::pod_paths::{LIBVIRT_HOOK_CLIENT, LIBVIRT_QEMU_HOOK};
use pod::LauncherFlags;

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

/// Installs the client before the daemon looks for hooks. Below its own root the daemon has another
/// `/etc/libvirt` and the pod no client: the domain then arrives unchanged.
///
/// # Errors
/// [`LibvirtHookError`].
pub fn install(config: &LauncherFlags) -> Result<(), LibvirtHookError> {
    if !config.libvirt_hook_server_and_client || config.root.dir() != Path::new("/") {
        return Ok(());
    }
    link(Path::new(LIBVIRT_HOOK_CLIENT), Path::new(LIBVIRT_QEMU_HOOK))
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
    #![allow(clippy::unwrap_used)]
    use super::*;

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
