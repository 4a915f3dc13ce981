//! `stats`: the guest's resource usage as rates, under the VMI's names.

use std::fmt::Write as _;
use std::iter::repeat;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};

use super::target::VmArgs;
use crate::error::CtlError;
use crate::view::output::{Format, answer, counted};
use crate::view::size::human_size;
use domain::Domain;
use domain::stats::{DomainStats, Memory};

/// Over which rates are taken: longer than the launcher reuses statistics.
const INTERVAL: Duration = Duration::from_secs(4);

/// The statistics of one moment.
struct Sample {
    stats: DomainStats,
    taken: Instant,
}

/// `stats`. As JSON it is the launcher's own document, at once and without rates.
///
/// # Errors
/// The launcher does not answer, or there is no running guest.
pub async fn stats(args: &VmArgs, format: Format) -> Result<ExitCode, CtlError> {
    let (_, launcher) = args.target().connect().await?;
    let sample = async || -> Result<Sample, CtlError> {
        let stats = launcher.domain_stats().await?;
        let taken = Instant::now();
        Ok(Sample { stats, taken })
    };
    let before = sample().await?;
    if format == Format::Json {
        return answer(format, &json!(before.stats), || None);
    }
    let domain = launcher.domain().await?.unwrap_or_default();
    sleep(INTERVAL).await;
    let now = sample().await?;
    answer(format, &json!(now.stats), || text(&before, &now, &domain))
}

/// The changes between two samples of this domain.
fn text(before: &Sample, now: &Sample, domain: &Domain) -> Vec<String> {
    let elapsed = now.taken.duration_since(before.taken);
    let rate = |before, now| rate(before, now, elapsed);
    let size = |before, now| human_size(rate(before, now));
    let (before, now) = (&before.stats, &now.stats);
    let mut lines = vec![now.name.clone()];
    let cpu = rate(before.cpu.time, now.cpu.time) as f64 / 1e7;
    let online = now.vcpu.iter().filter(|vcpu| vcpu.state != Some(0));
    let online = counted(online.count(), "vCPU");
    lines.push(format!("  cpu     {cpu:.1} % of one CPU, {online}"));
    lines.push(format!("  memory  {}", memory(&now.memory)));
    for disk in &now.block {
        let Some(before) = before.block.iter().find(|it| it.name == disk.name) else {
            continue;
        };
        let name = name(&[&disk.alias, &disk.name]);
        let read = size(before.read_bytes, disk.read_bytes);
        let written = size(before.write_bytes, disk.write_bytes);
        let reads = rate(before.read_requests, disk.read_requests);
        let writes = rate(before.write_requests, disk.write_requests);
        lines.push(format!(
            "  disk    {name:<16} read {read:>10}/s {reads:>7} op/s   write {written:>10}/s {writes:>7} op/s"
        ));
    }
    // libvirt lists them in the domain's order; one without a device on the host has no name there.
    let interfaces = domain.spec.devices.interfaces.iter();
    let aliases = interfaces.map(|it| it.alias.as_ref().map(|alias| alias.name.clone()));
    for (nic, alias) in now.net.iter().zip(aliases.chain(repeat(None))) {
        let Some(before) = before.net.iter().find(|it| it.name == nic.name) else {
            continue;
        };
        let name = name(&[&nic.alias, &nic.name, &alias]);
        if nic.rx_bytes.is_none() {
            lines.push(format!(
                "  nic     {name:<16} not counted: libvirt does not see the traffic of passt"
            ));
            continue;
        }
        let received = size(before.rx_bytes, nic.rx_bytes);
        let sent = size(before.tx_bytes, nic.tx_bytes);
        let rx = rate(before.rx_packets, nic.rx_packets);
        let tx = rate(before.tx_packets, nic.tx_packets);
        lines.push(format!(
            "  nic     {name:<16} rx   {received:>10}/s {rx:>7} pkt/s  tx    {sent:>10}/s {tx:>7} pkt/s"
        ));
    }
    lines
}

