//! How long Ping waits at most while the launcher works on the worst input of each kind.
//! docs/security.md has the figures.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use api::proto::cmd::v1::cmd_client::CmdClient;
use api::proto::cmd::v1::{EmptyRequest, VirtualMachineOptions, VmiRequest};
use api::proto::preview::v1::PlanRequest;
use api::proto::preview::v1::preview_client::PreviewClient;
use prost::bytes::Bytes;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use crate::backup::{Tracked, abort, start};
use crate::backup_export::{self, Server};
use crate::guest_agent::guest_info_until;
use crate::harness::{Pod, Vmi, run};
use crate::plugins::{self, Plugin};
use crate::scripted_agent::{self, replace_agent};
use crate::sidecars::{Sidecar, script};

/// Between two pings.
const PAUSE: Duration = Duration::from_millis(1);
/// In a directory that the launcher makes.
const METRICS: &str = "/var/run/kubevirt/metrics.sock";
/// Elements of a document, a little less than are accepted.
const ELEMENTS: usize = 60_000;

#[test]
#[ignore = "a measurement: docs/security.md says how to run it"]
fn ping() {
    println!(
        "{:<44} {:>10} {:>8} {:>8}",
        "input", "bytes", "all ms", "ping ms"
    );
    run(async {
        requests().await;
        sidecars().await;
        plugin().await;
        agent().await;
        backup().await;
        sockets().await;
    });
}

