//! All sidecars of a pod, and the calls at each hook point.
//!
//! ```text
//!  domain XML ──► A ──► check ──► B ──► check ──► C ──► check ──► libvirt      OnDefineDomain
//!  cloud-init ──► A ───────────► B ────────────► C ────────────► ISO image    PreCloudInitIso
//!             ──► A, B, C at once                                             Shutdown
//! ```

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use os::lock::lock;
use os::logging::chain;
use prost::bytes::Bytes;
use serde_json::Value;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::Instant;

use super::answer::{self, Answer};
use super::current_call::{CurrentCall, Waiting};
use super::diff::{self, Changes};
use super::error::{HookCallError, HookError};
use super::plugins::Applied;
use super::report::{CallReport, Report};
use super::sidecar::{HookPoint, Sidecar, calling_order};
use super::timeout::hook_call_deadline;
use super::{client, cloud_init, discovery, work};
use domain::xml::ReadError;
use domain::xml::secrets::without_secrets;
use domain::xml::tree::Element;

#[derive(Debug, Default)]
pub struct Sidecars {
    all: Vec<Sidecar>,
    report: Mutex<Report>,
    /// The last successful `OnDefineDomain` of all sidecars. The lock is held during the calls, so
    /// a sidecar never gets two at once.
    last_definition: tokio::sync::Mutex<Option<Definition>>,
    hasher: RandomState,
    report_file: Option<PathBuf>,
    current_call: CurrentCall,
}

/// Tells a request from the next one, which calls the sidecars again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestId(u64);

impl RequestId {
    #[must_use]
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The sidecars' input and result.
#[derive(Debug)]
struct Definition {
    request: RequestId,
    /// Hash of the domain XML; spares a second copy of the document.
    xml_hash: u64,
    vmi: Bytes,
    result: Applied,
}

impl Sidecars {
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    fn of(all: Vec<Sidecar>) -> Self {
        Self {
            report: Mutex::new(Report::new(&all)),
            all,
            ..Self::default()
        }
    }

    /// Waits until `count` sidecars below the directory `dir` answer `Info`. Each sub-directory is
    /// one sidecar, and so is each socket directly in `dir`. With a count of 0, `dir` is not read.
    ///
    /// # Errors
    /// [`HookError::NotReady`] at the deadline; [`HookError::Unusable`] at once for a sidecar that
    /// cannot work with this launcher.
    pub async fn collect(dir: &Path, count: usize, deadline: Instant) -> Result<Self, HookError> {
        Ok(Self::of(discovery::collect(dir, count, deadline).await?))
    }

    /// Writes [`Self::report`] to `file` now and after each call.
    pub async fn reporting_to(mut self, file: PathBuf) -> Self {
        if self.is_empty() {
            // An earlier launcher may have left its report.
            let _ = tokio::fs::remove_file(&file).await;
        }
        self.report_file = Some(file);
        self.save_report().await;
        self
    }

    async fn save_report(&self) {
        let Some(file) = self.report_file.clone().filter(|_| !self.is_empty()) else {
            return;
        };
        let report = self.report();
        let save = move || {
            if let Err(error) = report.save(&file) {
                tracing::warn!(file = %file.display(), reason = %error, "The report on hook sidecars cannot be written");
            }
        };
        // The panic hook logs a panic.
        let _ = spawn_blocking(save).await;
    }

