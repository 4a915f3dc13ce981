//! `stats`: the guest's resource usage as rates, under the VMI's names.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::target::VmArgs;
use crate::error::CtlError;
use crate::json::{list_at, text_at, text_or_dash};
use crate::view::output::{Format, answer, counted};
use crate::view::size::human_size;

/// Over which rates are taken: longer than the launcher reuses statistics.
const INTERVAL: Duration = Duration::from_secs(4);

/// For a device that libvirt does not name.
const NO_NAME: &str = "-";

/// The statistics of one moment.
struct Sample {
    stats: Value,
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
        return answer(format, &before.stats, || None);
    }
    let domain = launcher.domain().await?.unwrap_or_default();
    sleep(INTERVAL).await;
    let now = sample().await?;
    answer(format, &now.stats, || text(&before, &now, &domain))
}

/// The changes between two samples of this domain.
fn text(before: &Sample, now: &Sample, domain: &Value) -> Vec<String> {
    let elapsed = now.taken.duration_since(before.taken);
    let mut lines = vec![text_at(&now.stats, "/Name").to_owned()];
    let cpu = rate(&before.stats, &now.stats, "/Cpu/Time", elapsed) as f64 / 1e7;
    let vcpus = list_at(&now.stats, "/Vcpu").iter();
    let online = vcpus.filter(|vcpu| value(vcpu, "/State") != Some(0));
    let online = counted(online.count(), "vCPU");
    lines.push(format!("  cpu     {cpu:.1} % of one CPU, {online}"));
    lines.push(format!("  memory  {}", memory(&now.stats)));
    for (before, now) in devices(&before.stats, &now.stats, "/Block") {
        let name = name(now);
        let rate = |pointer| rate(before, now, pointer, elapsed);
        let [read, written] = ["/RdBytes", "/WrBytes"].map(|it| human_size(rate(it)));
        let [reads, writes] = ["/RdReqs", "/WrReqs"].map(rate);
        lines.push(format!(
            "  disk    {name:<16} read {read:>10}/s {reads:>7} op/s   write {written:>10}/s {writes:>7} op/s"
        ));
    }
    let interfaces = list_at(domain, "/Spec/Devices/Interfaces");
    for (index, (before, now)) in devices(&before.stats, &now.stats, "/Net").enumerate() {
        let name = match (name(now), interfaces.get(index)) {
            // libvirt lists them in the domain's order; one without a device on the host has no
            // name there.
            (NO_NAME, Some(interface)) => text_or_dash(interface, "/Alias/Name"),
            (name, _) => name,
        };
        if value(now, "/RxBytes").is_none() {
            lines.push(format!(
                "  nic     {name:<16} not counted: libvirt does not see the traffic of passt"
            ));
            continue;
        }
        let rate = |pointer| rate(before, now, pointer, elapsed);
        let [received, sent] = ["/RxBytes", "/TxBytes"].map(|it| human_size(rate(it)));
        let [rx, tx] = ["/RxPkts", "/TxPkts"].map(rate);
        lines.push(format!(
            "  nic     {name:<16} rx   {received:>10}/s {rx:>7} pkt/s  tx    {sent:>10}/s {tx:>7} pkt/s"
        ));
    }
    lines
}

/// The guest's memory, and how much is in use, as far as the guest's balloon driver tells.
fn memory(stats: &Value) -> String {
    let kibibytes = |pointer: &str| value(stats, pointer).map(|kib| human_size(kib << 10));
    let mut text = format!("{} in all", kibibytes("/Memory/Total").unwrap_or_default());
    for (pointer, what) in [
        ("/Memory/Usable", "can be used"),
        ("/Memory/Cached", "cached"),
        ("/Memory/RSS", "taken from the host"),
    ] {
        if let Some(amount) = kibibytes(pointer) {
            let _ = write!(text, ", {amount} {what}");
        }
    }
    text
}

/// The devices that are in both samples, before and now.
fn devices<'a>(
    before: &'a Value,
    now: &'a Value,
    list: &str,
) -> impl Iterator<Item = (&'a Value, &'a Value)> {
    let earlier = list_at(before, list);
    list_at(now, list).iter().filter_map(move |device| {
        let before = earlier.iter().find(|it| it["Name"] == device["Name"])?;
        Some((before, device))
    })
}

fn name(device: &Value) -> &str {
    let names = ["/Alias", "/Name"].map(|name| text_at(device, name));
    let name = names.into_iter().find(|name| !name.is_empty());
    name.unwrap_or(NO_NAME)
}

/// A value, if its flag says that it exists.
fn value(stats: &Value, pointer: &str) -> Option<u64> {
    let is_set = stats.pointer(&format!("{pointer}Set"))?.as_bool()?;
    stats.pointer(pointer)?.as_u64().filter(|_| is_set)
}

/// A counter's growth per second. One that was reset counts from zero.
fn rate(before: &Value, now: &Value, pointer: &str, elapsed: Duration) -> u64 {
    let now = value(now, pointer).unwrap_or(0);
    let before = value(before, pointer).unwrap_or(now);
    let grown = u128::from(now.saturating_sub(before)) * 1000 / elapsed.as_millis().max(1);
    u64::try_from(grown).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn two_samples_are_rates() {
        let taken = Instant::now();
        let sample = |cpu: u64, read: u64, after: u64| Sample {
            stats: json!({
                "Name": "default_demo",
                "Cpu": {"Time": cpu, "TimeSet": true},
                "Memory": {"Total": 262_144, "TotalSet": true, "RSS": 0, "RSSSet": false},
                "Vcpu": [{"State": 1, "StateSet": true}, {"State": 0, "StateSet": true}],
                "Block": [{"Name": "vda", "NameSet": true, "Alias": "rootdisk",
                    "RdBytes": read, "RdBytesSet": true, "RdReqs": read / 4096, "RdReqsSet": true}],
                "Net": [{"Name": "tap0", "Alias": "default", "RxBytes": 5, "RxBytesSet": true}],
            }),
            taken: taken + Duration::from_secs(after),
        };
        let lines = text(
            &sample(0, 0, 0),
            &sample(1_000_000_000, 8 << 20, 4),
            &Value::Null,
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
        let sample = || Sample {
            stats: json!({"Name": "default_demo", "Net": [net]}),
            taken: Instant::now(),
        };
        let domain = json!({"Spec": {"Devices": {"Interfaces": [{"Alias": {"Name": "blue"}}]}}});
        let lines = text(&sample(), &sample(), &domain);
        let line = lines.last().unwrap();
        assert!(
            line.starts_with("  nic     blue ") && line.contains("not counted"),
            "{line}"
        );
    }

    #[test]
    fn a_counter_that_was_reset_has_no_negative_rate() {
        let sample = |value: u64| json!({"Time": value, "TimeSet": true});
        let second = Duration::from_secs(1);
        assert_eq!(rate(&sample(9), &sample(3), "/Time", second), 0);
    }
}
