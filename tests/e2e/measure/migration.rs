//! What the launcher adds to a live migration: the same guest, moved by the launcher and by
//! libvirt's own client in turns.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use api::proto::cmd::v1::MigrationRequest;
use api::proto::inspect::v1::WatchMigrationRequest;
use api::proto::inspect::v1::inspect_client::InspectClient;
use api::proto::inspect::v1::migration_event::Event as Happened;
use serde_json::json;

use super::number;
use super::rows::{print_head, print_line};
use crate::harness::{
    Event, MigrationProxies, Pod, User, Vmi, migration, run, source_pod_with_linux, target_pod,
    with_containers,
};

/// Moves before those that count: programs and images are read into memory.
const WARM_UP: u64 = 1;

/// Names and numbers, in milliseconds.
type Row = Vec<(&'static str, f64)>;

#[test]
#[ignore = "it takes minutes: make bench-migration"]
fn bench() {
    with_containers(User::Qemu, || {
        let (mut ours, mut virsh) = (Vec::new(), Vec::new());
        for round in 0..WARM_UP + number("RUNS", 5) {
            run(async {
                let rows = (by_launcher().await, by_virsh().await);
                if round >= WARM_UP {
                    ours.push(rows.0);
                    virsh.push(rows.1);
                }
            });
        }
        report("by the launcher", &ours);
        report("by virsh", &virsh);
    });
}

/// A guest that is up and idle, and a target that is ready for it.
async fn pair(name: &str) -> (Pod, Pod, Vmi) {
    let vmi = Vmi::new(name);
    let (source, guest) = source_pod_with_linux(&vmi).await;
    drop(guest);
    let vmi = vmi.migrating_to("target");
    let target = target_pod(&source, &vmi, "target", &[]).await;
    target.sync_target_ok(&vmi).await;
    (source, target, vmi)
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn unix_micros() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_micros()).unwrap()
}

async fn by_launcher() -> Row {
    let (mut source, mut target, vmi) = pair("ours").await;
    let proxies = MigrationProxies::new(&source, &target, &vmi);
    let options = json!({"Bandwidth": "0", "ProgressTimeout": 150, "CompletionTimeoutPerGiB": 150, "MaxDowntimeMs": 3000});
    let request = MigrationRequest {
        vmi: source.request(vmi.value()).vmi,
        options: options.to_string().into(),
    };
    let begin = Instant::now();
    let answer = source.cmd().migrate_virtual_machine(request).await;
    let answer = answer.unwrap().into_inner();
    assert!(answer.success, "{}", answer.message);
    let has_ended = |event: &Event| !migration(&event.domain)["EndTimestamp"].is_null();
    source.handler.event("of the end", has_ended).await;
    let (whole, reported) = (begin.elapsed(), unix_micros());
    let (returned, downtime) = record(&source).await;
    target.arrival().await;
    let arrived = unix_micros();
    let (libvirt, memory) = proxies.connected();
    #[allow(clippy::cast_precision_loss, reason = "milliseconds")]
    let after = |micros: i64| (micros - returned) as f64 / 1000.0;
    vec![
        (
            "call to libvirt's connection to the target",
            milliseconds(libvirt - begin),
        ),
        (
            "call to the first byte of memory",
            milliseconds(memory - begin),
        ),
        ("call to the reported end", milliseconds(whole)),
        ("downtime as libvirt measures it", downtime),
        ("libvirt's end to the source's report", after(reported)),
        ("libvirt's end to the target's report", after(arrived)),
    ]
}

/// When libvirt's call has ended, in microseconds since 1970, and the downtime.
async fn record(source: &Pod) -> (i64, f64) {
    let socket = source.path("/var/run/kubevirt/sockets/launcher-sock");
    let mut inspect = InspectClient::new(os::grpc::connect(&socket).await.unwrap());
    let request = WatchMigrationRequest::default();
    let mut events = inspect.watch_migration(request).await.unwrap().into_inner();
    let (mut began, mut returned, mut downtime) = (0, 0, None);
    while let Some(event) = events.message().await.unwrap() {
        match event.event.unwrap() {
            Happened::Began(it) => began = it.unix_micros,
            Happened::Step(it) if it.name == "returned" => {
                returned = i64::try_from(event.at_micros).unwrap();
            }
            Happened::Ended(it) => downtime = it.downtime_ms,
            _ => {}
        }
    }
    (
        began + returned,
        f64::from(u32::try_from(downtime.unwrap()).unwrap()),
    )
}

async fn by_virsh() -> Row {
    let (mut source, mut target, vmi) = pair("virsh").await;
    let proxies = MigrationProxies::new(&source, &target, &vmi);
    let begin = Instant::now();
    let migrated = source.virsh_migrate(&vmi, &[]).await;
    let whole = begin.elapsed();
    let message = String::from_utf8_lossy(&migrated.stderr);
    assert!(migrated.status.success(), "{message}");
    let (libvirt, memory) = proxies.connected();
    source.departure().await;
    target.arrival().await;
    let job = source.virsh(&["domjobinfo", "default_virsh", "--completed", "--rawstats"]);
    let downtime = job.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "downtime").then(|| value.trim().parse::<f64>().ok())?
    });
    vec![
        (
            "start of virsh to libvirt's connection to the target",
            milliseconds(libvirt - begin),
        ),
        (
            "start of virsh to the first byte of memory",
            milliseconds(memory - begin),
        ),
        (
            "libvirt's connection to the first byte of memory",
            milliseconds(memory - libvirt),
        ),
        ("start of virsh to its end", milliseconds(whole)),
        (
            "downtime as libvirt measures it",
            downtime.unwrap_or(f64::NAN),
        ),
    ]
}

/// Prints medians and spread.
fn report(what: &str, rows: &[Row]) {
    print_head(what);
    for (index, (name, _)) in rows[0].iter().enumerate() {
        let values = rows.iter().map(|row| row[index].1).collect();
        print_line(&format!("  {name}, ms"), values);
    }
}
