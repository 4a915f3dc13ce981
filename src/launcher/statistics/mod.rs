//! Statistics for virt-handler's metrics: read from libvirt on request and cached for a short time.
//!
//! A scrape never waits for a job: while another call holds the domain, libvirt leaves out values
//! that it would have to ask QEMU for. Such a call usually takes a few milliseconds, so an answer
//! with gaps is read again a few times.

mod agent_command;
mod agent_data;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::error::LauncherError;
use super::guest_agent::Knowledge;
use super::libvirt_domain::{LibvirtDomain, READ_TIMEOUT, within};
use super::migration_source::{MigrationRecord, job_info};
use super::reads::typed_values;
use domain::DomainSpec;
use domain::stats::{DirtyRate, DomainStats, Load};
use libvirt::{Connection, DomainHandle, StatsGroups};

pub use agent_command::AgentCommand;
pub use agent_data::AgentData;

/// How long statistics are reused, as in KubeVirt.
const STATS_MAX_AGE: Duration = Duration::from_millis(3250);
/// How long the dirty rate is reused.
const DIRTY_RATE_MAX_AGE: Duration = Duration::from_secs(3);
/// How long the guest's writes are measured for the dirty rate.
const CALCULATION_TIME: Duration = Duration::from_secs(1);
/// How long to wait for the result after that, and the interval of checks.
const RESULT_TIMEOUT: Duration = Duration::from_secs(1);
const RESULT_INTERVAL: Duration = Duration::from_millis(200);
/// How often statistics with gaps are read again, and the delay.
const GAP_RETRIES: u32 = 3;
const GAP_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Reads and caches statistics. Concurrent callers share one read.
pub struct Statistics {
    pub(super) libvirt: Arc<LibvirtDomain>,
    pub(super) guest: Arc<Knowledge>,
    pub(super) migration: Arc<MigrationRecord>,
    pub(super) domain: Mutex<Option<(Instant, DomainStats)>>,
    pub(super) dirty_rate: Mutex<Option<(Instant, i64)>>,
    /// The guest agent's own statistics.
    pub agent_data: AgentData,
}

impl Statistics {
    /// `GetDomainStats`, for virt-handler's metrics (`kubevirt_vmi_*`).
    ///
    /// # Errors
    /// There is no running domain, or libvirt does not answer in time.
    // D-stats-1 (docs/differences.md).
    pub async fn domain(&self) -> Result<DomainStats, LauncherError> {
        let what = "reading the domain's statistics";
        let stats = within(what, READ_TIMEOUT, async {
            let mut last = self.domain.lock().await;
            if let Some(stats) = recent(last.as_ref(), STATS_MAX_AGE) {
                return Ok(stats);
            }
            let stats = self.read_stats(what).await?;
            *last = Some((Instant::now(), stats.clone()));
            Ok(stats)
        });
        let mut stats = stats.await?;
        let migration = self.migration.progress();
        stats.migration_job = migration.as_ref().map(job_info).unwrap_or_default();
        let load = self.guest.load();
        stats.load = Load {
            one_minute: load.one,
            five_minutes: load.five,
            fifteen_minutes: load.fifteen,
        };
        Ok(stats)
    }

    /// Reads the statistics (`virDomainListGetStats`), again while they have gaps.
    async fn read_stats(&self, what: &'static str) -> Result<DomainStats, LauncherError> {
        let aliases = self.device_aliases();
        let mut tries = 0..=GAP_RETRIES;
        loop {
            tries.next();
            let aliases = aliases.clone();
            let read = move |connection: &Connection, name: &str| {
                stats(&running(connection, name)?, &aliases)
            };
            let stats = self.libvirt.read(what, read).await?;
            // Whenever libvirt may ask QEMU, it reports the state of a dirty rate's calculation.
            if stats.dirty_rate.status.is_some() || tries.is_empty() {
                return Ok(stats);
            }
            sleep(GAP_RETRY_DELAY).await;
        }
    }

