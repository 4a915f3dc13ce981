//! The target of a live migration: the pod is made ready, the domain arrives, and what is left to do is done.
//!
//! ```text
//!   SyncMigrationTarget ─► context ─► hook server ─► convert ─► network ─► empty images ─► hooks ─► sockets
//!                                          │                                  (sidecars, plugins; nothing is defined)
//!   libvirt: Prepare ─► qemu hook ─────────┘─► QEMU waits (MigratingIn) ─► the guest runs ─► the job ends ─► endTimestamp
//!   FinalizeVirtualMachineMigration ─► links down and up ─► the guest's clock
//! ```
//!
//! All of it may be repeated. Once the domain is there nothing is prepared any more: its files are in use.

mod finalize;
mod hook_server;
mod incoming;
mod tcp_proxies;

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

use super::libvirt_domain::{CHANGE_TIMEOUT, blocking, within};
use super::start::HookPurpose;
use super::sync_queue::SyncRequest;
use super::vm::{Admission, Phase, Request};
use super::{Launcher, LauncherError};
use api::vmi::Vmi;
use convert::Context;
use domain::DomainSpec;
use finalize::RefreshedInterfaces;
use hook_server::HookServer;
pub use hook_server::HookServerError;
pub(super) use incoming::run as follow_arrival;
#[cfg(test)]
pub(super) use incoming::{Arrival, arrival};
pub use tcp_proxies::ProxyError;
use tcp_proxies::TcpProxies;

/// Functional tests of KubeVirt's want the preparation to fail.
const BLOCK_ANNOTATION: &str = "kubevirt.io/func-test-block-migration-target-preparation";
/// The reference's text, which those tests look for.
const BLOCKED: &str =
    "Blocking preparation of migration target in order to satisfy a functional test condition";
/// What `status.migrationTransport` says where QEMU is reached by unix sockets.
const UNIX_TRANSPORT: &str = "Unix";
/// The condition of a VMI that its user has paused.
const PAUSED_CONDITION: &str = "Paused";

/// What a launcher has as the target of a migration.
#[derive(Default)]
pub(super) struct MigrationTarget {
    hook_server: HookServer,
    tcp_proxies: TcpProxies,
    refreshed_interfaces: RefreshedInterfaces,
    /// virt-handler has given the migration up.
    cleanup_requested: watch::Sender<bool>,
}

impl Launcher {
    /// Makes the pod ready for the domain to arrive.
    ///
    /// # Errors
    /// The first thing that failed; [`LauncherError::Slow`] when it takes longer than virt-handler waits: it goes on, and the
    /// next call does the same once more.
    pub async fn sync_migration_target(
        self: &Arc<Self>,
        request: SyncRequest,
    ) -> Result<(), LauncherError> {
        let what = "preparing the migration target";
        let launcher = self.clone();
        let prepared = tokio::spawn(async move { launcher.prepare_target(&request).await });
        within(what, CHANGE_TIMEOUT, async {
            prepared
                .await
                .unwrap_or(Err(LauncherError::Worker { what }))
        })
        .await
    }

    /// Whether virt-handler means this pod: the migration to it has failed.
    pub fn signal_target_cleanup(&self, vmi: &Vmi) {
        let state = vmi.status.migration_state.as_ref();
        let pod = &self.config.pod_name;
        if !pod.is_empty() && state.is_some_and(|state| state.target_pod == *pod) {
            tracing::info!("Signaled target pod {pod} to cleanup");
            self.migration_target.cleanup_requested.send_replace(true);
        }
    }

    /// Waits until virt-handler has given up the migration to this pod.
    pub async fn cleanup_requested(&self) {
        let mut requested = self.migration_target.cleanup_requested.subscribe();
        // The sender lives as long as the launcher, so this waits, and does not fail.
        let _ = requested.wait_for(|requested| *requested).await;
    }

