//! Applies the plugins to a domain.

use std::path::PathBuf;
use std::sync::Arc;

use api::proto::hooks::plugins::GuestDefinitionResponse;
use domain::xml::tree::Element;
use prost::bytes::Bytes;
use tokio::time::Instant;

use super::config::Plugin;
use super::context::InvocationContext;
use super::error::{PluginError, PluginHookError};
use super::evaluator::{Evaluator, PluginInput};
use super::point::LauncherHookPoint;
use super::selection::{Conditions, Selected};
use super::sidecar::{SOCKET_TIMEOUT, Socket, definition};
use crate::answer::AnswerError;
use crate::current_call::{CurrentCall, Waiting};
use crate::diff::Changes;
use crate::timeout::{end_of_calls, hook_call_deadline};
use crate::{answer, diff, work};

/// The plugins, sorted by name: the order in which they apply.
#[derive(Debug, Clone, Default)]
pub struct Pipeline {
    /// The list as virt-handler sent it, if it has a `PreMigrationSource` hook.
    json: Bytes,
    pub(super) plugins: Vec<Plugin>,
    root: PathBuf,
    pub(super) evaluator: Evaluator,
    current_call: CurrentCall,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    pub xml: String,
    /// Sidecars or plugins that changed the domain, for libvirt's error about it.
    pub modified_by: Vec<String>,
}

impl Pipeline {
    /// Reads `pluginsJson` of the sync's options: a list of Plugin objects, empty text or `null`.
    ///
    /// # Errors
    /// [`PluginError::List`].
    pub fn from_json(text: &[u8]) -> Result<Self, PluginError> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let list: Option<Vec<Plugin>> = api::json::from_slice(text).map_err(PluginError::List)?;
        let mut plugins = list.unwrap_or_default();
        plugins.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        let mut pipeline = Self {
            plugins,
            root: PathBuf::from("/"),
            ..Self::default()
        };
        if pipeline.has(LauncherHookPoint::PreMigrationSource) {
            pipeline.json = Bytes::copy_from_slice(text);
        }
        Ok(pipeline)
    }

    /// Whether a plugin has a launcher hook at the point. A virt-handler of v1.9 sends no launcher
    /// hooks.
    #[must_use]
    pub fn has(&self, point: LauncherHookPoint) -> bool {
        self.plugins.iter().any(|plugin| plugin.has(point))
    }

    /// The list of plugins as virt-handler sent it, for a launcher that takes over and may have to
    /// call `PreMigrationSource` before a sync. Empty if no plugin has that hook.
    #[must_use]
    pub fn json(&self) -> &Bytes {
        &self.json
    }

    /// Looks for the plugins' sockets below the directory `root`.
    #[must_use]
    pub fn rooted(mut self, root: PathBuf) -> Self {
        self.root = root;
        self
    }

    /// Notes in `current_call` which plugin is called.
    #[must_use]
    pub fn noting(mut self, current_call: CurrentCall) -> Self {
        self.current_call = current_call;
        self
    }

    /// Uses the program at `evaluator` in place of the `cel-evaluator` beside this program.
    #[must_use]
    pub fn evaluated_by(mut self, evaluator: PathBuf) -> Self {
        self.evaluator = Evaluator(evaluator);
        self
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.plugins.is_empty()
    }

    /// Notes that the hook is being called.
    pub(super) fn begin(&self, selected: Selected<'_>) -> Waiting {
        self.current_call
            .begin(format!("plugin {}", selected.name()))
    }

    /// The socket of the hook's sidecar, if it has one. All hooks end by the deadline.
    ///
    /// # Errors
    /// [`PluginHookError::Timeout`].
    pub(super) fn socket<'s>(
        &'s self,
        selected: Selected<'s>,
        deadline: Instant,
    ) -> Result<Option<Socket<'s>>, PluginHookError> {
        let Some(sidecar) = &selected.hook.sidecar else {
            return Ok(None);
        };
        Ok(Some(Socket {
            root: &self.root,
            plugin: &selected.plugin.metadata.name,
            socket: &sidecar.socket_path,
            timeout: selected.hook.timeout()?,
            ready_by: selected.ready_by,
            deadline: end_of_calls(deadline),
        }))
    }

    /// The launcher hooks at a point that run for this domain and VMI.
    ///
    /// # Errors
    /// [`PluginError::Condition`], [`PluginError::Domain`], [`PluginError::Work`].
    pub(super) async fn select(
        &self,
        point: LauncherHookPoint,
        xml: String,
        vmi: &Bytes,
        deadline: Instant,
    ) -> Result<Vec<Selected<'_>>, PluginError> {
        let conditions = self.conditions(xml, vmi, deadline).await?;
        conditions.select(&self.plugins, point).await
    }

    async fn conditions(
        &self,
        xml: String,
        vmi: &Bytes,
        deadline: Instant,
    ) -> Result<Conditions<'_>, PluginError> {
        let parse = move || Element::parse(&xml).map_err(PluginError::Domain);
        let domain = Arc::new(work::until(deadline, parse).await??);
        let vmi = vmi.clone();
        Ok(Conditions {
            evaluator: &self.evaluator,
            input: PluginInput { domain, vmi },
            deadline,
        })
    }

    /// Applies all plugins to the domain XML: the `domainHooks` of all, then `GuestDefinition` of
    /// their `launcherHooks`. Without plugins it stays as it is, byte for byte.
    ///
    /// # Errors
    /// [`PluginError::Condition`]; [`PluginError::Hook`] unless the failure strategy is `Ignore`.
    pub async fn apply(
        &self,
        xml: String,
        vmi_json: &Bytes,
        context: InvocationContext,
        deadline: Instant,
    ) -> Result<Applied, PluginError> {
        if self.plugins.is_empty() {
            let modified_by = Vec::new();
            return Ok(Applied { xml, modified_by });
        }
        let mut run = Run {
            conditions: self.conditions(xml, vmi_json, deadline).await?,
            context,
            pipeline: self,
            modified_by: Vec::new(),
        };
        for plugin in &self.plugins {
            run.apply_plugin(plugin).await?;
        }
        let point = LauncherHookPoint::GuestDefinition;
        for hook in run.conditions.select(&self.plugins, point).await? {
            run.apply_hook(hook).await?;
        }
        let domain = run.conditions.input.domain;
        let xml = work::until(deadline, move || domain.to_xml()).await?;
        let modified_by = run.modified_by;
        Ok(Applied { xml, modified_by })
    }
}

