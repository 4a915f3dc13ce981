//! The domain manager on libvirt's test driver, with a fake pod and a fake virt-handler.

mod life;
mod start;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::notify::Notifier;
use crate::notify::tests::Handler;
use ::pod::LauncherFlags;
use api::Action;
use api::proto::cmd::v1::VirtualMachineOptions;
use api::vmi::Vmi;
use convert::context::{DiskModes, HostDeviceSpec};
use convert::{Context, ConvertError};
use domain::DomainSpec;
use hooks::Sidecars;
use libvirt::{
    ChangeableDomain, Connection, DomainState, Event, MayChange, PausedReason, Registration,
    start_event_loop,
};
use os::lock::lock;
use prost::bytes::Bytes;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A limit that only a failure reaches.
const SOON: Duration = Duration::from_secs(30);

/// A pod that has everything; the test sets the conversion's result.
#[derive(Default)]
pub(crate) struct FakePod {
    flags: LauncherFlags,
    /// Given to libvirt in place of the right element.
    os: Mutex<Option<&'static str>>,
    refusal: Mutex<Option<&'static str>>,
    /// Given to libvirt in place of the right name.
    name: Mutex<Option<&'static str>>,
    /// The context of the conversion.
    context: Mutex<Context>,
    pub conversions: AtomicUsize,
    /// How often the devices to plug in were asked for.
    pub hotplugs: AtomicUsize,
    prepared: AtomicUsize,
    /// A start waits for it before it prepares anything.
    gate: Mutex<Option<Receiver<()>>>,
    /// Likewise between the definition and the start of a domain with tagged devices.
    defined_gate: Mutex<Option<Receiver<()>>>,
    /// Domains whose device metadata was written, and whether writing fails.
    device_metadata: Mutex<Vec<String>>,
    device_metadata_fails: AtomicBool,
}

impl pod_backend::PodBackend for FakePod {
    fn flags(&self) -> &LauncherFlags {
        &self.flags
    }
    fn collect_and_convert(
        &self,
        vmi: &Vmi,
        options: &VirtualMachineOptions,
        _: pod_backend::ConvertFor,
    ) -> Result<(DomainSpec, Context), LauncherError> {
        self.conversions.fetch_add(1, Ordering::Relaxed);
        let cpu = vmi.spec.domain.cpu.as_ref();
        if cpu.is_some_and(|cpu| cpu.dedicated_cpu_placement) && options.topology.is_none() {
            return Err(ConvertError::new("spec.domain.cpu", "no topology").into());
        }
        if let Some(reason) = *lock(&self.refusal) {
            return Err(ConvertError::new("spec.domain", reason).into());
        }
        let os = lock(&self.os).unwrap_or("<os><type>hvm</type></os>");
        let name = lock(&self.name).map_or_else(|| vmi.domain_name(), String::from);
        let xml = format!(
            "<domain type='test'><name>{name}</name><memory unit='KiB'>8192</memory>{os}<features><acpi/></features></domain>"
        );
        let context = lock(&self.context).clone();
        Ok((DomainSpec::from_xml(&xml).unwrap(), context))
    }
    fn hotplug_devices(&self, _: &Vmi) -> Result<Vec<HostDeviceSpec>, LauncherError> {
        self.hotplugs.fetch_add(1, Ordering::Relaxed);
        Ok(Vec::new())
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
            let error = serde_json::from_str::<u8>("no").unwrap_err();
            return Err(LauncherError::CloudInit(error));
        }
        lock(&self.device_metadata).push(format!("{} {cloud_init}", defined.name));
        if let Some(gate) = lock(&self.defined_gate).take() {
            gate.recv().unwrap();
        }
        Ok(())
    }
    fn prepare(
        &self,
        _: &Vmi,
        _: &Context,
        _: Option<Value>,
        _: pod_backend::ConvertFor,
    ) -> Result<(), LauncherError> {
        if let Some(gate) = lock(&self.gate).take() {
            gate.recv().unwrap();
        }
        self.prepared.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    fn open_for_migration(&self, _: &Vmi) -> Result<(), LauncherError> {
        Ok(())
    }
    fn resolve_disk_modes(&self, _: &mut DomainSpec) -> Result<DiskModes, ConvertError> {
        Ok(DiskModes::default())
    }
}

