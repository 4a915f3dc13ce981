//! Launcher hooks of plugins (KubeVirt v1.10): which are called, in which order, and with what.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::proto::hooks::plugins::launcher_hook_service_server::{
    LauncherHookService, LauncherHookServiceServer,
};
use api::proto::hooks::plugins::{
    GuestDefinitionRequest, GuestDefinitionResponse, MigrationSettings, PreBootRequest,
    PreBootResponse, PreMigrationSourceRequest, PreMigrationSourceResponse,
};
use hooks::plugins::{
    BootFile, BootFileKind, InvocationContext, LauncherHookPoint, Pipeline, PluginError,
};
use os::logging::chain;
use prost::bytes::Bytes;
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

const XML: &str = "<domain type=\"kvm\"><name>ns_vm</name></domain>";

/// Adds to the bandwidth, and its name to the domain; keeps who was called.
#[derive(Clone)]
struct Plugin {
    name: String,
    adds: u64,
    called: Arc<Mutex<Vec<String>>>,
}

impl Plugin {
    fn call(&self, method: &str) {
        let call = format!("{} {method}", self.name);
        self.called.lock().unwrap().push(call);
    }
}

#[tonic::async_trait]
impl LauncherHookService for Plugin {
    async fn guest_definition(
        &self,
        request: Request<GuestDefinitionRequest>,
    ) -> Result<Response<GuestDefinitionResponse>, Status> {
        self.call("GuestDefinition");
        let domain = String::from_utf8_lossy(&request.get_ref().domain)
            .replace("</domain>", &format!("<{}></{0}></domain>", self.name));
        Ok(Response::new(GuestDefinitionResponse {
            domain: domain.into(),
        }))
    }

    async fn pre_boot(
        &self,
        request: Request<PreBootRequest>,
    ) -> Result<Response<PreBootResponse>, Status> {
        self.call("PreBoot");
        let nvram = &request.get_ref().nvram;
        if !nvram.is_empty() {
            let mut content = std::fs::read(nvram).unwrap();
            *content.last_mut().unwrap() += 1;
            std::fs::write(nvram, content).unwrap();
        }
        Ok(Response::new(PreBootResponse {}))
    }

    async fn pre_migration_source(
        &self,
        request: Request<PreMigrationSourceRequest>,
    ) -> Result<Response<PreMigrationSourceResponse>, Status> {
        self.call("PreMigrationSource");
        let mut settings = request.into_inner().settings.unwrap();
        match self.adds {
            0 => return Err(Status::aborted("no")),
            adds => settings.bandwidth += adds,
        }
        Ok(Response::new(PreMigrationSourceResponse {
            settings: Some(settings),
        }))
    }
}

/// A pod with the plugins `a`, which adds 1, `b`, which adds 10, `c`, which refuses, and `1`, whose
/// element no XML may have.
struct Pod {
    root: tempfile::TempDir,
    called: Arc<Mutex<Vec<String>>>,
}

impl Pod {
    fn new() -> Self {
        let pod = Self {
            root: tempfile::tempdir().unwrap(),
            called: Arc::default(),
        };
        for (name, adds) in [("a", 1), ("b", 10), ("c", 0), ("1", 1)] {
            let plugin = Plugin {
                name: name.to_owned(),
                adds,
                called: Arc::clone(&pod.called),
            };
            let socket = pod.socket(name);
            std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
            let listener = UnixListener::bind(socket).unwrap();
            let server = tonic::service::Routes::default()
                .add_service(LauncherHookServiceServer::new(plugin));
            tokio::spawn(os::grpc::serve(server, listener, std::future::pending()));
        }
        pod
    }

    fn socket(&self, plugin: &str) -> PathBuf {
        let path = format!("var/run/kubevirt-plugin/{plugin}/s");
        self.root.path().join(path)
    }

    fn pipeline(&self, plugins: Value) -> Pipeline {
        let list = plugins.to_string();
        let pipeline = Pipeline::from_json(list.as_bytes()).unwrap();
        pipeline.rooted(self.root.path().to_owned())
    }

    async fn bandwidth(&self, plugins: Value) -> Result<u64, PluginError> {
        let settings = MigrationSettings {
            flags: vec!["VIR_MIGRATE_LIVE".into()],
            ..MigrationSettings::default()
        };
        let (xml, vmi) = (XML.to_owned(), Bytes::from_static(b"{}"));
        let pipeline = self.pipeline(plugins);
        let changed = pipeline.pre_migration_source(settings, xml, &vmi, later());
        Ok(changed.await?.bandwidth)
    }

    async fn define(&self, plugins: Value) -> String {
        self.defined(plugins).await.unwrap()
    }

    async fn defined(&self, plugins: Value) -> Result<String, PluginError> {
        let (xml, vmi) = (XML.to_owned(), Bytes::from_static(b"{}"));
        let context = InvocationContext::Boot;
        let pipeline = self.pipeline(plugins);
        let applied = pipeline.apply(xml, &vmi, context, later()).await;
        Ok(applied?.xml)
    }

