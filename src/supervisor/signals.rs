//! The signals that end the launcher.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGHUP, SIGINT, SIGQUIT and SIGTERM, which all mean: shut down within the grace period.
#[derive(Debug)]
pub struct Signals([(&'static str, Signal); 4]);

impl Signals {
    /// Listens from now on, so that none of them ends the process by itself any more.
    ///
    /// # Errors
    /// If the handlers can't be installed.
    pub fn listen() -> io::Result<Self> {
        let on = |name, kind| signal(kind).map(|signal| (name, signal));
        // Named as KubeVirt's log names them.
        Ok(Self([
            on("terminated", SignalKind::terminate())?,
            on("interrupt", SignalKind::interrupt())?,
            on("hangup", SignalKind::hangup())?,
            on("quit", SignalKind::quit())?,
        ]))
    }

    /// Waits for the next one, and returns its name.
    pub async fn next(&mut self) -> &'static str {
        poll_fn(|context| {
            for (name, signal) in &mut self.0 {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(*name);
                }
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rustix::process::{Signal as Number, getpid, kill_process};

    #[test]
    fn each_of_them_is_heard_by_its_name() {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(async {
                let mut signals = Signals::listen().unwrap();
                for (number, name) in [
                    (Number::TERM, "terminated"),
                    (Number::INT, "interrupt"),
                    (Number::HUP, "hangup"),
                    (Number::QUIT, "quit"),
                ] {
                    kill_process(getpid(), number).unwrap();
                    assert_eq!(signals.next().await, name);
                }
            });
    }
}
