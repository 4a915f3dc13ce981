//! Launcher hooks of plugins (KubeVirt v1.10): `PreBoot` and `PreMigrationSource`, and everybody
//! killed at each step. No half image is left, and no migration begins after a refusal.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use api::proto::hooks::plugins::launcher_hook_service_server::{
    LauncherHookService, LauncherHookServiceServer,
};
use api::proto::hooks::plugins::{
    GuestDefinitionRequest, GuestDefinitionResponse, MigrationSettings, PreBootRequest,
    PreBootResponse, PreMigrationSourceRequest, PreMigrationSourceResponse,
};
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tonic::{Request, Response, Status};

use crate::faults::{Held, kill, kill_daemon, launch};
use crate::harness::{
    Guest, MigrationProxies, Pod, TEST_TIMEOUT, Vmi, begin, cancel, failed, has_moved, in_pod,
    migratable_pod, migrate, output_of, run, target_pod,
};
use crate::monitor::launcher;
use crate::plugins::sync;
use crate::sidecars::example;

const ISO: &str = "/var/run/kubevirt-ephemeral-disks/cloud-init-data/default";
const GIVEN: &str = "#cloud-config\n# by-virt-handler\n";
const BY_VMI: &[u8] = b"# by-virt-handler";
const BY_PLUGIN: &[u8] = b"# by-this--plugin";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Accept,
    Refuse,
    Hang,
    /// Leaves an NVRAM that is cut off.
    Cut,
}

/// What a plugin does, and was asked.
struct State {
    act: Act,
    boots: Vec<PreBootRequest>,
    settings: Vec<MigrationSettings>,
    /// What it makes of a migration.
    bandwidth: u64,
}

#[derive(Clone)]
struct Hooks {
    root: PathBuf,
    state: Arc<Mutex<State>>,
}

