//! `launcherctl watch DIR`: all launchers below a directory, and what changes in their domains.

use std::os::unix::net::UnixListener;
use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::harness::{Pod, TEST_TIMEOUT, Vmi, run};

struct Watch {
    _child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watch {
    fn begin(directory: &std::path::Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_pod-tools"))
            .args(["launcherctl", "watch", "-o", "json", "--resync", "1"])
            .arg(directory)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            _child: child,
            lines,
        }
    }

    /// The next event for which `wanted` holds.
    async fn until(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let search = async {
            loop {
                let line = self.lines.next_line().await.unwrap().unwrap();
                let event: Value = serde_json::from_str(&line).unwrap();
                if wanted(&event) {
                    return event;
                }
            }
        };
        let found = tokio::time::timeout(TEST_TIMEOUT, search).await;
        found.unwrap_or_else(|_| panic!("no event {what}"))
    }
}

#[test]
fn the_node_view_follows_launchers_and_knows_stale_sockets() {
    run(async {
        let vmi = Vmi::new("seen");
        let mut pod = Pod::ready(&vmi, &[]).await;
        let vmi = vmi.with_image(&pod);
        let stale = pod.path("/tmp/other/launcher-sock");
        drop(UnixListener::bind(&stale).unwrap());

        let mut watch = Watch::begin(pod.root());
        let mut first = [
            watch.until("first", |_| true).await,
            watch.until("second", |_| true).await,
        ];
        first.sort_by_key(|event| event["event"].as_str().unwrap().to_owned());
        assert_eq!(first[0]["event"], "DOMAIN");
        assert!(first[0]["domain"].is_null());
        assert_eq!(first[1]["event"], "STALE");
        assert_eq!(first[1]["socket"], stale.to_str().unwrap());

        pod.sync_ok(&vmi).await;
        let running = watch.until("of the start", |event| {
            event["domain"]["Status"]["Status"] == "Running"
        });
        assert_eq!(running.await["domain"]["Spec"]["Name"], "default_seen");
        let request = pod.request(vmi.value());
        pod.cmd().pause_virtual_machine(request).await.unwrap();
        let paused = watch.until("of the pause", |event| {
            event["domain"]["Status"]["Status"] == "Paused"
        });
        let changes = paused.await["changes"].to_string();
        assert!(
            changes.contains(r#""pointer":"/Status/Status""#),
            "{changes}"
        );

        std::fs::remove_file(&stale).unwrap();
        let is = |event: &Value, name: &str, socket: &str| {
            event["event"] == name && event["socket"].as_str().unwrap().contains(socket)
        };
        watch
            .until("of the removal", |event| is(event, "REMOVED", "/tmp/other"))
            .await;
        pod.end(&vmi).await;
        watch
            .until("of the end", |event| is(event, "ENDED", "/sockets/"))
            .await;
        assert_eq!(pod.exit_code().await, 0);
    });
}
