//! Which hooks of the plugins run at a point, and what a failure of one means.

use tokio::time::Instant;

use super::config::{Hook, Plugin};
use super::error::{PluginError, PluginHookError, SidecarError};
use super::evaluator::{Evaluator, PluginInput};
use super::point::LauncherHookPoint;
use super::sidecar::SOCKET_TIMEOUT;
use crate::timeout::hook_call_deadline;

/// A hook that is to run.
#[derive(Debug, Clone, Copy)]
pub struct Selected<'a> {
    pub plugin: &'a Plugin,
    /// Index of the hook from 0.
    pub number: usize,
    pub hook: &'a Hook,
    /// `None` for a hook of v1.9, which has only one.
    pub point: Option<LauncherHookPoint>,
    /// When the socket of the hook's sidecar has to be there.
    pub ready_by: Instant,
}

impl Selected<'_> {
    pub fn name(&self) -> &str {
        &self.plugin.metadata.name
    }

    /// Logs the failure if the failure strategy is `Ignore`.
    ///
    /// # Errors
    /// [`PluginError::Hook`] otherwise.
    pub fn tolerate(&self, error: PluginHookError) -> Result<(), PluginError> {
        let error = match (self.point, error) {
            // This error names the point itself.
            (_, error @ PluginHookError::Sidecar(SidecarError::Call { .. })) => error,
            (Some(point), error) => PluginHookError::At(point, Box::new(error)),
            (None, error) => error,
        };
        if !self.hook.ignores_failure(self.plugin) {
            return Err(PluginError::Hook {
                plugin: self.name().to_owned(),
                hook: self.number,
                reason: Box::new(error),
            });
        }
        tracing::warn!(
            plugin = self.name(),
            hook = self.number,
            reason = os::logging::chain(&error),
            "A plugin's hook failed; its failure strategy is Ignore"
        );
        Ok(())
    }

    /// Logs that the hook has run, and what it changed.
    pub fn log(&self, start: Instant, changes: usize, changed: &str) {
        tracing::info!(
            plugin = self.name(),
            hook = self.number,
            point = self.point.map(LauncherHookPoint::name),
            milliseconds = os::time::milliseconds(start.elapsed()),
            changes,
            changed,
            "A plugin's hook has run"
        );
    }
}

/// Runs the CEL evaluator for the conditions of plugins and hooks.
pub struct Conditions<'a> {
    pub evaluator: &'a Evaluator,
    pub input: PluginInput,
    pub deadline: Instant,
}

impl Conditions<'_> {
    /// The launcher hooks at a point whose conditions hold, in calling order. No launcher hook of
    /// the point has run yet when the conditions are evaluated (KubeVirt's pull request 19160).
    ///
    /// # Errors
    /// [`PluginError::Condition`].
    pub async fn select<'p>(
        &self,
        plugins: &'p [Plugin],
        point: LauncherHookPoint,
    ) -> Result<Vec<Selected<'p>>, PluginError> {
        let mut selected = Vec::new();
        for plugin in plugins.iter().filter(|plugin| plugin.has(point)) {
            if !self.hold(plugin, None).await? {
                continue;
            }
            for (number, hook) in plugin.spec.launcher_hooks.iter().flatten().enumerate() {
                if hook.is_at(point) && self.hold(plugin, Some((number, hook))).await? {
                    selected.push((plugin, number, hook));
                }
            }
        }
        // All wait at once.
        let ready_by = os::time::deadline(SOCKET_TIMEOUT);
        let selected = selected.into_iter().map(|(plugin, number, hook)| Selected {
            plugin,
            number,
            hook,
            point: Some(point),
            ready_by,
        });
        Ok(selected.collect())
    }

    /// Whether the condition of the plugin, or of its hook, is true. A missing one counts as true.
    pub async fn hold(
        &self,
        plugin: &Plugin,
        hook: Option<(usize, &Hook)>,
    ) -> Result<bool, PluginError> {
        let name = &plugin.metadata.name;
        let condition = hook.map_or(&plugin.spec.condition, |(_, hook)| &hook.condition);
        let Some(condition) = condition.as_deref().filter(|text| !text.is_empty()) else {
            return Ok(true);
        };
        let deadline = hook_call_deadline(self.deadline);
        let holds = self.evaluator.condition(condition, &self.input, deadline);
        let holds = holds.await.map_err(|reason| PluginError::Condition {
            plugin: name.clone(),
            hook: hook.map(|(number, _)| number),
            reason: Box::new(reason),
        })?;
        if !holds && hook.is_none() {
            tracing::info!(plugin = name, "A plugin is skipped: its condition is false");
        }
        Ok(holds)
    }
}