/// The domain on its way through the plugins.
struct Run<'a> {
    pipeline: &'a Pipeline,
    conditions: Conditions<'a>,
    context: InvocationContext,
    modified_by: Vec<String>,
}

impl Run<'_> {
    /// Runs the plugin's domain hooks (KubeVirt v1.9).
    async fn apply_plugin(&mut self, plugin: &Plugin) -> Result<(), PluginError> {
        if !self.conditions.hold(plugin, None).await? {
            return Ok(());
        }
        for (number, hook) in plugin.spec.domain_hooks.iter().flatten().enumerate() {
            if self.conditions.hold(plugin, Some((number, hook))).await? {
                self.apply_hook(Selected {
                    plugin,
                    number,
                    hook,
                    point: None,
                    ready_by: os::time::deadline(SOCKET_TIMEOUT),
                })
                .await?;
            }
        }
        Ok(())
    }

    async fn apply_hook(&mut self, selected: Selected<'_>) -> Result<(), PluginError> {
        let start = Instant::now();
        match self.call(selected).await {
            Ok((domain, changes)) => {
                selected.log(start, changes.list.len(), &diff::summary(&changes));
                if !changes.is_empty() {
                    add_once(&mut self.modified_by, selected.name());
                }
                self.conditions.input.domain = domain;
                Ok(())
            }
            Err(error) => selected.tolerate(error),
        }
    }

    /// Runs the hook. Returns the domain and the changes.
    async fn call(&self, selected: Selected<'_>) -> Result<Checked, PluginHookError> {
        let _waiting = self.pipeline.begin(selected);
        let Conditions {
            evaluator,
            input,
            deadline,
        } = &self.conditions;
        let before = Arc::clone(&input.domain);
        let end = end_of_calls(*deadline);
        if let Some(cel) = &selected.hook.cel {
            let deadline = hook_call_deadline(*deadline);
            let answer = evaluator.mutation(&cel.expression, input, deadline);
            let answer = answer.await?;
            // The result is checked like a sidecar's answer.
            return Ok(work::until(end, move || check(&before, &answer)).await??);
        }
        let Some(socket) = self.pipeline.socket(selected, *deadline)? else {
            return Ok((before, Changes::default()));
        };
        let write = move || (Bytes::from(before.to_xml()), before);
        let (domain, before) = work::until(end, write).await?;
        let request = definition(domain, input.vmi.clone(), self.context);
        let answer: GuestDefinitionResponse = socket.call(selected.point, request).await?;
        Ok(work::until(end, move || check(&before, &answer.domain)).await??)
    }
}

/// Adds a plugin's name, if it is not the last one.
fn add_once(names: &mut Vec<String>, name: &str) {
    if names.last().is_none_or(|last| last != name) {
        names.push(name.to_owned());
    }
}

/// An accepted domain and its changes.
type Checked = (Arc<Element>, Changes);

fn check(before: &Element, answer: &[u8]) -> Result<Checked, AnswerError> {
    let domain = answer::check(before, answer)?.tree;
    let changes = diff::diff(before, &domain);
    Ok((Arc::new(domain), changes))
}
