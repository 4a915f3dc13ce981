//! What is asked of the guest through its agent: commands, freezing, and by the tools of the pod.

use api::proto::cmd::v1::{ExecRequest, FreezeRequest, GuestPingRequest, Response};

use super::*;

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

pub async fn freeze(pod: &Pod, vmi: &Vmi, thaw_after: i32) -> Response {
    let request = FreezeRequest {
        vmi: pod.request(vmi.value()).vmi,
        unfreeze_timeout_seconds: thaw_after,
    };
    let answer = pod.cmd().freeze_virtual_machine(request).await;
    answer.unwrap().into_inner()
}

pub async fn unfreeze(pod: &Pod, vmi: &Vmi) -> Response {
    let request = pod.request(vmi.value());
    let answer = pod.cmd().unfreeze_virtual_machine(request).await;
    answer.unwrap().into_inner()
}

fn freeze_status_is(status: &'static str) -> impl Fn(&Event) -> bool {
    move |event| event.domain["Status"]["FSFreezeStatus"]["Status"] == status
}

#[tokio::test]
async fn a_command_runs_in_the_guest() {
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
    pod.pause(&vmi).await;
    assert_eq!(
        ping(&pod).await,
        Ok(()),
        "a guest that its user has paused is excused"
    );
    pod.unpause(&vmi).await;
    // This guest has no clock that its agent could set: after a minute it is given up.
    pod.log_has("The guest's clock is not set").await;

    guest.run("touch /run/no-agent; killall qemu-ga").await;
    let gone = pod
        .handler
        .event("without an agent", |event| !event.has_agent())
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
}

#[test]
fn a_guest_is_frozen_and_thawed() {
    in_pod(async {
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
#[tokio::test]
// D-agent-8 (docs/differences.md).
async fn a_guest_that_nobody_thaws_is_thawed_in_time() {
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
}

/// A tool of the pod's; its exit status, and what it printed.
async fn tool(name: &str, arguments: &[&str]) -> (i32, String, String) {
    let mut command = pod_tool(name);
    command.args(arguments);
    let output = output_of(command).await;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[tokio::test]
async fn the_pods_tools_reach_the_guest() {
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
    assert!(info.contains(r#""mountPoint": "/data""#), "{info}");
    assert_eq!(ctl(&["guest", "ping", "--root", &root]).await, "ok\n");
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
            "printf out; printf err >&2; exit 9",
        ],
    )
    .await;
    assert_eq!(exec, (9, "out".to_owned(), "err".to_owned()));

    guest.run("touch /run/no-agent; killall qemu-ga").await;
    assert_eq!(probed(&["--guestAgentPing"]).await.0, 2);
    pod.end(&vmi).await;
}
