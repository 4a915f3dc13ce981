//! A pod's network with a guest, made of network namespaces.
//!
//! Three processes of the test's own executable take part:
//!
//! 1. the test as cargo starts it: runs itself again in a network namespace of its own ([`run`]),
//! 2. the test in there, as root: makes the links of phase 1, a guest's namespace, and plays the
//!    guest ([`Bed`]),
//! 3. the server: does phase 2 with a pod's privileges (uid 107, CAP_NET_BIND_SERVICE only), as
//!    often as it gets a line.
//!
//! ```text
//! guest's namespace       pod's namespace (the bed)                outside
//! guest0 ---- veth ---- tap0 --- k6t-eth0 (10.0.2.1)    eth0 ---- out0
//! ```

pub mod client;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::executable::copy_program;

/// Says to a process of this executable that it is in the bed.
const INSIDE: &str = "NETWORK_BED_INSIDE";
/// Says to the server which case it serves.
const CASE: &str = "NETWORK_BED_CASE";
/// Says to the server where the pod's files are.
const FOLDER: &str = "NETWORK_BED_FOLDER";
/// uid and gid of a launcher in a pod.
const POD_USER: u32 = 107;

/// Runs a test in a bed. Where there can be none it says so, and in CI it fails.
pub fn run(test: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    if let Some(missing) = missing() {
        return skip(&missing);
    }
    let executable = std::env::current_exe().unwrap();
    let status = Command::new("unshare")
        .arg("--net")
        .arg(executable)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .status()
        .unwrap();
    assert!(
        status.success(),
        "the test in its network namespace failed, see above"
    );
}

/// Says why a test does not run. A CI that runs as root must be able to run it.
pub fn skip(missing: &str) {
    let required = std::env::var_os("CI").is_some() && rustix::process::geteuid().is_root();
    assert!(!required, "in CI this must not be missing: {missing}");
    println!("skipped: {missing}");
}

fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can make network namespaces".to_owned());
    }
    for program in ["unshare", "nsenter", "setpriv", "ip"] {
        if find(program).is_none() {
            return Some(format!("there is no program {program}"));
        }
    }
    let links = "ip link add probe0 type bridge && ip link add probe1 type veth peer name probe2";
    let made = Command::new("unshare")
        .args(["--net", "sh", "-c", links])
        .stderr(Stdio::null())
        .status();
    let made = made.is_ok_and(|status| status.success());
    (!made)
        .then(|| "the kernel makes no network namespace with a bridge and a veth pair".to_owned())
}

/// The program of this name in PATH or in the folders of system programs.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .map(|folder| folder.join(program))
        .find(|path| path.exists())
}

