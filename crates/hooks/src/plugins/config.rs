//! The Plugin objects of a sync (`plugin.kubevirt.io/v1alpha1`,
//! <https://kubevirt.io/api-reference/>), with only the fields that a launcher reads.

use std::time::Duration;

use serde::Deserialize;

use super::point::LauncherHookPoint;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Plugin {
    pub metadata: PluginMetadata,
    pub spec: Spec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PluginMetadata {
    pub name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec {
    /// A CEL expression; the plugin applies if it is true.
    pub condition: Option<String>,
    /// The default failure strategy of the plugin's hooks.
    pub failure_strategy: FailureStrategy,
    /// The hooks in the order in which they run.
    pub domain_hooks: Option<Vec<Hook>>,
    /// The hooks of KubeVirt v1.10, which replace `domainHooks`. v1.9 does not have the field.
    pub launcher_hooks: Option<Vec<Hook>>,
}

impl Plugin {
    /// Whether a launcher hook of the plugin runs at the point, if the conditions hold.
    pub fn has(&self, point: LauncherHookPoint) -> bool {
        let mut hooks = self.spec.launcher_hooks.iter().flatten();
        hooks.any(|hook| hook.is_at(point))
    }
}

/// An item of `domainHooks` or `launcherHooks`: either `cel` or `sidecar`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Hook {
    pub cel: Option<Cel>,
    pub sidecar: Option<PluginSidecar>,
    /// A CEL expression; the hook runs if it is true.
    pub condition: Option<String>,
    /// See [`Hook::ignores_failure`].
    pub failure_strategy: FailureStrategy,
    /// Limit of a call to the sidecar, such as `30s`.
    pub timeout: Option<String>,
}

/// `failureStrategy`: whether a failed hook fails the start or migration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Option<String>")]
pub enum FailureStrategy {
    /// The strategy is absent or empty.
    #[default]
    Unset,
    /// The start fails. An unknown strategy means this too.
    Fail,
    Ignore,
}

impl From<Option<String>> for FailureStrategy {
    fn from(text: Option<String>) -> Self {
        match text.as_deref() {
            None | Some("") => Self::Unset,
            Some("Ignore") => Self::Ignore,
            Some(_) => Self::Fail,
        }
    }
}

/// `cel` of a hook: a mutation.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Cel {
    pub expression: String,
    /// The hook point of an expression in `launcherHooks`; missing in `domainHooks`.
    pub hook_point: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PluginSidecar {
    pub socket_path: String,
    /// The hook points of a sidecar in `launcherHooks`; missing in `domainHooks`.
    pub permitted_hooks: Option<Vec<String>>,
}

impl Hook {
    /// Whether this launcher hook runs at the point. Only `GuestDefinition` takes CEL. An unknown
    /// name in `permittedHooks` or `hookPoint` is ignored.
    pub fn is_at(&self, point: LauncherHookPoint) -> bool {
        match (&self.cel, &self.sidecar) {
            (Some(cel), _) => {
                point == LauncherHookPoint::GuestDefinition
                    && cel.hook_point.as_deref() == Some(point.name())
            }
            (None, Some(sidecar)) => {
                let mut permitted = sidecar.permitted_hooks.iter().flatten();
                permitted.any(|name| name == point.name())
            }
            (None, None) => false,
        }
    }

    /// Whether the start or migration goes on when the hook fails. The hook's strategy wins over
    /// the plugin's; the default is `Fail`.
    pub fn ignores_failure(&self, plugin: &Plugin) -> bool {
        let strategy = match self.failure_strategy {
            FailureStrategy::Unset => plugin.spec.failure_strategy,
            own => own,
        };
        strategy == FailureStrategy::Ignore
    }

    pub fn timeout(&self) -> Result<Option<Duration>, TimeoutError> {
        self.timeout.as_deref().map(parse_duration).transpose()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("invalid timeout {text:?}")]
pub struct TimeoutError {
    pub text: String,
    /// Why the text is not a duration, or that it is negative.
    #[source]
    pub reason: jiff::Error,
}

/// A duration as Kubernetes writes it: `30s`, `1m30s`, `500ms`.
fn parse_duration(text: &str) -> Result<Duration, TimeoutError> {
    let duration = text.parse::<jiff::SignedDuration>();
    duration
        .and_then(Duration::try_from)
        .map_err(|reason| TimeoutError {
            text: text.to_owned(),
            reason,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_kubernetes_writes_them() {
        for (text, milliseconds) in [
            ("30s", 30_000),
            ("1m30s", 90_000),
            ("1m0s", 60_000),
            ("500ms", 500),
            ("1.5s", 1_500),
            ("1h0m0s", 3_600_000),
            ("1500µs", 1),
            ("0s", 0),
        ] {
            let duration = parse_duration(text).unwrap();
            assert_eq!(duration.as_millis(), milliseconds, "{text}");
        }
        for wrong in ["-1s", "30", ""] {
            assert!(parse_duration(wrong).is_err(), "{wrong:?}");
        }
    }
}
