//! The domain manager's metrics, for `launcherctl launcher metrics`. `supervisor::metrics` adds the
//! rest and serves them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, EncodeMetric,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

use super::migration_source::MigrationRecord;
use super::timeline::Timeline;
use super::vm::{Phase, Vm};
use crate::notify::Notifier;
use hooks::Sidecars;

/// Bounds of a sync's duration in seconds: without a change it takes a millisecond, and
/// virt-handler waits 20 s.
const SYNC_BUCKETS: [f64; 9] = [0.001, 0.0025, 0.01, 0.05, 0.25, 1.0, 5.0, 10.0, 20.0];

type Labels = [(&'static str, &'static str); 1];
type ByResult = Family<Labels, Histogram>;

#[derive(Debug)]
pub(super) struct Metrics {
    sync_seconds: ByResult,
    reconnects: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            sync_seconds: Family::new_with_constructor(|| Histogram::new(SYNC_BUCKETS)),
            reconnects: Counter::default(),
        }
    }
}

impl Metrics {
    /// Records a sync.
    pub fn synced(&self, took: Duration, success: bool) {
        let result = if success { "success" } else { "failure" };
        self.sync_seconds
            .get_or_create(&[("result", result)])
            .observe(took.as_secs_f64());
    }

    /// Records a new connection to libvirt.
    pub fn reconnected(&self) {
        self.reconnects.inc();
    }
}

pub struct LauncherMetrics {
    pub(super) counts: Arc<Metrics>,
    pub(super) vm: Arc<Vm>,
    pub(super) notifier: Notifier,
    pub(super) sidecars: Arc<Sidecars>,
    pub(super) timeline: Arc<Timeline>,
    pub(super) migrations: Arc<MigrationRecord>,
}

impl fmt::Debug for LauncherMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LauncherMetrics").finish_non_exhaustive()
    }
}

impl Collector for LauncherMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let syncs = &self.counts.sync_seconds;
        let help = "Syncs of the VMI, by their result and time";
        syncs.encode(encoder.encode_descriptor(
            "virt_launcher_sync",
            help,
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?)?;
        let reconnects = &self.counts.reconnects;
        let help = "Times that the connection to libvirt was lost and made again";
        reconnects.encode(encoder.encode_descriptor(
            "virt_launcher_libvirt_reconnects",
            help,
            None,
            MetricType::Counter,
        )?)?;
        self.encode_phase(&mut encoder)?;
        self.encode_notifications(&mut encoder)?;
        self.encode_hooks(&mut encoder)?;
        self.encode_migrations(&mut encoder)?;
        self.encode_start(&mut encoder)
    }
}

impl LauncherMetrics {
    fn encode_phase(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let phase = self.vm.snapshot().phase;
        let phase = match phase {
            Phase::Unknown | Phase::Absent | Phase::Expected | Phase::StartFailed => "absent",
            Phase::Preparing | Phase::Starting => "starting",
            Phase::Running => "running",
            Phase::Paused(_) => "paused",
            Phase::MigratingIn => "migrating-in",
            Phase::MigratingOut => "migrating-out",
            Phase::Stopping => "stopping",
            Phase::Ended => "ended",
            Phase::Gone => "gone",
        };
        let help = "Where the VM is: 1 for the phase that it is in";
        let phase = [([("phase", phase)], 1_u64)];
        gauges(encoder, "virt_launcher_phase", help, None, phase)
    }

    fn encode_notifications(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.notifier.counts();
        let help = "Notifications to virt-handler that it has, and that were given up";
        let ended = by_result([("delivered", counts.delivered), ("dropped", counts.dropped)]);
        counters(encoder, "virt_launcher_notifications", help, ended)?;
        let help = "Notifications that wait for virt-handler";
        let waiting = encoder.encode_descriptor(
            "virt_launcher_notifications_waiting",
            help,
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(counts.waiting).encode(waiting)
    }

    fn encode_hooks(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let report = self.sidecars.report();
        let points = || {
            report.sidecars.iter().flat_map(|sidecar| {
                sidecar.points.iter().map(move |point| {
                    let name = point.point.to_string();
                    let labels = [("sidecar", sidecar.name.clone()), ("point", name)];
                    (labels, point)
                })
            })
        };
        let help = "Calls of hook sidecars";
        let calls = points().map(|(labels, point)| (labels, point.calls));
        counters(encoder, "virt_launcher_hook_calls", help, calls)?;
        let help = "Time of the last call of a hook sidecar";
        let last = points().filter_map(|(labels, point)| {
            let took = Duration::from_micros(point.last.as_ref()?.microseconds);
            Some((labels, took.as_secs_f64()))
        });
        let (name, unit) = ("virt_launcher_hook_last", Some(&Unit::Seconds));
        gauges(encoder, name, help, unit, last)
    }

    /// virt-handler's scrape has a migration's progress, and no place for what one took.
    fn encode_migrations(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let totals = self.migrations.totals();
        let help = "Migrations from this pod that have ended";
        let ended = by_result([("success", totals.succeeded), ("failure", totals.failed)]);
        counters(encoder, "virt_launcher_migrations", help, ended)?;
        let Some(last) = totals.last else {
            return Ok(());
        };
        let seconds = |milliseconds| Duration::from_millis(milliseconds).as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "a metric is a float")]
        let bytes = |bytes| bytes as f64;
        let values = [
            (
                "virt_launcher_migration_last_downtime",
                "How long the guest stood still at the end of its last migration",
                Unit::Seconds,
                last.downtime_ms.map(seconds),
            ),
            (
                "virt_launcher_migration_last_duration",
                "How long the last migration took",
                Unit::Seconds,
                last.time_elapsed_ms.map(seconds),
            ),
            (
                "virt_launcher_migration_last_data",
                "What the last migration sent",
                Unit::Bytes,
                last.data_processed.map(bytes),
            ),
        ];
        for (name, help, unit, value) in values {
            if let Some(value) = value {
                let gauge =
                    encoder.encode_descriptor(name, help, Some(&unit), MetricType::Gauge)?;
                ConstGauge::new(value).encode(gauge)?;
            }
        }
        Ok(())
    }

    fn encode_start(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Time of each step of the start";
        let steps = self.timeline.to_message().steps.into_iter();
        let taken = steps.filter_map(|step| {
            let took = Duration::from_micros(step.took_micros.filter(|took| *took > 0)?);
            Some(([("step", step.name)], took.as_secs_f64()))
        });
        let (name, unit) = ("virt_launcher_start_step", Some(&Unit::Seconds));
        gauges(encoder, name, help, unit, taken)
    }
}

fn by_result<const N: usize>(
    counts: [(&'static str, u64); N],
) -> impl Iterator<Item = (Labels, u64)> {
    let labelled = |(result, count)| ([("result", result)], count);
    counts.into_iter().map(labelled)
}

fn counters<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    counts: impl IntoIterator<Item = (L, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, count) in counts {
        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn gauges<L: EncodeLabelSet, V: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    values: impl IntoIterator<Item = (L, V)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
    for (labels, value) in values {
        ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
