//! The network of a VM of `launcherctl run`: the guest gets an address, and ports of this machine lead to it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{
    ClusterNetwork, Guest, REMOTE_HOST, TEST_TIMEOUT, UP, Vmi, missing_for_pod_networks, run,
};
use crate::launcherctl::{Laptop, NOBODY, launcherctl, signal};

/// A VM with this binding and cloud-init's network data.
fn laptop(name: &str, binding: &str) -> Laptop {
    let laptop = Laptop::new();
    let mut vmi = Vmi::new(name).value().clone();
    vmi["spec"]["domain"]["devices"]["interfaces"] = json!([{"name": "default", binding: {}}]);
    vmi["spec"]["networks"] = json!([{"name": "default", "pod": {}}]);
    let seed = json!({"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\n", "networkData": "version: 2\nethernets: {}\n"}});
    vmi["spec"]["volumes"].as_array_mut().unwrap().push(seed);
    std::fs::write(laptop.path("vmi.json"), vmi.to_string()).unwrap();
    laptop
}

/// A VM on the network that this option chooses, as a user other than root if it has to be.
struct Connected {
    laptop: Laptop,
    user: Option<u32>,
    port: u16,
}

impl Connected {
    fn start(network: &str, user: Option<u32>) -> Self {
        let laptop = laptop("laptop", "masquerade");
        for path in ["", "guest.img", "vmi.json"] {
            std::os::unix::fs::chown(laptop.path(path), user, user).unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let connected = Self { laptop, user, port };
        let disk = format!("rootdisk={}", connected.laptop.path("guest.img").display());
        let manifest = connected.laptop.path("vmi.json");
        let (publish, manifest) = (format!("{port}:80"), manifest.to_str().unwrap());
        connected.done(&[
            "run",
            "--detach",
            "--emulate",
            "--disk",
            &disk,
            "--until",
            UP,
            "--network",
            network,
            "-p",
            &publish,
            manifest,
        ]);
        connected
    }

    fn command(&self) -> Command {
        let home = self.laptop.path("");
        let mut command = launcherctl(&home);
        command.env("TMPDIR", &home).env("HOME", "/nonexistent");
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
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
            // The guest may not listen yet. passt of 2023 opens the guest's side only when this side has written.
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

#[test]
fn a_guest_is_on_qemus_user_network() {
    run(async {
        let vm = Connected::start("user", None);
        vm.check("10.0.2.15").await;

        // ssh(1) is called with the port that leads to the guest's, and with the VM's own known hosts.
        let ssh = vm.laptop.path("ssh");
        std::fs::write(&ssh, "#!/bin/sh\necho \"$@\"\n").unwrap();
        std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
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

        // When it fails itself, its own text does not say what to do.
        std::fs::write(&ssh, "#!/bin/sh\nexit 255\n").unwrap();
        let mut command = vm.command();
        command
            .args(["ssh", "laptop"])
            .env("PATH", vm.laptop.path(""));
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(255), "{said}");
        let hint = "has no SSH server; launcherctl console laptop";
        assert!(said.contains(hint), "{said}");

        // A later version of the VMI keeps the network.
        let manifest = vm.laptop.path("vmi.json");
        assert_eq!(
            vm.done(&["plan", manifest.to_str().unwrap()]),
            "nothing to do\n"
        );
    });
}

#[test]
fn a_guest_is_on_passts_network_without_root() {
    if Command::new("passt").arg("--version").output().is_err() {
        return eprintln!("skipped: passt is not installed");
    }
    // passt gives the guest this machine's own address.
    let address = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    if address.connect("198.51.100.1:9").is_err() {
        return eprintln!("skipped: this machine has no route that a guest could use");
    }
    let user = rustix::process::geteuid().is_root().then_some(NOBODY);
    if let Some(user) = user {
        let mut probe = Command::new(env!("CARGO_BIN_EXE_pod-tools"));
        if probe.arg("--list").uid(user).gid(user).output().is_err() {
            return eprintln!("skipped: an ordinary user may not start what is built here");
        }
    }
    run(async {
        let vm = Connected::start("passt", user);
        vm.check(&address.local_addr().unwrap().ip().to_string())
            .await;
        let xml = vm.done(&["dumpxml"]);
        assert!(
            xml.contains("type='passt'") && xml.contains("ua-default"),
            "{xml}"
        );
    });
}

/// A VM of root with a tap device, on a machine whose network is a namespace of the test.
struct Tapped<'a> {
    machine: &'a ClusterNetwork,
    laptop: Laptop,
    port: u16,
    guest: Guest,
    /// By which the machine reaches the guest.
    address: String,
}

impl<'a> Tapped<'a> {
    async fn start(machine: &'a ClusterNetwork, name: &str, binding: &str, port: u16) -> Self {
        let laptop = laptop(name, binding);
        let disk = format!("rootdisk={}", laptop.path("guest.img").display());
        let (manifest, publish) = (laptop.path("vmi.json"), format!("{port}:80"));
        let up = [
            "run",
            "--detach",
            "--emulate",
            "--network",
            "tap",
            "--until",
        ];
        let more = [
            UP,
            "--disk",
            &disk,
            "-p",
            &publish,
            manifest.to_str().unwrap(),
        ];
        Self::done(machine, &laptop, &[&up[..], &more].concat());
        let status = Self::done(machine, &laptop, &["status", "-o", "json"]);
        let status: Value = serde_json::from_str(&status).unwrap();
        let console = status["root"].as_str().unwrap().to_owned() + "/console.sock";
        let mut guest = Guest::connect(console.as_ref()).await;
        guest.until(UP).await;
        let address = status["podAddress"].as_str().unwrap().to_owned();
        Self {
            machine,
            laptop,
            port,
            guest,
            address,
        }
    }

