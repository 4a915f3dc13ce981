//! The options of `MigrateVirtualMachine`: JSON with Go's names, as virt-handler writes them from
//! the cluster's configuration and migration policies.

use std::collections::BTreeMap;

use crate::api;
use crate::vmi::{Factor, Quantity};

api! {
/// `MigrationOptions`.
MigrationOptions {
    /// Limit of the migration's traffic, in bytes a second; empty and 0 are no limit.
    "Bandwidth" bandwidth: Quantity,
    /// Seconds in which the remaining data must shrink; 0 is no limit.
    "ProgressTimeout" progress_timeout: i64,
    /// Seconds for each GiB of the guest's memory and of the disks that are copied; 0 is no limit.
    "CompletionTimeoutPerGiB" completion_timeout_per_gib: i64,
    /// How long the guest may stand still at the end, in milliseconds.
    "MaxDowntimeMs" max_downtime_ms: u64,
    /// libvirt does not refuse what may lose data.
    "UnsafeMigration" unsafe_migration: bool,
    /// QEMU slows the guest's vCPUs down when its memory changes too fast.
    "AllowAutoConverge" allow_auto_converge: bool,
    /// The guest may run on the target before all of its memory is there.
    "AllowPostCopy" allow_post_copy: bool,
    /// Connections that QEMU uses at the same time.
    "ParallelMigrationThreads" parallel_migration_threads: Option<u32>,
    /// The guest may be paused, or continue in post-copy, so that the migration ends in time.
    "AllowWorkloadDisruption" allow_workload_disruption: bool,
    /// Watches the migration by its stalls, in place of the older rules.
    "StallDetectorOptions" stall_detector_options: Option<StallDetectorOptions>,
    /// How the memory is compressed, such as `zstd`.
    "Compression" compression: Option<String>,
    /// Raises the allowed downtime step by step (`KubeVirt` v1.10).
    "DowntimeTuning" downtime_tuning: Option<DowntimeTuning>,
    /// Root directory of a target's launcher on the same machine. Only `launcherctl` sets it: pods
    /// have the same paths.
    "TargetRoot" target_root: Option<String>,
    /// Host ports that are forwarded to the guest: the new one at such a target, by the old one.
    /// The source listens on its own until it ends.
    "TargetPorts" target_ports: BTreeMap<u16, u16>,
}
/// `StallDetectorOptions` of `MigrationOptions`.
StallDetectorOptions {
    /// [`Self::margin`]: a fraction, or in v1.10 percent.
    "StallMargin" stall_margin: f64,
    /// Seconds of the window in which progress is looked for.
    "StallProgressTimeout" stall_progress_timeout: u64,
    /// Seconds that the switchover may take once it is allowed.
    "SwitchoverTimeout" switchover_timeout: u64,
    /// Weight of the newest sample of the bandwidth.
    "EwmaAlpha" ewma_alpha: Factor,
    /// By what factor the expected downtime may exceed the allowed one.
    "PrecopyPossibleFactor" precopy_possible_factor: Factor,
    /// Factor by which the time for a new best value shrinks each time that none came.
    "PatienceWindowDecayFactor" patience_window_decay_factor: Factor,
    /// Act at a local minimum of the remaining data only.
    "SearchLocalMinima" search_local_minima: bool,
    /// By what factor a switchover may exceed the time for the whole migration.
    "CompletionTimeoutFactor" completion_timeout_factor: Factor,
}
/// `DowntimeTuning` of `MigrationOptions`. [`None`] is the default of the launcher.
DowntimeTuning {
    /// The downtime at the beginning, in milliseconds.
    "initialMs" initial_ms: Option<i64>,
    /// Steps from there to the allowed downtime.
    "steps" steps: Option<i32>,
    /// The pass over the memory from which on it rises.
    "startAfterIteration" start_after_iteration: Option<i64>,
    /// Shortest time between two steps, in seconds.
    "cooldownSeconds" cooldown_seconds: Option<i32>,
}
}

impl StallDetectorOptions {
    /// By what fraction the remaining data must fall below the minimum for progress, and how far
    /// above the best value a local minimum may be. A virt-handler that writes quantities means
    /// percent.
    #[must_use]
    pub fn margin(&self) -> f64 {
        match self.ewma_alpha {
            Factor::Number(_) => self.stall_margin,
            Factor::Quantity(_) => self.stall_margin / 100.0,
        }
    }
}

impl MigrationOptions {
    /// Reads them.
    ///
    /// # Errors
    /// When it is not JSON, or has values of the wrong type.
    pub fn from_json(json: &[u8]) -> Result<Self, serde_json::Error> {
        crate::json::from_slice(json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_virt_handler_writes_them() {
        let json = r#"{"Bandwidth":"64Mi","ProgressTimeout":150,"CompletionTimeoutPerGiB":150,"MaxDowntimeMs":3000,
            "UnsafeMigration":false,"AllowAutoConverge":false,"AllowPostCopy":true,"ParallelMigrationThreads":8,
            "AllowWorkloadDisruption":true,"StallDetectorOptions":null,"Compression":null}"#;
        let options = MigrationOptions::from_json(json.as_bytes()).unwrap();
        assert_eq!(options.bandwidth.bytes(), Ok(64 << 20));
        assert_eq!(
            (options.progress_timeout, options.completion_timeout_per_gib),
            (150, 150)
        );
        assert_eq!(options.parallel_migration_threads, Some(8));
        assert!(options.allow_post_copy && options.allow_workload_disruption);
        assert_eq!(
            (options.stall_detector_options, options.compression),
            (None, None)
        );
        assert!(MigrationOptions::from_json(br#"{"MaxDowntimeMs":-1}"#).is_err());
    }

    #[test]
    fn options_of_the_stall_detector_are_read_as_either_version_writes_them() {
        let older = r#"{"StallMargin":0.04,"StallProgressTimeout":20,"SwitchoverTimeout":10,"EwmaAlpha":0.4,
            "PrecopyPossibleFactor":1.5,"PatienceWindowDecayFactor":0.5,"SearchLocalMinima":true,"CompletionTimeoutFactor":2}"#;
        let newer = r#"{"StallMargin":4,"StallProgressTimeout":20,"SwitchoverTimeout":10,"EwmaAlpha":"400m",
            "PrecopyPossibleFactor":"1500m","PatienceWindowDecayFactor":"500m","SearchLocalMinima":true,"CompletionTimeoutFactor":"2"}"#;
        for json in [older, newer] {
            let json = format!(r#"{{"StallDetectorOptions":{json}}}"#);
            let options = MigrationOptions::from_json(json.as_bytes()).unwrap();
            let options = options.stall_detector_options.unwrap();
            assert_eq!(options.margin(), 0.04);
            let factors = [
                options.ewma_alpha,
                options.precopy_possible_factor,
                options.patience_window_decay_factor,
                options.completion_timeout_factor,
            ];
            assert_eq!(factors.map(Factor::value), [0.4, 1.5, 0.5, 2.0]);
        }
        let wrong = br#"{"StallDetectorOptions":{"EwmaAlpha":"many"}}"#;
        let error = MigrationOptions::from_json(wrong).unwrap_err().to_string();
        assert!(error.contains("is not a quantity"), "{error}");
    }
}
