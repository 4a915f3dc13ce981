//! Syncs, one after the other.
//!
//! ```text
//!   request A ──► runs ─────────────────► answer A
//!   request B ───────► waits ─┐
//!   request C ──────────► joins, newer ──► runs with C's VMI ──► answer B and C
//! ```

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use prost::bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::decide::{Facts, Phase, Step, decide};
use super::targets::with_live_targets;
use super::{CHANGE, DiskFailure, Launcher, LauncherError, blocking, disks, growth, lock, within};
use api::proto::cmd::v1::VirtualMachineOptions;
use api::vmi::Vmi;
use convert::plan;
use domain::DomainSpec;
use libvirt::{self, XmlKind};
use os::faults;

/// A sync that was asked for.
pub(super) struct Request {
    pub vmi: Arc<Vmi>,
    /// The VMI as it came, which is what sidecars get.
    pub vmi_json: Bytes,
    pub options: Arc<VirtualMachineOptions>,
    /// The sidecars' share of the time that virt-handler waits.
    pub deadline: Instant,
}

type Outcome = Result<(), Arc<LauncherError>>;

/// The sync in progress, and the next one.
#[derive(Default)]
pub(super) struct Syncs(Mutex<Slot>);

#[derive(Default)]
struct Slot {
    running: bool,
    next: Option<Request>,
    waiting: Vec<oneshot::Sender<Outcome>>,
    /// The last VMI that was read: most syncs bring the same bytes again.
    last: Option<(Bytes, Arc<Vmi>)>,
    /// The options of the last sync.
    options: Arc<VirtualMachineOptions>,
}

impl Syncs {
    /// The options of the last sync; the default ones before the first.
    pub fn last_options(&self) -> Arc<VirtualMachineOptions> {
        lock(&self.0).options.clone()
    }
}

impl Launcher {
    /// Makes the domain what the VMI says. A sync that comes while another one runs waits for it and then sees the
    /// newest VMI; several that wait share one run.
    ///
    /// # Errors
    /// The first thing that failed; [`LauncherError::Slow`] when it takes longer than virt-handler waits, and then it
    /// goes on and the next call joins it.
    pub async fn sync(
        self: &Arc<Self>,
        vmi_json: Bytes,
        options: VirtualMachineOptions,
    ) -> Result<(), LauncherError> {
        let vmi = self.read_vmi(&vmi_json)?;
        check_plugins(&options)?;
        let options = Arc::new(options);
        let (tell, outcome) = oneshot::channel();
        let start = {
            let mut slot = lock(&self.syncs.0);
            slot.options = options.clone();
            slot.next = Some(Request {
                vmi,
                vmi_json,
                options,
                deadline: os::time::deadline(CHANGE),
            });
            slot.waiting.push(tell);
            !std::mem::replace(&mut slot.running, true)
        };
        if start {
            tokio::spawn(self.clone().run_syncs());
        }
        let answer = async {
            outcome
                .await
                .unwrap_or(Err(Arc::new(LauncherError::Worker { what: "the sync" })))
                .map_err(LauncherError::Joined)
        };
        within("the sync", CHANGE, answer).await
    }

    fn read_vmi(&self, json: &Bytes) -> Result<Arc<Vmi>, LauncherError> {
        if let Some((bytes, vmi)) = &lock(&self.syncs.0).last
            && bytes == json
        {
            return Ok(vmi.clone());
        }
        let vmi = Arc::new(self.our_vmi(json)?);
        lock(&self.syncs.0).last = Some((json.clone(), vmi.clone()));
        Ok(vmi)
    }

    async fn run_syncs(self: Arc<Self>) {
        loop {
            let changing = self.changes.clone().lock_owned().await;
            // Only now, so that what came while we waited is taken along.
            let (request, waiting) = {
                let mut slot = lock(&self.syncs.0);
                let Some(request) = slot.next.take() else {
                    slot.running = false;
                    return;
                };
                (request, std::mem::take(&mut slot.waiting))
            };
            let began = Instant::now();
            let launcher = self.clone();
            // A task of its own, so that a panic is the end of this sync only.
            let sync = tokio::spawn(async move { launcher.sync_once(&request).await });
            let outcome = sync
                .await
                .unwrap_or(Err(LauncherError::Worker { what: "the sync" }))
                .map_err(Arc::new);
            drop(changing);
            match &outcome {
                Ok(()) => tracing::info!(
                    milliseconds = os::time::milliseconds(began.elapsed()),
                    "Synced vmi"
                ),
                Err(error) => {
                    tracing::error!(reason = %os::logging::chain(error), "Failed to sync vmi")
                }
            }
            for waiting in waiting {
                // Whoever has given up does not hear it.
                let _ = waiting.send(outcome.clone());
            }
        }
    }

