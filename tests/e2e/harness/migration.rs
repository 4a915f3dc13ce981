//! Two pods between which a VM migrates, and what two virt-handlers do for it: sockets of the source that lead to those
//! of the target, the VMI's migration state, and the image of the disk that both pods have.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use serde_json::{Value, json};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use super::{Event, Guest, Pod, Vmi, give_to_qemu, run};
use api::proto::cmd::v1::{InterfaceBindingMigration, Response, VirtualMachineOptions, VmiRequest};

/// Where virt-handler puts its sockets on the source, and QEMU its own on the target.
const SOCKET_DIR: &str = "/var/run/kubevirt/migrationproxy";
/// The disk that both pods have.
const IMAGE: &str = "/var/run/kubevirt-private/vmi-disks/rootdisk/disk.img";
/// Directories that libvirt takes for a file system that both nodes have.
const SHARED: &str = "/var/run/kubevirt-private/vmi-disks";

/// A pod that can be the source or the target of a migration: libvirt with its daemon, and disks that other nodes have.
///
/// Both pods of a migration see the same paths, so they are containers.
pub fn migratable_pod(pod_name: &str) -> Pod {
    let mut pod = Pod::new();
    assert!(pod.is_container(), "pods that migrate are containers");
    pod.set_env("POD_NAME", pod_name);
    pod.set_env("SHARED_FILESYSTEM_PATHS", SHARED);
    pod.handler.serve();
    pod
}

/// A pod in which the guest is up, ready to leave. More arguments are for the launcher.
pub async fn source_pod(vmi: &Vmi, more: &[&str]) -> (Pod, Guest) {
    let mut pod = migratable_pod("source");
    drop(vmi.clone().with_image(&pod));
    pod.launch(vmi, more);
    pod.wait_until_ready().await;
    let guest = pod.boot(vmi).await;
    (pod, guest)
}

/// A pod with a launcher that waits for the VM of another pod, whose disk it has.
pub async fn target_pod(source: &Pod, vmi: &Vmi, pod_name: &str, more: &[&str]) -> Pod {
    let mut pod = migratable_pod(pod_name);
    share_image(source, &pod);
    pod.launch(vmi, more);
    pod.wait_until_ready().await;
    pod
}

/// Gives the second pod the disk of the first one.
pub fn share_image(from: &Pod, to: &Pod) {
    std::fs::hard_link(from.path(IMAGE), to.path(IMAGE)).unwrap();
}

impl Vmi {
    /// The VMI as both virt-handlers see it when it is to migrate to the pod of this name.
    pub fn migrating_to(self, pod_name: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(1);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let state = json!({
            "migrationUid": format!("0d1f6f6e-3c55-4b8e-9b0e-6e2a6e{number:06x}"),
            "sourcePod": "source", "sourceNode": "node01", "targetPod": pod_name, "targetNode": "node02",
        });
        self.set("/status/phase", json!("Running"))
            .set("/status/migrationMethod", json!("LiveMigration"))
            .set("/status/migrationTransport", json!("Unix"))
            .set("/status/migrationState", state)
    }

    /// The UID of the migration.
    pub fn migration_uid(&self) -> &str {
        self.value()["status"]["migrationState"]["migrationUid"]
            .as_str()
            .unwrap()
    }
}

/// The calls that only a migration needs.
impl Pod {
    /// Prepares the pod for the arrival of the VM.
    pub async fn sync_target(&self, vmi: &Vmi) -> Response {
        let options = VirtualMachineOptions {
            interface_domain_attachment: vmi.interface_attachments(),
            ..VirtualMachineOptions::default()
        };
        let request = VmiRequest {
            options: Some(options),
            ..self.request(vmi.value())
        };
        let answer = self.cmd().sync_migration_target(request).await;
        answer.unwrap().into_inner()
    }

    /// The same; it must succeed.
    pub async fn sync_target_ok(&self, vmi: &Vmi) {
        let answer = self.sync_target(vmi).await;
        let message = &answer.message;
        assert!(answer.success, "target: {message}\n{}", self.log_tail());
    }

    /// Does what virt-handler does when the migration is over; the links of these interfaces are refreshed.
    pub async fn finalize(&self, vmi: &Vmi, links: &[&str]) {
        let refresh = |name: &&str| {
            let method = "link-refresh".to_owned();
            ((*name).to_owned(), InterfaceBindingMigration { method })
        };
        let options = VirtualMachineOptions {
            interface_migration: links.iter().map(refresh).collect(),
            ..VirtualMachineOptions::default()
        };
        let request = VmiRequest {
            options: Some(options),
            ..self.request(vmi.value())
        };
        let answer = self.cmd().finalize_virtual_machine_migration(request).await;
        let answer = answer.unwrap().into_inner();
        let message = &answer.message;
        assert!(answer.success, "finalize: {message}\n{}", self.log_tail());
    }

    /// The migration of this VMI has failed; the target that the VMI names is to end.
    pub async fn signal_cleanup(&self, vmi: &Vmi) {
        let request = self.request(vmi.value());
        let answer = self.cmd().signal_target_pod_cleanup(request).await;
        let answer = answer.unwrap().into_inner();
        assert!(answer.success, "cleanup: {}", answer.message);
    }

