//! A pod under load for a long time: what its programs take up has to be flat at the end.

use std::io::Write;
use std::time::{Duration, Instant};

use api::proto::cmd::v1::EmptyRequest;
use serde_json::Value;

use super::chart::{Panel, draw};
use super::process::{Usage, named};
use super::{number, results};
use crate::harness::{Event, Guest, Pod, User, Vmi, run, with_containers};

/// Rounds after which libvirt's daemon is killed once.
const ROUNDS_PER_DAEMON: usize = 5;
/// Memory may grow by this much, in KiB, beside a tenth: the allocator's arenas fill up slowly.
const SLACK: u64 = 1024;
/// Descriptors and threads may differ by this much: calls are in progress at any time.
const CALLS_IN_PROGRESS: u64 = 6;

/// What is sampled.
const PROGRAMS: [&str; 3] = ["virt-launcher", "virtqemud", "virt-launcher-monitor"];

struct Sample {
    minutes: f64,
    usage: [Usage; 3],
}

#[test]
#[ignore = "it takes minutes: make soak MINUTES=…"]
fn soak() {
    let minutes = number("MINUTES", 5);
    with_containers(User::Qemu, || {
        run(async {
            let (mut pod, vmi, mut guest) = Pod::booted("soak", &[]).await;
            let begin = Instant::now();
            let mut samples = Vec::new();
            while begin.elapsed() < Duration::from_secs(minutes * 60) {
                round(&mut pod, &vmi, &mut guest, samples.len()).await;
                tokio::time::sleep(Duration::from_millis(500)).await;
                samples.push(sample(&pod, begin));
            }
            pod.end(&vmi).await;
            assert_eq!(pod.exit_code().await, 0);
            report(&samples);
        });
    });
}

/// Everything that virt-handler and the node do to a pod, once.
async fn round(pod: &mut Pod, vmi: &Vmi, guest: &mut Guest, number: usize) {
    for _ in 0..20 {
        pod.sync_ok(vmi).await;
    }
    plug_and_unplug(pod, vmi, guest).await;
    storm(pod, vmi).await;
    calls(pod, vmi).await;
    reconnect_handler(pod, vmi).await;
    if number % ROUNDS_PER_DAEMON == ROUNDS_PER_DAEMON - 1 {
        kill_daemon(pod, vmi).await;
    }
}

async fn plug_and_unplug(pod: &Pod, vmi: &Vmi, guest: &mut Guest) {
    pod.hotplug_image("data", 16 << 20);
    let with = vmi.clone().hotplugged("data", "SOAK", "scsi");
    pod.sync_ok(&with).await;
    guest
        .run_until("disks", |disks| disks.contains("SOAK"))
        .await;
    pod.sync_ok(vmi).await;
    guest
        .run_until("disks", |disks| !disks.contains("SOAK"))
        .await;
    let is_gone = |domain: &Value| {
        !domain["Spec"]["Devices"]["Disks"]
            .to_string()
            .contains("SOAK")
    };
    pod.domain_until("without the disk", is_gone).await;
}

/// Events in close succession.
async fn storm(pod: &mut Pod, vmi: &Vmi) {
    for _ in 0..25 {
        let request = || pod.request(vmi.value());
        drop(pod.cmd().pause_virtual_machine(request()).await.unwrap());
        drop(pod.cmd().unpause_virtual_machine(request()).await.unwrap());
    }
    pod.domain_until("running", |domain| domain["Status"]["Status"] == "Running")
        .await;
}

async fn calls(pod: &Pod, vmi: &Vmi) {
    for _ in 0..20 {
        pod.domain().await;
        drop(pod.cmd().ping(EmptyRequest {}).await.unwrap());
        drop(pod.cmd().get_guest_info(EmptyRequest {}).await);
        drop(pod.cmd().get_users(EmptyRequest {}).await);
        drop(pod.cmd().get_filesystems(EmptyRequest {}).await);
        drop(pod.cmd().get_domain_stats(EmptyRequest {}).await);
    }
    drop(pod.cmd().get_screenshot(pod.request(vmi.value())).await);
}

