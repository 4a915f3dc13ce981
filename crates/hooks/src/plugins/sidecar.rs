//! Calls the sidecars of plugins, on sockets in their plugins' directories: the services
//! `DomainHookService` and `LauncherHookService` of `kubevirt.hooks.plugins.v1alpha1`.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use api::pod_paths::PLUGIN_DIR;
use api::proto::hooks::plugins::domain_hook_service_client::DomainHookServiceClient;
use api::proto::hooks::plugins::launcher_hook_service_client::LauncherHookServiceClient;
use api::proto::hooks::plugins::{
    GuestDefinitionRequest, MutateDomainRequest, PreBootRequest, PreMigrationSourceRequest,
    PreMigrationSourceResponse, SidecarContext,
};
use os::inotify;
use prost::bytes::Bytes;
use tokio::time::{Instant, timeout_at};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::context::InvocationContext;
use super::error::SidecarError;
use super::point::LauncherHookPoint;
use crate::client::{self, MAX_ANSWER_BYTES};
use crate::error::CallError;

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
    /// Does not check the answer.
    // D-hook-6 (docs/differences.md).
    pub async fn mutate_domain(
        self,
        domain: Bytes,
        vmi: Bytes,
        context: InvocationContext,
    ) -> Result<Bytes, SidecarError> {
        let request = MutateDomainRequest {
            domain_type: "libvirt".to_owned(),
            domain,
            vmi,
            sidecar_context: sidecar_context(context),
        };
        let call = async |channel, request| {
            let client = DomainHookServiceClient::new(channel);
            let mut client = client.max_decoding_message_size(MAX_ANSWER_BYTES);
            client.mutate_domain(request).await
        };
        Ok(self.call("MutateDomain", request, call).await?.domain)
    }

    /// Does not check the answer.
    pub async fn guest_definition(
        self,
        domain: Bytes,
        vmi: Bytes,
        context: InvocationContext,
    ) -> Result<Bytes, SidecarError> {
        let request = GuestDefinitionRequest {
            domain_type: "libvirt".to_owned(),
            domain,
            vmi,
            sidecar_context: sidecar_context(context),
        };
        let call = async |channel, request| launcher_hooks(channel).guest_definition(request).await;
        let method = LauncherHookPoint::GuestDefinition.name();
        Ok(self.call(method, request, call).await?.domain)
    }

    pub async fn pre_boot(self, request: PreBootRequest) -> Result<(), SidecarError> {
        let call = async |channel, request| launcher_hooks(channel).pre_boot(request).await;
        let method = LauncherHookPoint::PreBoot.name();
        self.call(method, request, call).await.map(drop)
    }

    /// Does not check the answer.
    pub async fn pre_migration_source(
        self,
        request: PreMigrationSourceRequest,
    ) -> Result<PreMigrationSourceResponse, SidecarError> {
        let call =
            async |channel, request| launcher_hooks(channel).pre_migration_source(request).await;
        let method = LauncherHookPoint::PreMigrationSource.name();
        self.call(method, request, call).await
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

    /// Waits for the socket and makes the call.
    async fn call<Q, A>(
        self,
        method: &'static str,
        request: Q,
        call: impl AsyncFnOnce(Channel, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, SidecarError> {
        let path = self.ready().await?;
        let deadline = self.deadline.min(os::time::deadline(
            self.timeout.unwrap_or(PLUGIN_CALL_TIMEOUT),
        ));
        let answer = client::until_deadline(deadline, async {
            let channel = client::connect(&path).await?;
            let answer = call(channel, client::request(request, deadline)).await;
            answer
                .map(Response::into_inner)
                .map_err(|status| CallError::from_status(status, MAX_ANSWER_BYTES))
        });
        answer.await.map_err(|reason| SidecarError::Call {
            method,
            socket: self.socket.to_owned(),
            reason,
        })
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

fn sidecar_context(context: InvocationContext) -> Option<SidecarContext> {
    Some(SidecarContext {
        invocation_context: context.name().to_owned(),
    })
}

fn launcher_hooks(channel: Channel) -> LauncherHookServiceClient<Channel> {
    LauncherHookServiceClient::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES)
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
