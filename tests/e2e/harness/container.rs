//! The container of a pod: the launcher as the kubelet and a container runtime start it, in the
//! image's tree.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::{Cgroup, TEST_TIMEOUT, Vmi, run};

const HOME: &str = env!("CARGO_MANIFEST_DIR");

/// The user of the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// 107, as in a pod of KubeVirt's default.
    Qemu,
    /// Root, where the VMI is not to run without its rights.
    Root,
}

thread_local! {
    static USER: Cell<Option<User>> = const { Cell::new(None) };
    static REFERENCE: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
    static IS_NEWER: Cell<bool> = const { Cell::new(false) };
    /// `tests/image/enter` has the names.
    static LAYOUT: Cell<&'static str> = const { Cell::new("") };
}

/// Makes this test's next containers run another launcher: the programs in a directory, in place of
/// those of their names.
pub fn set_reference(programs: Option<PathBuf>) {
    REFERENCE.set(programs);
}

/// Lets virt-controller of v1.10 make this test's pods.
pub fn made_by_v1_10() {
    IS_NEWER.set(true);
}

/// The directories that lie over the image's tree, the first one on top.
fn layers(image: &Image) -> String {
    // Once: other pods may run these programs.
    static LAYER: OnceLock<PathBuf> = OnceLock::new();
    let ours = image.programs.display().to_string();
    let Some(reference) = REFERENCE.with_borrow(Clone::clone) else {
        return ours;
    };
    let layer = LAYER.get_or_init(|| reference_layer(&reference));
    format!("{}:{ours}", layer.display())
}

fn reference_layer(programs: &Path) -> PathBuf {
    let layer = Path::new(HOME).join("target/image-reference");
    let bin = layer.join("usr/bin");
    std::fs::create_dir_all(&bin).unwrap();
    for program in std::fs::read_dir(programs).unwrap().flatten() {
        std::fs::copy(program.path(), bin.join(program.file_name())).unwrap();
    }
    let_bind_low_ports(&bin.join("virt-launcher-monitor")).unwrap();
    layer
}

/// Runs a test in the container of a pod that is not root. Where none can be made, its pods are
/// directories, with libvirt's embedded driver; in CI as root that is a failure.
pub fn in_pod(test: impl Future<Output = ()>) {
    match image() {
        Ok(_) => in_container(User::Qemu, test),
        Err(missing) => {
            say_missing(missing, "its pods are directories");
            run(test);
        }
    }
}

/// Runs a test that needs containers; where none can be made, that is said. In CI as root that is a
/// failure.
pub fn in_container(user: User, test: impl Future<Output = ()>) {
    with_containers(user, || run(test));
}

/// The same for user 107, in a container whose programs and files are where KubeVirt's own image
/// has them.
pub fn in_kubevirts_layout(test: impl Future<Output = ()>) {
    LAYOUT.set("kubevirt");
    in_container(User::Qemu, test);
}

/// The same for measurements, which run more than once.
pub fn with_containers(user: User, test: impl FnOnce()) {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            USER.set(None);
            LAYOUT.set("");
            IS_NEWER.set(false);
        }
    }

    if let Err(missing) = image() {
        return skip_container(missing);
    }
    let _reset = Reset;
    USER.set(Some(user));
    test();
}

/// Says why a test in a container does not run here. In CI as root that is a failure.
pub fn skip_container(missing: &str) {
    say_missing(missing, "skipped");
}

