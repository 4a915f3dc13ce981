//! Sidecars as a pod has them: gRPC servers on real sockets, well-behaved and misbehaving.

mod calls;
mod discovery;

use std::time::Duration;

use crate::support::{Behaviour, Fake, Pod, VMI, XML, vmi};
use hooks::{CallError, HookError, HookPoint, Sidecars, Version};
use os::logging::chain;
use tokio::time::Instant;

/// Never reached.
fn later() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(400)
}

async fn collect(pod: &Pod, count: usize) -> Sidecars {
    Sidecars::collect(pod.dir(), count, later()).await.unwrap()
}

/// The text of a failed call, and the reason.
fn call_error(error: HookError) -> (String, CallError) {
    let text = chain(&error);
    match error {
        HookError::Call { reason, .. } => (text, reason),
        other => panic!("not a failed call: {other}"),
    }
}