/// virt-handler restarts, and hears the present state again.
async fn reconnect_handler(pod: &mut Pod, vmi: &Vmi) {
    pod.handler.leave();
    pod.handler.discard();
    pod.handler.serve();
    drop(
        pod.cmd()
            .pause_virtual_machine(pod.request(vmi.value()))
            .await
            .unwrap(),
    );
    pod.handler
        .event("paused", |event: &Event| event.status() == "Paused")
        .await;
    drop(
        pod.cmd()
            .unpause_virtual_machine(pod.request(vmi.value()))
            .await
            .unwrap(),
    );
    pod.handler
        .event("running", |event: &Event| event.status() == "Running")
        .await;
}

async fn kill_daemon(pod: &Pod, vmi: &Vmi) {
    pod.exec(&["pkill", "-KILL", "-x", "virtqemud"]);
    while !pod.sync(vmi).await.success {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn sample(pod: &Pod, begin: Instant) -> Sample {
    let usage = PROGRAMS.map(|name| named(pod, name).map_or_else(Usage::default, Usage::of));
    Sample {
        minutes: begin.elapsed().as_secs_f64() / 60.0,
        usage,
    }
}

type Measure = (&'static str, fn(&Usage) -> u64);
const MEASURES: [Measure; 4] = [
    ("RSS KiB", |usage| usage.resident),
    ("private dirty KiB", |usage| usage.private_dirty),
    ("descriptors", |usage| usage.descriptors),
    ("threads", |usage| usage.threads),
];

/// Writes table and picture, and fails if the launcher has grown between the second and the last
/// quarter.
fn report(samples: &[Sample]) {
    let mut csv = std::fs::File::create(results("soak.csv")).unwrap();
    writeln!(csv, "minutes,program,rss_kib,dirty_kib,descriptors,threads").unwrap();
    for sample in samples {
        for (name, usage) in PROGRAMS.iter().zip(&sample.usage) {
            let values = MEASURES.map(|(_, measure)| measure(usage).to_string());
            writeln!(csv, "{:.3},{name},{}", sample.minutes, values.join(",")).unwrap();
        }
    }
    let panel = |(title, measure): &Measure| {
        let curve = |(index, name): (usize, &&str)| {
            let points = samples
                .iter()
                .map(|sample| (sample.minutes, measure(&sample.usage[index]) as f64));
            ((*name).to_owned(), points.collect())
        };
        Panel {
            title: (*title).to_owned(),
            curves: PROGRAMS.iter().enumerate().map(curve).collect(),
        }
    };
    let picture = results("soak.svg");
    std::fs::write(&picture, draw("minutes", &MEASURES.each_ref().map(panel))).unwrap();

    let quarter = (samples.len() / 4).max(1);
    let (early, late) = (
        &samples[quarter.min(samples.len() - 1)..(2 * quarter).min(samples.len())],
        &samples[samples.len() - quarter..],
    );
    println!(
        "{} rounds; medians of the second and of the last quarter; picture: {}",
        samples.len(),
        picture.display()
    );
    println!(
        "{:<24} {:<20} {:>10} {:>10}",
        "program", "", "early", "late"
    );
    let mut grown = Vec::new();
    for (index, name) in PROGRAMS.iter().enumerate() {
        for (title, measure) in MEASURES {
            let median = |samples: &[Sample]| {
                let mut values: Vec<u64> = samples
                    .iter()
                    .map(|sample| measure(&sample.usage[index]))
                    .collect();
                values.sort_unstable();
                values.get(values.len() / 2).copied().unwrap_or(0)
            };
            let (early, late) = (median(early), median(late));
            println!("{name:<24} {title:<20} {early:>10} {late:>10}");
            let slack = if title.contains("KiB") {
                early / 10 + SLACK
            } else {
                CALLS_IN_PROGRESS
            };
            if late > early + slack {
                grown.push(format!("{name}: {title} from {early} to {late}"));
            }
        }
    }
    assert!(grown.is_empty(), "{grown:#?}");
}
