//! Hook sidecars as processes of their own: a shell script behind the shim, and a Rust program that speaks v1alpha3.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use serde_json::json;

use crate::harness::{Pod, Vmi, run};

/// A sidecar's process, ended with the test.
struct Sidecar(Child);

impl Sidecar {
    fn start(pod: &Pod, number: usize, program: &Path, arguments: &[&str], search: Option<&Path>) -> Self {
        let sockets = pod.path(&format!("/var/run/kubevirt-hooks/hook-sidecar-{number}/x"));
        let mut command = Command::new(program);
        command.args(arguments).arg(sockets.parent().unwrap());
        if let Some(search) = search {
            let path = std::env::var("PATH").unwrap_or_default();
            command.env("PATH", format!("{}:{path}", search.display()));
        }
        Self(command.spawn().unwrap())
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program of `examples/`, which cargo builds beside the tests.
fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().unwrap().parent().unwrap().join("examples").join(name)
}

#[test]
fn a_booted_guest_shows_what_its_sidecars_did() {
    run(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("hooked")
            .with_image(&pod)
            .set("/metadata/annotations", json!({"smbios.vm.kubevirt.io/baseBoardManufacturer": "Radical Edward"}));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/sidecars/smbios-shell");
        let tools = Path::new(env!("CARGO_BIN_EXE_pod-tools"));
        let _shell = Sidecar::start(&pod, 0, tools, &["sidecar-shim", "--version", "v1alpha3", "--socket-dir"], Some(&script));
        let _watchdog = Sidecar::start(&pod, 1, &example("sidecar_watchdog"), &[], None);
        pod.handler.serve();
        pod.launch(&vmi, &["--hook-sidecars", "2"]);
        pod.wait_until_ready().await;
        let mut guest = pod.boot(&vmi).await;
        assert!(guest.run("machine").await.contains("board_vendor: Radical Edward"));
        assert_eq!(pod.domain().await["Spec"]["Devices"]["Watchdogs"][0]["Model"], "i6300esb");
    });
}

#[test]
fn a_sidecar_that_spoils_the_domain_is_named_and_the_next_sync_works() {
    run(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("spoilt").with_image(&pod);
        let scripts = tempfile::tempdir().unwrap();
        let script = scripts.path().join("onDefineDomain");
        let write = |text: &str| {
            use std::os::unix::fs::PermissionsExt;
            std::fs::write(&script, text).unwrap();
            std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        write("#!/bin/sh\necho '<domain><name>another</name></domain>'\n");
        let tools = Path::new(env!("CARGO_BIN_EXE_pod-tools"));
        let _sidecar = Sidecar::start(&pod, 0, tools, &["sidecar-shim", "--version", "v1alpha2", "--socket-dir"], Some(scripts.path()));
        pod.handler.serve();
        pod.launch(&vmi, &["--hook-sidecars", "1"]);
        pod.wait_until_ready().await;
        let answer = pod.sync(&vmi).await;
        assert!(!answer.success && answer.message.contains("shim") && answer.message.contains("another"), "{}", answer.message);
        assert!(pod.domain().await.is_null());
        // $4 is the domain; see docs/sidecars.md.
        write("#!/bin/sh\nprintf '%s' \"$4\"\n");
        pod.sync_ok(&vmi).await;
        assert_eq!(pod.domain().await["Status"]["Status"], "Running");
    });
}
