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
use crate::files::FileError;
use crate::host::failure::{self, Failure, console_log};
use crate::host::registry::VmDir;
use crate::host::status;
use crate::new_file::{check_overwrite, write_whole};
use crate::view::output::{Format, answer, print_bytes, say};
use client::refusal::split_remedy;
use client::{CallError, Client, metrics_as_json};

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

    /// Adds the launcher's answers, as far as it answers.
    async fn ask(&mut self, client: &Client) {
        let cmd = client.versions().await.map(|it| json!({"cmd": it}));
        self.add_answer("cmd.json", cmd);
        let qemu = client.qemu_version().await.map(|it| json!({"qemu": it}));
        self.add_answer("qemu.json", qemu);
        self.add_answer("domain.json", client.domain().await.map(|it| json!(it)));
        let timeline = client.timeline().await;
        self.add_answer("timeline.json", timeline.map(|it| document(&it)));
        let metrics = client.metrics().await;
        self.add_answer("metrics.json", metrics.map(|it| metrics_as_json(&it)));
        let answer = client.debug().await.unwrap_or_default();
        answer.problems.iter().for_each(|it| self.lacks(it));
        let (version, phase, jobs) = (answer.version, answer.phase, answer.jobs);
        let launcher = json!({"version": version, "phase": phase, "jobs": jobs});
        self.add_json("launcher.json", launcher);
        self.add("domain.xml", redact::xml(&answer.domain_xml));
        let context = serde_json::from_str(&answer.context_json);
        self.add_json("context.json", context.unwrap_or_default());
    }

    /// Adds the state and its problems, and the console's log.
    async fn add_status(&mut self, dir: &VmDir) {
        let status = status::collect(dir).await;
        let versions = json!({"launcherctl": os::version::get(), "kernel": kernel()});
        self.add_json("versions.json", versions);
        self.add_json("status.json", json!(status));
        if let Ok(text) = without_secrets(&console_log(dir, &status.uid)) {
            self.add("console.log", text);
        }
    }

    /// Adds the answer, or that it is missing.
    fn add_answer(&mut self, name: &str, answer: Result<Value, CallError>) {
        match answer {
            Ok(answer) => self.add_json(name, answer),
            Err(error) => self.lacks(&os::logging::chain(&error)),
        }
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
    let text = os::small_file::tail(log, MAX_LOG_BYTES)?;
    Ok(redact::log(&String::from_utf8_lossy(&text)))
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
