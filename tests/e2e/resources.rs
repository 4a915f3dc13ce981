//! CPUs, memory and host devices of a running guest.

use serde_json::{Value, json};

use api::proto::cmd::v1::{
    Cell, Cpu, EmptyRequest, InjectLaunchSecretRequest, Response, Topology, VirtualMachineOptions,
};

use crate::harness::{Guest, Pod, Vmi, in_pod};

async fn sync_memory(pod: &Pod, vmi: &Vmi) -> Response {
    let request = pod.request(vmi.value());
    let answer = pod.cmd().sync_virtual_machine_memory(request).await;
    answer.unwrap().into_inner()
}

fn accepted(answer: &Response) {
    assert!(answer.success, "{}", answer.message);
}

/// What the guest's kernel has, in MiB, once that is as wanted.
async fn total_mebibytes(guest: &mut Guest, wanted: impl Fn(u64) -> bool) -> u64 {
    let command = "sed -n 's/^MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo";
    let mebibytes = |text: &str| Some(text.trim().parse::<u64>().ok()? / 1024);
    let text = guest
        .run_until(command, |text| mebibytes(text).is_some_and(&wanted))
        .await;
    mebibytes(&text).unwrap()
}

fn memory_device(domain: &Value) -> &Value {
    &domain["Spec"]["Devices"]["Memory"]
}

/// What the guest has of the device, in MiB.
fn current(domain: &Value) -> Option<u64> {
    let current = &memory_device(domain)["Target"]["Current"];
    let unit = if current["Unit"] == "KiB" {
        1024
    } else {
        1 << 20
    };
    Some(current["Value"].as_u64()? / unit)
}

#[test]
fn memory_is_plugged_in_and_given_back() {
    in_pod(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("growing")
            .with_image(&pod)
            .set("/spec/domain/memory/maxGuest", json!("512Mi"));
        pod.start(&vmi, &[]).await;
        let mut guest = pod.boot(&vmi).await;
        // Memory that the kernel may use for itself cannot always be taken away again.
        let online = "/sys/devices/system/memory/auto_online_blocks";
        guest
            .run_until(
                &format!("echo online_movable > {online}; cat {online}"),
                |text| text.contains("online_movable"),
            )
            .await;
        let before = total_mebibytes(&mut guest, |_| true).await;

        let vmi = vmi.set("/status/memory", json!({"guestAtBoot": "256Mi"}));
        let larger = vmi.clone().set("/spec/domain/memory/guest", json!("384Mi"));
        accepted(&sync_memory(&pod, &larger).await);
        // 128 MiB: what a memory block of Linux has.
        pod.handler
            .event("with more memory", |event| {
                current(&event.domain) == Some(128)
            })
            .await;
        total_mebibytes(&mut guest, |total| total > before + 100).await;

        accepted(&sync_memory(&pod, &larger).await);
        pod.handler.forget();
        accepted(&sync_memory(&pod, &vmi).await);
        pod.handler
            .event("with less memory", |event| {
                current(&event.domain) == Some(0)
            })
            .await;
        total_mebibytes(&mut guest, |total| total < before + 28).await;

        let without = vmi.clone().set("/spec/domain/memory/maxGuest", Value::Null);
        let answer = sync_memory(&pod, &without).await;
        assert!(!answer.success, "{}", answer.message);
        assert!(
            answer
                .message
                .contains("spec.domain.memory.maxGuest: is missing"),
            "{}",
            answer.message
        );
        let asked = vmi.set(
            "/metadata/annotations",
            json!({"kubevirt.io/func-test-memory-hotplug-fail": ""}),
        );
        let answer = sync_memory(&pod, &asked).await;
        assert_eq!(answer.message, "kubevirt.io/func-test-memory-hotplug-fail");
    });
}

#[test]
fn the_guest_gets_more_cpus() {
    in_pod(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("cpus")
            .with_counter(&pod)
            .set("/spec/domain/cpu/maxSockets", json!(4));
        pod.start(&vmi, &["--libvirt=auto"]).await;
        pod.count(&vmi).await;
        let count = |kind: &str| {
            let text = pod.virsh(&["vcpucount", "default_cpus", kind, "--live"]);
            text.trim().parse::<u32>().unwrap()
        };
        assert_eq!((count("--active"), count("--maximum")), (1, 4));
        let more = vmi.clone().set("/spec/domain/cpu/sockets", json!(3));
        let request = pod.request(more.value());
        let answer = pod.cmd().sync_virtual_machine_cp_us(request).await;
        accepted(&answer.unwrap().into_inner());
        assert_eq!(count("--active"), 3);
        let too_many = vmi.set("/spec/domain/cpu/sockets", json!(9));
        let request = pod.request(too_many.value());
        let answer = pod.cmd().sync_virtual_machine_cp_us(request).await;
        assert!(!answer.unwrap().into_inner().success);
        assert_eq!(count("--active"), 3);
    });
}

/// The CPUs that this process may use, which are those of a pod that it starts.
fn host_cpus() -> Vec<u32> {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let all = 0..rustix::thread::CpuSet::MAX_CPU as u32;
    all.filter(|cpu| allowed.is_set(*cpu as usize)).collect()
}

