//! `launcherctl run` beyond a start and an end: sidecars, long directories, and a guest that does
//! not run.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::harness::{Guest, TEST_TIMEOUT, UP, Vmi};
use crate::launcherctl::{Laptop, Running, done, end_of, launcherctl, signal};

/// A VM with a directory and a registry of its own.
struct LocalVm {
    laptop: Laptop,
    home: PathBuf,
    uid: String,
}

impl LocalVm {
    fn new(vmi: Vmi) -> Self {
        let uid = vmi.uid().to_owned();
        Self::on(Laptop::of(vmi), uid)
    }

    fn with_linux(vmi: Vmi) -> Self {
        let uid = vmi.uid().to_owned();
        Self::on(Laptop::of(vmi).with_linux(), uid)
    }

    fn on(laptop: Laptop, uid: String) -> Self {
        let home = laptop.path("");
        Self { laptop, home, uid }
    }

    /// A directory whose path is longer than sockets allow.
    fn root(&self) -> PathBuf {
        self.home.join("a-directory-".repeat(8))
    }

    fn launcherctl(&self, arguments: &[&str]) -> Command {
        let mut command = launcherctl(&self.home);
        command.args(arguments);
        command
    }

    fn run_command(&self, more: &[&str]) -> Command {
        let disk = self.laptop.root_disk();
        let mut command = self.launcherctl(&["run", "--disk", &disk, "--root"]);
        command.arg(self.root()).args(more);
        command.arg(self.home.join("vmi.json"));
        command
    }

    fn run(&self, more: &[&str]) -> Child {
        self.run_command(more)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    async fn done(&self, arguments: &[&str]) -> String {
        done(&self.home, arguments).await
    }

    /// The guest's console, by a short path to the long directory.
    async fn guest(&self) -> Guest {
        let link = self.home.join("l");
        let _ = std::os::unix::fs::symlink(self.root(), &link);
        let private = "var/run/kubevirt-private";
        Guest::connect(&link.join(format!("{private}/{}/virt-serial0", self.uid))).await
    }
}

fn example(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples/sidecars")
        .join(path);
    path.display().to_string()
}

#[tokio::test]
async fn a_start_of_which_the_launcher_says_that_it_goes_on_is_waited_for() {
    let vm = LocalVm::new(Vmi::new("slow"));
    // Longer than the launcher lets a sync wait.
    let script = "#!/bin/sh\ncase \"$*\" in *guest=*) sleep 21 ;; esac\n\
                  exec /usr/bin/qemu-system-x86_64 \"$@\"\n";
    let bin = vm.home.join("bin");
    std::fs::create_dir(&bin).unwrap();
    write_program(&bin.join("qemu-system-x86_64"), script);
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut command = vm.run_command(&["--emulate"]);
    command.env("PATH", path).stdout(Stdio::null());
    let mut running = Running(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut stderr = BufReader::new(running.0.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("domain is running") {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "{said}");
    }
    vm.done(&["stop", "--force"]).await;
}

fn write_program(file: &Path, text: &str) {
    std::fs::write(file, text).unwrap();
    std::fs::set_permissions(file, PermissionsExt::from_mode(0o700)).unwrap();
}

#[tokio::test]
async fn what_is_below_a_root_is_for_its_user_only() {
    let vm = LocalVm::new(Vmi::new("private"));
    // As an earlier run with another umask has left it.
    std::fs::create_dir_all(vm.root().join("var")).unwrap();
    std::fs::write(vm.root().join("launcher.log"), "").unwrap();
    for name in ["", "var", "launcher.log"] {
        let mode = PermissionsExt::from_mode(0o775);
        std::fs::set_permissions(vm.root().join(name), mode).unwrap();
    }
    let command = vm.run_command(&["--emulate"]);
    let words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "umask 0002; exec \"$@\"", "sh"])
        .arg(command.get_program())
        .args(words)
        .env("XDG_RUNTIME_DIR", &vm.home);
    shell.stderr(Stdio::null()).stdout(Stdio::null());
    let _running = Running(shell.spawn().unwrap());
    vm.guest().await.until(UP).await;
    let open: Vec<_> = std::fs::read_dir(vm.root())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.metadata().unwrap().permissions().mode() & 0o077 != 0)
        .map(|entry| entry.file_name())
        .collect();
    assert!(open.is_empty(), "others may use {open:?}");
    let sockets = [
        "control.sock",
        "console.sock",
        "vmi.json",
        "launcher.log",
        "var",
    ];
    assert!(sockets.iter().all(|name| vm.root().join(name).exists()));
    vm.done(&["stop", "--force"]).await;
}

