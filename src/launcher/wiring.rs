//! Wires the launcher's parts together.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};

use tokio::sync::{broadcast, watch};

use super::apply::Apply;
use super::apply::cpus::CpuHotplug;
use super::apply::detach::{self, DetachRequests};
use super::apply::host_devices::HostDevices;
use super::apply::memory::MemoryHotplug;
use super::attestation::Attestation;
use super::backup::Backup;
use super::config::LauncherConfig;
use super::conversion::ConversionWithHooks;
use super::guest_agent::GuestAgent;
use super::guest_agent::clock::GuestClock;
use super::inspect::Inspection;
use super::libvirt_domain::LibvirtDomain;
use super::memory_dump::MemoryDump;
use super::metadata_copy;
use super::metrics::{LauncherMetrics, Metrics};
use super::migration_source::{AdoptedMigration, MigrationSource};
use super::migration_target::{Finalization, MigrationTarget, incoming};
use super::pod_backend::{PodBackend, PodFiles};
use super::pod_network::PodNetwork;
use super::reads::DomainReads;
use super::removals::Removals;
use super::report::Reporter;
use super::requests::Requests;
use super::requests::kill::Killer;
use super::start::Start;
use super::statistics::{AgentData, Statistics};
use super::sync::Syncs;
use super::vm::Vm;
use super::vm::events::EventInbox;
use super::vm::metadata::Metadata;
use super::warnings::Warnings;
use crate::notify::Notifier;
use api::pod_paths::PLUGINS_FILE;
use hooks::Sidecars;
use hooks::plugins::KnownPlugins;
use libvirt::{Connection, Event};
use pod::restart::Restarts;

/// Limit of libvirt's events that a subscriber may leave unread; then it misses the oldest.
const MAX_UNREAD_EVENTS: usize = 64;

/// Manages the one domain of this process: each field serves one kind of request.
pub struct Launcher {
    pub reads: DomainReads,
    /// Changes the domain to match a VMI.
    pub syncs: Arc<Syncs>,
    pub requests: Requests,
    pub killer: Arc<Killer>,
    /// CPUs that are plugged in and out.
    pub cpus: CpuHotplug,
    /// Memory that is plugged in and out.
    pub memory: MemoryHotplug,
    /// Host devices that are plugged in.
    pub host_devices: Arc<HostDevices>,
    /// The guest, through its agent.
    pub guest: Arc<GuestAgent>,
    pub statistics: Statistics,
    pub backup: Arc<Backup>,
    pub memory_dump: Arc<MemoryDump>,
    pub attestation: Attestation,
    pub migration: Arc<MigrationSource>,
    pub migration_target: Arc<MigrationTarget>,
    /// Finishes a migration from another node.
    pub finalization: Finalization,
    pub inspection: Inspection,
    pub(crate) libvirt: Arc<LibvirtDomain>,
    pub(crate) vm: Arc<Vm>,
    pub(crate) config: Arc<LauncherConfig>,
    events: broadcast::Sender<Event>,
    pub(crate) sidecars: Arc<Sidecars>,
    /// Waiting on it tells when virt-handler has everything.
    pub(crate) notifier: Notifier,
    metrics: Arc<Metrics>,
}

impl Launcher {
    /// A launcher on an open connection. The caller registers events with [`Self::handle_event`]
    /// and then calls [`Self::refresh`], which adopts a running domain: if the domain were read
    /// earlier, changes in between would cause no event. Call it on a runtime.
    pub fn new(
        config: LauncherConfig,
        connection: Connection,
        sidecars: Sidecars,
        notifier: Notifier,
    ) -> Arc<Self> {
        let pod = Arc::new(PodFiles::new(config.flags.clone()));
        Self::with_pod(config, connection, sidecars, notifier, pod)
    }

    pub(super) fn with_pod(
        config: LauncherConfig,
        connection: Connection,
        sidecars: Sidecars,
        notifier: Notifier,
        pod: Arc<dyn PodBackend>,
    ) -> Arc<Self> {
        let handles = Handles::new(config, connection, sidecars, notifier, pod);
        let guest = handles.begin_guest();
        let conversion = handles.conversion();
        let metrics = Arc::new(Metrics::default());
        let migration = handles.migration_source(&conversion);
        let syncs = handles.syncs(&guest, &conversion, &metrics);
        let backup = handles.backup(&guest);
        let memory_dump = handles.memory_dump();
        handles.begin_tasks(&backup, &memory_dump);
        handles.report_restart();
        let clock = handles.clock();
        let killer = handles.killer();
        let libvirt = || handles.libvirt.clone();
        Arc::new(Self {
            reads: DomainReads {
                libvirt: libvirt(),
                qemu_version: Arc::default(),
            },
            syncs,
            requests: Requests {
                libvirt: libvirt(),
                clock: clock.clone(),
                killer: killer.clone(),
                removals: handles.removals.clone(),
            },
            killer,
            cpus: CpuHotplug {
                libvirt: libvirt(),
                pod: handles.pod.clone(),
                in_progress: Arc::default(),
            },
            memory: MemoryHotplug {
                libvirt: libvirt(),
                in_progress: Arc::default(),
            },
            host_devices: handles.host_devices(),
            statistics: handles.statistics(&guest, &migration),
            backup,
            memory_dump,
            attestation: Attestation { libvirt: libvirt() },
            migration,
            migration_target: handles.migration_target(&guest, conversion),
            guest,
            finalization: Finalization {
                libvirt: libvirt(),
                clock,
                refreshed: Arc::default(),
            },
            inspection: handles.inspection(),
            vm: handles.libvirt.vm.clone(),
            libvirt: handles.libvirt,
            config: handles.config,
            events: handles.events,
            sidecars: handles.sidecars,
            notifier: handles.notifier,
            metrics,
        })
    }

