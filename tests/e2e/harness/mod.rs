//! A pod for one test: its directories, the launcher in it, and virt-handler's end of the sockets.

mod calls;
mod capabilities;
mod cgroup;
mod container;
mod guest;
mod handler;
mod log;
mod loop_device;
mod migrating_vm;
mod migration;
mod migration_proxies;
mod migration_source;
mod pod_network;
mod processes;
mod programs;
mod running_sides;
mod slow_qemu;
mod usage;
mod vmi;

pub use cgroup::Cgroup;
pub use container::{
    Container, User, in_container, in_kubevirts_layout, in_pod, made_by_v1_10, set_reference,
    skip_container, with_containers,
};
pub use guest::{Guest, counter_image, guest_image};
pub use handler::{Event, Handler, has_agent};
use log::Log;
pub use loop_device::LoopDevice;
pub use migrating_vm::MigratingVm;
pub use migration::{
    SOCKET_DIR, migratable_pod, migration, share_image, source_pod, source_pod_with_linux,
    target_pod,
};
pub use migration_proxies::{MigrationProxies, Moment, Network};
pub use migration_source::{
    SLOW, aborted, begin, cancel, failed, has_left, has_moved, migrate, migrate_call,
    migration_request, pair,
};
pub use pod_network::{
    ClusterNetwork, MASQUERADE_GATEWAY_V6, MASQUERADE_GUEST, MASQUERADE_GUEST_V6, MTU, PodNetwork,
    REMOTE_HOST, REMOTE_HOST_V6, in_container_with_network, write_name_resolution,
};
pub use processes::{HeldReads, Stopped, signal};
pub use programs::{output_of, pod_tool, short_dir, until};
pub use running_sides::{RunningSides, counts_on};
pub use slow_qemu::SlowQemu;
pub use usage::Usage;
use vmi::PROMPT;
pub use vmi::{UP, Vmi};

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::proto::cmd::v1::cmd_client::CmdClient;
use tonic::transport::Channel;

/// Emulated guests are slow, and many share the processors.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Where the programs under test are: those of this build, or where `PROGRAMS` says (measurements
/// are of a release).
pub fn programs() -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_virt-launcher")).parent();
    std::env::var_os("PROGRAMS").map_or_else(|| built.unwrap().to_owned(), PathBuf::from)
}

/// Runs a test on tokio.
pub fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(test);
}

/// A pod's root directory; everything of it ends with the test.
pub struct Pod {
    root: tempfile::TempDir,
    pub handler: Handler,
    environment: Vec<(&'static str, String)>,
    launcher: Option<Child>,
    container: Option<Container>,
    log: Log,
    cmd: Option<CmdClient<Channel>>,
}

impl Pod {
    /// A pod in which nothing runs yet; virt-handler is there.
    pub fn new() -> Self {
        let root = short_dir();
        let handler = Handler::new(root.path().join("var/run/kubevirt/domain-notify-pipe.sock"));
        let container = Container::of_this_test();
        capabilities::give(root.path(), container.is_some());
        Self {
            root,
            handler,
            environment: Vec::new(),
            launcher: None,
            container,
            log: Log::default(),
            cmd: None,
        }
    }

    /// A pod with a launcher that is ready.
    pub async fn ready(vmi: &Vmi, more: &[&str]) -> Self {
        let mut pod = Self::new();
        pod.start(vmi, more).await;
        pod
    }

    /// A pod whose VMI has the test guest's image, with a launcher that is ready.
    pub async fn with_image(name: &str, more: &[&str]) -> (Self, Vmi) {
        let mut pod = Self::new();
        let vmi = Vmi::new(name).with_image(&pod);
        pod.start(&vmi, more).await;
        (pod, vmi)
    }

    /// A pod in which Linux is up.
    pub async fn booted(name: &str, more: &[&str]) -> (Self, Vmi, Guest) {
        let (mut pod, vmi) = Self::with_image(name, more).await;
        let guest = pod.boot(&vmi).await;
        (pod, vmi, guest)
    }

    /// A pod whose VMI has the image of the guest that counts, with a launcher that is ready.
    pub async fn with_counter(name: &str, more: &[&str]) -> (Self, Vmi) {
        let mut pod = Self::new();
        let vmi = Vmi::new(name).with_counter(&pod);
        pod.start(&vmi, more).await;
        (pod, vmi)
    }

