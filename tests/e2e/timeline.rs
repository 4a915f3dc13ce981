//! `launcherctl launcher timeline`: where the time of a start went.

use std::process::Command;

use serde_json::Value;

use crate::harness::{Pod, in_pod, output_of};

#[test]
fn the_steps_of_the_start_are_known_up_to_the_guest_agent() {
    in_pod(async {
        let (mut pod, vmi, _guest) = Pod::booted("timeline", &[]).await;
        pod.log_has("The guest is up").await;
        let mut command = Command::new(env!("CARGO_BIN_EXE_pod-tools"));
        command
            .args([
                "launcherctl",
                "launcher",
                "timeline",
                "-o",
                "json",
                "--root",
            ])
            .arg(pod.root());
        let output = output_of(command).await;
        assert!(output.status.success(), "{output:?}");
        let timeline: Value = serde_json::from_slice(&output.stdout).unwrap();
        let steps = timeline["steps"].as_array().unwrap();
        let names: Vec<&str> = steps
            .iter()
            .map(|step| step["name"].as_str().unwrap())
            .collect();
        for name in [
            "directories",
            "daemons",
            "connect",
            "sidecars",
            "ready",
            "convert",
            "network",
            "prepare",
            "define-hooks",
            "define",
            "start",
            "running",
            "console",
            "agent",
        ] {
            assert!(names.contains(&name), "no {name} in {names:?}");
        }
        let began: Vec<u64> = steps
            .iter()
            .map(|step| step["beganMicros"].as_u64().unwrap())
            .collect();
        assert!(began.is_sorted(), "{began:?}");
        assert!(
            steps.iter().all(|step| step["tookMicros"].is_u64()),
            "{steps:?}"
        );
        assert_eq!(timeline["attempts"], 1);

        let logged = pod.log();
        let line = logged
            .iter()
            .find(|line| line.contains("Timeline of the start"))
            .unwrap();
        let line: Value = serde_json::from_str(line).unwrap();
        let text = line["steps"].as_str().unwrap();
        assert!(
            text.starts_with("directories ") && text.contains(", running "),
            "{text}"
        );
        pod.end(&vmi).await;
        assert_eq!(pod.exit_code().await, 0);
    });
}
