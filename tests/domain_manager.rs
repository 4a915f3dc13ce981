//! The domain manager with a real QEMU (emulated, embedded libvirt) and a real, if small, pod. The guests have no
//! operating system: the tests check what libvirt and virt-handler see.
#![cfg(feature = "libvirt")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use api::Action;
use domain::DomainSpec;
use hooks::Sidecars;
use libvirt::{
    ChangeableDomain, Connection, DomainState, MayChange, PausedReason, Registration,
    ShutoffReason, Undefine, XmlKind, start_event_loop,
};
use prost::bytes::Bytes;
use serde_json::{Value, json};
use virt_launcher::cmd::sync_request;
use virt_launcher::launcher::{
    Launcher, LauncherConfig, LauncherError, Phase, SyncRequest, Timeline,
};
use virt_launcher::notify::Notifier;

/// Long enough for anything that happens at all, on a busy machine without hardware virtualization.
const SOON: Duration = Duration::from_secs(120);

/// The machine on which all the tests' domains are: libvirt's embedded driver has one root for a process.
struct Host {
    connection: Connection,
    root: PathBuf,
    /// Receivers of events; each takes those of its own domain.
    launchers: Arc<Mutex<Vec<Arc<Launcher>>>>,
    _events: Registration,
}

fn host() -> Option<&'static Host> {
    static HOST: OnceLock<Option<Host>> = OnceLock::new();
    HOST.get_or_init(|| {
        if !Path::new("/usr/bin/qemu-system-x86_64").exists() || std::env::consts::ARCH != "x86_64" {
            eprintln!("skipped: no QEMU for x86_64 here");
            return None;
        }
        // Short, as the paths of unix sockets must be; and kept until the process ends.
        let root = tempfile::Builder::new().prefix("dm").tempdir().unwrap().keep();
        std::fs::create_dir(root.join("etc")).unwrap();
        let conf = "stdio_handler = \"file\"\nuser = \"root\"\ngroup = \"root\"\nsecurity_driver = \"none\"\n";
        std::fs::write(root.join("etc/qemu.conf"), conf).unwrap();
        start_event_loop().unwrap();
        let connection = Connection::open(&format!("qemu:///embed?root={}", root.display())).unwrap();
        let launchers = Arc::<Mutex<Vec<Arc<Launcher>>>>::default();
        let all = launchers.clone();
        let events = connection.events(move |event| all.lock().unwrap().iter().for_each(|launcher| launcher.handle_event(&event)));
        Some(Host { connection, root, launchers, _events: events.unwrap() })
    })
    .as_ref()
}

/// One VMI and its launcher.
struct Scene {
    host: &'static Host,
    name: &'static str,
    launcher: Arc<Launcher>,
}

impl Scene {
    fn begin(host: &'static Host, name: &'static str) -> Self {
        let pod = pod::LauncherFlags {
            root: pod::Root::new(&host.root),
            allow_emulation: true,
            force_emulation: true,
            ..pod::LauncherFlags::default()
        };
        pod::directories(&pod, name).unwrap();
        let (notifier, task) = Notifier::new(
            host.root.join("nobody-listens"),
            host.root.join(name).join("k8s-events"),
            name,
        );
        tokio::spawn(task);
        let config = LauncherConfig {
            pod,
            name: name.into(),
            namespace: "ns1".into(),
            uid: name.into(),
            qemu_log: None,
            qemu_pid_file: std::path::PathBuf::new(),
            pod_name: String::new(),
            vm_stats_collector: false,
            timeline: Timeline::begin(),
        };
        let launcher = Launcher::new(config, host.connection.clone(), Sidecars::none(), notifier);
        host.launchers.lock().unwrap().push(launcher.clone());
        launcher.refresh();
        Self {
            host,
            name,
            launcher,
        }
    }

