//! One call to a running launcher, as virt-handler would make it.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use prost::bytes::Bytes;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::manifest::Manifest;
use super::{CtlError, Output, Target, Verb, VmiCall, images, session};
use api::Action;
use api::proto::cmd::info::{CmdInfoRequest, cmd_info_client::CmdInfoClient};
use api::proto::cmd::v1::{
    EmptyRequest, Response, VirtualMachineOptions, Vmi, VmiRequest, cmd_client::CmdClient,
};
use api::proto::preview::v1::{PlanRequest, preview_client::PreviewClient};

/// virt-handler's own limits (handler contract, section 2).
const READ: Duration = Duration::from_secs(5);
const ACT: Duration = Duration::from_secs(20);

/// A connection to a launcher's cmd socket.
#[derive(Debug, Clone)]
pub struct Client {
    channel: Channel,
}

impl Client {
    /// Connects to the socket.
    ///
    /// # Errors
    /// If nothing accepts there.
    pub async fn connect(socket: &Path) -> Result<Self, CtlError> {
        let path = socket.to_owned();
        let connector = service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // The URI is not used: the connector knows the socket.
        let channel = Endpoint::from_static("http://launcher")
            .connect_with_connector(connector)
            .await
            .map_err(|source| CtlError::Connect {
                path: socket.to_owned(),
                source,
            })?;
        Ok(Self { channel })
    }

    fn cmd(&self) -> CmdClient<Channel> {
        // A domain document may be larger than tonic's default of 4 MiB.
        CmdClient::new(self.channel.clone()).max_decoding_message_size(64 << 20)
    }

    /// The versions of the cmd service that the launcher speaks.
    ///
    /// # Errors
    /// If the call fails.
    pub async fn versions(&self) -> Result<Vec<u32>, CtlError> {
        let answer = CmdInfoClient::new(self.channel.clone())
            .info(timed(CmdInfoRequest {}, READ))
            .await;
        Ok(answer
            .map_err(CtlError::call("Info"))?
            .into_inner()
            .supported_cmd_versions)
    }

    /// The Domain JSON, if there is a domain.
    ///
    /// # Errors
    /// If the call fails.
    pub async fn domain(&self) -> Result<Option<Value>, CtlError> {
        let answer = self
            .cmd()
            .get_domain(timed(EmptyRequest {}, READ))
            .await
            .map_err(CtlError::call("GetDomain"))?
            .into_inner();
        accepted("GetDomain", answer.response)?;
        if answer.domain.is_empty() {
            return Ok(None);
        }
        serde_json::from_str(&answer.domain)
            .map(Some)
            .map_err(|e| CtlError::Refused {
                call: "GetDomain",
                message: format!("the answer is no JSON: {e}"),
            })
    }

    /// Sends the VMI.
    ///
    /// # Errors
    /// If the launcher refuses it.
    pub async fn sync(&self, vmi: &Value, options: VirtualMachineOptions) -> Result<(), CtlError> {
        let request = VmiRequest {
            options: Some(options),
            ..request(vmi)
        };
        accepted(
            "SyncVirtualMachine",
            self.cmd().sync_virtual_machine(timed(request, ACT)).await,
        )
    }

    /// What a sync of the VMI would change.
    ///
    /// # Errors
    /// If the launcher refuses it, or is one that cannot tell (the reference's).
    pub async fn plan(&self, vmi: &Value) -> Result<Value, CtlError> {
        let request = PlanRequest {
            vmi_json: Bytes::from(vmi.to_string()),
        };
        let answer = PreviewClient::new(self.channel.clone())
            .max_decoding_message_size(64 << 20)
            .plan(timed(request, ACT))
            .await;
        let answer = answer.map_err(CtlError::call("Plan"))?.into_inner();
        accepted(
            "Plan",
            Some(Response {
                success: answer.success,
                message: answer.message,
            }),
        )?;
        serde_json::from_slice(&answer.plan_json).map_err(|e| CtlError::Refused {
            call: "Plan",
            message: format!("the answer is no JSON: {e}"),
        })
    }

    /// A lifecycle call about the VMI.
    ///
    /// # Errors
    /// If the launcher refuses it.
    pub async fn act(&self, action: Action, vmi: &Value) -> Result<(), CtlError> {
        let mut cmd = self.cmd();
        let request = timed(request(vmi), ACT);
        let answer = match action {
            Action::Pause => cmd.pause_virtual_machine(request).await,
            Action::Unpause => cmd.unpause_virtual_machine(request).await,
            Action::Reset => cmd.reset_virtual_machine(request).await,
            Action::SoftReboot => cmd.soft_reboot_virtual_machine(request).await,
            Action::Shutdown => cmd.shutdown_virtual_machine(request).await,
            Action::Kill => cmd.kill_virtual_machine(request).await,
            Action::Delete => cmd.delete_virtual_machine(request).await,
        };
        accepted(name_of(action), answer)
    }
}

/// The call's name on the wire.
fn name_of(action: Action) -> &'static str {
    match action {
        Action::Pause => "PauseVirtualMachine",
        Action::Unpause => "UnpauseVirtualMachine",
        Action::Reset => "ResetVirtualMachine",
        Action::SoftReboot => "SoftRebootVirtualMachine",
        Action::Shutdown => "ShutdownVirtualMachine",
        Action::Kill => "KillVirtualMachine",
        Action::Delete => "DeleteVirtualMachine",
    }
}

