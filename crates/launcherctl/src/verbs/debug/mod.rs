//! `debug`: an archive for a bug report: log, timeline, metrics, domain, context, versions and
//! states, without secrets.

mod redact;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::target::{VmArgs, connect};
use super::timeline::document;
use crate::error::CtlError;
use crate::files::{FileError, MAX_FILE_BYTES};
use crate::host::console_log::console_log_file;
use crate::host::failure::{self, Failure};
use crate::host::registry::VmDir;
use crate::host::status;
use crate::json::list_mut;
use crate::new_file::{check_overwrite, write_whole};
use crate::view::output::{Format, answer, print_bytes, say};
use api::pod_paths::{HOOKS_REPORT, PodPaths};
use client::refusal::split_remedy;
use client::{CallError, Client};
use os::small_file;

const LAUNCHER_LOG: &str = "launcher.log";
/// Most of a log that is read, from its end.
const MAX_LOG_BYTES: u64 = 16 << 20;

/// Arguments of `debug`.
#[derive(Debug, Args)]
pub struct DebugArgs {
    #[command(flatten)]
    vm: VmArgs,
    /// Where to write the archive, `-` for standard output; without it, launcher-debug-TIME.tar.gz
    /// here
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Overwrite FILE if it is there
    #[arg(long)]
    force: bool,
    /// The launcher's log, such as `kubectl logs` prints it; that of a launcher that `run` has
    /// started is found
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

/// `debug`.
///
/// # Errors
/// The launcher does not answer at all and no VM of `run` has left anything, or the archive cannot
/// be written.
pub async fn debug(args: &DebugArgs, format: Format) -> Result<ExitCode, CtlError> {
    let out = args.out.clone().unwrap_or_else(default_name);
    check_overwrite(&out, args.force)?;
    let dir = args.vm.target().resolve()?;
    let mut report = Report::default();
    match connect(&dir).await {
        Ok(client) => report.ask(&client).await,
        Err(error) if Failure::load(&dir).is_some() || dir.is_of_run() => {
            report.lacks(&error.chain());
            report.lacks(
                "domain, domain XML, timeline, metrics, context: only a launcher that answers has them",
            );
        }
        Err(error) => return Err(error),
    }
    report.add_status(&dir).await;
    report.add_json_file("hooks.json", &dir.path(HOOKS_REPORT));
    if let Some(log) = &args.log {
        // The user's own may be a link.
        let text = log.canonicalize().and_then(|log| without_secrets(&log));
        let text = text.map_err(FileError::on("read", log))?;
        report.add(LAUNCHER_LOG, text);
    }
    for log in failure::logs(&dir) {
        let name = log.file_name().unwrap_or_default().to_string_lossy();
        if let Ok(text) = without_secrets(&log) {
            report.add(&name, text);
        }
    }
    if !report.has(LAUNCHER_LOG) {
        report.lacks("no log: give one with --log (kubectl logs POD -c compute)");
    }
    let missing = report.missing.clone();
    let archive = report.archive().map_err(FileError::on("write", &out))?;
    if out == Path::new("-") {
        print_bytes(&archive)?;
        missing
            .iter()
            .map(|it| format!("missing: {it}"))
            .for_each(say);
        return Ok(ExitCode::SUCCESS);
    }
    write_whole(&out, &archive)?;
    let json = json!({"archive": out, "missing": missing});
    answer(format, &json, || {
        let out = out.display();
        let mut lines = vec![format!("{out} is written; read it before you send it")];
        lines.extend(missing.iter().map(|it| format!("  missing: {it}")));
        lines
    })
}

/// The archive's content, by file name.
#[derive(Debug, Default)]
struct Report {
    files: Vec<(String, String)>,
    /// What the archive lacks, and why.
    missing: Vec<String>,
}

impl Report {
    /// Adds a file, unless there is one of this name.
    fn add(&mut self, name: &str, text: String) {
        if !self.has(name) {
            self.files.push((name.to_owned(), text));
        }
    }

    fn has(&self, name: &str) -> bool {
        self.files.iter().any(|(file, _)| file == name)
    }

    fn lacks(&mut self, what: &str) {
        // On one line, without what to do.
        self.missing.push(split_remedy(what).0.replace('\n', " "));
    }

    fn add_json(&mut self, name: &str, value: Value) {
        self.add(name, format!("{:#}\n", redact::json(value)));
    }