    /// What is to be done for the VMI, and with which domain.
    pub(super) async fn next_step(
        &self,
        vmi: &Vmi,
    ) -> Result<(Step, Option<libvirt::Domain>), LauncherError> {
        let (connection, name) = (self.connection(), self.domain_name.clone());
        let state = blocking("looking the domain up", move || {
            let Some(domain) = connection.lookup(&name)? else {
                return Ok(None);
            };
            let state = domain.state()?;
            Ok(Some((domain, state)))
        })
        .await?;
        let (domain, state) = state.unzip();
        let facts = Facts {
            domain: state,
            has_run: self.has_run(),
            paused_by_user: self.paused_by_user.load(Ordering::Relaxed),
            vmi: Phase::of(vmi),
        };
        let step = decide(facts);
        tracing::debug!(?facts, ?step, "what the VMI needs");
        Ok((step, domain))
    }

    async fn sync_once(self: &Arc<Self>, request: &Request) -> Result<(), LauncherError> {
        faults::point("sync.begun");
        match self.next_step(&request.vmi).await? {
            (Step::Create, _) => self.create(request, None).await,
            (Step::Recreate, leftover) => self.create(request, leftover).await,
            (Step::Resume, Some(domain)) => {
                let resumed = domain.clone();
                blocking("resuming the domain", move || Ok(resumed.resume()?)).await?;
                tracing::info!("Domain unpaused.");
                self.apply(request, domain).await
            }
            (Step::Apply, Some(domain)) => self.apply(request, domain).await,
            (Step::Nothing, domain) => {
                if domain.is_some() && !self.has_run.swap(true, Ordering::Relaxed) {
                    // Its VMI is beyond the start: the domain has ended while no launcher looked.
                    self.pending.refresh();
                }
                tracing::info!(phase = ?Phase::of(&request.vmi), "such a virtual machine is not started: nothing to do");
                Ok(())
            }
            (Step::Lost | Step::Resume | Step::Apply, _) => Err(LauncherError::Lost),
        }
    }

    /// Makes the running domain what the VMI says.
    async fn apply(
        self: &Arc<Self>,
        request: &Request,
        domain: libvirt::Domain,
    ) -> Result<(), LauncherError> {
        let (launcher, vmi, options) = (self.clone(), request.vmi.clone(), request.options.clone());
        let failures = blocking("changing the domain", move || {
            launcher.change_disks(&domain, &vmi, &options)
        })
        .await?;
        if self.metadata.follow(&request.vmi) {
            self.pending.refresh();
        }
        if failures.is_empty() {
            Ok(())
        } else {
            Err(LauncherError::Disks(failures))
        }
    }

    /// Plugs and unplugs disks, changes media, and then grows what has room: also what has just been plugged in.
    fn change_disks(
        &self,
        domain: &libvirt::Domain,
        vmi: &Vmi,
        options: &VirtualMachineOptions,
    ) -> Result<Vec<DiskFailure>, LauncherError> {
        let rooms = &*self.rooms;
        let mut live = read(domain, XmlKind::Live)?;
        let (wanted, context) = rooms.wanted(&with_live_targets(vmi, &live), options)?;
        let hotplug_dir = context.paths().hotplug_disk_dir;
        let plan =
            plan::disks(&live, &wanted, hotplug_dir).defer_unready(|disk| rooms.is_ready(disk));
        for plan::Change { disk, why } in &plan.deferred {
            tracing::info!(target_device = %disk.target.device, %why, "The disk stays as it is; the next sync tries again");
        }
        let mut failures = Vec::new();
        if !plan.is_empty() {
            faults::point("sync.planned");
            failures = disks::apply(domain, rooms, vmi, plan, &self.unplugs)?;
            // Not every change makes libvirt send an event.
            self.pending.refresh();
            live = read(domain, XmlKind::Live)?;
        }
        let sizes = growth::sizes(domain, rooms, vmi, &live, &wanted);
        growth::grow(domain, &plan::resizes(&live, &wanted, &sizes));
        Ok(failures)
    }
}

/// The domain as libvirt has it.
pub(super) fn read(domain: &libvirt::Domain, kind: XmlKind) -> Result<DomainSpec, LauncherError> {
    DomainSpec::from_xml(&domain.xml(kind)?).map_err(LauncherError::Xml)
}

/// Plugins change the domain; a domain without their changes would be a false success.
#[cfg(not(feature = "plugins"))]
fn check_plugins(options: &VirtualMachineOptions) -> Result<(), LauncherError> {
    match serde_json::from_slice::<Vec<serde_json::Value>>(&options.plugins_json) {
        Ok(plugins) if !plugins.is_empty() => Err(LauncherError::NoPlugins),
        _ => Ok(()),
    }
}

/// Whether the list can be read; it is for the domain's definition.
#[cfg(feature = "plugins")]
fn check_plugins(options: &VirtualMachineOptions) -> Result<(), LauncherError> {
    super::create::plugins(options).map(drop)
}
