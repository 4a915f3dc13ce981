//! What talks to the operating system and knows nothing of virtual machines: processes, signals, inotify, time, the log.
#![forbid(unsafe_code)]

pub mod children;
pub mod faults;
pub mod fs_events;
pub mod inherited;
pub mod logging;
pub mod time;
pub mod version;
pub mod waiting;
