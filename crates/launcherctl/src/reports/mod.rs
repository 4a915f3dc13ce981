//! A launcher's reports, and the guest's state derived from them.

pub mod events;
pub mod guest_state;
pub mod notify_server;
