//! Phase 2 as a whole.

use std::path::PathBuf;

use crate::network::config::{PodDns, ServerConfig};
use crate::network::error::NetworkError;
use crate::network::links::PodLinks;
use crate::network::plan::{AddressSource, PlannedInterface, TapInterface, plan};
use crate::network::request::{NetworkRequest, Scope};
use crate::network::resolv_conf::ResolvConf;
use crate::network::servers::DhcpServers;
use crate::network::vif_cache::CachedAddress;

/// Files of the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkPaths {
    /// Folder that virt-handler and the launcher share: `vif-cache-*.json` of virt-handler,
    /// `dhcp_started-*` of the launcher.
    pub private: PathBuf,
    /// The pod's name servers and search domains.
    pub resolv_conf: PathBuf,
}

impl NetworkPaths {
    /// What virt-handler has saved of a bridged link.
    fn vif_cache(&self, pod_link: &str) -> PathBuf {
        self.private.join(format!("vif-cache-{pod_link}.json"))
    }

    /// The file that says that the DHCP servers of a link have been started.
    fn dhcp_marker(&self, pod_link: &str) -> PathBuf {
        self.private.join(format!("{DHCP_MARKER}{pod_link}"))
    }
}

/// Beginning of the name of the file which says that the DHCP servers of a link have been started.
const DHCP_MARKER: &str = "dhcp_started-";

/// Does phase 2 and owns the DHCP servers, which run until this is dropped.
#[derive(Debug)]
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

    /// Removes the markers of running servers. The caller knows that the servers of earlier
    /// processes have ended.
    pub fn forget_servers(&self) {
        let entries = std::fs::read_dir(&self.paths.private);
        for entry in entries.into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(DHCP_MARKER)
                && let Err(error) = std::fs::remove_file(entry.path())
            {
                tracing::warn!(marker = %entry.path().display(), reason = %error, "The marker of ended DHCP servers stays");
            }
        }
    }

    /// Finds the tap devices of a VM's interfaces, and starts the guest's DHCP servers. Servers
    /// that run stay, so it may be called again. Call it in a tokio runtime with I/O and time,
    /// which lives as long as the servers have to.
    ///
    /// # Errors
    /// The pod is not prepared for the VMI, or a server cannot be started. Servers of other
    /// interfaces may run then.
    pub async fn prepare(
        &mut self,
        request: &NetworkRequest<'_>,
        scope: Scope<'_>,
    ) -> Result<Vec<TapInterface>, NetworkError> {
        if request.tapped(scope)?.is_empty() {
            return Ok(Vec::new());
        }
        let links = PodLinks::read().await?;
        let planned = plan(request, scope, &links)?;
        if planned.iter().any(|planned| planned.dhcp.is_some()) {
            let dns = self.dns()?;
            for planned in &planned {
                if let Some(config) = self.server_config(request, planned, &links, &dns)? {
                    let marker = self.paths.dhcp_marker(&planned.pod_link);
                    self.servers.ensure(planned, &config, &links, &marker)?;
                }
            }
        }
        Ok(planned.into_iter().map(|planned| planned.tap).collect())
    }

    /// Ends the DHCP servers of interfaces that do not stay: those that the guest does not have any
    /// more.
    pub fn retain_servers(&mut self, stays: impl Fn(&str) -> bool) {
        self.servers.retain(stays);
    }

    fn server_config(
        &self,
        request: &NetworkRequest<'_>,
        planned: &PlannedInterface,
        links: &PodLinks,
        dns: &PodDns,
    ) -> Result<Option<ServerConfig>, NetworkError> {
        match planned.dhcp {
            Some(AddressSource::Cached { .. }) => {
                let path = self.paths.vif_cache(&planned.pod_link);
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