    /// The call in progress. Plugins note their calls there too.
    #[must_use]
    pub fn current_call(&self) -> &CurrentCall {
        &self.current_call
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    #[must_use]
    // D-hook-1 (docs/differences.md).
    pub fn at(&self, point: HookPoint) -> Vec<&Sidecar> {
        calling_order(&self.all, point)
    }

    /// Calls `OnDefineDomain` of the sidecars one after the other; each gets the domain XML that
    /// the previous one returned.
    ///
    /// Returns the last answer byte for byte, and the sidecars that changed the domain. The same
    /// input in the same request is answered from a cache, so one start of a domain calls each
    /// sidecar once.
    ///
    /// # Errors
    /// [`HookError::Call`] for the first sidecar that fails, dies, is too slow, or gives a refused
    /// answer. The sidecars after it are not called, and the domain is not defined.
    // D-hook-10 (docs/differences.md).
    pub async fn on_define_domain(
        &self,
        xml: String,
        vmi_json: &Bytes,
        request: RequestId,
        deadline: Instant,
    ) -> Result<Applied, HookError> {
        let mut modified_by = Vec::new();
        let sidecars = self.at(HookPoint::OnDefineDomain);
        if sidecars.is_empty() {
            return Ok(Applied { xml, modified_by });
        }
        let mut last_definition = self.last_definition.lock().await;
        let hasher = self.hasher.clone();
        let hash = move || (hasher.hash_one(&xml), xml);
        let (xml_hash, xml) = work::until(deadline, hash).await?;
        if let Some(last) = &*last_definition
            && (last.request, last.xml_hash, &last.vmi) == (request, xml_hash, vmi_json)
        {
            return Ok(last.result.clone());
        }
        let parsed = work::until(deadline, move || as_kubevirt_writes_it(&xml)).await?;
        let mut domain = parsed.map_err(HookError::Input)?;
        for sidecar in sidecars {
            let defined = self.define(sidecar, domain, vmi_json.clone(), deadline);
            let (after, has_changed) = defined.await?;
            modified_by.extend(has_changed.then(|| sidecar.to_string()));
            domain = after;
        }
        // The blocking thread also drops the tree, which may have many elements.
        let xml = work::until(deadline, move || domain.text).await?;
        let result = Applied { xml, modified_by };
        *last_definition = Some(Definition {
            request,
            xml_hash,
            vmi: vmi_json.clone(),
            result: result.clone(),
        });
        Ok(result)
    }

    fn wait_for(&self, sidecar: &Sidecar, point: HookPoint) -> Waiting {
        let whom = format!("{point} of hook sidecar {sidecar}");
        self.current_call.begin(whom)
    }

    /// Calls `OnDefineDomain` of one sidecar. Also returns whether it changed the domain.
    async fn define(
        &self,
        sidecar: &Sidecar,
        before: Answer,
        vmi: Bytes,
        deadline: Instant,
    ) -> Result<(Answer, bool), HookError> {
        let start = Instant::now();
        let _waiting = self.wait_for(sidecar, HookPoint::OnDefineDomain);
        let call = async {
            let Answer { text, tree: before } = before;
            let xml = Bytes::from(text);
            let answer =
                client::on_define_domain(sidecar, xml, vmi, hook_call_deadline(deadline)).await?;
            let name = sidecar.to_string();
            let check = move || {
                let after = answer::check(&before, &answer)?;
                let changes = diff::diff(&before, &after.tree);
                tracing::debug!(
                    sidecar = name,
                    xml = %without_secrets(&after.text),
                    "The domain as the hook sidecar returned it"
                );
                Ok(((after, !changes.is_empty()), changes))
            };
            work::until(hook_call_deadline(deadline), check).await?
        };
        let result = call.await;
        self.record(sidecar, HookPoint::OnDefineDomain, start.elapsed(), result)
            .await
    }

    /// Calls `PreCloudInitIso` of the sidecars one after the other. The cloud-init data has the
    /// field names of KubeVirt's Go struct. Not called for a VMI without cloud-init.
    ///
    /// # Errors
    /// [`HookError::Call`] for the first sidecar that fails.
    // D-hook-3 (docs/differences.md).
    pub async fn pre_cloud_init_iso(
        &self,
        mut data: Value,
        vmi_json: &Bytes,
        deadline: Instant,
    ) -> Result<Value, HookError> {
        for sidecar in self.at(HookPoint::PreCloudInitIso) {
            let start = Instant::now();
            let _waiting = self.wait_for(sidecar, HookPoint::PreCloudInitIso);
            let call = async {
                let encode = move || (cloud_init::encode(&data), data);
                let (forms, data) = work::until(deadline, encode).await?;
                let deadline = hook_call_deadline(deadline);
                let answer =
                    client::pre_cloud_init_iso(sidecar, forms, vmi_json.clone(), deadline).await?;
                let check = move || {
                    let (new, _) = cloud_init::decode(&data, &answer)?;
                    let changes = cloud_init::changes(&data, &new);
                    Ok((new, changes))
                };
                work::until(deadline, check).await?
            };
            let result = call.await;
            data = self
                .record(sidecar, HookPoint::PreCloudInitIso, start.elapsed(), result)
                .await?;
        }
        Ok(data)
    }

    /// Calls `Shutdown` of all sidecars at once, when QEMU has ended and before the final event is
    /// waited for.
    ///
    /// # Errors
    /// The first failure; the other sidecars are called all the same.
    pub async fn shutdown(&self, deadline: Instant) -> Result<(), HookError> {
        let mut calls = JoinSet::new();
        for sidecar in self.at(HookPoint::Shutdown) {
            let sidecar = sidecar.clone();
            calls.spawn(async move {
                let start = Instant::now();
                let result = client::shutdown(&sidecar, hook_call_deadline(deadline)).await;
                (sidecar, start.elapsed(), result)
            });
        }
        let mut first_failure = Ok(());
        while let Some(call) = calls.join_next().await {
            let Ok((sidecar, time, result)) = call else {
                continue;
            };
            let result = result.map(|()| ((), Changes::default()));
            let recorded = self
                .record(&sidecar, HookPoint::Shutdown, time, result)
                .await;
            first_failure = first_failure.and(recorded);
        }
        first_failure
    }

    #[must_use]
    pub fn report(&self) -> Report {
        lock(&self.report).clone()
    }

    /// Logs a call and adds it to the report. Names the sidecar in an error.
    async fn record<T>(
        &self,
        sidecar: &Sidecar,
        point: HookPoint,
        time: Duration,
        result: Result<(T, Changes), HookCallError>,
    ) -> Result<T, HookError> {
        let milliseconds = time.as_millis();
        let mut call = CallReport {
            microseconds: u64::try_from(time.as_micros()).unwrap_or(u64::MAX),
            changes: Changes::default(),
            error: None,
        };
        let result = match result {
            Ok((value, changes)) => {
                let changed = diff::summary(&changes);
                tracing::info!(%sidecar, %point, milliseconds, changes = changes.list.len(), changed, "A hook sidecar has run");
                call.changes = changes;
                Ok(value)
            }
            Err(reason) => {
                let text = chain(&reason);
                tracing::error!(%sidecar, %point, milliseconds, reason = text, "A hook sidecar failed");
                call.error = Some(text);
                Err(HookError::Call {
                    sidecar: sidecar.to_string(),
                    point,
                    reason,
                })
            }
        };
        lock(&self.report).record(sidecar, point, call);
        self.save_report().await;
        result
    }
}

/// The domain XML for the first sidecar, in the format of KubeVirt's launcher: scripts match on it.
fn as_kubevirt_writes_it(xml: &str) -> Result<Answer, ReadError> {
    let tree = Element::parse(xml)?;
    Ok(Answer {
        text: tree.to_xml(),
        tree,
    })
}
