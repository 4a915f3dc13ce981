//! A sync: changes the domain to match the VMI.

pub(super) mod decide;
mod dry_run;
mod queue;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prost::bytes::Bytes;
use tokio::time::{Instant, sleep, timeout};

use super::apply::Apply;
use super::apply::error::DeviceFailures;
use super::error::LauncherError;
use super::guest_agent::GuestAgent;
use super::libvirt_domain::{CHANGE_TIMEOUT, LibvirtDomain, blocking, within};
use super::metrics::Metrics;
use super::start::Start;
use super::sync_request::SyncRequest;
use super::vm::{Permission, Phase, Refusal, Request};
use api::proto::inspect::v1::LastSyncResponse;
use api::vmi::Vmi;
use decide::{Facts, NextStep, VmiPhase, decide};
use libvirt::{ChangeableDomain, Connection, DomainHandle, DomainState};
use os::failpoints;
use queue::SyncQueue;

/// Interval of checking whether libvirt has ended a leftover of a start.
const LEFTOVER_RETRY_DELAY: Duration = Duration::from_millis(100);

pub struct Syncs {
    pub(super) libvirt: Arc<LibvirtDomain>,
    pub(super) guest: Arc<GuestAgent>,
    pub(super) start: Arc<Start>,
    pub(super) apply: Arc<Apply>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) queue: SyncQueue,
    /// The VMI that the domain was started with; after an adoption, the first applied one.
    pub(super) started_vmi: OnceLock<Bytes>,
}

impl Syncs {
    /// `SyncVirtualMachine`: changes the domain to match the VMI. A sync that comes while another
    /// one runs waits for it and then uses the newest VMI; waiting syncs share one run.
    ///
    /// # Errors
    /// The first failure. [`LauncherError::Slow`] or [`LauncherError::SlowHook`] if the sync takes
    /// longer than virt-handler waits: it goes on, and the next call joins it.
    // D-hook-5 (docs/differences.md).
    pub async fn sync(self: &Arc<Self>, request: SyncRequest) -> Result<(), LauncherError> {
        let synced = within("the sync", CHANGE_TIMEOUT, self.sync_to_end(request)).await;
        synced.map_err(|error| error.naming(self.start.conversion.sidecars.current_call()))
    }

    /// Like [`Self::sync`] without a limit, for a caller that waits for a long start.
    ///
    /// # Errors
    /// The first failure.
    pub async fn sync_to_end(self: &Arc<Self>, request: SyncRequest) -> Result<(), LauncherError> {
        // Also if the sync is refused: its probes and credentials are the guest's.
        self.guest.follow_vmi(&request.vmi);
        // A sync that is refused at once is not the last sync, and needs no line in the log.
        self.libvirt.vm.admit(Request::Sync)?;
        let plugins = request.plugins.clone();
        // From here on it goes on if the caller gives up.
        let (outcome, run) = self.queue.push(request);
        if run {
            tokio::spawn(self.clone().run());
        }
        let known = &self.start.conversion.known_plugins;
        known.remember(&plugins).await;
        let lost = || Err(Arc::new(LauncherError::Worker { what: "the sync" }));
        let outcome = outcome.await;
        outcome
            .unwrap_or_else(|_| lost())
            .map_err(LauncherError::Joined)
    }

