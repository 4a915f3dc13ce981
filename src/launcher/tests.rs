#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
//! The domain manager on libvirt's test driver, with a pod and a virt-handler of the test's own.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::notify::tests::Handler;
use api::vmi::Vmi;
use convert::context::DiskModes;
use convert::{Context, ConvertError};
use domain::DomainSpec;
use domain::disks::Disk;
use libvirt::{Registration, State, paused, start_event_loop};

/// Long enough for anything that happens at all.
const SOON: Duration = Duration::from_secs(30);

/// A pod in which everything is there; what the conversion answers is set by the test.
#[derive(Default)]
struct FakePod {
    /// Given to libvirt in place of the right element.
    os: Mutex<Option<&'static str>>,
    refusal: Mutex<Option<&'static str>>,
    /// What the conversion has seen.
    context: Mutex<Context>,
    conversions: AtomicUsize,
    prepared: AtomicUsize,
    /// A start waits for it before it prepares anything.
    gate: Mutex<Option<Receiver<()>>>,
    /// Domains whose device metadata was written, and whether that fails.
    device_metadata: Mutex<Vec<String>>,
    device_metadata_fails: AtomicBool,
}

impl pod_backend::PodBackend for FakePod {
    fn wanted(
        &self,
        vmi: &Vmi,
        _: &VirtualMachineOptions,
    ) -> Result<(DomainSpec, Context), LauncherError> {
        self.conversions.fetch_add(1, Ordering::Relaxed);
        if let Some(reason) = *lock(&self.refusal) {
            return Err(ConvertError::new("spec.domain", reason).into());
        }
        let os = lock(&self.os).unwrap_or("<os><type>hvm</type></os>");
        let name = vmi.domain_name();
        let xml = format!(
            "<domain type='test'><name>{name}</name><memory unit='KiB'>8192</memory>{os}<features><acpi/></features></domain>"
        );
        let context = lock(&self.context).clone();
        Ok((DomainSpec::from_xml(&xml).unwrap(), context))
    }
    fn iommufd(&self) -> Result<Option<Arc<OwnedFd>>, LauncherError> {
        Ok(None)
    }
    fn cloud_init(&self, _: &Vmi) -> Result<Option<Value>, LauncherError> {
        Ok(Some(json!({"UserData": "#cloud-config"})))
    }
    fn write_device_metadata(
        &self,
        _: &Vmi,
        cloud_init: Value,
        defined: &DomainSpec,
    ) -> Result<(), LauncherError> {
        if self.device_metadata_fails.load(Ordering::Relaxed) {
            return Err(LauncherError::CloudInit(
                serde_json::from_str::<u8>("no").unwrap_err(),
            ));
        }
        lock(&self.device_metadata).push(format!("{} {cloud_init}", defined.name));
        Ok(())
    }
    fn prepare(&self, _: &Vmi, _: &Context, _: Option<Value>) -> Result<(), LauncherError> {
        if let Some(gate) = lock(&self.gate).take() {
            gate.recv().unwrap();
        }
        self.prepared.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    fn wanted_on_target(
        &self,
        vmi: &Vmi,
        options: &VirtualMachineOptions,
    ) -> Result<(DomainSpec, Context), LauncherError> {
        self.wanted(vmi, options)
    }
    fn prepare_target(&self, _: &Vmi, _: &Context, _: Option<Value>) -> Result<(), LauncherError> {
        self.prepared.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    fn open_for_migration(&self, _: &Vmi) -> Result<(), LauncherError> {
        Ok(())
    }
    fn make_overlay(&self, _: &Vmi, _: &Disk) -> Result<(), LauncherError> {
        Ok(())
    }
    fn remove_unused_overlays(&self, _: &Vmi, _: &DomainSpec) -> Result<(), LauncherError> {
        Ok(())
    }
    fn resolve_disk_modes(&self, _: &mut DomainSpec) -> Result<DiskModes, LauncherError> {
        Ok(DiskModes::default())
    }
    fn is_ready(&self, _: &Disk) -> bool {
        true
    }
    fn sync_tpm_state(&self) -> Result<(), LauncherError> {
        Ok(())
    }
    fn access_credential_dirs(&self, _: &Vmi) -> Result<Vec<PathBuf>, LauncherError> {
        Ok(Vec::new())
    }
    fn access_credentials(&self, _: &Vmi) -> Result<pod::AccessCredentials, LauncherError> {
        Ok(pod::AccessCredentials::default())
    }
    fn max_size(&self, _: &Disk) -> Result<Option<u64>, LauncherError> {
        Ok(None)
    }
}

/// A launcher, all that it talks to, and what the test needs to look behind it.
struct TestLauncher {
    launcher: Arc<Launcher>,
    pod: Arc<FakePod>,
    connection: Connection,
    handler: Handler,
    _events: Registration,
    _dir: tempfile::TempDir,
}

impl TestLauncher {
    fn begin() -> Self {
        Self::with(|_| {})
    }

    /// `before` sees the connection before the launcher does.
    fn with(before: impl FnOnce(&Connection)) -> Self {
        start_event_loop().unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("node.xml"), "<node/>").unwrap();
        let connection =
            Connection::open(&format!("test://{}/node.xml", dir.path().display())).unwrap();
        before(&connection);
        let socket = dir.path().join(api::pod_paths::NOTIFY_SOCKET);
        let handler = Handler::polite(&socket);
        let (notifier, task) = Notifier::new(socket, dir.path().join("k8s-events"), "u-1");
        tokio::spawn(task);
        let config = LauncherConfig {
            pod: pod::Config::default(),
            name: "vm1".into(),
            namespace: "ns1".into(),
            uid: "u-1".into(),
            qemu_log: None,
            pod_name: "target".into(),
            vm_stats_collector: true,
            timeline: Timeline::begin(),
        };
        let pod = Arc::new(FakePod::default());
        let launcher = Launcher::with_pod(
            config,
            connection.clone(),
            Sidecars::none(),
            notifier,
            pod.clone(),
        );
        let sink = launcher.clone();
        let events = connection
            .events(move |event| sink.handle_event(&event))
            .unwrap();
        launcher.refresh();
        Self {
            launcher,
            pod,
            connection,
            handler,
            _events: events,
            _dir: dir,
        }
    }

    async fn sync(&self, vmi: &Value) -> Result<(), LauncherError> {
        self.launcher
            .sync(
                Bytes::from(vmi.to_string()),
                VirtualMachineOptions::default(),
            )
            .await
    }

    async fn act(&self, action: Action) -> Result<(), LauncherError> {
        self.launcher
            .act(action, Bytes::from(vmi().to_string()))
            .await
    }

    fn domain(&self) -> Option<libvirt::Domain> {
        self.connection.lookup("ns1_vm1").unwrap()
    }

    fn state(&self) -> State {
        self.domain().unwrap().state().unwrap().0
    }

    /// The document as virt-handler gets it.
    async fn document(&self) -> Value {
        let document = self
            .launcher
            .domain()
            .await
            .unwrap()
            .expect("there is no domain");
        serde_json::from_str(&document.to_json().unwrap()).unwrap()
    }

    /// Reads the events that virt-handler gets until it is this one.
    async fn expect(&mut self, what: &str) {
        while self.handler.next().await != what {}
    }

    /// The same for several, in any order: a state that waits already takes the place of a later one.
    async fn expect_all(&mut self, what: &[&str]) {
        let mut missing = what.to_vec();
        while !missing.is_empty() {
            let event = self.handler.next().await;
            missing.retain(|text| *text != event);
        }
    }
}

/// Of an architecture without PCI ports, which the test driver does not know.
fn vmi() -> Value {
    json!({"metadata": {"name": "vm1", "namespace": "ns1", "uid": "u-1"},
        "spec": {"architecture": "s390x", "terminationGracePeriodSeconds": 7}, "status": {"phase": "Scheduled"}})
}

fn with_phase(phase: &str) -> Value {
    let mut vmi = vmi();
    vmi["status"]["phase"] = json!(phase);
    vmi
}

fn play<F: Future<Output = ()>>(test: impl FnOnce() -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { timeout(SOON, test()).await.expect("it takes too long") });
    runtime.shutdown_background();
}