/// A launcher, its peers, and handles for the test.
pub(crate) struct TestLauncher {
    pub launcher: Arc<Launcher>,
    pub pod: Arc<FakePod>,
    connection: Connection,
    pub handler: Handler,
    _events: Registration,
    /// The pod's root.
    dir: tempfile::TempDir,
}

impl TestLauncher {
    pub fn begin() -> Self {
        Self::with(|_| {})
    }

    /// libvirt has its domain, which has never run.
    pub fn defined() -> Self {
        Self::with(|connection| {
            let xml = "<domain type='test'><name>ns1_vm1</name><memory>8192</memory><os><type>hvm</type></os></domain>";
            connection.define(&Others, xml).unwrap();
        })
    }

    /// A start of the defined domain that succeeds before anything else runs. It is in progress
    /// until the result is dropped.
    pub fn start_at_once(&self) -> impl Sized + use<> {
        let start = self.launcher.vm.begin(JobKind::Start).unwrap();
        self.launcher.vm.defined();
        self.domain().unwrap().start(false).unwrap();
        self.launcher.vm.started(false, false);
        start
    }

    /// After the sync of [`vmi`].
    async fn synced() -> Self {
        let test = Self::begin();
        test.sync(&vmi()).await.unwrap();
        test
    }

    /// Also after the event of its start.
    pub(crate) async fn running() -> Self {
        let mut test = Self::synced().await;
        assert_eq!(test.handler.next().await, "ADDED Running");
        test
    }

