//! The example sidecars and the shim, as processes, called as the launcher calls them.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::executable::write_script;
use crate::support::{Pod, built_example, example, is_missing, search_path};
use hooks::{HookPoint, RequestId, Sidecars};
use os::logging::chain;
use prost::bytes::Bytes;
use serde_json::json;
use tokio::time::Instant;

const DOMAIN: &str = r#"<domain type="kvm"><name>ns_vm</name>
  <os><type>hvm</type><boot dev="hd"/></os>
  <sysinfo type="smbios"><system><entry name="manufacturer">KubeVirt</entry></system><baseBoard/></sysinfo>
  <devices>
    <disk><target dev="vda"/><alias name="ua-root"/><boot order="1"/></disk>
    <interface><mac address="de:ad:00:00:00:01"/><alias name="ua-default"/><boot order="2"/></interface>
  </devices>
</domain>"#;

/// With the namespaces that the launcher's documents have.
const KUBEVIRT: &str = r#"<domain type="kvm" xmlns:qemu="http://libvirt.org/schemas/domain/qemu/1.0"><name>ns_vm</name>
  <metadata><kubevirt xmlns="http://kubevirt.io"><uid>u</uid></kubevirt></metadata><os><type>hvm</type></os><devices></devices>
</domain>"#;

fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn vmi(annotations: &[(&str, &str)]) -> Bytes {
    let annotations: serde_json::Map<_, _> = annotations
        .iter()
        .map(|(name, value)| (name.to_string(), json!(value)))
        .collect();
    Bytes::from(
        json!({"metadata": {"name": "vm", "namespace": "ns", "annotations": annotations}})
            .to_string(),
    )
}

