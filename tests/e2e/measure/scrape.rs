//! How long virt-handler waits for the statistics of a domain when Prometheus scrapes it: idle, and
//! during a backup that is read all the time.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::number;
use crate::backup::{SIZE, TARGET, Tracked, abort, start, with};
use crate::harness::{Pod, User, Vmi, give_to_qemu, run, set_reference, with_containers};
use api::proto::cmd::v1::EmptyRequest;

/// Longer than the launchers keep statistics: each call reads them anew.
const SCRAPE_INTERVAL: Duration = Duration::from_millis(3400);

#[test]
#[ignore = "it takes minutes: make scrape"]
fn scrape() {
    with_containers(User::Qemu, || {
        let calls = number("CALLS", 1000) as usize;
        let scrapes = number("SCRAPES", 20) as usize;
        println!("latency of GetDomainStats in ms: median, 99th percentile, longest");
        measure("ours", calls, scrapes);
        if let Some(path) = std::env::var_os("REFERENCE").filter(|path| !path.is_empty()) {
            set_reference(Some(path.into()));
            measure("reference", calls, scrapes);
            set_reference(None);
        }
    });
}

fn measure(name: &str, calls: usize, scrapes: usize) {
    run(async {
        // KubeVirt's launcher lower-cases the backup's XML, with its paths and names.
        let target = TARGET.to_lowercase();
        let launch = async |pod: &mut Pod, vmi: &Vmi| {
            // virt-controller mounts a volume there, and KubeVirt's launcher does not make it.
            let private = "/var/run/kubevirt-private/libvirt/qemu";
            for path in [private, &format!("{private}/cbt"), &target] {
                let path = pod.path(path);
                std::fs::create_dir_all(&path).unwrap();
                give_to_qemu(&path);
            }
            pod.launch(vmi, &[]);
            pod.wait_until_ready().await;
        };
        let mut vm = Tracked::booted_with("scraped", SIZE, launch).await;
        latencies(&vm, &format!("{name}, idle"), calls, scrapes).await;
        let pull = with(start("read", "Pull", 1), "targetPath", target.as_str());
        vm.ask_ok(&pull).await;
        let reader = Reader::of(&vm);
        latencies(&vm, &format!("{name}, during a backup"), calls, scrapes).await;
        drop(reader);
        vm.ask_ok(&abort(&pull)).await;
        vm.ended("read").await;
    });
}

async fn latencies(vm: &Tracked, name: &str, calls: usize, scrapes: usize) {
    for (kind, count, pause) in [
        ("one call after the other", calls, Duration::ZERO),
        ("scrapes, 3.4 s apart", scrapes, SCRAPE_INTERVAL),
    ] {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            tokio::time::sleep(pause).await;
            let begin = Instant::now();
            let answer = vm.pod.cmd().get_domain_stats(EmptyRequest {}).await;
            times.push(begin.elapsed().as_secs_f64() * 1000.0);
            let response = answer.unwrap().into_inner().response;
            assert!(response.is_some_and(|response| response.success));
        }
        times.sort_by(f64::total_cmp);
        let at = |part: usize| times[(count * part / 100).min(count - 1)];
        println!(
            "{name:<28} {count:>5} {kind:<26} {:>8.2} {:>8.2} {:>8.2}",
            at(50),
            at(99),
            at(100)
        );
    }
}

/// Reads the data disk's export again and again, for as long as this lives.
struct Reader(Child);

impl Reader {
    fn of(vm: &Tracked) -> Self {
        let socket = vm.pod.path("/var/run/kubevirt/sockets/backup-nbd-sock");
        let read = |export: &str| {
            let socket = socket.display();
            format!(
                "qemu-img bench -q -c 10000 -f raw 'nbd+unix:///{export}?socket={socket}' >/dev/null"
            )
        };
        let script = format!("while {} || {}; do :; done", read("Data-1"), read("data-1"));
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Its last qemu-img ends with the backup.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
