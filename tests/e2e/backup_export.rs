//! A backup is read by a server, to which the launcher connects: the test is that server.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tonic::transport::Channel;

use api::proto::nbd::nbd_client::NbdClient;
use api::proto::nbd::{MapRequest, ReadRequest};

use crate::backup::{SIZE, Tracked, abort, start, with};

const CA: &str = include_str!("tls/ca.pem");
const SERVER: (&str, &str) = (
    include_str!("tls/server.pem"),
    include_str!("tls/server.key"),
);
const CLIENT: (&str, &str) = (
    include_str!("tls/client.pem"),
    include_str!("tls/client.key"),
);

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .map(|it| it.unwrap())
        .collect()
}

/// As virt-controller gives it, without a port: that of HTTPS is meant. One that may not take that
/// has another.
async fn listener() -> (TcpListener, String) {
    let [a, b] = (std::process::id() as u16).to_be_bytes();
    for c in 1..=254 {
        let address = format!("127.{a}.{b}.{c}");
        if let Ok(listener) = TcpListener::bind((address.as_str(), 443)).await {
            return (listener, address);
        }
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// A server that takes CONNECT of clients with a certificate.
pub(crate) struct Server {
    /// Its host, and its port where that is not the usual one.
    address: String,
    tunnels: mpsc::Receiver<Upgraded>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    pub async fn start() -> Self {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        certificates(CA)
            .into_iter()
            .for_each(|it| roots.add(it).unwrap());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .build()
                .unwrap();
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                certificates(SERVER.0),
                PrivateKeyDer::from_pem_slice(SERVER.1.as_bytes()).unwrap(),
            )
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let (listener, address) = listener().await;
        let (sender, tunnels) = mpsc::channel(4);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, sender) = (acceptor.clone(), sender.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let take = service_fn(move |request| tunnel(request, sender.clone()));
                    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), take)
                        .await;
                });
            }
        });
        Self {
            address,
            tunnels,
            task,
        }
    }

    /// The next client's NBD service.
    pub async fn client(&mut self) -> NbdClient<Channel> {
        let wait = tokio::time::timeout(crate::harness::TEST_TIMEOUT, self.tunnels.recv());
        let tunnel = wait.await.expect("a tunnel").unwrap();
        let channel = os::grpc::channel(TokioIo::new(tunnel)).await.unwrap();
        NbdClient::new(channel)
    }

    /// What a backup's start becomes when it is to be read by this server.
    pub fn export(&self, start: &Value) -> Value {
        let mut export = start.clone();
        for (field, value) in [
            ("cmd", "Export"),
            ("exportServerAddr", self.address.as_str()),
            ("exportServerName", "server.test"),
            ("caCert", CA),
            ("backupCert", CLIENT.0),
            ("backupKey", CLIENT.1),
        ] {
            export[field] = json!(value);
        }
        export
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn tunnel(
    request: Request<Incoming>,
    tunnels: mpsc::Sender<Upgraded>,
) -> Result<Response<String>, hyper::Error> {
    let mut answer = Response::new(String::new());
    if request.method() != Method::CONNECT {
        *answer.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        return Ok(answer);
    }
    tokio::spawn(async move {
        let tunnel = hyper::upgrade::on(request).await.unwrap();
        tunnels.send(tunnel).await.unwrap();
    });
    Ok(answer)
}

pub(crate) async fn read(client: &mut NbdClient<Channel>, offset: u64, length: u64) -> Vec<u8> {
    let export_name = "Data-1".to_owned();
    let request = ReadRequest {
        export_name,
        offset,
        length,
    };
    let mut chunks = client.read(request).await.unwrap().into_inner();
    let mut data = Vec::new();
    while let Some(chunk) = chunks.message().await.unwrap() {
        assert_eq!(chunk.offset, offset + data.len() as u64);
        assert!(chunk.data.len() <= 256 << 10);
        data.extend(&chunk.data);
    }
    data
}

/// Offset, length and description of each extent.
async fn map(client: &mut NbdClient<Channel>, bitmap: &str) -> Vec<(u64, u64, String)> {
    let request = MapRequest {
        export_name: "Data-1".into(),
        bitmap_name: bitmap.into(),
        offset: 0,
        length: 0,
    };
    let mut answers = client.map(request).await.unwrap().into_inner();
    let mut extents = Vec::new();
    while let Some(answer) = answers.message().await.unwrap() {
        extents.extend(answer.extents);
        let last = extents.last().unwrap();
        assert_eq!(answer.next_offset, last.offset + last.length);
    }
    let end = extents.iter().fold(0, |at, extent| {
        assert_eq!(extent.offset, at);
        at + extent.length
    });
    assert_eq!(end, SIZE);
    extents
        .into_iter()
        .map(|it| (it.offset, it.length, it.description))
        .collect()
}

#[tokio::test]
// D-backup-7 (docs/differences.md).
async fn a_server_reads_a_backup_over_a_tunnel_that_is_made_again() {
    let mut vm = Tracked::booted("exported", &[]).await;
    let mut server = Server::start().await;
    vm.write("first", 1).await;
    let (full, then) = (start("Full", "Pull", 1), vm.data());
    let early = vm.ask(&server.export(&full)).await;
    assert!(early.message.contains("is not in progress"), "{early:?}");
    vm.ask_ok(&full).await;
    vm.ask_ok(&server.export(&full)).await;
    let mut client = server.client().await;
    assert!(read(&mut client, 0, 0).await == then);
    assert!(read(&mut client, 1 << 20, 1000).await == then[1 << 20..(1 << 20) + 1000]);
    let extents = map(&mut client, "").await;
    // An overlay maps all of its volume, also where that has holes.
    assert_eq!(extents, [(0, SIZE, "data".to_owned())]);
    let request = ReadRequest {
        export_name: "Data-1".into(),
        offset: SIZE,
        length: 1,
    };
    let mut chunks = client.read(request).await.unwrap().into_inner();
    let refused = chunks.message().await.unwrap_err();
    assert!(
        refused.message().contains("is beyond export size"),
        "{refused:?}"
    );

    // A connection that breaks is made again.
    drop((client, chunks));
    vm.ask_ok(&server.export(&full)).await;
    let mut client = server.client().await;
    assert!(read(&mut client, 0, 0).await == then);
    vm.ask_ok(&abort(&full)).await;
    let ended = vm.ended("Full").await;

    vm.write("second", 9).await;
    let part = with(
        start("Part", "Pull", 2),
        "incremental",
        ended["CheckpointName"].clone(),
    );
    vm.ask_ok(&part).await;
    vm.ask_ok(&server.export(&part)).await;
    let mut client = server.client().await;
    let extents = map(&mut client, "Part-2026-01-02_03-04-02").await;
    let dirty: Vec<_> = extents
        .iter()
        .filter(|extent| extent.2.contains("dirty"))
        .map(|extent| (extent.0, extent.1))
        .collect();
    assert_eq!(dirty, [(9 << 20, 64 << 10)], "{extents:?}");
    vm.ask_ok(&abort(&part)).await;
    assert_eq!(vm.ended("Part").await["Failed"], json!(false));
    // With the backup ends who serves it.
    let gone = async {
        let request = ReadRequest::default();
        while client.read(request.clone()).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let gone = tokio::time::timeout(crate::harness::TEST_TIMEOUT, gone).await;
    gone.expect("the tunnel is still served");
}
