//! A connection to the server that reads the backup: TLS with certificates on both sides, and in it
//! the stream of one HTTP/2 CONNECT.

use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::http2;
use hyper::http::uri::Authority;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{
    CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName,
};
use tokio_rustls::rustls::{ClientConfig, Error as TlsError, RootCertStore};

use convert::backup::Export;

/// Port of an address without one: virt-controller's code in `pkg/storage/cbt/pull_mode.go` sends
/// only the name of a Service.
const HTTPS_PORT: u16 = 443;
/// Time limit for connecting, including the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the server to accept the CONNECT.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(30);
/// HTTP/2 keep-alive: the silence before the launcher sends a ping, and the limit of the answer.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));

#[derive(Debug, thiserror::Error)]
pub(super) enum TunnelError {
    #[error("{0} is not readable PEM")]
    Pem(&'static str, #[source] PemError),
    #[error("the certificates or the key cannot be used")]
    Certificates(#[source] TlsError),
    #[error("{0:?} is not the name of a server")]
    ServerName(String, #[source] InvalidDnsNameError),
    #[error("cannot connect to {0}")]
    Connect(String, #[source] std::io::Error),
    #[error("{server} has not answered within {} s", limit.as_secs())]
    Silent { server: String, limit: Duration },
    #[error("{0} does not accept HTTP/2")]
    Http2(String, #[source] hyper::Error),
    #[error("{0} is not the address of a server")]
    Address(String, #[source] hyper::http::Error),
    #[error("{0} refuses the tunnel ({1})")]
    Refused(String, StatusCode),
    #[error("the gRPC server failed")]
    Grpc(#[from] tonic::transport::Error),
}

/// The stream, and the task that runs its connection.
pub(super) struct Tunnel {
    pub stream: TokioIo<hyper::upgrade::Upgraded>,
    pub driver: Driver,
}

/// Ends the connection on drop.
pub(super) struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(super) async fn connect(export: &Export) -> Result<Tunnel, TunnelError> {
    let address = &export.server_addr;
    let tls = TlsConnector::from(Arc::new(tls_config(export)?));
    let name = ServerName::try_from(export.server_name.clone())
        .map_err(|error| TunnelError::ServerName(export.server_name.clone(), error))?;
    let connected = timeout(CONNECT_TIMEOUT, async {
        let stream = TcpStream::connect(with_port(address)).await?;
        tls.connect(name, stream).await
    });
    let stream = connected
        .await
        .map_err(|_| silent(address, CONNECT_TIMEOUT))?
        .map_err(|error| TunnelError::Connect(address.clone(), error))?;
    let accepted = timeout(ACCEPT_TIMEOUT, ask_for_tunnel(address, stream));
    accepted
        .await
        .unwrap_or_else(|_| Err(silent(address, ACCEPT_TIMEOUT)))
}

/// Returns `host:port`.
fn with_port(address: &str) -> String {
    match address.parse::<Authority>() {
        Ok(authority) if authority.port().is_none() => {
            format!("{}:{HTTPS_PORT}", authority.host())
        }
        _ => address.to_owned(),
    }
}

fn silent(server: &str, limit: Duration) -> TunnelError {
    TunnelError::Silent {
        server: server.to_owned(),
        limit,
    }
}

async fn ask_for_tunnel(
    address: &str,
    stream: tokio_rustls::client::TlsStream<TcpStream>,
) -> Result<Tunnel, TunnelError> {
    let http2_error = |error| TunnelError::Http2(address.to_owned(), error);
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE.0)
        .keep_alive_timeout(KEEP_ALIVE.1)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(http2_error)?;
    let driver = Driver(tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(reason = %os::logging::chain(&error), "The connection to the backup's reader has ended");
        }
    }));
    let request = Request::builder()
        .method(Method::CONNECT)
        .uri(address)
        .body(String::new())
        .map_err(|error| TunnelError::Address(address.to_owned(), error))?;
    let answer = sender.send_request(request).await.map_err(http2_error)?;
    if answer.status() != StatusCode::OK {
        return Err(TunnelError::Refused(address.to_owned(), answer.status()));
    }
    let stream = hyper::upgrade::on(answer).await.map_err(http2_error)?;
    Ok(Tunnel {
        stream: TokioIo::new(stream),
        driver,
    })
}

/// Reads the certificates again for each connection, so that they take no memory in between.
fn tls_config(export: &Export) -> Result<ClientConfig, TunnelError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("caCert", &export.ca_cert)? {
        roots.add(certificate).map_err(TunnelError::Certificates)?;
    }
    let key = PrivateKeyDer::from_pem_slice(export.key.as_bytes())
        .map_err(|error| TunnelError::Pem("backupKey", error))?;
    let ours = certificates("backupCert", &export.cert)?;
    let provider = Arc::new(ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TunnelError::Certificates)?
        .with_root_certificates(roots)
        .with_client_auth_cert(ours, key)
        .map_err(TunnelError::Certificates)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn certificates(
    what: &'static str,
    pem: &str,
) -> Result<Vec<CertificateDer<'static>>, TunnelError> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| TunnelError::Pem(what, error))
}

#[cfg(test)]
mod tests {
    use convert::backup::BackupId;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;

    use super::*;

    /// A server's faulty behaviour.
    #[derive(Debug, Clone, Copy)]
    enum Server {
        /// Answers in plain text.
        NoTls,
        /// Sends this many bytes, which are not HTTP/2, and closes.
        NoHttp2(usize),
    }

    /// Serves one connection. Returns the export that connects to this server.
    async fn serve(server: Server) -> Export {
        const TLS: (&str, &str) = (
            include_str!("../../../../tests/e2e/tls/server.pem"),
            include_str!("../../../../tests/e2e/tls/server.key"),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server_addr = listener.local_addr().unwrap().to_string();
        let provider = Arc::new(ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                certificates("server", TLS.0).unwrap(),
                PrivateKeyDer::from_pem_slice(TLS.1.as_bytes()).unwrap(),
            )
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            match server {
                Server::NoTls => drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await),
                Server::NoHttp2(bytes) => {
                    let acceptor = TlsAcceptor::from(Arc::new(config));
                    let mut stream = acceptor.accept(stream).await.unwrap();
                    // The client may close before all is written.
                    let _ = stream.write_all(&vec![b'x'; bytes]).await;
                    let _ = stream.shutdown().await;
                }
            }
        });
        Export {
            server_addr,
            server_name: "server.test".to_owned(),
            ca_cert: include_str!("../../../../tests/e2e/tls/ca.pem").to_owned(),
            cert: include_str!("../../../../tests/e2e/tls/client.pem").to_owned(),
            key: include_str!("../../../../tests/e2e/tls/client.key").to_owned(),
            id: BackupId {
                name: "b".to_owned(),
                started: "2026-01-01T00:00:00Z".parse().unwrap(),
            },
        }
    }

