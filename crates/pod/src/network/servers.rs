//! The DHCP servers that run, one or two on each guest's bridge.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use tokio::task::JoinSet;

use crate::network::config::ServerConfig;
use crate::network::dhcp4;
use crate::network::dhcp6;
use crate::network::error::NetworkError;
use crate::network::links::{Link, PodLinks};
use crate::network::mac::MacAddress;
use crate::network::names;
use crate::network::plan::PlannedInterface;
use crate::network::serve::serve;
use crate::network::udp::BridgeSocket;
use os::file_error::FileError;

/// DHCP servers. They run as tasks of the runtime that started them until this is dropped.
#[derive(Debug, Default)]
pub struct DhcpServers {
    /// By the pod's link.
    running: HashMap<String, Running>,
}

/// The servers on one bridge.
#[derive(Debug)]
struct Running {
    /// The kernel's index of the bridge. Another bridge of the same name has another index.
    bridge: u32,
    interface: String,
    /// The file that tells other processes that the servers have been started.
    marker: PathBuf,
    /// The servers end when this is dropped.
    _tasks: JoinSet<()>,
}

impl DhcpServers {
    /// Starts the servers of an interface, unless they run already. The file `marker`
    /// (`dhcp_started-eth0`) says that servers have been started: if it is there and this process
    /// has none, another process serves the guest, and nothing is started. With nothing to serve
    /// there is no marker.
    ///
    /// # Errors
    /// The bridge is missing, a socket cannot be bound, an option cannot be sent, or the marker
    /// cannot be made. Then none runs.
    // D-net-10 (docs/differences.md).
    pub fn ensure(
        &mut self,
        planned: &PlannedInterface,
        config: &ServerConfig,
        links: &PodLinks,
        marker: &Path,
    ) -> Result<(), NetworkError> {
        if config.v4.is_none() && config.v6.is_none() {
            return Ok(());
        }
        let (interface, pod_link) = (&planned.tap.name, planned.pod_link.as_str());
        let name = names::bridge(pod_link);
        let bridge = links.find(&name).ok_or_else(|| NetworkError::NoLink {
            interface: interface.clone(),
            names: name,
        })?;
        match self.running.get(pod_link) {
            Some(running) if running.bridge == bridge.index => return Ok(()),
            // It was unplugged and plugged again: the old bridge is gone, and its servers hear
            // nothing any more. If the next ones do not start, they are tried again.
            Some(_) => self.end(pod_link),
            None if marker.exists() => {
                tracing::info!(marker = %marker.display(), "The DHCP server of this link has been started by another process");
                return Ok(());
            }
            None => (),
        }
        let tasks = start(interface, bridge, config)?;
        create_marker(marker)?;
        self.running.insert(
            pod_link.to_owned(),
            Running {
                bridge: bridge.index,
                interface: interface.clone(),
                marker: marker.to_owned(),
                _tasks: tasks,
            },
        );
        Ok(())
    }

    /// Ends the servers of interfaces that do not stay, and removes their markers, so that servers
    /// start anew when such an interface is plugged in again.
    pub fn retain(&mut self, stays: impl Fn(&str) -> bool) {
        let gone = self.running.iter().filter(|(_, it)| !stays(&it.interface));
        let gone: Vec<String> = gone.map(|(pod_link, _)| pod_link.clone()).collect();
        for pod_link in gone {
            self.end(&pod_link);
        }
    }

    fn end(&mut self, pod_link: &str) {
        let Some(running) = self.running.remove(pod_link) else {
            return;
        };
        let interface = running.interface;
        tracing::info!(
            interface,
            pod_link,
            "DHCP servers ended: the bridge is gone"
        );
        if let Err(error) = std::fs::remove_file(&running.marker) {
            let marker = running.marker.display();
            tracing::warn!(%marker, reason = %error, "The marker of the DHCP servers stays");
        }
    }
}

fn start(
    interface: &str,
    bridge: &Link,
    config: &ServerConfig,
) -> Result<JoinSet<()>, NetworkError> {
    let name = &bridge.name;
    let mut tasks = JoinSet::new();
    if let Some(config) = &config.v4 {
        let server = dhcp4::Server::new(config)?;
        let socket = BridgeSocket::v4(name, bridge.index, dhcp4::SERVER_PORT)?;
        tasks.spawn(serve(name.clone(), socket, move |packet, from| {
            server.answer(packet, from)
        }));
        tracing::info!(bridge = name, address = %config.client, mtu = config.mtu, "DHCP server started");
    }
    if let Some(config) = &config.v6 {
        let mac = MacAddress::try_from(bridge.hardware_address.as_slice()).map_err(|_| {
            NetworkError::NoMac {
                interface: interface.to_owned(),
                link: name.clone(),
            }
        })?;
        let server = dhcp6::Server::new(config.clone(), mac);
        let socket = BridgeSocket::v6(name, bridge.index, dhcp6::SERVER_PORT, dhcp6::SERVERS)?;
        tasks.spawn(serve(name.clone(), socket, move |packet, from| {
            server.answer(packet, from)
        }));
        tracing::info!(bridge = name, address = %config.client, "DHCPv6 server started");
    }
    Ok(tasks)
}

fn create_marker(path: &Path) -> Result<(), NetworkError> {
    let created = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path);
    created.map_err(FileError::on("create", path))?;
    Ok(())
}
