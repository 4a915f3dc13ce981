//! Looking at the domain.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::decide::is_visible;
use super::{Launcher, LauncherError, READ, blocking, lock, state, within};
use domain::Domain;
use domain::DomainSpec;
use libvirt::{self, Connection, State, XmlKind, paused};

/// The domain at one moment.
#[derive(Debug)]
pub(super) struct Observed {
    pub state: State,
    pub reason: i32,
    pub spec: DomainSpec,
}

impl Launcher {
    /// The domain as virt-handler may see it; none while it is being started. When libvirt does not answer in time, it
    /// is the domain as it was seen last.
    ///
    /// # Errors
    /// libvirt's, unless something was seen before.
    pub async fn domain(self: &Arc<Self>) -> Result<Option<Domain>, LauncherError> {
        if *self.starting.borrow() {
            return Ok(None);
        }
        match self.observe().await {
            Ok(observed) => {
                let document = observed.and_then(|observed| self.show(observed));
                if let Some(document) = &document {
                    *lock(&self.last) = Some(document.clone());
                }
                Ok(document)
            }
            Err(error) => match lock(&self.last).clone() {
                Some(document) => {
                    tracing::warn!(reason = %error, "libvirt does not answer; the domain is shown as it was seen last");
                    Ok(Some(document))
                }
                None => Err(error),
            },
        }
    }

    /// QEMU's version. It is asked for once, since the first answer may have to wait until libvirt has probed QEMU.
    ///
    /// # Errors
    /// libvirt's.
    pub async fn qemu_version(self: &Arc<Self>) -> Result<String, LauncherError> {
        if let Some(version) = self.qemu_version.get() {
            return Ok(version.clone());
        }
        let launcher = self.clone();
        self.read("asking for QEMU's version", move || {
            let version = launcher.connection().qemu_version()?;
            // Kept also when the caller has given up meanwhile.
            Ok(launcher.qemu_version.get_or_init(|| version).clone())
        })
        .await
    }

    /// Looks at the domain.
    pub(super) async fn observe(self: &Arc<Self>) -> Result<Option<Observed>, LauncherError> {
        let (connection, name) = (self.connection(), self.domain_name.clone());
        self.read("looking at the domain", move || observe(&connection, &name))
            .await
    }

    /// A read: bounded in time, and in number, so that a libvirt that hangs takes no more than a few threads.
    async fn read<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce() -> Result<T, LauncherError> + Send + 'static,
    ) -> Result<T, LauncherError> {
        let permits = self.reads.clone();
        within(what, READ, async move {
            // Never closed, so this waits, and does not fail.
            let permit = permits.acquire_owned().await;
            blocking(what, move || {
                let _permit = permit;
                work()
            })
            .await
        })
        .await
    }

    /// The document of what was observed, if virt-handler may see it.
    pub(super) fn show(&self, observed: Observed) -> Option<Domain> {
        if !is_visible(
            *self.starting.borrow(),
            self.has_run(),
            (observed.state, observed.reason),
        ) {
            return None;
        }
        if !observed.state.is_down() && !self.has_run.swap(true, Ordering::Relaxed) {
            tracing::info!("the domain is there already; it is taken over");
            self.metadata.adopt(&observed.spec.metadata.kube_virt);
            let by_user = (observed.state, observed.reason) == (State::Paused, paused::USER);
            self.paused_by_user.store(by_user, Ordering::Relaxed);
        }
        let (status, reason) = state::words(observed.state, self.reason(&observed));
        let mut document = self.blank_document();
        let metadata = std::mem::take(&mut document.spec.metadata);
        document.spec = observed.spec;
        document.spec.metadata = metadata;
        document.status.status = status.into();
        document.status.reason = reason.into();
        document.fill_required_fields();
        Some(document)
    }

    /// libvirt's reason, or the one that it has missed: QEMU holds back its word about a disk that fails again within a
    /// second, and libvirt takes that only for a domain that still runs.
    fn reason(&self, observed: &Observed) -> i32 {
        let unexplained = (observed.state, observed.reason) == (State::Paused, paused::UNKNOWN);
        if unexplained && self.disk_failed.load(Ordering::Relaxed) {
            paused::IO_ERROR
        } else {
            observed.reason
        }
    }

    /// A document with all that is known without libvirt.
    pub(super) fn blank_document(&self) -> Domain {
        let metadata = self.metadata.load();
        let mut document = Domain::new(&self.config.namespace, &self.config.name, &metadata.uid);
        document.spec.metadata.kube_virt = metadata;
        document.status = lock(&self.guest).status.clone();
        document
    }
}

/// The domain, if libvirt knows it.
fn observe(connection: &Connection, name: &str) -> Result<Option<Observed>, LauncherError> {
    let observed = || -> Result<_, libvirt::Error> {
        let Some(domain) = connection.lookup(name)? else {
            return Ok(None);
        };
        let (state, reason) = domain.state()?;
        Ok(Some((state, reason, xml(&domain, state)?)))
    };
    let (state, reason, xml) = match observed() {
        Ok(Some(observed)) => observed,
        Ok(None) => return Ok(None),
        // It went between two calls.
        Err(error) if error.is_no_domain() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let spec = DomainSpec::from_xml(&xml).map_err(LauncherError::Xml)?;
    Ok(Some(Observed {
        state,
        reason,
        spec,
    }))
}

/// The live XML. While a domain migrates libvirt may refuse it.
fn xml(domain: &libvirt::Domain, state: State) -> Result<String, libvirt::Error> {
    match domain.xml(XmlKind::Live) {
        Err(error) if error.is_operation_invalid() => domain.xml(if state.is_down() {
            XmlKind::Inactive
        } else {
            XmlKind::Migratable
        }),
        result => result,
    }
}
