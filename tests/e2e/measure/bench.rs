//! What a pod costs, and how that grows: with pods on one machine, disks of a VM, and hook sidecars.

use std::time::{Duration, Instant};

use serde_json::json;

use super::chart::{Panel, draw};
use super::process::{Usage, named};
use super::{number, results};
use crate::harness::{Pod, User, Vmi, run, set_reference, with_containers};
use crate::sidecars::{Sidecar, socket};

/// The pod's own programs; QEMU is the same with any launcher.
const PROGRAMS: [&str; 4] = [
    "virt-launcher-monitor",
    "virt-launcher",
    "virtqemud",
    "virtlogd",
];
/// Over which wake-ups are counted.
const IDLE: Duration = Duration::from_secs(10);
/// For what follows a start to be done.
const SETTLE: Duration = Duration::from_secs(5);

/// What one measurement gives: names with their units, and numbers.
type Row = Vec<(String, f64)>;

#[test]
#[ignore = "it takes minutes: make bench"]
fn bench() {
    with_containers(User::Qemu, || {
        let runs = number("RUNS", 5) as usize;
        let reference = std::env::var_os("REFERENCE").filter(|path| !path.is_empty());
        let mut launchers = vec![("ours", None)];
        if let Some(path) = reference {
            launchers.push(("reference", Some(path.into())));
        }
        let mut all: Vec<(String, Vec<Row>)> = Vec::new();
        for (_, programs) in &launchers {
            // Into the page cache, and the copies of the programs onto the disk: pages that wait for that count as dirty.
            set_reference(programs.clone());
            pods(1);
            rustix::fs::sync();
        }
        // In turns, so that a machine that becomes slower or faster meanwhile does the same to all.
        for _ in 0..runs {
            for (name, programs) in &launchers {
                set_reference(programs.clone());
                push(&mut all, format!("one pod, {name}"), life());
                for count in counts("PODS", &[1, 5, 20]) {
                    push(&mut all, format!("{count} pods, {name}"), pods(count));
                }
            }
        }
        set_reference(None);
        for _ in 0..runs {
            for count in counts("DISKS", &[1, 10, 50, 100]) {
                push(&mut all, format!("{count} disks"), disks(count));
            }
            for count in counts("SIDECARS", &[1, 5, 20]) {
                push(&mut all, format!("{count} sidecars"), sidecars(count));
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

fn push(all: &mut Vec<(String, Vec<Row>)>, name: String, row: Row) {
    match all.iter_mut().find(|(known, _)| *known == name) {
        Some((_, rows)) => rows.push(row),
        None => all.push((name, vec![row])),
    }
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

fn measured(work: impl AsyncFnOnce() -> Row) -> Row {
    let mut row = None;
    run(async { row = Some(work().await) });
    row.unwrap()
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
        let begin = Instant::now();
        for _ in 0..50 {
            pod.sync_ok(&vmi).await;
        }
        row.push((
            "sync without change ms".to_owned(),
            milliseconds(begin) / 50.0,
        ));
        let mut guest = pod.guest(&vmi).await;
        guest.until(crate::harness::UP).await;
        tokio::time::sleep(SETTLE).await;
        row.extend(idle(&[&pod]).await);
        pod.end(&vmi).await;
        pod.exit_code().await;
        row
    })
}

/// Memory and wake-ups of all programs of these pods.
async fn idle(pods: &[&Pod]) -> Row {
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
    tokio::time::sleep(IDLE).await;
    let mut row = Row::new();
    for ((name, before), after) in PROGRAMS.iter().zip(before).zip(usage()) {
        let mib = |kib: u64| kib as f64 / 1024.0;
        let wakeups = after.switches.saturating_sub(before.switches) as f64;
        row.push((format!("{name} RSS MiB"), mib(after.resident)));
        row.push((format!("{name} PSS MiB"), mib(after.proportional)));
        row.push((format!("{name} dirty MiB"), mib(after.private_dirty)));
        row.push((
            format!("{name} wake-ups/min"),
            wakeups * 60.0 / IDLE.as_secs_f64(),
        ));
    }
    row
}

/// So many pods at once, without guests.
fn pods(count: usize) -> Row {
    measured(async || {
        let mut pods: Vec<(Pod, Vmi)> = Vec::new();
        let begin = Instant::now();
        for number in 0..count {
            let mut pod = Pod::new();
            let vmi = Vmi::new(&format!("pod{number}"));
            pod.handler.serve();
            pod.launch(&vmi, &[]);
            pods.push((pod, vmi));
        }
        for (pod, _) in &mut pods {
            pod.wait_until_ready().await;
        }
        let ready = milliseconds(begin);
        tokio::time::sleep(SETTLE).await;
        let all: Vec<&Pod> = pods.iter().map(|(pod, _)| pod).collect();
        let idle = idle(&all).await;
        let sum = |unit: &str| {
            let of_unit = idle.iter().filter(|(name, _)| name.ends_with(unit));
            of_unit.map(|(_, value)| value).sum()
        };
        vec![
            ("all ready ms".to_owned(), ready),
            ("all programs PSS MiB".to_owned(), sum("PSS MiB")),
            ("all programs dirty MiB".to_owned(), sum("dirty MiB")),
            ("all programs wake-ups/min".to_owned(), sum("wake-ups/min")),
        ]
    })
}

/// A VM with so many disks.
fn disks(count: usize) -> Row {
    measured(async || {
        let mut pod = Pod::new();
        let mut vmi = Vmi::new("disks").with_image(&pod);
        for number in 1..count {
            let name = format!("d{number}");
            vmi = vmi.volume(
                json!({"name": name, "emptyDisk": {"capacity": "1Mi"}}),
                json!({"name": name, "disk": {"bus": "scsi"}}),
            );
        }
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
        pod.end(&vmi).await;
        pod.exit_code().await;
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
fn report(all: &[(String, Vec<Row>)]) {
    println!(
        "{:<44} {:>10} {:>10} {:>10}  runs",
        "", "median", "least", "most"
    );
    let mut lines = Vec::new();
    for (what, rows) in all {
        for (index, (name, _)) in rows[0].iter().enumerate() {
            let mut values: Vec<f64> = rows.iter().map(|row| row[index].1).collect();
            values.sort_by(f64::total_cmp);
            let median = values[values.len() / 2];
            let title = format!("{what}: {name}");
            println!(
                "{title:<56} {median:>10.1} {:>10.1} {:>10.1}  {}",
                values[0],
                values[values.len() - 1],
                values.len()
            );
            lines.push((what.clone(), name.clone(), median));
        }
    }
    let picture = results("bench.svg");
    std::fs::write(&picture, draw("count", &panels(&lines))).unwrap();
    println!("picture: {}", picture.display());
}

/// A panel for each thing that is counted, with a curve for each of its numbers.
fn panels(lines: &[(String, String, f64)]) -> Vec<Panel> {
    let kind = |what: &str| {
        let (count, kind) = what.split_once(' ')?;
        Some((count.parse::<f64>().ok()?, kind.to_owned()))
    };
    let mut panels: Vec<Panel> = Vec::new();
    for (what, name, median) in lines {
        let Some((count, kind)) = kind(what) else {
            continue;
        };
        let title = format!("{kind}: {}", name.rsplit(' ').next().unwrap_or_default());
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
        match curves.iter_mut().find(|(known, _)| known == name) {
            Some((_, points)) => points.push((count, *median)),
            None => curves.push((name.clone(), vec![(count, *median)])),
        }
    }
    panels
}
