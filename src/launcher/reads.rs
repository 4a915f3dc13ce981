//! Reads of the domain and of QEMU's version.

use std::sync::{Arc, OnceLock};

use super::error::LauncherError;
use super::libvirt_domain::{LibvirtDomain, READ_TIMEOUT, within};
use super::vm::{Observed, Phase};
use domain::guest_agent::params::TypedValue;
use domain::{Domain, DomainSpec};
use libvirt::{Connection, DomainState, ParamValue, Screenshot, XmlKind};

/// Largest forwarded picture: an uncompressed one of 4096 by 4096 pixels.
const MAX_SCREENSHOT_BYTES: usize = 64 << 20;

/// Answers queries about the domain.
pub struct DomainReads {
    pub(super) libvirt: Arc<LibvirtDomain>,
    pub(super) qemu_version: Arc<OnceLock<String>>,
}

impl DomainReads {
    /// `GetDomain`: the domain as virt-handler may see it; `None` while it is being started. If a
    /// running job may block libvirt's reads, a start has begun or ended during the read, or libvirt
    /// does not answer in time, it is the last reported domain with the current metadata.
    ///
    /// # Errors
    /// libvirt's, unless a domain was reported before, or the domain is still arriving.
    // D-vm-1 (docs/differences.md).
    pub async fn domain(&self) -> Result<Option<Arc<Domain>>, LauncherError> {
        let what = "the first look at the domain";
        let vm = &self.libvirt.vm;
        let first = async { Ok(vm.wait_for_first_read().await) };
        let snapshot = within(what, READ_TIMEOUT, first).await?;
        if snapshot.phase.is_starting() {
            return Ok(None);
        }
        if snapshot.job_blocks_reads() {
            return Ok(vm.document_from_memory());
        }
        let before = vm.start_boundaries();
        match observe(&self.libvirt).await {
            Ok(_) if vm.start_boundaries() != before => Ok(vm.document_from_memory()),
            Ok(observed) => Ok(observed.and_then(|seen| vm.describe(seen)).map(Arc::new)),
            Err(error) if snapshot.document.is_some() => {
                tracing::warn!(reason = %os::logging::chain(&error), "libvirt does not answer; the domain is shown as it was reported last");
                Ok(vm.document_from_memory())
            }
            // D-mig-29 (docs/differences.md).
            Err(error) if snapshot.phase == Phase::Expected => {
                tracing::info!(reason = %os::logging::chain(&error), "libvirt does not answer while the domain arrives; nothing is shown of it yet");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// `GetQemuVersion`: QEMU's version. Read once, as the first answer may have to wait until
    /// libvirt has probed QEMU.
    ///
    /// # Errors
    /// libvirt's.
    pub async fn qemu_version(&self) -> Result<String, LauncherError> {
        if let Some(version) = self.qemu_version.get() {
            return Ok(version.clone());
        }
        let known = self.qemu_version.clone();
        self.libvirt
            .read("asking for QEMU's version", move |connection, _| {
                let version = connection.qemu_version()?;
                // Kept even if the caller has given up.
                Ok(known.get_or_init(|| version).clone())
            })
            .await
    }

    /// `GetScreenshot` (`virDomainScreenshot`): a picture of the guest's screen.
    ///
    /// # Errors
    /// libvirt's; no domain, or a domain without a screen.
    pub async fn screenshot(&self) -> Result<Screenshot, LauncherError> {
        self.libvirt
            .read("taking a screenshot", |connection, name| {
                let domain = connection.lookup(name)?.ok_or(LauncherError::NoDomain)?;
                Ok(domain.screenshot(MAX_SCREENSHOT_BYTES)?)
            })
            .await
    }
}

/// Reads the domain from libvirt.
pub(super) async fn observe(libvirt: &LibvirtDomain) -> Result<Option<Observed>, LauncherError> {
    libvirt.read("reading the domain", read).await
}

/// The domain, if libvirt knows it.
fn read(connection: &Connection, name: &str) -> Result<Option<Observed>, LauncherError> {
    let observed = || -> Result<_, libvirt::Error> {
        let Some(domain) = connection.lookup(name)? else {
            return Ok(None);
        };
        let state = domain.state()?;
        Ok(Some((state, xml(&domain, state)?)))
    };
    let (state, xml) = match observed() {
        Ok(Some(observed)) => observed,
        Ok(None) => return Ok(None),
        // It disappeared between two calls.
        Err(error) if error.is_no_domain() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let spec = DomainSpec::from_xml(&xml).map_err(LauncherError::Xml)?;
    Ok(Some(Observed { state, spec }))
}

/// libvirt's parameters as the domain's documents have them.
pub(super) fn typed_values(
    params: Vec<(String, ParamValue)>,
) -> impl Iterator<Item = (String, TypedValue)> {
    params.into_iter().map(|(name, value)| {
        let value = match value {
            ParamValue::Text(text) => TypedValue::Text(text),
            ParamValue::Signed(number) => TypedValue::Signed(number),
            ParamValue::Unsigned(number) => TypedValue::Unsigned(number),
            ParamValue::Double(number) => TypedValue::Double(number),
        };
        (name, value)
    })
}

/// The live XML. libvirt may refuse it while a domain migrates.
pub(super) fn xml(
    domain: &libvirt::DomainHandle,
    state: DomainState,
) -> Result<String, libvirt::Error> {
    match domain.xml(XmlKind::Live) {
        Err(error) if error.is_operation_invalid() => domain.xml(if state.is_down() {
            XmlKind::Inactive
        } else {
            XmlKind::Migratable
        }),
        result => result,
    }
}
