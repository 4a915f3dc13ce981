//! Calls the sidecars of plugins, on sockets in their plugins' directories: the services
//! `DomainHookService` and `LauncherHookService` of `kubevirt.hooks.plugins.v1alpha1`.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use api::pod_paths::PLUGIN_DIR;
use api::proto::hooks::plugins::GuestDefinitionRequest;
use os::inotify;
use prost::Message;
use prost::bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::context::InvocationContext;
use super::error::SidecarError;
use super::point::LauncherHookPoint;
use crate::client::{self, MAX_ANSWER_BYTES};

/// How long to wait for a socket; the same as in KubeVirt.
pub(super) const SOCKET_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit of a call if the hook has no limit of its own; the same as in KubeVirt.
const PLUGIN_CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The socket of a hook.
#[derive(Debug)]
pub struct Socket<'a> {
    /// The pod's root directory.
    pub root: &'a Path,
    pub plugin: &'a str,
    /// The socket's path in the pod, as the hook has it.
    pub socket: &'a str,
    /// The hook's own limit of a call.
    pub timeout: Option<Duration>,
    /// When the socket has to be there.
    pub ready_by: Instant,
    /// Limit of the wait and the call together.
    pub deadline: Instant,
}

impl Socket<'_> {
    /// Waits for the socket and calls the method of a hook point, or `MutateDomain` (v1.9). Does
    /// not check the answer.
    pub async fn call<Q: Message + 'static, A: Message + Default + 'static>(
        self,
        point: Option<LauncherHookPoint>,
        message: Q,
    ) -> Result<A, SidecarError> {
        let path = self.ready().await?;
        // D-hook-6 (docs/differences.md).
        let limit = self.timeout.unwrap_or(PLUGIN_CALL_TIMEOUT);
        let deadline = self.deadline.min(os::time::deadline(limit));
        let (service, method) = match point {
            None => ("DomainHookService", "MutateDomain"),
            Some(point) => ("LauncherHookService", point.name()),
        };
        let full = format!("/kubevirt.hooks.plugins.v1alpha1.{service}/{method}");
        let answer = client::call(&path, full, message, MAX_ANSWER_BYTES, deadline);
        answer.await.map_err(|reason| SidecarError::Call {
            method,
            socket: self.socket.to_owned(),
            reason,
        })
    }

    /// Waits for the socket. Returns its path below the pod's root.
    pub async fn ready(&self) -> Result<PathBuf, SidecarError> {
        let path = self.socket_path()?;
        self.wait_for(&path).await?;
        self.check_links(&path)?;
        Ok(path)
    }

    /// The plugin's directory below the pod's root.
    pub fn plugin_directory(&self) -> PathBuf {
        self.plugins_directory().join(self.plugin)
    }

    /// The directory of all plugins, below the pod's root.
    fn plugins_directory(&self) -> PathBuf {
        self.root.join(PLUGIN_DIR.trim_start_matches('/'))
    }

    fn outside(&self) -> SidecarError {
        SidecarError::Outside {
            socket: self.socket.to_owned(),
            dir: Path::new(PLUGIN_DIR).join(self.plugin),
        }
    }

    /// The socket's path below the pod's root. It must be in the plugin's own directory.
    fn socket_path(&self) -> Result<PathBuf, SidecarError> {
        let is_plain = |path: &Path| {
            let mut parts = path.components();
            parts.all(|part| matches!(part, Component::Normal(_)))
        };
        let mut plugin = Path::new(self.plugin).components();
        let is_one_name = matches!(
            (plugin.next(), plugin.next()),
            (Some(Component::Normal(_)), None)
        );
        let own_directory = Path::new(PLUGIN_DIR).join(self.plugin);
        match Path::new(self.socket).strip_prefix(own_directory) {
            Ok(inside) if is_one_name && is_plain(inside) && !inside.as_os_str().is_empty() => {
                Ok(self.plugins_directory().join(self.plugin).join(inside))
            }
            _ => Err(self.outside()),
        }
    }

    async fn wait_for(&self, path: &Path) -> Result<(), SidecarError> {
        let start = Instant::now();
        let deadline = self.deadline.min(self.ready_by);
        let socket = self.socket.to_owned();
        match timeout_at(deadline, inotify::appears(path)).await {
            Ok(()) => Ok(()),
            Err(_) => Err(SidecarError::NotReady {
                socket,
                after: start.elapsed(),
            }),
        }
    }

    /// Refuses a symbolic link, which could lead to the socket of another plugin.
    fn check_links(&self, path: &Path) -> Result<(), SidecarError> {
        let inspect = |source| SidecarError::Inspect {
            socket: self.socket.to_owned(),
            source,
        };
        if fs::symlink_metadata(path).map_err(inspect)?.is_symlink() {
            return Err(SidecarError::Symlink {
                socket: self.socket.to_owned(),
            });
        }
        let own_directory = fs::canonicalize(self.plugins_directory())
            .map_err(inspect)?
            .join(self.plugin);
        let real_path = fs::canonicalize(path).map_err(inspect)?;
        if real_path.starts_with(&own_directory) {
            Ok(())
        } else {
            Err(self.outside())
        }
    }
}

/// The request of `GuestDefinition`, which `MutateDomain` takes too.
pub fn definition(domain: Bytes, vmi: Bytes, context: InvocationContext) -> GuestDefinitionRequest {
    GuestDefinitionRequest {
        domain_type: "libvirt".to_owned(),
        domain,
        vmi,
        sidecar_context: context.message(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call<'a>(root: &'a Path, plugin: &'a str, socket: &'a str) -> Socket<'a> {
        Socket {
            root,
            plugin,
            socket,
            timeout: None,
            ready_by: Instant::now(),
            deadline: Instant::now(),
        }
    }

    #[test]
    fn a_socket_has_to_be_in_the_plugins_own_directory() {
        let root = Path::new("/root");
        let good = call(root, "p", "/var/run/kubevirt-plugin/p/a.sock");
        assert_eq!(
            good.socket_path().unwrap(),
            Path::new("/root/var/run/kubevirt-plugin/p/a.sock")
        );
        for bad in [
            "/tmp/a.sock",
            "/var/run/kubevirt-plugin/q/a",
            "/var/run/kubevirt-plugin/p/../q/a",
            "/var/run/kubevirt-plugin/p",
            "a",
            "",
        ] {
            let error = call(root, "p", bad).socket_path().unwrap_err();
            assert!(error.to_string().contains("outside"), "{bad}");
        }
        for plugin in ["..", "", "p/q", "/p"] {
            let bad = call(root, plugin, "/var/run/kubevirt-plugin/../x");
            assert!(bad.socket_path().is_err(), "{plugin:?}");
        }
    }

    #[test]
    fn links_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("var/run/kubevirt-plugin");
        fs::create_dir_all(dir.join("p")).unwrap();
        fs::create_dir_all(dir.join("q")).unwrap();
        fs::write(dir.join("p/real"), "").unwrap();
        std::os::unix::fs::symlink("real", dir.join("p/link")).unwrap();
        std::os::unix::fs::symlink("../q", dir.join("p/elsewhere")).unwrap();
        fs::write(dir.join("q/a"), "").unwrap();
        let check = |name: &str| {
            let call = call(root.path(), "p", name);
            call.check_links(&dir.join("p").join(name))
                .map_err(|error| error.to_string())
        };
        check("real").unwrap();
        assert!(check("link").unwrap_err().contains("symlink"));
        assert!(check("elsewhere/a").unwrap_err().contains("outside"));
        assert!(check("missing").unwrap_err().contains("missing"));
    }
}
