//! gRPC over unix sockets: connecting a client, serving on a listener.

use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Once};
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_stream::{Stream, StreamExt as _};
use tonic::body::Body;
use tonic::codegen::http::Request;
use tonic::service::Routes;
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint, Error, Server};
use tower::util::MapRequestLayer;

use crate::accept::Acceptor;
use crate::arriving::{Arrivals, MAX_HEAD_BYTES};

/// Limit of an answer's headers and trailers, which carry the text of an error. hyper's default is
/// 16 KiB.
const MAX_HEADER_BYTES: u32 = 1 << 20;
/// Limit of the path in a unix socket's address, without the terminating zero byte.
const MAX_ADDRESS_BYTES: usize = 107;
/// Connections to a server; virt-handler keeps a few. Those beyond are closed at once.
const MAX_CONNECTIONS: usize = 512;
/// Calls at a time on one connection; clients wait with more.
const MAX_STREAMS: u32 = 100;

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
    let stream = connect_stream(socket).await;
    let stream = stream.map_err(ConnectError::Connect)?;
    channel(stream).await.map_err(ConnectError::Handshake)
}

/// Connects to a unix socket, also where its path is longer than the 107 bytes of an address.
///
/// # Errors
/// If nothing accepts connections there.
pub async fn connect_stream(socket: &Path) -> io::Result<UnixStream> {
    let fits = socket.as_os_str().len() <= MAX_ADDRESS_BYTES;
    let (false, Some(parent), Some(name)) = (fits, socket.parent(), socket.file_name()) else {
        return UnixStream::connect(socket).await;
    };
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
    services: Routes,
    listener: UnixListener,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let accepted = at_most(MAX_CONNECTIONS, Acceptor::new(listener, "the gRPC socket"));
    serve_connections(services, MAX_STREAMS, accepted, stop).await
}

/// The same for these connections, with at most `calls` at a time on each. That there are no more
/// also ends it.
///
/// # Errors
/// Those of `connections`.
pub async fn serve_connections<C>(
    services: Routes,
    calls: u32,
    connections: impl Stream<Item = io::Result<C>>,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), Error>
where
    C: AsyncRead + AsyncWrite + Connected + Send + Unpin + 'static,
{
    let arrivals = Arrivals::default();
    let limit = move |request: Request<Body>| request.map(|body| arrivals.limit(body));
    Server::builder()
        .max_concurrent_streams(calls)
        .http2_max_header_list_size(MAX_HEAD_BYTES)
        .layer(MapRequestLayer::new(limit))
        .add_routes(services)
        .serve_with_incoming_shutdown(connections, stop)
        .await
}

/// The connections while there are at most `limit`; those beyond are closed, which the log says
/// once.
fn at_most(
    limit: usize,
    accepted: impl Stream<Item = io::Result<UnixStream>>,
) -> impl Stream<Item = io::Result<Kept<UnixStream, OwnedSemaphorePermit>>> {
    let (places, warned) = (Arc::new(Semaphore::new(limit)), Once::new());
    accepted.filter_map(move |stream| {
        let Ok(place) = places.clone().try_acquire_owned() else {
            warned.call_once(|| tracing::warn!("More than {limit} gRPC connections are closed"));
            return None;
        };
        Some(stream.map(|stream| Kept(stream, place)))
    })
}

/// A stream, and what is dropped with it.
pub struct Kept<S, T>(pub S, pub T);

impl<S, T> Connected for Kept<S, T> {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl<S: AsyncRead + Unpin, T: Unpin> AsyncRead for Kept<S, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin, T: Unpin> AsyncWrite for Kept<S, T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// PID of the process that listens on a socket; of a stopped one too.
pub async fn serving_process(socket: &Path) -> Option<i32> {
    let stream = connect_stream(socket).await.ok()?;
    stream.peer_cred().ok()?.pid()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;

    #[tokio::test]
    async fn a_client_reaches_a_server_also_by_a_path_that_is_too_long_for_an_address() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("x".repeat(100));
        std::fs::create_dir(&long).unwrap();
        let short = dir.path().join("sock");
        let listener = UnixListener::bind(&short).unwrap();
        std::fs::rename(&short, long.join("sock")).unwrap();
        let services = Routes::default();
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

    #[tokio::test]
    async fn connections_beyond_the_limit_are_closed_until_one_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sock");
        let acceptor = Acceptor::new(UnixListener::bind(&path).unwrap(), "the gRPC socket");
        let mut connections = std::pin::pin!(at_most(1, acceptor));
        let _first = UnixStream::connect(&path).await.unwrap();
        let served = connections.next().await.unwrap().unwrap();
        let mut beyond = UnixStream::connect(&path).await.unwrap();
        let mut nothing = Vec::new();
        let closed = beyond.read_to_end(&mut nothing);
        tokio::select! {
            end = closed => assert_eq!(end.unwrap(), 0),
            _ = connections.next() => panic!("it is served"),
        }
        drop(served);
        let _next = UnixStream::connect(&path).await.unwrap();
        connections.next().await.unwrap().unwrap();
    }
}