/// A sidecar's process; it is killed when the test is over.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Self {
        Self(command.stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Its exit status and what it logged.
    fn end(mut self) -> (ExitStatus, String) {
        let status = self.0.wait().unwrap();
        let mut log = String::new();
        self.0
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut log)
            .unwrap();
        (status, log)
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn directory(pod: &Pod) -> PathBuf {
    let dir = pod.dir().join("hook-sidecar-0");
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// The shim, with `programs` the only thing before the system's in `$PATH`.
fn shim(pod: &Pod, version: &str, programs: &Path) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pod-tools"));
    command
        .args(["sidecar-shim", "--version", version, "--socket-dir"])
        .arg(directory(pod))
        .env("PATH", search_path(programs));
    Process::start(&mut command)
}

/// A directory with scripts of these names.
fn scripts(scripts: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in scripts {
        write_script(&dir.path().join(name), text);
    }
    dir
}

async fn collect(pod: &Pod) -> Sidecars {
    Sidecars::collect(pod.dir(), 1, later()).await.unwrap()
}

/// What became of the domain; the hook is called twice, to see that it is idempotent.
async fn defined_twice(sidecars: &Sidecars, domain: &str, vmi: &Bytes) -> String {
    let once = sidecars
        .on_define_domain(domain.to_owned(), vmi, RequestId::unique(), later())
        .await
        .unwrap()
        .xml;
    let twice = sidecars
        .on_define_domain(once.clone(), vmi, RequestId::unique(), later())
        .await
        .unwrap()
        .xml;
    let last = sidecars.report().sidecars[0]
        .points
        .iter()
        .find(|p| p.point == HookPoint::OnDefineDomain)
        .unwrap()
        .last
        .clone()
        .unwrap();
    assert_eq!(last.changes.list, [], "not idempotent: {twice}");
    twice.replace(['\n', '\t'], "")
}

#[tokio::test]
async fn the_shell_sidecar_sets_the_base_board() {
    let pod = Pod::new();
    let process = shim(&pod, "v1alpha3", &example("smbios-shell"));
    let sidecars = collect(&pod).await;
    let annotation = "smbios.vm.kubevirt.io/baseBoardManufacturer";
    let xml = defined_twice(&sidecars, DOMAIN, &vmi(&[(annotation, "R & D <\\>|")])).await;
    // A backslash is an escape in JSON that the script does not read: then it changes nothing.
    assert!(xml.contains("<baseBoard></baseBoard>"), "{xml}");
    let xml = defined_twice(&sidecars, DOMAIN, &vmi(&[(annotation, "R & D <|>")])).await;
    assert!(
        xml.contains(
            r#"<baseBoard><entry name="manufacturer">R &amp; D &lt;|&gt;</entry></baseBoard>"#
        ),
        "{xml}"
    );
    assert!(
        xml.contains(r#"<smbios mode="sysinfo"></smbios></os>"#),
        "{xml}"
    );
    assert!(
        xml.contains(r#"<entry name="manufacturer">KubeVirt</entry>"#),
        "{xml}"
    );
    // Where there is no sysinfo it makes one, and another value takes the place of the first.
    let bare = "<domain><name>ns_vm</name><os><type>hvm</type></os></domain>";
    let xml = defined_twice(&sidecars, bare, &vmi(&[(annotation, "first")])).await;
    let xml = defined_twice(&sidecars, &xml, &vmi(&[(annotation, "second")])).await;
    assert!(xml.contains(r#"<sysinfo type="smbios"><baseBoard><entry name="manufacturer">second</entry></baseBoard></sysinfo>"#), "{xml}");
    assert!(!xml.contains("first"), "{xml}");
    // Without the annotation nothing changes, and it says so in the log.
    let xml = sidecars
        .on_define_domain(bare.into(), &vmi(&[]), RequestId::unique(), later())
        .await
        .unwrap()
        .xml;
    assert!(!xml.contains("sysinfo"), "{xml}");
    process.signal(rustix::process::Signal::TERM);
    let (_, log) = process.end();
    assert!(log.contains("the domain is not changed"), "{log}");
}

#[tokio::test]
async fn a_script_that_matches_the_text_of_empty_elements_works() {
    let pod = Pod::new();
    let script = "#!/bin/sh\necho $4 | sed \"s|<baseBoard></baseBoard>|<baseBoard><entry name='manufacturer'>E</entry></baseBoard>|\"\n";
    let programs = scripts(&[("onDefineDomain", script)]);
    let _process = shim(&pod, "v1alpha2", programs.path());
    let xml = defined_twice(&collect(&pod).await, DOMAIN, &vmi(&[])).await;
    assert!(
        xml.contains("<baseBoard> <entry name=\"manufacturer\">E</entry> </baseBoard>")
            || xml.contains(">E</entry></baseBoard>"),
        "{xml}"
    );
}

#[tokio::test]
async fn the_python_sidecar_sets_boot_order_and_menu() {
    if is_missing("python3") {
        return;
    }
    let pod = Pod::new();
    let _process = shim(&pod, "v1alpha3", &example("boot-menu-python"));
    let sidecars = collect(&pod).await;
    let given = vmi(&[
        ("boot.vm.example.org/menu", "3000"),
        ("boot.vm.example.org/first", "default"),
    ]);
    let domain =
        domain::DomainSpec::from_xml(&defined_twice(&sidecars, DOMAIN, &given).await).unwrap();
    let menu = domain.os.boot_menu.unwrap();
    assert_eq!((menu.enable.as_str(), menu.timeout), ("yes", Some(3000)));
    assert!(domain.os.boot_order.is_empty());
    let order = |boot: &Option<domain::address::BootOrder>| boot.as_ref().map(|boot| boot.order);
    assert_eq!(order(&domain.devices.interfaces[0].boot_order), Some(1));
    assert_eq!(order(&domain.devices.disks[0].boot_order), Some(2));
    // Without annotations nothing changes, however the library writes the document.
    let same = sidecars
        .on_define_domain(KUBEVIRT.into(), &vmi(&[]), RequestId::unique(), later())
        .await
        .unwrap();
    assert!(same.xml.contains("ns0:kubevirt"), "{same:?}");
    assert_eq!(same.modified_by, [""; 0]);
    // Its own error reaches the user who started the virtual machine.
    let wrong = vmi(&[("boot.vm.example.org/first", "nosuch")]);
    let error = sidecars
        .on_define_domain(DOMAIN.into(), &wrong, RequestId::unique(), later())
        .await
        .unwrap_err();
    let error = chain(&error);
    assert!(
        error.contains("there is no bootable device 'nosuch'") && error.contains("exit status 1"),
        "{error}"
    );
    // It lists the names that the annotation can have.
    assert!(!error.contains("'ua-"), "{error}");
}

#[tokio::test]
async fn the_rust_sidecar_adds_a_watchdog_and_cloud_init_and_ends_at_shutdown() {
    let pod = Pod::new();
    let process =
        Process::start(Command::new(built_example("sidecar_watchdog")).arg(directory(&pod)));
    let sidecars = collect(&pod).await;
    let xml = defined_twice(&sidecars, DOMAIN, &vmi(&[])).await;
    assert_eq!(
        domain::DomainSpec::from_xml(&xml)
            .unwrap()
            .devices
            .watchdogs
            .len(),
        1
    );
    let data = json!({"NoCloudMetaData": {"instance-id": "i"}, "UserData": "#cloud-config\nhostname: x\n", "VolumeName": "v"});
    let data = sidecars
        .pre_cloud_init_iso(data, &vmi(&[]), later())
        .await
        .unwrap();
    assert!(
        data["UserData"]
            .as_str()
            .unwrap()
            .ends_with("hostname: x\nfinal_message: \"booted with a watchdog\"\n"),
        "{data}"
    );
    sidecars.shutdown(later()).await.unwrap();
    let (status, _) = process.end();
    assert!(status.success());
    assert!(!directory(&pod).join("watchdog.sock").exists());
}

#[tokio::test]
async fn the_shim_logs_what_kubevirts_tests_match_and_ends_at_shutdown() {
    let pod = Pod::new();
    let programs = scripts(&[
        (
            "onDefineDomain",
            "#!/bin/sh\necho \"$1 $3\" >&2\nprintf '%s' \"$4\"\n",
        ),
        (
            "preCloudInitIso",
            "#!/bin/sh\necho \"$1 $3\" >&2\nprintf '%s' \"$4\"\n",
        ),
    ]);
    let process = shim(&pod, "v1alpha3", programs.path());
    let sidecars = collect(&pod).await;
    let points: Vec<_> = sidecars.report().sidecars[0]
        .points
        .iter()
        .map(|p| p.point)
        .collect();
    assert_eq!(
        points,
        [
            HookPoint::Shutdown,
            HookPoint::OnDefineDomain,
            HookPoint::PreCloudInitIso
        ]
    );
    defined_twice(&sidecars, DOMAIN, &vmi(&[])).await;
    let data = json!({"NoCloudMetaData": {"instance-id": "i"}, "UserData": "#cloud-config"});
    assert_eq!(
        sidecars
            .pre_cloud_init_iso(data.clone(), &vmi(&[]), later())
            .await
            .unwrap(),
        data
    );
    sidecars.shutdown(later()).await.unwrap();
    let (status, log) = process.end();
    assert!(status.success(), "{log}");
    for line in [
        "shim is now exposing its services on socket",
        "Info method has been called",
        "OnDefineDomain method has been called",
        "PreCloudInitIso method has been called",
        "Hook's Shutdown callback method has been called",
        r#""msg":"--vmi --domain""#,
        r#""msg":"--vmi --cloud-init""#,
        r#""component":"shim-sidecar""#,
    ] {
        assert!(log.contains(line), "{line:?} is not in: {log}");
    }
    assert_eq!(
        std::fs::read_dir(directory(&pod)).unwrap().count(),
        0,
        "the socket is still there"
    );
}

#[tokio::test]
async fn the_shim_subscribes_only_to_hooks_with_a_program_and_ends_at_sigterm() {
    let pod = Pod::new();
    let programs = scripts(&[]);
    let process = shim(&pod, "v1alpha1", programs.path());
    assert!(collect(&pod).await.report().sidecars[0].points.is_empty());
    process.signal(rustix::process::Signal::TERM);
    let (status, log) = process.end();
    assert!(status.success(), "{log}");
    assert!(
        log.contains("sidecar-shim received signal: terminated"),
        "{log}"
    );
}

#[tokio::test]
async fn the_error_of_a_program_has_its_exit_status_and_stderr() {
    let pod = Pod::new();
    let programs = scripts(&[(
        "onDefineDomain",
        "#!/bin/sh\necho 'no such disk' >&2\nexit 3\n",
    )]);
    let _process = shim(&pod, "v1alpha2", programs.path());
    let error = collect(&pod)
        .await
        .on_define_domain(DOMAIN.into(), &vmi(&[]), RequestId::unique(), later())
        .await
        .unwrap_err();
    let error = chain(&error);
    assert!(
        error.contains("onDefineDomain ended with exit status 3: no such disk"),
        "{error}"
    );
}

#[tokio::test]
// D-hook-13 (docs/differences.md).
async fn a_program_that_hangs_is_killed_with_its_children() {
    let pod = Pod::new();
    let marker = pod.dir().join("child");
    let script = format!(
        "#!/bin/sh\nsleep 1000 &\necho $! > {}\nwait\n",
        marker.display()
    );
    let programs = scripts(&[("onDefineDomain", &script)]);
    let _process = shim(&pod, "v1alpha2", programs.path());
    let sidecars = collect(&pod).await;
    sidecars
        .on_define_domain(
            DOMAIN.into(),
            &vmi(&[]),
            RequestId::unique(),
            Instant::now() + Duration::from_secs(5),
        )
        .await
        .unwrap_err();
    let child = std::fs::read_to_string(marker).unwrap();
    let stat = PathBuf::from(format!("/proc/{}/stat", child.trim()));
    // Gone, or a zombie that nobody has waited for yet.
    let alive = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
    tokio::time::timeout(Duration::from_secs(30), async {
        while alive() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .expect("the child goes on");
}

#[tokio::test]
async fn a_background_process_of_a_program_does_not_delay_its_answer() {
    let pod = Pod::new();
    let marker = pod.dir().join("child");
    // Its standard error is still the program's.
    let script = format!(
        "#!/bin/sh\necho before >&2\nsleep 1000 >/dev/null &\necho $! > {}\nprintf '%s' \"$4\"\n",
        marker.display()
    );
    let programs = scripts(&[("onDefineDomain", &script)]);
    let process = shim(&pod, "v1alpha2", programs.path());
    let result = collect(&pod)
        .await
        .on_define_domain(DOMAIN.into(), &vmi(&[]), RequestId::unique(), later())
        .await;
    let child = std::fs::read_to_string(marker).unwrap();
    let killed = Command::new("kill").arg(child.trim()).status().unwrap();
    assert!(killed.success(), "what it left running was ended");
    assert!(result.unwrap().xml.contains("ns_vm"));
    process.signal(rustix::process::Signal::TERM);
    assert!(process.end().1.contains(r#""msg":"before""#));
}

#[test]
fn hooks_try_shows_what_each_example_changes() {
    let watchdog = format!("{} {{}}", built_example("sidecar_watchdog").display());
    let directory = |name| example(name).display().to_string();
    for (name, program, changes) in [
        (
            "smbios-shell",
            directory("smbios-shell"),
            vec![
                r#"    + sysinfo/baseBoard/entry[manufacturer]: "name=manufacturer Radical Edward""#,
            ],
        ),
        (
            "boot-menu-python",
            directory("boot-menu-python"),
            vec![
                r#"    + os/bootmenu: "enable=yes timeout=5000""#,
                r#"    + devices/disk[vda]/boot: "order=1""#,
            ],
        ),
        (
            "watchdog-rust",
            watchdog,
            vec![r#"    + devices/watchdog: "model=i6300esb action=reset""#],
        ),
    ] {
        if name.ends_with("python") && is_missing("python3") {
            continue;
        }
        let tried = Command::new(env!("CARGO_BIN_EXE_pod-tools"))
            .args(["launcherctl", "launcher", "hooks", "try", "--vmi"])
            .arg(example("vmi.yaml"))
            .args(["--sidecar", &program])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&tried.stdout).into_owned();
        let error = String::from_utf8_lossy(&tried.stderr);
        assert!(tried.status.success(), "{name}: {text}{error}");
        let mut lines = text.lines().skip(1);
        assert_eq!(lines.next(), Some("  OnDefineDomain changes"), "{name}");
        assert_eq!(lines.collect::<Vec<_>>(), changes, "{name}");
    }
}

#[test]
fn without_a_version_or_a_directory_the_shim_does_not_start() {
    let run = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_pod-tools"))
            .arg("sidecar-shim")
            .args(arguments)
            .output()
            .unwrap()
    };
    for (arguments, status, text) in [
        (&[][..], 1, "v1alpha3"),
        (&["--version", "v1beta1"], 1, "v1beta1"),
        (
            &["--version=v1alpha2", "--socket-dir=/nonexistent/dir"],
            1,
            "/nonexistent/dir",
        ),
        (&["--nonsense"], 2, "--nonsense"),
    ] {
        let output = run(arguments);
        let log = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{log}");
        assert!(log.contains(text), "{log}");
    }
}