/// The guest's memory, and how much is in use, as far as the guest's balloon driver tells.
fn memory(memory: &Memory) -> String {
    let size = |kibibytes: u64| human_size(kibibytes << 10);
    let mut text = format!("{} in all", memory.total.map(size).unwrap_or_default());
    for (amount, what) in [
        (memory.usable, "can be used"),
        (memory.cached, "cached"),
        (memory.rss, "taken from the host"),
    ] {
        if let Some(amount) = amount {
            let _ = write!(text, ", {} {what}", size(amount));
        }
    }
    text
}

/// The first name that there is.
fn name<'a>(names: &[&'a Option<String>]) -> &'a str {
    let mut known = names.iter().filter_map(|name| name.as_deref());
    known.find(|name| !name.is_empty()).unwrap_or("-")
}

/// A counter's growth per second. One that was reset counts from zero.
fn rate(before: Option<u64>, now: Option<u64>, elapsed: Duration) -> u64 {
    let now = now.unwrap_or(0);
    let grown = u128::from(now.saturating_sub(before.unwrap_or(now)));
    u64::try_from(grown * 1000 / elapsed.as_millis().max(1)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(json: serde_json::Value, taken: Instant) -> Sample {
        let stats = serde_json::from_value(json).unwrap_or_else(|error| panic!("{error}"));
        Sample { stats, taken }
    }

    #[test]
    fn two_samples_are_rates() {
        let taken = Instant::now();
        let of = |cpu: u64, read: u64, after: u64| {
            let stats = json!({
                "Name": "default_demo",
                "Cpu": {"Time": cpu, "TimeSet": true},
                "Memory": {"Total": 262_144, "TotalSet": true, "RSS": 0, "RSSSet": false},
                "Vcpu": [{"State": 1, "StateSet": true}, {"State": 0, "StateSet": true}],
                "Block": [{"Name": "vda", "NameSet": true, "Alias": "rootdisk",
                    "RdBytes": read, "RdBytesSet": true, "RdReqs": read / 4096, "RdReqsSet": true}],
                "Net": [{"Name": "tap0", "NameSet": true, "Alias": "default", "AliasSet": true,
                    "RxBytes": 5, "RxBytesSet": true}],
            });
            sample(stats, taken + Duration::from_secs(after))
        };
        let lines = text(
            &of(0, 0, 0),
            &of(1_000_000_000, 8 << 20, 4),
            &Domain::default(),
        );
        assert_eq!(lines[0], "default_demo");
        assert_eq!(lines[1], "  cpu     25.0 % of one CPU, 1 vCPU");
        assert_eq!(lines[2], "  memory  256 MiB in all");
        assert!(
            lines[3].contains("rootdisk") && lines[3].contains("2 MiB/s     512 op/s"),
            "{lines:?}"
        );
        assert!(
            lines[4].contains("default") && lines[4].contains("0 B/s"),
            "{lines:?}"
        );
    }

    #[test]
    fn an_interface_without_a_device_on_the_host_has_its_name_of_the_vmi() {
        // As libvirt reports an interface of passt.
        let net = json!({"Name": "", "Alias": "", "RxBytes": 0, "RxBytesSet": false});
        let of = || {
            sample(
                json!({"Name": "default_demo", "Net": [net]}),
                Instant::now(),
            )
        };
        let blue = json!({"Spec": {"Devices": {"Interfaces": [{"Alias": {"Name": "blue"}}]}}});
        let lines = text(&of(), &of(), &crate::json::domain(blue));
        let line = lines.last().unwrap();
        assert!(
            line.starts_with("  nic     blue ") && line.contains("not counted"),
            "{line}"
        );
    }

    #[test]
    fn a_counter_that_was_reset_has_no_negative_rate() {
        assert_eq!(rate(Some(9), Some(3), Duration::from_secs(1)), 0);
    }
}
