//! The verbs: their arguments and actions.

pub mod backup;
pub mod check;
pub mod console;
pub mod convert;
pub mod debug;
pub mod explain;
pub mod guest;
pub mod hooks;
pub mod inputs;
pub mod lifecycle;
pub mod list;
pub mod logs;
pub mod memory_dump;
pub mod migrate;
pub mod plan;
pub mod query;
pub mod run;
pub mod screen;
pub mod screenshot;
pub mod shutdown;
pub mod ssh;
pub mod stats;
pub mod status;
pub mod stop;
pub mod target;
pub mod target_error;
pub mod timeline;
pub mod upgrade;
pub mod vm_args;
pub mod vnc;

pub mod volume_table;
pub mod volumes;
pub mod watch;
