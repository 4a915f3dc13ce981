//! Network interfaces that come and go while the guest runs, and the state of their links.
//!
//! The launcher is in a network namespace of its own, in which the test does virt-handler's part
//! (phase 1): bridges, tap devices, the saved address of a bridged link.

use std::process::{Command, Output};

use api::proto::cmd::v1::{Response, VirtualMachineOptions};
use serde_json::{Value, json};

use crate::harness::{Guest, Pod, UP, Vmi, in_pod, output_of, pod_tool, write_name_resolution};

const POD_ADDRESS: &str = "10.244.0.5";
const DEFAULT_MAC: &str = "02:00:00:00:00:11";
const BLUE_MAC: &str = "02:00:00:00:00:22";
/// sha256 of "blue" begins so.
const BLUE: &str = "16477688c0e";
const BLUE_TAP: &str = "tap16477688c0e";
/// The guest's address on the network blue, as virt-handler saves it.
const BLUE_ADDRESS: &str = "192.168.7.2";
const BLUE_CACHE: &str = r#"{"IP":{"IP":"192.168.7.2","Mask":"////AA=="},"IPv6":{},"MAC":"AgAAAAAi","Gateway":"192.168.7.1",
    "Routes":[{"Dst":null,"Gw":"192.168.7.1"}]}"#;

/// A pod with a network namespace.
struct Bed(Pod);

impl Bed {
    /// A launcher that is ready, with the network of the pod prepared. None where that needs rights
    /// that we lack.
    async fn new(vmi: impl FnOnce(&Pod) -> Vmi) -> Option<(Self, Vmi)> {
        if !rustix::process::geteuid().is_root() || !std::path::Path::new("/dev/net/tun").exists() {
            println!("skipped: only root can make network namespaces with tap devices");
            return None;
        }
        let mut pod = Pod::new();
        let vmi = vmi(&pod);
        pod.handler.serve();
        if pod.is_container() {
            write_name_resolution(&pod, &vmi, POD_ADDRESS);
            pod.launch(&vmi, &[]);
        } else {
            let mut unshare = Command::new("unshare");
            pod.launch_by(unshare.args(["--net", "--"]), &vmi, &[]);
        }
        pod.wait_until_ready().await;
        let bed = Self(pod);
        bed.link("link set lo up");
        bed.link("link add eth0 type veth peer name outside0");
        bed.link(&format!("address add {POD_ADDRESS}/24 dev eth0"));
        bed.link("link set eth0 up");
        bed.bridge("k6t-eth0", "10.0.2.1/24", "tap0");
        Some((bed, vmi))
    }

    /// Runs `ip` with these words in the pod's namespace.
    fn link(&self, words: &str) {
        let output = self.ip(words);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ip {words}: {message}");
    }

    fn ip(&self, words: &str) -> Output {
        let namespace = format!("--net=/proc/{}/ns/net", self.0.first_process());
        let mut command = Command::new("nsenter");
        command.args([namespace.as_str(), "ip"]);
        command.args(words.split_whitespace()).output().unwrap()
    }

    /// A bridge with the guest's tap device.
    fn bridge(&self, bridge: &str, address: &str, tap: &str) {
        self.link(&format!("link add {bridge} type bridge"));
        self.link(&format!("address add {address} dev {bridge}"));
        self.link(&format!("link set {bridge} up"));
        self.link(&format!(
            "tuntap add mode tap user 107 group 107 name {tap}"
        ));
        self.link(&format!("link set {tap} master {bridge} up"));
    }

    /// Phase 1 of the network blue.
    fn prepare_blue(&self) {
        self.link(&format!(
            "link add pod{BLUE} type veth peer name {BLUE}-nic"
        ));
        self.bridge(&format!("k6t-{BLUE}"), "169.254.75.11/32", BLUE_TAP);
        let cache = format!("/var/run/kubevirt-private/vif-cache-pod{BLUE}.json");
        std::fs::write(self.0.path(&cache), BLUE_CACHE).unwrap();
    }

