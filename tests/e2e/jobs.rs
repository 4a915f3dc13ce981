//! Screenshots and memory dumps.

use api::proto::cmd::v1::MemoryDumpRequest;

use crate::harness::{Pod, give_to_qemu, in_pod};

#[test]
// D-vm-12 (docs/differences.md).
fn a_screenshot_is_a_picture_and_without_a_domain_an_error() {
    in_pod(async {
        let (pod, vmi) = Pod::with_counter("picture", &[]).await;
        let request = || pod.request(vmi.value());
        pod.cmd().get_screenshot(request()).await.unwrap_err();
        pod.sync_ok(&vmi).await;
        let picture = pod
            .cmd()
            .get_screenshot(request())
            .await
            .unwrap()
            .into_inner();
        assert!(picture.mime.starts_with("image/"), "{}", picture.mime);
        let magic = [&b"\x89PNG"[..], &b"P6"[..]];
        assert!(magic.iter().any(|magic| picture.data.starts_with(magic)));

        let file = pod.path("/tmp/screen.png");
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_pod-tools"));
        command.args(["launcherctl", "screenshot"]).arg(&file);
        let output = command
            .arg("--root")
            .arg(pod.root())
            .output()
            .await
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        let saved = std::fs::read(file).unwrap();
        assert!(magic.iter().any(|magic| saved.starts_with(magic)));
    });
}

#[test]
fn a_memory_dump_is_made_in_the_background_and_reported() {
    in_pod(async {
        let (pod, vmi) = Pod::started("dump", &[]).await;
        let dir = "/var/run/kubevirt/hotplug-disks/dumps";
        let dump = async |name: &str| {
            let request = MemoryDumpRequest {
                vmi: pod.request(vmi.value()).vmi,
                dump_path: format!("{dir}/{name}"),
            };
            let answer = pod
                .cmd()
                .virtual_machine_memory_dump(request)
                .await
                .unwrap()
                .into_inner();
            assert!(answer.success, "{}", answer.message);
            let metadata = |domain: &serde_json::Value| {
                domain["Spec"]["Metadata"]["KubeVirt"]["MemoryDump"].clone()
            };
            let domain = pod
                .domain_until("dumped", |domain| {
                    let dump = metadata(domain);
                    dump["FileName"] == name && dump["Completed"] == true
                })
                .await;
            metadata(&domain)
        };
        // There is no such directory yet.
        let failed = dump("a.memory.dump").await;
        assert_eq!(failed["Failed"], true);
        assert!(!failed["FailureReason"].as_str().unwrap().is_empty());

        let first = pod.path(&format!("{dir}/b.memory.dump"));
        give_to_qemu(first.parent().unwrap());
        let done = dump("b.memory.dump").await;
        assert_eq!(done["Failed"], false, "{done}");
        assert!(std::fs::read(&first).unwrap().starts_with(b"\x7fELF"));
        // The same again is not made again; the next one takes its place.
        let again = dump("b.memory.dump").await;
        assert_eq!(again["StartTimestamp"], done["StartTimestamp"]);
        dump("c.memory.dump").await;
        assert!(!first.exists());
    });
}
