use super::*;
use std::cell::Cell;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Instant as StdInstant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::AsyncReadExt;

/// Set in the child process in which a test uses up all descriptors.
const CHILD: &str = "VIRT_LAUNCHER_TEST_WITHOUT_DESCRIPTORS";
/// Descriptors of that process.
const DESCRIPTORS: u64 = 64;

/// Counts calls of accept(2).
struct Counting(UnixListener, Rc<Cell<u32>>);

impl Listener for Counting {
    type Stream = UnixStream;

    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
        self.1.set(self.1.get() + 1);
        Listener::poll_accept(&self.0, context)
    }
}

/// Runs the test of this name once more, in a process of its own, and returns what that has logged.
/// `None` in that process.
fn in_a_process_of_its_own(test: &str) -> Option<String> {
    if std::env::var_os(CHILD).is_some() {
        crate::logging::init("test");
        let limit = getrlimit(Resource::Nofile);
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(DESCRIPTORS),
                ..limit
            },
        )
        .unwrap();
        return None;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("accept::tests::{test}"), "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut log)
        .unwrap();
    assert!(child.wait().unwrap().success(), "{log}");
    Some(log)
}

/// Takes all descriptors that are left.
fn use_up() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

/// A connection made with the last descriptor.
async fn connect_with_the_last(path: &Path, taken: &mut Vec<File>) -> UnixStream {
    drop(taken.pop());
    UnixStream::connect(path).await.unwrap()
}

fn count(log: &str, text: &str) -> usize {
    log.lines().filter(|line| line.contains(text)).count()
}

#[tokio::test]
async fn a_connection_without_a_descriptor_is_closed_and_a_later_one_served() {
    const CONNECTIONS: u32 = 5;
    if let Some(log) = in_a_process_of_its_own(
        "a_connection_without_a_descriptor_is_closed_and_a_later_one_served",
    ) {
        assert_eq!(
            count(&log, "Cannot accept connections to the test"),
            1,
            "{log}"
        );
        assert!(log.contains("Too many open files"), "{log}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let attempts = Rc::new(Cell::new(0));
    let listener = Counting(UnixListener::bind(&path).unwrap(), attempts.clone());
    let mut acceptor = Acceptor::new(listener, "the test");
    let mut taken = use_up();
    for _ in 0..CONNECTIONS {
        let mut client = connect_with_the_last(&path, &mut taken).await;
        let mut nothing = Vec::new();
        tokio::select! {
            _ = acceptor.accept() => panic!("there is no descriptor for it"),
            read = client.read_to_end(&mut nothing) => assert_eq!(read.unwrap(), 0),
        }
        drop(client);
        taken.extend(use_up());
    }
    // Each is asked for, closed, and the next one waited for.
    assert!(attempts.get() <= 4 * CONNECTIONS, "{attempts:?}");
    drop(taken);
    let _client = UnixStream::connect(&path).await.unwrap();
    acceptor.accept().await;
}

#[tokio::test]
async fn without_a_spare_descriptor_it_waits_between_two_attempts() {
    if in_a_process_of_its_own("without_a_spare_descriptor_it_waits_between_two_attempts").is_some()
    {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let attempts = Rc::new(Cell::new(0));
    let listener = Counting(UnixListener::bind(&path).unwrap(), attempts.clone());
    let mut taken = use_up();
    let mut acceptor = Acceptor::new(listener, "the test");
    assert!(acceptor.spare.is_none());
    let _client = connect_with_the_last(&path, &mut taken).await;
    let begin = StdInstant::now();
    let limit = tokio::time::timeout(3 * RETRY_DELAY, acceptor.accept());
    assert!(limit.await.is_err());
    let delays = begin.elapsed().div_duration_f64(RETRY_DELAY);
    assert!(f64::from(attempts.get()) <= delays + 2.0, "{attempts:?}");
    drop(taken);
    acceptor.accept().await;
    assert!(acceptor.spare.is_some());
}

#[tokio::test]
async fn a_shortage_is_reported_once_and_its_end_once() {
    if let Some(log) = in_a_process_of_its_own("a_shortage_is_reported_once_and_its_end_once") {
        assert_eq!(
            count(&log, "Cannot accept connections to the test"),
            1,
            "{log}"
        );
        assert_eq!(
            count(&log, "Accepting connections to the test again"),
            1,
            "{log}"
        );
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let mut acceptor = Acceptor::new(UnixListener::bind(&path).unwrap(), "the test");
    for _ in 0..3 {
        acceptor.note_failure(&Errno::MFILE.into());
    }
    acceptor.note_success();
    let shortage = acceptor.shortage.as_mut().unwrap();
    shortage.last_failure = Instant::now().checked_sub(SHORTAGE_END).unwrap();
    acceptor.note_success();
    acceptor.note_success();
}

/// What gRPC is served on.
#[tokio::test]
async fn a_grpc_server_without_descriptors_closes_connections_and_serves_again() {
    let name = "a_grpc_server_without_descriptors_closes_connections_and_serves_again";
    if let Some(log) = in_a_process_of_its_own(name) {
        assert_eq!(count(&log, "Cannot accept connections to "), 1, "{log}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let routes = tonic::service::Routes::default();
    tokio::spawn(crate::grpc::serve(routes, listener, std::future::pending()));
    tokio::task::yield_now().await;
    let mut taken = use_up();
    let mut client = connect_with_the_last(&path, &mut taken).await;
    let mut nothing = Vec::new();
    assert_eq!(client.read_to_end(&mut nothing).await.unwrap(), 0);
    drop((client, taken));
    crate::grpc::connect(&path).await.unwrap();
}
