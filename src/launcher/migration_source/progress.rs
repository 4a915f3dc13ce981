//! A migration's progress, for the log and for virt-handler's metrics.

use domain::stats::MigrationJob;
use libvirt::JobStats;

/// The progress in the form of virt-handler's metrics.
pub fn job_info(stats: &JobStats) -> MigrationJob {
    let page = stats.memory_page_size.unwrap_or(0);
    MigrationJob {
        data_total: stats.data_total,
        data_processed: stats.data_processed,
        memory_bytes_per_second: stats.memory_bps,
        data_remaining: stats.data_remaining,
        dirty_bytes_per_second: stats
            .memory_dirty_rate
            .map(|pages| pages.saturating_mul(page)),
    }
}

/// The log line, with KubeVirt's names.
pub(super) fn line(uid: &str, stats: &JobStats) -> String {
    let value = |value: Option<u64>| value.unwrap_or(0);
    let mib = |bytes: Option<u64>| value(bytes) >> 20;
    let mbps = |bytes: u64| bytes.saturating_mul(8) / 1_000_000;
    let dirty = value(stats.memory_dirty_rate).saturating_mul(value(stats.memory_page_size));
    let downtime = match stats.downtime_net_ms {
        Some(net @ 1..) => format!(
            "Downtime:{}ms DowntimeNet:{net}ms",
            value(stats.downtime_ms)
        ),
        _ => format!("ExpectedDowntime:{}ms", value(stats.downtime_ms)),
    };
    let memory = format!(
        "MemoryProcessed:{}MiB MemoryRemaining:{}MiB MemoryTotal:{}MiB MemoryBandwidth:{}Mbps DirtyRate:{}Mbps",
        mib(stats.memory_processed),
        mib(stats.memory_remaining),
        mib(stats.memory_total),
        mbps(value(stats.memory_bps)),
        mbps(dirty),
    );
    let pages = format!(
        "Iteration:{} PostcopyRequests:{} ConstantPages:{} NormalPages:{} NormalData:{}MiB",
        value(stats.memory_iteration),
        value(stats.memory_postcopy_requests),
        value(stats.memory_constant),
        value(stats.memory_normal),
        mib(stats.memory_normal_bytes),
    );
    format!(
        "Migration info for {uid}: TimeElapsed:{}ms DataProcessed:{}MiB DataRemaining:{}MiB DataTotal:{}MiB {memory} \
         {pages} {downtime} DiskMbps:{}{}",
        value(stats.time_elapsed_ms),
        mib(stats.data_processed),
        mib(stats.data_remaining),
        mib(stats.data_total),
        mbps(value(stats.disk_bps)),
        compression(stats),
    )
}

/// The memory's compression factor, if it was compressed.
#[allow(clippy::cast_precision_loss, reason = "a ratio for readers")]
fn compression(stats: &JobStats) -> String {
    match (stats.memory_normal_bytes, stats.data_processed) {
        (Some(plain), Some(sent @ 1..)) if plain > sent => {
            format!(" CompressionRatio:{:.2}x", plain as f64 / sent as f64)
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_the_values_under_the_names_that_users_know() {
        let stats = JobStats {
            time_elapsed_ms: Some(1200),
            data_processed: Some(3 << 20),
            data_remaining: Some(5 << 20),
            memory_bps: Some(2_000_000),
            memory_dirty_rate: Some(1000),
            memory_page_size: Some(4096),
            memory_normal_bytes: Some(9 << 20),
            downtime_ms: Some(300),
            ..JobStats::default()
        };
        let line = line("m-1", &stats);
        for part in [
            "Migration info for m-1: TimeElapsed:1200ms DataProcessed:3MiB DataRemaining:5MiB ",
            " MemoryBandwidth:16Mbps DirtyRate:32Mbps ",
            " ExpectedDowntime:300ms DiskMbps:0 CompressionRatio:3.00x",
        ] {
            assert!(line.contains(part), "{part:?} in {line:?}");
        }
        assert_eq!(job_info(&stats).dirty_bytes_per_second, Some(4_096_000));
    }
}
