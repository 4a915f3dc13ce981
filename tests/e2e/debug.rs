//! `launcherctl debug`: an archive for a bug report, without the guest's secrets.

use std::process::Command;

use serde_json::json;

use crate::harness::{Pod, Vmi, in_pod, output_of, pod_tool};

const SECRETS: [&str; 4] = [
    "hunter2-password",
    "AAAAC3NzaC1lZDI1NTE5AAAAIHfUjkuGMwhDebug",
    "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJkZWJ1ZyJ9.c2lnbmF0dXJl",
    "io-systemd-credential-of-the-guest",
];

#[test]
fn a_bug_report_has_everything_but_secrets() {
    in_pod(async {
        let [password, key, token, credential] = SECRETS;
        let user_data = format!(
            "#cloud-config\npassword: {password}\nssh_authorized_keys:\n- ssh-ed25519 {key}\ntoken: {token}\n"
        );
        let mut pod = Pod::new();
        let vmi = Vmi::new("report")
            .with_image(&pod)
            .volume(
                json!({"name": "seed", "cloudInitNoCloud": {"userData": user_data}}),
                json!({"name": "seed", "disk": {"bus": "virtio"}}),
            )
            .set(
                "/metadata/annotations",
                json!({"kubevirt.io/ignitiondata": credential, "kubectl.kubernetes.io/last-applied-configuration": user_data}),
            );
        pod.start(&vmi, &["-v", "6"]).await;
        pod.boot(&vmi).await;

        let (log, archive) = (pod.path("/tmp/log"), pod.path("/tmp/report.tar.gz"));
        std::fs::write(&log, pod.log().join("\n")).unwrap();
        let mut command = pod_tool("launcherctl");
        command.args(["debug", "--root"]);
        command.arg(pod.root()).arg("--out").arg(&archive);
        command.arg("--log").arg(&log);
        let output = output_of(command).await;
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && !said.contains("missing"),
            "{output:?}"
        );

        let mut command = pod_tool("launcherctl");
        command.args(["debug", "--out", "-", "--root"]);
        command.arg(pod.root());
        let output = output_of(command).await;
        let gzip = [0x1f, 0x8b];
        assert!(output.stdout.starts_with(&gzip), "{output:?}");

        let unpack = |arguments: &[&str]| {
            let output = Command::new("tar").args(arguments).arg(&archive).output();
            let output = output.unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let names = unpack(&["--list", "--gzip", "--file"]);
        for name in [
            "versions.json",
            "launcher.json",
            "timeline.json",
            "metrics.json",
            "domain.json",
            "domain.xml",
            "context.json",
            "launcher.log",
        ] {
            assert!(
                names.contains(&format!("launcher-debug/{name}\n")),
                "{name}: {names}"
            );
        }
        let all = unpack(&["--extract", "--to-stdout", "--gzip", "--file"]);
        for secret in SECRETS {
            assert!(!all.contains(secret), "{secret} is in the archive");
        }
        for part in [
            "<name>default_report</name>",
            "Domain started.",
            "hostArchitecture",
            "\"phase\": \"Running\"",
        ] {
            assert!(all.contains(part), "no {part} in the archive");
        }
        pod.end(&vmi).await;
        assert_eq!(pod.exit_code().await, 0);
    });
}
