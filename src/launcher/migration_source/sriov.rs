//! Detaches SR-IOV devices, which stay on their node, before the guest migrates. The target
//! attaches its own on virt-handler's `HotplugHostDevices` (`src/launcher/apply/host_devices.rs`).

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Duration, timeout_at};

use super::error::MigrationError;
use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::{blocking, read_spec};
use crate::launcher::vm::Permit;
use domain::host_devices::HostDevice;
use libvirt::{ChangeableDomain, DomainHandle, Event, XmlKind};
use os::failpoints;

/// Prefix of the names (aliases) of SR-IOV devices.
const SRIOV: &str = "sriov-";
/// Time limit for the guest to release one device; it starts again after each device.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(30);

/// Detaches the SR-IOV devices from the guest. The calls to libvirt keep the turn to change the
/// domain when this is dropped. `events`: subscribed before, as the guest may answer before
/// libvirt's call returns.
pub(super) async fn detach(
    domain: &ChangeableDomain,
    turn: Permit,
    events: &mut Receiver<Event>,
) -> Result<(), LauncherError> {
    let what = "detaching the SR-IOV devices";
    let owned = domain.clone();
    let asked = blocking(what, move || {
        let _turn = turn;
        failpoints::hit("migration.detaching");
        let live = read_spec(&owned, XmlKind::Live)?;
        let devices = live.devices.host_devices.iter().filter(|it| is_sriov(it));
        let mut asked = Vec::new();
        for device in devices {
            owned.detach_device(&device.to_xml())?;
            asked.extend(device.alias.as_ref().map(|alias| alias.qualified()));
        }
        Ok(asked)
    });
    let waiting = asked.await?;
    if !waiting.is_empty() {
        tracing::info!(devices = ?waiting, "Waiting for the guest to release its SR-IOV devices");
    }
    released(waiting, events, |devices| attached(domain, devices)).await
}

/// The devices in the list that the domain still has.
async fn attached(
    domain: &DomainHandle,
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

/// Waits until the guest has released all devices (`VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED`).
/// `attached` returns the devices that remain.
async fn released<F: Future<Output = Result<Vec<String>, LauncherError>>>(
    mut waiting: Vec<String>,
    events: &mut Receiver<Event>,
    attached: impl Fn(Vec<String>) -> F,
) -> Result<(), LauncherError> {
    let mut end = os::time::deadline(RELEASE_TIMEOUT);
    while !waiting.is_empty() {
        let before = waiting.len();
        match timeout_at(end, events.recv()).await {
            Ok(Ok(Event::DeviceRemoved { alias, .. })) => waiting.retain(|it| *it != alias),
            Ok(Err(RecvError::Lagged(_))) => waiting = attached(waiting).await?,
            // A guest may cause other events without end, such as by setting its clock.
            Ok(Ok(_)) => {}
            // libvirt's daemon may have been away when the guest released them.
            Ok(Err(RecvError::Closed)) | Err(_) => {
                waiting = attached(waiting).await?;
                if waiting.len() == before {
                    return Err(not_released(waiting).into());
                }
            }
        }
        if waiting.len() < before {
            end = os::time::deadline(RELEASE_TIMEOUT);
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast;
    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn other_events_give_the_guest_no_more_time() {
        let (sender, mut events) = broadcast::channel(8);
        let causes = tokio::spawn(async move {
            for second in 0.. {
                sleep(Duration::from_secs(1)).await;
                let event = match second {
                    10 => Event::DeviceRemoved {
                        domain: "vm".into(),
                        alias: "sriov-one".into(),
                    },
                    _ => Event::Reboot {
                        domain: "vm".into(),
                    },
                };
                let _ = sender.send(event);
            }
        });
        let began = Instant::now();
        let waiting = vec!["sriov-one".to_owned(), "sriov-two".to_owned()];
        let error = released(waiting, &mut events, async |left| Ok(left))
            .await
            .unwrap_err();
        causes.abort();
        let error = error.to_string();
        assert!(
            error.contains("sriov-two") && !error.contains("sriov-one"),
            "{error}"
        );
        // When the first device is released, the limit starts again for the second.
        assert_eq!(began.elapsed().as_secs(), 11 + 30);
    }

    #[tokio::test(start_paused = true)]
    async fn devices_that_the_guest_released_without_an_event_are_released() {
        let (_sender, mut events) = broadcast::channel(8);
        let waiting = vec!["sriov-one".to_owned()];
        let done = released(waiting, &mut events, async |_| Ok(Vec::new()));
        done.await.unwrap();
    }
}
