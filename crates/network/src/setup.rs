//! Phase 2 as a whole.

use std::path::PathBuf;

use crate::config::{PodDns, ServerConfig};
use crate::error::NetworkError;
use crate::links::PodLinks;
use crate::plan::{AddressSource, PlannedInterface, TapInterface, plan};
use crate::request::{NetworkRequest, Scope};
use crate::resolv_conf::ResolvConf;
use crate::servers::DhcpServers;
use crate::vif_cache::CachedAddress;

/// Files of the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkPaths {
    /// Folder that virt-handler and the launcher share: `vif-cache-*.json` of virt-handler, `dhcp_started-*` of the launcher.
    pub private: PathBuf,
    /// The pod's name servers and search domains.
    pub resolv_conf: PathBuf,
}

impl Default for NetworkPaths {
    /// Where they are in KubeVirt's pods.
    fn default() -> Self {
        Self {
            private: PathBuf::from("/var/run/kubevirt-private"),
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
        }
    }
}

/// Does phase 2, and owns the DHCP servers: they run until it is dropped.
#[derive(Debug, Default)]
pub struct NetworkSetup {
    paths: NetworkPaths,
    servers: DhcpServers,
}

impl NetworkSetup {
    /// Nothing is set up yet.
    pub fn new(paths: NetworkPaths) -> Self {
        Self {
            paths,
            servers: DhcpServers::default(),
        }
    }

    /// Finds the tap devices of a VM's interfaces, and starts the guest's DHCP servers. Servers that run stay, so it may be called
    /// again. Call it in a tokio runtime with I/O and time, which lives as long as the servers have to.
    ///
    /// # Errors
    /// The pod is not prepared for the VMI, or a server cannot be started. Servers of other interfaces may run then.
    pub async fn prepare(
        &mut self,
        request: &NetworkRequest,
        scope: Scope<'_>,
    ) -> Result<Vec<TapInterface>, NetworkError> {
        let links = PodLinks::read().await?;
        let planned = plan(request, scope, &links)?;
        if planned.iter().any(|planned| planned.dhcp.is_some()) {
            let dns = self.dns()?;
            for planned in &planned {
                if let Some(config) = self.server_config(request, planned, &links, &dns)? {
                    self.servers.ensure(
                        &planned.tap.name,
                        &planned.pod_link,
                        &config,
                        &links,
                        &self.paths.private,
                    )?;
                }
            }
        }
        Ok(planned.into_iter().map(|planned| planned.tap).collect())
    }

    /// The DHCP servers.
    pub fn servers(&self) -> &DhcpServers {
        &self.servers
    }

    fn server_config(
        &self,
        request: &NetworkRequest,
        planned: &PlannedInterface,
        links: &PodLinks,
        dns: &PodDns,
    ) -> Result<Option<ServerConfig>, NetworkError> {
        match planned.dhcp {
            Some(AddressSource::Cached { .. }) => {
                let path = self
                    .paths
                    .private
                    .join(format!("vif-cache-{}.json", planned.pod_link));
                ServerConfig::bridge(request, planned, &CachedAddress::read(&path)?, links, dns)
            }
            Some(AddressSource::Masquerade { .. }) => {
                Ok(ServerConfig::masquerade(request, planned, dns))
            }
            None => Ok(None),
        }
    }

    fn dns(&self) -> Result<PodDns, NetworkError> {
        let host_name = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        Ok(PodDns {
            resolv_conf: ResolvConf::read(&self.paths.resolv_conf)?,
            host_name,
        })
    }
}
