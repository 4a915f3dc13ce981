//! `<graphics>`, `<video>` and `<input>`.

use super::{ConvertError, DomainSpec, Input};
use crate::error::refuse;
use domain::alias::Alias;
use domain::devices::{Input as InputDevice, InputBus, InputType};
use domain::display::{Graphics, GraphicsListen, Video, VideoModel};

/// Video memory in KiB of a display that the VMI names.
const VIDEO_MEMORY: u64 = 16384;

fn has_display(input: &Input<'_>) -> bool {
    input.devices.autoattach_graphics_device.unwrap_or(true)
}

/// VNC on a socket, and the display that it shows. A guest of another architecture than the host's
/// has none: the emulators for it may be built without video devices.
pub(super) fn graphics(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    if !has_display(input) || input.ctx.allow_cross_arch_emulation {
        return Ok(());
    }
    let devices = &mut domain.devices;
    devices.graphics.push(Graphics {
        r#type: String::from("vnc"),
        listen: Some(GraphicsListen {
            r#type: String::from("socket"),
            socket: input.paths.vnc_socket(&input.vmi.metadata.uid),
            ..GraphicsListen::default()
        }),
        ..Graphics::default()
    });
    let (model, memory) = video_model(input);
    devices.video.push(Video {
        model: VideoModel {
            r#type: model,
            heads: Some(1),
            vram: memory,
            ..VideoModel::default()
        },
    });
    Ok(())
}

/// The display: the one that the VMI names, bochs for EFI where the cluster wants it
/// (`BochsDisplayForEFIGuests`), or the architecture's (`video` in `arch.rs`).
fn video_model(input: &Input<'_>) -> (String, Option<u64>) {
    let spec = &input.spec;
    let bootloader = spec
        .firmware
        .as_ref()
        .and_then(|firmware| firmware.bootloader.as_ref());
    let is_efi = bootloader.is_some_and(|bootloader| bootloader.efi.is_some());
    match &spec.devices.video {
        Some(video) => (video.r#type.clone(), Some(VIDEO_MEMORY)),
        None if input.arch.bochs && input.ctx.bochs_for_efi_guests && is_efi => {
            (String::from("bochs"), None)
        }
        None => (String::from(input.arch.video), input.arch.video_memory),
    }
}

/// Tablets that the VMI asks for (virt-controller adds one for `autoattachInputDevice`), and the
/// devices without which a display is of no use on this architecture.
pub(super) fn inputs(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    let wanted = &input.devices.inputs;
    let inputs = &mut domain.devices.inputs;
    for (index, device) in wanted.iter().enumerate() {
        let field = |member: &str| format!("spec.domain.devices.inputs[{index}].{member}");
        let (bus, model) = match device.bus.as_str() {
            "" | "usb" => (InputBus::Usb, ""),
            "virtio" => (InputBus::Virtio, "virtio"),
            other => {
                refuse!(
                    field("bus"),
                    "unsupported input bus {other:?}; supported are usb, virtio"
                );
            }
        };
        if device.r#type != "tablet" {
            refuse!(
                field("type"),
                "unsupported input type {:?}; supported is tablet",
                device.r#type
            );
        }
        inputs.push(InputDevice {
            r#type: InputType::Tablet,
            bus,
            model: String::from(model),
            alias: Some(Alias::user(device.name.clone())),
            ..InputDevice::default()
        });
    }
    if has_display(input) {
        let tablet = input
            .arch
            .tablet
            .filter(|_| wanted.is_empty())
            .map(|bus| (InputType::Tablet, bus));
        let keyboard = input.arch.keyboard;
        let keyboard = keyboard.map(|bus| (InputType::Keyboard, bus));
        inputs.extend(
            [tablet, keyboard]
                .into_iter()
                .flatten()
                .map(|(kind, bus)| InputDevice {
                    r#type: kind,
                    bus: bus.into(),
                    ..InputDevice::default()
                }),
        );
    }
    Ok(())
}
