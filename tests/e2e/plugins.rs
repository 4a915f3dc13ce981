//! Plugins that come with a sync: a CEL expression, and a sidecar of a plugin.

use std::sync::{Arc, Mutex};

use api::proto::cmd::v1::{Response as Answer, VirtualMachineOptions, VmiRequest};
use api::proto::hooks::plugins::domain_hook_service_server::{
    DomainHookService, DomainHookServiceServer,
};
use api::proto::hooks::plugins::{MutateDomainRequest, MutateDomainResponse};
use prost::bytes::Bytes;
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tonic::{Request, Response, Status};

use crate::harness::{Pod, Vmi, in_pod};

/// Puts a text in the place of the title's end; keeps what it was asked.
#[derive(Clone, Default)]
pub(crate) struct Plugin {
    end_of_title: String,
    asked: Arc<Mutex<Vec<MutateDomainRequest>>>,
}

#[tonic::async_trait]
impl DomainHookService for Plugin {
    async fn mutate_domain(
        &self,
        request: Request<MutateDomainRequest>,
    ) -> Result<Response<MutateDomainResponse>, Status> {
        let request = request.into_inner();
        let domain =
            String::from_utf8_lossy(&request.domain).replace("</title>", &self.end_of_title);
        self.asked.lock().unwrap().push(request);
        Ok(Response::new(MutateDomainResponse {
            domain: domain.into(),
        }))
    }
}

impl Plugin {
    pub fn puts(end_of_title: &str) -> Self {
        Self {
            end_of_title: end_of_title.to_owned(),
            ..Self::default()
        }
    }

    pub fn serve(&self, pod: &Pod, plugin: &str) {
        let socket = pod.path(&format!("/var/run/kubevirt-plugin/{plugin}/hook.sock"));
        let listener = UnixListener::bind(socket).unwrap();
        let server = tonic::service::Routes::default()
            .add_service(DomainHookServiceServer::new(self.clone()));
        tokio::spawn(os::grpc::serve(server, listener, std::future::pending()));
    }
}

pub(crate) fn request(pod: &Pod, vmi: &Vmi, plugins: &Value) -> VmiRequest {
    let options = VirtualMachineOptions {
        plugins_json: Bytes::from(plugins.to_string()),
        ..Default::default()
    };
    pod.request(vmi.value()).with_options(&options)
}

pub(crate) async fn sync(pod: &Pod, vmi: &Vmi, plugins: &Value) -> Answer {
    let request = request(pod, vmi, plugins);
    pod.cmd()
        .sync_virtual_machine(request)
        .await
        .unwrap()
        .into_inner()
}

pub(crate) fn plugin(name: &str, condition: &str, hooks: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"condition": condition, "domainHooks": hooks}})
}

/// A list that grows eightfold sixty times: it takes too much memory, or on a busy machine too much
/// time.
fn endless_list() -> String {
    let step = ".map(x, [x, x, x, x, x, x, x, x])";
    format!("size([1]{}) == 1", step.repeat(60))
}

fn cel(expression: &str) -> Value {
    json!({"cel": {"expression": expression}})
}

#[test]
fn plugins_of_a_sync_change_the_domain_and_failing_ones_leave_none() {
    in_pod(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("plugged")
            .with_counter(&pod)
            .set("/spec/startStrategy", json!("Paused"));
        let sidecar = Plugin::puts("!</title>");
        sidecar.serve(&pod, "beta");
        pod.start(&vmi, &[]).await;

        let refused = [
            (
                json!({"no": "list"}),
                vec!["the list of plugins cannot be read"],
            ),
            (
                json!([plugin("alpha", "1 + 1", json!([]))]),
                vec![
                    "plugin alpha condition evaluation failed",
                    "must return bool",
                ],
            ),
            (
                json!([plugin("alpha", "", json!([cel("Domain{Nonsense: 1}")]))]),
                vec!["plugin alpha hook 0 failed", "Nonsense"],
            ),
            (
                json!([plugin("alpha", "", json!([cel("Domain{Name: 'another'}")]))]),
                vec!["plugin alpha hook 0", "name was changed"],
            ),
            // It ends the process that evaluates it, and the launcher goes on.
            (
                json!([plugin("alpha", &endless_list(), json!([]))]),
                vec!["plugin alpha condition", "the expression"],
            ),
            // What libvirt refuses: its own message, and which plugin changed the domain.
            (
                json!([plugin(
                    "alpha",
                    "",
                    json!([cel("Domain{CPU: DomainCPU{Mode: 'nonsense'}}")])
                )]),
                vec!["LibvirtError", "plugin alpha"],
            ),
        ];
        for (plugins, words) in refused {
            let answer = sync(&pod, &vmi, &plugins).await;
            assert!(!answer.success, "accepted: {plugins}");
            for word in words {
                assert!(
                    answer.message.contains(word),
                    "{word:?} is not in: {}",
                    answer.message
                );
            }
            assert!(
                pod.domain().await.is_null() && pod.guests().is_empty(),
                "a refused domain is left behind"
            );
        }

        let plugins = json!([
            plugin(
                "beta",
                "vmi.Name == 'plugged'",
                json!([{"sidecar": {"socketPath": "/var/run/kubevirt-plugin/beta/hook.sock"}}])
            ),
            plugin(
                "gamma",
                "vmi.Name == 'another'",
                json!([cel("Domain{Title: 'gamma'}")])
            ),
            plugin(
                "alpha",
                "",
                json!([
                    cel("Domain{Title: vmi.Name + ' of ' + vmi.Namespace, Devices: DomainDeviceList{Watchdogs: [DomainWatchdog{Model: 'i6300esb', Action: 'none'}]}}"),
                    {"condition": "domainSpec.Type == 'xen'", "cel": {"expression": "Domain{Title: 'xen'}"}},
                    {"failureStrategy": "Ignore", "sidecar": {"socketPath": "/tmp/elsewhere.sock"}},
                ])
            ),
        ]);
        let answer = sync(&pod, &vmi, &plugins).await;
        assert!(answer.success, "{}\n{}", answer.message, pod.log_tail());
        let xml = pod.live_xml(&vmi);
        assert!(xml.contains("<title>plugged of default!</title>"), "{xml}");
        assert!(
            xml.contains("<watchdog model='i6300esb' action='none'>"),
            "{xml}"
        );
        let asked = sidecar.asked.lock().unwrap();
        assert_eq!(asked.len(), 1, "one start is one call");
        assert_eq!(asked[0].domain_type, "libvirt");
        assert_eq!(
            serde_json::from_slice::<Value>(&asked[0].vmi).unwrap(),
            *vmi.value()
        );
        assert_eq!(
            asked[0]
                .sidecar_context
                .as_ref()
                .unwrap()
                .invocation_context,
            "Boot"
        );
    });
}
