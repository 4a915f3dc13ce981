//! From a VMI to a running domain.
//!
//! ```text
//!  look ─► convert ─► cloud-init ─► PreCloudInitIso ─► prepare ─► settle ─► OnDefineDomain ─► define ─► start ─► shown
//!                                       sidecars         files     modes    sidecars, plugins     │
//!                                                                      addresses of tagged devices ◄─┘
//! ```
//! Whatever fails on the way, no domain stays behind, and the next sync begins anew.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;

use super::sync::{Request, read};
use super::{Launcher, LauncherError, blocking};
#[cfg(feature = "plugins")]
use api::proto::cmd::v1::VirtualMachineOptions;
use api::vmi::Vmi;
use convert::{Context, HotplugPorts};
use domain::DomainSpec;
#[cfg(feature = "plugins")]
use hooks::plugins::{InvocationContext, Pipeline};
use libvirt::{self, Connection, Undefine, XmlKind};

impl Launcher {
    /// Defines and starts the domain; a definition that is left over goes first.
    pub(super) async fn create(
        self: &Arc<Self>,
        request: &Request,
        leftover: Option<libvirt::Domain>,
    ) -> Result<(), LauncherError> {
        let _hidden = Hidden::begin(self);
        if let Some(domain) = leftover {
            tracing::warn!("a definition without a start is left over; it is made anew");
            blocking("removing the old definition", move || {
                Ok(domain.undefine(Undefine::KeepNvram)?)
            })
            .await?;
        }
        let Definition {
            xml,
            ports,
            by,
            cloud_init,
        } = self.definition(request).await?;
        let (connection, paused) = (self.connection(), starts_paused(&request.vmi));
        let (launcher, vmi) = (self.clone(), request.vmi.clone());
        let start = move || {
            let domain = define(&connection, &xml, &ports).map_err(|error| blame(error, &by))?;
            tracing::info!("Domain defined.");
            if let Some(data) = cloud_init {
                let told = read(&domain, XmlKind::Inactive)
                    .and_then(|defined| launcher.rooms.tell_devices(&vmi, data, &defined));
                told.map_err(|error| undo(&domain, error))?;
            }
            domain
                .start(paused)
                .map_err(|error| blame(undo(&domain, error.into()), &by))?;
            // Set while the domain is still hidden, so that nobody sees it in between.
            launcher.has_run.store(true, Ordering::Relaxed);
            Ok(())
        };
        blocking("starting the domain", start).await?;
        tracing::info!("Domain started.");
        let by_user = request.vmi.spec.start_strategy.as_deref() == Some("Paused");
        self.paused_by_user.store(by_user, Ordering::Relaxed);
        self.pending.added();
        // The documents of a start are large and not needed again.
        libvirt::trim();
        Ok(())
    }

    /// The domain as libvirt is to get it.
    async fn definition(self: &Arc<Self>, request: &Request) -> Result<Definition, LauncherError> {
        let (launcher, vmi, options) = (self.clone(), request.vmi.clone(), request.options.clone());
        let look = move || {
            let (domain, context) = launcher.rooms.wanted(&vmi, &options)?;
            let cloud_init = launcher.rooms.cloud_init(&vmi)?;
            Ok((domain, context, cloud_init))
        };
        let (domain, context, mut cloud_init) = blocking("converting the VMI", look).await?;
        // The reference calls sidecars without data too, and crashes on the answer.
        if let Some(data) = cloud_init.take() {
            cloud_init = Some(
                self.sidecars
                    .pre_cloud_init_iso(data, &request.vmi_json, request.deadline)
                    .await?,
            );
        }
        let (launcher, vmi) = (self.clone(), request.vmi.clone());
        let to_complete = cloud_init.clone().filter(|_| has_tags(&vmi));
        let prepare = move || {
            launcher.rooms.prepare(&vmi, &context, cloud_init)?;
            let mut domain: DomainSpec = domain;
            domain
                .devices
                .disks
                .iter()
                .try_for_each(|disk| launcher.rooms.track(&vmi, disk))?;
            let modes = launcher.rooms.settle(&mut domain)?;
            log_context(Context {
                disk_modes: Some(modes),
                ..context
            });
            launcher.metadata.begin(&vmi);
            domain.metadata.kube_virt = launcher.metadata.load();
            let ports = HotplugPorts::plan(&vmi, &domain)?;
            Ok((domain.to_xml(), ports))
        };
        let (xml, ports) = blocking("preparing the pod", prepare).await?;
        let xml = self
            .sidecars
            .on_define_domain(xml, &request.vmi_json, request.deadline)
            .await?;
        let by: Vec<String> = self
            .sidecars
            .modified_by()
            .iter()
            .map(|sidecar| format!("hook sidecar {sidecar}"))
            .collect();
        #[cfg(feature = "plugins")]
        let (xml, by) = {
            let plugins = plugins(&request.options)?.rooted(self.config.pod.root.dir().to_owned());
            let applied = plugins
                .apply(
                    xml,
                    &request.vmi_json,
                    InvocationContext::Boot,
                    request.deadline,
                )
                .await?;
            (
                applied.xml,
                by.into_iter()
                    .chain(
                        applied
                            .touched
                            .iter()
                            .map(|plugin| format!("plugin {plugin}")),
                    )
                    .collect(),
            )
        };
        tracing::debug!(xml, "the domain to define");
        Ok(Definition {
            xml,
            ports,
            by,
            cloud_init: to_complete,
        })
    }
}

