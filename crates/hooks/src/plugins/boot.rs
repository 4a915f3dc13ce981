//! `PreBoot`: plugins may change the cloud-init image and the NVRAM of a guest that is defined and
//! about to start.

use std::path::Path;

use api::proto::hooks::plugins::{PreBootRequest, PreBootResponse};
use prost::bytes::Bytes;
use tokio::time::Instant;

use super::boot_files::{self, BootFile, BootFileKind};
use super::context::InvocationContext;
use super::error::{PluginError, PluginHookError};
use super::pipeline::Pipeline;
use super::point::LauncherHookPoint;
use super::selection::Selected;
use crate::work;

impl Pipeline {
    /// Calls the `PreBoot` hooks, each with the files that the one before left, and puts changed
    /// files in their places once all have answered. Returns each plugin that changed a file, with
    /// the names of its files.
    ///
    /// # Errors
    /// [`PluginError::Condition`]; [`PluginError::Hook`] unless the failure strategy is `Ignore`.
    /// No file is changed then. [`PluginError::BootFiles`]. [`PluginError::Work`]: the last step
    /// may still change files.
    pub async fn pre_boot(
        &self,
        mut files: Vec<BootFile>,
        xml: String,
        vmi_json: &Bytes,
        deadline: Instant,
    ) -> Result<Vec<(String, Vec<&'static str>)>, PluginError> {
        let point = LauncherHookPoint::PreBoot;
        let mut modified_by = Vec::new();
        for hook in self.select(point, xml, vmi_json, deadline).await? {
            let start = Instant::now();
            let (left, result) = self.edit_files(hook, files, vmi_json, deadline).await?;
            files = left;
            match result {
                Ok(changed) => {
                    hook.log(start, changed.len(), &changed.join(", "));
                    if !changed.is_empty() {
                        modified_by.push((hook.name().to_owned(), changed));
                    }
                }
                Err(error) => hook.tolerate(error)?,
            }
        }
        let commit = move || boot_files::commit(files).map_err(PluginError::BootFiles);
        work::until(deadline, commit).await??;
        Ok(modified_by)
    }

    /// Calls one hook. Returns the files, and which of them it changed.
    ///
    /// # Errors
    /// [`PluginError::Work`]: the files are lost.
    async fn edit_files(
        &self,
        hook: Selected<'_>,
        files: Vec<BootFile>,
        vmi_json: &Bytes,
        deadline: Instant,
    ) -> Result<(Vec<BootFile>, Changed), PluginError> {
        let _waiting = self.begin(hook);
        let socket = match self.socket(hook, deadline) {
            Ok(Some(socket)) => socket,
            Ok(None) => return Ok((files, Ok(Vec::new()))),
            Err(error) => return Ok((files, Err(error))),
        };
        if let Err(error) = socket.ready().await {
            return Ok((files, Err(error.into())));
        }
        let directory = socket.plugin_directory();
        let give = move || (boot_files::give(&files, &directory), files);
        let (copies, mut files) = work::until(deadline, give).await?;
        let copies = match copies {
            Ok(copies) => copies,
            Err(error) => return Ok((files, Err(error.into()))),
        };
        let request = request(&files, &copies.path, vmi_json);
        let called = socket.call(hook.point, request).await;
        let take = move || {
            let taken = match called {
                Ok(PreBootResponse {}) => {
                    boot_files::take(&mut files, &copies).map_err(PluginHookError::from)
                }
                Err(error) => Err(error.into()),
            };
            drop(copies);
            (files, taken)
        };
        Ok(work::until(deadline, take).await?)
    }
}

/// The names of the changed files.
type Changed = Result<Vec<&'static str>, PluginHookError>;

/// The request to a hook. Its copies of `files` are in the directory `copies`.
fn request(files: &[BootFile], copies: &Path, vmi_json: &Bytes) -> PreBootRequest {
    let path = |kind| {
        let mut found = files.iter().filter(|file| file.kind() == kind);
        let name = found.next().map(|file| file.kind().file_name());
        name.map_or_else(String::new, |name| copies.join(name).display().to_string())
    };
    PreBootRequest {
        vmi: vmi_json.clone(),
        sidecar_context: InvocationContext::Boot.message(),
        cloud_init_iso: path(BootFileKind::CloudInitIso),
        nvram: path(BootFileKind::Nvram),
    }
}