    fn vmi(&self) -> Value {
        json!({"metadata": {"name": self.name, "namespace": "ns1", "uid": self.name},
            "spec": {"architecture": "amd64", "domain": {
                "machine": {"type": "q35"}, "memory": {"guest": "64Mi"}, "resources": {"requests": {"memory": "64Mi"}},
                "cpu": {"cores": 1, "sockets": 1, "threads": 1, "model": "qemu64"}, "features": {"acpi": {"enabled": true}},
                "devices": {"autoattachPodInterface": false}}},
            "status": {"phase": "Scheduled"}})
    }

    async fn request(&self, vmi: &Value) -> SyncRequest {
        let json = Bytes::from(vmi.to_string());
        sync_request(&self.launcher, json).await.unwrap()
    }

    async fn sync(&self, vmi: &Value) -> Result<(), LauncherError> {
        self.launcher.syncs.sync(self.request(vmi).await).await
    }

    async fn act(&self, action: Action) {
        let vmi = self.request(&self.vmi()).await.vmi;
        self.launcher.requests.act(action, &vmi).await.unwrap();
    }

    fn domain(&self) -> Option<ChangeableDomain> {
        let name = format!("ns1_{}", self.name);
        let domain = self.host.connection.lookup(&name).unwrap();
        domain.map(|domain| domain.changeable(&Others))
    }

    fn state(&self) -> DomainState {
        self.domain().unwrap().state().unwrap()
    }

    fn definition(&self) -> DomainSpec {
        DomainSpec::from_xml(&self.domain().unwrap().xml(XmlKind::Inactive).unwrap()).unwrap()
    }

    async fn document(&self) -> Value {
        let document = self
            .launcher
            .reads
            .domain()
            .await
            .unwrap()
            .expect("there is no domain");
        serde_json::from_str(&document.to_json().unwrap()).unwrap()
    }
}

/// Whoever else changes the domain.
struct Others;

impl MayChange for Others {}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(domain) = self.domain() {
            let _ = domain.destroy(false);
            let _ = domain.undefine(Undefine::KeepNvram);
        }
    }
}

fn play<F: Future<Output = ()>>(name: &'static str, test: impl FnOnce(Scene) -> F) {
    let Some(host) = host() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let scene = Scene::begin(host, name);
        tokio::time::timeout(SOON, test(scene))
            .await
            .expect("it takes too long");
    });
    runtime.shutdown_background();
}

#[test]
fn a_guest_lives_from_sync_to_delete() {
    play("life", |scene| async move {
        let mut state = scene.launcher.state();
        assert!(scene.launcher.reads.domain().await.unwrap().is_none());
        scene.sync(&scene.vmi()).await.unwrap();
        state.wait_for(|vm| vm.phase.is_visible()).await.unwrap();
        let document = scene.document().await;
        assert_eq!(
            (&document["Status"]["Status"], &document["Spec"]["Type"]),
            (&json!("Running"), &json!("qemu"))
        );
        assert_eq!(document["Spec"]["Metadata"]["KubeVirt"]["UID"], "life");
        let pid = || std::fs::read(scene.host.root.join("run/qemu/ns1_life.pid")).unwrap();
        let before = pid();
        for _ in 0..10 {
            scene.sync(&scene.vmi()).await.unwrap();
        }
        assert_eq!(before, pid());

        let version = loop {
            match scene.launcher.reads.qemu_version().await {
                // libvirt is still looking at its emulators.
                Err(LauncherError::Slow { .. }) => {}
                version => break version.unwrap(),
            }
        };
        assert_eq!(version.split('.').count(), 3);

        scene.act(Action::Pause).await;
        scene.sync(&scene.vmi()).await.unwrap();
        assert_eq!(scene.state(), DomainState::Paused(PausedReason::User));
        scene.act(Action::Unpause).await;
        scene.act(Action::Reset).await;
        scene.act(Action::SoftReboot).await;
        // The guest has nothing that reacts to the power button.
        scene.act(Action::Shutdown).await;
        let document = scene.document().await;
        assert_eq!(document["Status"]["Status"], "Running");
        assert!(
            document["Spec"]["Metadata"]["KubeVirt"]["GracePeriod"]["DeletionTimestamp"]
                .is_string()
        );

        scene.act(Action::Kill).await;
        assert_eq!(
            scene.state(),
            DomainState::Shutoff(ShutoffReason::Destroyed)
        );
        scene.sync(&scene.vmi()).await.unwrap();
        assert!(
            matches!(scene.state(), DomainState::Shutoff(_)),
            "a domain that has ended is never started again"
        );
        scene.act(Action::Kill).await;
        scene.act(Action::Delete).await;
        scene.act(Action::Delete).await;
        state.wait_for(|vm| vm.phase == Phase::Gone).await.unwrap();
        assert!(scene.domain().is_none());
    });
}

