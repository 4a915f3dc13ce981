//! The options of a migration on the command line, as virt-handler would send them.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Args;
use serde_json::{Value, json};

/// The options of the migration.
#[derive(Debug, Args)]
#[command(next_help_heading = "Migration options")]
pub struct MigrationLimits {
    /// Limit of the traffic in bytes a second, such as 64Mi, rounded to whole Mi; 0 is no limit
    #[arg(long, value_name = "QUANTITY", default_value = "0")]
    bandwidth: String,
    /// Time limit, in seconds for each GiB of memory and of copied disks. Then the migration is
    /// cancelled, unless --post-copy or --allow-pause is given. 0 is no limit
    #[arg(long, value_name = "SECONDS", default_value_t = 150, value_parser = clap::value_parser!(i64).range(0..))]
    completion_timeout: i64,
    /// Slow the guest's CPUs down if it changes its memory too fast
    #[arg(long)]
    auto_converge: bool,
    /// At the time limit, let the guest run on at the target, which fetches the rest of its memory
    #[arg(long)]
    post_copy: bool,
    /// At the time limit, pause the guest until its memory has been sent
    #[arg(long)]
    allow_pause: bool,
}

impl MigrationLimits {
    /// `MigrationOptions` as virt-handler writes them, with KubeVirt's defaults; `ports` maps the
    /// ports that differ at the target.
    pub fn to_json(&self, target_root: &Path, ports: &BTreeMap<u16, u16>) -> Value {
        json!({
            "Bandwidth": self.bandwidth,
            "ProgressTimeout": 150,
            "CompletionTimeoutPerGiB": self.completion_timeout,
            "MaxDowntimeMs": 3000,
            // Launchers on one machine share its page cache, so no cache mode of a disk is unsafe.
            "UnsafeMigration": true,
            "AllowAutoConverge": self.auto_converge,
            "AllowPostCopy": self.post_copy,
            "AllowWorkloadDisruption": self.post_copy || self.allow_pause,
            "TargetRoot": target_root,
            "TargetPorts": ports,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::migration_options::MigrationOptions;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: MigrationLimits,
    }

    fn options(line: &[&str]) -> MigrationOptions {
        let line = Line::try_parse_from([&["migrate"], line].concat()).unwrap();
        let ports = BTreeMap::from([(8080, 40001)]);
        let json = line.options.to_json(Path::new("/vm"), &ports).to_string();
        MigrationOptions::from_json(json.as_bytes()).unwrap()
    }

    #[test]
    fn every_option_reaches_the_launcher() {
        let line = [
            "--bandwidth=64Mi",
            "--completion-timeout=2",
            "--auto-converge",
            "--post-copy",
        ];
        let options = options(&line);
        assert_eq!(options.bandwidth.bytes(), Ok(64 << 20));
        assert_eq!(options.completion_timeout_per_gib, 2);
        assert!(options.allow_auto_converge && options.allow_post_copy);
        assert!(options.allow_workload_disruption);
        assert_eq!(options.target_root.as_deref(), Some("/vm"));
        assert_eq!(options.target_ports, BTreeMap::from([(8080, 40001)]));
    }
}
