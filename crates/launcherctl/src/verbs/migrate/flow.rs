//! The course of a migration: both virt-handlers' calls in order, and the guest's whereabouts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::error::{CANCELLED, NotArrived};
use super::output::Output;
use super::proxies::Proxies;
use super::record::Record;
use super::side::{Side, check_match};
use super::{MigrateArgs, vmi};
use crate::error::{CtlError, fail};
use crate::host::network::Network;
use crate::host::{home, registry};
use crate::json::{list_at, set, text_at};
use crate::verbs::target::check_processes;
use api::Action;
use api::proto::cmd::v1::VirtualMachineOptions;
use client::running::status_text;
use client::{has_arrived, refusal};
use domain::Domain;
use domain::status::LifeCycle;
use os::logging::chain;
use os::signals::EndSignals;

/// Limit for the target to report a guest that has left the source.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);
/// Limit for the source to report that its guest still runs.
const RESUME_TIMEOUT: Duration = Duration::from_secs(5);

/// A migration that is ready to start.
pub struct Migration<'a> {
    source: &'a Side,
    target: &'a Side,
    /// The VMI as last sent, without the migration and what waits for a restart.
    sent: Value,
    vmi: Value,
    /// The sent VMI's fields that wait for a restart, in a plan's format.
    restart: Vec<Value>,
    /// The directory of `--root` to which the VM's disks return.
    home: Option<PathBuf>,
    /// virt-handler's, as sent with the VMI.
    options: VirtualMachineOptions,
    args: &'a MigrateArgs,
    output: Output,
}