#[test]
fn a_sync_starts_the_domain_and_shows_it() {
    play(|| async {
        let mut test = TestLauncher::begin();
        assert!(test.launcher.domain().await.unwrap().is_none());
        test.sync(&vmi()).await.unwrap();
        assert_eq!(test.handler.next().await, "ADDED Running");
        let document = test.document().await;
        assert_eq!(document["Status"]["Status"], "Running");
        assert_eq!(
            document["ObjectMeta"],
            json!({"name": "vm1", "namespace": "ns1", "uid": "u-1"})
        );
        let metadata = &document["Spec"]["Metadata"]["KubeVirt"];
        assert_eq!(
            (
                &metadata["UID"],
                &metadata["GracePeriod"]["DeletionGracePeriodSeconds"]
            ),
            (&json!("u-1"), &json!(7))
        );
        let written =
            DomainSpec::from_xml(&test.domain().unwrap().xml(libvirt::XmlKind::Live).unwrap())
                .unwrap();
        assert_eq!(
            written.metadata.kube_virt.uid, "u-1",
            "a launcher that comes later must know whose domain it is"
        );
    });
}

#[test]
// D-net-7 (docs/differences.md).
fn a_network_that_virt_handler_has_not_prepared_stops_the_start() {
    play(|| async {
        let test = TestLauncher::begin();
        let tap = [("blue".into(), "tap".into())];
        lock(&test.pod.context).domain_attachment_by_interface_name = tap.into();
        let mut vmi = vmi();
        vmi["spec"]["networks"] = json!([{"name": "blue", "multus": {"networkName": "blue"}}]);
        vmi["spec"]["domain"] =
            json!({"devices": {"interfaces": [{"name": "blue", "bridge": {}}]}});
        let error = test.sync(&vmi).await.unwrap_err().to_string();
        assert_eq!(
            error,
            r#"interface "blue": the pod has no link pod16477688c0e or net1, which virt-handler should have prepared"#
        );
        assert_eq!(test.pod.prepared.load(Ordering::Relaxed), 0);
        assert!(test.domain().is_none());
        *lock(&test.pod.context) = Context::default();
        test.sync(&vmi).await.unwrap();
        assert_eq!(test.state(), State::Running);
    });
}

