//! Starts a domain: converts the VMI, prepares the pod, calls the hooks, defines and starts.
//!
//! ```text
//!  convert ─► PreCloudInitIso ─► network ─► files, disk modes ─► OnDefineDomain ─► define ────┐
//!                sidecars       taps, DHCP   tracked disks'      sidecars, plugins  twice for │
//!                                            overlays, metadata,                  free ports  │
//!                                            ports                                            │
//!    ┌────────────────────────────────────────────────────────────────────────────────────────┘
//!    └─► name, UUID ─► ignored parts ─► addresses of tagged devices ─► PreBoot ─► iommufd ─► freezer ─► start
//!         as asked?                      for cloud-init                plugins                forgets
//! ```
//! A leftover definition is removed first. The start is a job. A failure before QEMU runs leaves no
//! definition, and the next sync starts over; if libvirt was lost, that sync removes the definition
//! first (`Recreate`). A kill afterwards is a guest's end.

mod console;
pub(super) mod error;
mod pre_boot;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::config::LauncherConfig;
use super::error::LauncherError;
use super::guest_agent::Freezer;

use super::conversion::{ConversionWithHooks, Converted};
use super::libvirt_domain::{LibvirtDomain, blocking, read_spec};
use super::pod_backend::{ConvertFor, PodBackend};
use super::pod_network::PodNetwork;
use super::sync_request::SyncRequest;
use super::timeline::{StartStep, StepTimer, Timeline};
use super::vm::metadata::is_paused_by_user;
use super::vm::{Job, JobKind, Permit};
use super::warnings::Warnings;
use api::vmi::Vmi;
use convert::{Context, HotplugPorts};
use domain::xml::secrets::without_secrets;
use domain::{DomainSpec, excerpt};
use error::DomainStartError;
use hooks::answer::canonical_uuid;
use hooks::plugins::InvocationContext;
use libvirt::{ChangeableDomain, Connection, Undefine, XmlKind};
use os::lock::lock;
use pre_boot::PreBoot;

pub(super) struct Start {
    pub libvirt: Arc<LibvirtDomain>,
    pub pod: Arc<dyn PodBackend>,
    pub conversion: Arc<ConversionWithHooks>,
    pub network: Arc<PodNetwork>,
    pub freezer: Arc<Freezer>,
    pub warnings: Warnings,
    pub config: Arc<LauncherConfig>,
    /// The message on the parts that libvirt has ignored; empty without any.
    pub ignored: Arc<Mutex<String>>,
    /// Held by the start that makes the domain's files.
    pub files: Arc<tokio::sync::Mutex<()>>,
}

impl Start {
    /// Defines and starts the domain, after removing a leftover definition.
    pub async fn run(
        self: &Arc<Self>,
        request: &SyncRequest,
        leftover: Option<libvirt::DomainHandle>,
    ) -> Result<(), LauncherError> {
        let job = self.libvirt.vm.begin(JobKind::Start)?;
        self.timeline().begin_start();
        if let Some(domain) = leftover {
            tracing::warn!("Removing a definition that was never started");
            let domain = domain.changeable(&job.permit());
            let undefine = move || Ok(domain.undefine(Undefine::KeepNvram)?);
            blocking("removing the old definition", undefine).await?;
        }
        let definition = tokio::select! {
            definition = self.definition(request) => definition?,
            () = job.cancelled() => return Err(DomainStartError::Killed.into()),
        };
        let (this, vmi) = (self.clone(), request.vmi.clone());
        blocking("starting the domain", move || {
            // The job ends with the start, even if the caller has given up.
            this.define_and_start(&vmi, definition, &job)
        })
        .await?;
        tracing::info!("Domain started.");
        self.timeline().log();
        let (root, uid) = (&self.config.flags.root, &request.vmi.metadata.uid);
        console::watch(root, uid, self.config.timeline.clone());
        // A start's documents are large and no longer needed.
        libvirt::trim();
        Ok(())
    }

