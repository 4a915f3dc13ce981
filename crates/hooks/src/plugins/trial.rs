//! Calls a plugin's sidecar without a launcher and a cluster, by the launcher's own code: for
//! `launcherctl hooks check` and `hooks try`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::pod_paths::PLUGIN_DIR;
use api::proto::hooks::plugins::{GuestDefinitionResponse, MigrationSettings};
use prost::bytes::Bytes;
use serde_json::json;
use tokio::time::Instant;
use tonic::Code;

use super::boot_files::{BootFile, BootFileKind};
use super::context::InvocationContext;
use super::error::{PluginError, PluginHookError, SidecarError};
use super::pipeline::Pipeline;
use super::point::LauncherHookPoint;
use super::sidecar::{Socket, definition};
use crate::error::CallError;

/// The plugin's name, where the caller does not say one.
const NAME: &str = "under-test";

/// A plugin's sidecar, below a directory that stands for the root of its pod.
#[derive(Debug, Clone)]
pub struct Trial {
    root: PathBuf,
    plugin: String,
    /// The socket's path in the pod.
    socket: String,
    vmi_json: Bytes,
    /// Limit of each call.
    limit: Duration,
}

/// A directory that stands for the root of a plugin's pod, and the files of its guest.
#[derive(Debug, Clone)]
pub struct TrialPod {
    root: PathBuf,
    /// Copies, which the plugin may change.
    files: Vec<(BootFileKind, PathBuf)>,
}

impl TrialPod {
    /// Fills the empty directory `root`. The NVRAM is a firmware's template, if this machine has
    /// one.
    ///
    /// # Errors
    /// A directory or file cannot be made.
    pub fn new(root: &Path, cloud_init_image: Option<PathBuf>) -> io::Result<Self> {
        let pod = Self {
            root: root.to_owned(),
            files: Vec::new(),
        };
        fs::create_dir_all(pod.socket_dir())?;
        let image = cloud_init_image.map(|path| (BootFileKind::CloudInitIso, path));
        let nvram = BootFileKind::example_nvram().map(|path| (BootFileKind::Nvram, path));
        let mut files = Vec::new();
        for (kind, original) in image.into_iter().chain(nvram) {
            let copy = root.join(kind.file_name());
            fs::copy(original, &copy)?;
            files.push((kind, copy));
        }
        Ok(Self { files, ..pod })
    }

    /// Directory in which the plugin's program makes its socket.
    #[must_use]
    pub fn socket_dir(&self) -> PathBuf {
        self.root
            .join(PLUGIN_DIR.trim_start_matches('/'))
            .join(NAME)
    }

    /// The files as the plugin left them.
    pub(crate) fn files(&self) -> Vec<BootFile> {
        let files = self.files.iter().cloned();
        let files = files.map(|(kind, path)| BootFile::find(kind, path, None));
        files.flatten().collect()
    }
}

impl Trial {
    /// The plugin whose socket is in a directory like that of a pod:
    /// `…/var/run/kubevirt-plugin/<plugin>/<socket>`. `None` for another path.
    #[must_use]
    pub fn of_socket(path: &Path, vmi_json: Bytes, limit: Duration) -> Option<Self> {
        let text = path.to_str()?;
        let (root, rest) = text.split_once(PLUGIN_DIR)?;
        let (plugin, _) = rest.strip_prefix('/')?.split_once('/')?;
        Some(Self {
            root: Path::new("/").join(root),
            plugin: plugin.to_owned(),
            socket: format!("{PLUGIN_DIR}{rest}"),
            vmi_json,
            limit,
        })
    }

    /// Calls `GuestDefinition`. Returns the accepted domain XML.
    ///
    /// # Errors
    /// Why a launcher would refuse to start the virtual machine.
    pub async fn guest_definition(&self, xml: String) -> Result<String, PluginError> {
        let pipeline = self.pipeline(LauncherHookPoint::GuestDefinition)?;
        let (vmi, context) = (&self.vmi_json, InvocationContext::Boot);
        let applied = pipeline.apply(xml, vmi, context, self.deadline());
        Ok(applied.await?.xml)
    }

