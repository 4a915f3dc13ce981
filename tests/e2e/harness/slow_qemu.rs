//! A QEMU that waits before it runs a guest, as one does for hugepages or VFIO.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use super::Pod;
use crate::executable::write_script;

/// In a pod that is a directory: a `qemu-system-x86_64` that the launcher finds first.
pub struct SlowQemu {
    dir: PathBuf,
    gate: PathBuf,
}

/// A QEMU that waits until this is dropped.
pub struct Waiting(#[expect(dead_code, reason = "closed when it is dropped")] std::fs::File);

impl SlowQemu {
    pub fn new(pod: &Pod) -> Self {
        let gate = pod.path("/slow/gate");
        mknodat(CWD, &gate, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let program = pod.path("/slow/qemu-system-x86_64");
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in *guest=*) ! [ -p {0} ] || read -r _ <{0} ;; esac\n\
             exec /usr/bin/qemu-system-x86_64 \"$@\"\n",
            gate.display()
        );
        write_script(&program, &script);
        Self {
            dir: program.parent().unwrap().into(),
            gate,
        }
    }

    /// Lets the programs that this command starts find it.
    pub fn command(&self) -> Command {
        let mut command = Command::new("/usr/bin/env");
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.dir.display()));
        command
    }

    /// Waits until it has been started. Then none waits any more but the one that has come so far.
    pub async fn waiting(&self, pod: &mut Pod) -> Waiting {
        let mut writer = None;
        let open = || {
            OpenOptions::new()
                .write(true)
                .custom_flags(OFlags::NONBLOCK.bits() as i32)
                .open(&self.gate)
                .ok()
        };
        pod.until("QEMU waits", || {
            writer = open();
            writer.is_some()
        })
        .await;
        std::fs::remove_file(&self.gate).unwrap();
        Waiting(writer.unwrap())
    }
}
