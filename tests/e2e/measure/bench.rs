//! What a pod costs, and how that grows: with pods on one machine, started at once or one by one,
//! disks of a VM, and hook sidecars; and how long a launcher that was killed is away.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::{JoinSet, LocalSet};

use super::chart::{Panel, draw};
use super::process::{Usage, is_named, named, processor_time, programs_time};
use super::rows::{Row, Rows, measured};
use super::{launchers, number, results};
use crate::harness::{Pod, User, Vmi, run, set_reference, with_containers};
use crate::many_disks::sync_through;
use crate::restart::kill_launcher;
use crate::sidecars::{Sidecar, socket};
use api::proto::cmd::v1::EmptyRequest;

/// The pod's own programs; QEMU is the same with any launcher.
const PROGRAMS: [&str; 4] = [
    "virt-launcher-monitor",
    "virt-launcher",
    "virtqemud",
    "virtlogd",
];
/// Over which wake-ups are counted. With an agent a minute, as its polls come in rounds.
const IDLE: Duration = Duration::from_secs(10);
const IDLE_WITH_AGENT: Duration = Duration::from_secs(60);
/// For what follows a start to be done.
const SETTLE: Duration = Duration::from_secs(5);
const POD_COUNTS: [usize; 4] = [1, 20, 50, 100];

#[test]
#[ignore = "it takes minutes: make bench"]
fn bench() {
    with_containers(User::Qemu, || {
        let runs = number("RUNS", 5) as usize;
        let launchers = launchers();
        let mut all = Rows::default();
        for (_, programs) in &launchers {
            // Into the page cache, and the copies of the programs onto the disk: pages that wait
            // for that count as dirty.
            set_reference(programs.clone());
            pods(1);
            rustix::fs::sync();
        }
        // In turns, so that a machine that becomes slower or faster meanwhile does the same to all.
        for _ in 0..runs {
            for (name, programs) in &launchers {
                set_reference(programs.clone());
                all.push(format!("one pod, {name}"), life());
                for count in counts("PODS", &POD_COUNTS) {
                    all.push(format!("{count} pods, {name}"), pods(count));
                }
                one_by_one(&counts("PODS", &POD_COUNTS), |count, row| {
                    all.push(format!("{count} pods one by one, {name}"), row);
                });
                for count in counts("DISKS", &[1, 10, 50, 100]) {
                    all.push(format!("{count} disks, {name}"), disks(count));
                }
                all.push(format!("3 disks and cloud-init, {name}"), cloud_init());
            }
        }
        set_reference(None);
        for _ in 0..runs {
            for count in counts("DISKS", &[1, 20]) {
                all.push(format!("{count} disks, killed"), restarts(count));
            }
            for count in counts("SIDECARS", &[1, 5, 20]) {
                all.push(format!("{count} sidecars"), sidecars(count));
            }
        }
        report(&all);
    });
}

