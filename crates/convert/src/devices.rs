//! The small devices, each of which is one element: TPM, vsock, random numbers, balloon, sound,
//! watchdog, panic notifier, USB redirection, virtiofs.

use super::arch::Watchdog as WatchdogModel;
use super::{ConvertError, DomainSpec, Input};
use crate::error::refuse;
use domain::YesNo;
use domain::alias::Alias;
use domain::devices::{
    BalloonStats, Cid, FilesystemDevice, FilesystemDriver, FilesystemSource, FilesystemTarget,
    MemBalloon, MemBalloonDriver, PanicDevice, RedirectedDevice, RedirectedDeviceSource, Rng,
    RngBackend, RngDriver, SoundCard, Tpm, TpmBackend, Vsock, Watchdog,
};

/// USB devices that can be redirected to a guest at a time.
const REDIRECTED_USB_DEVICES: u32 = 4;
/// Requests in flight to a virtiofs daemon (its queue size).
const VIRTIOFS_QUEUE: &str = "1024";

/// TPM 2.0, emulated (vTPM). A persistent one is a CRB device.
pub(super) fn tpm(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    let wanted = input
        .devices
        .tpm
        .as_ref()
        .filter(|tpm| tpm.enabled.unwrap_or(true));
    if let Some(tpm) = wanted {
        let (model, state) = if tpm.persistent == Some(true) {
            ("tpm-crb", YesNo::Yes)
        } else {
            ("tpm-tis", YesNo::Unset)
        };
        domain.devices.tpms.push(Tpm {
            model: String::from(model),
            backend: TpmBackend {
                r#type: String::from("emulator"),
                version: String::from("2.0"),
                persistent_state: state,
            },
        });
    }
    Ok(())
}

/// Says whether the pod's network namespace has vsock addresses of its own (`local`).
pub const VSOCK_NS_MODE: &str = "/proc/sys/net/vsock/ns_mode";
/// The guest's address in such a namespace: KubeVirt v1.10's virt-handler connects to this one.
/// v1.9's virt-handler reaches no guest there.
const LOCAL_CID: u32 = 3;

/// A socket to the host, with the address that virt-controller has chosen (for `autoattachVSOCK`),
/// or the fixed one of a namespace with its own addresses. QEMU's device exists without the legacy
/// interface only.
pub(super) fn vsock(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    let mode = input.ctx.host_files.get(VSOCK_NS_MODE);
    let is_local = mode.is_some_and(|mode| mode.trim() == "local");
    domain.devices.vsock = input.vmi.status.vsockcid.map(|chosen| Vsock {
        model: String::from("virtio-non-transitional"),
        cid: Cid {
            auto: YesNo::No,
            address: if is_local { LOCAL_CID } else { chosen },
        },
    });
    Ok(())
}

/// Random numbers from the host.
pub(super) fn rng(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    if input.devices.rng.is_some() {
        domain.devices.rng = Some(Rng {
            model: input.virtio_model.clone(),
            backend: Some(RngBackend {
                model: String::from("random"),
                source: String::from("/dev/urandom"),
            }),
            driver: input.iommu.then(|| RngDriver {
                iommu: input.virtio_iommu(),
            }),
            ..Rng::default()
        });
    }
    Ok(())
}

/// The memory balloon, which also reports how much the guest uses (`<stats period>`,
/// `MemBalloonStatsPeriod`). Without an element libvirt would add its default, so `none` is written
/// too. Whether it reports free pages is in the context: `reports_free_pages` of `pod`'s `collect`.
pub(super) fn balloon(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    let period = input.ctx.mem_balloon_stats_period;
    domain.devices.ballooning = Some(if input.devices.autoattach_mem_balloon.unwrap_or(true) {
        MemBalloon {
            model: input.virtio_model.clone(),
            stats: (period != 0).then_some(BalloonStats { period }),
            driver: input.iommu.then(|| MemBalloonDriver {
                iommu: input.virtio_iommu(),
            }),
            free_page_reporting: input.ctx.free_page_reporting.into(),
            ..MemBalloon::default()
        }
    } else {
        MemBalloon {
            model: String::from("none"),
            ..MemBalloon::default()
        }
    });
    Ok(())
}

