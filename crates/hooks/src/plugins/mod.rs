//! KubeVirt Plugins in the launcher: hooks on the domain that a cluster's administrator declares,
//! as CEL expressions or as calls to a sidecar. virt-handler sends them in the options of a sync.
//!
//! ```text
//!  plugins by name ─► condition? ─► its hooks in order ─► condition? ─► CEL | sidecar ─► check ─► next
//! ```

mod cost;
mod expression;
mod merge;
mod native;
mod schema;
mod service;
mod udp;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prost::bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::timeout::hook_call_deadline;
use crate::{answer, diff};
use domain::xml::ReadError;
use domain::xml::tree::Element;
use expression::Input;

/// Why a hook is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvocationContext {
    /// The domain is about to start.
    Boot,
    /// It is about to leave this pod.
    MigrationSource,
    /// It is about to arrive in this pod.
    MigrationTarget,
}

impl InvocationContext {
    /// The name in the protocol.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Boot => "Boot",
            Self::MigrationSource => "MigrationSource",
            Self::MigrationTarget => "MigrationTarget",
        }
    }
}

/// Why the plugins could not be applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    /// The list that virt-handler sent.
    #[error("the list of plugins cannot be read")]
    List(#[source] serde_json::Error),
    /// The virtual machine instance.
    #[error("the virtual machine instance cannot be read for the plugins")]
    Vmi(#[source] serde_json::Error),
    /// The domain that the first plugin should get.
    #[error("the domain cannot be given to the plugins")]
    Domain(#[source] ReadError),
    /// A condition; it counts whatever the failure strategy is.
    #[error("plugin {plugin}{} condition evaluation failed: {reason}", hook.map(|n| format!(" hook {n}")).unwrap_or_default())]
    Condition {
        /// The plugin's name.
        plugin: String,
        /// The number of the hook, from 0; none for the plugin's own condition.
        hook: Option<usize>,
        /// What went wrong.
        reason: String,
    },
    /// A hook whose failure strategy is `Fail`.
    #[error("plugin {plugin} hook {hook} failed: {reason}")]
    Hook {
        /// The plugin's name.
        plugin: String,
        /// The number of the hook, from 0.
        hook: usize,
        /// What went wrong.
        reason: String,
    },
}

/// The plugins, in the order in which they apply.
#[derive(Debug, Clone, Default)]
pub struct Pipeline {
    plugins: Vec<Plugin>,
    root: PathBuf,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Plugin {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    condition: Option<String>,
    failure_strategy: Option<String>,
    domain_hooks: Option<Vec<DomainHook>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DomainHook {
    cel: Option<Cel>,
    sidecar: Option<Sidecar>,
    condition: Option<String>,
    failure_strategy: Option<String>,
    timeout: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Cel {
    expression: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Sidecar {
    socket_path: String,
}

impl Pipeline {
    /// The plugins of the sync options' `pluginsJson`: a list of Plugin objects; nothing and `null`
    /// are no plugins. They apply in the order of their names.
    ///
    /// # Errors
    /// [`PluginError::List`].
    pub fn from_json(list: &[u8]) -> Result<Self, PluginError> {
        if list.is_empty() {
            return Ok(Self::default());
        }
        let mut plugins: Vec<Plugin> = serde_json::from_slice::<Option<_>>(list)
            .map_err(PluginError::List)?
            .unwrap_or_default();
        plugins.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        Ok(Self {
            plugins,
            root: PathBuf::from("/"),
        })
    }

    /// With the sockets of plugins below `root`.
    #[must_use]
    pub fn rooted(mut self, root: PathBuf) -> Self {
        self.root = root;
        self
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.plugins.is_empty()
    }

    /// The domain as the plugins want it. Without plugins it comes back as it is.
    ///
    /// # Errors
    /// [`PluginError::Condition`], and [`PluginError::Hook`] for a hook whose failure counts.
    pub async fn apply(
        &self,
        xml: String,
        vmi_json: &Bytes,
        context: InvocationContext,
        deadline: Instant,
    ) -> Result<Applied, PluginError> {
        if self.plugins.is_empty() {
            return Ok(Applied {
                xml,
                touched: Vec::new(),
            });
        }
        let vmi: Arc<Value> = Arc::new(serde_json::from_slice(vmi_json).map_err(PluginError::Vmi)?);
        let domain = Arc::new(Element::parse(&xml).map_err(PluginError::Domain)?);
        let mut work = Work {
            input: Input { domain, vmi },
            vmi_json,
            context,
            deadline,
            root: &self.root,
            touched: Vec::new(),
        };
        for plugin in &self.plugins {
            if work
                .holds(plugin, None, plugin.spec.condition.as_deref())
                .await?
            {
                work.plugin(plugin).await?;
            } else {
                tracing::info!(
                    plugin = plugin.metadata.name,
                    "a plugin is left out: its condition does not hold"
                );
            }
        }
        Ok(Applied {
            xml: work.input.domain.to_xml(),
            touched: work.touched,
        })
    }
}

/// What became of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The document for libvirt.
    pub xml: String,
    /// The plugins that changed it, for the text of an error that libvirt then gives.
    pub touched: Vec<String>,
}

/// The domain on its way through the plugins.
struct Work<'a> {
    input: Input,
    vmi_json: &'a Bytes,
    context: InvocationContext,
    deadline: Instant,
    root: &'a std::path::Path,
    touched: Vec<String>,
}

impl Work<'_> {
    async fn plugin(&mut self, plugin: &Plugin) -> Result<(), PluginError> {
        let name = &plugin.metadata.name;
        for (number, hook) in plugin.spec.domain_hooks.iter().flatten().enumerate() {
            if !self
                .holds(plugin, Some(number), hook.condition.as_deref())
                .await?
            {
                continue;
            }
            let start = Instant::now();
            let changed = match self.hook(name, hook).await {
                Ok(changed) => changed,
                Err(reason) if ignores(plugin, hook) => {
                    tracing::warn!(
                        plugin = name,
                        hook = number,
                        reason,
                        "a plugin's hook failed, and its failure is to be ignored"
                    );
                    continue;
                }
                Err(reason) => {
                    return Err(PluginError::Hook {
                        plugin: name.clone(),
                        hook: number,
                        reason,
                    });
                }
            };
            let changes = diff::diff(&self.input.domain, &changed);
            let milliseconds = start.elapsed().as_millis();
            let shown = diff::summary(&changes);
            tracing::info!(
                plugin = name,
                hook = number,
                milliseconds,
                changes = changes.len(),
                changed = shown,
                "a plugin's hook has run"
            );
            if !changes.is_empty() && self.touched.last() != Some(name) {
                self.touched.push(name.clone());
            }
            self.input.domain = Arc::new(changed);
        }
        Ok(())
    }

    /// Whether a condition holds; none always does.
    async fn holds(
        &self,
        plugin: &Plugin,
        hook: Option<usize>,
        condition: Option<&str>,
    ) -> Result<bool, PluginError> {
        let Some(text) = condition.filter(|text| !text.is_empty()).map(str::to_owned) else {
            return Ok(true);
        };
        let failed = |reason| PluginError::Condition {
            plugin: plugin.metadata.name.clone(),
            hook,
            reason,
        };
        self.evaluate(move |input| expression::condition(&text, input))
            .await
            .map_err(failed)
    }

    async fn hook(&self, plugin: &str, hook: &DomainHook) -> Result<Element, String> {
        if let Some(cel) = &hook.cel {
            let text = cel.expression.clone();
            let changed = self
                .evaluate(move |input| expression::mutation(&text, input))
                .await?;
            answer::same_domain(&self.input.domain, &changed).map_err(|error| error.to_string())?;
            return Ok(changed);
        }
        let Some(sidecar) = &hook.sidecar else {
            return Ok(Element::clone(&self.input.domain));
        };
        let timeout = hook.timeout.as_deref().map(duration).transpose()?;
        let answer = service::mutate(service::Request {
            root: self.root,
            plugin,
            socket: &sidecar.socket_path,
            timeout,
            xml: Bytes::from(self.input.domain.to_xml()),
            vmi: self.vmi_json.clone(),
            context: self.context,
            until: hook_call_deadline(self.deadline),
        });
        Ok(answer::check(&self.input.domain, &answer.await?)
            .map_err(|error| error.to_string())?
            .tree)
    }

    /// Runs an expression in a thread of its own: one that takes long holds up nobody else, and a
    /// deep one has the stack that it needs.
    async fn evaluate<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Input) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let input = self.input.clone();
        let (start, until) = (Instant::now(), hook_call_deadline(self.deadline));
        let (sender, receiver) = oneshot::channel();
        // Where nobody waits any more there is nobody to tell.
        let run = move || {
            drop(
                sender.send(cost::limited(cost::LIMIT, until.into_std(), || {
                    work(&input)
                })),
            )
        };
        let thread = std::thread::Builder::new()
            .name("cel".to_owned())
            .stack_size(expression::STACK)
            .spawn(run);
        thread.map_err(|error| format!("no thread for the expression: {error}"))?;
        match timeout_at(until, receiver).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err("the expression could not be evaluated".to_owned()),
            Err(_) => Err(cost::too_slow(start.elapsed())),
        }
    }
}

/// The hook's own failure strategy, else the plugin's, else `Fail`.
fn ignores(plugin: &Plugin, hook: &DomainHook) -> bool {
    let given = |strategy: &Option<String>| strategy.clone().filter(|text| !text.is_empty());
    given(&hook.failure_strategy)
        .or_else(|| given(&plugin.spec.failure_strategy))
        .as_deref()
        == Some("Ignore")
}

/// A duration as Kubernetes writes it: `30s`, `1m30s`, `500ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text
        .parse::<jiff::SignedDuration>()
        .map_err(|error| error.to_string());
    parsed
        .and_then(|time| time.try_into().map_err(|_| "it is negative".to_owned()))
        .map_err(|error| format!("its timeout {text:?} is none: {error}"))
}

#[cfg(test)]
mod tests;
