//! Calls a program's hook points without a launcher, in the order of a start: `launcherctl launcher
//! hooks try`.

use std::time::Duration;

use os::logging::chain;
use serde::Serialize;
use serde_json::Value;
use tokio::process::Command;

use super::conformance::program::SidecarProcess;
use super::conformance::{Called, CheckFailure, CloudInit, Document, Subject, example_settings};
use super::plugins::LauncherHookPoint;
use super::sidecar::HookPoint;

/// What a program does at a hook point.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PointRun {
    pub point: &'static str,
    /// Changed cloud-init data is shown as field names and sizes, as its content may be secret.
    pub changes: Vec<String>,
    /// Changes that a second call makes in the first result, or why that call fails.
    pub again: Vec<String>,
    /// A sentence for each part of the answer that has no effect.
    pub ignored: Vec<String>,
    /// Why a launcher would refuse the start or the migration. `changes` is empty then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DryRun {
    /// The name and socket of the sidecar.
    pub sidecar: String,
    /// The hook points that the program serves and that a launcher calls for this VMI.
    pub points: Vec<PointRun>,
    /// The domain XML that the program returns.
    pub xml: String,
    /// The cloud-init data that the program returns, if it was called with any.
    pub cloud_init: Option<Value>,
}

impl DryRun {
    /// Whether the program serves a hook point, and at each point the launcher accepts the answer,
    /// uses all of it, and a second call changes nothing: a launcher may pass a hook its own
    /// result.
    #[must_use]
    pub fn passed(&self) -> bool {
        let is_good =
            |it: &PointRun| it.again.is_empty() && it.ignored.is_empty() && it.refused.is_none();
        !self.points.is_empty() && self.points.iter().all(is_good)
    }
}

/// Starts the program, calls each of its hook points with a launcher's checks, then again with the
/// result, and kills the program. A program that has ended is started again for the next point.
/// `limit` applies to the start and to each call. Dropping the future kills the program too.
///
/// # Errors
/// The program does not start. A hook point that fails is in the result.
pub async fn dry_run(
    program: Command,
    subject: Subject,
    limit: Duration,
) -> Result<DryRun, CheckFailure> {
    let mut process = SidecarProcess::new(program, &subject);
    let mut run = DryRun {
        sidecar: process.start(limit).await?.to_string(),
        points: Vec::new(),
        xml: subject.domain_xml.clone(),
        cloud_init: None,
    };
    for (point, given) in documents(&subject) {
        let called = process.running(limit).await.map(|sidecar| Called {
            subject: &subject,
            sidecar,
            vmi_json: subject.vmi_json.clone(),
            limit,
        });
        let tried = match called {
            Ok(called) => run.call(point, &called, given).await,
            Err(failure) => Err(failure),
        };
        match tried {
            Ok(tried) => run.points.push(tried),
            Err(CheckFailure::Unserved) => {}
            Err(failure) => run.points.push(PointRun {
                point,
                refused: Some(chain(&process.cause(failure).await)),
                ..PointRun::default()
            }),
        }
    }
    process.kill().await;
    Ok(run)
}

impl DryRun {
    async fn call(
        &mut self,
        point: &'static str,
        called: &Called<'_>,
        given: Option<Document>,
    ) -> Result<PointRun, CheckFailure> {
        let Some(given) = given else {
            called.subscribes(HookPoint::PreCloudInitIso)?;
            return Err(CheckFailure::NeedsSecret);
        };
        let first = called.call(given).await?;
        let again = match &first.document {
            // A launcher never passes a hook its own result here: each start gives it the VMI's
            // data.
            Document::CloudInit(_) => Vec::new(),
            document => match called.call(document.clone()).await {
                Ok(second) => second.changes,
                Err(failure) => vec![format!("it fails: {}", chain(&failure))],
            },
        };
        match first.document {
            Document::Domain(xml) => self.xml = xml,
            Document::CloudInit(data) => self.cloud_init = Some(data),
            _ => {}
        }
        Ok(PointRun {
            point,
            changes: first.changes,
            again,
            ignored: first.ignored,
            refused: None,
        })
    }
}

/// What a launcher gives to the hook points; `None` for cloud-init data that need a Secret.
fn documents(subject: &Subject) -> Vec<(&'static str, Option<Document>)> {
    let domain = Some(Document::Domain(subject.domain_xml.clone()));
    if subject.plugin.is_some() {
        let settings = Some(Document::Settings(example_settings()));
        return vec![
            (LauncherHookPoint::GuestDefinition.name(), domain),
            (LauncherHookPoint::PreBoot.name(), Some(Document::BootFiles)),
            (LauncherHookPoint::PreMigrationSource.name(), settings),
        ];
    }
    let cloud_init = match &subject.cloud_init {
        CloudInit::Examples => None,
        CloudInit::Data(data) => Some(Some(Document::CloudInit(data.clone()))),
        CloudInit::NeedsSecret => Some(None),
    };
    let cloud_init = cloud_init.map(|data| (HookPoint::PreCloudInitIso.name(), data));
    let domain = (HookPoint::OnDefineDomain.name(), domain);
    cloud_init.into_iter().chain([domain]).collect()
}
