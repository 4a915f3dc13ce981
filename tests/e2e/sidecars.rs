//! Hook sidecars as processes of their own: a shell script behind the shim, and a Rust program that
//! speaks v1alpha3.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::executable::write_script;
use crate::harness::{Pod, TEST_TIMEOUT, Vmi, in_pod};
use crate::launcherctl::done;

/// A sidecar's process, ended with the test.
pub struct Sidecar(Child);

impl Sidecar {
    /// The program with the sidecar's own directory as its last argument.
    fn start(pod: &Pod, number: usize, command: &mut Command) -> Self {
        command.arg(directory(pod, number));
        // The launcher need not be this user, as the sidecars of its pod are.
        let mut open = Command::new("sh");
        open.args(["-c", "umask 0; exec \"$@\"", "sh"])
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            open.env(name, value.unwrap());
        }
        Self(open.spawn().unwrap())
    }

    /// A shim that finds its programs in `programs` first, and `NUMBER` in its environment.
    pub fn shim(pod: &Pod, number: usize, version: &str, programs: &Path) -> Self {
        let path = format!(
            "{}:{}",
            programs.display(),
            std::env::var("PATH").unwrap_or_default()
        );
        let mut command = Command::new(env!("CARGO_BIN_EXE_pod-tools"));
        command
            .args(["sidecar-shim", "--version", version, "--socket-dir"])
            .env("PATH", path)
            .env("NUMBER", number.to_string());
        Self::start(pod, number, &mut command)
    }

    /// The example in Rust.
    pub fn watchdog(pod: &Pod, number: usize) -> Self {
        Self::start(pod, number, &mut Command::new(example("sidecar_watchdog")))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The directory that the sidecar's container would have as `/var/run/kubevirt-hooks`.
fn directory(pod: &Pod, number: usize) -> PathBuf {
    pod.path(&format!("/var/run/kubevirt-hooks/hook-sidecar-{number}/x"))
        .parent()
        .unwrap()
        .to_owned()
}

/// The only socket of a sidecar, once it is there.
pub async fn socket(pod: &mut Pod, number: usize) -> PathBuf {
    let dir = directory(pod, number);
    let first = || std::fs::read_dir(&dir).unwrap().flatten().next();
    // A socket is there a moment before it accepts.
    let accepts = |path: &Path| std::os::unix::net::UnixStream::connect(path).is_ok();
    pod.until("the sidecar serves", || {
        first().is_some_and(|socket| accepts(&socket.path()))
    })
    .await;
    first().unwrap().path()
}

/// Writes a script for the shim.
pub fn script(dir: &Path, name: &str, text: &str) {
    write_script(&dir.join(name), &format!("#!/bin/sh\n{text}\n"));
}

/// What `launcherctl` prints about this pod.
fn launcherctl(pod: &Pod, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pod-tools"));
    let output = command
        .arg("launcherctl")
        .args(arguments)
        .arg("--root")
        .arg(pod.root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// An example as `cargo test` has built it.
pub(crate) fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let built = tests
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("examples")
        .join(name);
    assert!(
        built.exists(),
        "{} is missing: \"cargo build --examples\" makes it where only this test's target is built",
        built.display()
    );
    built
}

#[test]
fn a_booted_guest_shows_what_its_sidecars_did() {
    in_pod(async {
        let mut pod = Pod::new();
        let seed = json!({"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\n# made for the test\n"}});
        let vmi = Vmi::new("hooked")
            .with_image(&pod)
            .set(
                "/metadata/annotations",
                json!({"smbios.vm.kubevirt.io/baseBoardManufacturer": "Radical Edward"}),
            )
            .volume(seed, json!({"name": "seed", "disk": {"bus": "virtio"}}));
        let shell = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/sidecars/smbios-shell");
        let _shell = Sidecar::shim(&pod, 0, "v1alpha3", &shell);
        let _watchdog = Sidecar::watchdog(&pod, 1);
        let scripts = tempfile::tempdir().unwrap();
        let serial = r#"printf '%s' "$4" | sed 's|</system>|<entry name="serial">Hooked-Ab42</entry></system>|'"#;
        script(scripts.path(), "onDefineDomain", serial);
        let _serial = Sidecar::shim(&pod, 2, "v1alpha1", scripts.path());
        pod.start(&vmi, &["--hook-sidecars", "3"]).await;
        let mut guest = pod.boot(&vmi).await;
        let machine = guest.run("machine").await;
        assert!(
            machine.contains("board_vendor: Radical Edward")
                && machine.contains("product_serial: Hooked-Ab42"),
            "{machine}"
        );
        assert!(
            guest
                .run("seed user-data")
                .await
                .contains("booted with a watchdog")
        );
        assert_eq!(
            pod.domain().await["Spec"]["Devices"]["Watchdogs"][0]["Model"],
            "i6300esb"
        );
    });
}

/// Appends its number to the domain's title.
const TITLE: &str = r#"case $4 in
*'</title>'*) printf '%s' "$4" | sed "s|</title>|,$NUMBER</title>|" ;;
*) printf '%s' "$4" | sed "s|</name>|</name><title>$NUMBER</title>|" ;;
esac"#;

