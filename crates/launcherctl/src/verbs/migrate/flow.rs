//! The course of a migration: both virt-handlers' calls in order, and the guest's whereabouts.

use std::collections::BTreeMap;
use std::future::pending;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::cancel::Cancel;
use super::error::MigrateError;
use super::output::Output;
use super::proxies::Proxies;
use super::record::Record;
use super::side::{Side, share_paths};
use super::{MigrateArgs, vmi};
use crate::error::{CtlError, fail};
use crate::host::network::Network;
use crate::host::registry;
use crate::json::{set, text_at};
use crate::reports::events::has_arrived;
use crate::reports::guest_state::status_text;
use api::Action;
use api::proto::cmd::v1::VirtualMachineOptions;
use client::refusal;
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
    /// The VMI as last sent, without the migration.
    sent: &'a Value,
    vmi: Value,
    /// virt-handler's, as sent with the VMI.
    options: VirtualMachineOptions,
    share_paths: bool,
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
        args: &MigrateArgs,
    ) -> Result<Self, CtlError> {
        let share_paths = share_paths(source, target)?;
        let domain = source.guest().await?;
        vmi::check_copies(&args.copied, &target.dir)?;
        let is_paused = text_at(&domain, "/Status/Status") == "Paused";
        let mut vmi = vmi::migrating(sent, &target.pod_name, is_paused, &args.copied);
        vmi::add_image_sizes(&mut vmi, &domain, |path| source.path(path));
        let last = source.client.last_sync().await?;
        let options = last.map_or_else(|| vmi::target_options(&vmi), |last| last.options);
        Ok(Self {
            source,
            target,
            sent,
            vmi,
            options,
            share_paths,
        })
    }

    /// Moves the VM. Returns the duration, in a sentence.
    ///
    /// # Errors
    /// It fails, with the guest's place; [`MigrateError::NotArrived`].
    pub async fn run(
        &self,
        args: &MigrateArgs,
        output: &Output,
        stop: &mut EndSignals,
    ) -> Result<String, CtlError> {
        let mut record = Record::default();
        let result = self.transfer(args, output, stop, &mut record).await;
        output.end_line();
        let reason = match (&result, record.ended()) {
            (Err(error), _) => error.chain(),
            (Ok(_), Some((_, ended))) if !ended.failure.is_empty() => {
                refusal::plain(&ended.failure)
            }
            (Ok(_), _) => match self.arrived().await {
                Ok(()) => return Ok(self.finish(&record, output).await),
                Err(NotArrived::StayedHere) => {
                    "the source's launcher has not reported the end".to_owned()
                }
                Err(NotArrived::Unknown) => {
                    return Err(MigrateError::NotArrived(
                        self.target.dir.root().to_owned(),
                        ARRIVAL_TIMEOUT.as_secs(),
                    )
                    .into());
                }
            },
        };
        self.end_target(output).await;
        let guest = self.guest_in_source().await;
        fail!("the VM is not migrated, and {guest}: {reason}");
    }

    /// Runs from the first call to the end of the migration, or of the source's launcher: the
    /// record tells how it ended. The sockets are needed until the guest has arrived, as libvirt's
    /// daemon may outlive the launcher.
    async fn transfer(
        &self,
        args: &MigrateArgs,
        output: &Output,
        stop: &mut EndSignals,
        record: &mut Record,
    ) -> Result<Proxies, CtlError> {
        let target = &self.target.client;
        let prepared = target.prepare_migration_target(&self.vmi, self.options.clone());
        tokio::select! {
            prepared = prepared => prepared?,
            _ = stop.next() => return Err(MigrateError::Cancelled.into()),
        }
        let (source, target) = (&self.source.dir, &self.target.dir);
        let uid = text_at(&self.vmi, "/metadata/uid");
        let proxies = Proxies::serve(source, target, uid, self.share_paths)?;
        let target_root = (!self.share_paths).then_some(self.target.root.as_str());
        let ports = if self.share_paths {
            BTreeMap::new()
        } else {
            self.move_ports()?
        };
        let options = args.limits.to_json(target_root, &ports);
        self.source.client.migrate(&self.vmi, &options).await?;
        self.follow(args.timeout, output, stop, record).await?;
        Ok(proxies)
    }

    /// The source listens on the guest's forwarded ports until it ends, so the target gets others.
    fn move_ports(&self) -> Result<BTreeMap<u16, u16>, CtlError> {
        let Some(mut network) = Network::load(&self.source.dir)? else {
            return Ok(BTreeMap::new());
        };
        let ports = network.use_other_ports()?;
        network.store(&self.target.dir)?;
        Ok(ports)
    }

    /// The guest's new ports; `None` between pods, which keep theirs.
    fn target_network(&self) -> Result<Option<Network>, CtlError> {
        if self.share_paths {
            return Ok(None);
        }
        Network::load(&self.target.dir)
    }

    /// Takes the source's events to the migration's end. `limit` is in seconds.
    async fn follow(
        &self,
        limit: Option<u64>,
        output: &Output,
        stop: &mut EndSignals,
        record: &mut Record,
    ) -> Result<(), CtlError> {
        let mut events = self.source.client.migration_events(false).await?;
        let late = async {
            match limit {
                Some(seconds) => {
                    sleep(Duration::from_secs(seconds)).await;
                    seconds
                }
                None => pending().await,
            }
        };
        tokio::pin!(late);
        let mut cancelled: Option<Cancel> = None;
        loop {
            let cause = tokio::select! {
                event = events.message() => match event {
                    Ok(Some(mut event)) => {
                        if let Some(cause) = cancelled {
                            cause.explain(&mut event);
                        }
                        record.add(&event);
                        output.event(&event);
                        continue;
                    }
                    // It or its launcher has ended.
                    Ok(None) | Err(_) => return Ok(()),
                },
                _ = stop.next() => Cancel::Signal,
                seconds = &mut late, if cancelled.is_none() => Cancel::Timeout(seconds),
            };
            if cancelled.is_some() {
                output.note(
                    "the migration is being cancelled already; it ends when libvirt has stopped it",
                );
                continue;
            }
            cancelled = Some(cause);
            output.note(&format!(
                "cancelling the migration: {cause}; the guest stays where it is, unless it has just moved"
            ));
            if let Err(error) = self.source.client.cancel_migration(&self.vmi).await {
                cancelled = None;
                output.note(&format!("{}; Ctrl-C tries again", chain(&error)));
            }
        }
    }

    /// Waits until the target reports the guest, as its virt-handler does.
    async fn arrived(&self) -> Result<(), NotArrived> {
        let arrival = async {
            let mut changes = self.target.client.domain_changes().await.ok()?;
            while let Ok(Some(domain)) = changes.next().await {
                if domain.as_ref().is_some_and(has_arrived) {
                    return Some(());
                }
            }
            None
        };
        if let Ok(Some(())) = timeout(ARRIVAL_TIMEOUT, arrival).await {
            return Ok(());
        }
        let domain = self.source.domain().await.unwrap_or_default();
        Err(match text_at(&domain, "/Status/Status") {
            "Running" => NotArrived::StayedHere,
            _ => NotArrived::Unknown,
        })
    }

    /// Does virt-handler's part once the guest is on the target.
    async fn finish(&self, record: &Record, output: &Output) -> String {
        let kept = self.keep(record);
        let target = &self.target.client;
        let finalized = target.finalize_migration(&self.vmi).await;
        let mut vmi = self.sent.clone();
        set(&mut vmi, "/status/phase", json!("Running"));
        let synced = target.sync(&vmi, self.options.clone()).await;
        let calls = [finalized, synced].map(|done| done.map_err(CtlError::from));
        for error in [kept].into_iter().chain(calls).filter_map(Result::err) {
            output.note(&format!("the guest has moved, but: {}", error.chain()));
        }
        if let Ok(Some(network)) = self.target_network() {
            for forward in network.forwards() {
                output.note(&forward.to_string());
            }
        }
        // This ends its launcher, unless whoever started it already has.
        let _ = self.source.client.act(Action::Delete, &self.vmi).await;
        match record.ended() {
            Some(_) => record.summary(),
            None => "migrated; the source's launcher has ended before it said how long that took"
                .to_owned(),
        }
    }

    /// Updates the VM's name, for other verbs, to lead to the target below its own root.
    fn keep(&self, record: &Record) -> Result<(), CtlError> {
        if self.target.is_pod() {
            return Ok(());
        }
        let (source, target) = (&self.source.dir, &self.target.dir);
        target.store_vmi(self.sent)?;
        record.store(target)?;
        let name = text_at(self.sent, "/metadata/name");
        Ok(registry::follow(name, source, target)?)
    }

    /// Nothing arrives at the target any more. It ends, if it knows that it is meant.
    async fn end_target(&self, output: &Output) {
        let ended = self.target.client.end_migration_target(&self.vmi).await;
        let root = self.target.dir.root().display();
        match ended {
            Ok(()) if self.target.pod_name.is_empty() => {
                output.note(&format!("the target's launcher in {root} has no POD_NAME, by which it would know that it is to end: end it yourself"));
            }
            // It may have ended with the migration.
            Ok(()) | Err(_) => {}
        }
    }

    /// The guest's place in a sentence, once the source's guest has resumed.
    async fn guest_in_source(&self) -> String {
        let root = self.source.dir.root().display();
        let runs = async {
            let mut changes = self.source.client.domain_changes().await.ok()?;
            while let Ok(Some(domain)) = changes.next().await {
                let state = domain.as_ref().map(|it| text_at(it, "/Status/Status"));
                if state == Some("Running") {
                    return Some(());
                }
            }
            None
        };
        if let Ok(Some(())) = timeout(RESUME_TIMEOUT, runs).await {
            return format!("the guest runs on in {root}");
        }
        match self.source.domain().await {
            Some(domain) => format!("the guest in {root} is {}", status_text(&domain)),
            None => format!("the launcher in {root} does not answer"),
        }
    }
}

/// Why a guest that should have left has not arrived.
enum NotArrived {
    /// It runs in the source.
    StayedHere,
    Unknown,
}
