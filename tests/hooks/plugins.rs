//! Domain hooks of plugins in sidecars: a gRPC server on a socket in the plugin's directory.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::proto::hooks::plugins::domain_hook_service_server::{
    DomainHookService, DomainHookServiceServer,
};
use api::proto::hooks::plugins::{MutateDomainRequest, MutateDomainResponse};
use hooks::plugins::{InvocationContext, Pipeline, PluginError};
use os::logging::chain;
use prost::bytes::Bytes;
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

const XML: &str = "<domain type=\"kvm\"><name>ns_vm</name><new-to-us/></domain>";
const VMI: &[u8] = br#"{"metadata":{"name":"vm"}}"#;

/// Answers by the given function of the domain; keeps what it was asked.
#[derive(Clone)]
struct Hook {
    answer: fn(String) -> Result<String, Status>,
    hangs: bool,
    asked: Arc<Mutex<Vec<MutateDomainRequest>>>,
}

#[tonic::async_trait]
impl DomainHookService for Hook {
    async fn mutate_domain(
        &self,
        request: Request<MutateDomainRequest>,
    ) -> Result<Response<MutateDomainResponse>, Status> {
        let request = request.into_inner();
        let domain = String::from_utf8(request.domain.to_vec()).unwrap();
        self.asked.lock().unwrap().push(request);
        if self.hangs {
            return std::future::pending().await;
        }
        Ok(Response::new(MutateDomainResponse {
            domain: (self.answer)(domain)?.into(),
        }))
    }
}

struct Pod {
    root: tempfile::TempDir,
}

impl Pod {
    fn new() -> Self {
        Self {
            root: tempfile::tempdir().unwrap(),
        }
    }

    fn socket(&self, plugin: &str) -> PathBuf {
        let dir = self
            .root
            .path()
            .join("var/run/kubevirt-plugin")
            .join(plugin);
        std::fs::create_dir_all(&dir).unwrap();
        dir.join("hook.sock")
    }

    fn serve(
        &self,
        plugin: &str,
        answer: fn(String) -> Result<String, Status>,
        hangs: bool,
    ) -> Arc<Mutex<Vec<MutateDomainRequest>>> {
        let hook = Hook {
            answer,
            hangs,
            asked: Arc::default(),
        };
        let asked = Arc::clone(&hook.asked);
        let listener = UnixListener::bind(self.socket(plugin)).unwrap();
        let server =
            tonic::service::Routes::default().add_service(DomainHookServiceServer::new(hook));
        tokio::spawn(os::grpc::serve(server, listener, std::future::pending()));
        asked
    }

    /// Applies the plugin `a`, whose hook has these fields too, at a start.
    async fn boot(&self, more: Value) -> Result<String, PluginError> {
        let plugins = json!([hook("a", &more)]);
        self.apply(plugins, InvocationContext::Boot, LONG).await
    }

    async fn apply(
        &self,
        plugins: Value,
        context: InvocationContext,
        time: Duration,
    ) -> Result<String, PluginError> {
        let pipeline = Pipeline::from_json(plugins.to_string().as_bytes())
            .unwrap()
            .rooted(self.root.path().to_path_buf());
        pipeline
            .apply(
                XML.into(),
                &Bytes::from_static(VMI),
                context,
                Instant::now() + time,
            )
            .await
            .map(|applied| applied.xml)
    }
}

fn hook(plugin: &str, more: &Value) -> Value {
    let mut hook =
        json!({"sidecar": {"socketPath": format!("/var/run/kubevirt-plugin/{plugin}/hook.sock")}});
    hook.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({"metadata": {"name": plugin}, "spec": {"domainHooks": [hook]}})
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_sidecar_gets_domain_vmi_and_context_and_plugins_run_in_order() {
    for (context, name) in [
        (InvocationContext::Boot, "Boot"),
        (InvocationContext::MigrationSource, "MigrationSource"),
        (InvocationContext::MigrationTarget, "MigrationTarget"),
    ] {
        let pod = Pod::new();
        let asked = pod.serve(
            "a",
            |xml| Ok(xml.replace("</name>", "</name><title>a</title>")),
            false,
        );
        pod.serve("b", |xml| Ok(xml.replace("a</title>", "ab</title>")), false);
        let xml = pod
            .apply(
                json!([hook("b", &json!({})), hook("a", &json!({}))]),
                context,
                LONG,
            )
            .await
            .unwrap();
        assert!(
            xml.contains("<title>ab</title>") && xml.contains("<new-to-us>"),
            "{xml}"
        );
        let asked = asked.lock().unwrap();
        assert_eq!(
            (asked[0].domain_type.as_str(), &asked[0].vmi[..]),
            ("libvirt", VMI)
        );
        assert_eq!(
            asked[0]
                .sidecar_context
                .as_ref()
                .unwrap()
                .invocation_context,
            name
        );
    }
}

#[tokio::test]
async fn a_late_socket_is_waited_for() {
    let pod = Pod::new();
    let (xml, ()) = tokio::join!(pod.boot(json!({})), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        pod.serve("a", |xml| Ok(xml.replace("kvm", "qemu")), false);
    });
    assert!(xml.unwrap().contains("qemu"));
}

#[tokio::test]
async fn a_missing_socket_fails_or_is_ignored() {
    let pod = Pod::new();
    let short = Duration::from_millis(200);
    let error = pod
        .apply(
            json!([hook("a", &json!({}))]),
            InvocationContext::Boot,
            short,
        )
        .await
        .unwrap_err();
    let error = chain(&error);
    assert!(
        error.contains("plugin a hook 0 failed") && error.contains("not ready"),
        "{error}"
    );
    let ignored = json!([hook("a", &json!({"failureStrategy": "Ignore"}))]);
    assert!(
        pod.apply(ignored, InvocationContext::Boot, short)
            .await
            .unwrap()
            .contains("ns_vm")
    );
}

#[tokio::test]
async fn a_failure_has_the_sidecars_own_text() {
    let pod = Pod::new();
    pod.serve(
        "a",
        |_| Err(Status::failed_precondition("no such device")),
        false,
    );
    let error = chain(&pod.boot(json!({})).await.unwrap_err());
    assert!(
        error.contains("FailedPrecondition") && error.contains("no such device"),
        "{error}"
    );
}

#[tokio::test]
// D-hook-6 (docs/differences.md).
async fn a_call_that_hangs_times_out_after_the_hooks_timeout() {
    let pod = Pod::new();
    pod.serve("a", Ok, true);
    let error = chain(&pod.boot(json!({"timeout": "100ms"})).await.unwrap_err());
    assert!(error.contains("no answer within"), "{error}");
    let error = chain(&pod.boot(json!({"timeout": "soon"})).await.unwrap_err());
    assert!(error.contains("soon"), "{error}");
}

#[tokio::test]
async fn answers_that_are_another_domain_or_not_a_domain_are_refused() {
    for answer in [
        |_| Ok(String::new()),
        |xml: String| Ok(xml.replace("ns_vm", "x")),
        |_| Ok("<disk/>".to_owned()),
    ] as [fn(String) -> Result<String, Status>; 3]
    {
        let pod = Pod::new();
        pod.serve("a", answer, false);
        pod.boot(json!({})).await.unwrap_err();
    }
}