    /// Builds the domain for libvirt.
    // D-hook-2 (docs/differences.md).
    async fn definition(
        self: &Arc<Self>,
        request: &SyncRequest,
    ) -> Result<Definition, LauncherError> {
        let (timeline, conversion) = (self.timeline(), &self.conversion);
        let converted = conversion.convert(request, ConvertFor::ThisPod);
        let mut converted = timeline.measure(StartStep::Convert, converted).await?;
        // The reference calls sidecars even without cloud-init data, and crashes on the answer.
        if let Some(data) = converted.cloud_init.take() {
            let edited = conversion.run_cloud_init_hooks(request, data);
            let edited = timeline.measure(StartStep::CloudInitHooks, edited).await?;
            converted.cloud_init = Some(edited);
        }
        let network = self
            .network
            .set_up(&request.vmi, &converted.context, &mut converted.domain);
        timeline.measure(StartStep::Network, network).await?;
        let unfinished_cloud_init = converted
            .cloud_init
            .clone()
            .filter(|_| has_tags(&request.vmi));
        // A kill does not stop what a thread does with files: the next start waits for it here.
        let files = Arc::new(self.files.clone().lock_owned().await);
        let pre_boot = PreBoot::new(conversion, request, &converted.domain, files.clone());
        let (this, vmi) = (self.clone(), request.vmi.clone());
        let uuid = converted.domain.uuid.clone();
        let prepare = move || {
            let _files = files;
            let mut domain = this.make_files(&vmi, converted)?;
            lock(&this.ignored).clear();
            this.begin_metadata(&vmi, &mut domain);
            let ports = HotplugPorts::plan(&vmi, &domain).map_err(DomainStartError::from)?;
            Ok((domain.to_xml(), ports))
        };
        let prepared = blocking("preparing the pod", prepare);
        let (xml, ports) = timeline.measure(StartStep::Prepare, prepared).await?;
        let own_xml = xml.clone();
        let hooks = conversion.run_define_hooks(request, xml, InvocationContext::Boot);
        let (xml, modified_by) = timeline.measure(StartStep::DefineHooks, hooks).await?;
        let log = move || {
            log_definition(&xml);
            Ok(xml)
        };
        let xml = blocking("logging the domain", log).await?;
        Ok(Definition {
            xml,
            own_xml,
            uuid,
            ports,
            modified_by,
            unfinished_cloud_init,
            pre_boot,
        })
    }

    /// Makes the files that the domain opens. Returns the domain with its disks' modes, which these
    /// decide.
    fn make_files(&self, vmi: &Vmi, converted: Converted) -> Result<DomainSpec, LauncherError> {
        let (mut domain, context) = (converted.domain, converted.context);
        self.pod
            .prepare(vmi, &context, converted.cloud_init, ConvertFor::ThisPod)?;
        for disk in &domain.devices.disks {
            pod::track(self.pod.flags(), vmi, disk)?;
        }
        let modes = self.pod.resolve_disk_modes(&mut domain)?;
        log_context(&Context {
            disk_modes: Some(modes),
            ..context
        });
        Ok(domain)
    }

    /// Begins the VMI's metadata, of which the domain gets a copy.
    fn begin_metadata(&self, vmi: &Vmi, domain: &mut DomainSpec) {
        let vm = &self.libvirt.vm;
        vm.change_metadata(|metadata| metadata.begin(vmi));
        domain.metadata.kube_virt = vm.metadata().get().clone();
    }

    /// Blocks until the domain runs (`virDomainCreateWithFlags`). A kill during libvirt's start
    /// ends QEMU; before and after that start this function ends the guest.
    // D-vm-2 (docs/differences.md).
    fn define_and_start(
        &self,
        vmi: &Vmi,
        definition: Definition,
        job: &Job,
    ) -> Result<(), LauncherError> {
        let defining = self.timeline().step(StartStep::Define);
        let Definition { xml, ports, .. } = &definition;
        let domain = define(&self.libvirt.connection(), &job.permit(), xml, ports)
            .map_err(|error| attribute_to_hooks(error, &definition.modified_by))?;
        self.start_defined(vmi, &domain, definition, job, defining)
            .map_err(|error| undo(&domain, error))?;
        // A kill between the last look and libvirt's start has found nothing to end.
        if job.is_cancelled() {
            // The kill itself may have ended it by now.
            drop(domain.destroy(true));
            return Err(DomainStartError::Killed.into());
        }
        Ok(())
    }