#[tokio::test]
// D-hook-2 (docs/differences.md).
async fn ten_sidecars_run_in_order_are_shown_by_launcherctl_and_get_shutdown() {
    let mut pod = Pod::new();
    let vmi = Vmi::new("ten")
        .with_counter(&pod)
        .set("/spec/startStrategy", json!("Paused"));
    let scripts = tempfile::tempdir().unwrap();
    script(scripts.path(), "onDefineDomain", TITLE);
    // There is no cloud-init: a call would crash the reference, and fail the start here.
    script(
        scripts.path(),
        "preCloudInitIso",
        "echo 'called without cloud-init' >&2; exit 1",
    );
    let version = |number| ["v1alpha1", "v1alpha2", "v1alpha3"][number % 3];
    let shim = |pod: &Pod, number| Sidecar::shim(pod, number, version(number), scripts.path());
    let mut sidecars: Vec<(usize, Sidecar)> = [0, 1, 2, 3, 4, 6, 7]
        .map(|number| (number, shim(&pod, number)))
        .into();
    // Its socket is there and takes connections, but it does not answer Info for a while.
    let last = sidecars.len() - 1;
    socket(&mut pod, 7).await;
    sidecars[last].1.signal(Signal::STOP);
    // Two sidecars with the same socket name, watchdog.sock.
    sidecars.extend([8, 9].map(|number| (number, Sidecar::watchdog(&pod, number))));
    pod.handler.serve();
    pod.launch(
        &vmi,
        &["--hook-sidecars", "10", "--grace-period-seconds", "1"],
    );
    sidecars.push((5, shim(&pod, 5)));
    sidecars[last].1.signal(Signal::CONT);
    pod.wait_until_ready().await;
    let text = launcherctl(&pod, &["launcher", "hooks"]);
    assert_eq!(
        text.matches("\"calls\": 0").count(),
        text.matches("\"calls\"").count(),
        "{text}"
    );
    pod.sync_ok(&vmi).await;
    assert!(
        pod.live_xml(&vmi)
            .contains("<title>0,1,2,3,4,5,6,7</title>"),
        "{}",
        pod.live_xml(&vmi)
    );
    assert_eq!(
        pod.live_xml(&vmi)
            .matches("<watchdog model='i6300esb'")
            .count(),
        1,
        "the second sidecar leaves the first one's alone"
    );

    let report: Value =
        serde_json::from_str(&launcherctl(&pod, &["launcher", "hooks", "-o", "json"])).unwrap();
    let shown = report["sidecars"].as_array().unwrap();
    assert_eq!(shown.len(), 10, "{report:#}");
    for (number, sidecar) in shown.iter().enumerate() {
        let (name, version) = if number < 8 {
            ("shim", version(number))
        } else {
            ("watchdog", "v1alpha3")
        };
        assert_eq!(
            (&sidecar["name"], &sidecar["version"]),
            (&json!(name), &json!(version)),
            "{report:#}"
        );
        let points = sidecar["points"].as_array().unwrap();
        let point = |name: &str| points.iter().find(|point| point["point"] == name);
        let define = point("OnDefineDomain").unwrap();
        assert_eq!(
            (&define["order"], &define["calls"]),
            (&json!(number + 1), &json!(1)),
            "{report:#}"
        );
        assert!(define["last"]["microseconds"].as_u64().unwrap() > 0);
        let changes = define["last"]["changes"].as_array().unwrap();
        assert!(number == 9 || changes.len() == 1, "{report:#}");
        assert_eq!(
            point("PreCloudInitIso").map_or(0, |point| point["calls"].as_u64().unwrap()),
            0
        );
        assert_eq!(
            (
                point("PreCloudInitIso").is_some(),
                point("Shutdown").is_some()
            ),
            (version != "v1alpha1", version == "v1alpha3")
        );
    }

    // The guest never runs, so it is killed when the grace period is over.
    pod.signal("TERM");
    assert_eq!(pod.exit_code().await, 0);
    for (number, sidecar) in &mut sidecars {
        if version(*number) == "v1alpha3" || *number > 7 {
            pod_ends(sidecar, *number).await;
        } else {
            assert!(
                !sidecar.has_ended(),
                "{number} is of a version without Shutdown"
            );
        }
    }
}