    /// What virt-handler does after an unplug.
    fn remove_blue(&self) {
        for link in [
            BLUE_TAP.to_owned(),
            format!("k6t-{BLUE}"),
            format!("pod{BLUE}"),
        ] {
            self.link(&format!("link delete {link}"));
        }
    }

    async fn sync(&self, vmi: &Vmi) -> Response {
        let attachments = ["default", "blue"].map(|name| (name.to_owned(), "tap".to_owned()));
        let request = self
            .0
            .request(vmi.value())
            .with_options(&VirtualMachineOptions {
                interface_domain_attachment: attachments.into(),
                ..VirtualMachineOptions::default()
            });
        let answer = self.0.cmd().sync_virtual_machine(request).await;
        answer.unwrap().into_inner()
    }

    async fn sync_ok(&self, vmi: &Vmi) {
        let answer = self.sync(vmi).await;
        let (message, log) = (&answer.message, self.0.log_tail());
        assert!(answer.success, "sync: {message}\n{log}");
    }

    async fn boot(&self, vmi: &Vmi) -> Guest {
        self.sync_ok(vmi).await;
        let mut guest = self.0.guest(vmi).await;
        guest.until(UP).await;
        guest
    }

    /// What `launcherctl plan` prints.
    async fn plan(&self, vmi: &Vmi) -> String {
        let file = self.0.path("/tmp/vmi.json");
        std::fs::write(&file, vmi.value().to_string()).unwrap();
        let mut command = pod_tool("launcherctl");
        command.args(["plan"]).arg(file);
        command.arg("--root").arg(self.0.root());
        let output = output_of(command).await;
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{message}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

/// A VMI with a masqueraded interface.
fn vmi(pod: &Pod, name: &str) -> Vmi {
    Vmi::new(name)
        .with_image(pod)
        .set(
            "/spec/domain/devices/interfaces",
            json!([{"name": "default", "masquerade": {}, "macAddress": DEFAULT_MAC}]),
        )
        .set(
            "/spec/networks",
            json!([{"name": "default", "pod": {}}, {"name": "blue", "multus": {"networkName": "b"}}]),
        )
        .set("/status/interfaces", json!([]))
}

/// The same when it runs, with the interface blue in this state, and what is known of it.
fn with_blue(vmi: &Vmi, state: &str, info_source: &str) -> Vmi {
    let default = vmi.value()["spec"]["domain"]["devices"]["interfaces"][0].clone();
    let blue = json!({"name": "blue", "bridge": {}, "macAddress": BLUE_MAC, "state": state});
    vmi.clone()
        .set("/status/phase", json!("Running"))
        .set("/spec/domain/devices/interfaces", json!([default, blue]))
        .set(
            "/status/interfaces",
            json!([{"name": "blue", "infoSource": info_source}]),
        )
}

fn blue(domain: &Value) -> Option<&Value> {
    let mut interfaces = domain["Spec"]["Devices"]["Interfaces"].as_array()?.iter();
    interfaces.find(|interface| interface["Alias"]["Name"] == "blue")
}

/// MAC address and carrier of each of the guest's interfaces.
const LINKS: &str = "for i in /sys/class/net/eth*; do echo $(cat $i/address $i/carrier); done";

#[test]
fn an_interface_comes_goes_down_and_goes() {
    in_pod(async {
        let Some((mut bed, vmi)) = Bed::new(|pod| vmi(pod, "nic")).await else {
            return;
        };
        let mut guest = bed.boot(&vmi).await;
        guest
            .run_until("ip -4 addr", |text| text.contains("10.0.2.2"))
            .await;

        // Not attached to the pod, then attached but not prepared by virt-handler.
        let waits = with_blue(&vmi, "", "");
        assert!(
            bed.plan(&waits)
                .await
                .contains("not attached to the pod yet")
        );
        bed.sync_ok(&waits).await;
        let with = with_blue(&vmi, "", "multus-status");
        let planned = bed.plan(&with).await;
        assert!(
            planned.starts_with("cannot ") && planned.contains("no link pod"),
            "{planned}"
        );
        let answer = bed.sync(&with).await;
        assert!(
            !answer.success
                && answer
                    .message
                    .starts_with(r#"interface "blue": the pod has no link pod"#),
            "{}",
            answer.message
        );
        assert!(blue(&bed.0.domain().await).is_none());

        bed.prepare_blue();
        let planned = bed.plan(&with).await;
        assert!(
            planned.starts_with(&format!("attach  {BLUE_TAP}  blue ")),
            "{planned}"
        );
        bed.sync_ok(&with).await;
        let attached = bed
            .0
            .handler
            .event("with blue", |event| blue(&event.domain).is_some());
        let attached = attached.await.domain;
        let interface = blue(&attached).unwrap();
        assert_eq!(interface["MAC"]["MAC"], BLUE_MAC);
        assert_eq!(interface["Target"]["Device"], BLUE_TAP);
        assert_eq!(interface["MTU"]["Size"], "1500");
        guest
            .run_until("ip -4 addr", |text| text.contains(BLUE_ADDRESS))
            .await;
        assert_eq!(bed.plan(&with).await, "nothing to do");
        bed.sync_ok(&with).await;

        let down = with_blue(&vmi, "down", "domain, multus-status");
        bed.sync_ok(&down).await;
        let link = |domain: &Value| blue(domain).map(|it| it["LinkState"].clone());
        let is_down = json!({"State": "down"});
        bed.0
            .domain_until("link down", |domain| link(domain) == Some(is_down.clone()))
            .await;
        assert!(bed.0.live_xml(&vmi).contains("<link state='down'/>"));
        let carrier = |carrier: &str| format!("{BLUE_MAC} {carrier}");
        guest
            .run_until(LINKS, |text| text.contains(&carrier("0")))
            .await;
        let up = with_blue(&vmi, "up", "domain, multus-status");
        bed.sync_ok(&up).await;
        assert_eq!(link(&bed.0.domain().await), Some(Value::Null));
        guest
            .run_until(LINKS, |text| text.contains(&carrier("1")))
            .await;

        let gone = with_blue(&vmi, "absent", "domain, multus-status");
        assert!(bed.plan(&gone).await.starts_with("detach "));
        bed.sync_ok(&gone).await;
        bed.0
            .handler
            .event("without blue", |event| {
                !event.domain["Spec"].is_null() && blue(&event.domain).is_none()
            })
            .await;
        guest
            .run_until(LINKS, |text| !text.contains(BLUE_MAC))
            .await;
        bed.sync_ok(&gone).await;
        bed.0.log_has("DHCP servers ended").await;
        bed.remove_blue();

        // And again, on new links.
        bed.prepare_blue();
        bed.sync_ok(&with).await;
        guest
            .run_until("ip -4 addr", |text| text.contains(BLUE_ADDRESS))
            .await;
    });
}

#[tokio::test]
async fn a_guest_that_keeps_its_interface_holds_nothing_up() {
    let Some((mut bed, vmi)) = Bed::new(|pod| vmi(pod, "nicsilent")).await else {
        return;
    };
    let mut guest = bed.boot(&vmi).await;
    bed.prepare_blue();
    let with = with_blue(&vmi, "", "multus-status");
    bed.sync_ok(&with).await;
    guest.run_until(LINKS, |text| text.contains(BLUE_MAC)).await;

    // Its vCPUs stand still.
    bed.0.pause(&vmi).await;
    let gone = with_blue(&vmi, "absent", "multus-status");
    bed.sync_ok(&gone).await;
    assert!(blue(&bed.0.domain().await).is_some(), "the guest has it");
    bed.sync_ok(&gone).await;
    bed.0
        .log_has("The guest has not released the device yet")
        .await;

    // Other changes go on.
    bed.0.hotplug_image("data", 1 << 20);
    bed.sync_ok(&gone.clone().hotplugged("data", "DATA", "virtio"))
        .await;
    assert!(bed.0.domain().await.to_string().contains("DATA"));

    bed.0.unpause(&vmi).await;
    guest
        .run_until(LINKS, |text| !text.contains(BLUE_MAC))
        .await;
    bed.0
        .domain_until("without blue", |domain| blue(domain).is_none())
        .await;
}