    fn start_defined(
        &self,
        vmi: &Vmi,
        domain: &ChangeableDomain,
        mut definition: Definition,
        job: &Job,
        defining: StepTimer<'_>,
    ) -> Result<(), LauncherError> {
        let modified_by = &mut definition.modified_by;
        self.check_identity(domain, &definition.uuid, modified_by)?;
        self.report_ignored_parts([&definition.xml, &definition.own_xml], domain, modified_by)?;
        drop(defining);
        tracing::info!("Domain defined.");
        // Ends `--qemu-timeout`: plugins and libvirt may take longer.
        self.libvirt.vm.defined();
        // Before the plugins: it writes the whole image.
        if let Some(data) = definition.unfinished_cloud_init {
            let defined = read_spec(domain, XmlKind::Inactive)?;
            self.pod.write_device_metadata(vmi, data, &defined)?;
        }
        if let Some(pre_boot) = definition.pre_boot {
            let plugins = pre_boot.run(domain, job)?;
            modified_by.extend(plugins.into_iter().map(|plugin| format!("plugin {plugin}")));
        }
        if job.is_cancelled() {
            return Err(DomainStartError::Killed.into());
        }
        self.associate_iommufd(domain)?;
        // A freeze of an earlier guest must not thaw this one.
        self.freezer.forget()?;
        // `VIR_DOMAIN_START_PAUSED`.
        let by_user = is_paused_by_user(vmi);
        let paused = by_user || self.libvirt.vm.metadata().get().paused_until_pinned;
        // First: if libvirt's daemon dies before the start returns, a sync resumes a guest that
        // nobody wants paused.
        self.libvirt.vm.set_pause_requested(by_user);
        let starting = self.timeline().step(StartStep::Start);
        domain
            .start(paused)
            .map_err(|error| attribute_to_hooks(error.into(), modified_by))?;
        drop(starting);
        self.timeline().mark(StartStep::Running);
        self.libvirt.vm.started(paused, by_user);
        // Nothing may fail after libvirt's start: `undo` would remove a running guest's definition.
        Ok(())
    }

    /// Compares the name and UUID that libvirt has read with those of the VMI.
    // D-hook-8 (docs/differences.md).
    fn check_identity(
        &self,
        domain: &ChangeableDomain,
        wanted_uuid: &str,
        modified_by: &[String],
    ) -> Result<(), LauncherError> {
        let (name, uuid) = (domain.name()?, domain.uuid()?);
        let same_uuid = canonical_uuid(&uuid) == canonical_uuid(wanted_uuid);
        if name == self.libvirt.name && (same_uuid || wanted_uuid.is_empty()) {
            return Ok(());
        }
        let modified_by = modified_by.join(", ");
        let other = DomainStartError::OtherDomain {
            name,
            uuid,
            modified_by,
        };
        Err(other.into())
    }

    /// Sends an event with the parts of the domain that libvirt has ignored.
    ///
    /// # Errors
    /// They are a host device's: it would not be the one that was asked for.
    // D-start-6 (docs/differences.md).
    fn report_ignored_parts(
        &self,
        [xml, own_xml]: [&str; 2],
        domain: &ChangeableDomain,
        modified_by: &[String],
    ) -> Result<(), LauncherError> {
        // libvirt has other limits than our reader, so this is not an error of the VM.
        let ignored = match convert::ignored_parts(xml, own_xml, &domain.xml(XmlKind::Secure)?) {
            Ok(ignored) => ignored,
            Err(error) => {
                tracing::warn!(reason = %os::logging::chain(&error), "Could not compare the domain with libvirt's");
                return Ok(());
            }
        };
        let list = |parts: BTreeSet<String>| Vec::from_iter(parts).join(", ");
        if !ignored.of_host_devices.is_empty() {
            let parts = list(ignored.of_host_devices);
            return Err(DomainStartError::Ignored { parts }.into());
        }
        if !ignored.others.is_empty() {
            let hooks = match modified_by {
                [] => String::new(),
                hooks => format!("; the domain was changed by {}", hooks.join(", ")),
            };
            let message = format!(
                "libvirt ignores these parts of the domain: {}{}",
                excerpt(&list(ignored.others), MAX_IGNORED_CHARS),
                excerpt(&hooks, MAX_IGNORED_CHARS / 2)
            );
            tracing::warn!("{message}");
            lock(&self.ignored).clone_from(&message);
            self.warnings.send("IgnoredByLibvirt", message);
        }
        Ok(())
    }

    /// Passes the open `/dev/iommu` to libvirt (`virDomainFDAssociate`), for host devices with this
    /// `fdgroup` (iommufd).
    fn associate_iommufd(&self, domain: &ChangeableDomain) -> Result<(), LauncherError> {
        if let Some(descriptor) = self.pod.iommufd()? {
            domain.associate_fds(convert::IOMMUFD_GROUP, &[descriptor.as_fd()])?;
            tracing::info!("Associated the IOMMU's descriptor with the domain");
        }
        Ok(())
    }

    fn timeline(&self) -> &Timeline {
        &self.config.timeline
    }
}

/// Length of an event's list of parts; Kubernetes takes 1,024 bytes.
const MAX_IGNORED_CHARS: usize = 512;

/// Longest logged domain, in bytes. A domain with a thousand vCPUs has half of this.
const MAX_LOGGED_BYTES: usize = 1 << 20;

