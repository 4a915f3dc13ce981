//! `<sysinfo>`: what SMBIOS reports to the guest.
//!
//! libvirt: [smbios system
//! information](https://libvirt.org/formatdomain.html#smbios-system-information)
use super::xml::elements;

elements! {
/// `<sysinfo>`: entries of the SMBIOS tables.
SysInfo {
    attr "type" "Type" r#type: String,
    /// Written, like the other tables, even if it is empty.
    list "system" "entry" "System" system: Vec<SysInfoEntry>,
    list "bios" "entry" "BIOS" bios: Vec<SysInfoEntry>,
    list "baseBoard" "entry" "BaseBoard" base_board: Vec<SysInfoEntry>,
    list "chassis" "entry" "Chassis" chassis: Vec<SysInfoEntry>,
}
/// `<entry>`: an entry of a table.
SysInfoEntry {
    attr "name" "Name" name: String,
    text "Value" value: String,
}
}
