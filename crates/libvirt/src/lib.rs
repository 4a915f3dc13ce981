//! libvirt: the connection, the domain, its events. The only crate that talks C, and so the only
//! one with `unsafe`.
//!
//! Calls block, some of them for long: call them from a blocking thread. Only
//! [`Connection::events`]' sinks run on libvirt's own event thread; they must hand the event on and
//! return.
//!
//! ```text
//!   start_event_loop() ─► thread "libvirt-events" ─► callbacks ─► Event ─► sink (a channel)
//!   Connection::open(uri) ─► lookup ─► Domain ─► xml, state, …
//!                                      └─ a permission ─► ChangeableDomain ─► start, attach, …
//! ```
//!
//! Bound here is `virt::sys` (the plain C API), not the safe half of `virt`: that one panics when a
//! reference cannot be dropped, ignores the error of `virDomainGetState`, and knows no events.
#![allow(unsafe_code, reason = "the C API; every block says why it is sound")]

mod backup;
mod c;
mod c_enum;
mod changes;
mod connection;
mod domain;
mod error;
mod event;
mod event_loop;
mod exit;
mod forks;
mod guest_agent;
mod incoming;
mod job;
mod log;
mod memory;
mod migration;
mod state;
mod stats;
mod stream;
mod typed_params;

pub use changes::{ChangeableDomain, MayChange, Reboot, Shutdown, Undefine};
pub use connection::{Connection, Registration};
pub use domain::{BlockInfo, DomainHandle, Screenshot, XmlKind};
pub use error::{Error, code};
pub use event::{
    AgentState, CloseReason, CrashedDetail, Event, IoAction, LifecycleEvent, StartedDetail,
};
pub use event_loop::start_event_loop;
pub use exit::exit_at_once;
pub use forks::{control_forks, forbid_forks};
pub use guest_agent::GuestInfoKind;
pub use job::{JobOperation, JobState, JobType, WhichJob};
pub use log::{DivertError, OUTPUTS, divert_log};
pub use memory::{keep_small, trim};
pub use migration::{DiskCopy, JobStats, Migration};
pub use state::{
    CrashedReason, DomainState, PausedReason, RunningReason, ShutdownReason, ShutoffReason,
};
pub use stats::StatsGroups;
pub use typed_params::ParamValue;

#[cfg(test)]
mod tests;
