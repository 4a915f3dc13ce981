//! The leases of an interface's DHCP servers: which IP address the guest is offered. With bridge it
//! is the pod's (`vif_cache.rs`), with masquerade 10.0.2.2 by default (`masquerade.rs`).

use crate::network::dhcp4;
use crate::network::dhcp6;
use crate::network::error::NetworkError;
use crate::network::links::PodLinks;
use crate::network::names;
use crate::network::plan::{AddressSource, PlannedInterface};
use crate::network::request::NetworkRequest;
use crate::network::resolv_conf::ResolvConf;
use crate::network::vif_cache::CachedAddress;

/// The part of the pod's name resolution that the guest gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodDns {
    /// Name servers and search domains.
    pub resolv_conf: ResolvConf,
    /// The pod's host name.
    pub host_name: String,
}

/// The servers of one interface.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerConfig {
    pub v4: Option<dhcp4::Config>,
    pub v6: Option<dhcp6::Config>,
}

impl ServerConfig {
    /// The servers of a planned interface with a bridge binding. `cached` is the address that
    /// virt-handler has saved.
    ///
    /// # Errors
    /// The pod's NIC is missing.
    pub fn bridge(
        request: &NetworkRequest<'_>,
        planned: &PlannedInterface,
        cached: &CachedAddress,
        links: &PodLinks,
        dns: &PodDns,
    ) -> Result<Option<Self>, NetworkError> {
        let Some(AddressSource::Cached { server }) = planned.dhcp else {
            return Ok(None);
        };
        if cached.ipam_disabled {
            return Ok(None);
        }
        let nic = names::bridged_nic(&planned.pod_link);
        let nic = links.find(&nic).ok_or_else(|| NetworkError::NoLink {
            interface: planned.tap.name.clone(),
            names: nic,
        })?;
        let v4 = cached.ipv4.map(|(client, mask)| dhcp4::Config {
            client_mac: cached.mac,
            mask,
            router: cached.gateway,
            routes: cached.routes.clone(),
            ..base(request, planned, dns, nic.mtu, client, server)
        });
        let v6 = cached.ipv6.map(|client| dhcp6::Config {
            client,
            nameservers: dns.resolv_conf.ipv6.clone(),
        });
        Ok(Some(Self { v4, v6 }))
    }

    /// The servers of a planned interface with a masquerade binding.
    pub fn masquerade(
        request: &NetworkRequest<'_>,
        planned: &PlannedInterface,
        dns: &PodDns,
    ) -> Option<Self> {
        let Some(AddressSource::Masquerade { ipv4, ipv6, mtu }) = planned.dhcp else {
            return None;
        };
        let v4 = ipv4.map(|net| dhcp4::Config {
            mask: Some(net.mask),
            router: Some(net.gateway),
            ..base(request, planned, dns, mtu, net.guest, net.gateway)
        });
        let v6 = ipv6.map(|client| dhcp6::Config {
            client,
            nameservers: dns.resolv_conf.ipv6.clone(),
        });
        Some(Self { v4, v6 })
    }
}

fn base(
    request: &NetworkRequest<'_>,
    planned: &PlannedInterface,
    dns: &PodDns,
    mtu: u32,
    client: std::net::Ipv4Addr,
    server: std::net::Ipv4Addr,
) -> dhcp4::Config {
    dhcp4::Config {
        interface: planned.tap.name.clone(),
        client_mac: None,
        client,
        mask: None,
        server,
        router: None,
        nameservers: dns.resolv_conf.ipv4.clone(),
        routes: Vec::new(),
        search_domains: dns
            .resolv_conf
            .search_domains_of(&request.vmi.spec.subdomain),
        mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
        host_name: dns.host_name.clone(),
        custom: request
            .interface(&planned.tap.name)
            .and_then(|interface| interface.dhcp_options.clone())
            .unwrap_or_default(),
    }
}
