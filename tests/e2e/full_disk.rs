//! The file system below a disk runs full: the guest waits instead of losing data.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Pod, Vmi, in_pod};

/// A small file system.
pub struct SmallFs(PathBuf);

impl SmallFs {
    /// `None`, with a message, where none may be mounted.
    pub fn at(path: PathBuf, mebibytes: u32) -> Option<Self> {
        std::fs::create_dir_all(&path).unwrap();
        let size = format!("size={mebibytes}m");
        if Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(&path)
            .status()
            .is_ok_and(|status| status.success())
        {
            return Some(Self(path));
        }
        println!("skipped: no file system can be mounted here");
        None
    }

    pub fn grow(&self, mebibytes: u32) {
        let size = format!("remount,size={mebibytes}m");
        assert!(
            Command::new("mount")
                .args(["-o", &size])
                .arg(&self.0)
                .status()
                .unwrap()
                .success()
        );
    }

    /// The same file system, also there.
    pub fn also_at(&self, path: PathBuf) -> Self {
        std::fs::create_dir_all(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.arg("--bind").args([&self.0, &path]);
        assert!(mount.status().unwrap().success());
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SmallFs {
    fn drop(&mut self) {
        // QEMU may still hold a file there.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
// D-disk-18 (docs/differences.md).
fn a_guest_whose_disk_is_full_waits_and_goes_on() {
    in_pod(async {
        let mut pod = Pod::new();
        // Where the claim's file system would be mounted.
        let Some(fs) = SmallFs::at(
            pod.path("/var/run/kubevirt-private/vmi-disks/data/x")
                .parent()
                .unwrap()
                .into(),
            4,
        ) else {
            return;
        };
        std::fs::File::create(fs.path().join("disk.img"))
            .unwrap()
            .set_len(16 << 20)
            .unwrap();
        let vmi = Vmi::new("full").with_image(&pod).volume(
            serde_json::json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}}),
            serde_json::json!({"name": "data", "serial": "DATA", "disk": {"bus": "virtio"}}),
        );
        pod.start(&vmi, &[]).await;
        let mut guest = pod.boot(&vmi).await;
        let device = guest.run("disks | grep DATA | cut -d' ' -f1").await;
        let write = "i=0; while [ $i -lt 8 ]; do tr '\\0' $i </dev/zero | dd bs=1M count=1 iflag=fullblock 2>/dev/null; i=$((i+1)); done";
        guest
            .send(&format!(
                "({write}) >/run/data; sha256sum </run/data >/run/sum; cat /run/data >/dev/{device}; sync; echo it is writ''ten"
            ))
            .await;

        let paused = pod.handler.status("Paused").await;
        assert_eq!(paused.reason(), "IOError");
        let event = pod.handler.k8s_event("IOerror").await;
        assert_eq!(
            event["message"],
            "VM Paused due to not enough space on volume: data"
        );
        // While the disk is full, a guest that a sync resumes is paused again.
        pod.sync_ok(&vmi).await;
        pod.domain_until("paused again", |domain| {
            domain["Status"]["Reason"] == "IOError"
        })
        .await;

        pod.handler.forget();
        fs.grow(24);
        pod.sync_ok(&vmi).await;
        pod.handler.status("Running").await;
        guest.until("it is written").await;
        let sums = guest.run(&format!("echo 3 >/proc/sys/vm/drop_caches; cat /run/sum; head -c 8388608 /dev/{device} | sha256sum")).await;
        let sums = sums.lines().collect::<Vec<_>>();
        assert!(sums.len() == 2 && sums[0] == sums[1], "{sums:?}");
    });
}