fn say_missing(missing: &str, consequence: &str) {
    let required = std::env::var("CI").is_ok_and(|ci| ci == "true") && is_root();
    assert!(!required, "no container can be made here: {missing}");
    println!("{consequence}: no container can be made here: {missing}");
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The image's tree, and a directory with our programs to lie over it.
struct Image {
    tree: PathBuf,
    programs: PathBuf,
}

/// Made once, or what is missing for that.
fn image() -> Result<&'static Image, &'static String> {
    static IMAGE: OnceLock<Result<Image, String>> = OnceLock::new();
    IMAGE
        .get_or_init(|| {
            if !is_root() {
                return Err("that needs root".to_owned());
            }
            let target = Path::new(HOME).join("target");
            let image = Image {
                tree: target.join("image-tree"),
                programs: target.join("image-programs"),
            };
            succeeds(Command::new("unshare").args([
                "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "true",
            ]))?;
            succeeds(Command::new("/usr/bin/python3").args(["-c", "import seccomp"]))?;
            let _lock = lock(&target.join("image-tree.lock")).map_err(|error| error.to_string())?;
            succeeds(
                Command::new(Path::new(HOME).join("scripts/image-tree"))
                    .arg(&image.tree)
                    .env("BINARIES", "none"),
            )?;
            // Not into the tree, whose programs are those of a release.
            let built = super::programs();
            succeeds(
                Command::new("make")
                    .args([
                        "--no-print-directory",
                        "-C",
                        HOME,
                        "install",
                        "PREFIX=/usr",
                        "MANUALS=no",
                        "DYNAMIC=yes",
                    ])
                    .arg(format!("DESTDIR={}", image.programs.display()))
                    .arg(format!("BINARIES={}", built.display())),
            )?;
            let_bind_low_ports(&image.programs.join("usr/bin/virt-launcher-monitor"))?;
            Ok(image)
        })
        .as_ref()
}

/// Waits until no other test process makes the same directories.
fn lock(path: &Path) -> std::io::Result<std::fs::File> {
    let file = std::fs::File::create(path)?;
    file.lock()?;
    Ok(file)
}

/// As images have their monitor: the reference does not start without the capability.
fn let_bind_low_ports(monitor: &Path) -> Result<(), String> {
    let capability = "cap_net_bind_service=+ep";
    succeeds(Command::new("setcap").arg(capability).arg(monitor))
}

fn succeeds(command: &mut Command) -> Result<(), String> {
    let sbin = format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    );
    let output = command.env("PATH", sbin).output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    let message = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{command:?}: {}", message.trim()))
    }
}

/// Process 1 of the container, as the machine outside sees it.
struct First {
    pid: u32,
    namespace: PathBuf,
    /// Of the namespace: its number is given to no other one while this is open.
    _held: Option<File>,
    guard: Child,
}

impl First {
    fn new(pid: u32, namespace: PathBuf) -> Self {
        // Its input ends with this process, however that ends.
        let script = r#"trap '' HUP INT TERM; read -r _; [ "$(readlink "/proc/$1/ns/pid")" != "$2" ] || kill -s KILL "$1""#;
        let guard = Command::new("sh")
            .args(["-c", script, "guard", &pid.to_string()])
            .arg(&namespace)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            pid,
            namespace,
            _held: File::open(format!("/proc/{pid}/ns/pid")).ok(),
            guard,
        }
    }
}

impl Drop for First {
    fn drop(&mut self) {
        let _ = self.guard.kill();
        let _ = self.guard.wait();
    }
}

pub struct Container {
    user: User,
    cgroup: Option<Arc<Cgroup>>,
    first: Option<First>,
}

impl Container {
    /// The user of the containers of this test; `None` if its pods are directories.
    pub(super) fn user_of_this_test() -> Option<User> {
        USER.get()
    }

    /// `None` if this test's pods are directories.
    pub(super) fn of_this_test() -> Option<Self> {
        USER.get().map(|user| Self {
            user,
            cgroup: None,
            first: None,
        })
    }

    pub fn user(&self) -> User {
        self.user
    }

    pub(super) fn cgroup(&self) -> Option<Arc<Cgroup>> {
        self.cgroup.clone()
    }

    /// Starts the launcher as virt-controller describes it, with `more` arguments, in the pod's
    /// container.
    pub(super) fn command(
        &mut self,
        pod: &Path,
        vmi: &Vmi,
        environment: &[(&str, String)],
        more: &[&str],
    ) -> Command {
        let image = image().unwrap();
        let mount_point = pod.join("container");
        std::fs::create_dir_all(&mount_point).unwrap();
        if REFERENCE.with_borrow(Option::is_some) {
            // It knows no other name, and Debian's libvirtd has this one.
            let directory = pod.join("var/run/libvirt");
            std::fs::create_dir_all(&directory).unwrap();
            std::os::unix::fs::symlink("libvirt-sock", directory.join("virtqemud-sock")).unwrap();
        }
        self.cgroup = Cgroup::with_limit(memory_limit(vmi)).map(Arc::new);
        let mut command = Command::new(Path::new(HOME).join("tests/image/enter"));
        command
            .env("POD", pod)
            .env("OVER", layers(image))
            .env("LAYOUT", LAYOUT.get())
            .env("HOSTNAME", vmi.name())
            .env("POD_NAME", format!("virt-launcher-{}-x7k2p", vmi.name()))
            .arg(&image.tree)
            .arg(mount_point)
            .arg(match self.user {
                User::Qemu => "launcher",
                User::Root => "launcher-root",
            })
            .args(arguments(self.user, vmi))
            .args(more);
        if let Some(cgroup) = &self.cgroup {
            command.env("CGROUPS", cgroup.path());
        }
        let names: Vec<_> = environment.iter().map(|(name, _)| *name).collect();
        command
            .env("PASS", names.join(" "))
            .envs(environment.iter().cloned());
        if vmi.value()["spec"]["domain"]["devices"]["interfaces"].is_array() {
            command.env("TUN", "yes");
        }
        command
    }

