//! gRPC over unix sockets: connecting a client, serving on a listener.

use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixListener, UnixStream};
use tonic::transport::server::Router;
use tonic::transport::{Channel, Endpoint, Error};

use crate::accept::Acceptor;

/// Limit of an answer's headers and trailers, which carry the text of an error. hyper's default is
/// 16 KiB.
const MAX_HEADER_BYTES: u32 = 1 << 20;
/// Limit of the path in a unix socket's address, without the terminating zero byte.
const MAX_ADDRESS_BYTES: usize = 107;

/// Why there is no channel to a server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nothing accepts connections on the socket.
    #[error("the connection is refused")]
    Connect(#[source] io::Error),
    /// The server does not speak HTTP/2.
    #[error("the HTTP/2 handshake failed")]
    Handshake(#[source] Error),
}

/// Connects to a gRPC server on a unix socket.
///
/// # Errors
/// If nothing accepts connections there, or the server does not speak HTTP/2.
pub async fn connect(socket: &Path) -> Result<Channel, ConnectError> {
    let stream = connect_stream(socket)
        .await
        .map_err(ConnectError::Connect)?;
    channel(stream).await.map_err(ConnectError::Handshake)
}

/// Connects to a unix socket, also where its path is longer than the 107 bytes of an address.
///
/// # Errors
/// If nothing accepts connections there.
pub async fn connect_stream(socket: &Path) -> io::Result<UnixStream> {
    let (Some(parent), Some(name)) = (socket.parent(), socket.file_name()) else {
        return UnixStream::connect(socket).await;
    };
    if socket.as_os_str().len() <= MAX_ADDRESS_BYTES {
        return UnixStream::connect(socket).await;
    }
    let directory = std::fs::File::open(parent)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
    UnixStream::connect(short).await
}

/// A channel over this stream and no other: when it breaks, calls fail, and the channel does not
/// connect again.
///
/// # Errors
/// If the server does not speak HTTP/2.
pub async fn channel<S>(stream: S) -> Result<Channel, Error>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut stream = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_| {
        let stream = stream.take();
        async { stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
    });
    // The URI only appears in the header `:authority`, where gRPC puts "localhost" for unix
    // sockets.
    Endpoint::from_static("http://localhost")
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .connect_with_connector(connector)
        .await
}

/// Serves until `stop` resolves, and then until the calls in progress are answered.
///
/// # Errors
/// If the listener fails.
pub async fn serve(
    services: Router,
    listener: UnixListener,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let connections = Acceptor::new(listener, "the gRPC socket");
    services
        .serve_with_incoming_shutdown(connections, stop)
        .await
}

/// PID of the process that listens on a socket; of a stopped one too.
pub async fn serving_process(socket: &Path) -> Option<i32> {
    let stream = connect_stream(socket).await.ok()?;
    stream.peer_cred().ok()?.pid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_reaches_a_server_also_by_a_path_that_is_too_long_for_an_address() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("x".repeat(100));
        std::fs::create_dir(&long).unwrap();
        let short = dir.path().join("sock");
        let listener = UnixListener::bind(&short).unwrap();
        std::fs::rename(&short, long.join("sock")).unwrap();
        let services =
            tonic::transport::Server::builder().add_routes(tonic::service::Routes::default());
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let server = tokio::spawn(serve(services, listener, async { drop(stopped.await) }));
        let channel = connect(&long.join("sock")).await.unwrap();
        drop((stop, channel));
        server.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_socket_without_a_server_refuses_the_connection() {
        let dir = tempfile::tempdir().unwrap();
        let error = connect(&dir.path().join("sock")).await.unwrap_err();
        assert!(matches!(error, ConnectError::Connect(_)), "{error:?}");
    }
}
