//! A launcher's domain, now and after each change: our launchers stream it, others are polled every
//! second.

use std::time::Duration;

use tokio::time::sleep;
use tonic::Streaming;

use crate::{CallError, Client, MAX_MESSAGE_BYTES};
use api::proto::inspect::v1::{DomainChange, WatchDomainRequest};
use domain::Domain;

/// Interval of polling a launcher that does not stream changes.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Yields the current domain, then each change.
#[derive(Debug)]
pub struct DomainChanges(Source);

#[derive(Debug)]
enum Source {
    Stream(Streaming<DomainChange>),
    /// With the last domain it yielded, if any.
    Poll(Client, Box<Option<Option<Domain>>>),
}

impl DomainChanges {
    /// Reads the stream of a launcher that has one.
    pub fn streamed(stream: Streaming<DomainChange>) -> Self {
        Self(Source::Stream(stream))
    }

    /// Polls the launcher.
    pub fn polled(client: Client) -> Self {
        Self(Source::Poll(client, Box::default()))
    }

    /// Waits for the next state: `Some(None)` if there is no domain, `None` if the launcher has
    /// ended.
    ///
    /// # Errors
    /// An answer is no Domain JSON, or the launcher refuses.
    pub async fn next(&mut self) -> Result<Option<Option<Domain>>, CallError> {
        match &mut self.0 {
            Source::Stream(stream) => match stream.message().await {
                Ok(Some(change)) if change.domain_json.is_empty() => Ok(Some(None)),
                Ok(Some(change)) => serde_json::from_slice(&change.domain_json)
                    .map(|domain| Some(Some(domain)))
                    .map_err(|source| CallError::Answer {
                        call: "WatchDomain",
                        source,
                    }),
                // The connection ends with the launcher.
                Ok(None) | Err(_) => Ok(None),
            },
            Source::Poll(client, last) => loop {
                if last.is_some() {
                    sleep(POLL_INTERVAL).await;
                }
                let domain = match client.domain().await {
                    Err(CallError::Status { status, .. }) if is_disconnected(&status) => {
                        return Ok(None);
                    }
                    domain => domain?,
                };
                if (**last).as_ref() != Some(&domain) {
                    **last = Some(domain.clone());
                    return Ok(Some(domain));
                }
            },
        }
    }
}

impl Client {
    /// Yields the domain now and after each change.
    ///
    /// # Errors
    /// The call fails.
    pub async fn domain_changes(&self) -> Result<DomainChanges, CallError> {
        let mut inspect = self.inspect().max_decoding_message_size(MAX_MESSAGE_BYTES);
        match inspect.watch_domain(WatchDomainRequest {}).await {
            Ok(stream) => Ok(DomainChanges::streamed(stream.into_inner())),
            // KubeVirt's launcher.
            Err(status) if status.code() == tonic::Code::Unimplemented => {
                Ok(DomainChanges::polled(self.clone()))
            }
            Err(status) => Err(CallError::Status {
                call: "WatchDomain",
                status: Box::new(status),
            }),
        }
    }
}

fn is_disconnected(status: &tonic::Status) -> bool {
    matches!(
        status.code(),
        tonic::Code::Unavailable | tonic::Code::Unknown | tonic::Code::Cancelled
    )
}

/// Whether the domain has no running guest.
#[must_use]
pub fn is_down(domain: Option<&Domain>) -> bool {
    domain.is_none_or(|domain| domain.status.status.is_down())
}
