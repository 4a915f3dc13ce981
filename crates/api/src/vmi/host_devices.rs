//! `spec.domain.devices.hostDevices` and `gpus`.

use super::Text;
use super::features::FeatureState;
use crate::api;

api! {
/// `hostDevices` of `Devices`.
HostDevice {
    "name" name: Text,
    "deviceName" device_name: Text,
    "tag" tag: Text,
    "claimName" claim_name: Text,
    "requestName" request_name: Text,
}
/// `gpus` of `Devices`.
Gpu {
    "name" name: Text,
    "deviceName" device_name: Text,
    "virtualGPUOptions" virtual_gpu_options: Option<VgpuOptions>,
    "tag" tag: Text,
    "claimName" claim_name: Text,
    "requestName" request_name: Text,
}
/// `virtualGPUOptions` of `Gpu`.
VgpuOptions {
    "display" display: Option<VgpuDisplayOptions>,
}
/// `display` of `VgpuOptions`.
VgpuDisplayOptions {
    "enabled" enabled: Option<bool>,
    "ramFB" ram_fb: Option<FeatureState>,
}
}
