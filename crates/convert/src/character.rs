//! `<channel>`, `<serial>` and `<console>`.

use super::{ConvertError, DomainSpec, Input};
use domain::OnOff;
use domain::character::{
    AGENT_CHANNEL, Channel, ChannelSource, ChannelTarget, Console, ConsoleTarget, Serial,
    SerialLog, SerialSource, SerialTarget,
};

/// The guest agent's channel (libvirt chooses its path), and the channel for metrics of the host.
pub(super) fn channels(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    let channel = |name: &'static str, source| Channel {
        r#type: String::from("unix"),
        source,
        target: Some(ChannelTarget {
            name: String::from(name),
            r#type: String::from("virtio"),
            ..ChannelTarget::default()
        }),
    };
    let channels = &mut domain.devices.channels;
    channels.push(channel(AGENT_CHANNEL, None));
    if input.devices.downward_metrics.is_some() {
        let source = ChannelSource {
            mode: String::from("bind"),
            path: input.paths.downward_metrics_socket(),
        };
        channels.push(channel("org.github.vhostmd.1", Some(source)));
    }
    Ok(())
}

/// Whether the guest has a serial console.
pub(super) fn has_serial_console(input: &Input<'_>) -> bool {
    input.devices.autoattach_serial_console.unwrap_or(true)
}

/// The serial console, on a socket, and on demand with a log (`<log file>`).
pub(super) fn console(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    if !has_serial_console(input) {
        return Ok(());
    }
    let uid = &input.vmi.metadata.uid;
    domain.devices.consoles.push(Console {
        r#type: String::from("pty"),
        target: Some(ConsoleTarget {
            r#type: Some(String::from("serial")),
            port: Some(0),
        }),
        ..Console::default()
    });
    domain.devices.serials.push(Serial {
        r#type: String::from("unix"),
        target: Some(SerialTarget { port: Some(0) }),
        source: Some(SerialSource {
            mode: String::from("bind"),
            path: input.paths.serial_socket(uid),
        }),
        log: input.ctx.serial_console_log.then(|| SerialLog {
            file: input.paths.serial_log(uid),
            append: OnOff::On,
        }),
        ..Serial::default()
    });
    Ok(())
}
