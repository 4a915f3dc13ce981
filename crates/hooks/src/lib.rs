//! Hook sidecars: containers beside the launcher's that change what it is about to do, through
//! the gRPC services `kubevirt.hooks.*` on sockets in `/var/run/kubevirt-hooks`.
//!
//! ```text
//!  collect ──► [ A, B, C ]          by priority, then place
//!  domain XML ──► A ──► check ──► B ──► check ──► C ──► check ──► libvirt
//! ```
//!
//! A sidecar is not trusted: each call is bounded in time and size, and each answer is checked
//! before it goes on (`check`). What it added travels as text, so elements that our schema
//! does not know reach libvirt as they are. What each one changed is logged and kept for
//! [`Sidecars::report`].
#![forbid(unsafe_code)]

mod call;
pub mod check;
mod cloud_init;
mod collect;
pub mod diff;
mod error;
pub mod offline;
#[cfg(feature = "plugins")]
pub mod plugins;
mod report;
mod sidecar;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prost::bytes::Bytes;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use check::AnswerError;
pub use diff::Change;
pub use domain::xml::ReadError;
pub use error::{CallError, HookError};
pub use report::{PointReport, Report, Run, SidecarReport};
pub use sidecar::{Point, Sidecar, Version};

use domain::xml::tree::Element;
use report::Runs;
use sidecar::ordered;

/// Changes that are shown in a log line.
const LOGGED: usize = 20;
/// What is left of a request's time when the last sidecar is given up: the answer must get out.
const RESERVE: Duration = Duration::from_millis(500);

/// The sidecars of this pod.
#[derive(Debug, Default)]
pub struct Sidecars {
    all: Vec<Sidecar>,
    runs: Mutex<Runs>,
    /// The last definition, so that the same input within one request gives no second call. It is
    /// locked for as long as sidecars work: they see one call at a time.
    last: tokio::sync::Mutex<Option<Definition>>,
    report: Option<PathBuf>,
}

/// What was given and what came back.
#[derive(Debug)]
struct Definition {
    /// The request's deadline, which tells requests apart: a new request asks the sidecars anew.
    deadline: Instant,
    xml: String,
    vmi: Bytes,
    result: String,
}

impl Sidecars {
    /// A pod without sidecars.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Waits until `count` sidecars serve below `dir`: one for each sub-directory, and one for each
    /// socket directly in it. With a count of 0 nothing is looked for.
    ///
    /// # Errors
    /// [`HookError::Missing`] at the deadline, naming those that came and what is known of the
    /// others; [`HookError::Unusable`] at once when one speaks no version of ours.
    pub async fn collect(dir: &Path, count: usize, deadline: Instant) -> Result<Self, HookError> {
        let all = collect::collect(dir, count, deadline).await?;
        Ok(Self {
            all,
            ..Self::default()
        })
    }

    /// Keeps [`Self::report`] in a file too, as JSON, for whoever looks from outside; from now on.
    pub async fn reporting_to(mut self, file: PathBuf) -> Self {
        if self.is_empty() {
            // What an earlier launcher has left, if there was one.
            let _ = tokio::fs::remove_file(&file).await;
        }
        self.report = Some(file);
        self.publish().await;
        self
    }

