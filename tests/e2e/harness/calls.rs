//! What virt-handler calls: the sync, the end, the domain.

use std::time::{Duration, Instant};

use api::proto::cmd::v1::cmd_client::CmdClient;
use api::proto::cmd::v1::{EmptyRequest, Response, VirtualMachineOptions, VmiRequest};
use prost::bytes::Bytes;
use serde_json::Value;
use tonic::Status;
use tonic::transport::Channel;

use super::{Pod, TEST_TIMEOUT, Vmi};

/// Calls that have nothing but the VMI, each of which must succeed.
macro_rules! calls {
    ($($name:ident: $call:ident),+ $(,)?) => {
        impl Pod {
            $(
                pub async fn $name(&self, vmi: &Vmi) {
                    let answer = self.cmd().$call(self.request(vmi.value())).await;
                    self.accepted(stringify!($name), answer);
                }
            )+
        }
    };
}
calls! {
    pause: pause_virtual_machine,
    unpause: unpause_virtual_machine,
    reset: reset_virtual_machine,
    soft_reboot: soft_reboot_virtual_machine,
    shutdown: shutdown_virtual_machine,
    kill: kill_virtual_machine,
    delete: delete_virtual_machine,
}

impl Pod {
    /// The client of the cmd service.
    pub fn cmd(&self) -> CmdClient<Channel> {
        self.cmd.clone().expect("the launcher is ready")
    }

    /// Sends the VMI.
    pub async fn sync(&self, vmi: &Vmi) -> Response {
        // Other pods have no network of their own.
        let attachments = self.container.as_ref().map(|_| vmi.interface_attachments());
        let options = VirtualMachineOptions {
            interface_domain_attachment: attachments.unwrap_or_default(),
            ..VirtualMachineOptions::default()
        };
        let request = self.request(vmi.value()).with_options(&options);
        self.cmd()
            .sync_virtual_machine(request)
            .await
            .unwrap()
            .into_inner()
    }

    pub fn request(&self, vmi: &Value) -> VmiRequest {
        let vmi_json = Bytes::from(vmi.to_string());
        VmiRequest {
            vmi: Some(api::proto::cmd::v1::Vmi { vmi_json }),
            options: Bytes::new(),
        }
    }

    /// Sends the VMI and expects success.
    pub async fn sync_ok(&self, vmi: &Vmi) {
        let answer = tonic::Response::new(self.sync(vmi).await);
        self.accepted("sync", Ok(answer));
    }

    /// Kills the VM and forgets it, which ends the pod.
    pub async fn end(&self, vmi: &Vmi) {
        self.kill(vmi).await;
        self.delete(vmi).await;
    }

    /// The answer says success.
    pub fn accepted(&self, call: &str, answer: Result<tonic::Response<Response>, Status>) {
        let answer = answer.unwrap().into_inner();
        let message = &answer.message;
        assert!(answer.success, "{call}: {message}\n{}", self.log_tail());
    }

    /// The Domain JSON, null if there is none.
    pub async fn domain(&self) -> Value {
        let answer = self
            .cmd()
            .get_domain(EmptyRequest {})
            .await
            .unwrap()
            .into_inner();
        assert!(
            answer.response.as_ref().is_some_and(|r| r.success),
            "{answer:?}"
        );
        if answer.domain.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&answer.domain).unwrap()
        }
    }

    /// Asks for the domain until it is as wanted: for a change that need not be an event.
    pub async fn domain_until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + TEST_TIMEOUT;
        loop {
            let domain = self.domain().await;
            if wanted(&domain) {
                return domain;
            }
            assert!(
                Instant::now() < end,
                "the domain is not {what}, but {:#}\n{}",
                domain["Status"],
                self.log_tail()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