    /// The VMI's names of disks and network interfaces, by their targets.
    fn device_aliases(&self) -> HashMap<String, String> {
        let document = self.libvirt.vm.snapshot().document;
        document.map_or_else(HashMap::new, |document| aliases(&document.spec))
    }

    /// `GetDomainDirtyRateStats`: how fast the guest writes to its memory, in MiB/s. Takes a second
    /// or more.
    ///
    /// # Errors
    /// There is no running domain, or it could not be measured in time.
    pub async fn dirty_rate(&self) -> Result<i64, LauncherError> {
        let what = "measuring how fast the guest writes to its memory";
        within(what, READ_TIMEOUT, async {
            let mut last = self.dirty_rate.lock().await;
            if let Some(rate) = recent(last.as_ref(), DIRTY_RATE_MAX_AGE) {
                return Ok(rate);
            }
            let rate = self.measure_dirty_rate(what).await?;
            *last = Some((Instant::now(), rate));
            Ok(rate)
        })
        .await
    }

    /// Measures (`virDomainStartDirtyRateCalc`) and waits for the result.
    async fn measure_dirty_rate(&self, what: &'static str) -> Result<i64, LauncherError> {
        if self.libvirt.vm.snapshot().job_blocks_reads() {
            return Err(LauncherError::Busy { what });
        }
        let start = |connection: &Connection, name: &str| {
            Ok(running(connection, name)?.start_dirty_rate_calculation(CALCULATION_TIME)?)
        };
        self.libvirt.read(what, start).await?;
        sleep(CALCULATION_TIME).await;
        let end = os::time::deadline(RESULT_TIMEOUT);
        loop {
            let read = |connection: &Connection, name: &str| {
                let reported = running(connection, name)?.stats(StatsGroups::DirtyRate)?;
                Ok(DirtyRate::of(&typed_values(reported).collect()))
            };
            let found = self.libvirt.read(what, read).await?;
            match found.mebibytes_per_second {
                Some(rate) if found.is_measured() => return Ok(rate),
                _ if Instant::now() >= end => return Err(LauncherError::NoDirtyRate),
                _ => sleep(RESULT_INTERVAL).await,
            }
        }
    }
}

/// The last result, unless it is too old.
fn recent<T: Clone>(last: Option<&(Instant, T)>, max_age: Duration) -> Option<T> {
    last.filter(|(read, _)| read.elapsed() < max_age)
        .map(|(_, value)| value.clone())
}

fn running(connection: &Connection, name: &str) -> Result<DomainHandle, LauncherError> {
    let domain = connection.lookup(name)?.ok_or(LauncherError::NoDomain)?;
    if domain.is_active()? {
        Ok(domain)
    } else {
        Err(LauncherError::NoDomain)
    }
}

fn stats(
    domain: &DomainHandle,
    aliases: &HashMap<String, String>,
) -> Result<DomainStats, LauncherError> {
    let reported = typed_values(domain.stats(StatsGroups::All)?).collect();
    // This call waits for a job, so it is made only if the other values show none.
    let memory = if DirtyRate::of(&reported).status.is_some() {
        domain.memory_stats()?
    } else {
        Vec::new()
    };
    let mut stats = DomainStats::new(&reported, &memory, aliases);
    stats.name = domain.name()?;
    stats.uuid = domain.uuid()?;
    stats.cpu_map = domain.vcpu_pinning()?;
    stats.cpu_map_set = true;
    Ok(stats)
}

fn aliases(spec: &DomainSpec) -> HashMap<String, String> {
    let interfaces = spec.devices.interfaces.iter().filter_map(|interface| {
        let target = interface.target.as_ref()?;
        Some((
            target.device.clone(),
            interface.alias.as_ref()?.name.clone(),
        ))
    });
    let disks = spec.devices.disks.iter().filter_map(|disk| {
        let target = &disk.target;
        Some((target.device.clone(), disk.alias.as_ref()?.name.clone()))
    });
    interfaces
        .chain(disks)
        .filter(|(target, _)| !target.is_empty())
        .collect()
}
