//! Converts a VMI for its start or its arrival from another node, and calls the hooks of sidecars
//! and plugins. Makes no files.

use std::sync::Arc;

use serde_json::Value;

use super::error::LauncherError;
use super::libvirt_domain::blocking;
use super::pod_backend::{ConvertFor, PodBackend};
use super::sync_request::SyncRequest;
use convert::Context;
use domain::DomainSpec;
use hooks::Sidecars;
use hooks::plugins::{InvocationContext, KnownPlugins, Pipeline};

/// A converted VMI.
pub(super) struct Converted {
    pub domain: DomainSpec,
    pub context: Context,
    /// The cloud-init data, as JSON with Go's field names, for sidecars.
    pub cloud_init: Option<Value>,
}

/// Converts VMIs and runs hooks.
pub(super) struct ConversionWithHooks {
    pub pod: Arc<dyn PodBackend>,
    pub sidecars: Arc<Sidecars>,
    /// The pod's root, for plugins.
    pub root: pod::Root,
    /// The plugins of the last sync.
    pub known_plugins: KnownPlugins,
}

impl ConversionWithHooks {
    pub async fn convert(
        &self,
        request: &SyncRequest,
        guest: ConvertFor,
    ) -> Result<Converted, LauncherError> {
        let pod = self.pod.clone();
        let (vmi, options) = (request.vmi.clone(), request.options.clone());
        blocking("converting the VMI", move || {
            let (domain, context) = pod.collect_and_convert(&vmi, &options, guest)?;
            Ok(Converted {
                domain,
                context,
                cloud_init: pod.cloud_init(&vmi)?,
            })
        })
        .await
    }

    /// Lets sidecars edit the cloud-init data.
    // D-hook-18 (docs/differences.md).
    pub async fn run_cloud_init_hooks(
        &self,
        request: &SyncRequest,
        data: Value,
    ) -> Result<Value, LauncherError> {
        let edited =
            self.sidecars
                .pre_cloud_init_iso(data, &request.vmi_json, request.hooks_deadline);
        Ok(edited.await?)
    }

    /// Lets sidecars and plugins edit the domain. Also returns the names of those that changed it.
    pub async fn run_define_hooks(
        &self,
        request: &SyncRequest,
        xml: String,
        hooks_context: InvocationContext,
    ) -> Result<(String, Vec<String>), LauncherError> {
        let (vmi_json, deadline) = (&request.vmi_json, request.hooks_deadline);
        let sidecars = self
            .sidecars
            .on_define_domain(xml, vmi_json, request.id, deadline);
        let by_sidecars = sidecars.await?;
        let plugins = self.in_pod(request.plugins.clone());
        let by_plugins = plugins.apply(by_sidecars.xml, vmi_json, hooks_context, deadline);
        let by_plugins = by_plugins.await?;
        let named =
            |kind, names: Vec<String>| names.into_iter().map(move |it| format!("{kind} {it}"));
        let sidecars = named("hook sidecar", by_sidecars.modified_by);
        let plugins = named("plugin", by_plugins.modified_by);
        Ok((by_plugins.xml, sidecars.chain(plugins).collect()))
    }

    /// The plugins of the last sync, for a call that comes without plugins.
    pub async fn last_plugins(&self) -> Result<Pipeline, LauncherError> {
        Ok(self.in_pod(self.known_plugins.last().await?))
    }

    /// The plugins, with their sockets in this pod.
    pub fn in_pod(&self, plugins: Pipeline) -> Pipeline {
        let plugins = plugins.rooted(self.root.dir().to_owned());
        plugins.noting(self.sidecars.current_call().clone())
    }
}