/// Calls Ping again and again, on a thread of its own.
struct Pinger {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Pinger {
    fn of(pod: &Pod) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let (socket, until) = (socket(pod), ended.clone());
        let thread = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            run(async {
                let channel = os::grpc::connect(&socket).await.unwrap();
                let mut cmd = CmdClient::new(channel);
                while !until.load(Ordering::Relaxed) {
                    let begin = Instant::now();
                    cmd.ping(EmptyRequest {}).await.unwrap();
                    longest = longest.max(begin.elapsed());
                    tokio::time::sleep(PAUSE).await;
                }
            });
            longest
        });
        Self { ended, thread }
    }

    fn longest(self) -> Duration {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn socket(pod: &Pod) -> PathBuf {
    pod.path("/var/run/kubevirt/sockets/launcher-sock")
}

/// Prints how long `work` takes, and how long Ping waits meanwhile.
async fn measure(pod: &Pod, name: &str, bytes: usize, work: impl Future<Output = String>) {
    let pinger = Pinger::of(pod);
    // Some pings before the work, and some after it: what is dropped at its end counts.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let begin = Instant::now();
    let outcome = work.await;
    let all = begin.elapsed().as_millis();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let longest = pinger.longest().as_secs_f64() * 1000.0;
    let outcome: String = outcome.chars().take(100).collect();
    println!("{name:<44} {bytes:>10} {all:>8} {longest:>8.1}   {outcome}");
}

/// Sends the VMI to SyncVirtualMachine.
async fn sync(pod: &Pod, name: &str, vmi: &Value, options: VirtualMachineOptions) {
    let request = VmiRequest {
        options: prost::Message::encode_to_vec(&options).into(),
        ..pod.request(vmi)
    };
    let bytes = prost::Message::encoded_len(&request);
    let mut cmd = pod.cmd();
    let call = async { outcome(cmd.sync_virtual_machine(request).await) };
    measure(pod, name, bytes, call).await;
}

fn outcome(
    answer: Result<tonic::Response<api::proto::cmd::v1::Response>, tonic::Status>,
) -> String {
    match answer.map(tonic::Response::into_inner) {
        Ok(answer) if answer.success => "ok".to_owned(),
        Ok(answer) => answer.message,
        Err(status) => status.message().to_owned(),
    }
}

async fn plan(pod: &Pod, name: &str, vmi: &Value) {
    let vmi_json = Bytes::from(vmi.to_string());
    let channel = os::grpc::connect(&socket(pod)).await.unwrap();
    let mut preview = PreviewClient::new(channel).max_decoding_message_size(usize::MAX);
    let bytes = vmi_json.len();
    let call = async {
        let answer = preview.plan(PlanRequest { vmi_json }).await;
        answer.map_or_else(
            |status| status.to_string(),
            |answer| {
                let answer = answer.into_inner();
                format!("{} {}", answer.plan_json.len(), answer.message)
            },
        )
    };
    measure(pod, name, bytes, call).await;
}

fn list(count: usize, entry: impl Fn(usize) -> Value) -> Value {
    (0..count).map(entry).collect()
}

/// What virt-handler sends, to a domain that runs.
async fn requests() {
    let (pod, vmi, _guest) = Pod::booted("ping", &[]).await;
    let text = |bytes: usize| Value::from("x".repeat(bytes));
    let none = VirtualMachineOptions::default;
    let long = vmi
        .clone()
        .set("/metadata/annotations", json!({"a": text(3 << 20)}));
    let disks = vmi
        .clone()
        .set(
            "/spec/volumes",
            list(
                8_000,
                |n| json!({"name": format!("v{n}"), "emptyDisk": {"capacity": "1Mi"}}),
            ),
        )
        .set(
            "/spec/domain/devices/disks",
            list(
                8_000,
                |n| json!({"name": format!("v{n}"), "disk": {"bus": "scsi"}}),
            ),
        );
    let interfaces = vmi
        .clone()
        .set(
            "/spec/networks",
            list(
                8_000,
                |n| json!({"name": format!("n{n}"), "multus": {"networkName": "m"}}),
            ),
        )
        .set(
            "/spec/domain/devices/interfaces",
            list(8_000, |n| json!({"name": format!("n{n}"), "bridge": {}})),
        );
    let attachments = |count: usize| VirtualMachineOptions {
        interface_domain_attachment: (0..count)
            .map(|n| (format!("n{n}"), "tap".to_owned()))
            .collect(),
        ..none()
    };
    let values = vmi
        .clone()
        .set("/spec/unknown", list(8, |_| list(8_000, |_| json!(0))));
    sync(&pod, "VMI: a text of 3 MiB", long.value(), none()).await;
    sync(&pod, "VMI: 64,000 values", values.value(), none()).await;
    sync(&pod, "VMI: 8,000 disks", disks.value(), none()).await;
    sync(
        &pod,
        "VMI: 8,000 interfaces",
        interfaces.value(),
        attachments(8_000),
    )
    .await;
    plan(&pod, "plan: a text of 3 MiB", long.value()).await;
    plan(&pod, "plan: 8,000 disks", disks.value()).await;
    plan(&pod, "plan: 8,000 interfaces", interfaces.value()).await;
    let hooks = list(
        8_000,
        |_| json!({"condition": "true", "cel": {"expression": ""}}),
    );
    let plugins =
        json!([{"metadata": {"name": "p"}, "spec": {"condition": "false", "domainHooks": hooks}}]);
    let plugins = VirtualMachineOptions {
        plugins_json: plugins.to_string().into(),
        ..none()
    };
    sync(&pod, "plugins: 8,000 hooks", vmi.value(), plugins).await;
    pod.end(&vmi).await;
}

/// What sidecars answer at a start.
async fn sidecars() {
    let elements = format!("{}</domain>", "<a/>".repeat(ELEMENTS));
    let text = format!("<title>{}</title></domain>", "x".repeat(3 << 20));
    let disks: String = (0..ELEMENTS / 2)
        .map(|n| format!("<disk><target dev='v{n}'/></disk>"))
        .collect();
    let disks = format!("{disks}</domain>");
    let values = json!({"UserData": "#cloud-config", "NoCloudMetaData": {}, "x": list(8, |_| list(8_000, |_| json!(0)))}).to_string();
    let padded = json!({"UserData": "x".repeat(3 << 20), "NoCloudMetaData": {"instance-id": "i"}})
        .to_string();
    let define = |file: &str| format!("printf '%s' \"$4\" | sed 's|</domain>||'; cat {file}");
    for (name, answer) in [
        ("sidecar: 60,000 elements", elements),
        ("sidecar: a text of 3 MiB", text),
        ("sidecar: 30,000 disks", disks),
    ] {
        sidecar(name, "onDefineDomain", &answer, define).await;
    }
    for (name, answer) in [
        ("sidecar: cloud-init of 64,000 values", values),
        ("sidecar: cloud-init of 3 MiB", padded),
    ] {
        sidecar(name, "preCloudInitIso", &answer, |file| {
            format!("cat {file}")
        })
        .await;
    }
}

/// A start with a sidecar whose program prints `answer`, in the way that `program` says.
async fn sidecar(name: &str, point: &str, answer: &str, program: impl Fn(&str) -> String) {
    let mut pod = Pod::new();
    let seed = json!({"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\n"}});
    let vmi = Vmi::new("ping")
        .with_image(&pod)
        .volume(seed, json!({"name": "seed", "disk": {"bus": "virtio"}}));
    let programs = tempfile::tempdir().unwrap();
    let file = programs.path().join("answer");
    std::fs::write(&file, answer).unwrap();
    script(programs.path(), point, &program(file.to_str().unwrap()));
    let _sidecar = Sidecar::shim(&pod, 0, "v1alpha3", programs.path());
    pod.handler.serve();
    pod.launch(&vmi, &["--hook-sidecars", "1"]);
    pod.wait_until_ready().await;
    let request = pod.request(vmi.value());
    let mut cmd = pod.cmd();
    let call = async { outcome(cmd.sync_virtual_machine(request).await) };
    measure(&pod, name, answer.len(), call).await;
}

