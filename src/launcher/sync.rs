//! A sync: makes the domain what the VMI says.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::decide::{Facts, Step, VmiPhase, decide};
use super::libvirt_domain::{CHANGE_TIMEOUT, blocking, within};
use super::live_targets::with_live_targets;
use super::pod_backend::PodBackend;
use super::sync_queue::SyncRequest;
use super::vm::{Admission, Phase, Refusal, Request, is_left_of_start};
use super::{DeviceFailure, DiskFailure, Launcher, LauncherError, hotplug_disks, resize};
use api::proto::cmd::v1::VirtualMachineOptions;
use api::vmi::Vmi;
use convert::{Context, plan};
use domain::DomainSpec;
use libvirt::{DomainState, XmlKind};
use os::failpoints;

/// Between two questions whether libvirt has ended what is left of a start.
const LEFTOVER_RETRY_DELAY: Duration = Duration::from_millis(100);

impl Launcher {
    /// Makes the domain what the VMI says. A sync that comes while another one runs waits for it and then sees the
    /// newest VMI; several that wait share one run.
    ///
    /// # Errors
    /// The first thing that failed; [`LauncherError::Slow`] when it takes longer than virt-handler waits, and then it
    /// goes on and the next call joins it.
    pub async fn sync(self: &Arc<Self>, request: SyncRequest) -> Result<(), LauncherError> {
        within("the sync", CHANGE_TIMEOUT, self.sync_to_end(request)).await
    }

    /// The same without a limit: for a caller who waits for a start that takes long.
    ///
    /// # Errors
    /// The first thing that failed.
    pub async fn sync_to_end(self: &Arc<Self>, request: SyncRequest) -> Result<(), LauncherError> {
        self.guest_agent.note_vmi(&request.vmi);
        self.follow_access_credentials(&request.vmi);
        // Only the first read of the domain says whether its user has paused it under an earlier launcher.
        self.known().await?;
        self.vm.admit(Request::Sync)?;
        let (outcome, run) = self.syncs.push(request);
        if run {
            tokio::spawn(self.clone().run_syncs());
        }
        let lost = || Err(Arc::new(LauncherError::Worker { what: "the sync" }));
        let outcome = outcome.await;
        outcome
            .unwrap_or_else(|_| lost())
            .map_err(LauncherError::Joined)
    }

    async fn run_syncs(self: Arc<Self>) {
        loop {
            let turn = self.vm.turn().await;
            // Only now, so that requests that came meanwhile are included.
            let Some((request, waiting)) = self.syncs.pop() else {
                return;
            };
            let began = Instant::now();
            let launcher = self.clone();
            // A task of its own, so that a panic is the end of this sync only.
            let sync = tokio::spawn(async move { launcher.sync_connected(&request).await });
            let outcome = sync
                .await
                .unwrap_or(Err(LauncherError::Worker { what: "the sync" }));
            let outcome = outcome.map_err(Arc::new);
            drop(turn);
            self.metrics.synced(began.elapsed(), outcome.is_ok());
            match &outcome {
                Ok(()) => {
                    let milliseconds = os::time::milliseconds(began.elapsed());
                    tracing::info!(milliseconds, "Synced vmi");
                }
                Err(error) => {
                    tracing::error!(reason = %os::logging::chain(error), "Failed to sync vmi");
                }
            }
            for waiting in waiting {
                // The caller may have given up.
                let _ = waiting.send(outcome.clone());
            }
        }
    }

    /// One sync. If libvirt's daemon ends meanwhile, once more on the next connection: virt-handler would report the
    /// failure as an event of the VMI, and ask for the same again.
    // D-vm-13 (docs/differences.md).
    async fn sync_connected(self: &Arc<Self>, request: &SyncRequest) -> Result<(), LauncherError> {
        let mut connections = self.domain.connections();
        match self.sync_once(request).await {
            Err(error) if error.is_connection_lost() => {
                tracing::warn!(reason = %error, "libvirt's connection was lost in a sync; waiting for the next one");
                // Without a new connection in time, the first error is the answer.
                match timeout_at(request.deadline, connections.changed()).await {
                    Ok(Ok(())) => {
                        self.wait_for_failed_start(request).await?;
                        self.sync_once(request).await
                    }
                    _ => Err(error),
                }
            }
            outcome => outcome,
        }
    }

