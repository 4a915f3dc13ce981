//! `<memory>`, `<maxMemory>`, `<memoryBacking>` and memory devices.
//!
//! libvirt:
//! [memory allocation](https://libvirt.org/formatdomain.html#memory-allocation),
//! [memory backing](https://libvirt.org/formatdomain.html#memory-backing),
//! [memory devices](https://libvirt.org/formatdomain.html#memory-devices)
use super::address::Address;
use super::alias::Alias;
use super::xml::elements;

elements! {
/// An amount of memory with its unit.
Memory {
    text "Value" value: u64,
    /// libvirt reports KiB; we write bytes (`b`).
    attr "unit" "Unit" unit: String,
}
/// `<maxMemory>`: up to where memory can be plugged in.
MaxMemory {
    text "Value" value: u64,
    attr "unit" "Unit" unit: String,
    attr "slots" "Slots" slots: u64,
}
/// `<memoryBacking>`: the host memory behind the guest's memory.
MemoryBacking {
    child "hugepages" "HugePages" huge_pages: Option<HugePages>,
    child "source" "Source" source: Option<MemoryBackingSource>,
    child "access" "Access" access: Option<MemoryBackingAccess>,
    child "allocation" "Allocation" allocation: Option<MemoryAllocation>,
    child "nosharepages" "NoSharePages" no_share_pages: Option<NoSharePages>,
}
/// `<allocation>`: when the memory is taken.
MemoryAllocation {
    attr "mode" "Mode" mode: String,
}
/// `<source>`: anonymous, file or memfd.
MemoryBackingSource {
    attr "type" "Type" r#type: String,
}
/// `<hugepages>`.
HugePages {
    child "page" "HugePage" huge_page: Vec<HugePage>,
}
/// `<page>`: the size of the pages for some guest cells.
HugePage {
    attr "size" "Size" size: String,
    attr "unit" "Unit" unit: String,
    attr "nodeset" "NodeSet" node_set: String,
}
/// `<access>`: whether others may map the memory.
MemoryBackingAccess {
    attr "mode" "Mode" mode: String,
}
/// `<nosharepages>`: the host does not merge its pages.
NoSharePages {}
/// `<address>`: where in the guest's memory it is.
MemoryAddress {
    attr "base" "Base" base: String,
}
/// `<target>`: how large it is, and how large it should be.
MemoryTarget {
    child "size" "Size" size: Memory,
    child "requested" "Requested" requested: Memory,
    child "current" "Current" current: Memory,
    leaf "node" "Node" node: String,
    child "block" "Block" block: Memory,
    child "address" "Address" address: Option<MemoryAddress>,
}
/// `<memory>` among the devices: memory that is plugged in (virtio-mem).
MemoryDevice {
    name "memory",
    attr "model" "Model" model: String,
    child "target" "Target" target: Option<MemoryTarget>,
    child "alias" "Alias" alias: Option<Alias>,
    child "address" "Address" address: Option<Address>,
}
}
