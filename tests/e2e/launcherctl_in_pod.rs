//! `launcherctl` in a pod, whose VMI only virt-handler and the launcher have.

use std::process::Output;

use serde_json::{Value, json};

use crate::harness::{Pod, Vmi, in_pod, output_of, pod_tool};

/// A verb, as `kubectl exec` runs it; where the pod is a directory, with its root.
pub async fn launcherctl(pod: &Pod, arguments: &[&str]) -> Output {
    let command = if pod.is_container() {
        pod.exec_command(&[&["launcherctl"], arguments].concat())
    } else {
        let mut command = pod_tool("launcherctl");
        command.args(arguments).arg("--root").arg(pod.root());
        command
    };
    // Beside the test, which goes on serving virt-handler's socket.
    output_of(command).await
}

async fn done(pod: &Pod, arguments: &[&str]) -> String {
    let output = launcherctl(pod, arguments).await;
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

async fn refused(pod: &Pod, arguments: &[&str]) -> String {
    let output = launcherctl(pod, arguments).await;
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{arguments:?}: {shown}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn the_vmi_comes_from_the_launcher() {
    in_pod(async {
        let (mut pod, vmi) = Pod::with_counter("inpod", &[]).await;
        let none = refused(&pod, &["plan"]).await;
        assert!(none.contains("was sent no VMI"), "{none}");
        pod.count(&vmi).await;

        let status = done(&pod, &["status"]).await;
        assert!(status.contains("inpod: Running"), "{status}");
        assert!(!status.contains("supervisor"), "{status}");
        assert_eq!(done(&pod, &["plan"]).await, "nothing to do");
        let volumes = done(&pod, &["volumes"]).await;
        assert!(volumes.contains("rootdisk"), "{volumes}");
        assert_eq!(done(&pod, &["sync"]).await, "synced default/inpod");
        assert_eq!(done(&pod, &["pause"]).await, "paused default/inpod");
        assert_eq!(done(&pod, &["pause"]).await, "paused default/inpod");
        assert_eq!(done(&pod, &["unpause"]).await, "resumed default/inpod");
        if !pod.is_container() {
            plugs_a_disk(&pod).await;
        }
        needs_a_restart(&pod, &vmi).await;
        pod.end(&vmi).await;
    });
}

/// A disk that virt-handler knows nothing of.
async fn plugs_a_disk(pod: &Pod) {
    let file = pod.path("/tmp/data.img");
    std::fs::File::create(&file)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let file = file.display().to_string();
    let added = launcherctl(pod, &["addvolume", "data", "--file", &file]).await;
    let note = String::from_utf8_lossy(&added.stderr);
    assert!(added.status.success(), "{note}");
    assert_eq!(added.stdout, b"data is attached as sda\n");
    let volumes = done(pod, &["volumes"]).await;
    assert!(volumes.contains("data "), "{volumes}");
    assert_eq!(done(pod, &["plan"]).await, "nothing to do");
    assert_eq!(
        done(pod, &["removevolume", "data"]).await,
        "data is detached"
    );
}

/// A VMI of which the running guest cannot get everything.
async fn needs_a_restart(pod: &Pod, vmi: &Vmi) {
    let more = vmi
        .clone()
        .set("/spec/domain/memory/guest", json!("512Mi"))
        .volume(
            json!({"name": "data", "emptyDisk": {"capacity": "8Mi"}}),
            json!({"name": "data", "disk": {"bus": "virtio"}}),
        );
    let file = "/tmp/more.json";
    std::fs::write(pod.path(file), more.value().to_string()).unwrap();
    let file = match pod.is_container() {
        true => {
            std::fs::copy(pod.path(file), pod.inside(file)).unwrap();
            file.to_owned()
        }
        false => pod.path(file).display().to_string(),
    };
    let expected = [
        r#"needs a restart: spec.domain.memory.guest: "256Mi" becomes "512Mi""#,
        "needs a restart: spec.volumes[data] is new",
    ];
    let plan = done(pod, &["plan", &file]).await;
    for line in expected {
        assert!(plan.lines().any(|it| it == line), "{plan}");
    }
    let synced = done(pod, &["sync", &file]).await;
    assert!(synced.starts_with("synced default/inpod\n"), "{synced}");
    // The next plan still compares with the VMI of the start.
    let again: Value = serde_json::from_str(&done(pod, &["plan", "-o", "json"]).await).unwrap();
    let fields = again["restart"].as_array().unwrap();
    let fields: Vec<&str> = fields
        .iter()
        .filter_map(|it| it["field"].as_str())
        .collect();
    assert_eq!(fields, ["spec.domain.memory.guest", "spec.volumes[data]"]);
}