    /// Waits until libvirt has ended what is left of a start that its daemon has not survived. A sync would take that for
    /// the guest. It may have ended before the new connection had events, so this asks again and again.
    async fn wait_for_failed_start(&self, request: &SyncRequest) -> Result<(), LauncherError> {
        if self.vm.snapshot().phase != Phase::Absent {
            return Ok(());
        }
        let ended = async {
            while let Some((_, state)) = self.look_up().await?
                && is_left_of_start(state)
            {
                tokio::time::sleep(LEFTOVER_RETRY_DELAY).await;
            }
            Ok(())
        };
        timeout_at(request.deadline, ended).await.unwrap_or(Ok(()))
    }

    /// The domain with its state, if libvirt has it.
    async fn look_up(&self) -> Result<Option<(libvirt::Domain, DomainState)>, LauncherError> {
        let (connection, name) = (self.domain.connection(), self.domain.name().clone());
        blocking("looking up the domain", move || {
            let Some(domain) = connection.lookup(&name)? else {
                return Ok(None);
            };
            let state = domain.state()?;
            Ok(Some((domain, state)))
        })
        .await
    }

    /// What is to be done for the VMI, and with which domain.
    pub(super) async fn next_step(
        &self,
        vmi: &Vmi,
    ) -> Result<(Step, Option<libvirt::Domain>), LauncherError> {
        let (domain, state) = self.look_up().await?.unzip();
        let facts = Facts {
            domain: state,
            has_run: self.vm.snapshot().phase.has_run(),
            paused_by_user: self.vm.is_pause_requested(),
            vmi: VmiPhase::of(vmi),
        };
        let step = decide(facts);
        tracing::debug!(?facts, ?step, "what the VMI needs");
        Ok((step, domain))
    }

    async fn sync_once(self: &Arc<Self>, request: &SyncRequest) -> Result<(), LauncherError> {
        failpoints::hit("sync.begun");
        // The phase may have changed since the request came.
        if self.vm.admit(Request::Sync)? == Admission::IfUnchanged {
            return self.check_unchanged(request).await;
        }
        match self.next_step(&request.vmi).await? {
            (Step::Create, _) => self.start(request, None).await,
            (Step::Recreate, leftover) => self.start(request, leftover).await,
            (Step::Resume, Some(domain)) => {
                let resumed = domain.clone();
                blocking("resuming the domain", move || Ok(resumed.resume()?)).await?;
                tracing::info!("Domain unpaused.");
                self.apply(request, domain).await
            }
            (Step::Apply, Some(domain)) => self.apply(request, domain).await,
            (Step::Nothing, domain) => {
                if domain.is_some() && self.vm.mark_ended() {
                    self.refresh();
                }
                let phase = VmiPhase::of(&request.vmi);
                tracing::info!(?phase, "The VMI's phase does not allow a start");
                Ok(())
            }
            (Step::Lost | Step::Resume | Step::Apply, _) => Err(LauncherError::Lost),
        }
    }

    /// Succeeds if the domain, which leaves, is what the VMI says: virt-handler may send one that it has read before the
    /// migration began, and would report a refusal as an event of the VMI.
    // D-mig-28 (docs/differences.md).
    async fn check_unchanged(&self, request: &SyncRequest) -> Result<(), LauncherError> {
        let document = self.vm.snapshot().document.ok_or(Refusal::Migrating)?;
        let (pod, vmi, options) = (
            self.pod.clone(),
            request.vmi.clone(),
            request.options.clone(),
        );
        let is_unchanged = blocking("comparing the domain with its VMI", move || {
            let live = &document.spec;
            let (disks, wanted, _) = plan_disks(&*pod, &vmi, &options, live)?;
            Ok(disks.is_empty() && plan::interfaces(live, &wanted, &vmi).is_empty())
        });
        if !is_unchanged.await? {
            return Err(Refusal::Migrating.into());
        }
        self.vm
            .change_metadata(|metadata| metadata.follow(&request.vmi));
        Ok(())
    }

