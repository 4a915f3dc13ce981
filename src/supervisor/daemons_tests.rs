#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use tokio::net::UnixStream;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

/// A daemon that is a shell script.
fn script(text: &str, dir: &Path) -> Program {
    let args = vec![
        "-c".into(),
        text.into(),
        "daemon".into(),
        dir.display().to_string(),
    ];
    let pause = Duration::from_millis(1);
    Program {
        name: "daemon",
        path: "/bin/sh".into(),
        args,
        env: Vec::new(),
        mounts: Vec::new(),
        pause,
    }
}

/// The path, if it can be connected to.
async fn connect(path: PathBuf) -> Result<PathBuf, DaemonError> {
    match UnixStream::connect(&path).await {
        Ok(_) => Ok(path),
        Err(source) => Err(DaemonError::Watch { dir: path, source }),
    }
}

/// Waits for the file, and returns its text.
async fn text_of(path: &Path) -> String {
    os::fs_events::appears(path).await.unwrap();
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn daemon_that_ends_is_started_again() {
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        // The first one ends at once, the second one stays.
        let work = "if [ -e $1/first ]; then touch $1/second; exec sleep 600; fi; touch $1/first";
        let daemon = Daemon::start(script(work, dir.path())).unwrap();
        text_of(&dir.path().join("second")).await;
        assert_eq!(daemon.health.borrow().ends, 1);
        daemon.stop().await;
    });
}

#[test]
// D-sup-5 (docs/differences.md).
fn stop_is_sigterm_and_waits_for_the_end() {
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        let work =
            "trap 'echo bye > $1/bye; exit 0' TERM; echo > $1/up; while :; do sleep 0.01; done";
        let daemon = Daemon::start(script(work, dir.path())).unwrap();
        text_of(&dir.path().join("up")).await;
        daemon.stop().await;
        assert_eq!(
            std::fs::read_to_string(dir.path().join("bye")).unwrap(),
            "bye\n"
        );
    });
}

#[test]
fn daemon_that_keeps_ending_is_reported_with_its_last_words() {
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        let daemon =
            Daemon::start(script("echo 'no such option' >&2; exit 6", dir.path())).unwrap();
        let error = daemon
            .reached(dir.path(), &["virtqemud-sock"], connect)
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "daemon ended 5 times before it was ready, at last with exit status: 6; its last words: \"no such option\""
        );
        daemon.stop().await;
    });
}

#[test]
// D-start-1 (docs/differences.md).
fn socket_is_reached_when_it_is_listened_on() {
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        let daemon = Daemon::start(script("exec sleep 600", dir.path())).unwrap();
        let names = ["virtqemud-sock", "libvirt-sock"];
        // Bound, and not yet listened on.
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            None,
        )
        .unwrap();
        let mut attempts = 0;
        let reached = daemon.reached(dir.path(), &names, |path| {
            attempts += 1;
            if attempts == 2 {
                rustix::net::listen(&socket, 1).unwrap();
            }
            connect(path)
        });
        let bind = async {
            tokio::task::yield_now().await;
            let address =
                rustix::net::SocketAddrUnix::new(dir.path().join("libvirt-sock")).unwrap();
            rustix::net::bind(&socket, &address).unwrap();
        };
        let (reached, ()) = tokio::join!(reached, bind);
        assert_eq!(reached.unwrap(), dir.path().join("libvirt-sock"));
        assert!(attempts >= 2);
        daemon.stop().await;
    });
}

#[test]
fn program_that_is_not_there_is_an_error() {
    block_on(async {
        let program = Program {
            path: "/nonexistent/virtqemud".into(),
            ..script("", Path::new("/"))
        };
        let error = Daemon::start(program).unwrap_err();
        assert_eq!(
            os::logging::chain(&error),
            "can't start /nonexistent/virtqemud: No such file or directory (os error 2)"
        );
    });
}

#[test]
fn directory_that_is_not_there_is_an_error() {
    block_on(async {
        let daemon = Daemon::start(script("exec sleep 600", Path::new("/"))).unwrap();
        let error = daemon
            .reached(Path::new("/nonexistent"), &["x"], connect)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("/nonexistent"), "{error}");
        daemon.stop().await;
    });
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
