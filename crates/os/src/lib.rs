//! What talks to the operating system and knows nothing of virtual machines: processes, signals,
//! inotify, unix sockets, small files, time, the log.
#![forbid(unsafe_code)]

pub mod accept;
mod arriving;
pub mod command;
pub mod descriptors;
pub mod failpoints;
pub mod file_error;
pub mod grpc;
pub mod inotify;
pub mod lines;
pub mod lock;
pub mod log_file;
pub mod logging;
pub mod poll;
pub mod process;
pub mod procfs;
pub mod serving_thread;
pub mod signals;
pub mod small_file;
pub mod time;
pub mod version;
pub mod wait;