    /// Finds process 1, the child of what [`Self::command`] has started.
    pub(super) fn started(&mut self, parent: u32) {
        let end = Instant::now() + TEST_TIMEOUT;
        let outside = std::fs::read_link("/proc/self/ns/pid").unwrap();
        loop {
            let children =
                std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))
                    .unwrap_or_default();
            if let Some(pid) = children.split_whitespace().next() {
                let namespace = std::fs::read_link(format!("/proc/{pid}/ns/pid"));
                if let Some(namespace) = namespace.ok().filter(|it| *it != outside) {
                    self.first = Some(First::new(pid.parse().unwrap(), namespace));
                    return;
                }
            }
            assert!(Instant::now() < end, "the container has no first process");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Process 1, to which the kubelet sends its signals.
    pub(super) fn first(&self) -> u32 {
        self.first.as_ref().expect("the container has started").pid
    }

    /// The process is in the container.
    pub(super) fn has(&self, pid: &Path) -> bool {
        let namespace = std::fs::read_link(pid.join("ns/pid")).ok();
        namespace.is_some() && namespace == self.first.as_ref().map(|it| it.namespace.clone())
    }

    /// Runs a program as `kubectl exec` does.
    pub(super) fn exec(&self, program: &[&str]) -> Output {
        self.exec_command(program).output().unwrap()
    }

    /// The command that does that.
    pub(super) fn exec_command(&self, program: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.first().to_string()])
            .args(["--mount", "--pid", "--net", "--uts", "--ipc"])
            .args(["--root", "--wd", "/usr/bin/setpriv"])
            .arg("--seccomp-filter=/seccomp");
        if self.user == User::Qemu {
            command.args(["--reuid=107", "--regid=107", "--groups=107"]);
            command.args(["--bounding-set=-all,+net_bind_service", "--no-new-privs"]);
        }
        command.args(program);
        command
    }

    /// Ends process 1, with which goes all that is in its namespace.
    pub(super) fn kill(&self) {
        if let Some(first) = &self.first
            && self.has(Path::new(&format!("/proc/{}", first.pid)))
        {
            let _ = Command::new("kill")
                .args(["-s", "KILL", &first.pid.to_string()])
                .status();
        }
    }
}

/// What the pod of an ordinary VMI has as its memory: what the guest can have, and what KubeVirt
/// adds.
fn memory_limit(vmi: &Vmi) -> u64 {
    const MIB: u64 = 1 << 20;
    let memory = &vmi.value()["spec"]["domain"]["memory"];
    let guest = memory["maxGuest"].as_str().or(memory["guest"].as_str());
    let guest: u64 = guest.unwrap().strip_suffix("Mi").unwrap().parse().unwrap();
    let cores = vmi.value()["spec"]["domain"]["cpu"]["cores"].as_u64();
    // The pod's programs, vCPUs, an I/O thread, video, page tables.
    (guest + 220 + 8 * cores.unwrap_or(1) + 8 + 32) * MIB + guest * MIB / 512
}

/// virt-controller's command line, in its order.
fn arguments(user: User, vmi: &Vmi) -> Vec<String> {
    let grace = &vmi.value()["spec"]["terminationGracePeriodSeconds"];
    let mut arguments = [
        "/usr/bin/virt-launcher-monitor",
        "--qemu-timeout",
        "287s",
        "--name",
        vmi.name(),
        "--uid",
        vmi.uid(),
        "--namespace",
        "default",
        "--kubevirt-share-dir",
        "/var/run/kubevirt",
        "--ephemeral-disk-dir",
        "/var/run/kubevirt-ephemeral-disks",
        "--container-disk-dir",
        "/var/run/kubevirt/container-disks",
        "--grace-period-seconds",
        &(grace.as_u64().unwrap() + 15).to_string(),
        "--hook-sidecars",
        "0",
        "--ovmf-path",
        "/usr/share/edk2/ovmf",
        "--disk-memory-limit",
        "2097152000",
        "--hypervisor",
        "kvm",
    ]
    .map(str::to_owned)
    .to_vec();
    if user == User::Qemu {
        arguments.push("--run-as-nonroot".to_owned());
    }
    if !IS_NEWER.get() {
        arguments.push("--libvirt-hook-server-and-client".to_owned());
    }
    arguments.extend(
        [
            "--image-volume",
            "--upgrade-ordinal-ifaces",
            "--allow-emulation",
        ]
        .map(str::to_owned),
    );
    arguments
}
