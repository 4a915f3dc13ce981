//! `stats`: the guest's resource usage, under the VMI's names.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::target::VmArgs;
use crate::error::CtlError;
use crate::view::output::{Format, Line, answer, counted};
use domain::stats::{DomainStats, Memory};
use terminal::human_size;
use terminal::table;

/// Arguments of `stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    #[command(flatten)]
    vm: VmArgs,
}

/// `stats`. As JSON it is the launcher's own document.
///
/// # Errors
/// The launcher does not answer, or there is no running guest.
pub async fn stats(args: &StatsArgs, format: Format) -> Result<ExitCode, CtlError> {
    let (_, launcher) = args.vm.target().connect().await?;
    let stats = launcher.domain_stats().await?;
    answer(format, &json!(stats), || text(&stats))
}

/// The amounts since the guest's start. What libvirt does not count is a dash.
fn text(stats: &DomainStats) -> Vec<Line> {
    let row = |kind: &str, name: &str, [read, reads, written, writes]: [Option<u64>; 4]| {
        let dash = || "-".to_owned();
        let size = |bytes: Option<u64>| bytes.map_or_else(dash, human_size);
        let count = |count: Option<u64>| count.map_or_else(dash, |count| count.to_string());
        let (reads, writes) = (count(reads), count(writes));
        format!(
            "{kind}\t{name}\t{}\t{reads}\t{}\t{writes}",
            size(read),
            size(written)
        )
    };
    let cpu = stats.cpu.time.unwrap_or_default() as f64 / 1e9;
    let online = stats.vcpu.iter().filter(|vcpu| vcpu.state != Some(0));
    let online = counted(online.count(), "vCPU");
    let mut lines = vec![stats.name.clone().into()];
    lines.push(format!("cpu     {cpu:.1} s of one CPU, {online}").into());
    lines.push(format!("memory  {}", memory(&stats.memory)).into());
    let disks = stats.block.iter().map(|it| {
        let amounts = [
            it.read_bytes,
            it.read_requests,
            it.write_bytes,
            it.write_requests,
        ];
        row("disk", name(&[&it.alias, &it.name]), amounts)
    });
    let nics = stats.net.iter().map(|it| {
        let amounts = [it.rx_bytes, it.rx_packets, it.tx_bytes, it.tx_packets];
        row("nic", name(&[&it.alias, &it.name]), amounts)
    });
    let header = "DEVICE\tNAME\tREAD\tREADS\tWRITTEN\tWRITES";
    lines.extend(table(header, disks.chain(nics)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::output::joined;

    fn sample(json: serde_json::Value) -> DomainStats {
        serde_json::from_value(json).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_sample_has_amounts() {
        let stats = sample(json!({
            "Name": "default_demo",
            "Cpu": {"Time": 1_000_000_000, "TimeSet": true},
            "Memory": {"Total": 262_144, "TotalSet": true, "RSS": 0, "RSSSet": false},
            "Vcpu": [{"State": 1, "StateSet": true}, {"State": 0, "StateSet": true}],
            "Block": [{"Name": "vda", "NameSet": true, "Alias": "rootdisk",
                "RdBytes": 8 << 20, "RdBytesSet": true, "RdReqs": 2048, "RdReqsSet": true}],
            "Net": [{"Name": "tap0", "Alias": "blue", "RxBytes": 0, "RxBytesSet": false}],
        }));
        let shown = joined(text(&stats));
        let expected = "\
default_demo
cpu     1.0 s of one CPU, 1 vCPU
memory  256 MiB in all
DEVICE  NAME       READ  READS  WRITTEN  WRITES
disk    rootdisk  8 MiB   2048  -        -
nic     blue          -      -  -        -";
        assert_eq!(shown, expected);
    }
}