    /// A pod in which QEMU runs the guest that counts, whether it counts yet or not.
    pub async fn started(name: &str, more: &[&str]) -> (Self, Vmi) {
        let (pod, vmi) = Self::with_counter(name, more).await;
        pod.sync_ok(&vmi).await;
        (pod, vmi)
    }

    /// A pod in which a guest counts.
    pub async fn counting(name: &str, more: &[&str]) -> (Self, Vmi, Guest) {
        let (pod, vmi) = Self::started(name, more).await;
        let guest = pod.guest(&vmi).await;
        guest.ticks_on().await;
        (pod, vmi, guest)
    }

    /// Starts virt-handler and the launcher with `more` arguments, and waits until it is ready.
    pub async fn start(&mut self, vmi: &Vmi, more: &[&str]) {
        self.handler.serve();
        self.launch(vmi, more);
        self.wait_until_ready().await;
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// A path of the pod below its root; the directory is made.
    pub fn path(&self, pod_path: &str) -> PathBuf {
        let path = self.root.path().join(pod_path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    /// The same path as the pod's own processes see it.
    pub fn own_path(&self, pod_path: &str) -> PathBuf {
        match self.is_container() {
            true => pod_path.into(),
            false => self.path(pod_path),
        }
    }

    /// The pod is a container, and not only a directory.
    pub fn is_container(&self) -> bool {
        self.container.is_some()
    }

    /// The cgroup of the pod's memory, while it runs; `None` where it has none.
    pub fn cgroup(&self) -> Option<Arc<Cgroup>> {
        self.container.as_ref()?.cgroup()
    }

    /// A path of the pod as virt-handler sees it while the pod runs.
    pub fn inside(&self, pod_path: &str) -> PathBuf {
        match &self.container {
            Some(container) => format!("/proc/{}/root{pod_path}", container.first()).into(),
            None => self.path(pod_path),
        }
    }

    /// Where the container disk of the volume with this number is found.
    pub fn container_disk(&self, number: usize) -> PathBuf {
        match self.container {
            Some(_) => self.path(&format!(
                "/var/run/kubevirt-image-volume/disk_{number}/disk/disk.img"
            )),
            None => self.path(&format!(
                "/var/run/kubevirt/container-disks/disk_{number}.img"
            )),
        }
    }

    /// Makes the image of a hotplugged volume where virt-handler would mount it.
    pub fn hotplug_image(&self, volume: &str, size: u64) -> PathBuf {
        let path = self.path(&format!("/var/run/kubevirt/hotplug-disks/{volume}.img"));
        std::fs::File::create(&path).unwrap().set_len(size).unwrap();
        give_to_qemu(&path);
        path
    }

    /// An environment variable of the launchers that are started from now on.
    pub fn set_env(&mut self, name: &'static str, value: impl Into<String>) {
        self.environment.push((name, value.into()));
    }

    /// Starts the launcher as the pod would; in a container its monitor comes first.
    pub fn launch(&mut self, vmi: &Vmi, more: &[&str]) {
        if self.container.is_some() {
            return self.launch_monitored(vmi, more);
        }
        self.launch_by(&mut Command::new("/usr/bin/env"), vmi, more);
    }

    /// The same by a command that runs another one.
    pub fn launch_by(&mut self, command: &mut Command, vmi: &Vmi, more: &[&str]) {
        command.arg(env!("CARGO_BIN_EXE_virt-launcher"));
        self.launch_as(command, vmi, more);
    }

    /// Starts a launcher as process 1 of a pod does.
    pub fn launch_monitored(&mut self, vmi: &Vmi, more: &[&str]) {
        if let Some(mut container) = self.container.take() {
            let mut command = container.command(self.root.path(), vmi, &self.environment, more);
            self.spawn(&mut command);
            container.started(self.launcher.as_ref().unwrap().id());
            self.container = Some(container);
            return;
        }
        self.launch_monitored_by(&mut Command::new("/usr/bin/env"), vmi, more);
    }

    /// The same by a command that runs another one.
    pub fn launch_monitored_by(&mut self, command: &mut Command, vmi: &Vmi, more: &[&str]) {
        command.arg(env!("CARGO_BIN_EXE_virt-launcher-monitor"));
        self.launch_as(command, vmi, more);
    }

    fn launch_as(&mut self, command: &mut Command, vmi: &Vmi, more: &[&str]) {
        assert!(self.container.is_none(), "this test has no way to do that");
        command
            .envs(self.environment.iter().cloned())
            .args([
                "--name",
                vmi.name(),
                "--namespace",
                "default",
                "--uid",
                vmi.uid(),
                "--allow-emulation",
                "--force-emulation",
            ])
            .args([
                "--ovmf-path",
                "/usr/share/OVMF",
                "--hypervisor",
                "kvm",
                "--libvirt",
                "embed",
                "--root",
            ])
            .arg(self.root.path())
            .args(more);
        self.spawn(command);
    }

    /// Kills the launcher, as nothing in it can prevent.
    pub async fn kill_launcher(&mut self) {
        self.signal("KILL");
        self.exit().await;
        // So that the next one's is told from this one's.
        std::fs::remove_file(self.path("/var/run/kubevirt/sockets/launcher-sock")).unwrap();
        self.cmd = None;
    }

    /// Starts a launcher with exactly this command.
    pub fn spawn(&mut self, command: &mut Command) {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        self.log.follow(child.stderr.take().unwrap());
        self.launcher = Some(child);
    }

    /// Waits for `launcher-sock` and makes virt-handler's first call.
    pub async fn wait_until_ready(&mut self) {
        let socket = self.path("/var/run/kubevirt/sockets/launcher-sock");
        self.until("the launcher is ready", || socket.exists())
            .await;
        let channel = os::grpc::connect(&socket).await.unwrap();
        self.cmd = Some(CmdClient::new(channel).max_decoding_message_size(64 << 20));
    }

    /// Starts the VM and waits until its guest is up.
    pub async fn boot(&mut self, vmi: &Vmi) -> Guest {
        let _turn = guest::turn_to_boot().await;
        self.sync_ok(vmi).await;
        let mut guest = self.guest(vmi).await;
        guest.until(UP).await;
        // The shell forgets what is typed before it is ready.
        guest.until(PROMPT).await;
        guest
    }

    /// Starts the VM and waits until its guest counts.
    pub async fn count(&mut self, vmi: &Vmi) -> Guest {
        let _turn = guest::turn_to_boot().await;
        self.sync_ok(vmi).await;
        let guest = self.guest(vmi).await;
        guest.ticks_on().await;
        guest
    }

    /// A connection to the guest's serial console.
    pub async fn guest(&self, vmi: &Vmi) -> Guest {
        let console = format!("/var/run/kubevirt-private/{}/virt-serial0", vmi.uid());
        let guest = Guest::try_connect(&self.inside(&console)).await;
        guest.unwrap_or_else(|error| panic!("no console: {error}\n{}", self.log_tail()))
    }

    /// Waits for a condition that has no event of its own.
    pub async fn until(&mut self, what: &str, mut condition: impl FnMut() -> bool) {
        let end = Instant::now() + TEST_TIMEOUT;
        while !condition() {
            if let Some(child) = &mut self.launcher
                && let Some(status) = child.try_wait().unwrap()
            {
                panic!(
                    "the launcher ended ({status}) before {what}\n{}",
                    self.log_tail()
                );
            }
            assert!(
                Instant::now() < end,
                "waited too long until {what}\n{}",
                self.log_tail()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The first process of the pod.
    pub fn first_process(&self) -> u32 {
        match &self.container {
            Some(container) => container.first(),
            None => self.launcher.as_ref().unwrap().id(),
        }
    }

    /// Sends a signal to the first process of the pod.
    pub fn signal(&self, signal: &str) {
        processes::signal(signal, &[self.first_process()]);
    }

    /// Waits until the launcher has ended.
    pub async fn exit(&mut self) -> ExitStatus {
        let end = Instant::now() + TEST_TIMEOUT;
        loop {
            if let Some(status) = self.launcher.as_mut().unwrap().try_wait().unwrap() {
                return status;
            }
            assert!(
                Instant::now() < end,
                "the launcher does not end\n{}",
                self.log_tail()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The launcher's exit status, which must not be a signal.
    pub async fn exit_code(&mut self) -> i32 {
        let status = self.exit().await;
        assert_eq!(status.signal(), None, "{}", self.log_tail());
        status.code().unwrap()
    }

    /// What the launcher has logged so far.
    pub fn log(&self) -> Vec<String> {
        self.log.lines()
    }

    /// Waits until the log has a line with `text`.
    pub async fn log_has(&mut self, text: &str) {
        self.log_count(text, 1).await;
    }

    /// Waits until the log has so many lines with `text`.
    pub async fn log_count(&mut self, text: &str, count: usize) {
        let log = self.log.clone();
        self.until(text, || log.count(text) >= count).await;
    }

    /// The end of the log, and what the pod's processes do: for the message of a test that fails.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let session = self
            .launcher
            .as_ref()
            .map_or_else(String::new, |launcher| launcher.id().to_string());
        let tree = Command::new("ps")
            .args(["-eo", "pid,ppid,sid,stat,wchan:20,blocked,ignored,args"])
            .output();
        let tree = tree.map_or_else(
            |error| error.to_string(),
            |ps| String::from_utf8_lossy(&ps.stdout).into_owned(),
        );
        let ours =
            |line: &&str| line.contains(&session) || line.contains("qemu") || line.contains("PPID");
        let processes = tree
            .lines()
            .filter(ours)
            .map(|line| line.chars().take(160).collect())
            .collect::<Vec<String>>();
        format!(
            "{}\n{}",
            log[log.len().saturating_sub(40)..].join("\n"),
            processes.join("\n")
        )
    }

    /// Runs a program in the pod's container, as `kubectl exec` does.
    pub fn exec_output(&self, program: &[&str]) -> std::process::Output {
        self.container.as_ref().expect("a container").exec(program)
    }

    /// The same; what it prints. It must succeed.
    pub fn exec(&self, program: &[&str]) -> String {
        let output = self.exec_output(program);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program:?}: {message}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The command that runs a program in the pod's container, as the kubelet's exec handlers do.
    pub fn exec_command(&self, program: &[&str]) -> Command {
        let container = self.container.as_ref().expect("a container");
        container.exec_command(program)
    }

    /// `virsh` on the pod's libvirt, where that is a daemon.
    pub fn virsh(&self, arguments: &[&str]) -> String {
        if let Some(container) = &self.container {
            let mode = match container.user() {
                User::Qemu => "session",
                User::Root => "system",
            };
            let uri = format!("qemu+unix:///{mode}?socket=/var/run/libvirt/virtqemud-sock");
            return self.exec(&[&["virsh", "-c", uri.as_str()], arguments].concat());
        }
        let sockets = ["virtqemud-sock", "libvirt-sock"]
            .map(|name| self.path(&format!("/var/run/libvirt/{name}")));
        let socket = sockets
            .into_iter()
            .find(|path| path.exists())
            .expect("libvirt's socket");
        let mode = if rustix::process::geteuid().is_root() {
            "system"
        } else {
            "session"
        };
        let uri = format!("qemu+unix:///{mode}?socket={}", socket.display());
        let output = Command::new("virsh")
            .args(["-c", &uri])
            .args(arguments)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "virsh {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The running domain as libvirt itself keeps it, with what no schema of ours knows.
    pub fn live_xml(&self, vmi: &Vmi) -> String {
        let name = format!("default_{}", vmi.name());
        let by_embedded = self.root().join(format!("run/qemu/{name}.xml"));
        if self.container.is_none() && by_embedded.exists() {
            return std::fs::read_to_string(by_embedded).unwrap();
        }
        self.virsh(&["dumpxml", &name])
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        // Last to go is its cgroup, once it is empty.
        let container = self.container.take();
        if let Some(container) = &container {
            container.kill();
        }
        if let Some(mut launcher) = self.launcher.take() {
            let _ = launcher.kill();
            let _ = launcher.wait();
        }
        capabilities::keep(self.root.path(), container.is_some());
        if container.is_some() {
            return;
        }
        for pid in self.processes("") {
            let _ = Command::new("kill")
                .args(["-s", "KILL", &pid.to_string()])
                .status();
        }
    }
}

/// virt-handler gives the launcher's user what it makes for it; without root everything is that
/// user's.
pub fn give_to_qemu(path: &Path) {
    let _ = std::os::unix::fs::chown(path, Some(107), Some(107));
}