/// A sync's options for dedicated CPUs: the node has these in one cell.
pub fn with_cpus_of_host() -> VirtualMachineOptions {
    let cpus = host_cpus().into_iter().map(|id| Cpu {
        id,
        siblings: vec![id],
    });
    let cell = Cell {
        cpus: cpus.collect(),
        ..Cell::default()
    };
    VirtualMachineOptions {
        topology: Some(Topology {
            numa_cells: vec![cell],
        }),
        ..VirtualMachineOptions::default()
    }
}

#[test]
fn dedicated_cpus_are_pinned_anew() {
    in_pod(async {
        let [first, second, ..] = host_cpus()[..] else {
            println!("skipped: two CPUs are needed");
            return;
        };
        let options = with_cpus_of_host();
        let mut pod = Pod::new();
        let vmi = Vmi::new("pinned")
            .with_counter(&pod)
            .set("/spec/domain/cpu/maxSockets", json!(2))
            .set("/spec/domain/cpu/dedicatedCpuPlacement", json!(true));
        pod.start(&vmi, &["--libvirt=auto"]).await;
        let request = |vmi: &Vmi| pod.request(vmi.value()).with_options(&options);
        let answer = pod.cmd().sync_virtual_machine(request(&vmi)).await;
        accepted(&answer.unwrap().into_inner());
        // A line for each vCPU: its number and the host's CPUs.
        let pins = || {
            let text = pod.virsh(&["vcpupin", "default_pinned", "--live"]);
            let lines = text.lines().skip(2).map(str::split_whitespace);
            let pin = |mut words: std::str::SplitWhitespace<'_>| {
                Some((words.next()?.to_owned(), words.next()?.to_owned()))
            };
            lines.filter_map(pin).collect::<Vec<_>>()
        };
        let pinned = |vcpu: u32, cpu: u32| (vcpu.to_string(), cpu.to_string());
        assert_eq!(pins()[0], pinned(0, first));
        // The pod had other CPUs before.
        pod.virsh(&[
            "vcpupin",
            "default_pinned",
            "0",
            &second.to_string(),
            "--live",
        ]);
        assert_eq!(pins()[0], pinned(0, second));
        let more = vmi.clone().set("/spec/domain/cpu/sockets", json!(2));
        let answer = pod.cmd().sync_virtual_machine_cp_us(request(&more)).await;
        accepted(&answer.unwrap().into_inner());
        assert_eq!(pins(), [pinned(0, first), pinned(1, second)]);
        pod.end(&vmi).await;
    });
}

/// No machine that this runs on has a virtual function to give; libvirt says so of the one that the
/// kubelet has announced. virt-handler sends no options with this call, so the conversion of the
/// VMI would not know the dedicated CPUs.
#[tokio::test]
async fn host_devices_are_attached_in_the_background_and_failures_are_logged() {
    let mut pod = Pod::new();
    let vmi = Vmi::new("sriov")
        .with_counter(&pod)
        .set("/spec/domain/cpu/dedicatedCpuPlacement", json!(true));
    pod.start(&vmi, &[]).await;
    let synced = pod.request(vmi.value()).with_options(&with_cpus_of_host());
    let synced = pod.cmd().sync_virtual_machine(synced).await;
    accepted(&synced.unwrap().into_inner());
    let info = pod.path("/etc/podinfo/network-info");
    let network = json!({"interfaces": [{"network": "fast", "deviceInfo": {
        "type": "pci", "version": "1.0.0", "pci": {"pci-address": "0000:fe:1f.7"},
    }}]});
    std::fs::write(info, network.to_string()).unwrap();
    let with = vmi
        .clone()
        .set(
            "/spec/domain/devices/interfaces",
            json!([{"name": "fast", "sriov": {}}]),
        )
        .set(
            "/spec/networks",
            json!([{"name": "fast", "multus": {"networkName": "vfs"}}]),
        )
        .set(
            "/status/interfaces",
            json!([{"name": "fast", "infoSource": "multus-status"}]),
        );
    let request = pod.request(with.value());
    let answer = pod.cmd().hotplug_host_devices(request).await.unwrap();
    accepted(&answer.into_inner());
    pod.log_has("The host device cannot be attached").await;
    assert_eq!(pod.domain().await["Status"]["Status"], "Running");
}

/// The machines that this runs on have no SEV: libvirt says so, and the launcher passes it on.
#[tokio::test]
async fn attestation_without_sev_is_a_clear_error() {
    let (pod, vmi) = Pod::started("nosev", &[]).await;
    let info = pod.cmd().get_sev_info(EmptyRequest {}).await.unwrap();
    let info = info.into_inner().response.unwrap();
    assert!(
        !info.success && info.message.contains("SEV"),
        "{}",
        info.message
    );
    let request = || pod.request(vmi.value());
    let measured = pod.cmd().get_launch_measurement(request()).await.unwrap();
    let measured = measured.into_inner().response.unwrap();
    assert!(!measured.success && !measured.message.is_empty());
    let inject = async |options: &str| {
        let request = InjectLaunchSecretRequest {
            vmi: request().vmi,
            options: options.to_owned().into(),
        };
        let answer = pod.cmd().inject_launch_secret(request).await.unwrap();
        let answer = answer.into_inner();
        assert!(!answer.success);
        answer.message
    };
    let message = inject("{}").await;
    assert_eq!(message, "Header is required");
    let message = inject(r#"{"header": "aGVhZGVy", "secret": "c2VjcmV0"}"#).await;
    assert!(!message.is_empty());
    println!("{} | {} | {message}", info.message, measured.message);
    pod.sync_ok(&vmi).await;
}
