use super::*;
use tokio::net::UnixStream;

/// A daemon that is a shell script.
fn script(text: &str, dir: &Path) -> DaemonProgram {
    let args = vec![
        "-c".into(),
        text.into(),
        "daemon".into(),
        dir.display().to_string(),
    ];
    let restart_delay = Duration::from_millis(1);
    DaemonProgram {
        name: "daemon",
        path: "/bin/sh".into(),
        args,
        env: Vec::new(),
        mounts: Vec::new(),
        restart_delay,
    }
}

/// Returns the path if a connection succeeds.
async fn connect(path: PathBuf) -> Result<PathBuf, DaemonError> {
    match UnixStream::connect(&path).await {
        Ok(_) => Ok(path),
        Err(error) => Err(FileError::on("connect to", path)(error).into()),
    }
}

/// Waits for the file and returns its text.
async fn text_of(path: &Path) -> String {
    os::inotify::appears(path).await;
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn daemon_that_exits_is_restarted() {
    let dir = tempfile::tempdir().unwrap();
    // The first process exits at once, the second one stays.
    let work = "if [ -e $1/first ]; then touch $1/second; exec sleep 600; fi; touch $1/first";
    let daemon = Daemon::start(script(work, dir.path())).await.unwrap();
    text_of(&dir.path().join("second")).await;
    assert_eq!(daemon.exits.borrow().count, 1);
    daemon.stop().await;
}

#[tokio::test]
// D-sup-5 (docs/differences.md).
async fn stop_is_sigterm_and_waits_for_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let work = "trap 'echo bye > $1/bye; exit 0' TERM; echo > $1/up; while :; do sleep 0.01; done";
    let daemon = Daemon::start(script(work, dir.path())).await.unwrap();
    text_of(&dir.path().join("up")).await;
    daemon.stop().await;
    assert_eq!(
        std::fs::read_to_string(dir.path().join("bye")).unwrap(),
        "bye\n"
    );
}

#[tokio::test]
async fn daemon_that_keeps_exiting_is_reported_with_the_last_line_of_its_log() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(script("echo 'no such option' >&2; exit 6", dir.path()))
        .await
        .unwrap();
    let error = daemon
        .reach(dir.path(), &["virtqemud-sock"], connect)
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "daemon exited 5 times before it was ready, the last time with exit status: 6; the last line of its log: \"no such option\""
    );
    daemon.stop().await;
}

#[tokio::test]
async fn exits_of_a_daemon_that_has_served_do_not_count_later() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let daemon = Daemon::start(script("exit 1", dir.path())).await.unwrap();
    let mut exits = daemon.exits.clone();
    exits
        .wait_for(|exits| exits.count >= MAX_EXITS)
        .await
        .unwrap();
    // The first attempt fails, as with a daemon that was just restarted.
    let mut attempts = 0;
    let reached = daemon.reach(dir.path(), &["sock"], |path| {
        attempts += 1;
        let path = if attempts == 1 {
            dir.path().join("absent")
        } else {
            path
        };
        connect(path)
    });
    assert_eq!(reached.await.unwrap(), socket);
    daemon.stop().await;
}

#[tokio::test]
async fn a_daemon_that_is_replaced_counts_as_restarted() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(script("exec sleep 600", dir.path()))
        .await
        .unwrap();
    assert_eq!(daemon.restarts(), 0);
    daemon.replace();
    let mut exits = daemon.exits.clone();
    exits.wait_for(|exits| exits.replaced > 0).await.unwrap();
    assert_eq!(daemon.restarts(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_daemon_that_comes_after_the_request_to_replace_it_stays() {
    let dir = tempfile::tempdir().unwrap();
    let work = "if [ -e $1/first ]; then touch $1/second; exec sleep 600; fi; touch $1/first";
    let mut program = script(work, dir.path());
    program.restart_delay = Duration::from_millis(100);
    let daemon = Daemon::start(program).await.unwrap();
    let mut exits = daemon.exits.clone();
    exits.wait_for(|exits| exits.count == 1).await.unwrap();
    daemon.replace();
    text_of(&dir.path().join("second")).await;
    assert_eq!(daemon.exits.borrow().replaced, 0);
    daemon.stop().await;
}

#[tokio::test]
async fn process_that_keeps_the_daemons_stderr_does_not_delay_the_restart() {
    let dir = tempfile::tempdir().unwrap();
    let work = "if [ -e $1/first ]; then touch $1/second; exec sleep 600; fi; \
                echo bye >&2; sleep 600 & echo $! > $1/first; exit 3";
    let daemon = Daemon::start(script(work, dir.path())).await.unwrap();
    text_of(&dir.path().join("second")).await;
    let (status, last_line) = daemon.exits.borrow().last.clone().unwrap();
    assert_eq!(
        (status.and_then(|status| status.code()), last_line.as_str()),
        (Some(3), "bye")
    );
    daemon.stop().await;
    let pid = text_of(&dir.path().join("first")).await;
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[tokio::test]
// D-start-1 (docs/differences.md).
async fn socket_is_reached_when_it_is_listened_on() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(script("exec sleep 600", dir.path()))
        .await
        .unwrap();
    let names = ["virtqemud-sock", "libvirt-sock"];
    // Bound, but not listening yet.
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    let mut attempts = 0;
    let reached = daemon.reach(dir.path(), &names, |path| {
        attempts += 1;
        if attempts == 2 {
            rustix::net::listen(&socket, 1).unwrap();
        }
        connect(path)
    });
    let bind = async {
        tokio::task::yield_now().await;
        let address = rustix::net::SocketAddrUnix::new(dir.path().join("libvirt-sock")).unwrap();
        rustix::net::bind(&socket, &address).unwrap();
    };
    let (reached, ()) = tokio::join!(reached, bind);
    assert_eq!(reached.unwrap(), dir.path().join("libvirt-sock"));
    assert!(attempts >= 2);
    daemon.stop().await;
}

#[tokio::test]
async fn program_that_is_not_there_is_an_error() {
    let program = DaemonProgram {
        path: "/nonexistent/virtqemud".into(),
        ..script("", Path::new("/"))
    };
    let error = Daemon::start(program).await.unwrap_err();
    assert_eq!(
        os::logging::chain(&error),
        "cannot start /nonexistent/virtqemud: No such file or directory (os error 2)"
    );
}

#[tokio::test]
async fn directory_that_is_not_there_is_an_error() {
    let daemon = Daemon::start(script("exec sleep 600", Path::new("/")))
        .await
        .unwrap();
    let error = daemon
        .reach(Path::new("/nonexistent"), &["x"], connect)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("/nonexistent"), "{error}");
    daemon.stop().await;
}

#[test]
fn nothing_installed_says_what_to_install() {
    let text = DaemonError::NotInstalled(vec![
        "/usr/sbin/virtqemud".into(),
        "/usr/sbin/libvirtd".into(),
    ])
    .to_string();
    assert!(
        text.starts_with("neither /usr/sbin/virtqemud nor /usr/sbin/libvirtd is there: install "),
        "{text}"
    );
}
