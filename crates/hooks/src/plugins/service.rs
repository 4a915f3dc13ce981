//! Domain hooks in a sidecar of a plugin: `kubevirt.hooks.plugins.v1alpha1.DomainHookService`.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use prost::bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::InvocationContext;
use crate::client::{self, MAX_ANSWER_BYTES};
use crate::error::CallError;
use crate::timeout::display_duration;
use api::proto::hooks::plugins::domain_hook_service_client::DomainHookServiceClient;
use api::proto::hooks::plugins::{MutateDomainRequest, SidecarContext};
use os::fs_events;

/// Where the sockets of plugins are.
const BASE: &str = api::pod_paths::PLUGIN_DIR;
/// How long a socket is waited for.
const READY: Duration = Duration::from_secs(30);
/// How long a call may take where the hook does not say.
const CALL: Duration = Duration::from_secs(30);

/// A call to make.
#[derive(Debug)]
pub struct Request<'a> {
    /// The pod's root directory.
    pub root: &'a Path,
    /// The plugin's name, which is also that of its directory.
    pub plugin: &'a str,
    /// The socket, as a path of the pod.
    pub socket: &'a str,
    /// How long the call may take, if the hook says so.
    pub timeout: Option<Duration>,
    /// The domain.
    pub xml: Bytes,
    /// The virtual machine instance.
    pub vmi: Bytes,
    /// Why the hook is called.
    pub context: InvocationContext,
    /// When the whole request must be over.
    pub until: Instant,
}

/// Makes the call.
///
/// # Errors
/// Why there is no answer.
pub async fn mutate(request: Request<'_>) -> Result<Bytes, String> {
    let path = socket_path(request.root, request.plugin, request.socket)?;
    let start = Instant::now();
    match timeout_at(
        request.until.min(os::time::deadline(READY)),
        fs_events::appears(&path),
    )
    .await
    {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            return Err(format!(
                "sidecar socket {} not ready: {error}",
                request.socket
            ));
        }
        Err(_) => {
            return Err(format!(
                "sidecar socket {} not ready after {}",
                request.socket,
                display_duration(start.elapsed())
            ));
        }
    }
    safe(request.root, request.plugin, request.socket, &path)?;
    let until = request
        .until
        .min(os::time::deadline(request.timeout.unwrap_or(CALL)));
    let message = MutateDomainRequest {
        domain_type: "libvirt".to_owned(),
        domain: request.xml,
        vmi: request.vmi,
        sidecar_context: Some(SidecarContext {
            invocation_context: request.context.name().to_owned(),
        }),
    };
    let answer = client::until_deadline(until, async {
        let mut client = DomainHookServiceClient::new(client::connect(&path).await?)
            .max_decoding_message_size(MAX_ANSWER_BYTES);
        let answer = client
            .mutate_domain(client::request(message, until))
            .await
            .map_err(|status| CallError::from_status(status, MAX_ANSWER_BYTES))?;
        Ok(answer.into_inner().domain)
    });
    answer
        .await
        .map_err(|error| format!("MutateDomain on {}: {error}", request.socket))
}

/// The socket's path below `root`. It must be inside the plugin's own directory.
fn socket_path(root: &Path, plugin: &str, socket: &str) -> Result<PathBuf, String> {
    let inside = Path::new(socket)
        .strip_prefix(format!("{BASE}/{plugin}"))
        .ok()
        .filter(|rest| !rest.as_os_str().is_empty());
    let plain = |path: &Path| {
        path.components()
            .all(|part| matches!(part, Component::Normal(_)))
    };
    match inside {
        Some(rest)
            if plain(rest)
                && plain(Path::new(plugin))
                && !plugin.contains('/')
                && !plugin.is_empty() =>
        {
            Ok(root
                .join(BASE.trim_start_matches('/'))
                .join(plugin)
                .join(rest))
        }
        _ => Err(format!(
            "socket path {socket:?} is outside {BASE}/{plugin}/"
        )),
    }
}

/// A link could lead to the socket of somebody else.
fn safe(root: &Path, plugin: &str, socket: &str, path: &Path) -> Result<(), String> {
    let unknown = |error: std::io::Error| format!("socket path {socket:?}: {error}");
    if fs::symlink_metadata(path).map_err(unknown)?.is_symlink() {
        return Err(format!(
            "socket path {socket:?} is a symlink, which is not allowed"
        ));
    }
    let directory = fs::canonicalize(root.join(BASE.trim_start_matches('/')))
        .map_err(unknown)?
        .join(plugin);
    let real = fs::canonicalize(path).map_err(unknown)?;
    if real.starts_with(&directory) {
        Ok(())
    } else {
        Err(format!(
            "socket path {socket:?} leads outside {BASE}/{plugin}/"
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_socket_must_be_in_the_plugins_own_directory() {
        let root = Path::new("/root");
        let good = socket_path(root, "p", "/var/run/kubevirt-plugin/p/a.sock").unwrap();
        assert_eq!(good, Path::new("/root/var/run/kubevirt-plugin/p/a.sock"));
        for bad in [
            "/tmp/a.sock",
            "/var/run/kubevirt-plugin/q/a",
            "/var/run/kubevirt-plugin/p/../q/a",
            "/var/run/kubevirt-plugin/p",
            "a",
            "",
        ] {
            assert!(
                socket_path(root, "p", bad).unwrap_err().contains("outside"),
                "{bad}"
            );
        }
        assert!(socket_path(root, "..", "/var/run/kubevirt-plugin/../x").is_err());
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
        let safe = |name: &str| safe(root.path(), "p", name, &dir.join("p").join(name));
        safe("real").unwrap();
        assert!(safe("link").unwrap_err().contains("symlink"));
        assert!(safe("elsewhere/a").unwrap_err().contains("outside"));
        assert!(safe("missing").unwrap_err().contains("missing"));
    }
}
