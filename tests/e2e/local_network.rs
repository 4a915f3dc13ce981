//! The network of a VM of `launcherctl run`: the guest gets an address, and ports of this machine
//! lead to it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::executable::write_script;
use crate::harness::{Guest, TEST_TIMEOUT, UP, Vmi};
use crate::launcherctl::{Laptop, launcherctl};

/// A VM with a masqueraded interface and cloud-init's network data.
fn laptop(name: &str) -> Laptop {
    let laptop = Laptop::new().with_linux();
    let mut vmi = Vmi::new(name).value().clone();
    vmi["spec"]["domain"]["devices"]["interfaces"] = json!([{"name": "default", "masquerade": {}}]);
    vmi["spec"]["networks"] = json!([{"name": "default", "pod": {}}]);
    let seed = json!({"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\n", "networkData": "version: 2\nethernets: {}\n"}});
    vmi["spec"]["volumes"].as_array_mut().unwrap().push(seed);
    std::fs::write(laptop.path("vmi.json"), vmi.to_string()).unwrap();
    laptop
}

/// A VM on QEMU's user network.
struct Connected {
    laptop: Laptop,
    port: u16,
}

impl Connected {
    fn start() -> Self {
        let laptop = laptop("laptop");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let connected = Self { laptop, port };
        let disk = connected.laptop.root_disk();
        let manifest = connected.laptop.path("vmi.json");
        let (publish, manifest) = (format!("{port}:80"), manifest.to_str().unwrap());
        let run = [
            "run",
            "--detach",
            "--emulate",
            "--disk",
            &disk,
            "--until",
            UP,
        ];
        let more = ["-p", &publish, manifest];
        connected.done(&[&run[..], &more].concat());
        connected
    }

    fn command(&self) -> Command {
        let home = self.laptop.path("");
        let mut command = launcherctl(&home);
        command.env("TMPDIR", &home).env("HOME", "/nonexistent");
        command
    }

    fn done(&self, arguments: &[&str]) -> String {
        let output = self.command().args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {text}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.done(&["status", "-o", "json"])).unwrap()
    }

    /// The guest has an address of this network, and serves its port 80 to this machine.
    async fn check(&self, address: &str) {
        let console = self.status()["root"].as_str().unwrap().to_owned() + "/console.sock";
        let mut guest = Guest::connect(console.as_ref()).await;
        guest.until(UP).await;
        guest
            .run_until("ip -4 addr show dev eth0", |shown| shown.contains(address))
            .await;
        guest
            .send("while :; do echo pong | nc -l -p 80; done &")
            .await;
        let end = Instant::now() + TEST_TIMEOUT;
        let mut answer = [0; 5];
        while answer != *b"pong\n" {
            assert!(
                Instant::now() < end,
                "the guest's port 80 answers {answer:?}"
            );
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(5)))
                .unwrap();
            // The guest may not listen yet.
            let _ = stream.write_all(b"ping\n");
            let _ = stream.read_exact(&mut answer);
        }
        assert!(guest.run("seed network-config").await.contains("ethernets"));
        assert!(guest.run("seed user-data").await.contains("#cloud-config"));
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let _ = self.command().args(["stop", "--all", "--force"]).output();
    }
}

#[tokio::test]
async fn a_guest_is_on_qemus_user_network() {
    let vm = Connected::start();
    vm.check("10.0.2.15").await;

    // ssh(1) is called with the port that leads to the guest's, and with the VM's own known hosts.
    let ssh = vm.laptop.path("ssh");
    write_script(&ssh, "#!/bin/sh\necho \"$@\"\n");
    let mut command = vm.command();
    command.args(["ssh", "root@laptop", "--", "uname", "-r"]);
    let output = command.env("PATH", vm.laptop.path("")).output().unwrap();
    let called = String::from_utf8(output.stdout).unwrap();
    let status = vm.status();
    let ports = status["ports"].as_array().unwrap();
    let port = ports.iter().find(|port| port["guest"] == 22).unwrap();
    assert!(
        called.starts_with(&format!("-p {} ", port["host"])),
        "{called}"
    );
    assert!(
        called.trim_end().ends_with("-lroot 127.0.0.1 uname -r"),
        "{called}"
    );
    assert!(
        called.contains(status["root"].as_str().unwrap()),
        "{called}"
    );

    assert!(called.contains("ConnectTimeout="), "{called}");

    // A later version of the VMI keeps the network.
    let manifest = vm.laptop.path("vmi.json");
    assert_eq!(
        vm.done(&["plan", manifest.to_str().unwrap()]),
        "nothing to do\n"
    );
}
