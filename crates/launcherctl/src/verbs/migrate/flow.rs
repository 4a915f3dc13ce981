//! The course of a migration: both virt-handlers' calls in order, and the guest's whereabouts.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::output::{MigrationOutput, seconds, summary};
use super::{MigrateArgs, vmi};
use crate::error::{CtlError, fail};
use crate::files::FileError;
use crate::host::network::HostNetwork;
use crate::host::registry;
use crate::host::vm_dir::VmDir;
use crate::json::{list_at, set, text_at};
use crate::verbs::run::{CANCELLED, NotArrived};
use crate::verbs::target::RunningVm;
use api::Action;
use api::pod_paths::{
    MIGRATION_DISKS_PORT, MIGRATION_MEMORY_PORT, MIGRATION_SOCKET_DIR, PodPaths, VIRTQEMUD_SOCKET,
};
use api::proto::cmd::v1::VirtualMachineOptions;
use api::proto::inspect::v1::MigrationEnded;
use api::proto::inspect::v1::migration_event::Event;
use client::running::status_text;
use client::{Client, has_arrived, refusal};
use domain::Domain;
use domain::status::LifeCycle;
use os::logging::chain;
use os::signals::EndSignals;

/// Limit for the target to report a guest that has left the source.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);
/// Limit for the source to report that its guest still runs.
const RESUME_TIMEOUT: Duration = Duration::from_secs(5);

/// How a migration has ended, after so many seconds; `None` if its launcher ended before it said
/// so.
type End = Option<(f64, MigrationEnded)>;

/// The launcher that should receive the VM.
///
/// # Errors
/// It does not answer, or cannot receive a VM.
pub async fn target_launcher(dir: &VmDir) -> Result<RunningVm, CtlError> {
    if !dir.path(VIRTQEMUD_SOCKET).exists() {
        fail!(
            "the target's launcher runs libvirt without a daemon, and cannot receive a VM: install it (Debian: libvirt-daemon)"
        );
    }
    RunningVm::connect(dir.clone()).await
}

/// The launcher's domain, if it answers and has one.
async fn domain_of(launcher: &Client) -> Option<Domain> {
    launcher.domain().await.ok().flatten()
}

/// Waits until the launcher reports a domain like this, at most for `limit`. Returns whether it
/// has.
async fn reports(launcher: &Client, limit: Duration, is_wanted: fn(&Domain) -> bool) -> bool {
    let reported = async {
        let mut changes = launcher.domain_changes().await.ok()?;
        while let Ok(Some(domain)) = changes.next().await {
            if domain.as_ref().is_some_and(is_wanted) {
                return Some(());
            }
        }
        None
    };
    matches!(timeout(limit, reported).await, Ok(Some(())))
}

/// A migration that is ready to start.
pub struct MigrationFlow<'a> {
    source: &'a RunningVm,
    target: &'a RunningVm,
    /// The VMI as last sent, without the migration.
    sent: &'a Value,
    vmi: Value,
    /// virt-handler's, as sent with the VMI.
    options: VirtualMachineOptions,
    args: &'a MigrateArgs,
    output: MigrationOutput,
}

impl<'a> MigrationFlow<'a> {
    /// Determines what to move.
    ///
    /// # Errors
    /// The source does not answer.
    pub async fn new(
        source: &'a RunningVm,
        target: &'a RunningVm,
        sent: &'a Value,
        guest: &Domain,
        args: &'a MigrateArgs,
        output: MigrationOutput,
    ) -> Result<Self, CtlError> {
        let plan = source.client.plan(sent).await?;
        // The target would take it for the guest's.
        if let Some(pending) = list_at(&plan, "/restart").first() {
            fail!(
                "the VM cannot move before its restart: {}",
                text_at(pending, "/why")
            );
        }
        let mut vmi = vmi::migrating(sent, guest.status.status == LifeCycle::Paused);
        vmi::add_image_sizes(&mut vmi, guest);
        Ok(Self {
            source,
            target,
            sent,
            vmi,
            options: source.options().await?,
            args,
            output,
        })
    }

