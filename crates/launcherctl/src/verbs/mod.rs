//! The verbs: their arguments and actions.

pub mod check;
pub mod console;
pub mod convert;
pub mod explain;
pub mod guest;
pub mod hooks;
pub mod inputs;
pub mod lifecycle;
pub mod list;
pub mod logs;
pub mod migrate;
pub mod plan;
pub mod query;
pub mod run;
pub mod screen;
pub mod screenshot;
pub mod shutdown;
pub mod ssh;
pub mod status;
pub mod stop;
pub mod target;
pub mod vnc;
pub mod volume_table;
pub mod volumes;