    /// Takes an event from libvirt. Returns at once, so it may be called on libvirt's own thread.
    ///
    /// The VM must miss none, so it gets each event here; others subscribe, and detect events that
    /// they have missed.
    pub fn handle_event(&self, event: &Event) {
        if event.domain().is_none_or(|name| name == self.libvirt.name) {
            tracing::debug!(?event, "event from libvirt");
            self.vm.note_event(event);
            // Nobody may be listening.
            let _ = self.events.send(event.clone());
        }
    }

    /// libvirt is back on a new connection, for which the caller has registered events.
    pub fn reconnected(&self, connection: Connection) {
        self.libvirt.replace(connection);
        self.metrics.reconnected();
        tracing::info!("Reconnected to libvirt; sending the present state to virt-handler");
        self.notifier.send_again();
        self.refresh();
        self.backup.reconnected();
    }

    /// Asks virt-handler, through the domain's metadata, to shut the guest down: the pod is being
    /// deleted.
    pub fn mark_for_graceful_shutdown(&self) {
        self.vm
            .change_metadata(Metadata::mark_for_graceful_shutdown);
        self.refresh();
    }

    /// Reports the current state to virt-handler, even without an event from libvirt.
    pub fn refresh(&self) {
        self.vm.refresh();
    }

    #[must_use]
    pub fn metrics(&self) -> LauncherMetrics {
        LauncherMetrics {
            counts: self.metrics.clone(),
            vm: self.vm.clone(),
            notifier: self.notifier.clone(),
            sidecars: self.sidecars.clone(),
            timeline: self.config.timeline.clone(),
            migrations: self.migration.record.clone(),
        }
    }
}

/// Handles that operations share.
struct Handles {
    config: Arc<LauncherConfig>,
    libvirt: Arc<LibvirtDomain>,
    pod: Arc<dyn PodBackend>,
    sidecars: Arc<Sidecars>,
    notifier: Notifier,
    warnings: Warnings,
    /// Wakes the reporter.
    inbox: Arc<EventInbox>,
    events: broadcast::Sender<Event>,
    network: Arc<PodNetwork>,
    detach_requests: Arc<Mutex<DetachRequests>>,
    removals: Arc<Removals>,
    ignored: Arc<Mutex<String>>,
}

impl Handles {
    fn new(
        config: LauncherConfig,
        connection: Connection,
        sidecars: Sidecars,
        notifier: Notifier,
        pod: Arc<dyn PodBackend>,
    ) -> Self {
        let (namespace, name) = (&config.flags.namespace, &config.flags.name);
        let inbox = Arc::new(EventInbox::default());
        let vm = Vm::new(namespace, name, &config.flags.uid, inbox.clone());
        // D-sup-16 (docs/differences.md).
        if let Some(kept) = pod::expected_arrival(&config.flags.root) {
            vm.expect_arrival(|metadata| metadata.adopt(&kept));
        }
        let domain_name = format!("{namespace}_{name}");
        Self {
            warnings: Warnings {
                notifier: notifier.clone(),
                vm: vm.clone(),
                namespace: namespace.as_str().into(),
                name: name.as_str().into(),
            },
            libvirt: Arc::new(LibvirtDomain::new(domain_name, connection, vm)),
            pod,
            sidecars: Arc::new(sidecars),
            notifier,
            inbox,
            events: broadcast::Sender::new(MAX_UNREAD_EVENTS),
            network: Arc::new(PodNetwork::new(&config.flags.root)),
            detach_requests: Arc::default(),
            removals: Arc::default(),
            ignored: Arc::default(),
            config: Arc::new(config),
        }
    }

    fn conversion(&self) -> Arc<ConversionWithHooks> {
        Arc::new(ConversionWithHooks {
            pod: self.pod.clone(),
            sidecars: self.sidecars.clone(),
            root: self.config.flags.root.clone(),
            known_plugins: KnownPlugins::new(self.config.flags.root.path(PLUGINS_FILE)),
        })
    }

    fn clock(&self) -> Arc<GuestClock> {
        Arc::new(GuestClock {
            libvirt: self.libvirt.clone(),
            is_set: AtomicBool::default(),
        })
    }

    fn killer(&self) -> Arc<Killer> {
        Arc::new(Killer {
            libvirt: self.libvirt.clone(),
            qemu_pid_file: self.config.qemu_pid_file.clone(),
        })
    }

