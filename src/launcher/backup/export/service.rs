//! `kubevirt.nbd.NBD`: serves a disk of the backup, read from QEMU's NBD server.

use std::path::PathBuf;

use tokio::net::UnixStream;
use tokio::sync::mpsc::{self, Sender};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::extents::Extents;
use crate::nbd::{BASE_ALLOCATION, DIRTY_BITMAP, NbdClient, NbdError};
use api::proto::nbd::nbd_server::{Nbd, NbdServer};
use api::proto::nbd::{DataChunk, MapRequest, MapResponse, ReadRequest};

/// Limit of a request: the protocol's names have 4096 bytes.
const MAX_REQUEST_BYTES: usize = 16 << 10;
/// Data bytes of one message.
const CHUNK_BYTES: u32 = 256 << 10;
/// Messages that wait for the client to read them.
const MESSAGES_AHEAD: usize = 2;
/// Limit of the bytes in one query to QEMU: the protocol has 32-bit lengths.
const MAX_STATUS_BYTES: u32 = 1 << 31;

/// Why a disk cannot be served.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServiceError {
    #[error(transparent)]
    Nbd(#[from] NbdError),
    #[error("server does not support requested context: {0}")]
    NoContext(String),
    #[error("offset {offset} is beyond export size {size}")]
    BeyondEnd { offset: u64, size: u64 },
    #[error("the NBD server reports no extent at offset {0}")]
    NoProgress(u64),
}

pub(super) struct Service {
    /// QEMU's NBD server.
    socket: PathBuf,
}

/// The service, read from QEMU's NBD server.
pub(super) fn server(socket: PathBuf) -> NbdServer<Service> {
    NbdServer::new(Service { socket }).max_decoding_message_size(MAX_REQUEST_BYTES)
}

type Answers<T> = ReceiverStream<Result<T, Status>>;

#[tonic::async_trait]
impl Nbd for Service {
    type MapStream = Answers<MapResponse>;
    type ReadStream = Answers<DataChunk>;

    async fn map(&self, request: Request<MapRequest>) -> Result<Response<Self::MapStream>, Status> {
        let (socket, request) = (self.socket.clone(), request.into_inner());
        Ok(answers(|answers| map(socket, request, answers)))
    }

    async fn read(
        &self,
        request: Request<ReadRequest>,
    ) -> Result<Response<Self::ReadStream>, Status> {
        let (socket, request) = (self.socket.clone(), request.into_inner());
        Ok(answers(|answers| read(socket, request, answers)))
    }
}

/// Streams the answers of `work`, then its error. `work` ends when the client stops reading.
fn answers<T, W>(work: impl FnOnce(Sender<Result<T, Status>>) -> W) -> Response<Answers<T>>
where
    T: Send + 'static,
    W: Future<Output = Result<(), ServiceError>> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(MESSAGES_AHEAD);
    let work = work(sender.clone());
    tokio::spawn(async move {
        let done = tokio::select! {
            done = work => done,
            () = sender.closed() => return,
        };
        if let Err(error) = done {
            let status = Status::unknown(os::logging::chain(&error));
            let _ = sender.send(Err(status)).await;
        }
    });
    Response::new(ReceiverStream::new(receiver))
}

async fn map(
    socket: PathBuf,
    request: MapRequest,
    answers: Sender<Result<MapResponse, Status>>,
) -> Result<(), ServiceError> {
    let mut contexts = vec![BASE_ALLOCATION.to_owned()];
    let incremental = !request.bitmap_name.is_empty();
    if incremental {
        contexts.push(format!("{DIRTY_BITMAP}{}", request.bitmap_name));
    }
    let mut client = NbdClient::connect(&socket, &request.export_name, &contexts).await?;
    for (at, context) in contexts.iter().enumerate() {
        if !client.has_context(at) {
            return Err(ServiceError::NoContext(context.clone()));
        }
    }
    let end = end_of(&client, request.offset, request.length)?;
    let (mut at, mut extents) = (request.offset, Extents::new(incremental));
    while at < end {
        let length = clamp(end.saturating_sub(at), MAX_STATUS_BYTES);
        let status = client.block_status(at, length).await?;
        let (next, messages) = extents.add(at, end, &status);
        if next <= at {
            return Err(ServiceError::NoProgress(at));
        }
        at = next;
        for message in messages {
            if answers.send(Ok(message)).await.is_err() {
                return Ok(());
            }
        }
    }
    if let Some(message) = extents.finish() {
        let _ = answers.send(Ok(message)).await;
    }
    Ok(())
}

