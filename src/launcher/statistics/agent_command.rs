//! The guest agent's commands that `GetVMStats` may request.

use api::proto::cmd::v1;

/// Declares the commands: name, and field in the request and in the answer.
macro_rules! agent_commands {
    ($($(#[$doc:meta])* $variant:ident $name:literal $field:ident,)*) => {
        /// A command of the guest agent that `GetVMStats` may request.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum AgentCommand {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl AgentCommand {
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The commands that the request names.
            pub fn all_of(request: &v1::VmStatsRequest) -> Vec<Self> {
                let named = [$((Self::$variant, request.$field.is_some()),)*];
                named.into_iter().filter(|(_, named)| *named).map(|(it, _)| it).collect()
            }

            /// The answer's field for this command.
            pub fn field(self, answer: &mut v1::VmStatsResponse) -> &mut Option<v1::Response> {
                match self {
                    $(Self::$variant => &mut answer.$field,)*
                }
            }
        }
    };
}
agent_commands! {
    Load "guest-get-load" guest_get_load,
    CpuStats "guest-get-cpustats" guest_get_cpu_stats,
    DiskStats "guest-get-diskstats" guest_get_disk_stats,
    Time "guest-get-time" guest_get_time,
    Vcpus "guest-get-vcpus" guest_get_vcpus,
    MemoryBlockInfo "guest-get-memory-block-info" guest_get_memory_block_info,
    Users "guest-get-users" guest_get_users,
    OsInfo "guest-get-osinfo" guest_get_os_info,
    Disks "guest-get-disks" guest_get_disks,
    HostName "guest-get-host-name" guest_get_host_name,
    Timezone "guest-get-timezone" guest_get_timezone,
    Route "guest-network-get-route" guest_network_get_route,
    Interfaces "guest-network-get-interfaces" guest_network_get_interfaces,
    MemoryBlocks "guest-get-memory-blocks" guest_get_memory_blocks,
    Devices "guest-get-devices" guest_get_devices,
}