/// What to count up to: the whole list, or as far as the environment says.
fn counts(name: &str, all: &[usize]) -> Vec<usize> {
    let most = number(name, u64::MAX);
    all.iter()
        .copied()
        .filter(|count| *count as u64 <= most)
        .collect()
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

/// The median of a call's time.
async fn each(name: &str, call: impl AsyncFn()) -> (String, f64) {
    let mut times = Vec::new();
    for _ in 0..101 {
        let begin = Instant::now();
        call().await;
        times.push(milliseconds(begin));
    }
    times.sort_by(f64::total_cmp);
    (name.to_owned(), times[times.len() / 2])
}

/// From the start of a pod to its guest, and what it takes up when it is idle.
fn life() -> Row {
    measured(async || {
        let mut pod = Pod::new();
        let vmi = Vmi::new("bench").with_image(&pod);
        pod.handler.serve();
        let begin = Instant::now();
        pod.launch(&vmi, &[]);
        pod.wait_until_ready().await;
        let mut row = vec![("ready ms".to_owned(), milliseconds(begin))];
        let begin = Instant::now();
        pod.sync_ok(&vmi).await;
        row.push(("first sync ms".to_owned(), milliseconds(begin)));
        // This client's own part of a call.
        row.push(
            each("ping ms", async || {
                drop(pod.cmd().ping(EmptyRequest {}).await)
            })
            .await,
        );
        row.push(
            each("GetDomain ms", async || {
                drop(pod.cmd().get_domain(EmptyRequest {}).await)
            })
            .await,
        );
        row.push(each("sync without change ms", async || pod.sync_ok(&vmi).await).await);
        let mut guest = pod.guest(&vmi).await;
        guest.until(crate::harness::UP).await;
        tokio::time::sleep(SETTLE).await;
        row.extend(idle(&[&pod], IDLE_WITH_AGENT).await);
        pod.end(&vmi).await;
        pod.exit_code().await;
        row
    })
}

/// Memory and wake-ups of all programs of these pods.
async fn idle(pods: &[&Pod], time: Duration) -> Row {
    let usage = || {
        PROGRAMS.map(|name| {
            let processes = pods.iter().filter_map(|pod| named(pod, name));
            processes
                .map(Usage::of)
                .fold(Usage::default(), |sum, one| Usage {
                    resident: sum.resident + one.resident,
                    proportional: sum.proportional + one.proportional,
                    private_dirty: sum.private_dirty + one.private_dirty,
                    switches: sum.switches + one.switches,
                    ..sum
                })
        })
    };
    let before = usage();
    tokio::time::sleep(time).await;
    let mut row = Row::new();
    for ((name, before), after) in PROGRAMS.iter().zip(before).zip(usage()) {
        let mib = |kib: u64| kib as f64 / 1024.0;
        let wakeups = after.switches.saturating_sub(before.switches) as f64;
        row.push((format!("{name} RSS MiB"), mib(after.resident)));
        row.push((format!("{name} PSS MiB"), mib(after.proportional)));
        row.push((format!("{name} dirty MiB"), mib(after.private_dirty)));
        row.push((
            format!("{name} wake-ups/min"),
            wakeups * 60.0 / time.as_secs_f64(),
        ));
    }
    row
}

/// A VM whose start is measured.
struct Started {
    pod: Pod,
    vmi: Vmi,
    /// From the start of its pod until virt-handler hears that it runs.
    running: f64,
    /// Processor time of all programs from the entry point until then.
    processor: f64,
}

/// Starts a VM whose guest stays in its firmware, as its disk is empty.
async fn start(number: usize) -> Started {
    let mut pod = Pod::new();
    let vmi = Vmi::new(&format!("pod{number}"));
    let disk = pod.path("/var/run/kubevirt-private/vmi-disks/rootdisk/disk.img");
    std::fs::File::create(disk)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    pod.handler.serve();
    let begin = Instant::now();
    pod.launch(&vmi, &[]);
    let first = pod.first_process();
    let is_monitor = || is_named(first, "virt-launcher-monitor");
    pod.until("the monitor starts", is_monitor).await;
    let container = processor_time(first);
    pod.wait_until_ready().await;
    sync_through(&pod, &vmi).await;
    pod.handler.status("Running").await;
    Started {
        running: milliseconds(begin),
        processor: programs_time(&pod) - container,
        pod,
        vmi,
    }
}

/// So many VMs that are started at once.
fn pods(count: usize) -> Row {
    measured(async || {
        let begin = Instant::now();
        let starts = async {
            let mut starts = JoinSet::new();
            for number in 0..count {
                starts.spawn_local(start(number));
            }
            starts.join_all().await
        };
        let started = LocalSet::new().run_until(starts).await;
        let all_running = milliseconds(begin);
        let mut times: Vec<f64> = started.iter().map(|vm| vm.running).collect();
        times.sort_by(f64::total_cmp);
        let percentile = |percent: usize| times[(count * percent).div_ceil(100) - 1];
        let processor: f64 = started.iter().map(|vm| vm.processor).sum();
        let mut row = Row::from(
            [
                ("all Running ms", all_running),
                ("a VM Running: p50 ms", percentile(50)),
                ("a VM Running: p95 ms", percentile(95)),
                ("a VM Running: p99 ms", percentile(99)),
                ("processor time a VM ms", processor / count as f64),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        row.extend(side_by_side(&started).await);
        row
    })
}

/// VMs that are started one after the other; a row for each of these counts of them.
fn one_by_one(counts: &[usize], mut row: impl FnMut(usize, Row)) {
    run(async {
        let mut started = Vec::new();
        for count in counts {
            while started.len() < *count {
                started.push(start(started.len()).await);
            }
            let last = started.last().unwrap();
            let mut all = vec![
                ("the last VM Running ms".to_owned(), last.running),
                ("the last VM's processor time ms".to_owned(), last.processor),
            ];
            all.extend(side_by_side(&started).await);
            row(*count, all);
        }
    });
}

/// What VMs take up that run beside each other and are left alone, and how soon one of them
/// answers.
async fn side_by_side(started: &[Started]) -> Row {
    tokio::time::sleep(SETTLE).await;
    let pods: Vec<&Pod> = started.iter().map(|vm| &vm.pod).collect();
    let idle = idle(&pods, IDLE).await;
    let sum = |unit: &str| {
        let of_unit = idle.iter().filter(|(name, _)| name.ends_with(unit));
        of_unit.map(|(_, value)| value).sum()
    };
    let processes = pods
        .iter()
        .flat_map(|pod| PROGRAMS.map(|name| named(pod, name)));
    let descriptors: u64 = processes
        .flatten()
        .map(|pid| Usage::of(pid).descriptors)
        .sum();
    let one = started.last().unwrap();
    let get_domain = each("GetDomain ms", async || {
        drop(one.pod.cmd().get_domain(EmptyRequest {}).await)
    });
    let sync = each("sync without change ms", async || {
        one.pod.sync_ok(&one.vmi).await
    });
    let mut row = Row::from([get_domain.await, sync.await]);
    row.extend(
        [
            ("all programs PSS MiB", sum("PSS MiB")),
            ("all programs dirty MiB", sum("dirty MiB")),
            ("all programs wake-ups/min", sum("wake-ups/min")),
            ("all programs descriptors", descriptors as f64),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    row
}

fn with_disks(pod: &Pod, count: usize) -> Vmi {
    (1..count).fold(Vmi::new("disks").with_image(pod), |vmi, number| {
        let name = format!("d{number}");
        vmi.volume(
            json!({"name": name, "emptyDisk": {"capacity": "1Mi"}}),
            json!({"name": name, "disk": {"bus": "scsi"}}),
        )
    })
}

/// A VM with so many disks.
fn disks(count: usize) -> Row {
    measured(async || {
        let mut pod = Pod::new();
        let vmi = with_disks(&pod, count);
        pod.handler.serve();
        pod.launch(&vmi, &[]);
        pod.wait_until_ready().await;
        let begin = Instant::now();
        pod.sync_ok(&vmi).await;
        let first = milliseconds(begin);
        let begin = Instant::now();
        pod.sync_ok(&vmi).await;
        let unchanged = milliseconds(begin);
        let launcher = named(&pod, "virt-launcher").map_or_else(Usage::default, Usage::of);
        vec![
            ("first sync ms".to_owned(), first),
            ("sync without change ms".to_owned(), unchanged),
            (
                "virt-launcher dirty MiB".to_owned(),
                launcher.private_dirty as f64 / 1024.0,
            ),
        ]
    })
}

/// A VM with three disks that are made for it, and cloud-init data. The launcher's own steps only
/// with ours, which logs them.
fn cloud_init() -> Row {
    measured(async || {
        let mut pod = Pod::new();
        let data = json!({"name": "cloud", "cloudInitNoCloud": {"userData": "#cloud-config"}});
        let vmi =
            with_disks(&pod, 4).volume(data, json!({"name": "cloud", "disk": {"bus": "virtio"}}));
        pod.handler.serve();
        pod.launch(&vmi, &[]);
        pod.wait_until_ready().await;
        let begin = Instant::now();
        pod.sync_ok(&vmi).await;
        let mut row = vec![("first sync ms".to_owned(), milliseconds(begin))];
        // The last line that the sync has written.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let log = pod.log().join("\n");
        for step in ["prepare", "define", "start"] {
            let took = log.split_once(&format!(" {step} ")).and_then(|(_, times)| {
                let (began, ended) = times.split([',', '"']).next()?.split_once('-')?;
                Some(ended.parse::<f64>().ok()? - began.parse::<f64>().ok()?)
            });
            row.extend(took.map(|took| (format!("{step} ms"), took)));
        }
        row
    })
}

/// The death of the launcher of a VM with so many disks, in an image that has it started again.
fn restarts(count: usize) -> Row {
    measured(async || {
        let mut pod = Pod::new();
        let vmi = with_disks(&pod, count);
        pod.handler.serve();
        pod.set_env("RESTART_LAUNCHER", "yes");
        pod.launch_monitored(&vmi, &[]);
        pod.wait_until_ready().await;
        pod.sync_ok(&vmi).await;
        tokio::time::sleep(SETTLE).await;
        let begin = Instant::now();
        kill_launcher(&pod);
        // A call waits for the next launcher.
        pod.wait_until_ready().await;
        pod.cmd().ping(EmptyRequest {}).await.unwrap();
        let answered = milliseconds(begin);
        pod.sync_ok(&vmi).await;
        let synced = milliseconds(begin);
        pod.end(&vmi).await;
        pod.exit_code().await;
        vec![
            ("death to first answer ms".to_owned(), answered),
            ("death to sync ms".to_owned(), synced),
        ]
    })
}

/// A pod with so many hook sidecars, which run already when the launcher starts.
fn sidecars(count: usize) -> Row {
    measured(async || {
        let mut pod = Pod::new();
        let vmi = Vmi::new("sidecars").with_image(&pod);
        let sidecars: Vec<_> = (0..count)
            .map(|number| Sidecar::watchdog(&pod, number))
            .collect();
        for number in 0..count {
            socket(&mut pod, number).await;
        }
        pod.handler.serve();
        let begin = Instant::now();
        pod.launch(&vmi, &["--hook-sidecars", &count.to_string()]);
        pod.wait_until_ready().await;
        let ready = milliseconds(begin);
        let begin = Instant::now();
        pod.sync_ok(&vmi).await;
        let first = milliseconds(begin);
        pod.end(&vmi).await;
        pod.exit_code().await;
        drop(sidecars);
        vec![
            ("ready ms".to_owned(), ready),
            ("first sync ms".to_owned(), first),
        ]
    })
}

/// Prints medians and spread, and draws what grows.
fn report(all: &Rows) {
    let lines = all.print();
    for (kind, name, slope) in slopes(&lines) {
        println!("{kind}: {name}, for each further one: {slope:.2}");
    }
    let picture = results("bench.svg");
    std::fs::write(&picture, draw("count", &panels(&lines))).unwrap();
    println!("picture: {}", picture.display());
}

/// "20 pods, ours" as 20 and "pods, ours".
fn counted(what: &str) -> Option<(f64, &str)> {
    let (count, kind) = what.split_once(' ')?;
    Some((count.parse().ok()?, kind))
}

/// What each further pod, disk or sidecar adds, between the least and the most of them.
fn slopes(lines: &[(String, String, f64)]) -> Vec<(&str, &str, f64)> {
    let points = || {
        lines.iter().filter_map(|(what, name, median)| {
            let (count, kind) = counted(what)?;
            Some((kind, name.as_str(), count, *median))
        })
    };
    let mut slopes: Vec<(&str, &str, f64)> = Vec::new();
    for (kind, name, least, first) in points() {
        if slopes.iter().any(|(k, n, _)| (*k, *n) == (kind, name)) {
            continue;
        }
        let mut same = points().filter(|(k, n, ..)| (*k, *n) == (kind, name));
        if let Some((.., most, last)) = same.next_back().filter(|(.., most, _)| *most > least) {
            slopes.push((kind, name, (last - first) / (most - least)));
        }
    }
    slopes
}

/// A panel for each unit of what is counted, with a curve for each number; for pods, a panel for
/// each number with a curve for each launcher.
fn panels(lines: &[(String, String, f64)]) -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    for (what, name, median) in lines {
        let Some((count, kind)) = counted(what) else {
            continue;
        };
        let unit = name.rsplit(' ').next().unwrap_or_default();
        let (title, curve) = match kind.split_once(", ") {
            Some((kind, launcher)) => (format!("{kind}: {name}"), launcher),
            None => (format!("{kind}: {unit}"), name.as_str()),
        };
        let index = panels
            .iter()
            .position(|panel| panel.title == title)
            .unwrap_or_else(|| {
                panels.push(Panel {
                    title,
                    curves: Vec::new(),
                });
                panels.len() - 1
            });
        let curves = &mut panels[index].curves;
        match curves.iter_mut().find(|(known, _)| known == curve) {
            Some((_, points)) => points.push((count, *median)),
            None => curves.push((curve.to_owned(), vec![(count, *median)])),
        }
    }
    panels
}
