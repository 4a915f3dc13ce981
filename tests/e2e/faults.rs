//! Launcher, daemon and QEMU are killed at each step of a hotplug and of an unplug. The next sync,
//! or the next start, puts things right: the wanted disk is there once and under its name, and
//! nothing else is. A panic ends neither of them.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use serde_json::json;
use tokio::task::JoinHandle;

use api::proto::cmd::v1::EmptyRequest;

use crate::harness::{Event, Guest, Pod, Vmi, in_pod, signal};

/// The points of src/launcher at which the launcher can be held.
pub const PLUG: [&str; 3] = ["sync.planned", "plug.prepared", "plug.attached"];
pub const UNPLUG: [&str; 3] = ["sync.planned", "unplug.prepared", "unplug.asked"];

/// Where the launcher looks for a point that it has reached: in a volume, which a container shares
/// with the test.
const FAULTS: &str = "/var/run/kubevirt-private/faults";

/// A launcher that can be held.
pub async fn launch(pod: &mut Pod, vmi: &Vmi, libvirt: &str) {
    pod.path(&format!("{FAULTS}/x"));
    let directory = pod.own_path(FAULTS);
    pod.set_env("VIRT_LAUNCHER_FAILPOINTS", directory.display().to_string());
    let more: &[&str] = if pod.is_container() { &[] } else { &[libvirt] };
    pod.launch(vmi, more);
    pod.wait_until_ready().await;
}

/// A launcher that waits at a point until this is dropped, and the call that brought it there.
pub struct Held {
    fifo: PathBuf,
    writer: std::fs::File,
    call: JoinHandle<()>,
}

impl Held {
    pub async fn at(pod: &mut Pod, point: &str, vmi: &Vmi) -> Self {
        let (mut cmd, request) = (pod.cmd(), pod.request(vmi.value()));
        // The answer does not matter: it may be an error, or never come.
        let sync = async move { drop(cmd.sync_virtual_machine(request).await) };
        Self::during(pod, point, sync).await
    }

    /// The same by another call.
    pub async fn during(
        pod: &mut Pod,
        point: &str,
        call: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let fifo = make_point(pod, point);
        Self::reached(pod, point, fifo, tokio::spawn(call)).await
    }

    /// A launcher that has been at the point, or will be, since [`make_point`].
    pub async fn reached(pod: &mut Pod, point: &str, fifo: PathBuf, call: JoinHandle<()>) -> Self {
        let mut writer = None;
        let open = || {
            OpenOptions::new()
                .write(true)
                .custom_flags(OFlags::NONBLOCK.bits() as i32)
                .open(&fifo)
                .ok()
        };
        pod.until(point, || {
            writer = open();
            writer.is_some()
        })
        .await;
        Self {
            writer: writer.unwrap(),
            fifo,
            call,
        }
    }

    /// Lets it go on, and waits for the answer.
    pub async fn release(self) {
        self.go_on().await.unwrap();
    }

    /// Lets it go on; the sync, whose answer is to come.
    pub fn go_on(self) -> JoinHandle<()> {
        std::fs::remove_file(self.fifo).unwrap();
        drop(self.writer);
        self.call
    }
}

/// Holds the launcher where it reaches this point.
pub fn make_point(pod: &Pod, point: &str) -> PathBuf {
    let fifo = pod.path(&format!("{FAULTS}/{point}"));
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    std::fs::set_permissions(&fifo, Permissions::from_mode(0o666)).unwrap();
    fifo
}

pub fn kill(pids: &[u32]) {
    assert!(!pids.is_empty());
    signal("KILL", pids);
}

async fn kill_launcher(pod: &mut Pod, vmi: &Vmi, held: Held) {
    pod.kill_launcher().await;
    held.release().await;
    launch(pod, vmi, "--libvirt=embed").await;
}

pub async fn kill_daemon(pod: &mut Pod, held: Held) {
    let is_back = |pod: &Pod| {
        pod.log()
            .iter()
            .filter(|line| line.contains("Reconnected to libvirt"))
            .count()
    };
    let before = is_back(pod);
    kill(&pod.libvirt_daemons());
    held.release().await;
    pod.log_count("Reconnected to libvirt", before + 1).await;
}

/// Both sides have the disk once, under its name.
pub async fn is_plugged(pod: &Pod, guest: &mut Guest) {
    assert_eq!(targets(pod).await, ["vda", "sda"]);
    let disks = guest
        .run_until("disks", |disks| disks.contains("DATA"))
        .await;
    assert_eq!(disks.matches("DATA").count(), 1, "{disks}");
}

pub async fn is_unplugged(pod: &mut Pod, vmi: &Vmi, guest: &mut Guest) {
    guest
        .run_until("disks", |disks| !disks.contains("DATA"))
        .await;
    pod.handler
        .event("without the disk", |event| {
            !event.domain["Spec"].is_null() && !event.domain.to_string().contains("DATA")
        })
        .await;
    pod.sync_ok(vmi).await;
    assert_eq!(targets(pod).await, ["vda"]);
}

