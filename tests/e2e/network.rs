//! Guests on the network: in pods with a network namespace, a container's rights, and links as
//! virt-handler makes them.

use serde_json::json;

use crate::harness::{
    ClusterNetwork, Guest, MASQUERADE_GATEWAY_V6, MASQUERADE_GUEST, MASQUERADE_GUEST_V6, MTU, Pod,
    PodNetwork, REMOTE_HOST, REMOTE_HOST_V6, User, Vmi, in_container_with_network,
    write_name_resolution,
};

/// Addresses of the pods.
const MASQUERADED: &str = "10.244.0.5";
const BRIDGED: &str = "10.244.0.6";
const MASQUERADED_V6: &str = "fd00:10:244::5";

/// Asks for all options, and prints what the DHCP client has got.
const DHCP_ANSWER: &str = r"printf '#!/bin/sh\n[ $1 = bound ] && env >/run/answer\nexit 0\n' >/run/show
    chmod 755 /run/show
    udhcpc -i eth0 -n -q -f -t 5 -T 1 -O search -O ntpsrv -O mtu -O 240 -s /run/show >/dev/null 2>&1
    cat /run/answer";

/// Asks for an IPv6 address, uses it, and prints what the DHCPv6 client has got. The route to the
/// gateway is the guest's own affair: nothing advertises routers in a masqueraded network
/// (KubeVirt's user guide has it in the cloud-init network data).
const DHCPV6_ANSWER: &str = r"printf '#!/bin/sh\n[ $reason = BOUND6 ] && env >/run/answer6\nexit 0\n' >/run/show6
    chmod 755 /run/show6
    : >/run/leases6
    dhclient -6 -1 -v -sf /run/show6 -lf /run/leases6 -pf /run/pid6 eth0 >/run/dhclient.log 2>&1
    cat /run/answer6 /run/dhclient.log";

/// Answers on TCP port 8080, and keeps what it hears.
const SERVICE: &str = "{ (while :; do echo served | nc -l -p 8080 >>/run/heard; done) & }";

/// A VMI on the pod's network.
fn vmi(pod: &Pod, name: &str, binding: &str) -> Vmi {
    Vmi::new(name)
        .with_image(pod)
        .set("/spec/subdomain", json!("sub"))
        .set("/spec/domain/devices/autoattachPodInterface", json!(true))
        .set(
            "/spec/domain/devices/interfaces",
            json!([{"name": "default", "model": "virtio", binding: {}, "dhcpOptions": {
                "ntpServers": ["192.0.2.123"], "privateOptions": [{"option": 240, "value": "site-7"}],
            }}]),
        )
        .set("/spec/networks", json!([{"name": "default", "pod": {}}]))
        .set(
            "/status/interfaces",
            json!([{"name": "default", "podInterfaceName": "eth0", "infoSource": "", "queueCount": 0}]),
        )
}

/// A pod on the network with a launcher that is ready, before virt-handler's part.
async fn pod(cluster: &ClusterNetwork, binding: &str, address: &'static str) -> Networked {
    pod_with(cluster, binding, address, &[]).await
}

/// The same with `more` arguments.
async fn pod_with(
    cluster: &ClusterNetwork,
    binding: &str,
    address: &'static str,
    more: &[&str],
) -> Networked {
    let mut pod = Pod::new();
    let vmi = vmi(&pod, binding, binding);
    write_name_resolution(&pod, &vmi, address);
    pod.handler.serve();
    pod.launch(&vmi, more);
    let network = cluster.attach(&pod, address);
    pod.wait_until_ready().await;
    Networked { pod, vmi, network }
}

struct Networked {
    pod: Pod,
    vmi: Vmi,
    network: PodNetwork,
}

impl Networked {
    async fn boot(&mut self) -> Guest {
        self.pod.boot(&self.vmi).await
    }

