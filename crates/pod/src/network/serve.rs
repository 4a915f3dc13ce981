//! The task of a DHCP server.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::sleep;

use crate::network::rate::{LogLimit, Pace};
use crate::network::reply::{DhcpAnswer, Ignored};
use crate::network::udp::BridgeSocket;

/// Longest packet that is read; longer ones get no answer. Messages of clients fit into one
/// Ethernet frame.
const MAX_PACKET: usize = 1500;
/// Pause after a failure to receive, so that the task does not spin if the failure lasts.
const RECEIVE_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Answers packets until the task is aborted.
// D-net-9 (docs/differences.md).
pub(crate) async fn serve(
    bridge: String,
    socket: BridgeSocket,
    answer: impl Fn(&[u8], SocketAddr) -> Result<DhcpAnswer, Ignored> + Send,
) {
    let (mut pace, mut log) = (Pace::new(), LogLimit::new());
    let mut buffer = [0; MAX_PACKET];
    loop {
        pace.wait().await;
        let (length, from) = match socket.receive(&mut buffer).await {
            Ok(Some(packet)) => packet,
            Ok(None) => continue,
            Err(error) => {
                if let Some(suppressed) = log.allow() {
                    tracing::warn!(bridge, reason = %error, suppressed, "Receiving DHCP requests failed");
                }
                sleep(RECEIVE_RETRY_DELAY).await;
                continue;
            }
        };
        let answered = answer(buffer.get(..length).unwrap_or_default(), from);
        let sent = answered.map(|answer| (answer.kind, socket.send(&answer.bytes, answer.to)));
        let Some(suppressed) = log.allow() else {
            continue;
        };
        match sent {
            Ok((kind, Ok(()))) => {
                tracing::debug!(bridge, %from, kind, suppressed, "DHCP request answered")
            }
            Ok((kind, Err(error))) => {
                tracing::warn!(bridge, %from, kind, reason = %error, suppressed, "Sending a DHCP answer failed")
            }
            Err(ignored) => {
                tracing::debug!(bridge, %from, reason = %ignored, suppressed, "DHCP request ignored")
            }
        }
    }
}