    /// Calls `PreBoot` with copies of the files, which then have what the plugin left. Returns the
    /// names of the changed ones.
    ///
    /// # Errors
    /// Why a launcher would refuse to start the virtual machine.
    pub async fn pre_boot(&self, files: Vec<BootFile>) -> Result<Vec<&'static str>, PluginError> {
        let pipeline = self.pipeline(LauncherHookPoint::PreBoot)?;
        let (xml, vmi) = ("<domain/>".to_owned(), &self.vmi_json);
        let modified_by = pipeline.pre_boot(files, xml, vmi, self.deadline());
        let files = modified_by.await?.into_iter();
        Ok(files.flat_map(|(_, names)| names).collect())
    }

    /// Calls `PreMigrationSource`. Returns the accepted settings.
    ///
    /// # Errors
    /// Why a launcher would not begin the migration.
    pub async fn pre_migration_source(
        &self,
        settings: MigrationSettings,
    ) -> Result<MigrationSettings, PluginError> {
        let pipeline = self.pipeline(LauncherHookPoint::PreMigrationSource)?;
        let (xml, vmi) = ("<domain/>".to_owned(), &self.vmi_json);
        let settings = pipeline.pre_migration_source(settings, xml, vmi, self.deadline());
        settings.await
    }

    /// Calls `GuestDefinition` with any text, and does not check the answer.
    pub(crate) async fn send(
        &self,
        domain: &str,
        vmi_json: Bytes,
        limit: Duration,
    ) -> Result<(), CallError> {
        let deadline = os::time::deadline(limit);
        let socket = Socket {
            root: &self.root,
            plugin: &self.plugin,
            socket: &self.socket,
            timeout: None,
            ready_by: deadline,
            deadline,
        };
        let domain = Bytes::copy_from_slice(domain.as_bytes());
        let request = definition(domain, vmi_json, InvocationContext::Boot);
        let point = Some(LauncherHookPoint::GuestDefinition);
        match socket
            .call::<_, GuestDefinitionResponse>(point, request)
            .await
        {
            Err(SidecarError::Call { reason, .. }) => Err(reason),
            // The socket was there for the calls before.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn deadline(&self) -> Instant {
        os::time::deadline(self.limit)
    }

    fn pipeline(&self, point: LauncherHookPoint) -> Result<Pipeline, PluginError> {
        let sidecar = json!({"socketPath": self.socket, "permittedHooks": [point.name()]});
        let hooks = json!({"launcherHooks": [{"sidecar": sidecar}]});
        let list = json!([{"metadata": {"name": self.plugin}, "spec": hooks}]);
        let pipeline = Pipeline::from_json(list.to_string().as_bytes())?;
        Ok(pipeline.rooted(self.root.clone()))
    }
}

/// Whether the sidecar does not serve the hook point.
#[must_use]
pub fn is_unserved(error: &PluginError) -> bool {
    let PluginError::Hook { reason, .. } = error else {
        return false;
    };
    let PluginHookError::Sidecar(SidecarError::Call { reason, .. }) = &**reason else {
        return false;
    };
    matches!(reason, CallError::Failed { code, .. } if *code == Code::Unimplemented)
}

/// Settings of a migration, as a launcher sends them for a guest whose disk is copied.
#[must_use]
pub fn example_settings() -> MigrationSettings {
    let flags = [
        "VIR_MIGRATE_LIVE",
        "VIR_MIGRATE_PEER2PEER",
        "VIR_MIGRATE_PERSIST_DEST",
        "VIR_MIGRATE_NON_SHARED_INC",
        "VIR_MIGRATE_AUTO_CONVERGE",
    ];
    MigrationSettings {
        flags: flags.map(str::to_owned).to_vec(),
        bandwidth: 64,
        migrate_disks: vec!["vda".to_owned()],
        ..MigrationSettings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_tells_the_plugin_and_the_root_of_its_pod() {
        let of = |path: &str| {
            let trial = Trial::of_socket(Path::new(path), Bytes::new(), Duration::ZERO)?;
            Some((trial.root, trial.plugin, trial.socket))
        };
        let socket = "/var/run/kubevirt-plugin/p/a/hook.sock".to_owned();
        let expected = |root: &str| Some((PathBuf::from(root), "p".to_owned(), socket.clone()));
        assert_eq!(of(&socket), expected("/"));
        assert_eq!(of(&format!("/tmp/x{socket}")), expected("/tmp/x"));
        assert_eq!(of("/tmp/hook.sock"), None);
        assert_eq!(of("/var/run/kubevirt-plugin/hook.sock"), None);
    }
}