    async fn publish(&self) {
        if let Some(file) = self.report.as_ref().filter(|_| !self.is_empty())
            && let Err(error) = self.report().save(file).await
        {
            tracing::warn!(file = %file.display(), reason = %error, "the report on hook sidecars cannot be written");
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The sidecars called at `point`, in order.
    #[must_use]
    pub fn at(&self, point: Point) -> Vec<&Sidecar> {
        ordered(&self.all, point)
    }

    /// Gives the domain XML to the sidecars one after the other; each gets the last one's result.
    ///
    /// The result is the last answer as it came. The same input again under the same deadline is
    /// answered without a call: one start of a domain runs its hooks once.
    ///
    /// # Errors
    /// [`HookError::Call`] with the sidecar that failed, was too slow, or whose answer is refused;
    /// the others are then not called.
    pub async fn on_define_domain(
        &self,
        xml: String,
        vmi_json: &Bytes,
        deadline: Instant,
    ) -> Result<String, HookError> {
        let called = self.at(Point::OnDefineDomain);
        if called.is_empty() {
            return Ok(xml);
        }
        let mut last = self.last.lock().await;
        if let Some(last) = last
            .as_ref()
            .filter(|last| last.deadline == deadline && last.xml == xml && last.vmi == *vmi_json)
        {
            return Ok(last.result.clone());
        }
        let mut tree = Element::parse(&xml).map_err(HookError::Input)?;
        // Scripts match on the text: it has the form in which KubeVirt's launcher writes it.
        let mut result = tree.to_xml();
        for sidecar in called {
            let start = Instant::now();
            let answer = define(
                sidecar,
                &tree,
                Bytes::from(result.clone()),
                vmi_json.clone(),
                within(deadline),
            )
            .await;
            let (outcome, checked) = match answer {
                Ok(checked) => (Ok(diff::diff(&tree, &checked.tree)), Some(checked)),
                Err(error) => (Err(error), None),
            };
            self.note(sidecar, Point::OnDefineDomain, start.elapsed(), outcome)
                .await?;
            // Without an answer there was an error, and that has just been returned.
            let Some(checked) = checked else { break };
            tracing::debug!(%sidecar, xml = checked.text, "the domain as the hook sidecar returned it");
            (result, tree) = (checked.text, checked.tree);
        }
        *last = Some(Definition {
            deadline,
            xml,
            vmi: vmi_json.clone(),
            result: result.clone(),
        });
        Ok(result)
    }

    /// Gives the cloud-init data, in the reference's Go-named JSON, to the sidecars one after the
    /// other. Not to be called for a virtual machine without cloud-init.
    ///
    /// # Errors
    /// [`HookError::Call`] with the sidecar that failed.
    pub async fn pre_cloud_init_iso(
        &self,
        mut data: Value,
        vmi_json: &Bytes,
        deadline: Instant,
    ) -> Result<Value, HookError> {
        for sidecar in self.at(Point::PreCloudInitIso) {
            let start = Instant::now();
            let given = cloud_init::given(&data);
            let answer =
                call::pre_cloud_init_iso(sidecar, given, vmi_json.clone(), within(deadline)).await;
            let new = answer.and_then(|answer| {
                cloud_init::answered(&data, &answer).map_err(CallError::CloudInit)
            });
            match new {
                Ok(new) => {
                    let changes = changed_fields(&data, &new);
                    self.note(
                        sidecar,
                        Point::PreCloudInitIso,
                        start.elapsed(),
                        Ok(changes),
                    )
                    .await?;
                    data = new;
                }
                Err(error) => {
                    self.note(sidecar, Point::PreCloudInitIso, start.elapsed(), Err(error))
                        .await?
                }
            }
        }
        Ok(data)
    }

    /// Tells all sidecars at once that the virtual machine is gone; one that hangs keeps none of the
    /// others from hearing it.
    ///
    /// # Errors
    /// The first failure, when all have been told.
    pub async fn shutdown(&self, deadline: Instant) -> Result<(), HookError> {
        let mut calls = JoinSet::new();
        for sidecar in self.at(Point::Shutdown) {
            let sidecar = sidecar.clone();
            calls.spawn(async move {
                let start = Instant::now();
                let outcome = match call::shutdown(&sidecar, within(deadline)).await {
                    // It may end before its answer is out: that is what it was asked for.
                    Err(CallError::Broken(_)) => Ok(()),
                    outcome => outcome,
                };
                (sidecar, start.elapsed(), outcome)
            });
        }
        let mut result = Ok(());
        while let Some(told) = calls.join_next().await {
            let Ok((sidecar, time, outcome)) = told else {
                continue;
            };
            let noted = self
                .note(
                    &sidecar,
                    Point::Shutdown,
                    time,
                    outcome.map(|()| Vec::new()),
                )
                .await;
            result = result.and(noted);
        }
        result
    }

    /// The sidecars that changed the domain when it was defined last, for the text of an error that
    /// libvirt then gives.
    #[must_use]
    pub fn touched(&self) -> Vec<String> {
        let runs = self.runs();
        let changed = |sidecar: &&Sidecar| {
            let run = runs
                .get(&(sidecar.place.clone(), Point::OnDefineDomain))
                .and_then(|(_, last)| last.as_ref());
            run.is_some_and(|run| run.changed > 0)
        };
        self.at(Point::OnDefineDomain)
            .into_iter()
            .filter(changed)
            .map(ToString::to_string)
            .collect()
    }

    /// The sidecars and what each did last.
    #[must_use]
    pub fn report(&self) -> Report {
        Report::new(&self.all, &self.runs())
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        // Nothing that is done under the lock can leave it half-done.
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs and keeps what came of a call, and turns a failure into one that names the sidecar.
    async fn note(
        &self,
        sidecar: &Sidecar,
        point: Point,
        time: Duration,
        outcome: Result<Vec<Change>, CallError>,
    ) -> Result<(), HookError> {
        let milliseconds = time.as_millis();
        let (run, result) = match outcome {
            Ok(changes) => {
                let changed = diff::one_line(&changes, LOGGED);
                tracing::info!(%sidecar, %point, milliseconds, changes = changes.len(), changed, "a hook sidecar has run");
                (Run::new(time, changes, None), Ok(()))
            }
            Err(reason) => {
                tracing::error!(%sidecar, %point, milliseconds, %reason, "a hook sidecar failed");
                (
                    Run::new(time, Vec::new(), Some(reason.to_string())),
                    Err(HookError::Call {
                        sidecar: sidecar.to_string(),
                        point,
                        reason,
                    }),
                )
            }
        };
        {
            let mut runs = self.runs();
            let (calls, last) = runs.entry((sidecar.place.clone(), point)).or_default();
            *calls += 1;
            *last = Some(run);
        }
        self.publish().await;
        result
    }
}

async fn define(
    sidecar: &Sidecar,
    before: &Element,
    xml: Bytes,
    vmi: Bytes,
    until: Instant,
) -> Result<check::Checked, CallError> {
    let answer = call::on_define_domain(sidecar, xml, vmi, until).await?;
    Ok(check::check(before, &answer)?)
}

/// When a call that starts now must be over: before the request is, and within a minute.
fn within(deadline: Instant) -> Instant {
    let left = deadline.saturating_duration_since(Instant::now());
    let without_reserve = left.saturating_sub(RESERVE.min(left / 10));
    os::time::deadline(without_reserve.min(call::LONGEST_CALL))
}

/// Which fields of the cloud-init data changed; what they hold is the user's own, often secret.
fn changed_fields(before: &Value, after: &Value) -> Vec<Change> {
    let empty = serde_json::Map::new();
    let (before, after) = (
        before.as_object().unwrap_or(&empty),
        after.as_object().unwrap_or(&empty),
    );
    let bytes = |value: &Value| {
        format!(
            "{} bytes",
            value
                .as_str()
                .map_or_else(|| value.to_string().len(), str::len)
        )
    };
    let fields = after
        .iter()
        .filter(|(name, value)| before.get(*name) != Some(value));
    let changed = fields.map(|(path, value)| match before.get(path) {
        Some(old) => Change::Changed {
            path: path.clone(),
            before: bytes(old),
            after: bytes(value),
        },
        None => Change::Added {
            path: path.clone(),
            value: bytes(value),
        },
    });
    let removed = before
        .keys()
        .filter(|name| !after.contains_key(*name))
        .map(|name| Change::Removed { path: name.clone() });
    changed.chain(removed).collect()
}
