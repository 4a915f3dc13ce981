//! `launcherctl launcher metrics`, and the same by HTTP on a unix socket.

use std::collections::BTreeMap;
use std::process::Command;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::harness::{Pod, in_pod, output_of};

const SOCKET: &str = "/var/run/kubevirt-private/metrics.sock";

/// The samples by name and labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    assert!(text.ends_with("# EOF\n"), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    lines.map(sample).collect()
}

#[test]
fn metrics_count_what_has_happened() {
    in_pod(async {
        let (mut pod, vmi, _guest) = Pod::counting("metrics", &["--metrics-socket", SOCKET]).await;
        pod.sync_ok(&vmi).await;
        let mut command = Command::new(env!("CARGO_BIN_EXE_pod-tools"));
        command
            .args(["launcherctl", "launcher", "metrics", "--root"])
            .arg(pod.root());
        let output = output_of(command).await;
        assert!(output.status.success(), "{output:?}");
        let counted = samples(&String::from_utf8(output.stdout).unwrap());
        for (name, value) in [
            (r#"virt_launcher_sync_seconds_count{result="success"}"#, 2.0),
            (r#"virt_launcher_phase{phase="running"}"#, 1.0),
            ("virt_launcher_libvirt_reconnects_total", 0.0),
            (
                r#"virt_launcher_notifications_total{result="dropped"}"#,
                0.0,
            ),
        ] {
            assert_eq!(counted.get(name), Some(&value), "{name} in {counted:#?}");
        }
        for name in [
            r#"virt_launcher_notifications_total{result="delivered"}"#,
            r#"virt_launcher_start_step_seconds{step="start"}"#,
            "process_resident_memory_bytes",
        ] {
            assert!(
                counted.get(name).is_some_and(|value| *value > 0.0),
                "{name}"
            );
        }

        let socket = pod.inside(SOCKET);
        let mut stream = UnixStream::connect(&socket).await.unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nHost: launcher\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("application/openmetrics-text"), "{head}");
        let names = |samples: BTreeMap<String, f64>| samples.into_keys().collect::<Vec<_>>();
        assert_eq!(names(samples(body)), names(counted));

        pod.end(&vmi).await;
        assert_eq!(pod.exit_code().await, 0);
        assert!(!pod.path(SOCKET).exists());
    });
}