    #[tokio::test]
    async fn a_server_that_does_not_follow_the_protocol_is_an_error() {
        for server in [Server::NoTls, Server::NoHttp2(0), Server::NoHttp2(1 << 20)] {
            let failed = connect(&serve(server).await).await.err().unwrap();
            let is_named = match server {
                Server::NoTls => matches!(failed, TunnelError::Connect(..)),
                Server::NoHttp2(_) => matches!(failed, TunnelError::Http2(..)),
            };
            assert!(is_named, "{server:?}: {failed:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_silent_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let silent = Export {
            server_addr: listener.local_addr().unwrap().to_string(),
            ..serve(Server::NoTls).await
        };
        let failed = connect(&silent).await.err().unwrap();
        assert!(matches!(failed, TunnelError::Silent { .. }), "{failed:?}");
    }

    #[test]
    fn a_server_without_a_port_has_that_of_https() {
        for (address, expected) in [
            (
                "virt-export-web.default.svc",
                "virt-export-web.default.svc:443",
            ),
            ("web.default.svc:", "web.default.svc:443"),
            ("web.default.svc:8443", "web.default.svc:8443"),
            ("10.0.0.1", "10.0.0.1:443"),
            ("[fd00::1]", "[fd00::1]:443"),
            ("[fd00::1]:8443", "[fd00::1]:8443"),
        ] {
            assert_eq!(with_port(address), expected);
        }
    }
}
