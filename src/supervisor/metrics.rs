//! The launcher's metrics, and a unix socket that serves them over HTTP (`--metrics-socket`). The
//! domain manager's own are in `launcher::metrics`.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::backend::Backend;
use crate::launcher::Launcher;
use os::accept::Acceptor;
use os::file_error::FileError;

/// Limit for a scraper to send its request and read the answer.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit of scrapers served at once; others wait.
const MAX_SCRAPERS: usize = 16;
/// Largest accepted head of an HTTP request.
const MAX_REQUEST_BYTES: u64 = 16 * 1024;

/// All metrics.
pub fn registry(backend: Arc<Backend>, launcher: Arc<Launcher>) -> Arc<Registry> {
    let mut registry = Registry::default();
    let build = Info::new([("version", os::version::get())]);
    registry.register("virt_launcher_build", "Version and commit", build);
    let restarts = Counter::<u64>::default();
    let help = "Launchers of this pod that have died and were followed by another";
    restarts.inc_by(
        launcher
            .config
            .restarts
            .as_ref()
            .map_or(0, |it| it.count.into()),
    );
    registry.register("virt_launcher_restarts", help, restarts);
    registry.register_collector(Box::new(launcher.metrics()));
    registry.register_collector(Box::new(DaemonMetrics(backend)));
    registry.register_collector(Box::new(ProcessMetrics));
    Arc::new(registry)
}

/// Metrics of libvirt's daemons.
#[derive(Debug)]
struct DaemonMetrics(Arc<Backend>);

impl Collector for DaemonMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let help = "Times that a daemon of libvirt has exited and was started again";
        let mut family = encoder.encode_descriptor(
            "virt_launcher_daemon_restarts",
            help,
            None,
            MetricType::Counter,
        )?;
        for daemon in self.0.daemons() {
            let restarts = ConstCounter::new(u64::from(daemon.restarts()));
            restarts.encode(family.encode_family(&[("daemon", daemon.name)])?)?;
        }
        Ok(())
    }
}

/// Metrics of this process, under the names of Prometheus' own libraries.
#[derive(Debug)]
struct ProcessMetrics;

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let usage = os::procfs::Usage::of_this_process();
        let bytes = Some(&Unit::Bytes);
        let gauges = [
            (
                "process_resident_memory",
                "Resident memory",
                bytes,
                usage.resident_bytes,
            ),
            (
                "process_open_fds",
                "Open file descriptors",
                None,
                usage.descriptors,
            ),
            ("process_threads", "Threads", None, usage.threads),
        ];
        for (name, help, unit, value) in gauges {
            let metric = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
            ConstGauge::new(value).encode(metric)?;
        }
        Ok(())
    }
}

/// The socket; dropping it removes its file.
pub struct MetricsSocket {
    connections: Acceptor<UnixListener>,
    path: PathBuf,
}

impl MetricsSocket {
    /// Makes the socket, replacing a leftover one.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn listen(path: PathBuf) -> Result<Self, FileError> {
        // No other launcher uses the socket: a root has one launcher.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).map_err(FileError::on("serve", &path))?;
        let connections = Acceptor::new(listener, "the metrics socket");
        Ok(Self { connections, path })
    }

    /// Answers scrapers and never returns.
    pub async fn serve(mut self, registry: Arc<Registry>) {
        let mut scrapers = JoinSet::new();
        loop {
            tokio::select! {
                stream = self.connections.accept(), if scrapers.len() < MAX_SCRAPERS => {
                    let registry = registry.clone();
                    let answered = async move { answer(stream, &registry).await };
                    scrapers.spawn(timeout(SCRAPE_TIMEOUT, answered));
                }
                // A scraper that is slow or gone is not reported.
                Some(_) = scrapers.join_next() => {}
            }
        }
    }
}

impl Drop for MetricsSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Answers one HTTP/1 request with the metrics, whatever it asks for. A server library would be
/// larger than all metrics.
async fn answer(mut stream: UnixStream, registry: &Registry) -> std::io::Result<()> {
    let (read, mut write) = stream.split();
    let mut head = BufReader::new(read.take(MAX_REQUEST_BYTES)).lines();
    while let Some(line) = head.next_line().await? {
        if line.is_empty() {
            break;
        }
    }
    let mut text = String::new();
    let status = match encode(&mut text, registry) {
        Ok(()) => "200 OK",
        Err(_) => "500 Internal Server Error",
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n\
        Content-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    write.write_all(head.as_bytes()).await?;
    write.write_all(text.as_bytes()).await?;
    write.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_scraper_gets_openmetrics_text_by_http() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.sock");
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ProcessMetrics));
        let socket = MetricsSocket::listen(path.clone()).unwrap();
        let server = tokio::spawn(socket.serve(Arc::new(registry)));
        drop(UnixStream::connect(&path).await.unwrap());
        let mut silent = Vec::new();
        for _ in 1..MAX_SCRAPERS {
            silent.push(UnixStream::connect(&path).await.unwrap());
        }
        let mut stream = UnixStream::connect(&path).await.unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        tokio::select! {
            read = stream.read_to_string(&mut answer) => drop(read.unwrap()),
            _ = silent[0].read_u8() => panic!("the answer waits for the end of a silent scraper"),
        }
        // One scraper more, which waits until another is answered.
        silent.push(UnixStream::connect(&path).await.unwrap());
        let mut late = UnixStream::connect(&path).await.unwrap();
        late.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
            .await
            .unwrap();
        let mut answer_to_late = String::new();
        late.read_to_string(&mut answer_to_late).await.unwrap();
        assert!(
            answer_to_late.starts_with("HTTP/1.1 200 OK\r\n"),
            "{answer_to_late}"
        );
        for mut silent in silent.drain(..MAX_SCRAPERS - 1) {
            assert!(silent.read_u8().await.is_err());
        }
        server.abort();
        let _ = server.await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())));
        assert!(
            body.contains("# UNIT process_resident_memory_bytes bytes\n"),
            "{body}"
        );
        assert!(
            body.contains("process_threads ") && body.ends_with("# EOF\n"),
            "{body}"
        );
        assert!(!path.exists());
    }
}
