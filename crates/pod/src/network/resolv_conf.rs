//! Name servers and search domains of the pod: `/etc/resolv.conf`, which the kubelet writes.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use crate::network::error::NetworkError;
use os::file_error::FileError;
use os::small_file::{self, Links};

/// Longest file that is read; Kubernetes allows 2 KiB of search domains.
const MAX_BYTES: u64 = 1 << 20;
/// The DNS server of a pod that has none: 8.8.8.8.
const DEFAULT_NAMESERVER: Ipv4Addr = Ipv4Addr::new(8, 8, 8, 8);
/// The search domain of a pod that has none.
const DEFAULT_SEARCH_DOMAIN: &str = "cluster.local";
/// Part of a search domain that only services' domains have.
const SERVICE_INFIX: &str = ".svc.";

/// The pod's name servers and search domains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvConf {
    pub ipv4: Vec<Ipv4Addr>,
    pub ipv6: Vec<Ipv6Addr>,
    /// Search domains, in lower case.
    pub search_domains: Vec<String>,
}

impl ResolvConf {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path) -> Result<Self, NetworkError> {
        let failed = || FileError::on("read", path);
        let mut text = Vec::new();
        let mut options = std::fs::OpenOptions::new();
        small_file::open(path, options.read(true), Links::Follow)
            .map_err(failed())?
            .take(MAX_BYTES)
            .read_to_end(&mut text)
            .map_err(failed())?;
        Ok(Self::parse(&String::from_utf8_lossy(&text)))
    }

    /// Reads the text. Lines that make no sense are left out.
    pub fn parse(text: &str) -> Self {
        let (mut ipv4, mut ipv6, mut search_domains) = (Vec::new(), Vec::new(), Vec::new());
        for line in text.lines() {
            if line.starts_with("nameserver") {
                match nameserver(line) {
                    Some(IpAddr::V4(ip)) => ipv4.push(ip),
                    Some(IpAddr::V6(ip)) => ipv6.push(ip),
                    None => tracing::warn!(line, "resolv.conf: not a name server's address"),
                }
            } else if let Some(domains) = line.strip_prefix("search") {
                search_domains.extend(domains.split_whitespace().map(str::to_lowercase));
            }
        }
        if ipv4.is_empty() && ipv6.is_empty() {
            ipv4.push(DEFAULT_NAMESERVER);
        }
        if search_domains.is_empty() {
            search_domains.push(DEFAULT_SEARCH_DOMAIN.to_owned());
        }
        Self {
            ipv4,
            ipv6,
            search_domains,
        }
    }

    /// The search domains of a VM in `subdomain`, which may be empty. The domain of its headless
    /// service goes first, if the pod does not have it: old versions of glibc take six domains
    /// only, so Kubernetes does not write it.
    pub fn search_domains_of(&self, subdomain: &str) -> Vec<String> {
        let service = longest(
            self.search_domains
                .iter()
                .filter(|domain| domain.contains(SERVICE_INFIX)),
        );
        let missing = service.filter(|domain| !subdomain.is_empty() && !is_in(domain, subdomain));
        missing
            .map(|domain| format!("{subdomain}.{domain}"))
            .into_iter()
            .chain(self.search_domains.iter().cloned())
            .collect()
    }
}

/// The longest domain, which is the most exact one; the first of several.
pub(crate) fn longest<'a>(domains: impl Iterator<Item = &'a String>) -> Option<&'a String> {
    domains.reduce(|longest, domain| {
        if domain.len() > longest.len() {
            domain
        } else {
            longest
        }
    })
}

fn is_in(domain: &str, subdomain: &str) -> bool {
    domain
        .strip_prefix(subdomain)
        .is_some_and(|rest| rest.starts_with('.'))
}

fn nameserver(line: &str) -> Option<IpAddr> {
    let mut words = line.split_whitespace().skip(1);
    match (words.next(), words.next()) {
        (Some(address), None) => address.parse().ok().map(|ip: IpAddr| ip.to_canonical()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_usual_file() {
        let parsed = ResolvConf::parse(
            "search Default.svc.cluster.local svc.cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n",
        );
        assert_eq!(parsed.ipv4, [Ipv4Addr::new(10, 96, 0, 10)]);
        assert_eq!(
            parsed.search_domains,
            ["default.svc.cluster.local", "svc.cluster.local"]
        );
    }

    #[test]
    fn an_empty_file_has_defaults() {
        let parsed = ResolvConf::parse("");
        assert_eq!(
            (parsed.ipv4, parsed.ipv6),
            (vec![DEFAULT_NAMESERVER], vec![])
        );
        assert_eq!(parsed.search_domains, ["cluster.local"]);
    }

    #[test]
    fn an_ipv6_name_server_alone_needs_no_default() {
        let parsed = ResolvConf::parse("nameserver fd00::a\n");
        assert_eq!(
            (parsed.ipv4, parsed.ipv6),
            (vec![], vec!["fd00::a".parse().unwrap()])
        );
    }

    #[test]
    fn lines_without_sense_are_left_out() {
        let parsed = ResolvConf::parse(
            "nameserver\nnameserver 1.1.1.1 2.2.2.2\nnameserver fe80::1%eth0\n# nameserver 3.3.3.3\nnameserver x\n",
        );
        assert_eq!(
            (parsed.ipv4, parsed.ipv6),
            (vec![DEFAULT_NAMESERVER], vec![])
        );
    }

    #[test]
    fn the_subdomain_goes_first_once() {
        let parsed = ResolvConf::parse(
            "search ns.svc.cluster.local svc.cluster.local a-rather-long-domain.example.com\n",
        );
        assert_eq!(
            parsed.search_domains_of("sub")[0],
            "sub.ns.svc.cluster.local"
        );
        assert_eq!(parsed.search_domains_of("sub").len(), 4);
        assert_eq!(parsed.search_domains_of(""), parsed.search_domains);
        assert_eq!(
            parsed.search_domains_of("ns"),
            parsed.search_domains,
            "it is there already"
        );
        assert_eq!(parsed.search_domains_of("n")[0], "n.ns.svc.cluster.local");
        assert_eq!(
            ResolvConf::parse("search example.com").search_domains_of("sub"),
            ["example.com"],
            "no service domain"
        );
    }
}
