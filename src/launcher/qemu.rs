//! The QEMU process named in libvirt's pid file.

use std::io;
use std::path::Path;

use rustix::process::Pid;

use os::process::Process;
use os::small_file;

/// Largest pid file that is read.
const MAX_PID_BYTES: u64 = 32;

/// Finds the QEMU process by `pid_file`, which libvirt writes, and checks that `domain` is its
/// guest's name. Call it on a runtime.
///
/// # Errors
/// The file is unreadable, or the process is missing or another one.
pub fn find_qemu(pid_file: &Path, domain: &str) -> io::Result<Process> {
    let text = small_file::read(pid_file, MAX_PID_BYTES)?;
    let text = String::from_utf8_lossy(&text);
    let pid = text
        .trim()
        .parse()
        .ok()
        .filter(|pid| *pid > 0)
        .and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other(format!("{text:?} is not a process number")))?;
    let process = Process::open(pid)?;
    // libvirt's `-name guest=NAME,debug-threads=on`; a name has no comma.
    let guest = format!("guest={domain},");
    let arguments = process.arguments()?;
    if !arguments
        .iter()
        .any(|argument| argument.starts_with(&guest))
    {
        return Err(io::Error::other(format!(
            "process {} does not run {domain}",
            process.pid()
        )));
    }
    Ok(process)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rustix::process::Signal;
    use std::io::Read;
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};

    /// A process with libvirt's arguments for `ns_vm`, which exits when its input ends, and its pid
    /// file.
    pub(crate) fn process(dir: &Path) -> (Child, PathBuf) {
        let mut child = Command::new("/bin/sh")
            .args(["-c", "echo; read _", "qemu", "-name"])
            .arg("guest=ns_vm,debug-threads=on")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Just after execve(2) it has no command line yet.
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        let file = dir.join("ns_vm.pid");
        std::fs::write(&file, format!("{}\n", child.id())).unwrap();
        (child, file)
    }

    #[tokio::test]
    // D-sup-1 (docs/differences.md).
    async fn end_of_the_process_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let (mut child, file) = process(dir.path());
        let qemu = find_qemu(&file, "ns_vm").unwrap();
        assert_eq!(u32::try_from(qemu.pid()).unwrap(), child.id());
        qemu.signal(Signal::TERM).unwrap();
        qemu.ended().await;
        child.wait().unwrap();
        assert!(qemu.signal(Signal::TERM).is_err());
    }

    #[tokio::test]
    async fn process_of_another_domain_is_not_taken_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let (mut child, file) = process(dir.path());
        for other in ["ns_other", "ns_v", "s_vm", ""] {
            let error = find_qemu(&file, other).unwrap_err().to_string();
            assert!(error.ends_with(&format!("does not run {other}")), "{error}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(find_qemu(&file, "ns_vm").is_err(), "it is gone");
    }

    #[tokio::test]
    async fn pid_file_must_hold_a_number() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        for text in ["", "abc", "0", "-1"] {
            std::fs::write(&file, text).unwrap();
            assert!(find_qemu(&file, "").is_err(), "{text:?}");
        }
        assert_eq!(
            find_qemu(&dir.path().join("absent"), "")
                .unwrap_err()
                .kind(),
            io::ErrorKind::NotFound
        );
    }
}
