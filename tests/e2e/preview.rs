//! `launcherctl plan`: what a sync would change, without changing it.

use std::process::Output;

use api::proto::cmd::v1::VirtualMachineOptions;
use serde_json::{Value, json};

use crate::harness::{Pod, Vmi, in_pod, output_of, pod_tool};

/// Runs launcherctl beside the test, which goes on serving virt-handler's socket.
async fn launcherctl(pod: &Pod, arguments: &[&str], vmi: &Vmi) -> Output {
    let file = pod.path("/tmp/vmi.json");
    std::fs::write(&file, vmi.value().to_string()).unwrap();
    let mut command = pod_tool("launcherctl");
    command
        .args(arguments)
        .arg(file)
        .arg("--root")
        .arg(pod.root());
    output_of(command).await
}

async fn plan(pod: &Pod, vmi: &Vmi) -> String {
    let output = launcherctl(pod, &["plan"], vmi).await;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn targets(domain: &Value) -> Vec<&str> {
    domain["Spec"]["Devices"]["Disks"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|disk| disk["Target"]["Device"].as_str())
        .collect()
}

#[test]
fn a_plan_says_what_the_sync_then_does() {
    in_pod(async {
        let (mut pod, vmi) = Pod::with_counter("plan", &[]).await;
        assert!(plan(&pod, &vmi).await.starts_with("start "));
        pod.count(&vmi).await;
        assert_eq!(plan(&pod, &vmi).await, "nothing to do");

        let patient = vmi
            .clone()
            .set("/spec/terminationGracePeriodSeconds", json!(90));
        let changes = plan(&pod, &patient).await;
        assert!(
            changes.ends_with("spec.terminationGracePeriodSeconds: 5 becomes 90"),
            "{changes}"
        );

        let with = vmi.clone().hotplugged("data", "DATA", "scsi");
        let waits = plan(&pod, &with).await;
        assert!(
            waits.starts_with("cannot ") && waits.contains("data.img cannot be opened yet"),
            "{waits}"
        );
        let image = pod.hotplug_image("data", 4 << 20);
        let comes = plan(&pod, &with).await;
        assert!(
            comes.starts_with("attach  sda  data ") && comes.contains(r#"volume "data" is new"#),
            "{comes}"
        );
        assert_eq!(
            targets(&pod.domain().await),
            ["vda"],
            "a plan changes nothing"
        );

        // It knows the options that virt-handler has sent last.
        let attached = async |pod: &Pod| {
            let json: Value = serde_json::from_slice(
                &launcherctl(pod, &["plan", "-o", "json"], &with)
                    .await
                    .stdout,
            )
            .unwrap();
            json["attach"][0].as_str().unwrap().to_owned()
        };
        assert!(attached(&pod).await.contains("discard"));
        let options = VirtualMachineOptions {
            preallocated_volumes: vec!["data".into()],
            ..VirtualMachineOptions::default()
        };
        let request = pod.request(vmi.value()).with_options(&options);
        assert!(
            pod.cmd()
                .sync_virtual_machine(request)
                .await
                .unwrap()
                .into_inner()
                .success
        );
        assert!(!attached(&pod).await.contains("discard"));

        pod.sync_ok(&with).await;
        assert_eq!(targets(&pod.domain().await), ["vda", "sda"]);
        assert_eq!(plan(&pod, &with).await, "nothing to do");

        let claim = json!({"capacity": {"storage": "8Mi"}, "requests": {"storage": "8Mi"}, "filesystemOverhead": "0"});
        let grown = with
            .clone()
            .set("/status/volumeStatus/1/persistentVolumeClaimInfo", claim);
        let json: Value = serde_json::from_slice(
            &launcherctl(&pod, &["plan", "-o", "json"], &grown)
                .await
                .stdout,
        )
        .unwrap();
        assert_eq!(json["resize"], json!([{"target": "sda", "bytes": 8 << 20}]));
        assert_eq!(json["steps"][0]["verb"], "resize");
        assert_eq!(json["steps"].as_array().unwrap().len(), 1);
        assert_eq!(
            image.metadata().unwrap().len(),
            4 << 20,
            "a plan changes nothing"
        );
        let goes = plan(&pod, &vmi).await;
        assert!(
            goes.starts_with("detach  sda  data ") && goes.contains("no longer wanted"),
            "{goes}"
        );

        let refused = launcherctl(
            &pod,
            &["plan"],
            &vmi.set("/spec/domain/devices/disks/0/disk/bus", json!("floppy")),
        )
        .await;
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && words.contains("disks[0]") && words.contains("floppy"),
            "{words}"
        );
    });
}
