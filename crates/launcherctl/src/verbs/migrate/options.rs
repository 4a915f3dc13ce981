//! The options of a migration on the command line, as virt-handler would send them.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Value, json};

use crate::json::set;
use api::vmi::Quantity;

/// The smallest limit of the bandwidth, in bytes per second: libvirt's unit.
const MIN_BANDWIDTH: u64 = 1 << 20;
/// The longest downtime that QEMU accepts, in milliseconds.
const MAX_DOWNTIME_MS: u64 = 2_000_000;

/// The options of the migration.
#[derive(Debug, Args)]
#[command(next_help_heading = "Migration options")]
pub struct MigrationLimits {
    /// Limit of the traffic in bytes a second, such as 64Mi, rounded to whole Mi; 0 is no limit
    #[arg(long, value_name = "QUANTITY", default_value = "0", value_parser = bandwidth)]
    bandwidth: String,
    /// How long the guest may stand still at the end, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 3000, value_parser = clap::value_parser!(u64).range(..=MAX_DOWNTIME_MS))]
    max_downtime: u64,
    /// Time limit, in seconds for each GiB of memory and of copied disks. Then the migration is
    /// cancelled, unless --post-copy or --allow-pause is given. 0 is no limit
    #[arg(long, value_name = "SECONDS", default_value_t = 150, value_parser = clap::value_parser!(i64).range(0..))]
    completion_timeout: i64,
    /// Cancel the migration if for this many seconds the data left to send has not become less;
    /// 0 is no limit
    #[arg(long, value_name = "SECONDS", default_value_t = 150, value_parser = clap::value_parser!(i64).range(0..))]
    progress_timeout: i64,
    /// Slow the guest's CPUs down if it changes its memory too fast
    #[arg(long)]
    auto_converge: bool,
    /// At the time limit, let the guest run on at the target, which fetches the rest of its memory
    #[arg(long)]
    post_copy: bool,
    /// At the time limit, pause the guest until its memory has been sent
    #[arg(long)]
    allow_pause: bool,
    /// Number of connections that QEMU uses at the same time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=255))]
    parallel: Option<u32>,
    /// Migrate also what libvirt calls unsafe, such as a disk that uses the host's cache
    #[arg(long = "unsafe")]
    allow_unsafe: bool,
}

/// Checks that libvirt can apply the limit.
fn bandwidth(text: &str) -> Result<String, String> {
    let quantity = Quantity(text.to_owned());
    match quantity.bytes() {
        Err(error) => Err(error.to_string()),
        Ok(bytes) if bytes >= MIN_BANDWIDTH => Ok(quantity.0),
        // Part of a byte would round to 0, which means no limit.
        Ok(0) if quantity.equals(&Quantity("0".to_owned())) == Ok(true) => Ok(quantity.0),
        Ok(_) => Err("the smallest limit is 1Mi (1 MiB a second); 0 is no limit".to_owned()),
    }
}

impl MigrationLimits {
    /// `MigrationOptions` as virt-handler writes them; `target_root` is for a target with its own
    /// root, and `ports` maps the ports that differ there.
    pub fn to_json(&self, target_root: Option<&str>, ports: &BTreeMap<u16, u16>) -> Value {
        let mut options = json!({
            "Bandwidth": self.bandwidth,
            "ProgressTimeout": self.progress_timeout,
            "CompletionTimeoutPerGiB": self.completion_timeout,
            "MaxDowntimeMs": self.max_downtime,
            // Launchers on one machine share its page cache, so no cache mode of a disk is unsafe.
            "UnsafeMigration": self.allow_unsafe || target_root.is_some(),
            "AllowAutoConverge": self.auto_converge,
            "AllowPostCopy": self.post_copy,
            "ParallelMigrationThreads": self.parallel,
            "AllowWorkloadDisruption": self.post_copy || self.allow_pause,
        });
        if let Some(root) = target_root {
            set(&mut options, "/TargetRoot", json!(root));
            set(&mut options, "/TargetPorts", json!(ports));
        }
        options
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use api::migration_options::MigrationOptions;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: MigrationLimits,
    }

    fn options(line: &[&str], root: Option<&str>) -> MigrationOptions {
        let line = Line::try_parse_from([&["migrate"], line].concat()).unwrap();
        let json = line
            .options
            .to_json(root, &BTreeMap::from([(8080, 40001)]))
            .to_string();
        MigrationOptions::from_json(json.as_bytes()).unwrap()
    }

    #[test]
    fn without_options_they_are_kubevirts_defaults() {
        let options = options(&[], None);
        assert_eq!(options.max_downtime_ms, 3000);
        assert_eq!(
            (options.progress_timeout, options.completion_timeout_per_gib),
            (150, 150)
        );
        assert!(!options.allow_post_copy && !options.allow_workload_disruption);
        assert!(!options.unsafe_migration);
        assert_eq!(
            (options.stall_detector_options, options.target_root),
            (None, None)
        );
    }

    #[test]
    fn a_limit_that_cannot_be_kept_is_a_wrong_argument() {
        let refusal = |argument: &str| {
            let parsed = Line::try_parse_from(["migrate", argument]);
            parsed.err().map(|error| error.to_string())
        };
        for small in ["0.5", "500m", "1", "1000k", "1048575"] {
            let refusal = refusal(&format!("--bandwidth={small}")).unwrap();
            assert!(refusal.contains("smallest limit is 1Mi"), "{refusal}");
        }
        for kept in ["0", "0Mi", "1Mi", "1048576", "1.5Gi"] {
            assert_eq!(refusal(&format!("--bandwidth={kept}")), None);
        }
        for wrong in [
            "--bandwidth=foo",
            "--bandwidth=",
            "--bandwidth=-1Mi",
            "--max-downtime=2000001",
            "--completion-timeout=-1",
            "--progress-timeout=-1",
            "--parallel=0",
        ] {
            assert!(refusal(wrong).is_some(), "{wrong}");
        }
    }

    #[test]
    fn every_option_reaches_the_launcher() {
        let line = [
            "--bandwidth=64Mi",
            "--max-downtime=100",
            "--completion-timeout=2",
            "--progress-timeout=3",
            "--auto-converge",
            "--post-copy",
            "--parallel=4",
            "--unsafe",
        ];
        let options = options(&line, Some("/vm"));
        assert_eq!(options.bandwidth.bytes(), Ok(64 << 20));
        assert_eq!(
            (options.max_downtime_ms, options.progress_timeout),
            (100, 3)
        );
        assert_eq!(options.completion_timeout_per_gib, 2);
        assert!(options.allow_auto_converge && options.allow_post_copy);
        assert!(options.allow_workload_disruption && options.unsafe_migration);
        assert_eq!(options.parallel_migration_threads, Some(4));
        assert_eq!(options.target_root.as_deref(), Some("/vm"));
        assert_eq!(options.target_ports, BTreeMap::from([(8080, 40001)]));
    }
}