    /// The running domain has the tap device and the pod link's MTU.
    async fn has_tap(&self, mac: Option<&str>) {
        let domain = self.pod.domain().await;
        let interface = &domain["Spec"]["Devices"]["Interfaces"][0];
        assert_eq!(interface["Target"]["Device"], "tap0", "{interface}");
        assert_eq!(interface["MTU"]["Size"], MTU.to_string(), "{interface}");
        if let Some(mac) = mac {
            assert_eq!(interface["MAC"]["MAC"], mac, "{interface}");
        }
    }
}

/// The guest's own DHCP client has set this address and this default route.
async fn has_address(guest: &mut Guest, address: &str, gateway: &str) {
    let address = format!("inet {address}/24 ");
    guest
        .run_until("ip -4 addr show eth0", |text| text.contains(&address))
        .await;
    let route = guest.run("ip -4 route").await;
    let default = format!("default via {gateway} dev eth0");
    assert!(route.contains(&default), "{route}");
    let servers = guest.run("cat /etc/resolv.conf").await;
    assert_eq!(servers, "nameserver 10.96.0.10");
    let mtu = guest.run("cat /sys/class/net/eth0/mtu").await;
    assert_eq!(mtu, MTU.to_string());
}

/// Each line is in what DHCP has answered.
async fn dhcp_answers(guest: &mut Guest, lines: &[&str]) {
    let answer = guest.run(&DHCP_ANSWER.replace('\n', ";")).await;
    for line in lines {
        assert!(
            answer.lines().any(|other| other.trim() == *line),
            "{line} is not in:\n{answer}"
        );
    }
}

async fn pings(guest: &mut Guest, address: &str) {
    let ping = format!("ping -c 1 -W 5 {address}");
    guest
        .run_until(&ping, |text| text.contains(" 0% packet loss"))
        .await;
}

#[test]
fn guests_reach_the_network_and_each_other() {
    in_container_with_network(User::Qemu, async {
        let cluster = ClusterNetwork::new();
        let mut masqueraded = pod(&cluster, "masquerade", MASQUERADED).await;
        let mut bridged = pod(&cluster, "bridge", BRIDGED).await;
        let mac = bridged.network.run("cat /sys/class/net/eth0/address");
        masqueraded.network.masquerade();
        bridged.network.bridge(&bridged.pod);
        let (mut inner, mut outer) = tokio::join!(masqueraded.boot(), bridged.boot());

        masqueraded.has_tap(None).await;
        has_address(&mut inner, MASQUERADE_GUEST, "10.0.2.1").await;
        let search = "search=sub.default.svc.cluster.local default.svc.cluster.local \
                svc.cluster.local cluster.local";
        dhcp_answers(
            &mut inner,
            &[
                "hostname=masquerade",
                "domain=sub.default.svc.cluster.local",
                search,
                "dns=10.96.0.10",
                "mtu=1450",
                "ntpsrv=192.0.2.123",
                "opt240=736974652d37",
                "serverid=10.0.2.1",
            ],
        )
        .await;
        pings(&mut inner, REMOTE_HOST).await;

        bridged.has_tap(Some(&mac)).await;
        has_address(&mut outer, BRIDGED, "10.244.0.1").await;
        dhcp_answers(
            &mut outer,
            &[
                "hostname=bridge",
                "serverid=169.254.75.10",
                "ntpsrv=192.0.2.123",
            ],
        )
        .await;
        pings(&mut outer, REMOTE_HOST).await;
        cluster.run(&format!("busybox ping -c 1 -W 5 {BRIDGED}"));

        // From guest to guest, through the pod's address, and as a probe or a port-forward does.
        inner.run(SERVICE).await;
        let ask = format!("echo from a guest | nc -w 5 {MASQUERADED} 8080");
        outer.run_until(&ask, |text| text == "served").await;
        // The service takes one connection after the other, and is not back at once.
        let local = "for _ in $(seq 100); do
                echo from the pod | busybox nc -w 5 127.0.0.1 8080 2>/dev/null && exit
                sleep 0.2
            done
            exit 1";
        assert_eq!(masqueraded.network.run(local), "served");
        // It answers before it has written what it heard.
        let both = |heard: &str| heard.contains("from a guest") && heard.contains("from the pod");
        inner.run_until("cat /run/heard", both).await;
    });
}