    /// Moves the VM. Returns the duration, in a sentence.
    ///
    /// # Errors
    /// It fails, with the guest's place; [`NotArrived`].
    pub async fn run(&self, stop: &mut EndSignals) -> Result<String, CtlError> {
        let transferred = self.transfer(stop).await;
        let reason = match &transferred {
            Err(error) => error.chain(),
            Ok((_, end)) => match end {
                Some((_, ended)) if !ended.failure.is_empty() => refusal::plain(&ended.failure),
                // As virt-handler does.
                _ if reports(&self.target.client, ARRIVAL_TIMEOUT, has_arrived).await => {
                    return Ok(self.finish(end).await);
                }
                _ if domain_of(&self.source.client)
                    .await
                    .as_ref()
                    .is_some_and(is_running) =>
                {
                    "the source's launcher has not reported the end".to_owned()
                }
                _ => {
                    let root = self.target.dir.root().to_owned();
                    return Err(NotArrived(root, ARRIVAL_TIMEOUT.as_secs()).into());
                }
            },
        };
        // It may have ended with the migration.
        let _ = self.target.client.end_migration_target(&self.vmi).await;
        let guest = self.guest_in_source().await;
        fail!("the VM is not migrated, and {guest}: {reason}");
    }

    /// Runs from the first call to the end of the migration, or of the source's launcher. The
    /// sockets are needed until the guest has arrived, as libvirt's
    /// daemon may outlive the launcher.
    async fn transfer(&self, stop: &mut EndSignals) -> Result<(Sockets, End), CtlError> {
        let target = &self.target.client;
        let prepared = target.prepare_migration_target(&self.vmi, self.options.clone());
        tokio::select! {
            prepared = prepared => prepared?,
            _ = stop.next() => fail!("{CANCELLED}"),
        }
        let (source, target) = (&self.source.dir, &self.target.dir);
        let sockets = Sockets::link(source, target, text_at(&self.vmi, "/metadata/uid"))?;
        let ports = self.move_ports()?;
        let options = self.args.limits.to_json(target.root(), &ports);
        self.source.client.migrate(&self.vmi, &options).await?;
        Ok((sockets, self.follow(stop).await?))
    }

    /// The source listens on the guest's forwarded ports until it ends, so the target gets others.
    /// Says which, before the migration begins.
    fn move_ports(&self) -> Result<BTreeMap<u16, u16>, CtlError> {
        let Some(mut network) = HostNetwork::load(&self.source.dir)? else {
            return Ok(BTreeMap::new());
        };
        let ports = network.use_other_ports()?;
        network.store(&self.target.dir)?;
        if !ports.is_empty() {
            self.output
                .note("published ports do not move with the VM; after the migration:");
        }
        let forwards = network.forwards().iter();
        forwards.for_each(|forward| self.output.note(&forward.to_string()));
        Ok(ports)
    }

    /// Takes the source's events to the migration's end.
    async fn follow(&self, stop: &mut EndSignals) -> Result<End, CtlError> {
        let mut events = self.source.client.migration_events().await?;
        let late = sleep(self.args.timeout.map_or(Duration::MAX, Duration::from_secs));
        tokio::pin!(late);
        let mut cancelled: Option<&str> = None;
        let mut end: End = None;
        loop {
            let cause = tokio::select! {
                event = events.message() => match event {
                    Ok(Some(event)) => {
                        self.output.event(&event);
                        if let Some(Event::Ended(ended)) = &event.event {
                            end = Some((seconds(&event), ended.clone()));
                        }
                        continue;
                    }
                    // It or its launcher has ended.
                    Ok(None) | Err(_) => match cancelled {
                        Some(cause) if end.as_ref().is_some_and(|(_, it)| !it.failure.is_empty()) => {
                            fail!("cancelled {cause}")
                        }
                        _ => return Ok(end),
                    },
                },
                _ = stop.next() => "by Ctrl-C or another signal",
                () = &mut late, if cancelled.is_none() => "as it was not complete after --timeout",
            };
            self.output.note(&format!(
                "the migration is being cancelled {cause}; the guest stays where it is, unless it has just moved"
            ));
            cancelled = Some(cause);
            if let Err(error) = self.source.client.cancel_migration(&self.vmi).await {
                let error = chain(&error);
                self.output.note(&format!("{error}; Ctrl-C tries again"));
            }
        }
    }

