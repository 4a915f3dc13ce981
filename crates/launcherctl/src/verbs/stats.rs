//! `stats`: the guest's resource usage, under the VMI's names.

use std::fmt::Write as _;
use std::iter::repeat;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::target::{VmArgs, check_processes};
use crate::error::CtlError;
use crate::view::output::{Format, Line, answer, counted};
use domain::Domain;
use domain::stats::{DomainStats, Memory};
use terminal::human_size;
use terminal::progress::waiting;
use terminal::table;

/// Over which rates are taken: longer than the launcher reuses statistics.
const INTERVAL: Duration = Duration::from_secs(4);

/// Arguments of `stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    #[command(flatten)]
    vm: VmArgs,
    /// Print rates, which takes 4 seconds, in place of the amounts since the guest's start
    #[arg(long)]
    rates: bool,
}

/// `stats`. As JSON it is the launcher's own document, without rates.
///
/// # Errors
/// The launcher does not answer, or there is no running guest.
pub async fn stats(args: &StatsArgs, format: Format) -> Result<ExitCode, CtlError> {
    let (dir, launcher) = args.vm.target().connect().await?;
    check_processes(&dir)?;
    let domain = launcher.domain().await?.unwrap_or_default();
    let (mut before, mut elapsed) = (DomainStats::default(), None);
    let mut now = launcher.domain_stats().await?;
    if args.rates && format != Format::Json {
        let began = Instant::now();
        waiting("a second sample", Some(INTERVAL), sleep(INTERVAL)).await;
        before = std::mem::replace(&mut now, launcher.domain_stats().await?);
        elapsed = Some(began.elapsed());
    }
    let lines = || text(&before, &now, elapsed, &domain, format);
    answer(format, &json!(now), lines)
}