/// An answer that says whether the launcher did it.
trait Verdict {
    fn verdict(self, call: &'static str) -> Result<Response, CtlError>;
}
impl Verdict for Option<Response> {
    fn verdict(self, _: &'static str) -> Result<Response, CtlError> {
        Ok(self.unwrap_or_default())
    }
}
impl Verdict for Result<tonic::Response<Response>, tonic::Status> {
    fn verdict(self, call: &'static str) -> Result<Response, CtlError> {
        self.map(tonic::Response::into_inner)
            .map_err(CtlError::call(call))
    }
}

fn accepted(call: &'static str, answer: impl Verdict) -> Result<(), CtlError> {
    let response = answer.verdict(call)?;
    if response.success {
        Ok(())
    } else {
        Err(CtlError::Refused {
            call,
            message: response.message,
        })
    }
}

fn timed<T>(message: T, limit: Duration) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(limit);
    request
}

fn request(vmi: &Value) -> VmiRequest {
    VmiRequest {
        vmi: Some(Vmi {
            vmi_json: Bytes::from(vmi.to_string()),
        }),
        options: None,
    }
}

/// Performs one client verb.
///
/// # Errors
/// If no launcher is found, or it refuses.
pub async fn call(verb: Verb, output: Output) -> Result<ExitCode, CtlError> {
    match verb {
        Verb::Info(target) => {
            let versions = connect(&target).await?.versions().await?;
            show(output, &json!({"supportedCmdVersions": versions}), || {
                format!("cmd versions: {versions:?}")
            });
        }
        Verb::Ping(target) => {
            let answer = connect(&target)
                .await?
                .cmd()
                .ping(timed(EmptyRequest {}, READ))
                .await;
            accepted("Ping", answer)?;
            show(output, &json!({"success": true}), || "it answers".into());
        }
        Verb::Domain(target) => {
            let domain = connect(&target).await?.domain().await?;
            show(output, domain.as_ref().unwrap_or(&Value::Null), || {
                domain.as_ref().map_or_else(|| "no domain".into(), summary)
            });
        }
        Verb::QemuVersion(target) => {
            let answer = connect(&target)
                .await?
                .cmd()
                .get_qemu_version(timed(EmptyRequest {}, READ))
                .await;
            let answer = answer
                .map_err(CtlError::call("GetQemuVersion"))?
                .into_inner();
            accepted("GetQemuVersion", answer.response)?;
            show(output, &json!({"version": answer.version}), || {
                answer.version.clone()
            });
        }
        Verb::Sync(args) => {
            let (client, vmi) = with_vmi(&args).await?;
            client.sync(&vmi, VirtualMachineOptions::default()).await?;
            if let (Some(session), _) = session::resolve(&args.target)? {
                session.store_vmi(&vmi)?;
            }
            show(output, &json!({"success": true}), || "in step".into());
        }
        Verb::Pause(args) => act(Action::Pause, &args, output).await?,
        Verb::Unpause(args) => act(Action::Unpause, &args, output).await?,
        Verb::Reset(args) => act(Action::Reset, &args, output).await?,
        Verb::SoftReboot(args) => act(Action::SoftReboot, &args, output).await?,
        Verb::Shutdown(args) => act(Action::Shutdown, &args, output).await?,
        Verb::Kill(args) => act(Action::Kill, &args, output).await?,
        Verb::Delete(args) => act(Action::Delete, &args, output).await?,
        // `perform` handles the others itself.
        _ => {}
    }
    Ok(ExitCode::SUCCESS)
}

async fn act(action: Action, args: &VmiCall, output: Output) -> Result<(), CtlError> {
    let (client, vmi) = with_vmi(args).await?;
    client.act(action, &vmi).await?;
    show(output, &json!({"success": true}), || "done".into());
    Ok(())
}

async fn connect(target: &Target) -> Result<Client, CtlError> {
    Client::connect(&session::resolve(target)?.1).await
}

pub(super) async fn with_vmi(args: &VmiCall) -> Result<(Client, Value), CtlError> {
    let (session, socket) = session::resolve(&args.target)?;
    let vmi = match (&args.vmi, &session) {
        (Some(file), session) => {
            let mut manifest = Manifest::read(file)?;
            if let Some(sent) = session.as_ref().and_then(|session| session.load_vmi().ok()) {
                manifest
                    .take_the_place_of(&sent)
                    .map_err(|reason| CtlError::manifest(file, reason))?;
                images::adapt_to_laptop(&mut manifest);
            }
            manifest.value().clone()
        }
        (None, Some(session)) => session.load_vmi()?,
        (None, None) => {
            return Err(CtlError::Target(
                "with --socket, say which VMI with --vmi".into(),
            ));
        }
    };
    Ok((Client::connect(&socket).await?, vmi))
}

/// Prints JSON for programs, or the text for people.
pub fn show(output: Output, value: &Value, text: impl FnOnce() -> String) {
    let shown = match output {
        Output::Json => value.to_string(),
        Output::Text => text(),
    };
    // Whoever has read enough, such as head(1), goes before all is said.
    let _ = writeln!(std::io::stdout(), "{shown}");
}

/// What a person wants to know of a domain, on a few lines.
fn summary(domain: &Value) -> String {
    let text = |pointer: &str| {
        domain
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or("-")
            .to_owned()
    };
    let mut lines = vec![
        format!(
            "{}  {} ({})",
            text("/Spec/Name"),
            text("/Status/Status"),
            text("/Status/Reason")
        ),
        format!(
            "  uuid {}  machine {}  type {}",
            text("/Spec/UUID"),
            text("/Spec/OS/Type/Machine"),
            text("/Spec/Type")
        ),
    ];
    for disk in domain
        .pointer("/Spec/Devices/Disks")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let part = |pointer: &str| {
            disk.pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let source = [part("/Source/File"), part("/Source/Dev")].concat();
        lines.push(format!(
            "  disk {}  {}  {}",
            part("/Alias/Name"),
            part("/Target/Device"),
            source
        ));
    }
    lines.join("\n")
}
