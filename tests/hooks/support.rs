//! A pod's socket directory and sidecars to put there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use api::proto::hooks::{info, v1alpha1, v1alpha2, v1alpha3};
use prost::bytes::Bytes;
use tokio::net::UnixListener;
use tonic::{Request, Response, Status};

pub const XML: &str = "<domain type=\"kvm\"><name>ns_vm</name><uuid>5d307ca9-b3ef-428c-8861-06e72d69f223</uuid></domain>";
pub const VMI: &str = r#"{"metadata":{"name":"vm","namespace":"ns","unknownToUs":1}}"#;

pub fn vmi() -> Bytes {
    Bytes::from_static(VMI.as_bytes())
}

/// The directory of the sockets.
pub struct Pod {
    _root: tempfile::TempDir,
    dir: PathBuf,
}

impl Pod {
    pub fn new() -> Self {
        Self::below("")
    }

    pub fn below(path: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join(path).join("hooks");
        std::fs::create_dir_all(&dir).unwrap();
        Self { _root: root, dir }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A socket that is bound and never listened on.
    pub fn bound(&self, place: &str) -> rustix::fd::OwnedFd {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, socket};
        let fd = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        bind(&fd, &SocketAddrUnix::new(self.place(place)).unwrap()).unwrap();
        fd
    }

    fn place(&self, place: &str) -> PathBuf {
        let path = self.dir.join(place);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    /// Serves `fake` at `place` until it is stopped or the test ends.
    pub fn serve(&self, place: &str, fake: Fake) -> Server {
        let path = self.place(place);
        // Bound through the directory's descriptor: the path may be longer than an address.
        let directory = std::fs::File::open(path.parent().unwrap()).unwrap();
        let short = format!(
            "/proc/self/fd/{}/{}",
            std::os::fd::AsRawFd::as_raw_fd(&directory),
            path.file_name().unwrap().display()
        );
        let listener = std::os::unix::net::UnixListener::bind(short).unwrap();
        listener.set_nonblocking(true).unwrap();
        let seen = Arc::clone(&fake.seen);
        let mut router = tonic::service::Routes::default()
            .add_service(v1alpha1::callbacks_server::CallbacksServer::new(
                fake.clone(),
            ))
            .add_service(v1alpha2::callbacks_server::CallbacksServer::new(
                fake.clone(),
            ))
            .add_service(
                v1alpha3::callbacks_server::CallbacksServer::new(fake.clone())
                    .max_encoding_message_size(usize::MAX),
            );
        if !matches!(fake.behaviour, Behaviour::NoInfo) {
            router = router.add_service(info::info_server::InfoServer::new(fake.clone()));
        }
        let dying = Arc::clone(&fake.dying);
        // A thread and a runtime of its own, like a process: when it ends, so do its connections.
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let listener = UnixListener::from_std(listener).unwrap();
                tokio::select! {
                    served = os::grpc::serve(router, listener, std::future::pending()) => served.unwrap(),
                    () = dying.notified() => {}
                }
            });
        });
        Server {
            seen,
            dying: fake.dying,
            thread,
        }
    }
}

/// A sidecar that is being served.
pub struct Server {
    seen: Arc<Mutex<Seen>>,
    dying: Arc<tokio::sync::Notify>,
    thread: std::thread::JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    vmis: Vec<String>,
    shutdowns: usize,
}

impl Server {
    /// The VMIs that it was called with.
    pub fn vmis(&self) -> Vec<String> {
        self.seen.lock().unwrap().vmis.clone()
    }

    pub fn shutdowns(&self) -> usize {
        self.seen.lock().unwrap().shutdowns
    }

    pub fn stop(self) {
        self.dying.notify_one();
        self.thread.join().unwrap();
    }
}

/// An answer that can be changed while the sidecar is there.
#[derive(Clone, Default)]
pub struct Answer(Arc<Mutex<Bytes>>);

impl Answer {
    pub fn set(&self, answer: &[u8]) {
        *self.0.lock().unwrap() = Bytes::copy_from_slice(answer);
    }
}

