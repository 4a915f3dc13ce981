//! Applies the plugins to a domain.

use std::path::PathBuf;
use std::sync::Arc;

use domain::xml::tree::Element;
use prost::bytes::Bytes;
use tokio::time::Instant;

use super::config::{DomainHook, Plugin};
use super::context::InvocationContext;
use super::error::{PluginError, PluginHookError};
use super::evaluator::{Evaluator, Input};
use super::sidecar::Call;
use crate::answer::AnswerError;
use crate::current_call::CurrentCall;
use crate::diff::Changes;
use crate::timeout::{end_of_calls, hook_call_deadline};
use crate::{answer, diff, work};

/// The plugins in the order in which they apply.
#[derive(Debug, Clone, Default)]
pub struct Pipeline {
    plugins: Vec<Plugin>,
    root: PathBuf,
    evaluator: Evaluator,
    current_call: CurrentCall,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    pub xml: String,
    /// Plugins that changed the domain, for libvirt's error about it.
    pub modified_by: Vec<String>,
}

impl Pipeline {
    /// Reads `pluginsJson` of the sync's options: a list of Plugin objects, empty text or `null`.
    ///
    /// # Errors
    /// [`PluginError::List`].
    pub fn from_json(list: &[u8]) -> Result<Self, PluginError> {
        if list.is_empty() {
            return Ok(Self::default());
        }
        let list: Option<Vec<Plugin>> = api::json::from_slice(list).map_err(PluginError::List)?;
        let mut plugins = list.unwrap_or_default();
        plugins.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        Ok(Self {
            plugins,
            root: PathBuf::from("/"),
            ..Self::default()
        })
    }

    /// Looks for the plugins' sockets below the directory `root`.
    #[must_use]
    pub fn rooted(mut self, root: PathBuf) -> Self {
        self.root = root;
        self
    }

    /// Notes there which plugin is asked.
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

    /// Applies all plugins to the domain XML. Without plugins it stays as it is, byte for byte.
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
            return Ok(Applied {
                xml,
                modified_by: Vec::new(),
            });
        }
        let parse = move || Element::parse(&xml).map_err(PluginError::Domain);
        let domain = work::until(deadline, parse).await??;
        let mut run = Run {
            input: Input {
                domain: Arc::new(domain),
                vmi: vmi_json.clone(),
            },
            context,
            deadline,
            pipeline: self,
            modified_by: Vec::new(),
        };
        for plugin in &self.plugins {
            run.apply_plugin(plugin).await?;
        }
        let domain = run.input.domain;
        let xml = work::until(deadline, move || domain.to_xml()).await?;
        Ok(Applied {
            xml,
            modified_by: run.modified_by,
        })
    }
}

/// The domain on its way through the plugins.
struct Run<'a> {
    pipeline: &'a Pipeline,
    input: Input,
    context: InvocationContext,
    deadline: Instant,
    modified_by: Vec<String>,
}

impl Run<'_> {
    async fn apply_plugin(&mut self, plugin: &Plugin) -> Result<(), PluginError> {
        let name = &plugin.metadata.name;
        if !self
            .holds(name, None, plugin.spec.condition.as_deref())
            .await?
        {
            tracing::info!(plugin = name, "A plugin is skipped: its condition is false");
            return Ok(());
        }
        for (number, hook) in plugin.spec.domain_hooks.iter().flatten().enumerate() {
            if !self
                .holds(name, Some(number), hook.condition.as_deref())
                .await?
            {
                continue;
            }
            let start = Instant::now();
            match self.call(name, hook).await {
                Ok((domain, changes)) => self.record(name, number, start, domain, &changes),
                Err(error) if hook.ignores_failure(plugin) => {
                    let reason = os::logging::chain(&error);
                    tracing::warn!(
                        plugin = name,
                        hook = number,
                        reason,
                        "A plugin's hook failed; its failure strategy is Ignore"
                    );
                }
                Err(reason) => {
                    return Err(PluginError::Hook {
                        plugin: name.clone(),
                        hook: number,
                        reason: Box::new(reason),
                    });
                }
            }
        }
        Ok(())
    }

    /// Whether the condition is true. A missing condition counts as true.
    async fn holds(
        &self,
        plugin: &str,
        hook: Option<usize>,
        condition: Option<&str>,
    ) -> Result<bool, PluginError> {
        let Some(condition) = condition.filter(|text| !text.is_empty()) else {
            return Ok(true);
        };
        let evaluator = &self.pipeline.evaluator;
        let deadline = hook_call_deadline(self.deadline);
        let holds = evaluator.condition(condition, &self.input, deadline);
        holds.await.map_err(|reason| PluginError::Condition {
            plugin: plugin.to_owned(),
            hook,
            reason: Box::new(reason),
        })
    }

    /// Runs the hook. Returns the domain and the changes.
    async fn call(&self, plugin: &str, hook: &DomainHook) -> Result<Checked, PluginHookError> {
        let _waiting = self.pipeline.current_call.begin(format!("plugin {plugin}"));
        let before = Arc::clone(&self.input.domain);
        let deadline = end_of_calls(self.deadline);
        if let Some(cel) = &hook.cel {
            let evaluator = &self.pipeline.evaluator;
            let deadline = hook_call_deadline(self.deadline);
            let answer = evaluator.mutation(&cel.expression, &self.input, deadline);
            let answer = answer.await?;
            // The result is checked like a sidecar's answer.
            return Ok(work::until(deadline, move || check(&before, &answer)).await??);
        }
        let Some(sidecar) = &hook.sidecar else {
            return Ok((before, Changes::default()));
        };
        let timeout = hook.timeout()?;
        let write = move || (Bytes::from(before.to_xml()), before);
        let (domain_xml, before) = work::until(deadline, write).await?;
        let call = Call {
            root: &self.pipeline.root,
            plugin,
            socket: &sidecar.socket_path,
            timeout,
            domain_xml,
            vmi: self.input.vmi.clone(),
            context: self.context,
            deadline,
        };
        let answer = call.mutate_domain().await?;
        Ok(work::until(deadline, move || check(&before, &answer)).await??)
    }

    /// Logs the hook's changes and passes the domain on.
    fn record(
        &mut self,
        plugin: &str,
        hook: usize,
        start: Instant,
        domain: Arc<Element>,
        changes: &Changes,
    ) {
        tracing::info!(
            plugin,
            hook,
            milliseconds = os::time::milliseconds(start.elapsed()),
            changes = changes.list.len(),
            changed = diff::summary(changes),
            "A plugin's hook has run"
        );
        let is_listed = self.modified_by.last().is_some_and(|last| last == plugin);
        if !changes.is_empty() && !is_listed {
            self.modified_by.push(plugin.to_owned());
        }
        self.input.domain = domain;
    }
}

/// An accepted domain and its changes.
type Checked = (Arc<Element>, Changes);

fn check(before: &Element, answer: &[u8]) -> Result<Checked, AnswerError> {
    let domain = answer::check(before, answer)?.tree;
    let changes = diff::diff(before, &domain);
    Ok((Arc::new(domain), changes))
}
