//! A launcher that records its calls, and its server.

use super::*;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("No valid vmi object present in command server request")]
    Vmi,
    #[error("LibvirtError(Code=1, Domain=10, Message='internal error: no')")]
    Libvirt,
    #[error("disk \"data\"")]
    Disk(#[source] std::io::Error),
}

/// Records its calls, and fails where a test says so.
#[derive(Default)]
pub struct Stub {
    pub asked: Mutex<Vec<String>>,
    pub failure: Mutex<Option<Failure>>,
    pub domain: Mutex<Option<Domain>>,
    pub migration: Mutex<Vec<MigrationEvent>>,
    pub vm_stats_are_off: AtomicBool,
}

impl Stub {
    fn asked(&self, what: String) -> Result<(), Failure> {
        self.asked.lock().unwrap().push(what);
        self.failure.lock().unwrap().take().map_or(Ok(()), Err)
    }
}

impl LauncherApi for Stub {
    type Error = Failure;

    async fn sync(
        self: &Arc<Self>,
        vmi_json: Bytes,
        options: VirtualMachineOptions,
    ) -> Result<(), Failure> {
        self.asked(format!(
            "sync {} {}",
            String::from_utf8_lossy(&vmi_json),
            options.mem_balloon_stats_period
        ))
    }
    async fn dry_run(self: &Arc<Self>, vmi_json: Bytes) -> Result<Value, Failure> {
        self.asked(format!("preview {}", String::from_utf8_lossy(&vmi_json)))?;
        Ok(serde_json::json!({"steps": []}))
    }
    async fn act(self: &Arc<Self>, action: Action, vmi_json: Bytes) -> Result<(), Failure> {
        if vmi_json.is_empty() {
            Err(Failure::Vmi)
        } else {
            self.asked(format!("{action:?}"))
        }
    }
    async fn domain(self: &Arc<Self>) -> Result<Option<Arc<Domain>>, Failure> {
        self.asked("domain".into())?;
        Ok(self.domain.lock().unwrap().clone().map(Arc::new))
    }
    async fn guest_info(self: &Arc<Self>) -> GuestAgentInfo {
        GuestAgentInfo::default()
    }
    async fn exec(self: &Arc<Self>, command: GuestCommand) -> Result<GuestOutput, Failure> {
        self.asked(format!("{command:?}"))?;
        Ok(GuestOutput {
            exit_code: 3,
            stdout: "hi".to_owned(),
        })
    }
    async fn guest_ping(self: &Arc<Self>, domain: &str, timeout: Duration) -> Result<(), Failure> {
        self.asked(format!("ping {domain} {timeout:?}"))
    }
    async fn freeze(self: &Arc<Self>, _: Bytes, thaw_after: Duration) -> Result<(), Failure> {
        self.asked(format!("freeze {thaw_after:?}"))
    }
    async fn unfreeze(self: &Arc<Self>, _: Bytes) -> Result<(), Failure> {
        self.asked("unfreeze".into())
    }
    async fn dump_memory(self: &Arc<Self>, _: Bytes, path: &str) -> Result<(), Failure> {
        self.asked(format!("dump {path}"))
    }
    async fn migrate(self: &Arc<Self>, _: Bytes, options: Bytes) -> Result<(), Failure> {
        self.asked(format!("migrate {}", String::from_utf8_lossy(&options)))
    }
    async fn cancel_migration(self: &Arc<Self>, _: Bytes) -> Result<(), Failure> {
        self.asked("cancel migration".into())
    }
    async fn backup(self: &Arc<Self>, _: Bytes, options: Bytes) -> Result<(), Failure> {
        self.asked(format!("backup {}", String::from_utf8_lossy(&options)))
    }
    async fn redefine_checkpoint(
        self: &Arc<Self>,
        _: Bytes,
        checkpoint: Bytes,
    ) -> Result<(), Failure> {
        let checkpoint = String::from_utf8_lossy(&checkpoint);
        self.asked(format!("checkpoint {checkpoint}"))
    }
    fn is_checkpoint_invalid(error: &Failure) -> bool {
        matches!(error, Failure::Libvirt)
    }
    async fn sync_cpus(
        self: &Arc<Self>,
        _: Bytes,
        _: VirtualMachineOptions,
    ) -> Result<(), Failure> {
        self.asked("cpus".into())
    }
    async fn hotplug_host_devices(
        self: &Arc<Self>,
        _: Bytes,
        _: VirtualMachineOptions,
    ) -> Result<(), Failure> {
        self.asked("host devices".into())
    }
    async fn sync_memory(self: &Arc<Self>, _: Bytes) -> Result<(), Failure> {
        self.asked("memory".into())
    }
    async fn sync_migration_target(
        self: &Arc<Self>,
        _: Bytes,
        _: VirtualMachineOptions,
    ) -> Result<(), Failure> {
        self.asked("migration target".into())
    }
    async fn finalize_migration(
        self: &Arc<Self>,
        _: Bytes,
        options: VirtualMachineOptions,
    ) -> Result<(), Failure> {
        self.asked(format!("finalize {:?}", options.interface_migration.keys()))
    }
    fn signal_target_cleanup(&self, vmi_json: &[u8]) -> Result<(), Failure> {
        self.asked(format!("cleanup {}", String::from_utf8_lossy(vmi_json)))
    }
    async fn hand_over(self: &Arc<Self>, path: PathBuf) -> Result<(), Failure> {
        self.asked(format!("hand over to {}", path.display()))
    }
    async fn sev_info(self: &Arc<Self>) -> Result<String, Failure> {
        self.asked("sev".into()).map(|()| "{}".into())
    }
    async fn launch_measurement(self: &Arc<Self>, _: Bytes) -> Result<String, Failure> {
        self.asked("measurement".into()).map(|()| "{}".into())
    }
    async fn inject_launch_secret(
        self: &Arc<Self>,
        _: Bytes,
        options: Bytes,
    ) -> Result<(), Failure> {
        self.asked(format!("secret {}", String::from_utf8_lossy(&options)))
    }
    async fn domain_stats(self: &Arc<Self>) -> Result<DomainStats, Failure> {
        self.asked("stats".into())?;
        Ok(DomainStats {
            name: "ns1_vm1".into(),
            ..DomainStats::default()
        })
    }
    async fn dirty_rate(self: &Arc<Self>) -> Result<i64, Failure> {
        self.asked("dirty rate".into()).map(|()| 7)
    }
    async fn agent_data(self: &Arc<Self>, command: AgentCommand) -> Result<String, Failure> {
        self.asked(command.name().into())?;
        Ok(r#"{"return":{}}"#.into())
    }
    fn guest_agent_version(&self) -> String {
        "9.2.0".into()
    }
    fn collects_vm_stats(&self) -> bool {
        !self.vm_stats_are_off.load(Ordering::Relaxed)
    }
    async fn screenshot(self: &Arc<Self>) -> Result<Screenshot, Failure> {
        self.asked("screenshot".into())?;
        Ok(Screenshot {
            mime: "image/png".to_owned(),
            data: vec![0x89, b'P'],
        })
    }
    async fn qemu_version(self: &Arc<Self>) -> Result<String, Failure> {
        self.asked("version".into()).map(|()| "10.0.2".into())
    }
    fn last_sync(&self) -> LastSyncResponse {
        LastSyncResponse {
            vmi_json: r#"{"metadata":{"name":"vm1"}}"#.into(),
            options: Bytes::default(),
        }
    }
    async fn debug(self: &Arc<Self>) -> DebugResponse {
        DebugResponse::default()
    }
    async fn domain_after(self: &Arc<Self>, generation: u64) -> (u64, Option<Arc<Domain>>) {
        match generation {
            0 => (1, None),
            1 => (2, self.domain.lock().unwrap().clone().map(Arc::new)),
            _ => std::future::pending().await,
        }
    }
    fn setup(&self) -> SetupResponse {
        SetupResponse {
            root: "/".into(),
            ..SetupResponse::default()
        }
    }
    fn has_migrated(&self) -> bool {
        !self.migration.lock().unwrap().is_empty()
    }
    async fn migration_events(self: &Arc<Self>, after: u64) -> (u64, Vec<MigrationEvent>) {
        let all = self.migration.lock().unwrap().clone();
        (
            all.len() as u64,
            all.into_iter().skip(after as usize).collect(),
        )
    }
    fn timeline(&self) -> TimelineResponse {
        let step = Step {
            name: "define".into(),
            began_micros: 1,
            took_micros: Some(2),
            part: "domain".into(),
        };
        TimelineResponse {
            steps: vec![step],
            ..TimelineResponse::default()
        }
    }
}

pub fn with_server<F: Future<Output = ()>>(test: impl FnOnce(Arc<Stub>, Channel) -> F) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("launcher-sock");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let stub = Arc::new(Stub::default());
        let listener = UnixListener::bind(&socket).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(serve(listener, stub.clone(), Arc::default(), async {
            stopped.await.unwrap()
        }));
        test(stub, os::grpc::connect(&socket).await.unwrap()).await;
        stop.send(()).unwrap();
        server.await.unwrap().unwrap();
    });
}