/// A plugin whose answer is as large as a sidecar's may be.
async fn plugin() {
    let mut pod = Pod::new();
    let vmi = Vmi::new("ping").with_image(&pod);
    let more = "<a/>".repeat(ELEMENTS);
    Plugin::puts(&format!("</title>{more}")).serve(&pod, "large");
    pod.handler.serve();
    pod.launch(&vmi, &[]);
    pod.wait_until_ready().await;
    let socket = "/var/run/kubevirt-plugin/large/hook.sock";
    let title = json!({"cel": {"expression": "Domain{Title: 'large'}"}});
    let hooks = json!([title, {"sidecar": {"socketPath": socket}}]);
    let plugins = json!([plugins::plugin("large", "", hooks)]);
    let call = async { plugins::sync(&pod, &vmi, &plugins).await.message };
    measure(&pod, "plugin: 60,000 elements", more.len(), call).await;
}

/// An agent that answers with 64 MiB to each question.
async fn agent() {
    let (mut pod, vmi, mut guest) = Pod::booted("ping", &[]).await;
    guest_info_until(&mut pod, "complete", |info| {
        info["guestAgentVersion"].is_string()
    })
    .await;
    replace_agent(&mut pod, &mut guest, "garbage").await;
    let call = async { scripted_agent::ping(&pod).await.unwrap_err() };
    measure(&pod, "agent: 64 MiB", 64 << 20, call).await;
    pod.end(&vmi).await;
}

/// A backup that is read eight times at once.
async fn backup() {
    let vm = Tracked::booted("ping", &[]).await;
    let mut server = Server::start().await;
    let full = start("Full", "Pull", 1);
    vm.ask_ok(&full).await;
    vm.ask_ok(&server.export(&full)).await;
    let client = server.client().await;
    let call = async {
        let mut reads = JoinSet::new();
        for _ in 0..8 {
            let mut client = client.clone();
            reads.spawn(async move { backup_export::read(&mut client, 0, 0).await.len() });
        }
        let read: usize = reads.join_all().await.iter().sum();
        format!("{read} bytes")
    };
    measure(&vm.pod, "backup: read eight times at once", 0, call).await;
    vm.ask_ok(&abort(&full)).await;
}

/// Clients that only connect, or never end what they send.
async fn sockets() {
    let pod = Pod::ready(&Vmi::new("ping"), &["--metrics-socket", METRICS]).await;
    let connect = |path: PathBuf, count: usize, bytes: usize| async move {
        let mut open = Vec::new();
        for _ in 0..count {
            let Ok(mut stream) = UnixStream::connect(&path).await else {
                break;
            };
            let _ = stream.write_all(&vec![b'x'; bytes]).await;
            open.push(stream);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        format!("{} connections", open.len())
    };
    let silent = connect(socket(&pod), 500, 0);
    measure(&pod, "launcher-sock: 500 silent connections", 0, silent).await;
    let garbage = connect(socket(&pod), 500, 4_096);
    measure(&pod, "launcher-sock: 500 times garbage", 4_096, garbage).await;
    let metrics = connect(pod.path(METRICS), 100, 16 << 10);
    measure(&pod, "metrics: 100 endless heads", 16 << 10, metrics).await;
}
