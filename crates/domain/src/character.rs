//! `<serial>`, `<console>` and `<channel>`: character devices.
//!
//! libvirt: [consoles serial parallel channel
//! devices](https://libvirt.org/formatdomain.html#consoles-serial-parallel-channel-devices)
use super::alias::Alias;
use super::vocabulary::OnOff;
use super::xml::elements;

elements! {
/// `<serial>`: a serial port.
Serial {
    attr "type" "Type" r#type: String,
    child "target" "Target" target: Option<SerialTarget>,
    child "source" "Source" source: Option<SerialSource>,
    child "alias" "Alias" alias: Option<Alias>,
    child "log" "Log" log: Option<SerialLog>,
}
/// `<target>`: the port of the guest.
SerialTarget {
    attr? "port" "Port" port: Option<u64>,
}
/// `<source>`: the socket on the host.
SerialSource {
    attr? "mode" "Mode" mode: String,
    attr? "path" "Path" path: String,
}
/// `<log>`: virtlogd logs the guest's output.
SerialLog {
    attr? "file" "File" file: String,
    attr? "append" "Append" append: OnOff,
}
/// `<console>`: the console; on x86 the first one is the first serial port, seen from another side.
Console {
    attr "type" "Type" r#type: String,
    child "target" "Target" target: Option<ConsoleTarget>,
    child "source" "Source" source: Option<ConsoleSource>,
    child "alias" "Alias" alias: Option<Alias>,
}
/// `<target>`: what the guest has as its console.
ConsoleTarget {
    attr? "type" "Type" r#type: Option<String>,
    attr? "port" "Port" port: Option<u64>,
}
/// `<source>`: the socket on the host.
ConsoleSource {
    attr? "mode" "Mode" mode: String,
    attr? "path" "Path" path: String,
}
/// `<channel>`: a private line between host and guest, such as the guest agent's.
Channel {
    attr "type" "Type" r#type: String,
    child "source" "Source" source: Option<ChannelSource>,
    child "target" "Target" target: Option<ChannelTarget>,
}
/// `<target>`: the name by which the guest finds it.
ChannelTarget {
    attr? "name" "Name" name: String,
    attr "type" "Type" r#type: String,
    attr? "address" "Address" address: String,
    attr? "port" "Port" port: u64,
    attr? "state" "State" state: String,
}
/// `<source>`: the socket on the host.
ChannelSource {
    attr "mode" "Mode" mode: String,
    attr "path" "Path" path: String,
}
}

/// The name of the guest agent's channel.
pub const AGENT_CHANNEL: &str = "org.qemu.guest_agent.0";

impl ChannelTarget {
    /// Whether it is the guest agent's, and an agent is connected.
    #[must_use]
    pub fn is_connected_agent(&self) -> bool {
        self.name == AGENT_CHANNEL && self.state == "connected"
    }
}