    /// Does virt-handler's part once the guest is on the target.
    async fn finish(&self, end: &End) -> String {
        let kept = self.keep();
        let target = &self.target.client;
        let finalized = target.finalize_migration(&self.vmi).await;
        let mut vmi = self.sent.clone();
        set(&mut vmi, "/status/phase", json!("Running"));
        let synced = target.sync(&vmi, self.options.clone()).await;
        let calls = [finalized, synced].map(|done| done.map_err(CtlError::from));
        for error in [kept].into_iter().chain(calls).filter_map(Result::err) {
            self.output
                .note(&format!("the guest has moved, but: {}", error.chain()));
        }
        // This ends its launcher, unless whoever started it already has.
        let _ = self.source.client.act(Action::Delete, &self.vmi).await;
        match end {
            Some((seconds, ended)) => summary(*seconds, ended),
            None => "migrated".to_owned(),
        }
    }

    /// Updates the VM's name, for other verbs, to lead to the target.
    fn keep(&self) -> Result<(), CtlError> {
        let (source, target) = (&self.source.dir, &self.target.dir);
        target.store_vmi(self.sent)?;
        target.store_restart(&source.load_restart())?;
        registry::follow(source, target)
    }

    /// The guest's place in a sentence, once the source's guest has resumed.
    async fn guest_in_source(&self) -> String {
        let RunningVm { dir, client } = self.source;
        let root = dir.root().display();
        if reports(client, RESUME_TIMEOUT, is_running).await {
            return format!("the guest runs on in {root}");
        }
        match domain_of(client).await {
            Some(domain) => format!("the guest in {root} is {}", status_text(&domain.status)),
            None if !dir.is_running() => "it has ended meanwhile".to_owned(),
            None => format!("the launcher in {root} does not answer"),
        }
    }
}

fn is_running(domain: &Domain) -> bool {
    domain.status.status == LifeCycle::Running
}

/// The sockets below the source's root through which its libvirt and QEMU reach the target's, where
/// virt-handlers have their proxies; removed on drop.
#[derive(Debug)]
struct Sockets(Vec<PathBuf>);

impl Sockets {
    /// Links the socket of the target's libvirt; the target's QEMU makes its own ones.
    ///
    /// # Errors
    /// The link cannot be made.
    fn link(source: &VmDir, target: &VmDir, uid: &str) -> Result<Self, CtlError> {
        let dir = source.path(&PodPaths::default().shared(MIGRATION_SOCKET_DIR));
        std::fs::create_dir_all(&dir).map_err(FileError::on("make", &dir))?;
        let ports = [MIGRATION_MEMORY_PORT, MIGRATION_DISKS_PORT];
        let of_qemu = ports.map(|port| dir.join(format!("{uid}-{port}-source.sock")));
        let libvirt = dir.join(format!("{uid}-source.sock"));
        let _ = std::fs::remove_file(&libvirt);
        symlink(target.path(VIRTQEMUD_SOCKET), &libvirt)
            .map_err(FileError::on("make", &libvirt))?;
        Ok(Self(of_qemu.into_iter().chain([libvirt]).collect()))
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        for socket in &self.0 {
            let _ = std::fs::remove_file(socket);
        }
    }
}