    /// Waits for what the target's virt-handler waits for: the migration's end, with a guest that runs or that its user
    /// has paused.
    pub async fn arrival(&mut self) -> Event {
        let has_arrived = |event: &Event| {
            let state = (event.status(), event.reason());
            let is_active = state.0 == "Running" || state == ("Paused", "User");
            is_active && !migration(&event.domain)["EndTimestamp"].is_null()
        };
        self.handler.event("of the arrival", has_arrived).await
    }

    /// Waits until the VM has left by migration.
    pub async fn departure(&mut self) -> Event {
        let has_left = |event: &Event| (event.status(), event.reason()) == ("Shutoff", "Migrated");
        self.handler.event("of the departure", has_left).await
    }

    /// Migrates the VM by libvirt's own client, without the launcher: to the target that the proxies lead to.
    pub async fn virsh_migrate(&self, vmi: &Vmi, more: &[&str]) -> std::process::Output {
        let uid = vmi.uid();
        let socket = format!("{SOCKET_DIR}/{uid}-source.sock");
        let name = format!("default_{}", vmi.name());
        let (uri, target) = (
            "qemu+unix:///session?socket=/var/run/libvirt/virtqemud-sock",
            format!("qemu+unix:///session?socket={socket}"),
        );
        let memory = format!("unix://{SOCKET_DIR}/{uid}-49152-source.sock");
        let disks = format!("unix://{SOCKET_DIR}/{uid}-49153-source.sock");
        let mut arguments = vec![
            "virsh",
            "-c",
            uri,
            "migrate",
            "--live",
            "--p2p",
            "--persistent",
        ];
        arguments.extend([&name, &target, "--migrateuri", &memory]);
        if more.contains(&"--copy-storage-all") {
            arguments.extend(["--disks-uri", &disks]);
        }
        arguments.extend(more);
        let mut command = self.exec_command(&arguments);
        let run = tokio::task::spawn_blocking(move || command.output());
        run.await.unwrap().unwrap()
    }
}

/// The metadata of the migration in a domain document.
pub fn migration(domain: &Value) -> &Value {
    &domain["Spec"]["Metadata"]["KubeVirt"]["Migration"]
}

/// The sockets by which the source reaches the target, as the proxies of the two virt-handlers make them. They work on a
/// thread of their own until they are dropped.
pub struct MigrationProxies {
    cut: watch::Sender<bool>,
    copied: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl MigrationProxies {
    /// Makes the source's sockets and leads them to the target's.
    pub fn new(source: &Pod, target: &Pod, vmi: &Vmi) -> Self {
        let uid = vmi.uid();
        let of_qemu = |port| format!("{SOCKET_DIR}/{uid}-{port}-source.sock");
        let pairs = [
            (
                source.path(&format!("{SOCKET_DIR}/{uid}-source.sock")),
                target.path("/var/run/libvirt/virtqemud-sock"),
            ),
            (source.path(&of_qemu(49152)), target.path(&of_qemu(49152))),
            (source.path(&of_qemu(49153)), target.path(&of_qemu(49153))),
        ];
        give_to_qemu(&source.path(SOCKET_DIR));
        let (cut, cut_off) = watch::channel(false);
        let copied = Arc::<AtomicU64>::default();
        let counter = copied.clone();
        let (bound, is_bound) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            run(async move {
                for (listen, connect) in pairs {
                    let _ = std::fs::remove_file(&listen);
                    let listener = UnixListener::bind(&listen).unwrap();
                    give_to_qemu(&listen);
                    tokio::spawn(forward(listener, connect, counter.clone()));
                }
                bound.send(()).unwrap();
                let mut cut_off = cut_off;
                // Ends too when the sender is dropped. With the runtime go all connections.
                let _ = cut_off.wait_for(|cut| *cut).await;
            });
        });
        is_bound.recv().unwrap();
        Self {
            cut,
            copied,
            thread: Some(thread),
        }
    }

    /// Closes all connections and lets no more through: the network is gone.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// How many bytes have gone through so far, both ways.
    pub fn copied(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }
}

impl Drop for MigrationProxies {
    fn drop(&mut self) {
        self.cut();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn forward(listener: UnixListener, to: PathBuf, copied: Arc<AtomicU64>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(connect(stream, to.clone(), copied.clone()));
    }
}

async fn connect(near: UnixStream, to: PathBuf, copied: Arc<AtomicU64>) {
    let Ok(far) = open(&to).await else { return };
    let (mut near_in, mut near_out) = near.into_split();
    let (mut far_in, mut far_out) = far.into_split();
    tokio::join!(
        copy(&mut near_in, &mut far_out, &copied),
        copy(&mut far_in, &mut near_out, &copied)
    );
}

async fn open(path: &Path) -> std::io::Result<UnixStream> {
    os::grpc::connect_stream(path).await
}

/// Copies until one side ends, and then ends the other.
async fn copy(
    from: &mut (impl tokio::io::AsyncRead + Unpin),
    to: &mut (impl tokio::io::AsyncWrite + Unpin),
    copied: &AtomicU64,
) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
        copied.fetch_add(length as u64, Ordering::Relaxed);
    }
    let _ = to.shutdown().await;
}
