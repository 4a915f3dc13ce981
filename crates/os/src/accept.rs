//! Accepting connections, also where no file descriptor is left.
//!
//! accept(2) fails then and leaves the connection in the queue, so that a loop that just goes on
//! takes a whole CPU.

use std::fs::File;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::{Instant, Sleep, sleep};
use tokio_stream::Stream;

/// Before the next attempt where not even the spare descriptor helps.
const RETRY_DELAY: Duration = Duration::from_millis(200);
/// How long connections must be accepted again before a shortage counts as over: a client that
/// comes and goes at the limit must not fill the log.
const SHORTAGE_END: Duration = Duration::from_secs(10);

/// A socket that listens.
pub trait Listener {
    type Stream;

    /// The next connection.
    ///
    /// # Errors
    /// As accept(2).
    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<Self::Stream>>;
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
        let accepted = UnixListener::poll_accept(self, context);
        accepted.map_ok(|(stream, _)| stream)
    }
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        let accepted = TcpListener::poll_accept(self, context);
        accepted.map_ok(|(stream, _)| stream)
    }
}

/// Accepts the connections of a listener. Where no descriptor is left, a spare one serves to accept
/// a connection and close it, so that its client knows; the log says so once, and once when it is
/// over.
#[derive(Debug)]
pub struct Acceptor<L> {
    listener: L,
    /// For the log.
    socket: &'static str,
    spare: Option<File>,
    retry: Option<Pin<Box<Sleep>>>,
    shortage: Option<Shortage>,
}

/// A time in which connections cannot be accepted.
#[derive(Debug)]
struct Shortage {
    closed: u64,
    last_failure: Instant,
}

impl<L: Listener> Acceptor<L> {
    /// Accepts from `listener`, which the log calls `socket`.
    pub fn new(listener: L, socket: &'static str) -> Self {
        Self {
            listener,
            socket,
            spare: reserve(),
            retry: None,
            shortage: None,
        }
    }

    /// Waits for the next connection. May be dropped and called again.
    pub async fn accept(&mut self) -> L::Stream {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<L::Stream> {
        loop {
            if let Some(retry) = &mut self.retry {
                ready!(retry.as_mut().poll(context));
                self.retry = None;
                self.spare = self.spare.take().or_else(reserve);
            }
            match ready!(self.listener.poll_accept(context)) {
                Ok(stream) => {
                    self.note_success();
                    return Poll::Ready(stream);
                }
                Err(error) => {
                    self.note_failure(&error);
                    if !(is_out_of_descriptors(&error) && self.close_next(context)) {
                        self.retry = Some(Box::pin(sleep(RETRY_DELAY)));
                    }
                }
            }
        }
    }

    /// Accepts the next connection by the spare descriptor and closes it. False if that is not
    /// possible either.
    fn close_next(&mut self, context: &mut Context<'_>) -> bool {
        if self.spare.take().is_none() {
            return false;
        }
        let accepted = self.listener.poll_accept(context);
        let is_closed = matches!(accepted, Poll::Ready(Ok(_)));
        drop(accepted);
        self.spare = reserve();
        if let Some(shortage) = self.shortage.as_mut().filter(|_| is_closed) {
            shortage.closed = shortage.closed.saturating_add(1);
        }
        is_closed
    }

    fn note_failure(&mut self, error: &io::Error) {
        let now = Instant::now();
        if let Some(shortage) = &mut self.shortage {
            shortage.last_failure = now;
            return;
        }
        tracing::warn!(
            reason = %error,
            "Cannot accept connections to {}; those that come are closed where possible",
            self.socket
        );
        self.shortage = Some(Shortage {
            closed: 0,
            last_failure: now,
        });
    }

    fn note_success(&mut self) {
        let is_over = |shortage: &mut Shortage| shortage.last_failure.elapsed() >= SHORTAGE_END;
        if let Some(shortage) = self.shortage.take_if(is_over) {
            tracing::info!(
                closed = shortage.closed,
                "Accepting connections to {} again",
                self.socket
            );
        }
    }
}

/// Never ends.
impl<L: Listener + Unpin> Stream for Acceptor<L> {
    type Item = io::Result<L::Stream>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(context).map(|stream| Some(Ok(stream)))
    }
}

/// Limits of this process or of the machine.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE)
    )
}

/// A descriptor to give up later.
fn reserve() -> Option<File> {
    File::open("/dev/null").ok()
}

#[cfg(test)]
mod tests;