#[test]
// D-conv-5 (docs/differences.md).
fn a_definition_has_free_ports_and_no_placeholders() {
    play("ports", |scene| async move {
        let mut vmi = scene.vmi();
        vmi["metadata"]["annotations"] = json!({"kubevirt.io/pci-interface-slot-count": "3"});
        scene.sync(&vmi).await.unwrap();
        let definition = scene.definition();
        assert!(definition.devices.interfaces.is_empty());
        let ports: Vec<_> = definition
            .devices
            .controllers
            .iter()
            .filter(|c| c.model == "pcie-root-port")
            .collect();
        let buses: Vec<u32> = ports
            .iter()
            .map(|port| port.index.parse().unwrap())
            .collect();
        let hex = |text: &str| u32::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
        let live = scene.domain().unwrap().xml(XmlKind::Live).unwrap();
        let used =
            |bus: u32| live.contains(&format!("type='pci' domain='0x0000' bus='{bus:#04x}'"));
        let free = buses.iter().filter(|bus| !used(**bus)).count();
        // Three for the interfaces, and those that small machines get.
        assert!(free >= 3, "{free} of {} ports are free", ports.len());
        assert!(ports.iter().all(|port| {
            port.address
                .as_ref()
                .is_some_and(|address| hex(&address.bus) == 0)
        }));
    });
}

#[test]
fn a_guest_may_want_to_start_paused() {
    play("paused", |scene| async move {
        let mut vmi = scene.vmi();
        vmi["spec"]["startStrategy"] = json!("Paused");
        for _ in 0..2 {
            scene.sync(&vmi).await.unwrap();
            assert!(scene.state().is_paused());
        }
        assert_eq!(scene.document().await["Status"]["Reason"], "User");
        scene.act(Action::Unpause).await;
        assert!(scene.state().is_running());
    });
}

#[test]
fn what_qemu_says_reaches_the_answer_and_the_next_sync_works() {
    play("refused", |scene| async move {
        let mut vmi = scene.vmi();
        // More than the emulated processor can address; libvirt defines it all the same. What QEMU says about it depends
        // on the machine, but begins with its name.
        vmi["spec"]["domain"]["memory"]["guest"] = json!("64Ti");
        vmi["spec"]["domain"]["resources"]["requests"]["memory"] = json!("64Ti");
        let error = scene.sync(&vmi).await.unwrap_err().to_string();
        assert!(
            error.starts_with("LibvirtError(Code=1, Domain=10, Message='")
                && error.contains("qemu-system-x86_64: "),
            "{error}"
        );
        assert!(scene.domain().is_none(), "a failed start leaves no domain");
        assert!(scene.launcher.reads.domain().await.unwrap().is_none());
        scene.sync(&scene.vmi()).await.unwrap();
        assert!(scene.state().is_running());
    });
}

#[test]
fn a_definition_that_was_never_started_is_made_anew() {
    play("leftover", |scene| async move {
        let xml = "<domain type='qemu'><name>ns1_leftover</name><memory unit='MiB'>32</memory><os><type>hvm</type></os></domain>";
        scene.host.connection.define(&Others, xml).unwrap();
        assert!(
            scene.launcher.reads.domain().await.unwrap().is_none(),
            "virt-handler would take it for dead"
        );
        scene.sync(&scene.vmi()).await.unwrap();
        assert_eq!(
            (scene.state().is_running(), scene.definition().memory.value),
            (true, 65536)
        );
    });
}