/// The DHCP server is the launcher's.
#[test]
// D-sup-16 (docs/differences.md).
fn a_guest_gets_its_lease_from_the_next_launcher() {
    in_container_with_network(User::Qemu, async {
        let cluster = ClusterNetwork::new();
        let more = ["--restart-launcher"];
        let mut networked = pod_with(&cluster, "masquerade", MASQUERADED, &more).await;
        networked.network.masquerade();
        let mut guest = networked.boot().await;
        has_address(&mut guest, MASQUERADE_GUEST, "10.0.2.1").await;
        networked.pod.exec(&["pkill", "-9", "-x", "virt-launcher"]);
        networked.pod.log_count("Marked as ready", 2).await;
        networked.pod.wait_until_ready().await;
        // An interface that is about to be plugged in has no link yet.
        let mut vmi = networked.vmi.clone().set("/status/phase", json!("Running"));
        let interface = json!({"name": "blue", "bridge": {}});
        let network = json!({"name": "blue", "multus": {"networkName": "blue"}});
        vmi.push("/spec/domain/devices/interfaces", interface);
        vmi.push("/spec/networks", network);
        networked.pod.sync(&vmi).await;
        dhcp_answers(&mut guest, &["serverid=10.0.2.1"]).await;
    });
}

#[test]
fn a_guest_of_a_dual_stack_pod_gets_its_address_by_dhcpv6() {
    in_container_with_network(User::Qemu, async {
        let cluster = ClusterNetwork::new();
        let mut pod = Pod::new();
        let vmi = vmi(&pod, "dual", "masquerade");
        let resolv_conf =
            "search default.svc.cluster.local\nnameserver 10.96.0.10\nnameserver fd00:10:96::a\n";
        write_name_resolution(&pod, &vmi, MASQUERADED);
        std::fs::write(pod.path("/etc/resolv.conf"), resolv_conf).unwrap();
        pod.handler.serve();
        pod.launch(&vmi, &[]);
        let network = cluster.attach_dual_stack(&pod, MASQUERADED, MASQUERADED_V6);
        pod.wait_until_ready().await;
        network.masquerade();
        network.masquerade_v6();
        let mut pod = Networked { pod, vmi, network };
        let mut guest = pod.boot().await;
        pod.has_tap(None).await;
        has_address(&mut guest, MASQUERADE_GUEST, "10.0.2.1").await;
        pings(&mut guest, REMOTE_HOST).await;

        // The client sends from the link's own address, which is first checked for duplicates.
        guest
            .run_until("ip -6 addr show dev eth0 scope link", |text| {
                text.contains("inet6 fe80:") && !text.contains("tentative")
            })
            .await;
        let wanted = [
            &format!("new_ip6_address={MASQUERADE_GUEST_V6}"),
            "new_dhcp6_name_servers=fd00:10:96::a",
            "new_max_life=86313600",
        ];
        // A client on a busy machine may give up before the answer comes, and is then asked again.
        guest
            .run_until(&DHCPV6_ANSWER.replace('\n', ";"), |answer| {
                wanted
                    .iter()
                    .all(|line| answer.lines().any(|other| other.trim() == *line))
            })
            .await;
        let address = format!(
            "ip -6 addr add {MASQUERADE_GUEST_V6}/120 dev eth0; ip -6 route add default via {MASQUERADE_GATEWAY_V6}"
        );
        guest.run(&address).await;
        pings(&mut guest, REMOTE_HOST_V6).await;
        cluster.run(&format!("busybox ping -6 -c 1 -W 5 {MASQUERADED_V6}"));
    });
}

#[test]
fn a_guest_reaches_the_network_in_a_pod_of_roots() {
    in_container_with_network(User::Root, async {
        let cluster = ClusterNetwork::new();
        let mut pod = pod(&cluster, "masquerade", MASQUERADED).await;
        pod.network.masquerade();
        let mut guest = pod.boot().await;
        pod.has_tap(None).await;
        has_address(&mut guest, MASQUERADE_GUEST, "10.0.2.1").await;
        pings(&mut guest, REMOTE_HOST).await;
    });
}
