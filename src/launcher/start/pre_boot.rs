//! Lets plugins change the cloud-init image and the NVRAM of a domain that is defined and about to
//! start (`PreBoot`, VEP 190; KubeVirt v1.10).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use prost::bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::error::DomainStartError;
use crate::launcher::conversion::ConversionWithHooks;
use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::read_spec;
use crate::launcher::sync_request::SyncRequest;
use crate::launcher::vm::Job;
use api::pod_paths::{CONFIG_DRIVE_IMAGE, NO_CLOUD_IMAGE};
use domain::DomainSpec;
use hooks::plugins::{BootFile, BootFileKind, LauncherHookPoint, Pipeline};
use libvirt::{DomainHandle, XmlKind};

/// The plugins' hooks before the boot, and the files that they may change.
pub(super) struct PreBoot {
    plugins: Pipeline,
    vmi_json: Bytes,
    deadline: Instant,
    cloud_init_image: Option<PathBuf>,
    /// The path of the NVRAM that the VMI asks for.
    nvram: Option<String>,
    /// Held until the last of the files is dropped.
    turn: Arc<OwnedMutexGuard<()>>,
}

impl PreBoot {
    /// `None` if no plugin has such a hook. The paths are those of the domain as the launcher has
    /// made it: a hook that changes the domain's paths does not choose which files plugins get.
    pub fn new(
        conversion: &ConversionWithHooks,
        request: &SyncRequest,
        wanted: &DomainSpec,
        turn: Arc<OwnedMutexGuard<()>>,
    ) -> Option<Self> {
        if !request.plugins.has(LauncherHookPoint::PreBoot) {
            return None;
        }
        let disks = wanted.devices.disks.iter();
        let mut paths = disks.filter_map(|disk| disk.source.path().map(PathBuf::from));
        let is_image = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default();
            name == NO_CLOUD_IMAGE || name == CONFIG_DRIVE_IMAGE
        };
        Some(Self {
            plugins: conversion.in_pod(request.plugins.clone()),
            vmi_json: request.vmi_json.clone(),
            deadline: request.hooks_deadline,
            cloud_init_image: paths.find(is_image),
            nvram: wanted.os.nvram.as_ref().map(|nvram| nvram.nvram.clone()),
            turn,
        })
    }

    /// Calls the hooks. Returns the plugins that changed a file. Blocks, at most until the deadline
    /// of all hooks or until the start is cancelled.
    ///
    /// # Errors
    /// A plugin's: the domain must not start. [`DomainStartError::Killed`].
    pub fn run(self, domain: &DomainHandle, job: &Job) -> Result<Vec<String>, LauncherError> {
        let files = self.files(&read_spec(domain, XmlKind::Inactive)?);
        let xml = domain.xml(XmlKind::Inactive)?;
        let modified = Handle::current().block_on(async {
            let hooks = self
                .plugins
                .pre_boot(files, xml, &self.vmi_json, self.deadline);
            tokio::select! {
                modified = hooks => Ok(modified?),
                () = job.cancelled() => Err(LauncherError::from(DomainStartError::Killed)),
            }
        })?;
        let mut plugins: Vec<String> = modified.into_iter().map(|(plugin, _)| plugin).collect();
        plugins.dedup();
        Ok(plugins)
    }

    fn files(&self, defined: &DomainSpec) -> Vec<BootFile> {
        let claim = |kind, path, template| BootFile::claim(kind, path, template, self.turn.clone());
        let image = self.cloud_init_image.clone();
        let image = image.and_then(|path| claim(BootFileKind::CloudInitIso, path, None));
        let nvram = defined.os.nvram.as_ref();
        let nvram = nvram.filter(|nvram| Some(&nvram.nvram) == self.nvram.as_ref());
        let nvram = nvram.and_then(|nvram| {
            // libvirt makes a missing file from the template, as this does for the plugins.
            let template = Path::new(&nvram.template);
            let template = template.is_absolute().then(|| template.to_owned());
            claim(BootFileKind::Nvram, PathBuf::from(&nvram.nvram), template)
        });
        image.into_iter().chain(nvram).collect()
    }
}
