//! Keys and passwords of the VMI's Secrets.

use super::*;
use crate::faults::{Held, launch, make_point};

/// Replaces a file of a secret as the kubelet does: beside it, then renamed.
fn write_secret(pod: &Pod, secret: &str, file: &str, text: &str) {
    let dir = format!("/var/run/kubevirt-private/secret/{secret}-access-cred");
    let new = pod.path(&format!("{dir}/..new"));
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, pod.path(&format!("{dir}/{file}"))).unwrap();
}

#[tokio::test]
// D-agent-15 (docs/differences.md).
async fn keys_and_passwords_reach_the_guest_and_follow_their_secrets() {
    let mut pod = Pod::new();
    let secret = |name: &str| serde_json::json!({"secret": {"secretName": name}});
    let credentials = serde_json::json!([
        {"sshPublicKey": {"source": secret("keys"), "propagationMethod": {"qemuGuestAgent": {"users": ["root"]}}}},
        {"userPassword": {"source": secret("passwords"), "propagationMethod": {"qemuGuestAgent": {}}}},
    ]);
    let vmi = Vmi::new("keys")
        .with_image(&pod)
        .set("/spec/accessCredentials", credentials);
    write_secret(&pod, "passwords", "root", "not-this-one\n");
    pod.handler.serve();
    launch(&mut pod, &vmi, "--libvirt=embed").await;
    let fifo = make_point(&pod, "credentials.reading");
    let mut guest = pod.boot(&vmi).await;
    let reads = Held::reached(
        &mut pod,
        "credentials.reading",
        fifo,
        tokio::spawn(async {}),
    )
    .await;
    // It comes after the guest has started and while others are read, and is followed all the same.
    write_secret(&pod, "keys", "one", "ssh-ed25519 AAAA first@test\n");
    reads.release().await;
    let metadata =
        |event: &Event| event.domain["Spec"]["Metadata"]["KubeVirt"]["AccessCredential"].clone();
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
            message.contains("setting password for user [stranger]")
        })
        .await;
    pod.end(&vmi).await;
}

/// QEMU's agents before 5.2 have none.
#[test]
fn keys_are_written_to_the_file_where_the_agent_has_no_command_for_them() {
    in_pod(async {
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
        pod.start(&vmi, &[]).await;
        let mut guest = pod.boot(&vmi).await;
        let result = |event: &Event| {
            event.domain["Spec"]["Metadata"]["KubeVirt"]["AccessCredential"].clone()
        };
        let offline = |event: &Event| !result(event).is_null();
        let offline = result(&pod.handler.event("without an agent", offline).await);
        assert_eq!(offline["Succeeded"], false);
        assert_eq!(offline["Message"], "Guest agent is offline");
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
                result(event)["Succeeded"] == true
            })
            .await;
        // As v1.10 does; v1.9's virt-handler takes any event of the VMI.
        let event = pod.handler.k8s_event("AccessCredentialsSyncSuccess").await;
        let message = event["message"].as_str().unwrap();
        assert!(message.contains("update the QEMU guest agent"), "{event}");
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