    async fn prepare_target(self: &Arc<Self>, request: &SyncRequest) -> Result<(), LauncherError> {
        self.known().await?;
        let _turn = self.vm.turn().await;
        // D-mig-20 (docs/differences.md).
        if self.vm.admit(Request::PrepareTarget)? == Admission::NothingToDo {
            tracing::info!("The domain is already here, or arriving; nothing is prepared again");
            self.adopt_arrival(&request.vmi);
            return Ok(());
        }
        let vmi = &request.vmi;
        self.guest_agent.note_vmi(vmi);
        self.follow_access_credentials(vmi);
        let (mut domain, context, cloud_init) = self.convert_for_target(request).await?;
        if self.config.pod.libvirt_hook_server_and_client {
            let target = &self.migration_target;
            target
                .hook_server
                .serve(&self.config.pod, vmi.clone(), context.clone())?;
        }
        self.set_up_network(vmi, &context, &mut domain).await?;
        let xml = self
            .prepare_target_files(request, domain, context, cloud_init)
            .await?;
        self.expect_arrival(vmi);
        // What they make of the domain is not used: they may set up what their device needs in this pod.
        drop(
            self.run_hooks(request, xml, HookPurpose::MigrationTarget)
                .await?,
        );
        if vmi.metadata.annotations.contains_key(BLOCK_ANNOTATION) {
            return Err(LauncherError::FunctionalTest(BLOCKED));
        }
        self.open_sockets(vmi).await
    }

    /// What the conversion makes of the VMI here. Sidecars and plugins see it.
    async fn convert_for_target(
        self: &Arc<Self>,
        request: &SyncRequest,
    ) -> Result<(DomainSpec, Context, Option<Value>), LauncherError> {
        let (pod, vmi, options) = (
            self.pod.clone(),
            request.vmi.clone(),
            request.options.clone(),
        );
        let convert = move || {
            let (domain, context) = pod.wanted_on_target(&vmi, &options)?;
            Ok((domain, context, pod.cloud_init(&vmi)?))
        };
        let (domain, context, data) = blocking("converting the VMI", convert).await?;
        let Some(data) = data else {
            return Ok((domain, context, None));
        };
        let data = self
            .sidecars
            .pre_cloud_init_iso(data, &request.vmi_json, request.deadline)
            .await?;
        Ok((domain, context, Some(data)))
    }

    /// Makes the files that the domain opens, and returns its XML as sidecars get it.
    async fn prepare_target_files(
        self: &Arc<Self>,
        request: &SyncRequest,
        mut domain: DomainSpec,
        context: Context,
        cloud_init: Option<Value>,
    ) -> Result<String, LauncherError> {
        let (launcher, vmi) = (self.clone(), request.vmi.clone());
        let prepare = move || {
            launcher.pod.prepare_target(&vmi, &context, cloud_init)?;
            launcher.pod.resolve_disk_modes(&mut domain)?;
            domain.metadata.kube_virt = launcher.vm.metadata().get().clone();
            Ok(domain.to_xml())
        };
        blocking("preparing the migration target", prepare).await
    }

    /// An earlier launcher was prepared for the domain that arrives: which migration brings it, the domain does not say.
    // D-sup-16 (docs/differences.md).
    fn adopt_arrival(&self, vmi: &Vmi) {
        let vm = self.vm.snapshot();
        let is_adopted = vm.arriving && self.vm.metadata().migration().is_none();
        if vm.phase == Phase::MigratingIn && is_adopted {
            self.expect_arrival(vmi);
        }
    }

    fn expect_arrival(&self, vmi: &Vmi) {
        let state = vmi.status.migration_state.as_ref();
        let uid = state.map_or("", |state| state.source_uid());
        let paused = vmi.has_condition(PAUSED_CONDITION);
        self.vm
            .expect_arrival(paused, |metadata| metadata.migration_in_began(vmi, uid));
    }

    /// Makes the ways by which the source's QEMU reaches this pod's.
    async fn open_sockets(self: &Arc<Self>, vmi: &Arc<Vmi>) -> Result<(), LauncherError> {
        let (pod, of_vmi) = (self.pod.clone(), vmi.clone());
        let open = move || pod.open_for_migration(&of_vmi);
        blocking("preparing the migration's sockets", open).await?;
        if vmi.status.migration_transport != UNIX_TRANSPORT {
            let proxies = &self.migration_target.tcp_proxies;
            proxies.serve(&self.config.pod, vmi)?;
        }
        Ok(())
    }
}
