//! `container-disk` as a pod runs it.

use super::*;

fn disk(arguments: &[&str]) -> Output {
    tool("container-disk")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

pub struct Disk {
    dir: tempfile::TempDir,
    socket: PathBuf,
    pub running: Running,
}

impl Disk {
    pub fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let running = Running::start(
            tool("container-disk")
                .arg("--copy-path")
                .arg(dir.path().join("uid/disk_0")),
        );
        let socket = dir.path().join("uid/disk_0.sock");
        until("the socket", || UnixStream::connect(&socket).ok());
        Self {
            dir,
            socket,
            running,
        }
    }
}

#[test]
fn container_disk_with_no_op_ends_at_once_and_silently() {
    let output = disk(&["--no-op"]);
    assert_eq!(
        (
            output.status.code(),
            output.stdout.len(),
            output.stderr.len()
        ),
        (Some(0), 0, 0)
    );
}

#[test]
fn container_disk_is_found_under_its_own_name() {
    let dir = tempfile::tempdir().unwrap();
    // As the init container does: a copy of the link's target.
    let copy = dir.path().join("container-disk");
    executable::copy_program(POD_TOOLS, &copy);
    let status = Command::new(&copy).arg("--no-op").status();
    assert!(status.unwrap().success());
    assert_eq!(
        Command::new(&copy)
            .arg("--copy-path")
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .code(),
        Some(1)
    );
}

#[test]
fn container_disk_refuses_other_arguments_with_status_1() {
    for (arguments, why) in [
        (&["--unknown"][..], "--unknown"),
        (&["-n"], "-n"),
        (&["-c"], "-c"),
        (&[], "--copy-path"),
    ] {
        let output = disk(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = error_of(&output);
        let (_date, message) = said.split_once('\n').unwrap();
        assert!(
            message.starts_with("error: ") && message.contains(why),
            "{arguments:?}: {said}"
        );
    }
}

#[test]
fn container_disk_ends_at_sigterm_and_removes_its_socket() {
    let mut disk = Disk::start();
    disk.running.send(Signal::TERM);
    let (status, said) = disk.running.ended();
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
    assert!(!disk.socket.exists() && disk.dir.path().join("uid").is_dir());
}

#[test]
fn container_disk_ends_when_its_socket_is_removed() {
    let mut disk = Disk::start();
    std::fs::remove_file(&disk.socket).unwrap();
    let (status, said) = disk.running.ended();
    assert_eq!(status.code(), Some(0));
    assert!(
        said.ends_with(&format!(
            "error: socket {} does not exist anymore\n",
            disk.socket.display()
        )),
        "{said}"
    );
}

#[test]
fn container_disk_ends_when_its_directory_is_removed_or_renamed() {
    let mut disk = Disk::start();
    std::fs::remove_dir_all(disk.dir.path().join("uid")).unwrap();
    assert_eq!(disk.running.ended().0.code(), Some(0));
    let mut disk = Disk::start();
    std::fs::rename(disk.dir.path().join("uid"), disk.dir.path().join("other")).unwrap();
    assert_eq!(disk.running.ended().0.code(), Some(0));
}

#[test]
fn container_disk_stays_while_other_files_come_and_go() {
    let mut disk = Disk::start();
    for _ in 0..3 {
        let other = disk.dir.path().join("uid/disk_1.sock");
        std::fs::write(&other, "").unwrap();
        std::fs::remove_file(&other).unwrap();
        until("sleep", || disk.running.sleeps().then_some(()));
    }
    assert!(disk.running.0.try_wait().unwrap().is_none());
    drop(UnixStream::connect(&disk.socket).unwrap());
}

#[test]
// D-tool-1 (docs/differences.md).
fn container_disk_ends_without_a_watch_too() {
    // A user may have no watch left. In a user namespace of its own the limit is ours to set.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk_0");
    let script =
        "echo 0 >/proc/sys/user/max_inotify_instances && exec \"$0\" container-disk -c \"$1\"";
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "sh", "-c", script, POD_TOOLS])
        .arg(&path);
    let mut running = Running::start(&mut command);
    let socket = path.with_extension("sock");
    let up = until("a start or its refusal", || {
        let refused = running.0.try_wait().unwrap().map(|_| false);
        UnixStream::connect(&socket).ok().map(|_| true).or(refused)
    });
    if !up {
        eprintln!("skipped: no user namespaces here: {}", running.ended().1);
        return;
    }
    std::fs::remove_file(&socket).unwrap();
    assert_eq!(running.ended().0.code(), Some(0));
}

#[test]
fn container_disk_takes_a_path_of_102_characters_and_no_longer_one() {
    let dir = tempfile::tempdir().unwrap();
    for (length, fits) in [(102, true), (103, false)] {
        let path = format!("uid/{}", "x".repeat(length - 4));
        let mut running = Running::start(
            tool("container-disk")
                .arg("-c")
                .arg(&path)
                .current_dir(dir.path()),
        );
        if fits {
            let socket = dir.path().join(format!("{path}.sock"));
            until("the socket", || socket.exists().then_some(()));
            running.send(Signal::TERM);
            assert_eq!(running.ended().0.code(), Some(0));
        } else {
            let (status, said) = running.ended();
            assert_eq!(status.code(), Some(1));
            assert!(
                said.ends_with("error: copy path can not be longer than 102 characters\n"),
                "{said}"
            );
        }
    }
}

#[test]
// D-log-3 (docs/differences.md).
fn container_disk_says_what_it_cannot_make() {
    let dir = tempfile::tempdir().unwrap();
    let output = disk(&["-c", dir.path().join("a/b/disk_0").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        error_of(&output).contains("\nerror: failed to create disk directory "),
        "{}",
        error_of(&output)
    );
    std::fs::write(dir.path().join("disk_0.sock"), "").unwrap();
    let output = disk(&["-c", dir.path().join("disk_0").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        error_of(&output).contains("\nerror: failed to bind socket "),
        "{}",
        error_of(&output)
    );
    assert!(dir.path().join("disk_0.sock").exists());
}

#[test]
fn container_disk_makes_directory_and_socket_with_the_callers_umask() {
    for (umask, mode) in [("000", 0o777), ("027", 0o750)] {
        let dir = tempfile::tempdir().unwrap();
        let script = format!("umask {umask}; exec \"$0\" container-disk -c \"$1\"");
        let mut command = Command::new("sh");
        command
            .args(["-c", &script, POD_TOOLS])
            .arg(dir.path().join("uid/disk_0"));
        let _running = Running::start(&mut command);
        let socket = dir.path().join("uid/disk_0.sock");
        until("the socket", || socket.exists().then_some(()));
        for path in [&socket, &dir.path().join("uid")] {
            assert_eq!(
                std::fs::metadata(path).unwrap().permissions().mode() & 0o777,
                mode,
                "{}",
                path.display()
            );
        }
    }
}

#[test]
fn container_disk_closes_a_thousand_connections() {
    let mut disk = Disk::start();
    let socket = &disk.socket;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..125 {
                    let mut connection = UnixStream::connect(socket).unwrap();
                    connection.set_read_timeout(Some(NEVER)).unwrap();
                    assert_eq!(connection.read(&mut [0]).unwrap(), 0);
                }
            });
        }
    });
    let open = std::fs::read_dir(format!("/proc/{}/fd", disk.running.0.id()))
        .unwrap()
        .count();
    assert!(open < 10, "{open} descriptors are open");
    disk.running.send(Signal::TERM);
    assert_eq!(disk.running.ended().0.code(), Some(0));
}