    fn host_devices(&self) -> Arc<HostDevices> {
        Arc::new(HostDevices {
            libvirt: self.libvirt.clone(),
            pod: self.pod.clone(),
            in_progress: Arc::default(),
        })
    }

    fn statistics(&self, guest: &GuestAgent, migration: &MigrationSource) -> Statistics {
        Statistics {
            libvirt: self.libvirt.clone(),
            guest: guest.known.clone(),
            migration: migration.record.clone(),
            domain: Default::default(),
            dirty_rate: Default::default(),
            agent_data: AgentData {
                libvirt: self.libvirt.clone(),
                known: Default::default(),
            },
        }
    }

    /// Tells whoever watches the VMI that an earlier launcher has died.
    // D-sup-16 (docs/differences.md).
    fn report_restart(&self) {
        if let Some(Restarts { count: 1.., cause }) = &self.config.restarts {
            let message = format!("virt-launcher has died ({cause}) and was started again");
            tracing::warn!("{message}");
            self.warnings.send("LauncherRestarted", message);
        }
    }

    fn inspection(&self) -> Inspection {
        Inspection {
            libvirt: self.libvirt.clone(),
            collects_vm_stats: self.config.flags.vm_stats_collector,
            restarts: self.config.restarts.clone(),
            ignored: self.ignored.clone(),
            hook: self.sidecars.current_call().clone(),
        }
    }

    fn migration_source(&self, conversion: &Arc<ConversionWithHooks>) -> Arc<MigrationSource> {
        Arc::new(MigrationSource {
            libvirt: self.libvirt.clone(),
            conversion: conversion.clone(),
            flags: self.config.flags.clone(),
            events: self.events.clone(),
            record: Arc::default(),
        })
    }

    fn migration_target(
        &self,
        guest: &Arc<GuestAgent>,
        conversion: Arc<ConversionWithHooks>,
    ) -> Arc<MigrationTarget> {
        Arc::new(MigrationTarget {
            libvirt: self.libvirt.clone(),
            pod: self.pod.clone(),
            conversion,
            network: self.network.clone(),
            guest: guest.clone(),
            config: self.config.clone(),
            hook_server: Default::default(),
            tcp_proxies: Default::default(),
            cleanup_requested: watch::Sender::default(),
        })
    }

    fn begin_guest(&self) -> Arc<GuestAgent> {
        GuestAgent::begin(
            &self.libvirt,
            self.notifier.clone(),
            &self.pod,
            &self.config,
            &self.warnings,
            self.events.subscribe(),
        )
    }

    fn syncs(
        &self,
        guest: &Arc<GuestAgent>,
        conversion: &Arc<ConversionWithHooks>,
        metrics: &Arc<Metrics>,
    ) -> Arc<Syncs> {
        let start = Arc::new(Start {
            libvirt: self.libvirt.clone(),
            pod: self.pod.clone(),
            conversion: conversion.clone(),
            network: self.network.clone(),
            freezer: guest.freezer.clone(),
            warnings: self.warnings.clone(),
            config: self.config.clone(),
            ignored: self.ignored.clone(),
            files: Arc::default(),
        });
        let apply = Arc::new(Apply {
            vm: self.libvirt.vm.clone(),
            pod: self.pod.clone(),
            network: self.network.clone(),
            detach_requests: self.detach_requests.clone(),
        });
        Arc::new(Syncs {
            libvirt: self.libvirt.clone(),
            guest: guest.clone(),
            start,
            apply,
            metrics: metrics.clone(),
            queue: Default::default(),
            started_vmi: OnceLock::new(),
        })
    }

    fn backup(&self, guest: &GuestAgent) -> Arc<Backup> {
        let (libvirt, freezer) = (self.libvirt.clone(), guest.freezer.clone());
        Backup::new(libvirt, freezer, self.config.flags.root.clone())
    }

    fn memory_dump(&self) -> Arc<MemoryDump> {
        Arc::new(MemoryDump {
            libvirt: self.libvirt.clone(),
            root: self.config.flags.root.clone(),
        })
    }

    /// Starts the tasks that run for the launcher's life.
    fn begin_tasks(&self, backup: &Arc<Backup>, memory_dump: &Arc<MemoryDump>) {
        let libvirt = || self.libvirt.clone();
        let reporter = Reporter {
            libvirt: libvirt(),
            events: self.inbox.clone(),
            notifier: self.notifier.clone(),
            warnings: self.warnings.clone(),
            removals: self.removals.clone(),
            qemu_log: self.config.qemu_log.clone(),
        };
        tokio::spawn(reporter.run());
        let detached = self.events.subscribe();
        tokio::spawn(detach::follow(self.detach_requests.clone(), detached));
        tokio::spawn(metadata_copy::run(libvirt()));
        tokio::spawn(incoming::follow(libvirt(), self.config.flags.root.clone()));
        tokio::spawn(backup.clone().run(self.events.subscribe()));
        tokio::spawn(AdoptedMigration { libvirt: libvirt() }.run());
        tokio::spawn(memory_dump.clone().resume_after_lost_dumps());
    }
}