    fn called(&self) -> Vec<String> {
        std::mem::take(&mut self.called.lock().unwrap())
    }
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn plugin(name: &str, points: &[&str], strategy: &str) -> Value {
    let socket = format!("/var/run/kubevirt-plugin/{name}/s");
    let sidecar = json!({"socketPath": socket, "permittedHooks": points});
    let hook = json!({"sidecar": sidecar, "failureStrategy": strategy});
    json!({"metadata": {"name": name}, "spec": {"launcherHooks": [hook]}})
}

#[tokio::test]
async fn an_answer_that_is_refused_is_named_with_its_point() {
    let definition = plugin("1", &["GuestDefinition"], "");
    let error = Pod::new().defined(json!([definition])).await.unwrap_err();
    let error = chain(&error);
    assert!(
        error.starts_with("plugin 1 hook 0 failed: GuestDefinition: "),
        "{error}"
    );
}

const MIGRATION: &[&str] = &["PreMigrationSource"];

#[tokio::test]
async fn plugins_change_a_migration_one_after_the_other_and_a_refusal_ends_it() {
    let pod = Pod::new();
    let (a, b) = (plugin("a", MIGRATION, ""), plugin("b", MIGRATION, ""));
    let both = pod.bandwidth(json!([b, a])).await.unwrap();
    assert_eq!(both, 11);
    let called = pod.called();
    assert_eq!(called, ["a PreMigrationSource", "b PreMigrationSource"]);

    let refused = json!([a, plugin("c", MIGRATION, ""), plugin("d", MIGRATION, "")]);
    let error = chain(&pod.bandwidth(refused).await.unwrap_err());
    assert!(
        error.starts_with("plugin c hook 0 failed: PreMigrationSource on ")
            && error.contains("Aborted: no"),
        "{error}"
    );
    let ignored = json!([a, plugin("c", MIGRATION, "Ignore"), b]);
    assert_eq!(pod.bandwidth(ignored).await.unwrap(), 11);
}

#[tokio::test]
async fn a_hook_is_called_at_its_points_only_and_unknown_ones_never() {
    let pod = Pod::new();
    let list = json!([
        plugin("a", &["GuestDefinition", "FromTheFuture"], ""),
        plugin("b", &["PreBoot"], ""),
        {"metadata": {"name": "e"}, "spec": {"launcherHooks": [
            {"cel": {"hookPoint": "PreBoot", "expression": "1"}},
            {"cel": {"expression": "1"}},
            {"sidecar": {"socketPath": "/nowhere", "permittedHooks": null}},
            {},
        ]}},
    ]);
    assert!(pod.define(list.clone()).await.contains("<a></a>"));
    assert_eq!(pod.called(), ["a GuestDefinition"]);
    let pipeline = pod.pipeline(list.clone());
    let vmi = Bytes::from_static(b"{}");
    let changed = pipeline.pre_boot(Vec::new(), XML.to_owned(), &vmi, later());
    assert!(changed.await.unwrap().is_empty());
    assert_eq!(pod.called(), ["b PreBoot"]);
    assert!(!pipeline.has(LauncherHookPoint::PreMigrationSource) && pipeline.json().is_empty());
    assert_eq!(pod.bandwidth(list).await.unwrap(), 0);
    assert!(pod.called().is_empty());
}

#[tokio::test]
async fn a_list_of_v1_9_reaches_no_launcher_hook() {
    let pod = Pod::new();
    let points = json!(["GuestDefinition", "PreBoot", "PreMigrationSource"]);
    let socket = "/var/run/kubevirt-plugin/a/s";
    let sidecar = json!({"socketPath": socket, "permittedHooks": points});
    let hook = json!({"sidecar": sidecar, "failureStrategy": "Ignore"});
    let list = json!([{"metadata": {"name": "a"}, "spec": {"domainHooks": [hook]}}]);
    let pipeline = pod.pipeline(list.clone());
    for point in [
        LauncherHookPoint::GuestDefinition,
        LauncherHookPoint::PreBoot,
        LauncherHookPoint::PreMigrationSource,
    ] {
        assert!(!pipeline.has(point), "{point}");
    }
    assert!(!pod.define(list.clone()).await.contains("<a>"));
    assert_eq!(pod.bandwidth(list).await.unwrap(), 0);
    assert!(pod.called().is_empty());
}

#[tokio::test]
async fn the_sockets_have_their_time_together() {
    let pod = Pod::new();
    let missing = |name: &str| plugin(name, &["GuestDefinition"], "Ignore");
    tokio::time::pause();
    let begun = Instant::now();
    let xml = pod.define(json!([missing("x"), missing("y"), missing("z")]));
    assert!(xml.await.contains("ns_vm"));
    assert!(
        begun.elapsed() < Duration::from_secs(40),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn pre_boot_tells_which_files_a_plugin_has_changed() {
    let pod = Pod::new();
    let mut content = vec![0; 64];
    content[40..44].copy_from_slice(b"_FVH");
    let path = pod.root.path().join("nvram.fd");
    std::fs::write(&path, content).unwrap();
    let nvram = BootFile::claim(BootFileKind::Nvram, path, None, Arc::new(())).unwrap();
    let sidecar =
        json!({"socketPath": "/var/run/kubevirt-plugin/b/s", "permittedHooks": ["PreBoot"]});
    let list =
        json!([{"metadata": {"name": "b"}, "spec": {"launcherHooks": [{"sidecar": sidecar}]}}]);
    let (xml, vmi) = (XML.to_owned(), Bytes::from_static(b"{}"));
    let pipeline = pod.pipeline(list);
    let changed = pipeline.pre_boot(vec![nvram], xml, &vmi, later()).await;
    assert_eq!(changed.unwrap(), [("b".to_owned(), vec!["NVRAM"])]);
}
