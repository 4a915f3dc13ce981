//! Bad input gets one clear answer and leaves nothing half-done: the next sync works.

use api::proto::cmd::v1::{EmptyRequest, VmiRequest};
use prost::bytes::Bytes;
use serde_json::json;

use crate::faults::{self, Held};
use crate::harness::{Pod, Vmi, in_pod};

#[test]
fn what_cannot_be_run_is_refused_and_the_next_sync_works() {
    in_pod(async {
        let mut pod = Pod::new();
        let good = Vmi::new("bad").with_counter(&pod);
        pod.start(&good, &[]).await;

        let no_json = VmiRequest {
            vmi: Some(api::proto::cmd::v1::Vmi {
                vmi_json: Bytes::from_static(b"{\"spec\": ["),
            }),
            options: Bytes::new(),
        };
        for request in [no_json, VmiRequest::default()] {
            let answer = pod
                .cmd()
                .sync_virtual_machine(request)
                .await
                .unwrap()
                .into_inner();
            assert!(!answer.success);
            assert_eq!(
                answer.message,
                "No valid vmi object present in command server request"
            );
        }
        let cases = [
            (
                good.clone()
                    .set("/spec/domain/devices/disks/0/disk/bus", json!("floppy")),
                vec!["disks[0]", "floppy"],
            ),
            (
                good.clone().set("/spec/volumes", json!([])),
                vec!["rootdisk"],
            ),
            (
                good.clone().volume(
                    json!({"name": "lost", "persistentVolumeClaim": {"claimName": "l"}}),
                    json!({"name": "lost", "disk": {"bus": "virtio"}}),
                ),
                vec!["lost"],
            ),
            // libvirt refuses this one; the answer has its message.
            (
                good.clone()
                    .set("/spec/domain/machine/type", json!("pc-q35-99.0")),
                vec!["LibvirtError", "pc-q35-99.0"],
            ),
            // More than the emulated processor can address: QEMU refuses it when it starts. libvirt
            // adds QEMU's own words where virtlogd has written them by then.
            (
                good.clone()
                    .set("/spec/domain/memory/guest", json!("64Ti"))
                    .set("/spec/domain/resources/requests/memory", json!("64Ti")),
                vec!["LibvirtError(Code=1, Domain=10, Message='internal error: "],
            ),
        ];
        for (vmi, words) in cases {
            let answer = pod.sync(&vmi).await;
            assert!(!answer.success, "accepted, but should name {words:?}");
            for word in words {
                assert!(
                    answer.message.contains(word),
                    "{word:?} is not in: {}",
                    answer.message
                );
            }
            assert!(
                !answer.message.contains('\n') || answer.message.contains("qemu"),
                "one line: {}",
                answer.message
            );
            assert!(
                pod.domain().await.is_null(),
                "a refused VMI leaves no domain behind"
            );
            assert!(pod.guests().is_empty());
        }
        pod.sync_ok(&good).await;
        assert_eq!(pod.domain().await["Status"]["Status"], "Running");
    });
}

#[tokio::test]
async fn other_calls_are_answered_while_a_large_vmi_is_decoded() {
    let vmi = Vmi::new("large");
    let mut pod = Pod::new();
    pod.handler.serve();
    faults::launch(&mut pod, &vmi, "--libvirt=embed").await;
    let text = "x".repeat(1 << 20);
    let large = vmi
        .clone()
        .set("/metadata/annotations", json!({"large": text}));
    let (mut cmd, request) = (pod.cmd(), pod.request(large.value()));
    let kill = async move {
        let answer = cmd.kill_virtual_machine(request).await.unwrap();
        assert!(answer.into_inner().success);
    };
    let held = Held::during(&mut pod, "request.decoding", kill).await;
    let ping = pod.cmd().ping(EmptyRequest {}).await.unwrap();
    assert!(ping.into_inner().success);
    assert!(pod.domain().await.is_null());
    pod.end(&vmi).await;
    held.release().await;
}

#[tokio::test]
async fn a_socket_directory_that_cannot_be_made_is_named() {
    let vmi = Vmi::new("nosock");
    let mut pod = Pod::new();
    // A file where a directory should be.
    std::fs::write(pod.path("/var/run/kubevirt/sockets"), "").unwrap();
    pod.launch(&vmi, &[]);
    assert_eq!(pod.exit_code().await, 2);
    assert!(
        pod.log().last().unwrap().contains("sockets"),
        "{}",
        pod.log_tail()
    );
}

#[tokio::test]
async fn a_daemon_that_is_not_installed_is_named() {
    let vmi = Vmi::new("nodaemon");
    let mut pod = Pod::new();
    pod.launch(&vmi, &["--libvirt=virtqemud", "--qemu-timeout=3s"]);
    if std::path::Path::new("/usr/sbin/virtqemud").exists() {
        println!("skipped: this machine has a virtqemud");
        return;
    }
    assert_eq!(pod.exit_code().await, 2);
    assert!(pod.log_tail().contains("virtqemud"), "{}", pod.log_tail());
}

#[test]
fn an_unknown_flag_is_refused_with_its_name() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_virt-launcher"))
        .args(["--name=a", "--bogus-flag"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("bogus-flag"));
}