/// What a sidecar does.
#[derive(Clone)]
pub enum Behaviour {
    /// Answers whatever it was last set to.
    Variable(Answer),
    /// Appends to the domain's title and the user data.
    Append(String),
    /// Answers this, whatever it is asked.
    Answer(Vec<u8>),
    /// Appends to the user data in the old form only.
    LegacyCloudInit(&'static str),
    /// Ends with the connection open.
    Die,
    /// Says that it failed.
    Fail(&'static str),
    /// Says that it failed, with that code and text.
    Status(tonic::Code, String),
    /// Never answers a callback.
    Hang,
    /// Never answers Info.
    HangInInfo,
    /// Has no Info service.
    NoInfo,
}

/// A sidecar made for a test.
#[derive(Clone)]
pub struct Fake {
    behaviour: Behaviour,
    priority: i32,
    versions: Vec<String>,
    seen: Arc<Mutex<Seen>>,
    dying: Arc<tokio::sync::Notify>,
}

impl Fake {
    pub fn new(behaviour: Behaviour) -> Self {
        Self {
            behaviour,
            priority: 0,
            versions: vec!["v1alpha3".into()],
            seen: Arc::default(),
            dying: Arc::default(),
        }
    }

    pub fn appending(text: &str) -> Self {
        Self::new(Behaviour::Append(text.into()))
    }

    /// One whose answer is set from outside.
    pub fn answering() -> (Self, Answer) {
        let answer = Answer::default();
        (Self::new(Behaviour::Variable(answer.clone())), answer)
    }

    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    pub fn versions(mut self, versions: &[&str]) -> Self {
        self.versions = versions.iter().map(ToString::to_string).collect();
        self
    }

    async fn other<T>(&self) -> Result<T, Status> {
        match &self.behaviour {
            Behaviour::Fail(why) => Err(Status::internal(*why)),
            Behaviour::Status(code, text) => Err(Status::new(*code, text)),
            Behaviour::Die => {
                self.dying.notify_one();
                std::future::pending().await
            }
            _ => std::future::pending().await,
        }
    }

    async fn define(&self, version: &str, xml: &Bytes, vmi: &Bytes) -> Result<Bytes, Status> {
        self.seen
            .lock()
            .unwrap()
            .vmis
            .push(String::from_utf8_lossy(vmi).into());
        match &self.behaviour {
            Behaviour::Append(text) => {
                Ok(append_title(&String::from_utf8_lossy(xml), version, text).into())
            }
            Behaviour::Answer(answer) => Ok(answer.clone().into()),
            Behaviour::Variable(answer) => Ok(answer.0.lock().unwrap().clone()),
            _ => self.other().await,
        }
    }

    async fn cloud_init(&self, data: &Bytes, legacy: &Bytes) -> Result<(Bytes, Bytes), Status> {
        let edited = |bytes: &Bytes, field: &str, text: &str| {
            let mut value: serde_json::Value = serde_json::from_slice(bytes).unwrap();
            value[field] = format!("{}{text}", value[field].as_str().unwrap()).into();
            Bytes::from(value.to_string())
        };
        match &self.behaviour {
            Behaviour::Append(text) => Ok((edited(data, "UserData", text), Bytes::new())),
            Behaviour::LegacyCloudInit(text) => {
                Ok((Bytes::new(), edited(legacy, "userData", text)))
            }
            Behaviour::Answer(answer) => Ok((answer.clone().into(), Bytes::new())),
            _ => self.other().await,
        }
    }
}

/// The first sets the title with the version it was called in; the others append.
fn append_title(xml: &str, version: &str, text: &str) -> String {
    let text = text.replace('<', "&lt;").replace('>', "&gt;");
    if xml.contains("</title>") {
        xml.replace("</title>", &format!("{text}</title>"))
    } else {
        xml.replace(
            "</domain>",
            &format!("<title>{version}:{text}</title></domain>"),
        )
    }
}

#[tonic::async_trait]
impl info::info_server::Info for Fake {
    async fn info(
        &self,
        _: Request<info::InfoParams>,
    ) -> Result<Response<info::InfoResult>, Status> {
        if matches!(self.behaviour, Behaviour::HangInInfo) {
            return std::future::pending().await;
        }
        let points = [
            "OnDefineDomain",
            "PreCloudInitIso",
            "Shutdown",
            "FromTheFuture",
        ];
        Ok(Response::new(info::InfoResult {
            name: "fake".into(),
            hook_points: points
                .map(|name| info::HookPoint {
                    name: name.into(),
                    priority: self.priority,
                })
                .to_vec(),
            versions: self.versions.clone(),
        }))
    }
}

/// The callbacks of one version; the optional parts are what later versions added.
macro_rules! callbacks {
    ($package:ident, $version:literal, [$($cloud_init:ident)?], [$($shutdown:ident)?]) => {
        #[tonic::async_trait]
        impl $package::callbacks_server::Callbacks for Fake {
            async fn on_define_domain(
                &self,
                request: Request<$package::OnDefineDomainParams>,
            ) -> Result<Response<$package::OnDefineDomainResult>, Status> {
                let given = request.into_inner();
                let domain_xml = self.define($version, &given.domain_xml, &given.vmi).await?;
                Ok(Response::new($package::OnDefineDomainResult { domain_xml }))
            }
            $(async fn $cloud_init(
                &self,
                request: Request<$package::PreCloudInitIsoParams>,
            ) -> Result<Response<$package::PreCloudInitIsoResult>, Status> {
                let given = request.into_inner();
                let (data, legacy) = self.cloud_init(&given.cloud_init_data, &given.cloud_init_no_cloud_source).await?;
                Ok(Response::new($package::PreCloudInitIsoResult { cloud_init_data: data, cloud_init_no_cloud_source: legacy }))
            })?
            $(async fn $shutdown(&self, _: Request<$package::ShutdownParams>) -> Result<Response<$package::ShutdownResult>, Status> {
                self.seen.lock().unwrap().shutdowns += 1;
                match self.behaviour {
                    Behaviour::Append(_) => Ok(Response::new($package::ShutdownResult {})),
                    _ => self.other().await,
                }
            })?
        }
    };
}
callbacks!(v1alpha1, "v1alpha1", [], []);
callbacks!(v1alpha2, "v1alpha2", [pre_cloud_init_iso], []);
callbacks!(v1alpha3, "v1alpha3", [pre_cloud_init_iso], [shutdown]);

/// The directory of an example sidecar.
pub fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples/sidecars")
        .join(name)
}

/// The executable of an example. `cargo test` builds it, unless it builds one test only.
pub fn built_example(name: &str) -> PathBuf {
    let file = Path::new(env!("CARGO_BIN_EXE_pod-tools"))
        .with_file_name("examples")
        .join(name);
    if !file.exists() {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--example", name])
            .status()
            .unwrap();
        assert!(built.success());
    }
    file
}

/// `$PATH` with these programs before those of the system.
pub fn search_path(programs: &Path) -> String {
    format!("{}:{}", programs.display(), std::env::var("PATH").unwrap())
}

/// Whether a program is not installed, which skips a test.
pub fn is_missing(program: &str) -> bool {
    let missing = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_err();
    if missing {
        eprintln!("skipped: {program} is not installed");
    }
    missing
}
