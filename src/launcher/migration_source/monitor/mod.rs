//! The rules for helping or aborting a migration that does not converge. Pure: they get samples and
//! return decisions. The caller carries out a decision and reports its success.
//!
//! ```text
//!            observe(sample)          performed(succeeded)
//!  sample ─────────────────► decision ─────────────────► decision … none: until the next sample
//! ```
//!
//! Both sets of rules are the reference's, because virt-controller's time limits are made for them.
//! The older set ([`TimeLimits`]) uses only time and progress, and may raise the allowed downtime
//! step by step. The [`StallMonitor`] also looks for
//! the moment with the least data left to transfer.

mod detector;
mod downtime;
mod stall_monitor;
#[cfg(test)]
mod tests;
mod time_limits;

use std::fmt;
use std::time::Duration;

use api::migration_options::MigrationOptions;
use api::vmi::Vmi;
use libvirt::JobStats;

use stall_monitor::StallMonitor;
use time_limits::TimeLimits;

/// The longest downtime that QEMU accepts, in milliseconds.
const MAX_DOWNTIME_MS: u64 = 2_000_000;

/// How the guest's memory is transferred, in KubeVirt's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationMode {
    /// The guest runs on the source.
    PreCopy,
    /// The guest runs on the target, and its memory follows.
    PostCopy,
    /// The guest is paused until its memory is transferred.
    Paused,
}

impl MigrationMode {
    /// The word in the metadata.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PreCopy => "PreCopy",
            Self::PostCopy => "PostCopy",
            Self::Paused => "Paused",
        }
    }
}

/// The limits of the migration, and the help that it may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// `completionTimeoutPerGiB` times the size: limit of the migration, in seconds; 0 means none.
    pub acceptable_seconds: i64,
    /// `progressTimeout`: limit without progress, in seconds; 0 means none.
    pub progress_timeout: i64,
    /// `maxDowntimeMs`: how long the guest may be paused at the end.
    pub max_downtime_ms: u64,
    /// `allowPostCopy`: the guest may run on the target before its memory is there.
    pub allow_post_copy: bool,
    /// `allowWorkloadDisruption`: the guest may be paused, or moved to post-copy.
    pub allow_disruption: bool,
    /// Whether the guest has host devices, with which QEMU cannot do post-copy.
    pub has_vfio: bool,
}

impl Rules {
    /// The rules of a migration with this many gigabytes to transfer.
    pub fn new(options: &MigrationOptions, vmi: &Vmi, gigabytes: i64) -> Self {
        let per_gigabyte = options.completion_timeout_per_gib;
        Self {
            acceptable_seconds: per_gigabyte.saturating_mul(gigabytes),
            progress_timeout: options.progress_timeout,
            max_downtime_ms: options.max_downtime_ms,
            allow_post_copy: options.allow_post_copy,
            allow_disruption: options.allow_workload_disruption,
            has_vfio: vmi.has_vfio(),
        }
    }

    /// Post-copy is decided by `allowPostCopy`; not with host devices (VFIO).
    fn can_post_copy(&self) -> bool {
        self.allow_post_copy && !self.has_vfio
    }
}

/// The migration at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// Time since the migration began.
    pub elapsed: Duration,
    /// QEMU has just started a new pass over the memory, so its statistics are exact.
    pub is_iteration: bool,
    /// The state of libvirt's job; `None` if libvirt did not answer.
    pub stats: Option<JobStats>,
    /// QEMU has stopped the guest to transfer the rest.
    pub is_paused_to_migrate: bool,
    /// The migration is being aborted.
    pub is_aborting: bool,
}

impl Sample {
    fn seconds(&self) -> i64 {
        i64::try_from(self.elapsed.as_secs()).unwrap_or(i64::MAX)
    }

    /// libvirt's statistics while the job runs.
    pub fn running(&self) -> Option<&JobStats> {
        self.stats.as_ref().filter(|stats| stats.is_unbounded)
    }
}

/// An action, and the reason for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    pub action: MonitorAction,
    /// The reason, for the log.
    pub why: ActionReason,
}

