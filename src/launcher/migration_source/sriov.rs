//! SR-IOV devices stay on their node: the guest releases them before it migrates, and gets the target's afterwards.

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Duration, timeout};

use super::super::libvirt_domain::blocking;
use super::super::sync::read_spec;
use super::super::{Launcher, LauncherError};
use super::MigrationError;
use domain::host_devices::HostDevice;
use libvirt::{Domain, Event, XmlKind};

/// What the names of these devices begin with.
const SRIOV: &str = "sriov-";
/// How long the guest has for each device.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(30);

impl Launcher {
    /// Takes the SR-IOV devices from the guest. The caller has the turn to change the domain.
    pub(super) async fn detach_sriov(
        &self,
        domain: &Domain,
        events: &mut Receiver<Event>,
    ) -> Result<(), LauncherError> {
        let what = "detaching the SR-IOV devices";
        let owned = domain.clone();
        let asked = blocking(what, move || {
            let live = read_spec(&owned, XmlKind::Live)?;
            let devices = live.devices.host_devices.iter().filter(|it| is_sriov(it));
            let mut asked = Vec::new();
            for device in devices {
                owned.detach_device(&device.to_xml())?;
                asked.extend(device.alias.as_ref().map(|alias| alias.qualified()));
            }
            Ok(asked)
        });
        let mut waiting = asked.await?;
        if !waiting.is_empty() {
            tracing::info!(devices = ?waiting, "Waiting for the guest to release its SR-IOV devices");
        }
        while !waiting.is_empty() {
            match timeout(RELEASE_TIMEOUT, events.recv()).await {
                Ok(Ok(Event::DeviceRemoved { alias, .. })) => waiting.retain(|it| *it != alias),
                Ok(Err(RecvError::Lagged(_))) => waiting = self.attached(domain, waiting).await?,
                Ok(Ok(_)) => {}
                Ok(Err(RecvError::Closed)) | Err(_) => {
                    return Err(not_released(waiting).into());
                }
            }
        }
        Ok(())
    }

    /// Those of the devices that the domain still has.
    async fn attached(
        &self,
        domain: &Domain,
        devices: Vec<String>,
    ) -> Result<Vec<String>, LauncherError> {
        let domain = domain.clone();
        blocking("reading the domain", move || {
            let live = read_spec(&domain, XmlKind::Live)?;
            let is_there = |name: &String| {
                let mut aliases = live
                    .devices
                    .host_devices
                    .iter()
                    .filter_map(|it| it.alias.as_ref());
                aliases.any(|alias| alias.qualified() == *name)
            };
            Ok(devices.into_iter().filter(is_there).collect())
        })
        .await
    }
}

fn is_sriov(device: &HostDevice) -> bool {
    let alias = device.alias.as_ref();
    alias.is_some_and(|alias| alias.name.starts_with(SRIOV))
}

fn not_released(devices: Vec<String>) -> MigrationError {
    MigrationError::NotReleased {
        seconds: RELEASE_TIMEOUT.as_secs(),
        devices,
    }
}