/// How much the counters of this domain have grown; with the time between the samples, in a second.
fn text(
    before: &DomainStats,
    now: &DomainStats,
    elapsed: Option<Duration>,
    domain: &Domain,
    format: Format,
) -> Vec<Line> {
    let amount = |before, now| grown(before, now, elapsed);
    let unit = elapsed.map_or("", |_| "/s");
    let row = |kind: &str,
               name: &str,
               [read, reads, written, writes]: [(Option<u64>, Option<u64>); 4]| {
        let size = |(before, now)| human_size(amount(before, now)) + unit;
        let (reads, writes) = (amount(reads.0, reads.1), amount(writes.0, writes.1));
        let (read, written) = (size(read), size(written));
        format!("{kind}\t{name}\t{read}\t{reads}{unit}\t{written}\t{writes}{unit}")
    };
    let cpu = amount(before.cpu.time, now.cpu.time) as f64;
    let cpu = match elapsed {
        Some(_) => format!("{:.1} % of one CPU", cpu / 1e7),
        None => format!("{:.1} s of one CPU", cpu / 1e9),
    };
    let online = now.vcpu.iter().filter(|vcpu| vcpu.state != Some(0));
    let online = counted(online.count(), "vCPU");
    let mut lines = vec![now.name.clone().into()];
    lines.push(format!("cpu     {cpu}, {online}").into());
    lines.push(format!("memory  {}", memory(&now.memory)).into());
    let disks = now.block.iter().map(|new| {
        let old = before.block.iter().find(|it| it.name == new.name);
        let old = old.cloned().unwrap_or_default();
        let [read, written] = [
            (old.read_bytes, new.read_bytes),
            (old.write_bytes, new.write_bytes),
        ];
        let reads = (old.read_requests, new.read_requests);
        let writes = (old.write_requests, new.write_requests);
        row(
            "disk",
            name(&[&new.alias, &new.name]),
            [read, reads, written, writes],
        )
    });
    // libvirt lists them in the domain's order; one without a device on the host has no name there.
    let interfaces = domain.spec.devices.interfaces.iter();
    let aliases = interfaces.map(|it| it.alias.as_ref().map(|alias| alias.name.clone()));
    let nics = now
        .net
        .iter()
        .zip(aliases.chain(repeat(None)))
        .map(|(new, alias)| {
            let old = before.net.iter().find(|it| it.name == new.name);
            let old = old.cloned().unwrap_or_default();
            let [read, written] = [(old.rx_bytes, new.rx_bytes), (old.tx_bytes, new.tx_bytes)];
            let [reads, writes] = [
                (old.rx_packets, new.rx_packets),
                (old.tx_packets, new.tx_packets),
            ];
            match name(&[&new.alias, &new.name, &alias]) {
                name if new.rx_bytes.is_none() => format!("nic\t{name}\t-\t-\t-\t-"),
                name => row("nic", name, [read, reads, written, writes]),
            }
        });
    let header = "DEVICE\tNAME\tREAD\tREADS\tWRITTEN\tWRITES";
    lines.extend(table(format.width(), header, disks.chain(nics)));
    if now.net.iter().any(|nic| nic.rx_bytes.is_none()) {
        lines.push("-: not counted, as libvirt does not see the traffic of passt".into());
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

/// A counter's growth, per second if the time is known; none for one that was reset.
fn grown(before: Option<u64>, now: Option<u64>, elapsed: Option<Duration>) -> u64 {
    let grown = u128::from(now.unwrap_or(0).saturating_sub(before.unwrap_or(0)));
    let millis = elapsed.map_or(1000, |elapsed| elapsed.as_millis().max(1));
    u64::try_from(grown * 1000 / millis).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::output::joined;

    fn sample(json: serde_json::Value) -> DomainStats {
        serde_json::from_value(json).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_sample_has_amounts_and_two_have_rates() {
        let of = |cpu: u64, read: u64| {
            sample(json!({
                "Name": "default_demo",
                "Cpu": {"Time": cpu, "TimeSet": true},
                "Memory": {"Total": 262_144, "TotalSet": true, "RSS": 0, "RSSSet": false},
                "Vcpu": [{"State": 1, "StateSet": true}, {"State": 0, "StateSet": true}],
                "Block": [{"Name": "vda", "NameSet": true, "Alias": "rootdisk",
                    "RdBytes": read, "RdBytesSet": true, "RdReqs": read / 4096, "RdReqsSet": true}],
                "Net": [{"Name": "tap0", "NameSet": true, "Alias": "default", "AliasSet": true,
                    "RxBytes": 5, "RxBytesSet": true}],
            }))
        };
        let (first, second) = (of(0, 0), of(1_000_000_000, 8 << 20));
        let rates = "\
default_demo
cpu     25.0 % of one CPU, 1 vCPU
memory  256 MiB in all
DEVICE  NAME         READ  READS  WRITTEN  WRITES
disk    rootdisk  2 MiB/s  512/s    0 B/s     0/s
nic     default     0 B/s    0/s    0 B/s     0/s";
        let text = |before: &DomainStats, elapsed| {
            joined(text(
                before,
                &second,
                elapsed,
                &Domain::default(),
                Format::Wide,
            ))
        };
        assert_eq!(text(&first, Some(Duration::from_secs(4))), rates);
        let amounts = "\
default_demo
cpu     1.0 s of one CPU, 1 vCPU
memory  256 MiB in all
DEVICE  NAME       READ  READS  WRITTEN  WRITES
disk    rootdisk  8 MiB   2048      0 B       0
nic     default     5 B      0      0 B       0";
        assert_eq!(text(&DomainStats::default(), None), amounts);
    }

    #[test]
    fn an_interface_without_a_device_on_the_host_has_its_name_of_the_vmi() {
        // As libvirt reports an interface of passt.
        let net = json!({"Name": "", "Alias": "", "RxBytes": 0, "RxBytesSet": false});
        let now = sample(json!({"Name": "default_demo", "Net": [net]}));
        let blue = json!({"Spec": {"Devices": {"Interfaces": [{"Alias": {"Name": "blue"}}]}}});
        let blue = crate::json::domain(blue);
        let text = joined(text(
            &DomainStats::default(),
            &now,
            None,
            &blue,
            Format::Wide,
        ));
        assert!(text.contains("\nnic     blue  -"), "{text}");
        assert!(text.ends_with("the traffic of passt"), "{text}");
    }

    #[test]
    fn a_counter_that_was_reset_has_no_negative_rate() {
        assert_eq!(grown(Some(9), Some(3), None), 0);
    }
}
