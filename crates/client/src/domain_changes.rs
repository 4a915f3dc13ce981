//! The domain of a launcher, now and after each change: streamed by our launchers, asked for every
//! second of others.

use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;
use tonic::Streaming;

use crate::{CallError, Client, MAX_MESSAGE_BYTES};
use api::proto::inspect::v1::{DomainChange, WatchDomainRequest};

/// Between two questions to a launcher that does not stream changes.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Gives the domain as it is, and then after each change.
#[derive(Debug)]
pub struct DomainChanges(Source);

#[derive(Debug)]
enum Source {
    Stream(Streaming<DomainChange>),
    /// The domain that was given last, if one was.
    Poll(Client, Option<Option<Value>>),
}

impl DomainChanges {
    /// From a launcher that streams them.
    pub fn streamed(stream: Streaming<DomainChange>) -> Self {
        Self(Source::Stream(stream))
    }

    /// By asking again and again.
    pub fn polled(client: Client) -> Self {
        Self(Source::Poll(client, None))
    }

    /// The next state: `Some(None)` if there is no domain, `None` if the launcher has ended.
    ///
    /// # Errors
    /// If an answer is not valid JSON, or the launcher refuses.
    pub async fn next(&mut self) -> Result<Option<Option<Value>>, CallError> {
        match &mut self.0 {
            Source::Stream(stream) => match stream.message().await {
                Ok(Some(change)) if change.domain_json.is_empty() => Ok(Some(None)),
                Ok(Some(change)) => serde_json::from_slice(&change.domain_json)
                    .map(|domain| Some(Some(domain)))
                    .map_err(|source| CallError::Answer {
                        call: "WatchDomain",
                        source,
                    }),
                // The connection goes with the launcher.
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
                if last.as_ref() != Some(&domain) {
                    *last = Some(domain.clone());
                    return Ok(Some(domain));
                }
            },
        }
    }
}

impl Client {
    /// The domain, now and after each change.
    ///
    /// # Errors
    /// If the call fails.
    pub async fn domain_changes(&self) -> Result<DomainChanges, CallError> {
        let mut inspect = self.inspect().max_decoding_message_size(MAX_MESSAGE_BYTES);
        match inspect.watch_domain(WatchDomainRequest {}).await {
            Ok(stream) => Ok(DomainChanges::streamed(stream.into_inner())),
            // The reference's launcher.
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

/// Whether no guest runs in this domain.
#[must_use]
pub fn is_down(domain: Option<&Value>) -> bool {
    let status = domain.and_then(|domain| domain.pointer("/Status/Status")?.as_str());
    domain.is_none() || matches!(status, Some("Shutoff" | "Crashed"))
}