    fn done(machine: &ClusterNetwork, laptop: &Laptop, arguments: &[&str]) -> String {
        let ours = launcherctl(&laptop.path(""));
        let enter = machine.enter();
        let mut command = Command::new(&enter[0]);
        command.args(&enter[1..]).arg("--");
        command.arg(ours.get_program()).args(ours.get_args());
        for (name, value) in ours.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        let output = command.args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {text}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Kills the supervisor and the launcher; QEMU stays.
    fn lose(&self) {
        let status = Self::done(self.machine, &self.laptop, &["status", "-o", "json"]);
        let status: Value = serde_json::from_str(&status).unwrap();
        let root = status["root"].as_str().unwrap();
        for program in ["supervise", "virt-launcher"] {
            let processes = std::fs::read_dir("/proc").unwrap().flatten();
            let pids = processes.filter_map(|entry| {
                let words = std::fs::read(entry.path().join("cmdline")).ok()?;
                let words = String::from_utf8_lossy(&words).into_owned();
                let is_it = words.contains(program) && words.contains(root);
                let pid = entry.file_name().to_str()?.parse().ok()?;
                (is_it && !words.starts_with("/usr/bin/qemu")).then_some(pid)
            });
            pids.for_each(|pid| signal(pid, "KILL"));
        }
    }

    /// The guest serves its port 80 to the machine.
    async fn serves(&mut self) {
        self.guest
            .send("while :; do echo pong | nc -l -p 80; done &")
            .await;
        self.is_served();
    }

    fn is_served(&self) {
        let end = Instant::now() + TEST_TIMEOUT;
        let (address, port) = (&self.address, self.port);
        for place in [format!("{address} 80"), format!("127.0.0.1 {port}")] {
            let ask = format!("echo ping | busybox nc -w 5 {place} || true");
            while self.machine.run(&ask) != "pong" {
                assert!(Instant::now() < end, "{place} does not answer");
            }
        }
    }
}

impl Drop for Tapped<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = launcherctl(&self.laptop.path(""))
                .args(["stop", "--all", "--force"])
                .output();
        }
    }
}

#[test]
fn guests_of_root_have_taps_in_namespaces_of_their_own_and_see_each_other() {
    if let Some(missing) = missing_for_pod_networks() {
        return eprintln!("skipped: {missing}");
    }
    run(async {
        let machine = ClusterNetwork::new();
        let mut natted = Tapped::start(&machine, "natted", "masquerade", 18080).await;
        let mut bridged = Tapped::start(&machine, "bridged", "bridge", 18081).await;
        for (vm, address) in [
            (&mut natted, "10.0.2.2/24"),
            (&mut bridged, "10.213.1.2/30"),
        ] {
            vm.guest
                .run_until("ip -4 addr show dev eth0", |shown| shown.contains(address))
                .await;
            vm.serves().await;
        }
        for (vm, other) in [(&mut natted, "10.213.1.2"), (&mut bridged, "10.213.0.2")] {
            for host in [other, REMOTE_HOST] {
                let answer = |shown: &str| shown.contains("1 packets received");
                vm.guest
                    .run_until(&format!("ping -c 1 -W 2 {host}"), answer)
                    .await;
            }
            // A later version of the VMI keeps the network.
            let manifest = vm.laptop.path("vmi.json");
            let plan = Tapped::done(&machine, &vm.laptop, &["plan", manifest.to_str().unwrap()]);
            assert_eq!(plan, "nothing to do\n");
        }
        // It moves to another namespace with another address on this machine, and serves on.
        Tapped::done(&machine, &natted.laptop, &["migrate", "--detach"]);
        let status = Tapped::done(&machine, &natted.laptop, &["status", "-o", "json"]);
        let status: Value = serde_json::from_str(&status).unwrap();
        natted.address = status["podAddress"].as_str().unwrap().to_owned();
        assert_eq!(natted.address, "10.213.2.2");
        let ports = status["ports"].as_array().unwrap();
        let port = ports.iter().find(|port| port["guest"] == 80).unwrap();
        natted.port = port["host"].as_u64().unwrap().try_into().unwrap();
        natted.is_served();
        // Without a supervisor and a launcher, too, nothing stays on this machine.
        bridged.lose();
        for vm in [&natted, &bridged] {
            Tapped::done(&machine, &vm.laptop, &["stop", "--all", "--force"]);
        }
        assert_eq!(machine.run("nft list tables"), "");
        let end = Instant::now() + TEST_TIMEOUT;
        // The kernel removes a namespace, and the links in it, after its last process.
        while machine.run("ip link").contains("lctl") {
            assert!(Instant::now() < end, "a link is left");
            std::thread::sleep(Duration::from_millis(100));
        }
    });
}
