//! A block device, where the machine lets us have one.

use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode};

/// A loop device under a name of the pod's; its image goes with it.
pub struct LoopDevice {
    node: String,
    image: tempfile::NamedTempFile,
}

impl LoopDevice {
    /// `None`, with a message, where there are no loop devices for us.
    pub fn at(path: &Path, size: u64) -> Option<Self> {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(size).unwrap();
        let output = Command::new("losetup")
            .args(["-f", "--show"])
            .arg(image.path())
            .output();
        let Some(output) = output.ok().filter(|output| output.status.success()) else {
            println!("skipped what needs a block device: no loop device to be had");
            return None;
        };
        let device = Self {
            node: String::from_utf8(output.stdout).unwrap().trim().to_owned(),
            image,
        };
        let number = rustix::fs::stat(device.node.as_str()).unwrap().st_rdev;
        let made = rustix::fs::mknodat(
            CWD,
            path,
            FileType::BlockDevice,
            Mode::RUSR | Mode::WUSR,
            number,
        );
        if made.is_err() || std::fs::File::open(path).is_err() {
            println!("skipped what needs a block device: no device nodes to be had");
            return None;
        }
        Some(device)
    }

    /// The file behind it, to be filled; [`Self::grow`] to its size makes the device see it.
    pub fn image(&self) -> &Path {
        self.image.path()
    }

    /// The storage behind it has grown, and the device too.
    pub fn grow(&self, size: u64) {
        self.image.as_file().set_len(size).unwrap();
        assert!(
            Command::new("losetup")
                .args(["-c", &self.node])
                .status()
                .unwrap()
                .success()
        );
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.node]).status();
    }
}
