//! The network of a pod's container: what a CNI plugin, the kubelet and virt-handler do for it.
//!
//! ```text
//! pod's namespace                                    the cluster's network, a namespace of the test
//! guest -- tap0 -- k6t-eth0 ----(NAT)---- eth0 ------------ port of cni0 (10.244.0.1)
//! guest -- tap0 -- k6t-eth0 ----------- eth0-nic ---------- port of cni0       192.0.2.1 on lo: a host elsewhere
//! ```
//!
//! A pod may have an IPv6 address beside the other one; then all of the left picture is there for
//! both.
//!
//! Nothing of it is in the machine's own namespace. Links go with their namespaces, and those with
//! the processes in them.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::{Container, Pod, User, Vmi, give_to_qemu, in_container, skip_container};

/// The gateway of all pods, with the length of its network's prefix.
const GATEWAY: &str = "10.244.0.1";
const PREFIX: u8 = 24;
/// A host that only the default route leads to.
pub const REMOTE_HOST: &str = "192.0.2.1";
/// The same for IPv6.
const GATEWAY_V6: &str = "fd00:10:244::1";
const PREFIX_V6: u8 = 64;
pub const REMOTE_HOST_V6: &str = "2001:db8::1";
/// Of the pod's link, as an overlay network has it.
pub const MTU: u32 = 1450;
/// virt-handler's address of the guest's gateway, and of the guest, with masquerade.
const MASQUERADE_GATEWAY: &str = "10.0.2.1";
pub const MASQUERADE_GUEST: &str = "10.0.2.2";
pub const MASQUERADE_GATEWAY_V6: &str = "fd10:0:2::1";
pub const MASQUERADE_GUEST_V6: &str = "fd10:0:2::2";
/// As the kubelet writes it.
const RESOLV_CONF: &str = "search default.svc.cluster.local svc.cluster.local cluster.local\n\
    nameserver 10.96.0.10\noptions ndots:5\n";

/// Runs a test whose pods are containers that have a network. Where that is not possible, that is
/// said.
pub fn in_container_with_network(user: User, test: impl Future<Output = ()>) {
    match missing_for_pod_networks() {
        Some(missing) => skip_container(&missing),
        None => in_container(user, test),
    }
}

/// What the machine lacks for the network of a pod.
fn missing_for_pod_networks() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can make network namespaces".to_owned());
    }
    if !Path::new("/dev/net/tun").exists() {
        return Some("there is no /dev/net/tun".to_owned());
    }
    let probe = "ip link add probe0 type bridge && ip link add probe1 type veth peer name probe2 &&
        bridge -Version && busybox true && nft add table ip nat &&
        nft add chain ip nat c '{ type nat hook postrouting priority 100; }' &&
        nft add rule ip nat c ip saddr 10.0.2.2 counter masquerade && nft add table ip6 nat &&
        nft add chain ip6 nat c '{ type nat hook postrouting priority 100; }' &&
        nft add rule ip6 nat c ip6 saddr fd10:0:2::2 counter masquerade";
    let output = program("unshare", &["--net", "sh", "-c", probe]);
    let message = String::from_utf8_lossy(&output.stderr);
    (!output.status.success()).then(|| format!("no network with NAT can be made: {message}"))
}

/// Runs a program, also one for administrators.
fn program(name: &str, arguments: &[&str]) -> Output {
    let path = format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    );
    let mut command = Command::new("env");
    command.arg(format!("PATH={path}")).arg(name);
    command.args(arguments).output().unwrap()
}