    /// Makes the running domain what the VMI says.
    async fn apply(
        self: &Arc<Self>,
        request: &SyncRequest,
        domain: libvirt::Domain,
    ) -> Result<(), LauncherError> {
        let (launcher, vmi, options) = (self.clone(), request.vmi.clone(), request.options.clone());
        let of_disks = domain.clone();
        let hotplug = move || launcher.hotplug_disks(&of_disks, &vmi, &options);
        let changed = blocking("changing the domain's disks", hotplug).await?;
        let mut failures: Vec<DeviceFailure> =
            changed.failures.into_iter().map(Into::into).collect();
        self.adopt_network(&request.vmi, &changed.context).await;
        let plan = plan::interfaces(&changed.live, &changed.wanted, &request.vmi);
        let interfaces =
            self.hotplug_interfaces(&domain, &request.vmi, &changed.context, &changed.live, plan);
        failures.extend(interfaces.await?);
        self.vm
            .change_metadata(|metadata| metadata.follow(&request.vmi));
        self.started_vmi.get_or_init(|| request.vmi_json.clone());
        if failures.is_empty() {
            Ok(())
        } else {
            Err(LauncherError::Devices(failures))
        }
    }

    /// Hotplugs and unplugs disks, changes media, and then resizes disks whose volumes have grown, new ones included.
    fn hotplug_disks(
        &self,
        domain: &libvirt::Domain,
        vmi: &Vmi,
        options: &VirtualMachineOptions,
    ) -> Result<ChangedDisks, LauncherError> {
        let pod = &*self.pod;
        let mut live = read_spec(domain, XmlKind::Live)?;
        let (plan, wanted, context) = plan_disks(pod, vmi, options, &live)?;
        for plan::Change { disk, why } in &plan.deferred {
            let target = &disk.target.device;
            tracing::info!(target_device = %target, %why, "The disk stays as it is; the next sync tries again");
        }
        let mut failures = Vec::new();
        if !plan.is_empty() {
            failpoints::hit("sync.planned");
            failures = hotplug_disks::apply(domain, pod, vmi, plan, &self.detach_requests)?;
            // Not every change makes libvirt send an event.
            self.refresh();
            live = read_spec(domain, XmlKind::Live)?;
        }
        // With the sync that follows the guest's release: an overlay that stays costs nothing but its file.
        if let Err(error) = pod.remove_unused_overlays(vmi, &live) {
            tracing::error!(reason = %os::logging::chain(&error), "An overlay of an unplugged volume stays");
        }
        let sizes = resize::sizes(domain, pod, vmi, &live, &wanted);
        resize::resize(domain, &plan::resizes(&live, &wanted, &sizes));
        Ok(ChangedDisks {
            failures,
            live,
            wanted,
            context,
        })
    }
}

/// What is to be done with the disks of the `live` domain, the domain that the VMI wants, and its context.
fn plan_disks(
    pod: &dyn PodBackend,
    vmi: &Vmi,
    options: &VirtualMachineOptions,
    live: &DomainSpec,
) -> Result<(plan::DiskPlan, DomainSpec, Context), LauncherError> {
    let (wanted, context) = pod.wanted(&with_live_targets(vmi, live), options)?;
    let hotplug_dir = context.paths().hotplug_disk_dir;
    let plan = plan::disks(live, &wanted, hotplug_dir).defer_unready(|disk| pod.is_ready(disk));
    Ok((plan, wanted, context))
}

/// The domain once its disks are as the VMI says.
struct ChangedDisks {
    /// Disks that could not be changed.
    failures: Vec<DiskFailure>,
    /// As libvirt reports it now.
    live: DomainSpec,
    /// As the VMI wants it.
    wanted: DomainSpec,
    /// What the conversion has seen.
    context: Context,
}

/// The domain as libvirt has it.
pub(super) fn read_spec(
    domain: &libvirt::Domain,
    kind: XmlKind,
) -> Result<DomainSpec, LauncherError> {
    DomainSpec::from_xml(&domain.xml(kind)?).map_err(LauncherError::Xml)
}
