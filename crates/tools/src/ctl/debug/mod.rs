//! `debug`: an archive for a bug report: log, timeline, metrics, domain, context, versions and states, without secrets.

mod redact;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::client::{CallError, Client};
use super::error::CtlError;
use super::files::FileError;
use super::json::text_or_dash;
use super::output::{Format, print};
use super::target::Target;
use super::timeline::{document, picture};
use api::pod_paths::HOOKS_REPORT;

/// Most of a log that is read, from its end.
const MAX_LOG_BYTES: u64 = 16 << 20;
/// The log of a launcher that `run` has started, below its root.
const RUN_LOG: &str = "launcher.log";

/// Arguments of `debug`.
#[derive(Debug, Args)]
pub struct DebugArgs {
    #[command(flatten)]
    target: Target,
    /// Where to write the archive; without it, launcher-debug-TIME.tar.gz here
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The launcher's log, such as `kubectl logs` prints it; that of a launcher that `run` has started is found
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

/// `debug`.
///
/// # Errors
/// If the launcher does not answer at all, or the archive cannot be written.
pub async fn debug(args: &DebugArgs, format: Format) -> Result<ExitCode, CtlError> {
    let launcher = args.target.resolve()?;
    let client = Client::connect(&launcher.socket).await?;
    let mut report = Report::default();
    report.ask(&client).await;
    if let Some(dir) = &launcher.dir {
        report.add_json_file("hooks.json", &dir.path(HOOKS_REPORT));
    }
    let log = args.log.clone();
    let log = log.or_else(|| Some(launcher.dir?.root().join(RUN_LOG)).filter(|log| log.exists()));
    match log {
        Some(log) => {
            let text = tail(&log).map_err(FileError::on("read", &log))?;
            report.add("launcher.log", redact::log(&text));
        }
        None => report
            .problems
            .push("no log: give one with --log (kubectl logs POD -c compute)".to_owned()),
    }
    let out = args.out.clone().unwrap_or_else(default_name);
    let problems = report.problems.clone();
    report.write(&out).map_err(FileError::on("write", &out))?;
    let answer = json!({"archive": out, "problems": problems});
    print(format, &answer, || {
        let mut lines = vec![format!(
            "{} is written; read it before you send it",
            out.display()
        )];
        lines.extend(
            problems
                .iter()
                .map(|problem| format!("  missing: {problem}")),
        );
        lines.join("\n")
    });
    Ok(ExitCode::SUCCESS)
}

/// What is in the archive, by the names of its files.
#[derive(Debug, Default)]
struct Report {
    files: Vec<(&'static str, String)>,
    problems: Vec<String>,
}

impl Report {
    fn add(&mut self, name: &'static str, text: String) {
        self.files.push((name, text));
    }

    fn add_json(&mut self, name: &'static str, value: Value) {
        self.add(name, format!("{:#}\n", redact::json(value)));
    }

    /// A JSON file that need not be there.
    fn add_json_file(&mut self, name: &'static str, file: &Path) {
        let value = std::fs::read(file)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok());
        if let Some(value) = value {
            self.add_json(name, without_cloud_init(value));
        }
    }

    /// What the launcher answers, as far as it does.
    async fn ask(&mut self, client: &Client) {
        let versions = client.versions().await;
        let versions = json!({
            "launcherctl": os::version::get(),
            "cmd": self.found(versions),
            "qemu": self.found(client.qemu_version().await),
            "kernel": kernel(),
        });
        self.add_json("versions.json", versions);
        if let Some(domain) = self.found(client.domain().await).flatten() {
            let state = text_or_dash(&domain, "/Status/Status").to_owned();
            self.add_json("domain.json", domain);
            self.add("state.txt", format!("{state}\n"));
        }
        if let Some(timeline) = self.found(client.timeline().await) {
            self.add_json("timeline.json", document(&timeline));
            self.add("timeline.svg", picture::draw(&timeline));
        }
        if let Some(metrics) = self.found(client.metrics().await) {
            self.add("metrics.txt", metrics);
        }
        if let Some(answer) = self.found(client.debug().await) {
            self.problems.extend(answer.problems);
            let launcher =
                json!({"version": answer.version, "phase": answer.phase, "jobs": answer.jobs});
            self.add_json("launcher.json", launcher);
            if !answer.domain_xml.is_empty() {
                self.add("domain.xml", redact::xml(&answer.domain_xml));
            }
            if let Ok(context) = serde_json::from_str(&answer.context_json) {
                self.add_json("context.json", context);
            }
        }
    }

    /// The answer, or a problem more.
    fn found<T>(&mut self, answer: Result<T, CallError>) -> Option<T> {
        answer
            .map_err(|error| self.problems.push(os::logging::chain(&error)))
            .ok()
    }

    fn write(mut self, out: &Path) -> std::io::Result<()> {
        let problems = self.problems.join("\n");
        self.add("problems.txt", redact::text(&problems));
        let file = File::create(out)?;
        let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
        for (name, text) in &self.files {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            archive.append_data(
                &mut header,
                format!("launcher-debug/{name}"),
                text.as_bytes(),
            )?;
        }
        archive.into_inner()?.finish()?.flush()
    }
}

/// A report on hooks without what they did to cloud-init data.
fn without_cloud_init(mut report: Value) -> Value {
    let sidecars = report
        .pointer_mut("/sidecars")
        .and_then(Value::as_array_mut);
    for sidecar in sidecars.into_iter().flatten() {
        let points = sidecar.pointer_mut("/points").and_then(Value::as_array_mut);
        for point in points.into_iter().flatten() {
            let is_cloud_init = point.to_string().contains("\"point\":\"PreCloudInitIso\"");
            if is_cloud_init && let Some(changes) = point.pointer_mut("/last/changes") {
                *changes = Value::from(redact::REMOVED);
            }
        }
    }
    report
}

/// The end of a log.
fn tail(log: &Path) -> std::io::Result<String> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_LOG_BYTES)))?;
    let mut text = Vec::new();
    file.take(MAX_LOG_BYTES).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn kernel() -> String {
    let name = rustix::system::uname();
    [name.release(), name.version(), name.machine()]
        .map(|part| part.to_string_lossy().into_owned())
        .join(" ")
}

fn default_name() -> PathBuf {
    let now = Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    PathBuf::from(format!("launcher-debug-{now}.tar.gz"))
}
