//! What a launcher reports, and what its guest can do by that.

pub mod events;
pub mod guest_state;
pub mod notify_server;
