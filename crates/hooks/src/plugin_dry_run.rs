//! Calls a plugin's sidecar without a launcher, at each of its hook points: `launcherctl hooks try
//! --plugin`.

use std::path::Path;
use std::time::Duration;

use domain::xml::tree::Element;
use prost::bytes::Bytes;
use serde::Serialize;
use tokio::process::Command;

use super::conformance::program::{Process, Protocol};
use super::diff::{self, Changes};
use super::dry_run::ProgramError;
use super::plugins::{
    LauncherHookPoint, PluginError, Trial, TrialPod, example_settings, is_unserved,
    settings_changes,
};

#[derive(Debug, Clone)]
pub struct PluginInput {
    /// The VMI's JSON as virt-handler sends it.
    pub vmi_json: Bytes,
    /// The domain XML made from the VMI.
    pub domain_xml: String,
    /// Its files get changed.
    pub pod: TrialPod,
}

/// What a plugin changes at a hook point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginChanges {
    pub point: LauncherHookPoint,
    pub changes: Vec<String>,
    /// Changes by a second call with the first result.
    pub again: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginDryRun {
    /// Path of the socket on which the plugin serves.
    pub plugin: String,
    /// The points that it serves.
    pub points: Vec<PluginChanges>,
    /// The domain XML that it returns.
    pub xml: String,
}

impl PluginDryRun {
    /// Whether no second call changes anything. A launcher calls a plugin again for a start that is
    /// repeated.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.points.iter().all(|point| point.again.is_empty())
    }

    /// The result for people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.plugin.clone()];
        if self.points.is_empty() {
            lines.push("  it serves no hook point of LauncherHookService".to_owned());
        }
        for PluginChanges {
            point,
            changes,
            again,
        } in &self.points
        {
            let nothing = if changes.is_empty() { " nothing" } else { "" };
            lines.push(format!("  {point} changes{nothing}"));
            lines.extend(changes.iter().map(|change| format!("    {change}")));
            if !again.is_empty() {
                lines.push(format!("  {point} is not idempotent; again it changes"));
                lines.extend(again.iter().map(|change| format!("    {change}")));
            }
        }
        lines
    }
}

/// Starts a program, calls it at each of its points as a launcher does and with its checks, and
/// again with the result, and kills it. The program makes its socket in [`TrialPod::socket_dir`].
/// `limit` applies to its start and to each call.
///
/// # Errors
/// [`ProgramError`]: also that with which a launcher would refuse the start or migration.
pub async fn dry_run_plugin_program(
    command: Command,
    input: PluginInput,
    limit: Duration,
) -> Result<PluginDryRun, ProgramError> {
    let mut process = Process::new(command, input.pod.socket_dir(), Protocol::Plugin);
    let started = process.start(limit).await;
    let sidecar = started.map_err(|error| ProgramError::Start(Box::new(error)))?;
    let tried = dry_run_plugin(&sidecar.socket, input, limit).await;
    process.kill().await;
    tried
}

/// Like [`dry_run_plugin_program`], with the socket of a sidecar that runs.
///
/// # Errors
/// [`ProgramError`].
pub async fn dry_run_plugin(
    socket: &Path,
    input: PluginInput,
    limit: Duration,
) -> Result<PluginDryRun, ProgramError> {
    let trial = Trial::of_socket(socket, input.vmi_json.clone(), limit);
    let trial = trial.ok_or_else(|| ProgramError::Place(socket.to_owned()))?;
    let mut run = PluginDryRun {
        plugin: socket.display().to_string(),
        points: Vec::new(),
        xml: input.domain_xml.clone(),
    };
    if let Some((xml, changes)) = served(definition(&trial, &input.domain_xml).await)? {
        run.points.push(changes);
        run.xml = xml;
    }
    let boot = served(boot(&trial, &input.pod).await)?;
    run.points.extend(boot);
    run.points.extend(served(migration(&trial).await)?);
    Ok(run)
}

/// `None` if the sidecar does not serve the hook point.
fn served<T>(result: Result<T, PluginError>) -> Result<Option<T>, ProgramError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_unserved(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn definition(trial: &Trial, xml: &str) -> Result<(String, PluginChanges), PluginError> {
    let first = trial.guest_definition(xml.to_owned()).await?;
    let second = trial.guest_definition(first.clone()).await?;
    let changes = |before: &str, after: &str| {
        let parse = |xml: &str| Element::parse(xml).map_err(PluginError::Domain);
        Ok::<_, PluginError>(list(&diff::diff(&parse(before)?, &parse(after)?)))
    };
    let changes = PluginChanges {
        point: LauncherHookPoint::GuestDefinition,
        changes: changes(xml, &first)?,
        again: changes(&first, &second)?,
    };
    Ok((first, changes))
}

fn list(changes: &Changes) -> Vec<String> {
    let shown = changes.list.iter().map(ToString::to_string);
    shown
        .chain(changes.more.then(|| "and more".to_owned()))
        .collect()
}

async fn boot(trial: &Trial, pod: &TrialPod) -> Result<PluginChanges, PluginError> {
    let text = |is_changed: bool| {
        let text = "the cloud-init image or the NVRAM";
        is_changed.then(|| text.to_owned()).into_iter().collect()
    };
    Ok(PluginChanges {
        point: LauncherHookPoint::PreBoot,
        changes: text(trial.pre_boot(pod.files()).await?),
        again: text(trial.pre_boot(pod.files()).await?),
    })
}

async fn migration(trial: &Trial) -> Result<PluginChanges, PluginError> {
    let given = example_settings();
    let first = trial.pre_migration_source(given.clone()).await?;
    let second = trial.pre_migration_source(first.clone()).await?;
    Ok(PluginChanges {
        point: LauncherHookPoint::PreMigrationSource,
        changes: settings_changes(&given, &first),
        again: settings_changes(&first, &second),
    })
}