/// The VMI with these volumes hotplugged.
fn with_volumes(vmi: &Value, volumes: &[(&str, &str)]) -> Value {
    let mut vmi = vmi.clone();
    vmi["status"]["phase"] = json!("Running");
    let list = |item: &dyn Fn(&str, &str) -> Value| {
        Value::from_iter(volumes.iter().map(|(name, bus)| item(name, bus)))
    };
    let serial = |name: &str| format!("Serial-Of-{}", name.to_uppercase());
    vmi["spec"]["domain"]["devices"]["disks"] =
        list(&|name, bus| json!({"name": name, "serial": serial(name), "disk": {"bus": bus}}));
    vmi["spec"]["volumes"] = list(
        &|name, _| json!({"name": name, "persistentVolumeClaim": {"claimName": name, "hotpluggable": true}}),
    );
    vmi["status"]["volumeStatus"] = list(
        &|name, _| json!({"name": name, "phase": "Ready", "hotplugVolume": {"attachPodName": "hp", "attachPodUID": "u"}}),
    );
    vmi
}

#[test]
// D-disk-10 (docs/differences.md).
fn disks_are_plugged_when_ready_and_one_failure_does_not_stop_the_others() {
    play("disks", |scene| async move {
        scene.sync(&scene.vmi()).await.unwrap();
        let directory = scene.host.root.join("var/run/kubevirt/hotplug-disks");
        std::fs::create_dir_all(&directory).unwrap();
        let image = |name: &str, bytes: u64| {
            let file = std::fs::File::create(directory.join(format!("{name}.img"))).unwrap();
            file.set_len(bytes).unwrap();
        };
        let serials = async || {
            let document = scene.document().await;
            let disks = document["Spec"]["Devices"]["Disks"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            disks
                .iter()
                .map(|disk| {
                    format!(
                        "{}={}",
                        disk["Alias"]["Name"].as_str().unwrap(),
                        disk["Serial"].as_str().unwrap()
                    )
                })
                .collect::<Vec<_>>()
        };
        image("good", 1 << 20);
        let none: Vec<String> = Vec::new();
        assert_eq!(serials().await, none);

        let vmi = with_volumes(&scene.vmi(), &[("late", "scsi"), ("good", "scsi")]);
        scene.sync(&vmi).await.unwrap();
        assert_eq!(
            serials().await,
            ["good=Serial-Of-GOOD"],
            "a disk whose image is not there yet is left for the next sync"
        );
        image("late", 1 << 20);
        scene.sync(&vmi).await.unwrap();
        let mut all = serials().await;
        all.sort();
        assert_eq!(all, ["good=Serial-Of-GOOD", "late=Serial-Of-LATE"]);
        scene.sync(&vmi).await.unwrap();
        assert_eq!(serials().await.len(), 2);

        // QEMU keeps an image from being written to by two disks: that one fails, the other comes.
        std::fs::hard_link(directory.join("good.img"), directory.join("twin.img")).unwrap();
        image("third", 1 << 20);
        let vmi = with_volumes(
            &scene.vmi(),
            &[
                ("late", "scsi"),
                ("good", "scsi"),
                ("twin", "scsi"),
                ("third", "scsi"),
            ],
        );
        let error = scene.sync(&vmi).await.unwrap_err().to_string();
        assert!(
            error.starts_with("disk \"twin\" (sdc): attach: LibvirtError(Code=")
                && error.contains("lock"),
            "{error}"
        );
        assert!(!error.contains("third"), "{error}");
        assert!(
            serials()
                .await
                .contains(&"third=Serial-Of-THIRD".to_owned())
        );

        scene
            .sync(&with_volumes(&scene.vmi(), &[("good", "scsi")]))
            .await
            .unwrap();
        while serials().await.len() > 1 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(serials().await, ["good=Serial-Of-GOOD"]);
    });
}
