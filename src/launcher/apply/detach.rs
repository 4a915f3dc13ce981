//! Hotplug and unplug (`virDomainAttachDeviceFlags`, `virDomainDetachDeviceFlags`): attaches disks
//! and network interfaces, and asks the guest to release them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libvirt::Event;
use os::lock::lock;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

/// Delay before a guest that has not released a device is asked again. There is no detach timeout:
/// no sync waits for the guest.
const DETACH_RETRY_AFTER: Duration = Duration::from_secs(30);

/// The requests to the guest to release a device, by the device's alias.
#[derive(Debug, Default)]
pub(in crate::launcher) struct DetachRequests(HashMap<String, DetachRequest>);

#[derive(Debug)]
struct DetachRequest {
    asked: Instant,
    refused: bool,
}

/// Follows the guest's answers (`VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED` and `_DEVICE_REMOVAL_FAILED`)
/// for the launcher's life.
pub(in crate::launcher) async fn follow(
    requests: Arc<Mutex<DetachRequests>>,
    mut events: Receiver<Event>,
) {
    loop {
        match events.recv().await {
            Ok(Event::DeviceRemoved { alias, .. }) => lock(&requests).removed(&alias),
            Ok(Event::DeviceRemovalFailed { alias, .. }) => lock(&requests).refused(&alias),
            // If an answer is lost, the request is repeated later.
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

/// What a sync does about a device that is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    First,
    /// The guest has refused, or has not answered for long.
    Again,
    /// The guest was asked recently.
    NotYet,
}

impl DetachRequests {
    fn removed(&mut self, alias: &str) {
        self.0.remove(alias);
    }

    /// A device with this alias was attached, so the device that the guest was asked to release is
    /// gone. libvirt's event of that removal may come later, so the request is forgotten now: a
    /// detach of the new device is a new request.
    fn attached(&mut self, alias: &str) {
        self.removed(alias);
    }

    /// The guest refuses to release the device: the next sync asks again.
    fn refused(&mut self, alias: &str) {
        if let Some(request) = self.0.get_mut(alias) {
            tracing::warn!(
                alias,
                "The guest does not release the device; the next sync asks again"
            );
            request.refused = true;
        }
    }

    /// Decides, and notes the request: the guest may answer before libvirt's call returns.
    // D-disk-16 (docs/differences.md).
    fn ask(&mut self, alias: &str, now: Instant) -> Ask {
        let ask = match self.0.get(alias) {
            None => Ask::First,
            Some(it) if it.refused || now.duration_since(it.asked) >= DETACH_RETRY_AFTER => {
                Ask::Again
            }
            Some(_) => return Ask::NotYet,
        };
        let (asked, refused) = (now, false);
        self.0
            .insert(alias.into(), DetachRequest { asked, refused });
        ask
    }
}

/// Attaches a device. After an interrupted unplug the definition may still have it, and libvirt
/// refuses to attach it twice. Then this removes it from the definition first: the running domain
/// must have no device at its target, by which libvirt finds it. `alias` is spelled as in libvirt's
/// events.
// D-disk-1 (docs/differences.md).
pub(in crate::launcher) fn attach(
    domain: &libvirt::ChangeableDomain,
    alias: &str,
    xml: &str,
    requests: &Mutex<DetachRequests>,
) -> Result<(), libvirt::Error> {
    let attached = match domain.attach_device(xml) {
        Err(refused) => match domain.detach_device_config(xml) {
            Ok(()) => domain.attach_device(xml),
            Err(_) => Err(refused),
        },
        done => done,
    };
    if attached.is_ok() {
        lock(requests).attached(alias);
    }
    attached
}

/// Asks the guest to release a device, unless it was asked recently. `alias`: as in [`attach`].
// D-disk-17 (docs/differences.md).
pub(in crate::launcher) fn detach(
    domain: &libvirt::ChangeableDomain,
    alias: &str,
    xml: &str,
    requests: &Mutex<DetachRequests>,
) -> Result<(), libvirt::Error> {
    let ask = lock(requests).ask(alias, Instant::now());
    let result = match ask {
        Ask::NotYet => {
            tracing::info!(alias, "The guest has not released the device yet");
            return Ok(());
        }
        // The first request removed the device from the definition; only the guest still has it.
        Ask::Again => domain.detach_device_live(xml),
        Ask::First => match domain.detach_device(xml) {
            // An earlier launcher has asked: only the guest still has the device.
            Err(error) if error.is_device_missing() => domain.detach_device_live(xml),
            done => done,
        },
    };
    match result {
        Err(error) if error.is_device_missing() => {
            lock(requests).removed(alias);
            Ok(())
        }
        Err(error) if ask == Ask::First => {
            lock(requests).removed(alias);
            Err(error)
        }
        // QEMU refuses a second request while the guest has not answered the first. The guest is
        // asked again as long after this one.
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libvirt::{Connection, MayChange};

    struct Test;

    impl MayChange for Test {}

    #[test]
    // D-disk-16 (docs/differences.md).
    fn a_guest_that_cannot_be_asked_again_yet_is_asked_later() {
        let connection = Connection::open("test:///default").unwrap();
        let domain = connection.lookup("test").unwrap().unwrap();
        let domain = domain.changeable(&Test);
        let requests = Mutex::<DetachRequests>::default();
        let before = Instant::now().checked_sub(DETACH_RETRY_AFTER).unwrap();
        assert_eq!(lock(&requests).ask("ua-data", before), Ask::First);
        // This driver refuses it, as QEMU does in the middle of an unplug.
        let xml = "<disk type='file'><source file='/a'/><target dev='sda'/></disk>";
        detach(&domain, "ua-data", xml, &requests).unwrap_err();
        let next = lock(&requests).ask("ua-data", Instant::now());
        assert_eq!(next, Ask::NotYet);
    }

    #[test]
    fn a_guest_is_asked_once_until_it_refuses_or_patience_ends() {
        let mut requests = DetachRequests::default();
        let now = Instant::now();
        let later = now + DETACH_RETRY_AFTER;
        assert_eq!(requests.ask("ua-data", now), Ask::First);
        assert_eq!(requests.ask("ua-data", now), Ask::NotYet);
        assert_eq!(requests.ask("ua-data", later), Ask::Again);
        assert_eq!(requests.ask("ua-data", later), Ask::NotYet);
        requests.refused("ua-data");
        assert_eq!(requests.ask("ua-data", later), Ask::Again);
        assert_eq!(requests.ask("ua-data", later), Ask::NotYet);
        requests.removed("ua-data");
        assert_eq!(requests.ask("ua-data", later), Ask::First);
        requests.refused("ua-other");
        assert_eq!(requests.ask("ua-other", now), Ask::First);
    }

    #[test]
    fn a_guest_that_got_the_device_back_is_asked_at_once() {
        let mut requests = DetachRequests::default();
        let now = Instant::now();
        requests.ask("ua-data", now);
        // The event of the old device's removal has not arrived yet.
        requests.attached("ua-data");
        assert_eq!(requests.ask("ua-data", now), Ask::First);
    }
}