    /// `before` gets the connection before the launcher does.
    fn with(before: impl FnOnce(&Connection)) -> Self {
        start_event_loop().unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("node.xml"), "<node/>").unwrap();
        let connection =
            Connection::open(&format!("test://{}/node.xml", dir.path().display())).unwrap();
        before(&connection);
        Self::below(dir, connection)
    }

    /// The launcher that comes after this one in its pod.
    fn next(self) -> Self {
        drop((self._events, self.handler, self.launcher));
        Self::below(self.dir, self.connection)
    }

    /// In a pod with this root.
    fn below(dir: tempfile::TempDir, connection: Connection) -> Self {
        let flags = LauncherFlags {
            root: ::pod::Root::new(dir.path()),
            name: "vm1".into(),
            namespace: "ns1".into(),
            uid: "u-1".into(),
            vm_stats_collector: true,
            ..LauncherFlags::default()
        };
        std::fs::create_dir_all(flags.root.path(api::pod_paths::PRIVATE_DIR)).unwrap();
        let socket = dir.path().join(api::pod_paths::NOTIFY_SOCKET);
        let handler = Handler::polite(&socket);
        let (notifier, task) = Notifier::new(socket, dir.path().join("k8s-events"), "u-1");
        tokio::spawn(task);
        let config = LauncherConfig {
            flags: flags.clone(),
            qemu_log: None,
            qemu_pid_file: std::path::PathBuf::new(),
            tpm_dir: std::path::PathBuf::new(),
            pod_name: "target".into(),
            restarts: None,
            timeline: Timeline::begin(),
        };
        let pod = Arc::new(FakePod {
            flags,
            ..FakePod::default()
        });
        let (libvirt, sidecars) = (connection.clone(), Sidecars::none());
        let launcher = Launcher::with_pod(config, libvirt, sidecars, notifier, pod.clone());
        let sink = launcher.clone();
        let events = connection.events(move |event| sink.handle_event(&event));
        launcher.refresh();
        Self {
            launcher,
            pod,
            connection,
            handler,
            _events: events.unwrap(),
            dir,
        }
    }

    pub async fn sync(&self, vmi: &Value) -> Result<(), LauncherError> {
        self.launcher.syncs.sync(request(vmi)).await
    }

    async fn act(&self, action: Action) -> Result<(), LauncherError> {
        let vmi = request(&vmi()).vmi;
        self.launcher.requests.act(action, &vmi).await
    }

    pub fn domain(&self) -> Option<ChangeableDomain> {
        let domain = self.connection.lookup("ns1_vm1").unwrap();
        domain.map(|domain| domain.changeable(&Others))
    }

    pub fn state(&self) -> DomainState {
        self.domain().unwrap().state().unwrap()
    }

    /// The document that virt-handler gets.
    async fn document(&self) -> Value {
        let document = self.launcher.reads.domain().await.unwrap();
        let json = document.expect("there is no domain").to_json().unwrap();
        serde_json::from_str(&json).unwrap()
    }

    /// Its part on the end of the guest.
    async fn grace_period(&self) -> Value {
        self.document().await["Spec"]["Metadata"]["KubeVirt"]["GracePeriod"].take()
    }

    /// The domain is gone. This driver does not know the flags of our delete.
    fn undefine(&self) {
        let domain = self.domain().unwrap();
        domain.undefine(libvirt::Undefine::Plain).unwrap();
    }

    /// All reads of libvirt hang until this is dropped.
    async fn hanging_reads(&self) -> tokio::sync::OwnedSemaphorePermit {
        let reads = self.launcher.libvirt.reads.clone();
        let all = u32::try_from(libvirt_domain::MAX_READS).unwrap();
        reads.acquire_many_owned(all).await.unwrap()
    }

    /// A start that goes on once something is sent, and the sync that began it.
    async fn held_start(&self) -> (Sender<()>, JoinHandle<Result<(), LauncherError>>) {
        let (open, gate) = channel();
        *lock(&self.pod.gate) = Some(gate);
        let launcher = self.launcher.clone();
        let mut state = launcher.vm.subscribe();
        let sync = tokio::spawn(async move { launcher.syncs.sync(request(&vmi())).await });
        state.wait_for(|vm| vm.phase.is_starting()).await.unwrap();
        (open, sync)
    }

    /// Reads virt-handler's events up to this one.
    async fn expect(&mut self, what: &str) {
        while self.handler.next().await != what {}
    }

    /// Reads events up to all of these, in any order: a waiting state may replace a later one.
    async fn expect_all(&mut self, what: &[&str]) {
        let mut missing = what.to_vec();
        while !missing.is_empty() {
            let event = self.handler.next().await;
            missing.retain(|text| *text != event);
        }
    }
}

/// Whoever else changes the domain.
struct Others;

impl MayChange for Others {}

/// A request for the domain of this VMI, without options.
fn request(vmi: &Value) -> SyncRequest {
    SyncRequest {
        vmi: Arc::new(serde_json::from_value(vmi.clone()).unwrap()),
        vmi_json: Bytes::from(vmi.to_string()),
        options: Arc::default(),
        plugins: hooks::plugins::Pipeline::default(),
        id: hooks::RequestId::unique(),
        hooks_deadline: os::time::deadline(SOON),
    }
}

/// Of an architecture without PCI ports, which the test driver does not know.
pub(crate) fn vmi() -> Value {
    json!({"metadata": {"name": "vm1", "namespace": "ns1", "uid": "u-1"},
        "spec": {"architecture": "s390x", "terminationGracePeriodSeconds": 7}, "status": {"phase": "Scheduled"}})
}

fn with_phase(phase: &str) -> Value {
    let mut vmi = vmi();
    vmi["status"]["phase"] = json!(phase);
    vmi
}

pub(crate) fn play<F: Future<Output = ()>>(test: impl FnOnce() -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { timeout(SOON, test()).await.expect("it takes too long") });
    runtime.shutdown_background();
}