async fn read(
    socket: PathBuf,
    request: ReadRequest,
    answers: Sender<Result<DataChunk, Status>>,
) -> Result<(), ServiceError> {
    let mut client = NbdClient::connect(&socket, &request.export_name, &[]).await?;
    let end = end_of(&client, request.offset, request.length)?;
    let mut at = request.offset;
    while at < end {
        let length = clamp(end.saturating_sub(at), CHUNK_BYTES);
        let data = client.read(at, length).await?.into();
        let chunk = DataChunk { offset: at, data };
        if answers.send(Ok(chunk)).await.is_err() {
            return Ok(());
        }
        at = at.saturating_add(length.into());
    }
    Ok(())
}

/// The end of the range. If the length is 0 or too large, the range ends with the disk.
fn end_of(client: &NbdClient<UnixStream>, offset: u64, length: u64) -> Result<u64, ServiceError> {
    let size = client.size();
    if offset >= size {
        return Err(ServiceError::BeyondEnd { offset, size });
    }
    Ok(match offset.checked_add(length) {
        Some(end) if length > 0 && end <= size => end,
        _ => size,
    })
}

fn clamp(length: u64, limit: u32) -> u32 {
    u32::try_from(length).unwrap_or(limit).min(limit)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::nbd::tests::{answer_to, greeting};
    use api::proto::nbd::nbd_client::NbdClient;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;
    use tokio::sync::watch;
    use tokio::time::timeout;
    use tonic::transport::Server;

    /// An NBD server that reports the extent of one byte per query, and counts the queries.
    async fn say_little(listener: UnixListener, asked: watch::Sender<u32>) {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(&greeting()).await.unwrap();
        let mut received = Vec::new();
        while stream.read_buf(&mut received).await.is_ok_and(|it| it > 0) {
            let extent = [0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0];
            let Some(answer) = answer_to(&received, 5, &extent) else {
                continue;
            };
            received.clear();
            asked.send_modify(|count| *count += 1);
            // The client may be gone.
            drop(stream.write_all(&answer).await);
        }
    }

    #[tokio::test]
    async fn a_request_longer_than_two_names_is_refused_before_it_has_arrived() {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let connection = tokio_stream::once(Ok::<_, std::io::Error>(theirs));
        let served = Server::builder()
            .add_service(server("/nonexistent".into()))
            .serve_with_incoming(connection);
        tokio::spawn(served);
        let mut client = NbdClient::new(os::grpc::channel(ours).await.unwrap());
        let request = ReadRequest {
            export_name: "x".repeat(MAX_REQUEST_BYTES),
            ..ReadRequest::default()
        };
        let refused = client.read(request).await.err().map(|error| error.code());
        assert_eq!(refused, Some(tonic::Code::OutOfRange));
    }

    #[tokio::test]
    async fn a_server_that_leaves_ends_its_calls_though_qemu_is_silent() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("nbd");
        let silent = UnixListener::bind(&socket).unwrap();
        let service = Service { socket };
        let called = service.read(Request::new(ReadRequest::default())).await;
        let (mut stream, _) = silent.accept().await.unwrap();
        drop(called.unwrap());
        let mut byte = [0];
        let closed = timeout(Duration::from_secs(30), stream.read(&mut byte));
        assert_eq!(closed.await.expect("QEMU is asked on").unwrap(), 0);
    }

    #[tokio::test]
    async fn a_map_of_endlessly_many_equal_parts_ends_with_its_reader() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("nbd");
        let (count, mut asked) = watch::channel(0);
        tokio::spawn(say_little(UnixListener::bind(&socket).unwrap(), count));
        let request = Request::new(MapRequest {
            export_name: "data".to_owned(),
            ..MapRequest::default()
        });
        // Equal parts become one, so there is nothing to send.
        let called = Service { socket }.map(request).await;
        asked.wait_for(|count| *count == 100).await.unwrap();
        drop(called.unwrap());
        // The server ends with its connection.
        let _ = asked.wait_for(|_| false).await;
        // The disk has 2^20 bytes.
        let asked = *asked.borrow();
        assert!(asked < 1000, "{asked}");
    }
}
