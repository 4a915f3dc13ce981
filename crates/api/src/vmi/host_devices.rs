//! `spec.domain.devices.hostDevices` and `gpus`.
use super::features::FeatureState;
use crate::api;

api! {
/// `hostDevices` of `Devices`.
HostDevice {
    "name" name: String,
    "deviceName" device_name: String,
    "tag" tag: String,
    "claimName" claim_name: String,
    "requestName" request_name: String,
}
/// `gpus` of `Devices`.
Gpu {
    "name" name: String,
    "deviceName" device_name: String,
    "virtualGPUOptions" virtual_gpu_options: Option<VgpuOptions>,
    "tag" tag: String,
    "claimName" claim_name: String,
    "requestName" request_name: String,
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
