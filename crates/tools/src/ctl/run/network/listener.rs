//! Ports of this machine that lead to a guest with an address of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Forward, NetworkError};
use os::accept::Acceptor;

/// Connections of one port at a time; more wait.
const MAX_CONNECTIONS: usize = 256;
/// How long the guest may take to accept one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Ports that are forwarded until this is dropped.
#[derive(Debug, Default)]
pub struct Listeners(#[expect(dead_code, reason = "dropped, it ends its tasks")] JoinSet<()>);

impl Listeners {
    /// Listens on the ports; each leads to the guest's port at this address.
    ///
    /// # Errors
    /// If a port is in use.
    pub async fn open(forwards: &[Forward], guest: Ipv4Addr) -> Result<Self, NetworkError> {
        let mut tasks = JoinSet::new();
        for forward in forwards {
            let bound = TcpListener::bind((forward.address, forward.host)).await;
            let listener = bound.map_err(|source| NetworkError::Port {
                forward: forward.clone(),
                source,
            })?;
            tasks.spawn(serve(listener, (guest, forward.guest).into()));
        }
        Ok(Self(tasks))
    }
}

async fn serve(listener: TcpListener, guest: SocketAddr) {
    let mut acceptor = Acceptor::new(listener, "a forwarded port");
    let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    while let Ok(permit) = free.clone().acquire_owned().await {
        // Those that have ended are not kept.
        while connections.try_join_next().is_some() {}
        let mut client = acceptor.accept().await;
        connections.spawn(async move {
            let _permit = permit;
            if let Ok(Ok(mut stream)) = timeout(CONNECT_TIMEOUT, TcpStream::connect(guest)).await {
                // Either side may end it as it likes.
                let _ = copy_bidirectional(&mut client, &mut stream).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_connection_reaches_the_guest_and_its_end_comes_back() {
        let guest = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut forward: Forward = "1:1".parse().unwrap();
        forward.host = forward.other_port().unwrap();
        forward.guest = guest.local_addr().unwrap().port();
        let listeners = Listeners::open(&[forward.clone()], Ipv4Addr::LOCALHOST).await;
        let _listeners = listeners.unwrap();
        let address = (Ipv4Addr::LOCALHOST, forward.host);
        let mut client = TcpStream::connect(address).await.unwrap();
        let (mut accepted, _) = guest.accept().await.unwrap();
        client.write_all(b"question").await.unwrap();
        let mut text = [0; 8];
        accepted.read_exact(&mut text).await.unwrap();
        accepted.write_all(b"answer").await.unwrap();
        drop(accepted);
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!((&text, &*answer), (b"question", "answer"));
    }
}