impl<'a> Migration<'a> {
    /// Determines what to move.
    ///
    /// # Errors
    /// There is no guest, or source and target do not match.
    pub async fn new(
        source: &'a Side,
        target: &'a Side,
        sent: &'a Value,
        args: &'a MigrateArgs,
        output: Output,
    ) -> Result<Self, CtlError> {
        check_match(source, target)?;
        let domain = source.guest().await?;
        let is_paused = domain.status.status == LifeCycle::Paused;
        // Only our launcher has a plan.
        let plan = source.client.plan(sent).await.unwrap_or_default();
        let pending = list_at(&plan, "/restart");
        let sent = vmi::without_pending(sent, pending);
        let moved = match target.is_pod() {
            true => sent.clone(),
            false => vmi::with_shared_host_disks(&sent),
        };
        let mut vmi = vmi::migrating(&moved, &target.setup.pod_name, is_paused);
        vmi::keep_empty_disks(&mut vmi, &domain, &source.dir.pod_root());
        vmi::add_image_sizes(&mut vmi, &domain, |path| source.path(path));
        let last = source.client.last_sync().await?;
        let restart = [source.dir.load_restart(), pending.to_vec()].concat();
        let options = last.map(|last| last.options).unwrap_or_default();
        Ok(Self {
            source,
            target,
            sent,
            vmi,
            restart,
            home: home::of(&source.dir),
            options,
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
            Ok((_, record)) => match &record.ended {
                Some((_, ended)) if !ended.failure.is_empty() => refusal::plain(&ended.failure),
                // The guest died with the launcher, unless it had left before.
                None if self.source.client.ping().await.is_err()
                    && !self.target.reports(RESUME_TIMEOUT, has_arrived).await
                    && self.target.domain().await.is_none() =>
                {
                    "the source's launcher was killed, and its guest with it".to_owned()
                }
                // As virt-handler does.
                _ if self.target.reports(ARRIVAL_TIMEOUT, has_arrived).await => {
                    return Ok(self.finish(record).await);
                }
                _ if self.source.domain().await.as_ref().is_some_and(is_running) => {
                    "the source's launcher has not reported the end".to_owned()
                }
                _ => {
                    let root = self.target.dir.root().to_owned();
                    return Err(NotArrived(root, ARRIVAL_TIMEOUT.as_secs()).into());
                }
            },
        };
        let has_ended = self.target.client.ping().await.is_err();
        self.end_target().await;
        let guest = self.guest_in_source().await;
        let of_target = match has_ended {
            true => "; the target's launcher has ended, or was killed",
            false => "",
        };
        fail!("the VM is not migrated, and {guest}: {reason}{of_target}");
    }

    /// Runs from the first call to the end of the migration, or of the source's launcher: the
    /// record tells how it ended. The sockets are needed until the guest has arrived, as libvirt's
    /// daemon may outlive the launcher.
    async fn transfer(&self, stop: &mut EndSignals) -> Result<(Proxies, Record), CtlError> {
        let target = &self.target.client;
        let prepared = target.prepare_migration_target(&self.vmi, self.options.clone());
        tokio::select! {
            prepared = prepared => prepared?,
            _ = stop.next() => fail!("{CANCELLED}"),
        }
        let (source, target) = (&self.source.dir, &self.target.dir);
        let uid = text_at(&self.vmi, "/metadata/uid");
        let proxies = Proxies::serve(source, target, uid, self.target.is_pod())?;
        let root = self.target.setup.root.as_str();
        let target_root = (!self.target.is_pod()).then_some(root);
        // The network holds its ports until the target's QEMU listens.
        let (ports, _network) = self.move_ports()?;
        let options = self.args.limits.to_json(target_root, &ports);
        self.source.client.migrate(&self.vmi, &options).await?;
        Ok((proxies, self.follow(stop).await?))
    }

    /// The source listens on the guest's forwarded ports until it ends, so the target gets others,
    /// unless it is in a pod of its own. Says which, before the migration begins.
    fn move_ports(&self) -> Result<(BTreeMap<u16, u16>, Option<Network>), CtlError> {
        if self.target.is_pod() {
            return Ok((BTreeMap::new(), None));
        }
        let Some(mut network) = Network::load(&self.source.dir)? else {
            return Ok((BTreeMap::new(), None));
        };
        let ports = network.use_other_ports()?;
        network.store(&self.target.dir)?;
        if !ports.is_empty() {
            self.output
                .note("published ports do not move with the VM; after the migration:");
        }
        let forwards = network.forwards().iter();
        forwards.for_each(|forward| self.output.note(&forward.to_string()));
        Ok((ports, Some(network)))
    }

    /// Takes the source's events to the migration's end.
    async fn follow(&self, stop: &mut EndSignals) -> Result<Record, CtlError> {
        let mut events = self.source.client.migration_events(false).await?;
        // In seconds; none once it is over.
        let mut limit = self.args.timeout;
        let late = sleep(Duration::from_secs(limit.unwrap_or_default()));
        tokio::pin!(late);
        let mut cancelled: Option<String> = None;
        let mut record = Record::default();
        loop {
            let cause = tokio::select! {
                event = events.message() => match event {
                    Ok(Some(event)) => {
                        record.add(&event);
                        self.output.event(&event);
                        continue;
                    }
                    // It or its launcher has ended.
                    Ok(None) | Err(_) => match cancelled {
                        Some(cause) if record.has_succeeded() == Some(false) => fail!("cancelled {cause}"),
                        _ => return Ok(record),
                    },
                },
                _ = stop.next() => "by Ctrl-C or another signal".to_owned(),
                () = &mut late, if limit.is_some() && cancelled.is_none() => {
                    format!("as it was not complete after --timeout {} s", limit.take().unwrap_or_default())
                }
            };
            if let Err(stopped) = check_processes(&self.source.dir) {
                self.output.note(&stopped.to_string());
            }
            if cancelled.is_some() {
                self.output.note(
                    "the migration is being cancelled already; it ends when libvirt has stopped it",
                );
                continue;
            }
            self.output.note(&format!(
                "the migration is being cancelled {cause}; the guest stays where it is, unless it has just moved"
            ));
            cancelled = Some(cause);
            if let Err(error) = self.source.client.cancel_migration(&self.vmi).await {
                cancelled = None;
                let error = chain(&error);
                self.output.note(&format!("{error}; Ctrl-C tries again"));
            }
        }
    }

    /// Does virt-handler's part once the guest is on the target.
    async fn finish(&self, record: &Record) -> String {
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
        match record.ended {
            Some(_) => record.summary(),
            None => "migrated; the source's launcher has ended before it said how long that took"
                .to_owned(),
        }
    }

    /// Updates the VM's name, for other verbs, to lead to the target below its own root.
    fn keep(&self) -> Result<(), CtlError> {
        if self.target.is_pod() {
            return Ok(());
        }
        let (source, target) = (&self.source.dir, &self.target.dir);
        target.store_vmi(&self.sent)?;
        target.store_restart(&self.restart)?;
        home::pass_on(self.home.clone(), source, target)?;
        let name = text_at(&self.sent, "/metadata/name");
        Ok(registry::follow(name, source, target)?)
    }

    /// Nothing arrives at the target any more. It ends, if it knows that it is meant.
    async fn end_target(&self) {
        // It may have ended with the migration.
        let ended = self.target.client.end_migration_target(&self.vmi).await;
        if ended.is_ok() && self.target.setup.pod_name.is_empty() {
            let root = self.target.dir.root().display();
            self.output.note(&format!("the target's launcher in {root} has no POD_NAME, by which it would know that it is to end: end it yourself"));
        }
    }

    /// The guest's place in a sentence, once the source's guest has resumed.
    async fn guest_in_source(&self) -> String {
        let root = self.source.dir.root().display();
        if self.source.reports(RESUME_TIMEOUT, is_running).await {
            return format!("the guest runs on in {root}");
        }
        match self.source.domain().await {
            Some(domain) => format!("the guest in {root} is {}", status_text(&domain.status)),
            None if !self.source.dir.is_running() => "it has ended meanwhile".to_owned(),
            None => format!("the launcher in {root} does not answer"),
        }
    }
}

fn is_running(domain: &Domain) -> bool {
    domain.status.status == LifeCycle::Running
}