pub async fn targets(pod: &Pod) -> Vec<String> {
    let domain = pod.domain().await;
    let disks = domain["Spec"]["Devices"]["Disks"].as_array().unwrap();
    disks
        .iter()
        .map(|disk| disk["Target"]["Device"].as_str().unwrap().to_owned())
        .collect()
}

/// The same guest for all steps. `strike` kills a process and starts it again.
async fn survives(name: &str, libvirt: &str, mut strike: impl AsyncFnMut(&mut Pod, &Vmi, Held)) {
    let mut pod = Pod::new();
    let vmi = Vmi::new(name).with_image(&pod);
    let with = vmi.clone().hotplugged("data", "DATA", "scsi");
    pod.hotplug_image("data", 1 << 20);
    pod.handler.serve();
    launch(&mut pod, &vmi, libvirt).await;
    let mut guest = pod.boot(&vmi).await;
    let qemu = pod.guests();
    for point in PLUG {
        println!("plug: {point}");
        let held = Held::at(&mut pod, point, &with).await;
        strike(&mut pod, &vmi, held).await;
        pod.sync_ok(&with).await;
        is_plugged(&pod, &mut guest).await;
        pod.handler.forget();
        pod.sync_ok(&vmi).await;
        is_unplugged(&mut pod, &vmi, &mut guest).await;
    }
    for point in UNPLUG {
        println!("unplug: {point}");
        pod.sync_ok(&with).await;
        is_plugged(&pod, &mut guest).await;
        let held = Held::at(&mut pod, point, &vmi).await;
        pod.handler.forget();
        strike(&mut pod, &vmi, held).await;
        pod.sync_ok(&vmi).await;
        is_unplugged(&mut pod, &vmi, &mut guest).await;
    }
    assert_eq!(pod.guests(), qemu, "the same QEMU all along");
}

#[tokio::test]
async fn the_launcher_is_killed_at_each_step() {
    survives("cutlaunch", "--libvirt=embed", kill_launcher).await;
}

#[test]
fn the_daemon_is_killed_at_each_step() {
    in_pod(survives(
        "cutdaemon",
        "--libvirt=auto",
        async |pod: &mut Pod, _: &Vmi, held| kill_daemon(pod, held).await,
    ));
}

#[test]
fn qemu_is_killed_at_each_step_and_the_next_start_has_what_is_wanted() {
    in_pod(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("cutqemu").with_counter(&pod);
        let with = vmi.clone().hotplugged("data", "DATA", "scsi");
        pod.hotplug_image("data", 1 << 20);
        pod.handler.serve();
        let plugs = PLUG.map(|point| (point, &vmi, &with));
        let unplugs = UNPLUG.map(|point| (point, &with, &vmi));
        for (point, before, after) in plugs.into_iter().chain(unplugs) {
            println!("{point}");
            launch(&mut pod, &vmi, "--libvirt=embed").await;
            pod.sync_ok(&before.clone().set("/status/phase", json!("Scheduled")))
                .await;
            let wanted: &[&str] = if before.value().to_string().contains("DATA") {
                &["vda", "sda"]
            } else {
                &["vda"]
            };
            assert_eq!(
                targets(&pod).await,
                wanted,
                "nothing is left of the start before"
            );
            let held = Held::at(&mut pod, point, after).await;
            kill(&pod.guests());
            held.release().await;
            let off = pod.handler.status("Shutoff").await;
            assert_eq!(off.reason(), "Crashed");
            pod.delete(&vmi).await;
            pod.handler.event("final", Event::is_final).await;
            assert_eq!(pod.exit_code().await, 0);
        }
    });
}

/// A panic ends the sync, the call or the report in which it happens, and nothing else.
#[test]
// D-sup-13 (docs/differences.md).
fn a_panic_ends_one_sync_one_call_and_one_report() {
    in_pod(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("panic").with_counter(&pod);
        pod.handler.serve();
        launch(&mut pod, &vmi, "--libvirt=embed").await;

        let here = Panic::at(&pod, "sync.begun");
        let answer = pod.sync(&vmi).await;
        assert_eq!(
            (answer.success, answer.message.as_str()),
            (false, "internal error in the sync, see the launcher's log")
        );
        drop(here);
        pod.log_has("a test wants a panic at sync.begun").await;
        pod.sync_ok(&vmi).await;
        pod.handler.status("Running").await;

        let here = Panic::at(&pod, "call.begun");
        let refused = pod.cmd().get_domain(EmptyRequest {}).await.unwrap_err();
        println!("{refused:?}");
        drop(here);
        assert_eq!(pod.domain().await["Status"]["Status"], "Running");

        let here = Panic::at(&pod, "report.begun");
        pod.pause(&vmi).await;
        pod.log_has("a test wants a panic at report.begun").await;
        drop(here);
        pod.handler.status("Paused").await;
    });
}

/// A point at which the launcher panics until this is dropped.
struct Panic(PathBuf);

impl Panic {
    fn at(pod: &Pod, point: &str) -> Self {
        let file = pod.path(&format!("{FAULTS}/{point}"));
        std::fs::write(&file, "panic").unwrap();
        Self(file)
    }
}

impl Drop for Panic {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}