#[tokio::test]
async fn a_sidecar_changes_the_domain_of_run() {
    let image = r#"[{"args": ["--version", "v1alpha3"], "image": "example/smbios"}]"#;
    let vm = LocalVm::new(
        Vmi::new("sided")
            .set(
                "/metadata/annotations",
                json!({
                    "hooks.kubevirt.io/hookSidecars": image,
                    "smbios.vm.kubevirt.io/baseBoardManufacturer": "R. Edward",
                }),
            )
            .set("/metadata/labels", json!({"logVerbosity": "4"})),
    );
    let mut refused = vm.run(&["--emulate"]);
    let mut said = String::new();
    let mut stderr = refused.stderr.take().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    assert!(!refused.wait().unwrap().success());
    assert!(
        said.contains("1 hook sidecar (example/smbios)") && said.contains("--sidecar"),
        "{said}"
    );
    assert!(
        !vm.root().join("launcher.log").exists(),
        "nothing is started"
    );

    let sidecar = example("smbios-shell");
    let _running = Running(vm.run(&["--emulate", "--sidecar", &sidecar]));
    vm.guest().await.until(UP).await;
    let log = std::fs::read_to_string(vm.root().join("launcher.log")).unwrap();
    assert!(log.contains("Context of the conversion"), "{log}");
    let domain: Value =
        serde_json::from_str(&vm.done(&["launcher", "domain", "-o", "json"]).await).unwrap();
    let sysinfo = domain["Spec"]["SysInfo"].to_string();
    assert!(sysinfo.contains("R. Edward"), "{sysinfo}");
    let hooks = vm.done(&["launcher", "hooks"]).await;
    assert!(
        hooks.contains("onDefineDomain") || hooks.contains("OnDefineDomain"),
        "{hooks}"
    );
    // Also by the directory's own path, which is too long for the address of a socket.
    let root = vm.root().display().to_string();
    assert_eq!(vm.done(&["launcher", "ping", "--root", &root]).await, "ok");
}

#[tokio::test]
async fn a_guest_that_is_paused_is_explained() {
    let vm = LocalVm::new(Vmi::new("stopped"));
    let _running = Running(vm.run(&["--emulate"]));
    vm.guest().await.until(UP).await;
    vm.done(&["pause"]).await;
    let status = vm.done(&["status"]).await;
    assert!(status.contains("is paused"), "{status}");
    assert!(status.contains("launcherctl unpause"), "{status}");
    vm.done(&["unpause"]).await;
}

#[tokio::test]
async fn a_stop_before_the_expected_text_is_a_failure_and_secrets_go() {
    let vm = LocalVm::with_linux(Vmi::new("early"));
    let mut child = vm.run(&["--emulate", "--until", "never printed"]);
    vm.guest().await.until(UP).await;
    let secrets = vm.root().join("var/run/kubevirt-private/secret/s");
    std::fs::create_dir_all(&secrets).unwrap();
    signal(child.id(), "INT");
    let mut said = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    while !said.contains("Ctrl-C once more forces it off") {
        assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "{said}");
    }
    // Another terminal that waits for the end has not failed.
    let stop = vm.launcherctl(&["stop"]).output().unwrap();
    let other = String::from_utf8_lossy(&stop.stderr);
    assert!(!other.contains("--until"), "{other}");
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    assert!(
        said.contains("before the text of --until appeared"),
        "{said}"
    );
    let vmi = vm.root().join("vmi.json");
    assert!(vm.root().exists() && !secrets.exists() && !vmi.exists());
}

/// Its disk has nothing to boot from.
#[tokio::test]
async fn a_console_that_stays_empty_and_a_timeout_are_explained() {
    let vm = LocalVm::new(Vmi::new("blank"));
    let image = std::fs::File::create(vm.home.join("guest.img")).unwrap();
    image.set_len(1 << 20).unwrap();
    let child = vm.run(&["--emulate", "--until", "login:", "--timeout", "25"]);
    vm.guest().await;
    let nothing_to_boot = "disk rootdisk has no boot sector; ";
    let said = async {
        while !vm.done(&["status"]).await.contains(nothing_to_boot) {
            sleep(Duration::from_millis(200)).await;
        }
    };
    timeout(TEST_TIMEOUT, said).await.unwrap();
    let output = end_of(child).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    for part in [
        "there is no bootable disk (since ",
        "disk rootdisk has no boot sector; run it with an image of an operating system (--disk)",
        "\"login:\" has not appeared within 25 s; the guest is asked to shut down, and forced off after 5 s",
        "\"login:\" has not appeared on the console after 25 s: there is no bootable disk (since ",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// Where KVM is missing, is forbidden, or fails, emulation takes its place.
#[tokio::test]
async fn a_guest_boots_with_or_without_kvm() {
    let vm = LocalVm::with_linux(
        // A model that KVM may lack is another error.
        Vmi::new("anywhere").set("/spec/domain/cpu/model", json!("host-model")),
    );
    let child = vm.run(&["--until", UP, "--timeout", "200"]);
    let output = end_of(child).await;
    let said = String::from_utf8_lossy(&output.stderr);
    // In a virtual machine KVM may also stop a running guest, or let it hang before it prints
    // anything. Neither is the launcher's fault.
    let signs = [
        "QEMU has stopped it with an internal error",
        "the serial console stays blank",
    ];
    let has_kvm = Path::new("/dev/kvm").exists() && !said.contains("starting again without it");
    let has_kvm_failed = has_kvm && signs.iter().any(|sign| said.contains(sign));
    assert!(output.status.success() || has_kvm_failed, "{said}");
    println!("{said}");
}
