//! Ends an Istio sidecar proxy, which would keep the pod alive.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Limit of a connection, request and answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Delays between attempts.
const RETRY_DELAYS: [Duration; 3] = [
    Duration::from_millis(50),
    Duration::from_millis(250),
    Duration::from_millis(1250),
];
/// Limit of an answer, which starts with status and headers.
const MAX_ANSWER_BYTES: u64 = 16 * 1024;

/// The proxy's ports.
#[derive(Debug, Clone, Copy)]
pub struct Ports {
    /// Envoy's health check.
    pub health: u16,
    /// Istio's agent, which ends the proxy on request.
    pub agent: u16,
}

/// Istio's default ports.
pub const PORTS: Ports = Ports {
    health: 15021,
    agent: 15020,
};

/// Asks the proxy to end, if there is one. If nothing listens there is none, and the call returns
/// at once.
// D-sup-8 (docs/differences.md).
pub fn end_proxy(ports: Ports) {
    if !is_present(ports.health) {
        return;
    }
    let mut result = Err(io::ErrorKind::NotConnected.into());
    for pause in RETRY_DELAYS.iter().map(Some).chain([None]) {
        result = request(ports.agent, "POST", "/quitquitquit");
        match &result {
            Ok(answer) if answer.status == 200 => return,
            Ok(Answer { status: 503, .. }) => tracing::error!("status code received: 503"),
            Ok(answer) => return tracing::error!("status code received: {}", answer.status),
            Err(error) => {
                tracing::error!(reason = %error, "failed to request istio-proxy termination, retrying...")
            }
        }
        if let Some(pause) = pause {
            #[expect(
                clippy::disallowed_methods,
                reason = "the pause before the next try; there is no event for a proxy that is ready to answer"
            )]
            std::thread::sleep(*pause);
        }
    }
    let reason = result.map_or_else(
        |error| error.to_string(),
        |answer| format!("status {}", answer.status),
    );
    tracing::error!(reason, "all attempts to terminate istio-proxy failed");
}

fn is_present(port: u16) -> bool {
    match request(port, "GET", "/healthz/ready") {
        Ok(answer) => answer.server == "envoy",
        Err(error) => {
            tracing::debug!(reason = %error, "error when checking for istio-proxy presence");
            false
        }
    }
}

/// The relevant parts of an HTTP answer.
#[derive(Debug, PartialEq)]
struct Answer {
    status: u16,
    server: String,
}

/// Makes one HTTP/1.1 request. Two fixed requests to this machine need no client library.
fn request(port: u16, method: &str, path: &str) -> io::Result<Answer> {
    let mut stream = connect(port)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut head = Vec::new();
    let mut rest = stream.take(MAX_ANSWER_BYTES);
    let mut part = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match rest.read(&mut part)? {
            0 => break,
            length => head.extend(part.iter().take(length)),
        }
    }
    parse(&String::from_utf8_lossy(&head))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no HTTP answer"))
}

/// Connects to localhost without a resolver.
fn connect(port: u16) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), TIMEOUT).or_else(
        |_| TcpStream::connect_timeout(&SocketAddr::from((Ipv6Addr::LOCALHOST, port)), TIMEOUT),
    )
}

fn parse(head: &str) -> Option<Answer> {
    let mut lines = head.lines();
    let status = lines
        .next()?
        .strip_prefix("HTTP/")?
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()?;
    let headers = lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once(':'));
    let server = headers
        .filter(|(name, _)| name.eq_ignore_ascii_case("server"))
        .map(|(_, value)| value.trim().to_owned())
        .next();
    Some(Answer {
        status,
        server: server.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::mpsc;

    use super::*;

    /// Answers each request with the next answer, and sends the requests' first lines.
    fn serve(answers: &'static [&'static str]) -> (u16, mpsc::Receiver<String>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, requests) = mpsc::channel();
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 1024];
                let length = stream.read(&mut request).unwrap();
                sender
                    .send(
                        String::from_utf8_lossy(&request[..length])
                            .lines()
                            .next()
                            .unwrap()
                            .to_owned(),
                    )
                    .unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        (port, requests)
    }

    #[test]
    fn envoy_is_told_to_quit_and_asked_again_while_it_is_not_ready() {
        let (health, asked) = serve(&["HTTP/1.1 200 OK\r\nServer: envoy\r\n\r\n"]);
        let (agent, requests) = serve(&[
            "HTTP/1.1 503 Service Unavailable\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
        ]);
        end_proxy(Ports { health, agent });
        assert_eq!(
            asked.iter().collect::<Vec<_>>(),
            ["GET /healthz/ready HTTP/1.1"]
        );
        assert_eq!(
            requests.iter().collect::<Vec<_>>(),
            ["POST /quitquitquit HTTP/1.1"; 2]
        );
    }

    #[test]
    fn another_server_at_that_port_is_left_alone() {
        let (health, _asked) = serve(&["HTTP/1.1 200 OK\r\nserver: nginx\r\n\r\n"]);
        assert!(!is_present(health));
    }

    #[test]
    // D-sup-8 (docs/differences.md).
    fn nothing_at_that_port_is_no_proxy() {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        assert!(!is_present(port));
    }

    #[test]
    fn a_body_has_no_headers_and_what_is_no_http_is_no_answer() {
        let answer = Answer {
            status: 404,
            server: String::new(),
        };
        assert_eq!(
            parse("HTTP/1.0 404 Not Found\r\nX: y\r\n\r\nserver: envoy"),
            Some(answer)
        );
        assert_eq!(parse("SSH-2.0-OpenSSH\r\n"), None);
        assert_eq!(parse(""), None);
    }
}
