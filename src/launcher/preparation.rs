//! Prepares a domain for its start or its arrival from another node: converts the VMI, and calls
//! the hooks of sidecars and plugins.

use std::sync::Arc;

use serde_json::Value;

use super::error::LauncherError;
use super::known_plugins::KnownPlugins;
use super::libvirt_domain::blocking;
use super::pod_backend::PodBackend;
use super::sync_request::SyncRequest;
use convert::Context;
use domain::DomainSpec;
use hooks::Sidecars;
use hooks::plugins::{InvocationContext, Pipeline};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The domain is defined and started.
    Start,
    /// The domain arrives from another node, which sends its definition.
    MigrationTarget,
}

/// A converted VMI.
pub(super) struct Converted {
    pub domain: DomainSpec,
    pub context: Context,
    /// The cloud-init data, as JSON with Go's field names, for sidecars.
    pub cloud_init: Option<Value>,
}

/// Converts VMIs and runs hooks.
pub(super) struct Preparation {
    pub pod: Arc<dyn PodBackend>,
    pub sidecars: Arc<Sidecars>,
    /// The pod's root, for plugins.
    pub root: pod::Root,
    /// The plugins of the last sync.
    pub known_plugins: KnownPlugins,
}

impl Preparation {
    pub async fn convert(
        &self,
        request: &SyncRequest,
        purpose: Purpose,
    ) -> Result<Converted, LauncherError> {
        let pod = self.pod.clone();
        let (vmi, options) = (request.vmi.clone(), request.options.clone());
        blocking("converting the VMI", move || {
            let (domain, context) = match purpose {
                Purpose::Start => pod.wanted(&vmi, &options)?,
                Purpose::MigrationTarget => pod.wanted_on_target(&vmi, &options)?,
            };
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
        purpose: Purpose,
    ) -> Result<(String, Vec<String>), LauncherError> {
        let hooks = self
            .sidecars
            .on_define_domain(xml, &request.vmi_json, request.hooks_deadline);
        let xml = hooks.await?;
        let touched = self.sidecars.modified_by();
        let modified_by = touched
            .iter()
            .map(|sidecar| format!("hook sidecar {sidecar}"));
        let plugins = self.in_pod(request.plugins.clone());
        let context = match purpose {
            Purpose::Start => InvocationContext::Boot,
            Purpose::MigrationTarget => InvocationContext::MigrationTarget,
        };
        let applied = plugins
            .apply(xml, &request.vmi_json, context, request.hooks_deadline)
            .await?;
        let plugins = applied
            .modified_by
            .iter()
            .map(|plugin| format!("plugin {plugin}"));
        Ok((applied.xml, modified_by.chain(plugins).collect()))
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
