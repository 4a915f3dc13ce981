//! What requests that have not arrived whole keep in memory, of all clients of a server together.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::Frame;
use tokio::time::{Sleep, sleep};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;

/// Limit of the bytes of all of them, with [`MAX_HEAD_BYTES`] for each head. The largest messages
/// have 4 MiB.
const MAX_BYTES: usize = 32 << 20;
/// Limit of a request's headers.
pub(crate) const MAX_HEAD_BYTES: u32 = 8 << 10;
/// Limit for a request to arrive. virt-handler waits 20 s for the answer of most.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Counts the requests of a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arrivals(Arc<AtomicUsize>);

impl Arrivals {
    /// The request's body with the limits. They end when the message is whole and the body dropped.
    pub fn limit(&self, body: Body) -> Body {
        let mut arriving = Arriving {
            body,
            all: self.0.clone(),
            counted: 0,
            timeout: Box::pin(sleep(TIMEOUT)),
        };
        arriving.count(MAX_HEAD_BYTES as usize);
        Body::new(arriving)
    }
}

struct Arriving {
    body: Body,
    all: Arc<AtomicUsize>,
    counted: usize,
    timeout: Pin<Box<Sleep>>,
}

impl Arriving {
    fn count(&mut self, bytes: usize) {
        self.counted += bytes;
        self.all.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.all.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

impl http_body::Body for Arriving {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            ready!(self.timeout.as_mut().poll(context));
            let late = format!(
                "the request has not arrived whole in {} s",
                TIMEOUT.as_secs()
            );
            return Poll::Ready(Some(Err(Status::deadline_exceeded(late))));
        };
        if let Some(Ok(frame)) = &frame {
            self.count(frame.data_ref().map_or(0, Bytes::len));
        }
        if self.all.load(Ordering::Relaxed) > MAX_BYTES {
            let full = "too many requests are arriving; send it again";
            return Poll::Ready(Some(Err(Status::resource_exhausted(full))));
        }
        Poll::Ready(frame)
    }
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;
    use std::future::poll_fn;

    use super::*;

    /// A body of which nothing comes.
    struct Silent;

    impl http_body::Body for Silent {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Pending
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_does_not_arrive_is_given_up_and_no_longer_counts() {
        let arrivals = Arrivals::default();
        let mut body = arrivals.limit(Body::new(Silent));
        let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        let error = frame.unwrap().unwrap_err();
        assert_eq!(error.code(), tonic::Code::DeadlineExceeded);
        assert!(arrivals.0.load(Ordering::Relaxed) > 0);
        drop(body);
        assert_eq!(arrivals.0.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn heads_count_also() {
        let arrivals = Arrivals::default();
        let most = MAX_BYTES / MAX_HEAD_BYTES as usize;
        let mut bodies: Vec<Body> = (0..=most).map(|_| arrivals.limit(Body::empty())).collect();
        let last = bodies.last_mut().unwrap();
        let frame = poll_fn(|context| Pin::new(&mut *last).poll_frame(context)).await;
        assert_eq!(
            frame.unwrap().unwrap_err().code(),
            tonic::Code::ResourceExhausted
        );
    }
}