/// Logs the domain after the hooks of sidecars and plugins.
fn log_definition(xml: &str) {
    let Some(shown) = loggable(xml) else {
        let bytes = xml.len();
        tracing::warn!(bytes, "Domain XML generated. It is too long for the log");
        return;
    };
    tracing::debug!(xml = %shown, "Domain to define");
    // must-gather looks for this text of the reference.
    let dump = BASE64_STANDARD.encode(shown.as_bytes());
    tracing::info!("Domain XML generated. Base64 dump {dump}");
}

/// The domain XML with its secrets replaced; `None` if it is too long.
// D-hook-15 and D-log-4 (docs/differences.md).
fn loggable(xml: &str) -> Option<Cow<'_, str>> {
    (xml.len() <= MAX_LOGGED_BYTES).then(|| without_secrets(xml))
}

/// A domain on its way to libvirt.
struct Definition {
    xml: String,
    /// The XML before sidecars and plugins changed it.
    own_xml: String,
    /// The UUID before that; may be empty.
    uuid: String,
    ports: HotplugPorts,
    /// The sidecars and plugins that changed it.
    modified_by: Vec<String>,
    /// The data of a cloud-init image that still lacks the addresses of tagged devices.
    unfinished_cloud_init: Option<Value>,
    pre_boot: Option<PreBoot>,
}

/// Whether a device has a `tag`, by which the guest finds it in the cloud-init metadata.
fn has_tags(vmi: &Vmi) -> bool {
    let devices = &vmi.spec.domain.devices;
    let interfaces = devices.interfaces.iter().map(|interface| &interface.tag);
    let host_devices = devices.host_devices.iter().map(|device| &device.tag);
    let gpus = devices.gpus.iter().map(|gpu| &gpu.tag);
    interfaces
        .chain(host_devices)
        .chain(gpus)
        .any(|tag| !tag.is_empty())
}

/// Adds the sidecars and plugins that changed the domain to libvirt's refusal. The end of its
/// daemon is none, and is not theirs.
fn attribute_to_hooks(error: LauncherError, modified_by: &[String]) -> LauncherError {
    match error {
        LauncherError::Libvirt(refusal)
            if !modified_by.is_empty() && !refusal.is_connection_lost() =>
        {
            let modified_by = modified_by.to_vec();
            DomainStartError::Define {
                modified_by,
                refusal,
            }
            .into()
        }
        error => error,
    }
}

/// Defines the domain (`virDomainDefineXMLFlags`), with free pcie-root-ports for hotplug: twice, as
/// `convert::HotplugPorts` says.
fn define(
    connection: &Connection,
    permit: &Permit,
    xml: &str,
    ports: &HotplugPorts,
) -> Result<ChangeableDomain, LauncherError> {
    if ports.is_empty() {
        return Ok(connection.define(permit, xml)?);
    }
    let placeholders = ports
        .with_placeholders(xml)
        .map_err(DomainStartError::from)?;
    let first = connection.define(permit, &placeholders)?;
    let complete = || {
        // Secrets are included, because the second definition would otherwise lack them.
        let completed = ports.with_root_ports(&first.xml(XmlKind::Secure)?);
        let completed = completed.map_err(DomainStartError::from)?;
        Ok(connection.define(permit, &completed)?)
    };
    complete().map_err(|error| undo(&first, error))
}

/// Removes a failed start's definition and returns the error.
fn undo(domain: &ChangeableDomain, why: LauncherError) -> LauncherError {
    match domain.undefine(Undefine::KeepNvram) {
        Err(error) if !error.is_no_domain() => {
            tracing::error!(reason = %error, "Could not remove the definition of the failed start");
        }
        _ => {}
    }
    why
}

/// Logs the conversion's context: `launcherctl convert --context` makes the same domain from it
/// anywhere.
fn log_context(context: &Context) {
    if let Ok(context) = serde_json::to_string(context) {
        tracing::debug!(context, "Context of the conversion");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    // D-vm-13 (docs/differences.md).
    fn a_daemon_that_ends_is_not_the_sidecars_fault() {
        let start = |code| {
            let error = libvirt::Error {
                code,
                domain: 10,
                message: "no".into(),
            };
            attribute_to_hooks(error.into(), &["sidecar".to_owned()])
        };
        assert!(start(libvirt::code::RPC).is_connection_lost());
        let refused = start(libvirt::code::OPERATION_FAILED);
        assert!(
            refused.to_string().contains("changed by sidecar"),
            "{refused}"
        );
    }

    #[test]
    // D-hook-15 (docs/differences.md).
    fn a_domain_that_is_too_long_is_not_logged() {
        assert_eq!(loggable("<domain/>").as_deref(), Some("<domain/>"));
        assert!(loggable(&"x".repeat(MAX_LOGGED_BYTES)).is_some());
        assert_eq!(loggable(&"x".repeat(MAX_LOGGED_BYTES + 1)), None);
    }
}