pub(super) fn sound(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    if let Some(sound) = &input.devices.sound {
        let model = match sound.model.as_str() {
            "" | "ich9" => "ich9",
            "ac97" => "ac97",
            other => {
                refuse!(
                    "spec.domain.devices.sound.model",
                    "unsupported sound card model {other:?}; supported are ich9, ac97"
                );
            }
        };
        let card = SoundCard {
            alias: Some(Alias::user(sound.name.clone())),
            model: String::from(model),
        };
        domain.devices.sound_cards.push(card);
    }
    Ok(())
}

/// The watchdog of the architecture. virt-api sets the default action, `reset`.
pub(super) fn watchdog(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    const FIELD: &str = "spec.domain.devices.watchdog";
    let Some(watchdog) = &input.devices.watchdog else {
        return Ok(());
    };
    let (model, action) = match input.arch.watchdog {
        WatchdogModel::None => {
            refuse!(FIELD, "{} has no watchdog; remove it", input.arch.name);
        }
        WatchdogModel::I6300Esb => (
            "i6300esb",
            watchdog.i6300esb.as_ref().map(|device| &device.action),
        ),
        WatchdogModel::Diag288 => (
            "diag288",
            watchdog.diag288.as_ref().map(|device| &device.action),
        ),
    };
    let Some(action) = action else {
        refuse!(
            FIELD,
            "the watchdog {:?} is of a kind that {} does not have; supported is {model}",
            watchdog.name,
            input.arch.name
        );
    };
    domain.devices.watchdogs.push(Watchdog {
        model: String::from(model),
        action: action.clone(),
        alias: Some(Alias::user(watchdog.name.clone())),
        ..Watchdog::default()
    });
    Ok(())
}

/// Devices by which the guest reports that it has crashed, such as `pvpanic`.
pub(super) fn panic_devices(
    input: &Input<'_>,
    domain: &mut DomainSpec,
) -> Result<(), ConvertError> {
    let devices = input.devices.panic_devices.iter();
    domain
        .devices
        .panic_devices
        .extend(devices.map(|device| PanicDevice {
            model: device.model.clone(),
        }));
    Ok(())
}

/// USB devices redirected by `virtctl usbredir`: always as many as KubeVirt allows.
pub(super) fn usb_redirection(
    input: &Input<'_>,
    domain: &mut DomainSpec,
) -> Result<(), ConvertError> {
    if input.devices.client_passthrough.is_some() {
        let device = |index| RedirectedDevice {
            r#type: String::from("unix"),
            bus: String::from("usb"),
            source: RedirectedDeviceSource {
                mode: String::from("bind"),
                path: input
                    .paths
                    .usb_redirection_socket(&input.vmi.metadata.uid, index),
            },
        };
        domain
            .devices
            .redirs
            .extend((0..REDIRECTED_USB_DEVICES).map(device));
    }
    Ok(())
}

/// File systems shared by virtiofsd, each in its own container.
pub(super) fn virtiofs(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    let wanted = input
        .devices
        .filesystems
        .iter()
        .filter(|filesystem| filesystem.virtiofs.is_some());
    domain
        .devices
        .filesystems
        .extend(wanted.map(|filesystem| FilesystemDevice {
            r#type: String::from("mount"),
            access_mode: String::from("passthrough"),
            source: Some(FilesystemSource {
                socket: input.paths.virtiofs_socket(&filesystem.name),
                ..FilesystemSource::default()
            }),
            target: Some(FilesystemTarget {
                dir: filesystem.name.clone(),
            }),
            driver: Some(FilesystemDriver {
                r#type: String::from("virtiofs"),
                queue: String::from(VIRTIOFS_QUEUE),
            }),
            ..FilesystemDevice::default()
        }));
    Ok(())
}
