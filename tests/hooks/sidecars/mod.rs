//! Sidecars as a pod has them: gRPC servers on real sockets, well-behaved and misbehaving.

mod calls;
mod discovery;

use std::time::Duration;

use crate::support::{Behaviour, Fake, Pod, VMI, XML, vmi};
use hooks::{HookCallError, HookError, HookPoint, RequestId, Sidecars, Version};
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

/// What the sidecars make of the domain, in a request of its own.
async fn define(sidecars: &Sidecars) -> Result<String, HookError> {
    let applied = sidecars
        .on_define_domain(XML.into(), &vmi(), RequestId::unique(), later())
        .await;
    Ok(applied?.xml)
}

/// The text and the reason of the failed call of a sidecar alone in its pod.
async fn refusal(fake: Fake) -> (String, HookCallError) {
    let pod = Pod::new();
    pod.serve("hook-sidecar-0/s", fake);
    call_error(define(&collect(&pod, 1).await).await.unwrap_err())
}

/// The text of a failed call, and the reason.
fn call_error(error: HookError) -> (String, HookCallError) {
    let text = chain(&error);
    match error {
        HookError::Call { reason, .. } => (text, reason),
        other => panic!("not a failed call: {other}"),
    }
}