/// A domain on its way to libvirt.
struct Definition {
    xml: String,
    ports: HotplugPorts,
    /// The sidecars and plugins that have changed it.
    by: Vec<String>,
    /// Data for a cloud-init image that lacks the addresses of tagged devices.
    cloud_init: Option<Value>,
}

/// Whether the guest wants to find devices by their tags.
fn has_tags(vmi: &Vmi) -> bool {
    let devices = &vmi.spec.domain.devices;
    let host_devices = devices
        .host_devices
        .iter()
        .map(|device| &device.tag)
        .chain(devices.gpus.iter().map(|gpu| &gpu.tag));
    devices
        .interfaces
        .iter()
        .map(|interface| &interface.tag)
        .chain(host_devices)
        .any(|tag| !tag.is_empty())
}

/// What libvirt refuses may be the work of a sidecar or of a plugin.
fn blame(error: LauncherError, by: &[String]) -> LauncherError {
    match error {
        LauncherError::Libvirt(refusal) if !by.is_empty() => LauncherError::Define {
            by: by.to_vec(),
            refusal,
        },
        error => error,
    }
}

/// With it, `launcherctl convert --context` makes the same domain anywhere.
fn log_context(context: Context) {
    if tracing::enabled!(tracing::Level::DEBUG)
        && let Ok(context) = serde_json::to_string(&context)
    {
        tracing::debug!(context, "what the conversion has seen");
    }
}

/// The plugins of a request; none are none.
#[cfg(feature = "plugins")]
pub(super) fn plugins(options: &VirtualMachineOptions) -> Result<Pipeline, LauncherError> {
    Ok(Pipeline::from_json(&options.plugins_json)?)
}

/// Defines the domain, with free ports.
fn define(
    connection: &Connection,
    xml: &str,
    ports: &HotplugPorts,
) -> Result<libvirt::Domain, LauncherError> {
    if ports.is_empty() {
        return Ok(connection.define(xml)?);
    }
    let first = connection.define(&ports.with_placeholders(xml)?)?;
    // With its secrets, or the second definition would lack them.
    let completed = first
        .xml(XmlKind::Secure)
        .map_err(LauncherError::from)
        .and_then(|xml| Ok(ports.with_root_ports(&xml)?));
    completed
        .and_then(|xml| Ok(connection.define(&xml)?))
        .map_err(|error| undo(&first, error))
}

/// Removes a definition that is of no use, and passes on why.
fn undo(domain: &libvirt::Domain, why: LauncherError) -> LauncherError {
    match domain.undefine(Undefine::KeepNvram) {
        Err(error) if !error.is_no_domain() => {
            tracing::error!(reason = %error, "the definition of the failed start cannot be removed")
        }
        _ => {}
    }
    why
}

/// Whether the vCPUs wait: for the user, or for virt-handler, which pins the emulator first and then syncs again.
fn starts_paused(vmi: &Vmi) -> bool {
    let isolated = vmi
        .spec
        .domain
        .cpu
        .as_ref()
        .is_some_and(|cpu| cpu.dedicated_cpu_placement && cpu.isolate_emulator_thread);
    isolated || vmi.spec.start_strategy.as_deref() == Some("Paused")
}

/// While it lives, virt-handler sees no domain.
struct Hidden<'a>(&'a Launcher);

impl<'a> Hidden<'a> {
    fn begin(launcher: &'a Launcher) -> Self {
        launcher.starting.send_replace(true);
        Self(launcher)
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        self.0.starting.send_replace(false);
    }
}