/// Runs a command of the words of `line`, which has to succeed.
pub fn command(line: &str) {
    let mut words = line.split_whitespace();
    let program =
        find(words.next().unwrap()).unwrap_or_else(|| panic!("{line}: there is no such program"));
    let output = Command::new(program).args(words).output().unwrap();
    assert!(
        output.status.success(),
        "{line}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn set_addresses(link: &str, addresses: &[&str]) {
    for address in addresses {
        let nodad = if address.contains(':') { "nodad" } else { "" };
        command(&format!("ip address add {address} dev {link} {nodad}"));
    }
}

/// The kernel lets a bridge's port take part a moment after its cable is plugged in.
fn wait_for_forwarding(port: &str) {
    for _ in 0..600 {
        let show = ["-details", "link", "show", port];
        let output = Command::new("ip").args(show).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        if text.contains("bridge_slave state forwarding") {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("the bridge does not forward to {port}");
}

/// A process that holds a network namespace, and ends with this.
pub struct Namespace(Child);

impl Namespace {
    pub fn new() -> Self {
        // `cat` says that the namespace is there, and ends when this process does.
        let mut child = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.as_mut().unwrap().write_all(b"ready\n").unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Runs a command in the namespace.
    pub fn command(&self, line: &str) {
        command(&format!("nsenter --net --target {} {line}", self.pid()));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The pod's side.
pub struct Bed {
    pub guest: Namespace,
    /// Where the pod's own links lead to.
    pub outside: Namespace,
    folder: tempfile::TempDir,
}

impl Bed {
    /// Nothing but loopback in the pod and in the guest.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        chown(folder.path(), Some(POD_USER), Some(POD_USER)).unwrap();
        let resolv_conf = "search ns.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\nnameserver fd00:96::a\n";
        std::fs::write(folder.path().join("resolv.conf"), resolv_conf).unwrap();
        command("ip link set lo up");
        Self {
            guest: Namespace::new(),
            outside: Namespace::new(),
            folder,
        }
    }

    /// Where virt-handler and the launcher leave files for each other.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A link of the pod that leads to `out` outside.
    pub fn link(&self, name: &str, out: &str, mtu: u32, addresses: &[&str]) {
        let outside = self.outside.pid();
        command(&format!(
            "ip link add {name} mtu {mtu} type veth peer name {out} mtu {mtu} netns {outside}"
        ));
        set_addresses(name, addresses);
        command(&format!("ip link set {name} up"));
        self.outside.command(&format!("ip link set {out} up"));
    }

    /// A bridge, and a tap device on it that leads to the guest's NIC.
    pub fn bridge(&self, bridge: &str, addresses: &[&str], tap: &str, nic: &str, mac: &str) {
        command(&format!(
            "ip link add {bridge} address 02:00:00:00:00:00 type bridge"
        ));
        set_addresses(bridge, addresses);
        command(&format!("ip link set {bridge} up"));
        command(&format!(
            "ip link add {tap} type veth peer name {nic} address {mac} netns {}",
            self.guest.pid()
        ));
        command(&format!("ip link set {tap} master {bridge} up"));
        // An address of its own making would be tentative for some seconds.
        self.guest
            .command(&format!("ip link set {nic} addrgenmode none"));
        self.guest
            .command(&format!("ip address add fe80::2/64 dev {nic} nodad"));
        self.guest.command(&format!("ip link set {nic} up"));
        wait_for_forwarding(tap);
    }

    /// Starts the server, and waits until it has done phase 2.
    pub fn serve(&self, case: &str) -> Server {
        // The build's folder may be closed to other users.
        let executable = self.folder().join("server");
        copy_program(std::env::current_exe().unwrap(), &executable);
        let user = POD_USER.to_string();
        let mut child = Command::new("setpriv")
            .args([
                "--reuid",
                &user,
                "--regid",
                &user,
                "--clear-groups",
                "--no-new-privs",
            ])
            .args([
                "--inh-caps",
                "-all,+net_bind_service",
                "--ambient-caps",
                "-all,+net_bind_service",
            ])
            .args(["--bounding-set", "-all,+net_bind_service"])
            .arg(executable)
            .args([
                "--exact",
                "server_process",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(CASE, case)
            .env(FOLDER, self.folder())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (
            child.stdin.take().unwrap(),
            BufReader::new(child.stdout.take().unwrap()),
        );
        let mut server = Server {
            child,
            input,
            output,
        };
        server.prepare();
        server
    }
}

/// The process that does phase 2. It ends with this.
pub struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Server {
    /// Lets it do phase 2 (again), and returns what it says: the tap interfaces, or the error.
    pub fn prepare(&mut self) -> String {
        self.input.write_all(b"prepare\n").unwrap();
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(
                self.output.read_line(&mut line).unwrap(),
                0,
                "the server has ended"
            );
            if let Some(result) = line.split_once("prepared: ") {
                return result.1.trim_end().to_owned();
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The server's side: calls `prepare` with the case and the folder for each line that comes in.
pub async fn serve_lines(prepare: impl AsyncFn(&str, &Path) -> String) {
    let Some(case) = std::env::var_os(CASE) else {
        return println!("skipped: this is a process of the other tests");
    };
    let (case, folder) = (
        case.into_string().unwrap(),
        PathBuf::from(std::env::var_os(FOLDER).unwrap()),
    );
    let mut lines =
        tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(tokio::io::stdin()));
    while lines.next_line().await.unwrap().is_some() {
        println!("prepared: {}", prepare(&case, &folder).await);
    }
}

/// Lets a client run until something is true, at most for a minute.
pub fn run_until(mut client: Command, ready: impl Fn() -> bool) {
    let mut child = client.spawn().unwrap();
    for _ in 0..1200 {
        if ready() {
            drop(child.kill());
            drop(child.wait());
            return;
        }
        assert_eq!(child.try_wait().unwrap(), None, "the client has ended");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    drop(child.kill());
    panic!("the client has no lease after a minute");
}
