//! Calls a plugin's sidecar without a launcher, at each of its hook points: `launcherctl hooks try
//! --plugin`.

use std::path::Path;
use std::time::Duration;

use domain::xml::tree::Element;
use prost::bytes::Bytes;
use serde::Serialize;
use tokio::process::Command;

use super::conformance::Failure;
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
    /// Why a launcher would refuse the start or the migration; no changes then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
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
    /// Whether it serves a point, none is refused, and no second call changes anything. A launcher
    /// calls a plugin again for a start that is repeated.
    #[must_use]
    pub fn passed(&self) -> bool {
        let mut points = self.points.iter();
        let is_good = |point: &PluginChanges| point.again.is_empty() && point.refused.is_none();
        !self.points.is_empty() && points.all(is_good)
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
            refused,
        } in &self.points
        {
            if let Some(why) = refused {
                lines.push(format!("  {point} is refused: {why}"));
                continue;
            }
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
/// If it has ended, it is started again for the next point. `limit` applies to its start and to
/// each call.
///
/// # Errors
/// [`ProgramError::Start`], [`ProgramError::Place`]. A point that fails is in the result.
pub async fn dry_run_plugin_program(
    command: Command,
    input: PluginInput,
    limit: Duration,
) -> Result<PluginDryRun, ProgramError> {
    let mut process = Process::new(command, input.pod.socket_dir(), Protocol::Plugin);
    let started = process.start(limit).await;
    let sidecar = started.map_err(|error| ProgramError::Start(Box::new(error)))?;
    let tried = try_points(&sidecar.socket, Some(&mut process), input, limit).await;
    process.kill().await;
    tried
}

/// Like [`dry_run_plugin_program`], with the socket of a sidecar that runs.
///
/// # Errors
/// [`ProgramError::Place`].
pub async fn dry_run_plugin(
    socket: &Path,
    input: PluginInput,
    limit: Duration,
) -> Result<PluginDryRun, ProgramError> {
    try_points(socket, None, input, limit).await
}

async fn try_points(
    socket: &Path,
    mut process: Option<&mut Process>,
    input: PluginInput,
    limit: Duration,
) -> Result<PluginDryRun, ProgramError> {
    let of_socket = |path: &Path| {
        let trial = Trial::of_socket(path, input.vmi_json.clone(), limit);
        trial.ok_or_else(|| ProgramError::Place(path.to_owned()))
    };
    let mut trial = of_socket(socket)?;
    let mut run = PluginDryRun {
        plugin: socket.display().to_string(),
        points: Vec::new(),
        xml: input.domain_xml.clone(),
    };
    for point in LauncherHookPoint::ALL {
        if let Some(process) = &mut process {
            match process.running(limit).await {
                Ok(sidecar) => trial = of_socket(&sidecar.socket)?,
                Err(failure) => {
                    run.points.push(refused(point, &failure));
                    continue;
                }
            }
        }
        let changes = match call(point, &trial, &input.pod, &mut run.xml).await {
            Ok(changes) => changes,
            Err(error) if is_unserved(&error) => continue,
            Err(error) => match &mut process {
                Some(process) => refused(point, &process.cause(error.into()).await),
                None => refused(point, &error.into()),
            },
        };
        run.points.push(changes);
    }
    Ok(run)
}

fn refused(point: LauncherHookPoint, failure: &Failure) -> PluginChanges {
    PluginChanges {
        point,
        changes: Vec::new(),
        again: Vec::new(),
        refused: Some(os::logging::chain(failure)),
    }
}

/// Calls the plugin twice at a point. `xml` becomes the domain that it returns.
async fn call(
    point: LauncherHookPoint,
    trial: &Trial,
    pod: &TrialPod,
    xml: &mut String,
) -> Result<PluginChanges, PluginError> {
    let (changes, again) = match point {
        LauncherHookPoint::GuestDefinition => {
            let first = trial.guest_definition(xml.clone()).await?;
            let second = trial.guest_definition(first.clone()).await?;
            let lists = (changes(xml, &first)?, changes(&first, &second)?);
            *xml = first;
            lists
        }
        LauncherHookPoint::PreBoot => (
            names(trial.pre_boot(pod.files()).await?),
            names(trial.pre_boot(pod.files()).await?),
        ),
        LauncherHookPoint::PreMigrationSource => {
            let given = example_settings();
            let first = trial.pre_migration_source(given.clone()).await?;
            let second = trial.pre_migration_source(first.clone()).await?;
            (
                settings_changes(&given, &first),
                settings_changes(&first, &second),
            )
        }
    };
    Ok(PluginChanges {
        point,
        changes,
        again,
        refused: None,
    })
}

fn changes(before: &str, after: &str) -> Result<Vec<String>, PluginError> {
    let parse = |xml: &str| Element::parse(xml).map_err(PluginError::Domain);
    let Changes { list, more, .. } = diff::diff(&parse(before)?, &parse(after)?);
    let shown = list.iter().map(ToString::to_string);
    Ok(shown.chain(more.then(|| "and more".to_owned())).collect())
}

/// The changed files.
fn names(files: Vec<&'static str>) -> Vec<String> {
    files
        .into_iter()
        .map(|name| format!("the {name}"))
        .collect()
}
