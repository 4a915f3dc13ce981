//! What the test guest's own agent, QEMU's, knows.

use api::proto::cmd::v1::{EmptyRequest, ExecRequest, FreezeRequest, GuestPingRequest, Response};
use serde_json::Value;

use crate::harness::{Event, Guest, Pod, Vmi, also_in_container, run};

also_in_container!(
    what_the_agent_knows_is_in_calls_and_events,
    keys_are_written_to_the_file_where_the_agent_has_no_command_for_them,
    a_guest_is_frozen_and_thawed
);

/// What `GetGuestInfo` answers.
pub async fn guest_info(pod: &Pod) -> Value {
    let answer = pod.cmd().get_guest_info(EmptyRequest {}).await.unwrap();
    let answer = answer.into_inner();
    assert!(answer.response.unwrap().success);
    serde_json::from_str(&answer.guest_info_response).unwrap()
}

/// Asks for the guest's information until `wanted` holds of it.
pub async fn guest_info_until(pod: &mut Pod, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let end = std::time::Instant::now() + crate::harness::TEST_TIMEOUT;
    loop {
        let info = guest_info(pod).await;
        if wanted(&info) {
            return info;
        }
        assert!(
            std::time::Instant::now() < end,
            "the guest's information is not {what}, but {info:#}\n{}",
            pod.log_tail()
        );
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Whether the domain has a connected agent.
pub fn is_connected(domain: &Value) -> bool {
    domain.to_string().contains(r#""State":"connected""#)
}

/// Ends the guest's agent for good, once it has come.
pub async fn end_agent(pod: &Pod, guest: &mut Guest) {
    pod.domain_until("with an agent", is_connected).await;
    guest.run("touch /run/no-agent; killall qemu-ga").await;
    pod.domain_until("without an agent", |domain| !is_connected(domain))
        .await;
}

async fn filesystems(pod: &Pod) -> Value {
    let answer = pod.cmd().get_filesystems(EmptyRequest {}).await.unwrap();
    let answer = answer.into_inner();
    assert!(answer.response.unwrap().success);
    serde_json::from_str(&answer.guest_filesystems_response).unwrap()
}

async fn users(pod: &Pod) -> Value {
    let answer = pod.cmd().get_users(EmptyRequest {}).await.unwrap();
    let answer = answer.into_inner();
    assert!(answer.response.unwrap().success);
    serde_json::from_str(&answer.guest_user_list_response).unwrap()
}

/// A document with the guest's operating system and freeze status.
fn is_known(event: &Event) -> bool {
    let status = &event.domain["Status"];
    status["OSInfo"]["Name"] != "" && status["FSFreezeStatus"]["Status"] == "thawed"
}

#[test]
fn what_the_agent_knows_is_in_calls_and_events() {
    run(async {
        let (mut pod, vmi, _guest) = Pod::booted("asked", &[]).await;
        let event = pod
            .handler
            .event("with what the agent knows", is_known)
            .await;
        assert_eq!(event.kind, "MODIFIED");
        let kernel = event.domain["Status"]["OSInfo"]["KernelRelease"].clone();
        assert!(kernel.as_str().unwrap().contains("cloud-amd64"), "{kernel}");
        let domain = pod.domain().await;
        assert_eq!(domain["Status"], event.domain["Status"]);

        let info = guest_info_until(&mut pod, "complete", |info| {
            info["guestAgentVersion"].is_string() && info["fsInfo"]["disks"][0].is_object()
        })
        .await;
        let commands = info["supportedCommands"].as_array().unwrap();
        let is_enabled = |name: &str| {
            commands
                .iter()
                .any(|command| command["name"] == name && command["enabled"] == true)
        };
        // Those that virt-handler wants of every agent.
        for name in [
            "guest-ping",
            "guest-get-time",
            "guest-info",
            "guest-shutdown",
            "guest-network-get-interfaces",
            "guest-get-fsinfo",
            "guest-get-host-name",
            "guest-get-users",
            "guest-get-timezone",
            "guest-get-osinfo",
        ] {
            assert!(is_enabled(name), "{name} is missing in {info:#}");
        }
        assert_eq!(info["os"]["kernelRelease"], kernel);
        assert_eq!(info["timezone"], "UTC, 0");
        assert_eq!(info["fsFreezeStatus"], "thawed");
        assert!(info["hostname"].is_string(), "{info:#}");

        let all = filesystems(&pod).await;
        let all = all.as_array().unwrap();
        let data = all.iter().find(|one| one["mountPoint"] == "/data").unwrap();
        assert_eq!(data["fileSystemType"], "ext4");
        assert_eq!(data["disk"][0]["busType"], "virtio");
        assert!(data["totalBytes"].as_i64().unwrap() > 1 << 20, "{data:#}");
        assert_eq!(users(&pod).await, serde_json::json!([]));
        pod.end(&vmi).await;
    });
}

#[test]
fn an_adopted_guest_is_asked_again_and_a_paused_one_is_not() {
    run(async {
        let (mut pod, vmi, _guest) = Pod::booted("adopted", &["--libvirt=auto"]).await;
        pod.handler
            .event("with what the agent knows", is_known)
            .await;

        let request = pod.request(vmi.value());
        let answer = pod.cmd().pause_virtual_machine(request).await;
        assert!(answer.unwrap().into_inner().success);
        pod.log_has("Stopped polling the guest agent").await;
        let kept = guest_info(&pod).await;
        assert!(kept["os"]["kernelRelease"].is_string(), "{kept:#}");
        let request = pod.request(vmi.value());
        let answer = pod.cmd().unpause_virtual_machine(request).await;
        assert!(answer.unwrap().into_inner().success);
        pod.log_count("Starting to poll the guest agent", 2).await;

        pod.kill_launcher().await;
        pod.handler.forget();
        pod.launch(&vmi, &["--libvirt=auto"]);
        pod.wait_until_ready().await;
        pod.handler.event("of the adopted guest", is_known).await;
        guest_info_until(&mut pod, "complete", |info| {
            info["guestAgentVersion"].is_string()
        })
        .await;
        pod.end(&vmi).await;
    });
}

#[test]
fn without_an_agent_reads_are_empty_and_succeed() {
    run(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("silent").with_image(&pod);
        pod.handler.serve();
        pod.launch(&vmi, &[]);
        pod.wait_until_ready().await;
        // Before there is a domain.
        let nothing = serde_json::json!({"os": {}, "fsInfo": {"disks": []}});
        assert_eq!(guest_info(&pod).await, nothing);
        let mut guest = pod.boot(&vmi).await;
        guest.run("touch /run/no-agent; killall qemu-ga").await;
        assert_eq!(users(&pod).await, serde_json::json!([]));
        pod.end(&vmi).await;
    });
}

/// Runs a command in the guest through its agent: exit status and output.
async fn exec(
    pod: &Pod,
    command: &str,
    args: &[&str],
    seconds: i32,
) -> Result<(i32, String), String> {
    let request = ExecRequest {
        domain_name: String::new(),
        command: command.to_owned(),
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        timeout_seconds: seconds,
    };
    let answer = pod.cmd().exec(request).await;
    let answer = answer.map_err(|status| status.message().to_owned())?;
    let answer = answer.into_inner();
    Ok((answer.exit_code, answer.std_out))
}

async fn ping(pod: &Pod) -> Result<(), String> {
    let request = GuestPingRequest {
        domain_name: String::new(),
        timeout_seconds: 5,
    };
    let answer = pod.cmd().guest_ping(request).await;
    answer
        .map(drop)
        .map_err(|status| status.message().to_owned())
}

async fn freeze(pod: &Pod, vmi: &Vmi, thaw_after: i32) -> Response {
    let request = FreezeRequest {
        vmi: pod.request(vmi.value()).vmi,
        unfreeze_timeout_seconds: thaw_after,
    };
    let answer = pod.cmd().freeze_virtual_machine(request).await;
    answer.unwrap().into_inner()
}

async fn unfreeze(pod: &Pod, vmi: &Vmi) -> Response {
    let request = pod.request(vmi.value());
    let answer = pod.cmd().unfreeze_virtual_machine(request).await;
    answer.unwrap().into_inner()
}

async fn paused(pod: &Pod, vmi: &Vmi) {
    let request = pod.request(vmi.value());
    let answer = pod.cmd().pause_virtual_machine(request).await;
    assert!(answer.unwrap().into_inner().success);
}

fn freeze_status_is(status: &'static str) -> impl Fn(&Event) -> bool {
    move |event| event.domain["Status"]["FSFreezeStatus"]["Status"] == status
}

#[test]
fn a_command_runs_in_the_guest() {
    run(async {
        let (mut pod, vmi, mut guest) = Pod::booted("exec", &[]).await;
        pod.handler
            .event("with what the agent knows", is_known)
            .await;
        let hostile = [
            "-c",
            "printf '%s|' \"$@\"; exit 3",
            "sh",
            "a b",
            "\"q\"",
            "\\n",
            "$(id)",
        ];
        assert_eq!(
            exec(&pod, "/bin/sh", &hostile, 10).await,
            Ok((3, "a b|\"q\"|\\n|$(id)|".to_owned()))
        );
        let killed = exec(&pod, "/bin/sh", &["-c", "kill -9 $$"], 10).await;
        assert_eq!(
            killed,
            Ok((137, String::new())),
            "D-agent-7 (docs/differences.md)"
        );
        let missing = exec(&pod, "/bin/missing", &[], 10).await.unwrap_err();
        assert!(missing.contains("No such file or directory"), "{missing}");
        let endless = exec(&pod, "/bin/sleep", &["600"], 1).await.unwrap_err();
        assert!(endless.contains("has not ended within 1 s"), "{endless}");
        let much = exec(
            &pod,
            "/bin/sh",
            &["-c", "head -c 1000000 /dev/zero | tr '\\0' x"],
            20,
        )
        .await;
        assert_eq!(
            much.map(|(code, out)| (code, out.len())),
            Ok((0, 1_000_000))
        );

        assert_eq!(ping(&pod).await, Ok(()));
        paused(&pod, &vmi).await;
        assert_eq!(
            ping(&pod).await,
            Ok(()),
            "a guest that its user has paused is excused"
        );
        let request = pod.request(vmi.value());
        let answer = pod.cmd().unpause_virtual_machine(request).await;
        assert!(answer.unwrap().into_inner().success);
        // This guest has no clock that its agent could set.
        pod.log_has("the guest's clock cannot be set").await;

        guest.run("touch /run/no-agent; killall qemu-ga").await;
        let gone = pod
            .handler
            .event("without an agent", |event| !is_connected(&event.domain))
            .await;
        assert_eq!(gone.status(), "Running");
        let silent = ping(&pod).await.unwrap_err();
        assert!(
            silent.contains("QEMU guest agent is not connected"),
            "{silent}"
        );
        let event = pod.handler.k8s_event("GuestAgentPingFailed").await;
        assert_eq!(event["message"], "GuestAgentPing probe failed for VMI exec");
        let annotated = vmi.clone().set(
            "/metadata/annotations",
            serde_json::json!({"kubevirt.io/pause-guest-agent-probes": "true"}),
        );
        pod.sync_ok(&annotated).await;
        assert_eq!(ping(&pod).await, Ok(()));
        pod.end(&vmi).await;
    });
}

#[test]
fn a_guest_is_frozen_and_thawed() {
    run(async {
        let (mut pod, vmi, mut guest) = Pod::booted("frozen", &[]).await;
        pod.handler
            .event("with what the agent knows", is_known)
            .await;
        let refused = unfreeze(&pod, &vmi).await;
        assert!(
            refused.success,
            "{}: it was thawed already",
            refused.message
        );
        let done = freeze(&pod, &vmi, 0).await;
        assert!(done.success, "{}", done.message);
        let again = freeze(&pod, &vmi, 0).await;
        assert!(again.success, "{}", again.message);
        pod.handler
            .event("of the freeze", freeze_status_is("frozen"))
            .await;
        assert_eq!(guest_info(&pod).await["fsFreezeStatus"], "frozen");
        // The guest cannot write until it is thawed.
        guest
            .send("echo written > /data/file; echo the write is through")
            .await;
        let done = unfreeze(&pod, &vmi).await;
        assert!(done.success, "{}", done.message);
        pod.handler
            .event("of the thaw", freeze_status_is("thawed"))
            .await;
        guest.until("\nthe write is through").await;
        assert_eq!(ping(&pod).await, Ok(()));
        // All else that the agent knows is still asked for.
        guest_info_until(&mut pod, "complete", |info| {
            info["os"]["kernelRelease"].is_string()
        })
        .await;
        pod.end(&vmi).await;
    });
}

/// Also by a launcher that comes later.
#[test]
// D-agent-8 (docs/differences.md).
fn a_guest_that_nobody_thaws_is_thawed_in_time() {
    run(async {
        let (mut pod, vmi, _guest) = Pod::booted("thawed", &["--libvirt=auto"]).await;
        pod.handler
            .event("with what the agent knows", is_known)
            .await;
        let done = freeze(&pod, &vmi, 1).await;
        assert!(done.success, "{}", done.message);
        pod.handler
            .event("of the freeze", freeze_status_is("frozen"))
            .await;
        pod.handler
            .event("of the thaw", freeze_status_is("thawed"))
            .await;

        let done = freeze(&pod, &vmi, 3).await;
        assert!(done.success, "{}", done.message);
        pod.kill_launcher().await;
        pod.handler.forget();
        pod.launch(&vmi, &["--libvirt=auto"]);
        pod.wait_until_ready().await;
        pod.handler
            .event("of the thaw", freeze_status_is("thawed"))
            .await;
        pod.log_has("Unfreeze was not called in time").await;
        let deadline = pod.path("/var/run/kubevirt-private/thaw-deadline");
        pod.until("the deadline is forgotten", || !deadline.exists())
            .await;
        pod.end(&vmi).await;
    });
}

/// A tool of the pod's; its exit status, and what it printed.
async fn tool(name: &str, arguments: &[&str]) -> (i32, String, String) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pod-tools"));
    command.arg(name).args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    let output = output.await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn the_pods_tools_reach_the_guest() {
    run(async {
        let (mut pod, vmi, mut guest) = Pod::booted("tools", &[]).await;
        pod.handler
            .event("with what the agent knows", is_known)
            .await;
        guest_info_until(&mut pod, "complete", |info| {
            info["guestAgentVersion"].is_string()
        })
        .await;
        let root = pod.root().to_str().unwrap().to_owned();
        let socket = format!("{root}/var/run/kubevirt/sockets/launcher-sock");

        let probe = ["--socket", &socket, "--domainName", "default_tools"];
        let probe = |more: &[&str]| {
            [&probe[..], more]
                .concat()
                .iter()
                .map(|&word| word.to_owned())
                .collect::<Vec<_>>()
        };
        let probed = async |more: &[&str]| {
            let arguments = probe(more);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            tool("virt-probe", &arguments).await
        };
        assert_eq!(
            probed(&["--timeoutSeconds", "5", "--guestAgentPing"])
                .await
                .0,
            0
        );
        let (code, out, _) = probed(&[
            "--timeoutSeconds",
            "10",
            "--command",
            "/bin/sh",
            "--",
            "-c",
            "echo hi; exit 7",
        ])
        .await;
        assert_eq!((code, out.as_str()), (7, "hi\n\n"));
        let missing = probed(&["--command", "/bin/missing"]).await;
        assert_eq!(missing.0, 2, "{}", missing.2);
        let nobody = tool(
            "virt-probe",
            &["--socket", "/nonexistent", "--guestAgentPing"],
        )
        .await;
        assert_eq!(nobody.0, 1);

        let freezer = [
            "--socket",
            &socket,
            "--name",
            "tools",
            "--namespace",
            "default",
        ];
        let frozen = tool("virt-freezer", &[&freezer[..], &["--freeze"]].concat()).await;
        assert_eq!(frozen.0, 0, "{}", frozen.2);
        assert!(
            frozen.2.contains("Operation completed successfully"),
            "{}",
            frozen.2
        );
        pod.handler
            .event("of the freeze", freeze_status_is("frozen"))
            .await;
        let thawed = tool("virt-freezer", &[&freezer[..], &["--unfreeze"]].concat()).await;
        assert_eq!(thawed.0, 0, "{}", thawed.2);
        pod.handler
            .event("of the thaw", freeze_status_is("thawed"))
            .await;

        let ctl = async |arguments: &[&str]| {
            let (code, out, error) = tool("launcherctl", arguments).await;
            assert_eq!(code, 0, "{arguments:?}: {error}");
            out
        };
        let info = ctl(&["guest", "info", "--root", &root]).await;
        assert!(
            info.contains("cloud-amd64") && info.contains("thawed"),
            "{info}"
        );
        let all = ctl(&["guest", "filesystems", "--root", &root]).await;
        assert!(all.contains("/data  ext4"), "{all}");
        let json = ctl(&["-o", "json", "guest", "users", "--root", &root]).await;
        assert_eq!(json.trim(), "[]");
        assert_eq!(ctl(&["guest", "ping", "--root", &root]).await, "ok\n");
        assert_eq!(
            ctl(&["freeze", "--root", &root, "--timeout", "60"]).await,
            "frozen\n"
        );
        assert_eq!(ctl(&["unfreeze", "--root", &root]).await, "thawed\n");
        let exec = tool(
            "launcherctl",
            &[
                "guest",
                "exec",
                "--root",
                &root,
                "--",
                "/bin/sh",
                "-c",
                "printf out; exit 9",
            ],
        )
        .await;
        assert_eq!((exec.0, exec.1.as_str()), (9, "out"), "{}", exec.2);

        guest.run("touch /run/no-agent; killall qemu-ga").await;
        assert_eq!(probed(&["--guestAgentPing"]).await.0, 2);
        pod.end(&vmi).await;
    });
}

/// Replaces a file of a secret as the kubelet does: beside it, then renamed.
fn write_secret(pod: &Pod, secret: &str, file: &str, text: &str) {
    let dir = format!("/var/run/kubevirt-private/secret/{secret}-access-cred");
    let new = pod.path(&format!("{dir}/..new"));
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, pod.path(&format!("{dir}/{file}"))).unwrap();
}

#[test]
fn keys_and_passwords_reach_the_guest_and_follow_their_secrets() {
    run(async {
        let mut pod = Pod::new();
        let secret = |name: &str| serde_json::json!({"secret": {"secretName": name}});
        let credentials = serde_json::json!([
            {"sshPublicKey": {"source": secret("keys"), "propagationMethod": {"qemuGuestAgent": {"users": ["root"]}}}},
            {"userPassword": {"source": secret("passwords"), "propagationMethod": {"qemuGuestAgent": {}}}},
        ]);
        let vmi = Vmi::new("keys")
            .with_image(&pod)
            .set("/spec/accessCredentials", credentials);
        write_secret(&pod, "keys", "one", "ssh-ed25519 AAAA first@test\n");
        write_secret(&pod, "passwords", "root", "not-this-one\n");
        pod.handler.serve();
        pod.launch(&vmi, &[]);
        pod.wait_until_ready().await;
        let mut guest = pod.boot(&vmi).await;
        let metadata = |event: &Event| {
            event.domain["Spec"]["Metadata"]["KubeVirt"]["AccessCredential"].clone()
        };
        let offline = pod
            .handler
            .event("without an agent", |event| {
                metadata(event)["Message"] == "Guest agent is offline"
            })
            .await;
        assert_eq!(metadata(&offline)["Succeeded"], false);
        pod.handler
            .event("with credentials", |event| {
                metadata(event)["Succeeded"] == true
            })
            .await;
        let keys = guest.run("cat /root/.ssh/authorized_keys").await;
        assert_eq!(keys, "ssh-ed25519 AAAA first@test");
        let before = guest.run("grep ^root: /etc/shadow").await;
        assert!(before.starts_with("root:$"), "{before}");

        write_secret(&pod, "keys", "two", "ssh-ed25519 BBBB second@test");
        guest
            .run_until("cat /root/.ssh/authorized_keys", |keys| {
                keys.contains("first@test") && keys.contains("second@test")
            })
            .await;
        write_secret(&pod, "passwords", "root", "another-one");
        guest
            .run_until("grep ^root: /etc/shadow", |line| {
                line.starts_with("root:$") && line != before
            })
            .await;

        // A user whom the guest does not have is named, and does not keep the others from theirs.
        write_secret(&pod, "passwords", "stranger", "x");
        pod.handler
            .event("of the failure", |event| {
                let message = metadata(event)["Message"].to_string();
                message.contains("password of the guest's user") && message.contains("stranger")
            })
            .await;
        pod.end(&vmi).await;
    });
}

/// QEMU's agents before 5.2 have none.
#[test]
fn keys_are_written_to_the_file_where_the_agent_has_no_command_for_them() {
    run(async {
        let mut pod = Pod::new();
        let credentials = serde_json::json!([{"sshPublicKey": {
            "source": {"secret": {"secretName": "keys"}},
            "propagationMethod": {"qemuGuestAgent": {"users": ["guest"]}},
        }}]);
        let seed = serde_json::json!({"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\n# guest.no-agent\n"}});
        let vmi = Vmi::new("keysfile")
            .with_image(&pod)
            .volume(
                seed,
                serde_json::json!({"name": "seed", "disk": {"bus": "virtio"}}),
            )
            .set("/spec/accessCredentials", credentials);
        write_secret(&pod, "keys", "one", "ssh-ed25519 AAAA first@test\n");
        pod.handler.serve();
        pod.launch(&vmi, &[]);
        pod.wait_until_ready().await;
        let mut guest = pod.boot(&vmi).await;
        for command in [
            r#"echo '#!/bin/sh' >/bin/getent; echo 'exec grep "^$2:" /etc/passwd' >>/bin/getent"#,
            "chmod 755 /bin/getent",
            "(qemu-ga -m virtio-serial -p /dev/virtio-ports/org.qemu.guest_agent.0 -t /run \
             -b guest-ssh-add-authorized-keys </dev/null >/dev/null 2>&1 &)",
        ] {
            guest.run(command).await;
        }
        pod.handler
            .event("with credentials", |event| {
                event.domain["Spec"]["Metadata"]["KubeVirt"]["AccessCredential"]["Succeeded"]
                    == true
            })
            .await;
        let file = "/home/guest/.ssh/authorized_keys";
        let keys = guest.run(&format!("cat {file}")).await;
        assert_eq!(keys, "ssh-ed25519 AAAA first@test");
        let owner = guest.run(&format!("stat -c '%a %u:%g' {file}")).await;
        assert_eq!(owner, "600 1000:1000");
        write_secret(&pod, "keys", "two", "ssh-ed25519 BBBB second@test");
        guest
            .run_until(&format!("cat {file}"), |keys| {
                keys.contains("first@test") && keys.contains("second@test")
            })
            .await;
        pod.end(&vmi).await;
    });
}
