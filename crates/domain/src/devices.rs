//! `<devices>`: the list of all devices, and the small ones.
//!
//! libvirt: [devices](https://libvirt.org/formatdomain.html#devices)
use super::address::Address;
use super::alias::Alias;
use super::character::{Channel, ChannelTarget, Console, Serial};
use super::controllers::Controller;
use super::disks::Disk;
use super::display::{Graphics, Video};
use super::host_devices::HostDevice;
use super::interfaces::Interface;
use super::memory::MemoryDevice;
use super::vocabulary::{OnOff, YesNo, vocabulary};
use super::xml::elements;

vocabulary! {
/// The bus of an input device.
InputBus {
    Usb = "usb",
    Virtio = "virtio",
    Ps2 = "ps2",
}
/// What an input device is.
InputType {
    Tablet = "tablet",
    Keyboard = "keyboard",
    Mouse = "mouse",
}
}

elements! {
/// `<devices>`.
Devices {
    leaf? "emulator" "Emulator" emulator: String,
    child "interface" "Interfaces" interfaces: Vec<Interface>,
    child "channel" "Channels" channels: Vec<Channel>,
    child "hostdev" "HostDevices" host_devices: Vec<HostDevice>,
    child "panic" "PanicDevices" panic_devices: Vec<PanicDevice>,
    child "controller" "Controllers" controllers: Vec<Controller>,
    child "video" "Video" video: Vec<Video>,
    child "graphics" "Graphics" graphics: Vec<Graphics>,
    child "memballoon" "Ballooning" ballooning: Option<MemBalloon>,
    child "disk" "Disks" disks: Vec<Disk>,
    child "input" "Inputs" inputs: Vec<Input>,
    child "serial" "Serials" serials: Vec<Serial>,
    child "console" "Consoles" consoles: Vec<Console>,
    child "watchdog" "Watchdogs" watchdogs: Vec<Watchdog>,
    child "rng" "Rng" rng: Option<Rng>,
    child "filesystem" "Filesystems" filesystems: Vec<FilesystemDevice>,
    child "redirdev" "Redirs" redirs: Vec<RedirectedDevice>,
    child "sound" "SoundCards" sound_cards: Vec<SoundCard>,
    child "tpm" "TPMs" tpms: Vec<Tpm>,
    child "vsock" "VSOCK" vsock: Option<Vsock>,
    child "memory" "Memory" memory: Option<MemoryDevice>,
    child "iommu" "IOMMU" iommu: Vec<IommuDevice>,
}
/// `<panic>`: through it the guest reports that it has crashed.
PanicDevice {
    attr? "model" "Model" model: Option<String>,
}
/// `<tpm>`: an emulated TPM.
Tpm {
    attr "model" "Model" model: String,
    child "backend" "Backend" backend: TpmBackend,
}
/// `<backend>`: swtpm, and whether its state is persistent.
TpmBackend {
    attr "type" "Type" r#type: String,
    attr "version" "Version" version: String,
    attr? "persistent_state" "PersistentState" persistent_state: YesNo,
}
/// `<redirdev>`: a USB port for a device of whoever holds the socket.
RedirectedDevice {
    attr "type" "Type" r#type: String,
    attr "bus" "Bus" bus: String,
    child "source" "Source" source: RedirectedDeviceSource,
}
/// `<source>`: the socket.
RedirectedDeviceSource {
    attr "mode" "Mode" mode: String,
    attr "path" "Path" path: String,
}
/// `<filesystem>`: a directory of the host, by virtiofs.
FilesystemDevice {
    attr "type" "Type" r#type: String,
    attr "accessMode" "AccessMode" access_mode: String,
    child "source" "Source" source: Option<FilesystemSource>,
    child "target" "Target" target: Option<FilesystemTarget>,
    child "driver" "Driver" driver: Option<FilesystemDriver>,
    child "binary" "Binary" binary: Option<FilesystemBinary>,
}
/// `<target>`: the tag under which the guest mounts it.
FilesystemTarget {
    attr? "dir" "Dir" dir: String,
}
/// `<source>`: the socket of a virtiofsd that runs already.
FilesystemSource {
    attr "dir" "Dir" dir: String,
    attr? "socket" "Socket" socket: String,
}
/// `<driver>`.
FilesystemDriver {
    attr "type" "Type" r#type: String,
    attr? "queue" "Queue" queue: String,
}
/// `<binary>`: how libvirt starts virtiofsd.
FilesystemBinary {
    attr? "path" "Path" path: String,
    attr? "xattr" "Xattr" xattr: String,
    child "cache" "Cache" cache: Option<FilesystemBinaryCache>,
    child "lock" "Lock" lock: Option<FilesystemBinaryLock>,
}
/// `<cache>`: what the guest may cache.
FilesystemBinaryCache {
    attr? "mode" "Mode" mode: String,
}
/// `<lock>`: which locks reach the host.
FilesystemBinaryLock {
    attr? "posix" "Posix" posix: String,
    attr? "flock" "Flock" flock: String,
}
/// `<input>`: tablet, mouse or keyboard.
Input {
    attr "type" "Type" r#type: InputType,
    attr "bus" "Bus" bus: InputBus,
    child "alias" "Alias" alias: Option<Alias>,
    child "address" "Address" address: Option<Address>,
    attr? "model" "Model" model: String,
}
/// `<sound>`.
SoundCard {
    child "alias" "Alias" alias: Option<Alias>,
    attr "model" "Model" model: String,
}
/// `<vsock>`: sockets between host and guest without a network.
Vsock {
    attr? "model" "Model" model: String,
    child "cid" "CID" cid: Cid,
}
/// `<cid>`: the guest's address among all guests of the node.
Cid {
    attr "auto" "Auto" auto: YesNo,
    attr? "address" "Address" address: u32,
}
/// `<stats>`: how often the guest reports its memory use.
BalloonStats {
    /// In seconds.
    attr "period" "Period" period: u64,
}
/// `<memballoon>`: through it the guest gives memory back.
MemBalloon {
    attr "model" "Model" model: String,
    child "stats" "Stats" stats: Option<BalloonStats>,
    child "address" "Address" address: Option<Address>,
    child "driver" "Driver" driver: Option<MemBalloonDriver>,
    attr? "freePageReporting" "FreePageReporting" free_page_reporting: OnOff,
}
/// `<driver>`.
MemBalloonDriver {
    attr? "iommu" "IOMMU" iommu: OnOff,
}
/// `<watchdog>`: acts when the guest stops feeding it.
Watchdog {
    attr "model" "Model" model: String,
    attr "action" "Action" action: String,
    child "alias" "Alias" alias: Option<Alias>,
    child "address" "Address" address: Option<Address>,
}
/// `<rng>`: entropy for the guest.
Rng {
    attr "model" "Model" model: String,
    child "backend" "Backend" backend: Option<RngBackend>,
    child "address" "Address" address: Option<Address>,
    child "driver" "Driver" driver: Option<RngDriver>,
}
/// `<driver>`.
RngDriver {
    attr? "iommu" "IOMMU" iommu: OnOff,
}
/// `<backend>`: where on the host the entropy comes from.
RngBackend {
    attr "model" "Model" model: String,
    text "Source" source: String,
}
/// `<iommu>`: an IOMMU for the guest.
IommuDevice {
    name "iommu",
    attr "model" "Model" model: String,
    child "driver" "Driver" driver: Option<IommuDriver>,
}
/// `<driver>`: properties of the SMMU.
IommuDriver {
    attr? "pciBus" "PCIBus" pci_bus: String,
    attr? "accel" "Accel" accel: OnOff,
    attr? "ats" "ATS" ats: OnOff,
    attr? "ril" "RIL" ril: OnOff,
    attr? "ssidSize" "SSIDSize" ssid_size: String,
    attr? "oas" "OAS" oas: String,
}
}

impl Devices {
    /// Whether a guest agent is connected.
    #[must_use]
    pub fn has_agent(&self) -> bool {
        let mut targets = self
            .channels
            .iter()
            .filter_map(|channel| channel.target.as_ref());
        targets.any(ChannelTarget::is_connected_agent)
    }
}