/// Runs a shell script in the network namespace of a process, which has to succeed; what it prints.
fn run_in(pid: u32, script: &str) -> String {
    let pid = pid.to_string();
    let output = program(
        "nsenter",
        &["--net", "--target", &pid, "sh", "-euc", script],
    );
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {message}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The network that pods are attached to. It ends with this.
pub struct ClusterNetwork(Child);

impl ClusterNetwork {
    pub fn new() -> Self {
        // `cat` says that the namespace is there, and ends when this process does, however that
        // ends.
        let mut child = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.as_mut().unwrap().write_all(b"ready\n").unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n");
        let network = Self(child);
        network.run(&format!(
            "ip link set lo up
            ip address add {REMOTE_HOST}/32 dev lo
            ip link add name cni0 mtu {MTU} type bridge
            ip address add {GATEWAY}/{PREFIX} dev cni0
            ip address add {REMOTE_HOST_V6}/128 dev lo
            ip address add {GATEWAY_V6}/{PREFIX_V6} dev cni0 nodad
            ip link set cni0 up"
        ));
        network
    }

    /// Runs a shell script outside of all pods; what it prints.
    pub fn run(&self, script: &str) -> String {
        run_in(self.0.id(), script)
    }

    /// Gives a pod, whose container has started, its eth0 with this address, as a CNI plugin does.
    pub fn attach(&self, pod: &Pod, address: &'static str) -> PodNetwork {
        let network = PodNetwork {
            pid: pod.first_process(),
            address,
        };
        let port = format!("veth{}", network.pid);
        self.run(&format!(
            "ip link add name {port} mtu {MTU} type veth peer name eth0 mtu {MTU} netns {}
            ip link set {port} master cni0 up",
            network.pid
        ));
        network.run(&format!(
            "ip address add {address}/{PREFIX} dev eth0
            ip link set eth0 up
            ip route add default via {GATEWAY}"
        ));
        network
    }

    /// The same with an IPv6 address beside the other one.
    pub fn attach_dual_stack(
        &self,
        pod: &Pod,
        address: &'static str,
        address_v6: &str,
    ) -> PodNetwork {
        let network = self.attach(pod, address);
        network.run(&format!(
            "ip address add {address_v6}/{PREFIX_V6} dev eth0 nodad
            ip -6 route add default via {GATEWAY_V6}"
        ));
        network
    }
}

impl Drop for ClusterNetwork {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A pod's network namespace.
pub struct PodNetwork {
    pid: u32,
    address: &'static str,
}

impl PodNetwork {
    /// Runs a shell script in the pod's network; what it prints.
    pub fn run(&self, script: &str) -> String {
        run_in(self.pid, script)
    }

    /// virt-handler's part for a masqueraded interface.
    pub fn masquerade(&self) {
        self.run(&format!(
            "ip link add name k6t-eth0 address 02:00:00:00:00:00 mtu {MTU} type bridge
            ip address add {MASQUERADE_GATEWAY}/24 dev k6t-eth0
            ip link set k6t-eth0 up
            {}
            echo 1 >/proc/sys/net/ipv4/conf/k6t-eth0/route_localnet
            echo 1 >/proc/sys/net/ipv4/ip_forward
            nft -f - <<'END'
            table ip nat {{
                chain KUBEVIRT_PREINBOUND {{
                    counter dnat to {MASQUERADE_GUEST}
                }}
                chain KUBEVIRT_POSTINBOUND {{
                    ip saddr {{ 127.0.0.1 }} counter snat to {MASQUERADE_GATEWAY}
                }}
                chain prerouting {{
                    type nat hook prerouting priority -100;
                    iifname eth0 counter jump KUBEVIRT_PREINBOUND
                }}
                chain input {{
                    type nat hook input priority 100;
                }}
                chain output {{
                    type nat hook output priority -100;
                    ip daddr {{ 127.0.0.1 }} counter dnat to {MASQUERADE_GUEST}
                }}
                chain postrouting {{
                    type nat hook postrouting priority 100;
                    ip saddr {MASQUERADE_GUEST} counter masquerade
                    oifname k6t-eth0 counter jump KUBEVIRT_POSTINBOUND
                }}
            }}
END",
            self.tap()
        ));
    }

    /// What comes to [`Self::masquerade`] for a pod that has an IPv6 address too.
    pub fn masquerade_v6(&self) {
        self.run(&format!(
            "ip address add {MASQUERADE_GATEWAY_V6}/120 dev k6t-eth0 nodad
            echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
            nft -f - <<'END'
            table ip6 nat {{
                chain KUBEVIRT_PREINBOUND {{
                    counter dnat to {MASQUERADE_GUEST_V6}
                }}
                chain prerouting {{
                    type nat hook prerouting priority -100;
                    iifname eth0 counter jump KUBEVIRT_PREINBOUND
                }}
                chain postrouting {{
                    type nat hook postrouting priority 100;
                    ip6 saddr {MASQUERADE_GUEST_V6} counter masquerade
                }}
            }}
END"
        ));
    }

    /// virt-handler's part for a bridged interface, the first of the VMI: the guest gets the pod's
    /// address and MAC address.
    pub fn bridge(&self, pod: &Pod) {
        let mac = self.run("cat /sys/class/net/eth0/address");
        self.save_address(pod, &mac);
        self.run(&format!(
            "ip link add name k6t-eth0 type bridge
            ip address add 169.254.75.10/32 dev k6t-eth0
            ip link set k6t-eth0 up
            ip link set eth0 down
            ip link set eth0 name eth0-nic
            ip link set eth0-nic address $(ip -o link show k6t-eth0 | sed 's|.*link/ether \\([^ ]*\\).*|\\1|')
            ip link set eth0-nic master k6t-eth0
            ip address flush dev eth0-nic
            ip link set eth0-nic up
            bridge link set dev eth0-nic learning off
            {}
            # Any other link that is down holds an address too: not every kernel has dummies.
            ip link add name eth0 type dummy || ip link add name eth0 type veth peer name eth0-peer
            ip link set eth0 address {mac} mtu {MTU}
            ip address add {}/{PREFIX} dev eth0
            echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore",
            self.tap(),
            self.address
        ));
    }

    /// The commands that make the guest's tap device, for the pod's user.
    fn tap(&self) -> String {
        let owner = match Container::user_of_this_test() {
            Some(User::Root) => 0,
            Some(User::Qemu) | None => 107,
        };
        format!(
            "ip tuntap add mode tap user {owner} group {owner} name tap0
            ip link set tap0 mtu {MTU} master k6t-eth0 up"
        )
    }

    /// What the launcher's DHCP server reads of a link whose address goes to the guest.
    fn save_address(&self, pod: &Pod, mac: &str) {
        let octets: Vec<u8> = mac
            .split(':')
            .map(|octet| u8::from_str_radix(octet, 16).unwrap())
            .collect();
        let cache = json!({
            "Name": "", "IP": {"IP": self.address, "Mask": "////AA==", "Label": "", "Flags": 0, "Peer": null},
            "IPv6": {"Label": "", "Flags": 0, "Peer": null}, "MAC": STANDARD.encode(octets),
            "AdvertisingIPAddr": "", "AdvertisingIPv6Addr": "",
            "Routes": [{"LinkIndex": 0, "Dst": null, "Src": null, "Gw": GATEWAY}],
            "Mtu": 0, "IPAMDisabled": false, "Gateway": GATEWAY, "Subdomain": "",
        });
        let path = pod.path("/var/run/kubevirt-private/vif-cache-eth0.json");
        std::fs::write(&path, cache.to_string()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o604)).unwrap();
        give_to_qemu(&path);
    }
}

/// Writes how the pod resolves names, before its container starts, as the kubelet does.
pub fn write_name_resolution(pod: &Pod, vmi: &Vmi, address: &str) {
    std::fs::write(pod.path("/etc/resolv.conf"), RESOLV_CONF).unwrap();
    let hosts = format!("127.0.0.1\tlocalhost\n{address}\t{}\n", vmi.name());
    std::fs::write(pod.path("/etc/hosts"), hosts).unwrap();
}
