//! The file system of the pod's directories below /var/run is full.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::full_disk::SmallFs;
use crate::harness::{Pod, Vmi, in_pod};

/// Takes all space that is left, until it is removed.
fn fill(directory: &Path) -> PathBuf {
    let path = directory.join("zeros");
    let mut file = std::fs::File::create(&path).unwrap();
    let error = std::io::copy(&mut std::io::repeat(0), &mut file).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    path
}

/// Fills the file system again but for some bytes.
fn free(zeros: &Path, bytes: u64) {
    fill(zeros.parent().unwrap());
    let file = std::fs::OpenOptions::new().write(true).open(zeros).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length - bytes).unwrap();
}

#[test]
fn a_start_without_space_names_the_file_and_the_next_sync_works() {
    in_pod(async {
        let mut pod = Pod::new();
        let var_run = pod.path("/var/run/x").parent().unwrap().to_owned();
        let Some(fs) = SmallFs::at(var_run, 96) else {
            return;
        };
        let seed = json!({"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\n"}});
        let vmi = Vmi::new("nospace")
            .with_image(&pod)
            .volume(seed, json!({"name": "seed", "disk": {"bus": "virtio"}}));
        pod.start(&vmi, &["--libvirt=auto"]).await;
        pod.log_has("QEMU's capabilities are known").await;
        let zeros = fill(fs.path());
        let answer = pod.sync(&vmi).await;
        assert!(
            !answer.success
                && answer
                    .message
                    .contains("/var/run/kubevirt-ephemeral-disks/")
                && answer.message.contains("No space left on device"),
            "{}",
            answer.message
        );
        assert!(pod.domain().await.is_null());
        // Space for overlays, and not for cloud-init's image. How much makes no difference to the
        // error, which becomes an event.
        let mut refusals = Vec::new();
        for kibibytes in [500, 540] {
            free(&zeros, kibibytes << 10);
            refusals.push(pod.sync(&vmi).await.message);
        }
        assert!(
            refusals[0].contains("noCloud.iso") && refusals[0].contains("No space left on device"),
            "{refusals:?}"
        );
        assert_eq!(refusals[0], refusals[1]);
        std::fs::remove_file(zeros).unwrap();
        let mut guest = pod.boot(&vmi).await;
        assert_eq!(guest.run("seed user-data").await, "#cloud-config");
        pod.end(&vmi).await;
        assert_eq!(pod.exit_code().await, 0);
    });
}

#[tokio::test]
async fn a_launcher_without_space_names_the_file() {
    let mut pod = Pod::new();
    let var_run = pod.path("/var/run/x").parent().unwrap().to_owned();
    let Some(fs) = SmallFs::at(var_run, 1) else {
        return;
    };
    pod.handler.serve();
    fill(fs.path());
    pod.launch(&Vmi::new("nospace"), &["--libvirt=auto"]);
    assert_eq!(pod.exit_code().await, 2);
    let last = pod.log().last().cloned().unwrap_or_default();
    assert!(
        last.contains("/var/run/") && last.contains("No space left on device"),
        "{}",
        pod.log_tail()
    );
}
