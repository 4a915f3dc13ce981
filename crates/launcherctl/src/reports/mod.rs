//! A launcher's reports.

pub mod events;
pub mod notify_server;
