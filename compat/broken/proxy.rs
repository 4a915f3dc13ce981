//! Stands between a launcher's sockets and virt-handler and breaks one promise of the launcher:
//! what the kit's own test runs it against. It knows nothing of the calls but their names, so that
//! it works for any launcher.
//!
//! The launcher has its sockets below `BEHIND`, as `compat/broken/virt-launcher` tells it; this
//! serves the pod's own, `launcher-sock` for virt-handler's calls and virt-handler's pipe for
//! events.
//!
//!   proxy "METHOD late SECONDS"    the call is answered so much later
//!   proxy "METHOD swallow TEXT"    a request with the text goes no further, and is answered with success
//!   proxy "METHOD forget TEXT"     the text is written backwards in request and answer: no field's name any more

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::http::response::Parts;
use hyper::http::{HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{UnixListener, UnixStream};

const SHARED: &str = "/var/run/kubevirt";
const BEHIND: &str = "/var/run/kubevirt/behind";
const CALLS: &str = "sockets/launcher-sock";
const EVENTS: &str = "domain-notify-pipe.sock";
const POLL: Duration = Duration::from_millis(5);
/// A gRPC message, `Response{success: true}`.
const SUCCESS: &[u8] = &[0, 0, 0, 0, 2, 0x08, 0x01];

enum Fault {
    Late(Duration),
    Swallow(String),
    Forget(String),
}

struct Rule {
    method: String,
    fault: Fault,
}

impl Rule {
    fn parse(text: &str) -> io::Result<Self> {
        let mut words = text.splitn(3, ' ');
        let mut next = || words.next().unwrap_or_default().to_owned();
        let (method, kind, argument) = (next(), next(), next());
        let fault = match kind.as_str() {
            "late" => Fault::Late(Duration::from_secs(
                argument.parse().map_err(io::Error::other)?,
            )),
            "swallow" => Fault::Swallow(argument),
            "forget" => Fault::Forget(argument),
            _ => {
                return Err(io::Error::other(format!(
                    "{text:?} is not METHOD late|swallow|forget ARGUMENT"
                )));
            }
        };
        Ok(Self { method, fault })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let rule = std::env::args().nth(1).unwrap_or_default();
    let rule = Arc::new(Rule::parse(&rule)?);
    let (shared, behind) = (Path::new(SHARED), Path::new(BEHIND));
    tokio::try_join!(
        serve(shared.join(CALLS), behind.join(CALLS), &rule),
        serve(behind.join(EVENTS), shared.join(EVENTS), &rule),
    )
    .map(drop)
}

/// Serves `front` whenever `back` is there, and passes everything on to it: virt-handler makes its
/// pipe anew each time it connects to the launcher again.
async fn serve(front: PathBuf, back: PathBuf, rule: &Arc<Rule>) -> io::Result<Infallible> {
    loop {
        while !back.exists() {
            tokio::time::sleep(POLL).await;
        }
        let listener = UnixListener::bind(&front)?;
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let service = (back.clone(), rule.clone());
                    tokio::spawn(connection(accepted?.0, service));
                }
                () = gone(&back) => break,
            }
        }
        std::fs::remove_file(&front)?;
    }
}

async fn gone(path: &Path) {
    while path.exists() {
        tokio::time::sleep(POLL).await;
    }
}

/// One that breaks is its ends' business.
async fn connection(stream: UnixStream, (back, rule): (PathBuf, Arc<Rule>)) {
    let service = service_fn(move |request| {
        let (back, rule) = (back.clone(), rule.clone());
        async move { call(request, &back, &rule).await }
    });
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    drop(server.serve_connection(TokioIo::new(stream), service).await);
}

async fn call(
    request: Request<Incoming>,
    back: &Path,
    rule: &Rule,
) -> io::Result<Response<impl Body<Data = Bytes, Error = Infallible> + use<>>> {
    let method = request.uri().path().rsplit('/').next();
    let fault = (method == Some(&rule.method)).then_some(&rule.fault);
    let (head, body) = request.into_parts();
    let mut message = body.collect().await.map_err(io::Error::other)?.to_bytes();
    match fault {
        Some(Fault::Swallow(text)) if contains(&message, text) => {
            let (head, message, trailers) = success();
            return Ok(answer(head, message, trailers));
        }
        Some(Fault::Forget(text)) => message = without(&message, text),
        _ => {}
    }
    let mut request = Request::from_parts(head, Full::new(message));
    let path = request.uri().path_and_query().map_or("/", |it| it.as_str());
    *request.uri_mut() = format!("http://localhost{path}")
        .parse::<Uri>()
        .map_err(io::Error::other)?;

    let stream = TokioIo::new(UnixStream::connect(back).await?);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream)
            .await
            .map_err(io::Error::other)?;
    tokio::spawn(connection);
    let (head, body) = sender
        .send_request(request)
        .await
        .map_err(io::Error::other)?
        .into_parts();
    let body = body.collect().await.map_err(io::Error::other)?;
    let trailers = body.trailers().cloned();
    let mut message = body.to_bytes();
    match fault {
        Some(Fault::Late(delay)) => tokio::time::sleep(*delay).await,
        Some(Fault::Forget(text)) => message = without(&message, text),
        _ => {}
    }
    Ok(answer(head, message, trailers))
}

fn answer(
    head: Parts,
    message: Bytes,
    trailers: Option<HeaderMap>,
) -> Response<impl Body<Data = Bytes, Error = Infallible>> {
    let trailers = async move { trailers.map(Ok) };
    Response::from_parts(head, Full::new(message).with_trailers(trailers))
}

fn success() -> (Parts, Bytes, Option<HeaderMap>) {
    let mut head = Response::new(()).into_parts().0;
    let grpc = HeaderValue::from_static("application/grpc");
    head.headers.insert("content-type", grpc);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    (head, Bytes::from_static(SUCCESS), Some(trailers))
}

fn contains(message: &[u8], text: &str) -> bool {
    text.is_empty()
        || message
            .windows(text.len())
            .any(|part| part == text.as_bytes())
}

/// The message with `text` spelled backwards: its length fields stay true.
fn without(message: &Bytes, text: &str) -> Bytes {
    let backwards: Vec<u8> = text.bytes().rev().collect();
    let mut out = message.to_vec();
    let mut at = 0;
    while let Some(part) = out.get_mut(at..at + text.len()) {
        if part == text.as_bytes() {
            part.copy_from_slice(&backwards);
        }
        at += 1;
    }
    out.into()
}
