//! `<vcpu>`, `<vcpus>`, `<cpu>`, `<cputune>` and `<numatune>`: how many CPUs, which, and where they
//! run.
//!
//! libvirt:
//! [cpu allocation](https://libvirt.org/formatdomain.html#cpu-allocation),
//! [cpu model and topology](https://libvirt.org/formatdomain.html#cpu-model-and-topology),
//! [cpu tuning](https://libvirt.org/formatdomain.html#cpu-tuning),
//! [numa node tuning](https://libvirt.org/formatdomain.html#numa-node-tuning)
use super::vocabulary::YesNo;
use super::xml::elements;

elements! {
/// `<cputune>`: which host CPUs the threads of the guest run on.
CpuTune {
    child "vcpupin" "VCPUPin" vcpu_pins: Vec<CpuTuneVcpuPin>,
    child "iothreadpin" "IOThreadPin" iothread_pins: Vec<CpuTuneIoThreadPin>,
    child "emulatorpin" "EmulatorPin" emulator_pin: Option<CpuEmulatorPin>,
}
/// `<numatune>`: which host NUMA nodes the memory comes from.
NumaTune {
    child "memory" "Memory" memory: NumaTuneMemory,
    child "memnode" "MemNodes" mem_nodes: Vec<MemNode>,
}
/// `<memnode>`: the host nodes of one guest cell.
MemNode {
    attr "cellid" "CellID" cell_id: u32,
    attr "mode" "Mode" mode: String,
    attr "nodeset" "NodeSet" node_set: String,
}
/// `<memory>`: the host nodes of the whole guest.
NumaTuneMemory {
    attr "mode" "Mode" mode: String,
    attr "nodeset" "NodeSet" node_set: String,
}
/// `<vcpupin>`: the host CPUs of a vCPU.
CpuTuneVcpuPin {
    attr "vcpu" "VCPU" vcpu: u32,
    attr "cpuset" "CPUSet" cpuset: String,
}
/// `<iothreadpin>`: the host CPUs of an I/O thread.
CpuTuneIoThreadPin {
    attr "iothread" "IOThread" iothread: u32,
    attr "cpuset" "CPUSet" cpuset: String,
}
/// `<emulatorpin>`: the host CPUs of all the other threads.
CpuEmulatorPin {
    attr "cpuset" "CPUSet" cpuset: String,
}
/// `<vcpu>`: how many CPUs the guest can have.
Vcpu {
    attr "placement" "Placement" placement: String,
    text "CPUs" cpus: u32,
}
/// `<vcpu>`: whether a CPU is plugged in.
VcpusVcpu {
    attr "id" "ID" id: u32,
    attr? "enabled" "Enabled" enabled: YesNo,
    attr? "hotpluggable" "Hotpluggable" hotpluggable: YesNo,
    /// In which order CPUs were plugged in, from 1.
    attr? "order" "Order" order: u32,
}
/// `<vcpus>`: the CPUs one by one.
Vcpus {
    child "vcpu" "VCPU" vcpu: Vec<VcpusVcpu>,
}
/// `<cpu>`: what CPU the guest sees.
Cpu {
    attr? "mode" "Mode" mode: String,
    leaf? "model" "Model" model: String,
    child "feature" "Features" features: Vec<CpuFeature>,
    child "topology" "Topology" topology: Option<CpuTopology>,
    child "numa" "NUMA" numa: Option<Numa>,
}
/// `<numa>`: the NUMA cells of the guest.
Numa {
    child "cell" "Cells" cells: Vec<NumaCell>,
}
/// `<cell>`: CPUs and memory that are close to each other.
NumaCell {
    /// From 0.
    attr "id" "ID" id: String,
    attr? "cpus" "CPUs" cpus: String,
    attr? "memory" "Memory" memory: Option<u64>,
    attr? "unit" "Unit" unit: String,
    attr? "memAccess" "MemoryAccess" memory_access: String,
    child "distances" "Distances" distances: Option<NumaCellDistances>,
}
/// `<distances>`: how far the other cells are.
NumaCellDistances {
    child "sibling" "Siblings" siblings: Vec<NumaCellSibling>,
}
/// `<sibling>`: the distance to one cell; 10 is a cell's distance to itself.
NumaCellSibling {
    attr "id" "ID" id: String,
    attr "value" "Value" value: u64,
}
/// `<feature>`: a CPU feature to have or not to have.
CpuFeature {
    attr "name" "Name" name: String,
    attr? "policy" "Policy" policy: String,
}
/// `<topology>`: sockets, dies, cores and threads that the guest sees.
CpuTopology {
    attr? "sockets" "Sockets" sockets: u32,
    attr? "cores" "Cores" cores: u32,
    attr? "threads" "Threads" threads: u32,
}
}
