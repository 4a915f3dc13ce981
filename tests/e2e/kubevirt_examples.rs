//! KubeVirt's examples, started by `launcherctl run` until their domains run.

// The refusals are for the tests of `launcherctl` alone.
#[allow(dead_code)]
#[path = "../kubevirt_examples/mod.rs"]
mod table;

use std::path::Path;

use serde_json::Value;
use tokio::task::JoinSet;

use crate::executable::write_script;
use crate::harness::{counter_image, output_of, short_dir};
use crate::launcherctl::{done, launcherctl};
use crate::local_vms::StopAll;
use table::{EXAMPLES, Outcome, file};

/// How many run at once: the guests boot, which takes the processors from the next ones' starts.
const GROUP: usize = 6;

/// Where the paths in the table's options are.
struct Files {
    home: tempfile::TempDir,
    /// Mostly another file system than that of the VMs.
    claims: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let files = Self {
            home: short_dir(),
            claims: tempfile::tempdir_in("/dev/shm").unwrap(),
        };
        std::fs::create_dir_all(files.home.path().join("scripts")).unwrap();
        let script = files.home.path().join("scripts/define.sh");
        write_script(&script, "#!/bin/sh\necho \"$4\"\n");
        std::fs::create_dir(files.temporary()).unwrap();
        files
    }

    /// A path that is too long for sockets.
    fn temporary(&self) -> std::path::PathBuf {
        self.home.path().join("temporary-".repeat(12))
    }

    /// The words of options, with these paths for a VM.
    fn options(&self, vm: &str, options: &str) -> Vec<String> {
        let claim = |name: &str| self.claims.path().join(format!("{vm}-{name}"));
        let image = &counter_image();
        if options.contains("CLAIM") {
            std::fs::copy(image, claim("claim")).unwrap();
            std::fs::copy(image, claim("next")).unwrap();
        }
        let program = "examples/sidecars/smbios-shell";
        [
            ("IMAGE", image.to_owned()),
            ("CLAIM", claim("claim")),
            ("NEXT", claim("next")),
            ("NEW", claim("new")),
            ("TREE", image.parent().unwrap().to_owned()),
            ("SCRIPTS", self.home.path().join("scripts")),
            (
                "PROGRAM",
                Path::new(env!("CARGO_MANIFEST_DIR")).join(program),
            ),
        ]
        .iter()
        .fold(options.to_owned(), |words, (name, path)| {
            words.replace(name, path.to_str().unwrap())
        })
        .split(' ')
        .map(str::to_owned)
        .collect()
    }
}

#[tokio::test]
async fn kubevirts_examples_start() {
    let files = Files::new();
    let home = files.home.path();
    let _stop = StopAll(home.to_owned());
    let mut starting = EXAMPLES
        .iter()
        .filter_map(|(name, (_, outcome))| match outcome {
            Outcome::Starts(options) => Some((*name, *options)),
            Outcome::Refuses(_) => None,
        });
    loop {
        let mut runs = JoinSet::new();
        for (name, options) in starting.by_ref().take(GROUP) {
            let mut command = launcherctl(home);
            command
                .args(["run", "--emulate", "--detach", &file(name)])
                .args(files.options(name, options))
                .env("TMPDIR", files.temporary());
            runs.spawn(async move { (name, output_of(command).await) });
        }
        if runs.is_empty() {
            return;
        }
        let started = runs.join_all().await;
        for (name, output) in &started {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}: {said}");
        }
        let list = done(home, &["list", "-o", "json"]).await;
        let rows: Vec<Value> = serde_json::from_str(&list).unwrap();
        let running = rows.iter().filter(|row| row["state"] == "Running").count();
        assert_eq!(running, started.len(), "{rows:#?}");
        let mut stops = JoinSet::new();
        for row in rows {
            let mut command = launcherctl(home);
            command.args(["stop", "--force", row["name"].as_str().unwrap()]);
            stops.spawn(async move { output_of(command).await });
        }
        for stopped in stops.join_all().await {
            assert!(stopped.status.success(), "{stopped:?}");
        }
    }
}