/// Waits until a sidecar that got Shutdown has ended.
async fn pod_ends(sidecar: &mut Sidecar, number: usize) {
    let end = Instant::now() + TEST_TIMEOUT;
    while !sidecar.has_ended() {
        assert!(
            Instant::now() < end,
            "sidecar {number} has not ended after Shutdown"
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_sidecar_that_breaks_the_domain_is_named_and_the_next_sync_works() {
    let mut pod = Pod::new();
    let vmi = Vmi::new("spoilt")
        .with_counter(&pod)
        .set("/spec/startStrategy", json!("Paused"));
    pod.handler.serve();
    let scripts = tempfile::tempdir().unwrap();
    let write = |text: &str| script(scripts.path(), "onDefineDomain", text);
    write("");
    let _first = Sidecar::shim(&pod, 0, "v1alpha2", scripts.path());
    let first = socket(&mut pod, 0).await;
    pod.start(&vmi, &["--hook-sidecars", "1", "-v", "4"]).await;
    // $4 is the domain; see docs/sidecars.md.
    let cases = [
        (
            "echo '<domain><name>another</name></domain>'",
            vec!["another"],
        ),
        ("echo hello", vec!["line 1: ", "text outside", "hello"]),
        (
            r#"printf '<!DOCTYPE d [<!ENTITY e "e">]>%s' "$4""#,
            vec!["document type"],
        ),
        ("", vec!["empty"]),
        ("head -c 104857600 /dev/zero", vec!["more than", "bytes"]),
        (
            "echo 'no such licence' >&2; exit 3",
            vec!["exit status 3", "no such licence"],
        ),
        // What libvirt refuses: its own message, and which sidecar changed the domain. KubeVirt's
        // domains have their UUID in the SMBIOS table.
        (
            r#"printf '%s' "$4" | sed 's|</name>|</name><uuid>11111111-2222-3333-4444-555555555555</uuid>|'"#,
            vec![
                "LibvirtError",
                "UUID mismatch",
                "the domain was changed by hook sidecar",
            ],
        ),
        (
            r#"printf '%s' "$4" | sed 's|<vcpu|<vcpu placement="nonsense"|; s|placement="static"||'"#,
            vec!["LibvirtError", "nonsense"],
        ),
        (r#"kill -KILL "$PPID""#, vec!["the connection broke"]),
        ("never called", vec!["cannot be reached"]),
    ];
    for (text, words) in cases {
        write(text);
        let answer = pod.sync(&vmi).await;
        assert!(!answer.success, "accepted: {text}");
        for word in words.into_iter().chain([r#""shim" (hook-sidecar-0/shim-"#]) {
            assert!(
                answer.message.contains(word),
                "{text}: {word:?} is not in: {}",
                answer.message
            );
        }
        assert!(
            pod.domain().await.is_null(),
            "{text}: a refused domain is left behind"
        );
        assert!(pod.guests().is_empty());
    }
    // Another process serves on its socket.
    std::fs::remove_file(&first).unwrap();
    write(ADDED);
    let _second = Sidecar::shim(&pod, 0, "v1alpha2", scripts.path());
    std::fs::rename(socket(&mut pod, 0).await, &first).unwrap();
    pod.sync_ok(&vmi).await;
    assert_eq!(pod.domain().await["Status"]["Status"], "Paused");
    // Elements that the launcher's schema does not have reached libvirt, through all that the
    // launcher does after the hooks.
    let xml = pod.live_xml(&vmi);
    for part in [
        "kept</app:mark>",
        "<qemu:env name='KEPT' value='1'/>",
        "<description>&lt;kept&gt;</description>",
    ] {
        assert!(xml.contains(part), "{part:?} is not in: {xml}");
    }
    let event = pod.handler.k8s_event("IgnoredByLibvirt").await;
    let message = event["message"].as_str().unwrap();
    assert!(
        message.contains(r#": frobnicate; the domain was changed by hook sidecar "shim""#),
        "{message}"
    );
    has_no_secret(&pod.log());
}

/// The password that a sidecar has set is neither in the log nor in its dump of the domain, which
/// shows that there is one.
// D-log-4 (docs/differences.md).
fn has_no_secret(log: &[String]) {
    let mut dumps = log
        .iter()
        .filter_map(|line| line.split_once("Base64 dump ")?.1.split('"').next());
    let dump = BASE64_STANDARD.decode(dumps.next_back().unwrap()).unwrap();
    let dump = String::from_utf8(dump).unwrap();
    assert!(dump.contains(r#"passwd="(secret)""#), "{dump}");
    for text in log.iter().chain([&dump]) {
        assert!(!text.contains(PASSWORD), "{text}");
    }
}

/// In what [`ADDED`] adds.
const PASSWORD: &str = "hunter2";
/// Adds what the launcher has no types for, and secrets.
const ADDED: &str = r#"printf '%s' "$4" | sed '
s|<metadata>|<metadata><app:mark xmlns:app="https://example.org/app">kept</app:mark>|
s|<graphics |<graphics passwd="hunter2" |
s|</name>|</name><description>\&lt;kept\&gt;</description>|
s|</domain>|<frobnicate level="1"/><qemu:commandline><qemu:arg value="-object"/><qemu:arg value="secret,id=s,data=hunter2"/><qemu:env name="KEPT" value="1"/></qemu:commandline></domain>|'"#;

#[tokio::test]
// D-sup-16 (docs/differences.md).
async fn the_next_launcher_waits_for_no_sidecar_that_has_died_meanwhile() {
    let mut pod = Pod::new();
    let vmi = Vmi::new("orphan")
        .with_counter(&pod)
        .set("/spec/startStrategy", json!("Paused"));
    let mut lives = Sidecar::watchdog(&pod, 0);
    let died = Sidecar::watchdog(&pod, 1);
    let flags = ["--hook-sidecars", "2", "--grace-period-seconds", "1"];
    pod.handler.serve();
    pod.launch(&vmi, &flags);
    pod.wait_until_ready().await;
    pod.sync_ok(&vmi).await;
    pod.kill_launcher().await;
    drop(died);
    pod.launch(&vmi, &flags);
    pod.wait_until_ready().await;
    pod.signal("TERM");
    assert_eq!(pod.exit_code().await, 0);
    pod_ends(&mut lives, 0).await;
}

#[tokio::test]
async fn a_launcher_names_the_sidecars_that_are_missing() {
    let mut pod = Pod::new();
    let scripts = tempfile::tempdir().unwrap();
    let _there = Sidecar::shim(&pod, 0, "v1alpha3", scripts.path());
    let hangs = Sidecar::shim(&pod, 1, "v1alpha3", scripts.path());
    socket(&mut pod, 0).await;
    socket(&mut pod, 1).await;
    hangs.signal(Signal::STOP);
    pod.launch(
        &Vmi::new("alone"),
        &["--hook-sidecars", "4", "--qemu-timeout", "7s"],
    );
    std::fs::create_dir(pod.path("/var/run/kubevirt-hooks/hook-sidecar-2")).unwrap();
    // One that has died leaves an empty directory, or none.
    let says = "Still waiting for hook sidecars";
    pod.log_has(says).await;
    let log = pod.log();
    let waiting = log.iter().find(|line| line.contains(says)).unwrap();
    for part in [
        "warning",
        r#""count":1"#,
        r#""expected":4"#,
        "hook-sidecar-1/shim-",
        "hook-sidecar-2 (no socket in it)",
    ] {
        assert!(waiting.contains(part), "{part:?} is not in: {waiting}");
    }
    assert_ne!(pod.exit_code().await, 0);
    let log = pod.log().join("\n");
    for part in [
        "1 of 4 hook sidecars",
        r#"ready: \"shim\" (hook-sidecar-0/shim-"#,
        "hook-sidecar-1/shim-",
        "no answer within",
    ] {
        assert!(log.contains(part), "{part:?} is not in: {log}");
    }
}

#[tokio::test]
// D-hook-5 (docs/differences.md).
async fn a_start_goes_on_when_its_call_has_waited_long_enough_for_a_sidecar() {
    let mut pod = Pod::new();
    let scripts = tempfile::tempdir().unwrap();
    script(
        scripts.path(),
        "onDefineDomain",
        r#"sleep 22; printf '%s' "$4""#,
    );
    let _slow = Sidecar::shim(&pod, 0, "v1alpha2", scripts.path());
    socket(&mut pod, 0).await;
    let vmi = Vmi::new("patient").with_counter(&pod);
    pod.start(&vmi, &["--hook-sidecars", "1"]).await;
    let waits = async {
        let problem = "the start waits for a hook: OnDefineDomain of hook sidecar";
        let root = pod.root().display().to_string();
        let status = ["status", "--root", &root];
        while !done(pod.root(), &status).await.contains(problem) {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let (answer, ()) = tokio::join!(pod.sync(&vmi), waits);
    let says = "it waits for OnDefineDomain of hook sidecar";
    assert!(
        !answer.success && answer.message.contains(says),
        "{answer:?}"
    );
    pod.sync_ok(&vmi).await;
    assert_eq!(pod.domain().await["Status"]["Status"], "Running");
    pod.end(&vmi).await;
}