/// An action on a migration in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MonitorAction {
    /// The guest continues on the target.
    StartPostCopy,
    /// Sets how many milliseconds the guest may be paused at the end.
    SetMaxDowntime(u64),
    /// Stops the guest's vCPUs, so that its memory no longer changes.
    /// libvirt resumes the guest if the migration fails.
    Suspend,
    /// Aborts the migration; the guest continues here.
    Abort,
}

impl MonitorAction {
    /// The name in `launcherctl`.
    pub fn name(self) -> &'static str {
        match self {
            Self::StartPostCopy => "StartPostCopy",
            Self::SetMaxDowntime(_) => "SetMaxDowntime",
            Self::Suspend => "Suspend",
            Self::Abort => "Abort",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ActionReason {
    NotBeforeAllowed,
    TimeIsUp {
        seconds: i64,
    },
    NoProgress {
        seconds: u64,
    },
    LocalMinimum {
        downtime_ms: u32,
    },
    /// [`downtime::Tuner`].
    Tuning {
        from_ms: u64,
        max_ms: u64,
    },
    DowntimeAllowed {
        downtime_ms: u32,
        max_ms: u64,
    },
    DowntimeTooLong {
        downtime_ms: u32,
        max_ms: u64,
        factor: f64,
    },
    NoBandwidth,
}

impl fmt::Display for ActionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBeforeAllowed => f.write_str("the downtime that is allowed at the beginning"),
            Self::TimeIsUp { seconds } => write!(f, "not completed after {seconds} s"),
            Self::NoProgress { seconds } => write!(f, "stuck for {seconds} s"),
            Self::LocalMinimum { downtime_ms } => {
                write!(
                    f,
                    "stalled; the rest takes {downtime_ms} ms, a local minimum"
                )
            }
            Self::Tuning { from_ms, max_ms } => {
                write!(
                    f,
                    "the downtime changes step by step, from {from_ms} ms to {max_ms} ms at most"
                )
            }
            Self::DowntimeAllowed {
                downtime_ms,
                max_ms,
            } => {
                write!(
                    f,
                    "stalled; the rest takes {downtime_ms} ms, which a maximum of {max_ms} ms allows"
                )
            }
            Self::DowntimeTooLong {
                downtime_ms,
                max_ms,
                factor,
            } => {
                write!(
                    f,
                    "stalled; the rest takes {downtime_ms} ms, more than {factor} times the maximum of {max_ms} ms"
                )
            }
            Self::NoBandwidth => f.write_str("time is up, and the bandwidth is not known"),
        }
    }
}

/// The rules of one migration.
#[derive(Debug)]
pub enum Monitor {
    /// Uses time and progress only.
    TimeLimits(Box<TimeLimits>),
    /// Detects stalls.
    Stall(Box<StallMonitor>),
}

impl Monitor {
    pub fn new(rules: Rules, options: &MigrationOptions) -> Self {
        match &options.stall_detector_options {
            Some(stalls) => Self::Stall(Box::new(StallMonitor::new(rules, stalls.clone()))),
            None => {
                let tuning = options.downtime_tuning.as_ref();
                Self::TimeLimits(Box::new(TimeLimits::new(rules, tuning)))
            }
        }
    }

    /// How the guest's memory is transferred now.
    pub fn mode(&self) -> MigrationMode {
        match self {
            Self::TimeLimits(limits) => limits.mode,
            Self::Stall(monitor) => monitor.mode,
        }
    }

    /// Whether samples at iterations (`VIR_DOMAIN_EVENT_ID_MIGRATION_ITERATION`) are useful.
    pub fn wants_iterations(&self) -> bool {
        matches!(self, Self::Stall(_))
    }

    /// The decision after this sample.
    pub fn observe(&mut self, sample: &Sample) -> Option<Decision> {
        match self {
            Self::TimeLimits(limits) => limits.observe(sample),
            Self::Stall(monitor) => monitor.observe(sample),
        }
    }

    /// The next decision for the same sample, after the last one was carried out.
    pub fn performed(&mut self, succeeded: bool) -> Option<Decision> {
        match self {
            Self::TimeLimits(limits) => limits.performed(succeeded),
            Self::Stall(monitor) => monitor.performed(succeeded),
        }
    }
}