    /// Adds a JSON file, which may be missing.
    fn add_json_file(&mut self, name: &str, file: &Path) {
        let text = small_file::read(file, MAX_FILE_BYTES).unwrap_or_default();
        if let Ok(value) = serde_json::from_slice(&text) {
            self.add_json(name, without_cloud_init(value));
        }
    }

    /// Adds the launcher's answers, as far as it answers.
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
            self.add_json("domain.json", json!(domain));
        }
        if let Some(timeline) = self.found(client.timeline().await) {
            self.add_json("timeline.json", document(&timeline));
        }
        if let Some(metrics) = self.found(client.metrics().await) {
            self.add("metrics.txt", metrics);
        }
        if let Some(answer) = self.found(client.debug().await) {
            answer.problems.iter().for_each(|it| self.lacks(it));
            let (version, phase, jobs) = (answer.version, answer.phase, answer.jobs);
            let launcher = json!({"version": version, "phase": phase, "jobs": jobs});
            self.add_json("launcher.json", launcher);
            if !answer.domain_xml.is_empty() {
                self.add("domain.xml", redact::xml(&answer.domain_xml));
            }
            if let Ok(context) = serde_json::from_str(&answer.context_json) {
                self.add_json("context.json", context);
            }
        }
    }

    /// Adds the state and its problems; of a VM of `run` also the console's log.
    async fn add_status(&mut self, dir: &VmDir) {
        let name = match Failure::load(dir) {
            Some(failure) => failure.name,
            None => status::last_vmi(dir).await.metadata.name,
        };
        let status = status::collect(&name, dir).await;
        let versions = json!({"launcherctl": os::version::get(), "kernel": kernel()});
        self.add_json("versions.json", versions);
        self.add_json("status.json", json!(status));
        if status.supervised.is_none() {
            return;
        }
        // A failed VM has it elsewhere.
        let console = dir.path(&PodPaths::default().serial_log(&status.uid));
        match without_secrets(&console_log_file(dir)).or_else(|_| without_secrets(&console)) {
            Ok(text) => self.add("console.log", text),
            Err(error) => self.lacks(&format!("no log of a serial console: {error}")),
        }
    }

    /// Returns the answer, or records that it is missing.
    fn found<T>(&mut self, answer: Result<T, CallError>) -> Option<T> {
        let answer = answer.map_err(|error| self.lacks(&os::logging::chain(&error)));
        answer.ok()
    }

    /// As a compressed tar archive.
    fn archive(mut self) -> std::io::Result<Vec<u8>> {
        let missing = self.missing.join("\n");
        self.add("missing.txt", redact::text(&missing));
        let now = u64::try_from(Timestamp::now().as_second()).unwrap_or_default();
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        for (name, text) in &self.files {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            header.set_mtime(now);
            header.set_cksum();
            let path = format!("launcher-debug/{name}");
            archive.append_data(&mut header, path, text.as_bytes())?;
        }
        archive.into_inner()?.finish()
    }
}

/// A log, of a long one the end, without its secrets. Not behind a link: the VM's directory may
/// belong to somebody who may not read what this user may.
fn without_secrets(log: &Path) -> std::io::Result<String> {
    let text = small_file::tail(log, MAX_LOG_BYTES)?;
    Ok(redact::log(&String::from_utf8_lossy(&text)))
}

/// A report on hooks without their changes to cloud-init data.
fn without_cloud_init(mut report: Value) -> Value {
    for sidecar in list_mut(&mut report, "/sidecars") {
        for point in list_mut(sidecar, "/points") {
            let is_cloud_init = point.to_string().contains("\"point\":\"PreCloudInitIso\"");
            if is_cloud_init && let Some(changes) = point.pointer_mut("/last/changes") {
                *changes = Value::from(redact::REMOVED);
            }
        }
    }
    report
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Read;

    use super::*;

    #[test]
    fn the_files_of_an_archive_have_the_time_at_which_it_was_made() {
        let before = u64::try_from(Timestamp::now().as_second()).unwrap();
        let mut report = Report::default();
        report.add("state.txt", "Running\n".to_owned());
        let archive = report.archive().unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&*archive));
        let mut names = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            assert!(entry.header().mtime().unwrap() >= before);
            names.push(entry.path().unwrap().display().to_string());
            entry.read_to_string(&mut String::new()).unwrap();
        }
        let expected = ["launcher-debug/state.txt", "launcher-debug/missing.txt"];
        assert_eq!(names, expected);
    }
}
