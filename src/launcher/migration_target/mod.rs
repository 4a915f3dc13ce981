//! The target of a live migration: prepares the pod, receives the domain, finishes the migration.
//!
//! ```text
//!   SyncMigrationTarget ─► convert ─► machine type, CPU ─► PreCloudInitIso ─► hook server ─► network ─┐
//!                                       are known?          sidecars                                  │
//!     ┌───────────────────────────────────────────────────────────────────────────────────────────────┘
//!     └─► files ─► Expected ─► OnDefineDomain ─► sockets
//!                              sidecars, plugins; nothing is defined
//!   libvirt: Prepare ─► qemu hook ─► hook server ─► QEMU waits (MigratingIn) ─► the guest runs ─► the job ends ─► endTimestamp
//!   FinalizeVirtualMachineMigration ─► links down and up ─► the guest's clock
//! ```
//!
//! After the conversion, a guest whose machine type or CPU model this image lacks is refused. Every
//! step may be repeated, but not once the domain is here: its files are then in use.

mod compatibility;
pub(super) mod error;
mod finalize;
mod hook_server;
pub(super) mod incoming;
mod tcp_proxies;

use std::sync::Arc;

use tokio::sync::watch;

use super::config::LauncherConfig;
use super::conversion::{ConversionWithHooks, Converted};
use super::error::LauncherError;
use super::guest_agent::GuestAgent;
use super::libvirt_domain::{CHANGE_TIMEOUT, LibvirtDomain, blocking, within};
use super::pod_backend::{ConvertFor, PodBackend};
use super::pod_network::PodNetwork;
use super::qemu::find_qemu;
use super::sync_request::SyncRequest;
use super::vm::{Request, Vm};
use api::vmi::Vmi;
use error::TargetError;
pub use finalize::Finalization;
use hook_server::HookServer;
use hooks::plugins::InvocationContext;
use pod::Root;
use tcp_proxies::TcpProxies;

/// KubeVirt's functional tests set this annotation to make the preparation fail.
const BLOCK_ANNOTATION: &str = "kubevirt.io/func-test-block-migration-target-preparation";
/// Value of `status.migrationTransport` if the source reaches QEMU by unix sockets.
const UNIX_TRANSPORT: &str = "Unix";

/// Prepares the pod for a domain from another node.
pub struct MigrationTarget {
    pub(super) libvirt: Arc<LibvirtDomain>,
    pub(super) pod: Arc<dyn PodBackend>,
    pub(super) conversion: Arc<ConversionWithHooks>,
    pub(super) network: Arc<PodNetwork>,
    pub(super) guest: Arc<GuestAgent>,
    pub(super) config: Arc<LauncherConfig>,
    pub(super) hook_server: HookServer,
    pub(super) tcp_proxies: TcpProxies,
    /// Set when virt-handler gives up the migration, or this pod cannot receive the guest.
    pub(super) cleanup_requested: watch::Sender<bool>,
}

impl MigrationTarget {
    /// Prepares the pod for the domain's arrival.
    ///
    /// # Errors
    /// The first failure. [`LauncherError::Slow`] or [`LauncherError::SlowHook`] if the preparation
    /// takes longer than virt-handler waits: it goes on, and the next call repeats it.
    pub async fn sync(self: &Arc<Self>, request: SyncRequest) -> Result<(), LauncherError> {
        let what = "preparing the migration target";
        let known = &self.conversion.known_plugins;
        known.remember(&request.plugins).await;
        let this = self.clone();
        let prepared = tokio::spawn(async move {
            let prepared = this.prepare(&request).await;
            if let Err(LauncherError::Target(error)) = &prepared
                && error.is_final()
            {
                // virt-handler would repeat the call for ever; virt-controller fails the migration
                // of a pod that ends.
                this.cleanup_requested.send_replace(true);
            }
            prepared
        });
        let prepared = within(what, CHANGE_TIMEOUT, async {
            prepared
                .await
                .unwrap_or(Err(LauncherError::Worker { what }))
        });
        let hook = self.conversion.sidecars.current_call();
        prepared.await.map_err(|error| error.naming(hook))
    }

    /// `SignalTargetPodCleanup`: the migration to this pod has failed, if the VMI names this pod as
    /// its target (`targetPod`).
    pub fn signal_cleanup(&self, vmi: &Vmi) {
        let state = vmi.status.migration_state.as_ref();
        let pod = &self.config.pod_name;
        if !pod.is_empty() && state.is_some_and(|state| state.target_pod == *pod) {
            tracing::info!("Signaled target pod {pod} to cleanup");
            self.cleanup_requested.send_replace(true);
        }
    }