#[test]
fn equal_syncs_change_nothing() {
    play(|| async {
        let test = TestLauncher::begin();
        for _ in 0..10 {
            test.sync(&vmi()).await.unwrap();
        }
        assert_eq!(test.pod.prepared.load(Ordering::Relaxed), 1);
        assert_eq!(test.state(), State::Running);
    });
}

/// A VMI with a device that its guest is to find by a tag.
fn tagged() -> Value {
    let mut vmi = vmi();
    vmi["spec"]["domain"] =
        json!({"devices": {"gpus": [{"name": "a", "deviceName": "d", "tag": "compute"}]}});
    vmi
}

#[test]
fn device_metadata_is_written_between_definition_and_start() {
    play(|| async {
        let test = TestLauncher::begin();
        test.sync(&tagged()).await.unwrap();
        assert_eq!(
            *lock(&test.pod.device_metadata),
            [r##"ns1_vm1 {"UserData":"#cloud-config"}"##]
        );
        assert_eq!(test.state(), State::Running);
    });
}

#[test]
fn a_guest_that_would_miss_its_devices_is_not_started() {
    play(|| async {
        let test = TestLauncher::begin();
        test.pod
            .device_metadata_fails
            .store(true, Ordering::Relaxed);
        let error = test.sync(&tagged()).await.unwrap_err().to_string();
        assert!(error.contains("cloud-init"), "{error}");
        // That its definition goes is QEMU's driver's to show: this one refusal the flags.
        assert!(
            test.domain()
                .is_none_or(|domain| !domain.is_active().unwrap())
        );
    });
}

#[test]
fn without_tags_no_device_metadata_is_written() {
    play(|| async {
        let test = TestLauncher::begin();
        test.sync(&vmi()).await.unwrap();
        assert!(lock(&test.pod.device_metadata).is_empty());
    });
}

#[test]
fn a_plan_changes_nothing() {
    play(|| async {
        let test = TestLauncher::begin();
        let steps = async |vmi: Value| {
            test.launcher
                .dry_run(Bytes::from(vmi.to_string()))
                .await
                .map(|mut plan| plan["steps"].take())
        };
        assert_eq!(steps(vmi()).await.unwrap()[0]["verb"], "start");
        assert!(test.domain().is_none());
        assert!(matches!(
            steps(with_phase("Running")).await,
            Err(LauncherError::Lost)
        ));
        test.sync(&vmi()).await.unwrap();
        assert_eq!(steps(vmi()).await.unwrap(), json!([]));
        test.domain().unwrap().suspend().unwrap();
        assert_eq!(steps(vmi()).await.unwrap()[0]["verb"], "resume");
        assert_eq!(test.state(), State::Paused);
        *lock(&test.pod.refusal) = Some("is not supported by this test");
        assert_eq!(
            steps(vmi()).await.unwrap_err().to_string(),
            "spec.domain: is not supported by this test"
        );
    });
}

#[test]
fn syncs_at_the_same_time_share_one_start() {
    play(|| async {
        let test = Arc::new(TestLauncher::begin());
        let syncs: Vec<_> = (0..20)
            .map(|_| {
                let test = test.clone();
                tokio::spawn(async move { test.sync(&vmi()).await })
            })
            .collect();
        for sync in syncs {
            sync.await.unwrap().unwrap();
        }
        assert_eq!(test.pod.prepared.load(Ordering::Relaxed), 1);
        assert!(
            test.pod.conversions.load(Ordering::Relaxed) <= 3,
            "those that waited did not join"
        );
    });
}

#[test]
// D-vm-1 (docs/differences.md).
fn a_domain_that_is_being_started_is_not_shown() {
    play(|| async {
        let mut test = TestLauncher::begin();
        let (open, gate) = channel();
        *lock(&test.pod.gate) = Some(gate);
        let launcher = test.launcher.clone();
        let mut state = launcher.state();
        let sync = tokio::spawn(async move {
            let json = Bytes::from(vmi().to_string());
            launcher.sync(json, VirtualMachineOptions::default()).await
        });
        state
            .wait_for(|vm| vm.phase == Phase::Starting)
            .await
            .unwrap();
        test.launcher.refresh();
        assert!(test.launcher.domain().await.unwrap().is_none());
        open.send(()).unwrap();
        sync.await.unwrap().unwrap();
        assert!(test.launcher.domain().await.unwrap().is_some());
        assert_eq!(test.handler.next().await, "ADDED Running");
    });
}

#[test]
// D-vm-2 (docs/differences.md).
fn a_failed_definition_leaves_nothing_and_the_next_sync_works() {
    play(|| async {
        let mut test = TestLauncher::begin();
        *lock(&test.pod.os) = Some("<os><type>nonsense</type></os>");
        let error = test.sync(&vmi()).await.unwrap_err().to_string();
        assert!(
            error.starts_with("LibvirtError(Code=") && error.contains("nonsense"),
            "{error}"
        );
        assert!(test.domain().is_none());
        assert!(test.launcher.domain().await.unwrap().is_none());
        *lock(&test.pod.os) = None;
        *lock(&test.pod.refusal) = Some("is not supported by this test");
        assert_eq!(
            test.sync(&vmi()).await.unwrap_err().to_string(),
            "spec.domain: is not supported by this test"
        );
        *lock(&test.pod.refusal) = None;
        test.sync(&vmi()).await.unwrap();
        assert_eq!(test.handler.next().await, "ADDED Running");
    });
}

#[test]
fn a_domain_that_runs_already_is_taken_over() {
    play(|| async {
        let mut test = TestLauncher::with(|connection| {
            let metadata = "<metadata><kubevirt xmlns='http://kubevirt.io'><uid>u-1</uid><graceperiod><deletionGracePeriodSeconds>9</deletionGracePeriodSeconds></graceperiod></kubevirt></metadata>";
            let xml = format!(
                "<domain type='test'><name>ns1_vm1</name>{metadata}<memory>8192</memory><os><type>hvm</type></os></domain>"
            );
            let domain = connection.define(&xml).unwrap();
            domain.start(false).unwrap();
            domain.suspend().unwrap();
        });
        assert_eq!(test.handler.next().await, "ADDED Paused");
        let grace = test.document().await["Spec"]["Metadata"]["KubeVirt"]["GracePeriod"].clone();
        assert_eq!(grace["DeletionGracePeriodSeconds"], 9);
        test.sync(&with_phase("Running")).await.unwrap();
        assert_eq!(
            test.state(),
            State::Paused,
            "whoever paused it has not resumed it"
        );
        assert_eq!(test.pod.prepared.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_domain_that_somebody_paused_stays_paused() {
    play(|| async {
        let mut test = TestLauncher::begin();
        test.sync(&vmi()).await.unwrap();
        for _ in 0..2 {
            test.act(Action::Pause).await.unwrap();
        }
        test.sync(&with_phase("Running")).await.unwrap();
        assert_eq!(
            test.domain().unwrap().state().unwrap(),
            (State::Paused, paused::USER)
        );
        test.expect("MODIFIED Paused").await;
        for _ in 0..2 {
            test.act(Action::Unpause).await.unwrap();
        }
        assert_eq!(test.state(), State::Running);
        test.expect("MODIFIED Running").await;
        // Paused by nobody that we know.
        test.domain().unwrap().suspend().unwrap();
        test.sync(&with_phase("Running")).await.unwrap();
        assert_eq!(test.state(), State::Running);
    });
}

#[test]
fn a_domain_that_ends_is_reported_to_the_end() {
    play(|| async {
        let mut test = TestLauncher::begin();
        let mut state = test.launcher.state();
        test.sync(&vmi()).await.unwrap();
        state.wait_for(|vm| vm.phase.is_visible()).await.unwrap();
        for _ in 0..2 {
            test.act(Action::Kill).await.unwrap();
        }
        test.expect("MODIFIED Shutoff").await;
        assert_eq!(test.document().await["Status"]["Reason"], "Destroyed");
        test.sync(&vmi()).await.unwrap();
        assert_eq!(
            test.state(),
            State::Shutoff,
            "a domain that has ended is never started again"
        );
        // This driver does not know the flags of our delete.
        test.domain()
            .unwrap()
            .undefine(libvirt::Undefine::Plain)
            .unwrap();
        test.expect("MODIFIED NoState gone").await;
        state.wait_for(|vm| vm.phase == Phase::Gone).await.unwrap();
        assert!(test.launcher.domain().await.unwrap().is_none());
        assert!(
            matches!(test.sync(&vmi()).await.unwrap_err(), LauncherError::Joined(error) if matches!(*error, LauncherError::Lost))
        );
        for action in [Action::Kill, Action::Shutdown, Action::Delete] {
            test.act(action).await.unwrap();
        }
    });
}

#[test]
// D-vm-4 (docs/differences.md).
fn a_shutdown_starts_the_clock_of_the_grace_period_even_if_it_fails() {
    play(|| async {
        let mut test = TestLauncher::begin();
        test.sync(&vmi()).await.unwrap();
        assert_eq!(test.handler.next().await, "ADDED Running");
        // This driver knows no power button.
        let error = test.act(Action::Shutdown).await.unwrap_err().to_string();
        assert!(error.starts_with("LibvirtError(Code="), "{error}");
        assert_eq!(test.handler.next().await, "MODIFIED Running");
        let started = async || {
            test.document().await["Spec"]["Metadata"]["KubeVirt"]["GracePeriod"]["DeletionTimestamp"].clone()
        };
        let first = started().await;
        assert!(
            first.is_string(),
            "virt-handler never kills a domain whose clock does not run"
        );
        test.act(Action::Shutdown).await.unwrap_err();
        assert_eq!(started().await, first);
    });
}

#[test]
fn a_pod_that_must_end_says_so_in_the_metadata() {
    play(|| async {
        let mut test = TestLauncher::begin();
        test.sync(&vmi()).await.unwrap();
        assert_eq!(test.handler.next().await, "ADDED Running");
        test.launcher.mark_for_graceful_shutdown();
        assert_eq!(test.handler.next().await, "MODIFIED Running");
        assert_eq!(
            test.document().await["Spec"]["Metadata"]["KubeVirt"]["GracePeriod"]["MarkedForGracefulShutdown"],
            true
        );
    });
}

#[test]
fn the_grace_period_follows_the_vmi() {
    play(|| async {
        let test = TestLauncher::begin();
        test.sync(&vmi()).await.unwrap();
        let mut vmi = with_phase("Running");
        vmi["spec"]["terminationGracePeriodSeconds"] = json!(0);
        test.sync(&vmi).await.unwrap();
        let grace = test.document().await["Spec"]["Metadata"]["KubeVirt"]["GracePeriod"].clone();
        assert_eq!(grace["DeletionGracePeriodSeconds"], 0);
    });
}

#[test]
fn calls_without_a_domain_answer_as_the_reference() {
    play(|| async {
        let test = TestLauncher::begin();
        for (action, text) in [
            (Action::Pause, "Domain not found."),
            (Action::Unpause, "Domain not found."),
            (
                Action::Reset,
                "LibvirtError(Code=42, Domain=10, Message='Domain not found: no domain with matching name 'ns1_vm1'')",
            ),
            (
                Action::SoftReboot,
                "LibvirtError(Code=42, Domain=10, Message='Domain not found: no domain with matching name 'ns1_vm1'')",
            ),
        ] {
            assert_eq!(test.act(action).await.unwrap_err().to_string(), text);
        }
        for action in [Action::Shutdown, Action::Kill, Action::Delete] {
            test.act(action).await.unwrap();
        }
    });
}

#[test]
fn a_guest_without_agent_and_acpi_cannot_be_asked_to_reboot() {
    play(|| async {
        let test = TestLauncher::begin();
        test.sync(&vmi()).await.unwrap();
        let mut vmi = vmi();
        vmi["spec"]["domain"] = json!({"features": {"acpi": {"enabled": false}}});
        let error = test
            .launcher
            .act(Action::SoftReboot, Bytes::from(vmi.to_string()))
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "VMI neither have the agent connected nor the ACPI feature enabled"
        );
    });
}

#[test]
fn vmis_that_are_not_started() {
    play(|| async {
        let test = TestLauncher::begin();
        let mut deleting = vmi();
        deleting["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
        for vmi in [deleting, with_phase("Succeeded"), with_phase("Failed")] {
            test.sync(&vmi).await.unwrap();
            assert!(test.domain().is_none());
        }
        let error = test
            .sync(&with_phase("Running"))
            .await
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "libvirt no longer has the domain of this VMI, which has already run; it is not started again in the same pod"
        );
    });
}

#[test]
// D-start-5 (docs/differences.md).
fn requests_that_are_no_vmi_of_ours() {
    play(|| async {
        let test = TestLauncher::begin();
        for bad in [
            "",
            "{",
            "[]",
            "null",
            "{}",
            "{\"metadata\": 1}",
            "{\"metadata\": {\"name\": \"vm1\"}}",
        ] {
            let error = test
                .launcher
                .sync(Bytes::from(bad), VirtualMachineOptions::default())
                .await
                .unwrap_err();
            assert_eq!(
                error.to_string(),
                "No valid vmi object present in command server request",
                "{bad}"
            );
        }
        let mut other = vmi();
        other["metadata"]["name"] = json!("vm2");
        let error = test.sync(&other).await.unwrap_err().to_string();
        assert_eq!(
            error,
            "this launcher owns the VMI ns1_vm1; the request is about ns1_vm2"
        );
        let options = VirtualMachineOptions {
            plugins_json: Bytes::from_static(b"{"),
            ..VirtualMachineOptions::default()
        };
        let error = test
            .launcher
            .sync(Bytes::from(vmi().to_string()), options)
            .await
            .unwrap_err()
            .to_string();
        assert_eq!(error, "the list of plugins cannot be read");
        assert!(test.domain().is_none());
    });
}

#[test]
fn a_disk_that_fails_is_named_in_an_event() {
    let io_error = |what| format!("IOerror: VM Paused due to {what}");
    play(|| async {
        let mut test = TestLauncher::begin();
        test.sync(&vmi()).await.unwrap();
        assert_eq!(test.handler.next().await, "ADDED Running");
        for (alias, reason) in [("ua-data", ""), ("ua-full", "enospc")] {
            test.launcher.handle_event(&Event::IoError {
                domain: "ns1_vm1".into(),
                path: String::new(),
                alias: alias.into(),
                action: libvirt::IoAction::Pause,
                reason: reason.into(),
            });
        }
        test.expect_all(&[
            &io_error("IO error at the volume: data"),
            &io_error("not enough space on volume: full"),
        ])
        .await;
    });
}

#[test]
fn a_panic_is_counted_and_reported_once() {
    play(|| async {
        let mut test = TestLauncher::begin();
        test.sync(&vmi()).await.unwrap();
        assert_eq!(test.handler.next().await, "ADDED Running");
        let crashed = |detail| Event::Lifecycle {
            domain: "ns1_vm1".into(),
            event: libvirt::LifecycleEvent::Crashed,
            detail,
        };
        // A crash kernel is loaded and the guest comes back, twice, before it is over.
        for (detail, count) in [(1, 1), (1, 2), (0, 3)] {
            test.launcher.handle_event(&crashed(detail));
            test.expect_all(&[
                "GuestPanicked: GuestPanicked (details unavailable)",
                "MODIFIED Running",
            ])
            .await;
            assert_eq!(test.document().await["Status"]["PanicCount"], count);
        }
        test.launcher.handle_event(&crashed(0));
        test.act(Action::Pause).await.unwrap();
        assert_eq!(test.handler.next().await, "MODIFIED Paused");
        let status = test.document().await["Status"].clone();
        assert_eq!(
            (&status["PanicCount"], &status["GuestPanicInfo"]["Type"]),
            (&json!(3), &json!("unknown"))
        );
    });
}

#[test]
fn events_of_other_domains_are_not_ours() {
    play(|| async {
        let mut test = TestLauncher::begin();
        test.sync(&vmi()).await.unwrap();
        for domain in ["ns1_vm2", "ns1_vm1"] {
            let crashed = Event::Lifecycle {
                domain: domain.into(),
                event: libvirt::LifecycleEvent::Crashed,
                detail: 1,
            };
            test.launcher.handle_event(&crashed);
        }
        test.expect("GuestPanicked: GuestPanicked (details unavailable)")
            .await;
        assert_eq!(test.document().await["Status"]["PanicCount"], 1);
    });
}

#[test]
fn the_present_state_is_sent_again_when_libvirt_is_back() {
    play(|| async {
        let mut test = TestLauncher::begin();
        test.sync(&vmi()).await.unwrap();
        assert_eq!(test.handler.next().await, "ADDED Running");
        test.launcher.reconnected(test.connection.clone());
        assert_eq!(test.handler.next().await, "MODIFIED Running");
    });
}

#[test]
fn a_kill_does_not_wait_for_the_first_reading_of_the_domain() {
    play(|| async {
        let test = TestLauncher::begin();
        // Before the launcher has read anything, as if all reads were hanging already.
        let reads = test.launcher.domain.reads.clone();
        let all = u32::try_from(libvirt_domain::MAX_READS).unwrap();
        let _permits = reads.try_acquire_many_owned(all).unwrap();
        test.act(Action::Kill).await.unwrap();
        assert_eq!(test.launcher.state().borrow().generation, 0);
    });
}

#[test]
// D-vm-9 (docs/differences.md).
fn the_last_state_is_shown_while_libvirt_does_not_answer() {
    play(|| async {
        let mut test = TestLauncher::begin();
        // As if so many reads were hanging already.
        let permits = test
            .launcher
            .domain
            .reads
            .clone()
            .acquire_many_owned(u32::try_from(libvirt_domain::MAX_READS).unwrap())
            .await
            .unwrap();
        assert!(matches!(
            test.launcher.domain().await,
            Err(LauncherError::Slow { .. })
        ));
        drop(permits);
        test.sync(&vmi()).await.unwrap();
        assert_eq!(test.handler.next().await, "ADDED Running");
        let _permits = test
            .launcher
            .domain
            .reads
            .clone()
            .acquire_many_owned(u32::try_from(libvirt_domain::MAX_READS).unwrap())
            .await
            .unwrap();
        test.domain().unwrap().suspend().unwrap();
        assert_eq!(test.document().await["Status"]["Status"], "Running");
        // What is known without libvirt is shown and sent.
        let vm = &test.launcher.vm;
        assert!(vm.change_metadata(metadata::Metadata::shutdown_requested));
        assert_eq!(test.handler.next().await, "MODIFIED Running");
        let document = test.document().await;
        let clock = &document["Spec"]["Metadata"]["KubeVirt"]["GracePeriod"]["DeletionTimestamp"];
        assert!(clock.is_string(), "{document:#}");
    });
}

#[test]
fn a_change_waits_its_turn_and_a_kill_does_not() {
    play(|| async {
        let test = TestLauncher::begin();
        test.sync(&vmi()).await.unwrap();
        let turn = test.launcher.vm.turn().await;
        let mut pause = std::pin::pin!(test.act(Action::Pause));
        assert!(
            timeout(Duration::from_millis(50), &mut pause)
                .await
                .is_err()
        );
        test.act(Action::Kill).await.unwrap();
        assert_eq!(test.state(), State::Shutoff);
        drop(turn);
        pause.await.unwrap();
    });
}

#[test]
// D-vm-6 (docs/differences.md).
fn a_kill_during_a_start_leaves_no_domain() {
    play(|| async {
        let test = TestLauncher::begin();
        let (open, gate) = channel();
        *lock(&test.pod.gate) = Some(gate);
        let launcher = test.launcher.clone();
        let mut state = launcher.state();
        let sync = tokio::spawn(async move {
            let json = Bytes::from(vmi().to_string());
            launcher.sync(json, VirtualMachineOptions::default()).await
        });
        state
            .wait_for(|vm| vm.phase == Phase::Starting)
            .await
            .unwrap();
        test.act(Action::Kill).await.unwrap();
        let error = sync.await.unwrap().unwrap_err();
        assert!(
            matches!(error, LauncherError::Joined(error) if matches!(*error, LauncherError::Killed))
        );
        let _ = open.send(());
        assert!(test.domain().is_none());
        assert_eq!(test.launcher.state().borrow().phase, Phase::Absent);
        test.sync(&vmi()).await.unwrap();
        assert_eq!(test.state(), State::Running);
    });
}

#[cfg(feature = "plugins")]
#[test]
fn a_plugin_that_fails_leaves_no_domain_and_one_that_works_changes_it() {
    play(|| async {
        let test = TestLauncher::begin();
        let with = |expression: &str| {
            let hooks = json!([{"cel": {"expression": expression}}]);
            let plugins = json!([{"metadata": {"name": "p"}, "spec": {"domainHooks": hooks}}]);
            VirtualMachineOptions {
                plugins_json: Bytes::from(plugins.to_string()),
                ..VirtualMachineOptions::default()
            }
        };
        let sync = async |options| {
            test.launcher
                .sync(Bytes::from(vmi().to_string()), options)
                .await
        };
        let error = sync(with("nonsense(")).await.unwrap_err().to_string();
        assert!(error.starts_with("plugin p hook 0 failed"), "{error}");
        assert!(test.domain().is_none());
        sync(with("Domain{Title: \"by a plugin\"}")).await.unwrap();
        let xml = test.domain().unwrap().xml(libvirt::XmlKind::Live).unwrap();
        assert!(xml.contains("<title>by a plugin</title>"), "{xml}");
    });
}