    async fn run(self: Arc<Self>) {
        loop {
            // Waits for the turn, and for the first read: it tells whether the user of an adopted
            // guest has paused it.
            let permission = self.libvirt.vm.permit(Request::Sync).await;
            // Popping comes last, to include requests that arrived meanwhile.
            let Some((request, waiting)) = self.queue.pop() else {
                return;
            };
            let began = Instant::now();
            let this = self.clone();
            // The sync has a task of its own, so that a panic ends only this sync.
            let sync =
                tokio::spawn(
                    async move { this.sync_again_after_loss(permission?, &request).await },
                );
            let outcome = sync
                .await
                .unwrap_or(Err(LauncherError::Worker { what: "the sync" }));
            let outcome = outcome.map_err(Arc::new);
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

    /// Runs one sync, and repeats it on the next connection if libvirt's daemon ends meanwhile:
    /// virt-handler would report the failure as an event of the VMI and ask again.
    // D-vm-13 (docs/differences.md).
    async fn sync_again_after_loss(
        &self,
        permission: Permission,
        request: &SyncRequest,
    ) -> Result<(), LauncherError> {
        let mut connections = self.libvirt.connections();
        match self.sync_once(permission, request).await {
            Err(error) if error.is_connection_lost() => {
                tracing::warn!(reason = %os::logging::chain(&error), "The connection to libvirt was lost during a sync; waiting for the next one");
                // If no new connection comes in time, this returns the first error.
                match timeout(CHANGE_TIMEOUT, connections.changed()).await {
                    // A migration may have begun meanwhile.
                    Ok(Ok(())) => {
                        let permission = self.libvirt.vm.permit(Request::Sync).await?;
                        self.sync_once(permission, request).await
                    }
                    _ => Err(error),
                }
            }
            outcome => outcome,
        }
    }

    /// The domain with its state, if libvirt has it.
    async fn look_up(&self) -> Result<Option<(DomainHandle, DomainState)>, LauncherError> {
        let look_up = |connection: &Connection, name: &str| {
            let Some(domain) = connection.lookup(name)? else {
                return Ok(None);
            };
            let state = domain.state()?;
            Ok(Some((domain, state)))
        };
        let what = "looking up the domain";
        self.libvirt.read_in_any_time(what, look_up).await
    }

    /// The VMI and the options of the last sync, as sent; empty before the first.
    pub fn last_sync(&self) -> LastSyncResponse {
        self.queue.last_sync()
    }

    /// Returns the step that the VMI needs.
    async fn next_step(&self, vmi: &Vmi) -> Result<NextStep<DomainHandle>, LauncherError> {
        let domain = self.look_up().await?;
        let phase = self.libvirt.vm.snapshot().phase;
        let facts = Facts {
            domain,
            has_run: phase.has_run(),
            start_failed: phase == Phase::StartFailed,
            paused_by_user: self.libvirt.vm.is_pause_requested(),
            vmi: VmiPhase::of(vmi),
        };
        tracing::debug!(?facts, "Deciding what the VMI needs");
        Ok(decide(facts))
    }

    async fn sync_once(
        &self,
        permission: Permission,
        request: &SyncRequest,
    ) -> Result<(), LauncherError> {
        failpoints::hit("sync.begun");
        // A granted permission has the turn until this returns, so also to the end of a start.
        let Permission::Granted(permit) = &permission else {
            return self.check_unchanged(request).await;
        };
        let (what, after) = ("ending the QEMU of a failed start", CHANGE_TIMEOUT);
        let end = os::time::deadline(after);
        loop {
            return match self.next_step(&request.vmi).await? {
                // This polls: libvirt may end the QEMU before it is connected again.
                NextStep::Wait if Instant::now() < end => {
                    sleep(LEFTOVER_RETRY_DELAY).await;
                    continue;
                }
                NextStep::Wait => Err(LauncherError::Slow { what, after }),
                NextStep::Create => self.start(request, None).await,
                NextStep::Recreate(leftover) => self.start(request, Some(leftover)).await,
                NextStep::Resume(domain) => {
                    self.apply(request, domain.changeable(permit), true).await
                }
                NextStep::Apply(domain) => {
                    self.apply(request, domain.changeable(permit), false).await
                }
                NextStep::Nothing => {
                    let phase = VmiPhase::of(&request.vmi);
                    tracing::info!(?phase, "The VMI's phase does not allow a start");
                    Ok(())
                }
                NextStep::Ended => {
                    self.libvirt.vm.mark_ended();
                    tracing::info!("The guest ends or has ended; it is not started again");
                    Ok(())
                }
                NextStep::Lost => Err(LauncherError::Lost),
            };
        }
    }

    async fn start(
        &self,
        request: &SyncRequest,
        leftover: Option<DomainHandle>,
    ) -> Result<(), LauncherError> {
        self.start.run(request, leftover).await?;
        // A domain is started once in a launcher's life.
        self.started_vmi.get_or_init(|| request.vmi_json.clone());
        Ok(())
    }

    async fn apply(
        &self,
        request: &SyncRequest,
        domain: ChangeableDomain,
        resume: bool,
    ) -> Result<(), LauncherError> {
        let failures = self.apply.run(request, domain, resume).await?;
        let vm = &self.libvirt.vm;
        vm.change_metadata(|metadata| metadata.take_grace_period(&request.vmi));
        self.started_vmi.get_or_init(|| request.vmi_json.clone());
        if failures.is_empty() {
            Ok(())
        } else {
            Err(DeviceFailures(failures).into())
        }
    }

    /// A sync while the domain migrates: succeeds if it matches the VMI, whose claims may have
    /// grown (its disks grow when it has arrived). virt-handler may send a VMI that it read before
    /// the migration began, and would report a refusal as an event of the VMI.
    // D-mig-28 (docs/differences.md).
    async fn check_unchanged(&self, request: &SyncRequest) -> Result<(), LauncherError> {
        let vm = &self.libvirt.vm;
        let document = vm.snapshot().document.ok_or(Refusal::Migrating)?;
        let apply = self.apply.clone();
        let (vmi, options) = (request.vmi.clone(), request.options.clone());
        let plan = move || apply.plan_devices(&vmi, &options, document.spec.clone());
        let planned = blocking("comparing the domain with its VMI", plan).await?;
        if !planned.plan.is_empty() {
            return Err(Refusal::Migrating.into());
        }
        vm.change_metadata(|metadata| metadata.take_grace_period(&request.vmi));
        Ok(())
    }
}