    /// Waits until virt-handler gives up the migration to this pod, or the launcher has refused the
    /// guest for good.
    pub async fn wait_for_cleanup_request(&self) {
        let mut requested = self.cleanup_requested.subscribe();
        // Cannot fail: the sender lives as long as the launcher.
        let _ = requested.wait_for(|requested| *requested).await;
    }

    async fn prepare(&self, request: &SyncRequest) -> Result<(), LauncherError> {
        // D-mig-20 (docs/differences.md).
        let permission = self.libvirt.vm.permit(Request::PrepareTarget).await?;
        // The turn lasts until all is prepared.
        let Some(_turn) = permission.into_permit()? else {
            tracing::info!("The domain is already here, or arriving; nothing is prepared again");
            return Ok(());
        };
        // libvirt does not show a domain that arrives. The pod was prepared before QEMU came.
        if find_qemu(&self.config.qemu_pid_file, &self.libvirt.name).is_ok() {
            tracing::info!("The domain is already arriving; nothing is prepared again");
            return Ok(());
        }
        let vmi = &request.vmi;
        self.guest.follow_vmi(vmi);
        let guest = ConvertFor::Arrival;
        let mut converted = self.conversion.convert(request, guest).await?;
        compatibility::check(&self.libvirt, vmi, &converted.domain).await?;
        if let Some(data) = converted.cloud_init.take() {
            let edited = self.conversion.run_cloud_init_hooks(request, data);
            converted.cloud_init = Some(edited.await?);
        }
        if self.config.flags.has_libvirt_hook() {
            let context = converted.context.clone();
            self.hook_server
                .serve(&self.config.flags, vmi.clone(), context)?;
        }
        self.network
            .set_up(vmi, &converted.context, &mut converted.domain)
            .await?;
        let xml = self.prepare_files(request, converted).await?;
        // Hooks may set up their devices in this pod. The domain that they return is dropped.
        let hooks =
            self.conversion
                .run_define_hooks(request, xml, InvocationContext::MigrationTarget);
        drop(hooks.await?);
        if vmi.metadata.annotations.contains_key(BLOCK_ANNOTATION) {
            return Err(TargetError::FunctionalTest.into());
        }
        self.open_sockets(vmi).await
    }

    /// Makes the files that the domain opens, and expects it: before the hooks, which may take long
    /// and fail, because from here on no sync starts a domain. Returns the domain XML for them.
    async fn prepare_files(
        &self,
        request: &SyncRequest,
        converted: Converted,
    ) -> Result<String, LauncherError> {
        let (pod, vmi) = (self.pod.clone(), request.vmi.clone());
        let vm = self.libvirt.vm.clone();
        let prepare = move || {
            let Converted {
                mut domain,
                context,
                cloud_init,
            } = converted;
            pod.prepare(&vmi, &context, cloud_init, ConvertFor::Arrival)?;
            pod.resolve_disk_modes(&mut domain)?;
            domain.metadata.kube_virt = vm.metadata().get().clone();
            expect_arrival(&vm, &vmi, &pod.flags().root);
            Ok(domain.to_xml())
        };
        blocking("preparing the migration target", prepare).await
    }

    /// Opens the sockets by which the source's QEMU reaches the QEMU of this pod.
    async fn open_sockets(&self, vmi: &Arc<Vmi>) -> Result<(), LauncherError> {
        let (pod, of_vmi) = (self.pod.clone(), vmi.clone());
        let open = move || pod.open_for_migration(&of_vmi);
        blocking("preparing the migration's sockets", open).await?;
        if vmi.status.migration_transport != UNIX_TRANSPORT {
            self.tcp_proxies.serve(&self.config.flags, vmi)?;
        }
        Ok(())
    }
}

/// Expects the domain, and keeps that for a later launcher.
fn expect_arrival(vm: &Vm, vmi: &Vmi, root: &Root) {
    let state = vmi.status.migration_state.as_ref();
    let uid = state.map_or("", |state| state.source_uid());
    vm.expect_arrival(|metadata| metadata.migration_in_began(vmi, uid));
    if let Err(error) = pod::keep_arrival(root, vm.metadata().get()) {
        tracing::warn!(reason = %os::logging::chain(&error), "A later launcher will not know of this migration");
    }
}