/// A plugin whose server ends with this, like a process.
struct Plugin {
    hooks: Hooks,
    server: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Plugin {
    fn serve(pod: &Pod, act: Act) -> Self {
        let state = State {
            act,
            boots: Vec::new(),
            settings: Vec::new(),
            bandwidth: 0,
        };
        let hooks = Hooks {
            root: pod.root().to_owned(),
            state: Arc::new(Mutex::new(state)),
        };
        let socket = pod.path("/var/run/kubevirt-plugin/p/hook.sock");
        let _ = std::fs::remove_file(&socket);
        let service = LauncherHookServiceServer::new(hooks.clone());
        let (stop, stopped) = oneshot::channel();
        let serve = async move {
            let listener = UnixListener::bind(&socket).unwrap();
            // The launcher may have another user.
            std::fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
            let server = tonic::service::Routes::default().add_service(service);
            let serving = os::grpc::serve(server, listener, std::future::pending());
            tokio::select! {
                _ = serving => {}
                _ = stopped => {}
            }
        };
        // Its tasks and connections end with the runtime.
        let server = std::thread::spawn(|| run(serve));
        until_made(&pod.path("/var/run/kubevirt-plugin/p/hook.sock"));
        Self {
            hooks,
            server: Some((stop, server)),
        }
    }

    fn act(&self, act: Act) {
        self.hooks.state.lock().unwrap().act = act;
    }

    fn boots(&self) -> usize {
        self.hooks.state.lock().unwrap().boots.len()
    }

    fn migrations(&self) -> usize {
        self.hooks.state.lock().unwrap().settings.len()
    }

    fn kill(&mut self) {
        if let Some((stop, server)) = self.server.take() {
            drop(stop);
            server.join().unwrap();
        }
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Hooks {
    async fn act(&self) -> Result<Act, Status> {
        let act = self.state.lock().unwrap().act;
        match act {
            Act::Refuse => Err(Status::failed_precondition("not today")),
            Act::Hang => std::future::pending().await,
            act => Ok(act),
        }
    }
}

#[tonic::async_trait]
impl LauncherHookService for Hooks {
    async fn guest_definition(
        &self,
        request: Request<GuestDefinitionRequest>,
    ) -> Result<Response<GuestDefinitionResponse>, Status> {
        let domain = String::from_utf8_lossy(&request.get_ref().domain)
            .replace("<devices>", "<description>by p</description><devices>");
        Ok(Response::new(GuestDefinitionResponse {
            domain: domain.into(),
        }))
    }

    async fn pre_boot(
        &self,
        request: Request<PreBootRequest>,
    ) -> Result<Response<PreBootResponse>, Status> {
        let request = request.into_inner();
        // A pod that is a container has other paths than this process.
        let path = |path: &str| match path.starts_with(&*self.root.to_string_lossy()) {
            true => PathBuf::from(path),
            false => self.root.join(path.trim_start_matches('/')),
        };
        let (iso, nvram) = (path(&request.cloud_init_iso), path(&request.nvram));
        self.state.lock().unwrap().boots.push(request);
        let act = self.act().await?;
        let image = std::fs::read(&iso).unwrap();
        std::fs::write(&iso, replaced(&image)).unwrap();
        let mut variables = std::fs::read(&nvram).unwrap();
        variables[1000] = 42;
        if act == Act::Cut {
            variables.truncate(4096);
        }
        std::fs::write(&nvram, variables).unwrap();
        Ok(Response::new(PreBootResponse {}))
    }

    async fn pre_migration_source(
        &self,
        request: Request<PreMigrationSourceRequest>,
    ) -> Result<Response<PreMigrationSourceResponse>, Status> {
        let mut settings = request.into_inner().settings.unwrap();
        self.state.lock().unwrap().settings.push(settings.clone());
        self.act().await?;
        settings.bandwidth = self.state.lock().unwrap().bandwidth;
        Ok(Response::new(PreMigrationSourceResponse {
            settings: Some(settings),
        }))
    }
}

/// The image with the plugin's comment, which is as long as that of the VMI.
fn replaced(image: &[u8]) -> Vec<u8> {
    let mut image = image.to_vec();
    let at = image
        .windows(BY_VMI.len())
        .position(|window| window == BY_VMI)
        .unwrap();
    image[at..at + BY_VMI.len()].copy_from_slice(BY_PLUGIN);
    image
}

fn contains(image: &[u8], text: &[u8]) -> bool {
    image.windows(text.len()).any(|window| window == text)
}

/// The plugin `p` at these points.
fn at(points: &[&str], more: Value) -> Value {
    let socket = "/var/run/kubevirt-plugin/p/hook.sock";
    let mut hook = json!({"sidecar": {"socketPath": socket, "permittedHooks": points}});
    for (name, value) in more.as_object().unwrap() {
        hook[name] = value.clone();
    }
    json!([{"metadata": {"name": "p"}, "spec": {"launcherHooks": [hook]}}])
}

/// A paused guest with cloud-init and UEFI.
fn vmi(name: &str, pod: &Pod) -> Vmi {
    Vmi::new(name)
        .with_counter(pod)
        .volume(
            json!({"name": "seed", "cloudInitNoCloud": {"userData": GIVEN}}),
            json!({"name": "seed", "disk": {"bus": "virtio"}}),
        )
        .set("/spec/startStrategy", json!("Paused"))
        .set(
            "/spec/domain/firmware/bootloader",
            json!({"efi": {"secureBoot": false}}),
        )
}

fn iso(pod: &Pod, vmi: &Vmi) -> PathBuf {
    pod.path(&format!("{ISO}/{}/noCloud.iso", vmi.name()))
}

/// The file of the guest's UEFI variables, while the pod runs.
fn nvram(pod: &Pod, vmi: &Vmi) -> PathBuf {
    let dirs = [
        "/var/run/kubevirt-private/libvirt/qemu/nvram",
        "/var/lib/libvirt/qemu/nvram",
    ];
    let file = |dir: &str| pod.inside(&format!("{dir}/{}_VARS.fd", vmi.name()));
    let [session, system] = dirs.map(file);
    if session.exists() { session } else { system }
}

/// Nothing but whole files: no copy for the plugin, no half file beside the guest's.
fn is_clean(pod: &Pod, vmi: &Vmi) {
    let plugin = pod.path("/var/run/kubevirt-plugin/p/hook.sock");
    assert!(!plugin.with_file_name("preboot").exists());
    for file in [iso(pod, vmi), nvram(pod, vmi)] {
        let siblings = std::fs::read_dir(file.parent().unwrap()).into_iter();
        let names: Vec<_> = siblings
            .flatten()
            .map(|it| it.unwrap().file_name())
            .collect();
        let is_left = |name: &&std::ffi::OsString| name.to_string_lossy().contains(".staging");
        assert_eq!(names.iter().find(is_left), None, "{names:?}");
    }
}

#[test]
fn a_plugin_changes_the_cloud_init_image_and_the_nvram_or_nothing() {
    in_pod(async {
        let mut pod = Pod::new();
        let vmi = vmi("preboot", &pod);
        let plugin = Plugin::serve(&pod, Act::Refuse);
        pod.start(&vmi, &[]).await;

        let hooks = at(&["PreBoot"], json!({}));
        let answer = sync(&pod, &vmi, &hooks).await;
        for word in ["plugin p hook 0 failed: PreBoot", "not today"] {
            assert!(answer.message.contains(word), "{}", answer.message);
        }
        assert!(pod.domain().await.is_null() && pod.guests().is_empty());
        assert!(contains(&std::fs::read(iso(&pod, &vmi)).unwrap(), BY_VMI));
        is_clean(&pod, &vmi);

        plugin.act(Act::Cut);
        let answer = sync(&pod, &vmi, &hooks).await;
        let word = "the plugin's NVRAM has 4096 bytes";
        assert!(answer.message.contains(word), "{}", answer.message);
        assert!(contains(&std::fs::read(iso(&pod, &vmi)).unwrap(), BY_VMI));
        is_clean(&pod, &vmi);

        plugin.act(Act::Accept);
        // The hook of another VM, and one for another point, are not called.
        let other = at(&["PreBoot"], json!({"condition": "vmi.Name == 'other'"}));
        let mut list = at(&["GuestDefinition", "PreBoot"], json!({"timeout": "20s"}));
        list.as_array_mut().unwrap().push(other[0].clone());
        let asked = plugin.boots();
        let answer = sync(&pod, &vmi, &list).await;
        assert!(answer.success, "{}\n{}", answer.message, pod.log_tail());
        assert_eq!(plugin.boots() - asked, 1, "one start is one call");
        let request = plugin.hooks.state.lock().unwrap().boots.pop().unwrap();
        assert_eq!(
            serde_json::from_slice::<Value>(&request.vmi).unwrap(),
            *vmi.value()
        );
        assert_eq!(request.sidecar_context.unwrap().invocation_context, "Boot");
        assert!(contains(
            &std::fs::read(iso(&pod, &vmi)).unwrap(),
            BY_PLUGIN
        ));
        assert_eq!(std::fs::read(nvram(&pod, &vmi)).unwrap()[1000], 42);
        assert!(
            pod.live_xml(&vmi)
                .contains("<description>by p</description>")
        );
        is_clean(&pod, &vmi);
    });
}

#[test]
fn a_plugin_that_may_fail_changes_nothing_when_it_does() {
    in_pod(async {
        let mut pod = Pod::new();
        let vmi = vmi("ignored", &pod);
        let mut plugin = Plugin::serve(&pod, Act::Cut);
        pod.start(&vmi, &[]).await;
        let strategy = json!({"failureStrategy": "Ignore"});
        let answer = sync(&pod, &vmi, &at(&["PreBoot"], strategy)).await;
        assert!(answer.success, "{}\n{}", answer.message, pod.log_tail());
        assert_eq!(plugin.boots(), 1);
        assert!(contains(&std::fs::read(iso(&pod, &vmi)).unwrap(), BY_VMI));
        assert_ne!(std::fs::read(nvram(&pod, &vmi)).unwrap()[1000], 42);
        is_clean(&pod, &vmi);
        plugin.kill();
    });
}

/// Both files are whole, old or new.
fn is_whole(pod: &Pod, vmi: &Vmi, template: &Path) {
    let image = std::fs::read(iso(pod, vmi)).unwrap();
    assert!(contains(&image, BY_VMI) != contains(&image, BY_PLUGIN));
    let size = std::fs::metadata(template).unwrap().len();
    if let Ok(variables) = std::fs::read(nvram(pod, vmi)) {
        assert_eq!(variables.len() as u64, size);
    }
}

#[tokio::test]
async fn the_launcher_is_killed_at_each_step_of_a_boot_hook() {
    let mut pod = Pod::new();
    let vmi = vmi("killboot", &pod);
    let mut plugin = Plugin::serve(&pod, Act::Accept);
    pod.handler.serve();
    launch(&mut pod, &vmi, "--libvirt=embed").await;
    let hooks = at(&["PreBoot"], json!({}));
    let template = Path::new("/usr/share/OVMF/OVMF_VARS_4M.fd");
    for point in [
        "preboot.given",
        "preboot.taken",
        "preboot.committing",
        "call",
    ] {
        println!("{point}");
        if point == "call" {
            plugin.act(Act::Hang);
            let asked = plugin.boots();
            let request = crate::plugins::request(&pod, &vmi, &hooks);
            let mut cmd = pod.cmd();
            let call = tokio::spawn(async move { drop(cmd.sync_virtual_machine(request).await) });
            pod.until("called", || plugin.boots() > asked).await;
            pod.kill_launcher().await;
            call.await.unwrap();
            plugin.kill();
            plugin = Plugin::serve(&pod, Act::Accept);
        } else {
            let request = crate::plugins::request(&pod, &vmi, &hooks);
            let mut cmd = pod.cmd();
            let call = async move { drop(cmd.sync_virtual_machine(request).await) };
            let held = Held::during(&mut pod, point, call).await;
            pod.kill_launcher().await;
            held.release().await;
        }
        is_whole(&pod, &vmi, template);
        assert!(pod.guests().is_empty());
        launch(&mut pod, &vmi, "--libvirt=embed").await;
    }
    let answer = sync(&pod, &vmi, &hooks).await;
    assert!(answer.success, "{}\n{}", answer.message, pod.log_tail());
    assert!(contains(
        &std::fs::read(iso(&pod, &vmi)).unwrap(),
        BY_PLUGIN
    ));
    assert_eq!(std::fs::read(nvram(&pod, &vmi)).unwrap()[1000], 42);
    is_clean(&pod, &vmi);
}

#[test]
fn the_plugin_or_the_daemon_is_killed_during_a_boot_hook() {
    in_pod(async {
        let mut pod = Pod::new();
        let vmi = vmi("killpeer", &pod);
        let mut plugin = Plugin::serve(&pod, Act::Hang);
        pod.handler.serve();
        launch(&mut pod, &vmi, "--libvirt=auto").await;
        let hooks = at(&["PreBoot"], json!({}));
        let request = |pod: &Pod| crate::plugins::request(pod, &vmi, &hooks);

        let (mut cmd, call) = (pod.cmd(), request(&pod));
        let call = tokio::spawn(async move { cmd.sync_virtual_machine(call).await });
        pod.until("called", || plugin.boots() == 1).await;
        plugin.kill();
        let answer = call.await.unwrap().unwrap().into_inner();
        let word = "PreBoot on /var/run/kubevirt-plugin/p/hook.sock: the connection broke";
        assert!(answer.message.contains(word), "{}", answer.message);
        assert!(contains(&std::fs::read(iso(&pod, &vmi)).unwrap(), BY_VMI));

        let _plugin = Plugin::serve(&pod, Act::Accept);
        let (mut cmd, call) = (pod.cmd(), request(&pod));
        let call = async move { drop(cmd.sync_virtual_machine(call).await) };
        let held = Held::during(&mut pod, "preboot.taken", call).await;
        kill_daemon(&mut pod, held).await;
        let answer = sync(&pod, &vmi, &hooks).await;
        assert!(answer.success, "{}\n{}", answer.message, pod.log_tail());
        assert!(contains(
            &std::fs::read(iso(&pod, &vmi)).unwrap(),
            BY_PLUGIN
        ));
        is_clean(&pod, &vmi);
    });
}

/// A source whose guest counts, and whose plugin is there.
async fn migratable(name: &str, act: Act, more: &[&str]) -> (Pod, Guest, Vmi, Plugin) {
    let mut source = migratable_pod("source");
    let vmi = Vmi::new(name).with_counter(&source);
    let plugin = Plugin::serve(&source, act);
    source.launch(&vmi, more);
    source.wait_until_ready().await;
    let guest = source.count(&vmi).await;
    (source, guest, vmi, plugin)
}

#[test]
fn a_plugin_changes_or_refuses_a_migration() {
    migrate(async {
        let (mut source, guest, vmi, mut plugin) = migratable("tuned", Act::Refuse, &[]).await;
        let hooks = at(&["PreMigrationSource"], json!({}));
        let answer = sync(&source, &vmi, &hooks).await;
        assert!(answer.success, "{}", answer.message);
        let vmi = vmi.migrating_to("refused");
        let target = target_pod(&source, &vmi, "refused", &[]).await;
        target.sync_target_ok(&vmi).await;
        let proxies = MigrationProxies::new(&source, &target, &vmi);
        begin(&source, &vmi, json!({"AllowPostCopy": true})).await;
        let end = failed(&mut source, &vmi).await;
        let reason = end["FailureReason"].as_str().unwrap();
        for word in ["plugin p hook 0 failed: PreMigrationSource", "not today"] {
            assert!(reason.contains(word), "{reason}");
        }
        assert_eq!(proxies.copied(), 0, "it began after a refusal");
        let settings = plugin.hooks.state.lock().unwrap().settings.remove(0);
        for flag in ["VIR_MIGRATE_LIVE", "VIR_MIGRATE_POSTCOPY"] {
            assert!(settings.flags.iter().any(|it| it == flag), "{settings:?}");
        }
        drop((proxies, target));

        println!("killed in the call");
        plugin.act(Act::Hang);
        let vmi = vmi.migrating_to("killed");
        let target = target_pod(&source, &vmi, "killed", &[]).await;
        target.sync_target_ok(&vmi).await;
        let proxies = MigrationProxies::new(&source, &target, &vmi);
        begin(&source, &vmi, json!({})).await;
        source.until("called", || plugin.migrations() == 1).await;
        plugin.kill();
        let end = failed(&mut source, &vmi).await;
        let reason = end["FailureReason"].as_str().unwrap();
        assert!(reason.contains("the connection broke"), "{reason}");
        assert_eq!(proxies.copied(), 0, "it began without an answer");
        drop((proxies, target));

        println!("libvirt's daemon and the plugin are killed in the call");
        let mut plugin = Plugin::serve(&source, Act::Hang);
        let vmi = vmi.migrating_to("daemon");
        let target = target_pod(&source, &vmi, "daemon", &[]).await;
        target.sync_target_ok(&vmi).await;
        let proxies = MigrationProxies::new(&source, &target, &vmi);
        begin(&source, &vmi, json!({})).await;
        source.until("called", || plugin.migrations() == 1).await;
        kill(&source.libvirt_daemons());
        source.log_has("Reconnected to libvirt").await;
        plugin.kill();
        failed(&mut source, &vmi).await;
        assert_eq!(proxies.copied(), 0, "it began without an answer");
        drop((proxies, target));

        println!("as slow as the plugin wants it");
        let plugin = Plugin::serve(&source, Act::Accept);
        plugin.hooks.state.lock().unwrap().bandwidth = 1;
        let vmi = vmi.migrating_to("slow");
        let target = target_pod(&source, &vmi, "slow", &[]).await;
        target.sync_target_ok(&vmi).await;
        let proxies = MigrationProxies::new(&source, &target, &vmi);
        begin(&source, &vmi, json!({})).await;
        proxies.until_copied(2 << 20).await;
        source.log_has("bandwidth: 0 → 1").await;
        cancel(&source, &vmi).await;
        failed(&mut source, &vmi).await;
        drop((proxies, target));

        println!("cancelled in the call");
        plugin.act(Act::Hang);
        let asked = plugin.migrations();
        let vmi = vmi.migrating_to("cancelled");
        let target = target_pod(&source, &vmi, "cancelled", &[]).await;
        target.sync_target_ok(&vmi).await;
        let proxies = MigrationProxies::new(&source, &target, &vmi);
        begin(&source, &vmi, json!({})).await;
        source.until("called", || plugin.migrations() > asked).await;
        cancel(&source, &vmi).await;
        failed(&mut source, &vmi).await;
        assert_eq!(proxies.copied(), 0, "it began after its end");
        drop((proxies, target));

        println!("without the hook");
        let answer = sync(&source, &vmi, &json!([])).await;
        assert!(answer.success, "{}", answer.message);
        guest.ticks_on().await;
        let vmi = vmi.migrating_to("last");
        let mut target = target_pod(&source, &vmi, "last", &[]).await;
        target.sync_target_ok(&vmi).await;
        let _proxies = MigrationProxies::new(&source, &target, &vmi);
        begin(&source, &vmi, json!({})).await;
        has_moved(&mut source, &guest, &mut target, &vmi).await;
        let mut command = Command::new(env!("CARGO_BIN_EXE_pod-tools"));
        command.args(["launcherctl", "launcher", "metrics", "--root"]);
        command.arg(source.root());
        let metrics = String::from_utf8(output_of(command).await.stdout).unwrap();
        for line in [
            r#"virt_launcher_migrations_total{result="success"} 1"#,
            r#"virt_launcher_migrations_total{result="failure"} 5"#,
        ] {
            assert!(metrics.contains(line), "{metrics}");
        }
    });
}

#[test]
fn the_launcher_is_killed_while_a_plugin_decides_on_a_migration() {
    migrate(async {
        let more = &["--restart-launcher"];
        let (mut source, guest, vmi, plugin) = migratable("decides", Act::Hang, more).await;
        let hooks = at(&["PreMigrationSource"], json!({}));
        let answer = sync(&source, &vmi, &hooks).await;
        assert!(answer.success, "{}", answer.message);
        let first = vmi.clone().migrating_to("first");
        let target = target_pod(&source, &first, "first", &[]).await;
        target.sync_target_ok(&first).await;
        let proxies = MigrationProxies::new(&source, &target, &first);
        begin(&source, &first, json!({})).await;
        source.until("called", || plugin.migrations() == 1).await;
        let killed = launcher(&source);
        kill(&[killed]);
        let has_ended = || !Path::new(&format!("/proc/{killed}")).exists();
        source.until("the launcher has ended", has_ended).await;
        source.wait_until_ready().await;
        failed(&mut source, &first).await;
        assert_eq!(proxies.copied(), 0, "it began without an answer");
        drop((proxies, target));

        // The new launcher has not been synced, and knows the plugin.
        plugin.act(Act::Refuse);
        let second = vmi.migrating_to("second");
        let target = target_pod(&source, &second, "second", &[]).await;
        target.sync_target_ok(&second).await;
        let proxies = MigrationProxies::new(&source, &target, &second);
        begin(&source, &second, json!({})).await;
        let end = failed(&mut source, &second).await;
        let reason = end["FailureReason"].as_str().unwrap();
        assert!(reason.contains("not today"), "{reason}");
        assert_eq!(proxies.copied(), 0, "it began after a refusal");
        guest.ticks_on().await;
    });
}

/// Waits for a plugin's socket.
fn until_made(socket: &Path) {
    let end = Instant::now() + TEST_TIMEOUT;
    while !socket.exists() {
        assert!(Instant::now() < end, "{} is not made", socket.display());
        std::thread::yield_now();
    }
}

/// A process of an example; it ends with the test.
struct Example(std::process::Child);

impl Example {
    fn start(pod: &Pod, plugin: &str, command: &mut Command) -> Self {
        let socket = pod.path(&format!("/var/run/kubevirt-plugin/{plugin}/hook.sock"));
        let child = command.arg(socket.parent().unwrap()).spawn().unwrap();
        until_made(&socket);
        std::fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
        Self(child)
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn the_python_example_adds_a_network_configuration() {
    let mut pod = Pod::new();
    let stubs = tempfile::tempdir().unwrap();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = |option: &str| format!("--{option}={}", stubs.path().display());
    let compiled = Command::new("/usr/bin/python3")
        .args(["-m", "grpc_tools.protoc", "-I"])
        .arg(repository.join("proto"))
        .args([out("python_out"), out("grpc_python_out")])
        .arg("hooks_plugins.proto")
        .status();
    assert!(compiled.unwrap().success());
    let mut command = Command::new("/usr/bin/python3");
    let script = repository.join("examples/plugins/network-python/network.py");
    command.arg(script).env("PYTHONPATH", stubs.path());
    let _plugin = Example::start(&pod, "network", &mut command);
    let vmi = vmi("network", &pod);
    pod.start(&vmi, &["--libvirt=embed"]).await;
    let socket = "/var/run/kubevirt-plugin/network/hook.sock";
    let hook = json!({"sidecar": {"socketPath": socket, "permittedHooks": ["PreBoot"]}});
    let list = json!([{"metadata": {"name": "network"}, "spec": {"launcherHooks": [hook]}}]);
    let answer = sync(&pod, &vmi, &list).await;
    assert!(answer.success, "{}\n{}", answer.message, pod.log_tail());
    let image = std::fs::read(iso(&pod, &vmi)).unwrap();
    assert!(contains(&image, b"network-config") && contains(&image, b"mtu: 1400"));
}

#[test]
fn the_rust_example_migrates_over_several_connections() {
    migrate(async {
        let mut source = migratable_pod("source");
        let vmi = Vmi::new("multifd").with_counter(&source);
        let vmi = vmi.set("/metadata/labels", json!({"storage": "remote"}));
        let mut program = Command::new(example("plugin_multifd"));
        let _plugin = Example::start(&source, "multifd", &mut program);
        source.launch(&vmi, &[]);
        source.wait_until_ready().await;
        let points = ["GuestDefinition", "PreMigrationSource"];
        let socket = "/var/run/kubevirt-plugin/multifd/hook.sock";
        let hook = json!({"sidecar": {"socketPath": socket, "permittedHooks": points}});
        let list = json!([{"metadata": {"name": "multifd"}, "spec": {"launcherHooks": [hook]}}]);
        let answer = sync(&source, &vmi, &list).await;
        assert!(answer.success, "{}\n{}", answer.message, source.log_tail());
        assert!(source.live_xml(&vmi).contains("<watchdog model='i6300esb'"));
        let guest = source.guest(&vmi).await;
        guest.ticks_on().await;

        let frozen = vmi.clone().migrating_to("frozen");
        let frozen = frozen.set("/metadata/labels", json!({"storage": "frozen"}));
        let target = target_pod(&source, &frozen, "frozen", &[]).await;
        target.sync_target_ok(&frozen).await;
        let proxies = MigrationProxies::new(&source, &target, &frozen);
        begin(&source, &frozen, json!({})).await;
        let end = failed(&mut source, &frozen).await;
        let reason = end["FailureReason"].as_str().unwrap();
        assert!(reason.contains("its storage must not move"), "{reason}");
        drop((proxies, target));

        let vmi = vmi.migrating_to("target");
        let mut target = target_pod(&source, &vmi, "target", &[]).await;
        target.sync_target_ok(&vmi).await;
        let _proxies = MigrationProxies::new(&source, &target, &vmi);
        begin(&source, &vmi, json!({})).await;
        has_moved(&mut source, &guest, &mut target, &vmi).await;
        source.log_has("parallelConnections: 0 → 4").await;
    });
}
