//! `spec.domain.devices`: the list of all devices, and the small ones.
use super::disks::Disk;
use super::host_devices::{Gpu, HostDevice};
use super::interfaces::Interface;
use crate::api;

api! {
/// `devices` of `DomainSpec`.
Devices {
    "useVirtioTransitional" use_virtio_transitional: Option<bool>,
    "disableHotplug" disable_hotplug: bool,
    "disks" disks: Vec<Disk>,
    "watchdog" watchdog: Option<Watchdog>,
    "interfaces" interfaces: Vec<Interface>,
    "inputs" inputs: Vec<Input>,
    "autoattachGraphicsDevice" autoattach_graphics_device: Option<bool>,
    "autoattachSerialConsole" autoattach_serial_console: Option<bool>,
    "logSerialConsole" log_serial_console: Option<bool>,
    "autoattachMemBalloon" autoattach_mem_balloon: Option<bool>,
    "rng" rng: Option<Rng>,
    "blockMultiQueue" block_multi_queue: Option<bool>,
    "networkInterfaceMultiqueue" network_interface_multiqueue: Option<bool>,
    "gpus" gpus: Vec<Gpu>,
    "downwardMetrics" downward_metrics: Option<DownwardMetrics>,
    "panicDevices" panic_devices: Vec<PanicDevice>,
    "filesystems" filesystems: Vec<Filesystem>,
    "hostDevices" host_devices: Vec<HostDevice>,
    "clientPassthrough" client_passthrough: Option<ClientPassthroughDevices>,
    "sound" sound: Option<SoundDevice>,
    "tpm" tpm: Option<TpmDevice>,
    "video" video: Option<VideoDevice>,
}
/// `watchdog` of `Devices`.
Watchdog {
    "name" name: String,
    "i6300esb" i6300esb: Option<I6300EsbWatchdog>,
    "diag288" diag288: Option<Diag288Watchdog>,
}
/// `inputs` of `Devices`.
Input {
    "bus" bus: String,
    "type" r#type: String,
    "name" name: String,
}
/// `rng` of `Devices`.
Rng {
}
/// `downwardMetrics` of `Devices`.
DownwardMetrics {
}
/// `panicDevices` of `Devices`.
PanicDevice {
    "model" model: Option<String>,
}
/// `filesystems` of `Devices`.
Filesystem {
    "name" name: String,
    "virtiofs" virtiofs: Option<FilesystemVirtiofs>,
}
/// `clientPassthrough` of `Devices`.
ClientPassthroughDevices {
}
/// `sound` of `Devices`.
SoundDevice {
    "name" name: String,
    "model" model: String,
}
/// `tpm` of `Devices`.
TpmDevice {
    "enabled" enabled: Option<bool>,
    "persistent" persistent: Option<bool>,
}
/// `video` of `Devices`.
VideoDevice {
    "type" r#type: String,
}
/// `i6300esb` of `Watchdog`.
I6300EsbWatchdog {
    "action" action: String,
}
/// `diag288` of `Watchdog`.
Diag288Watchdog {
    "action" action: String,
}
/// `virtiofs` of `Filesystem`.
FilesystemVirtiofs {
}
}
