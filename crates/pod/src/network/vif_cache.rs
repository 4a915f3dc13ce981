//! virt-handler's note of the address that a bridged pod link had: `vif-cache-<link>.json`.
//!
//! With a bridge binding the guest gets the pod's address, so phase 1 takes the address from the
//! link and writes it down.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::network::error::{CacheError, MAX_CACHE_BYTES, MAX_ROUTES, NetworkError};
use crate::network::mac::MacAddress;
use os::file_error::FileError;

/// What virt-handler has saved of a pod link.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CachedAddress {
    /// The link had no IPv4 address: the guest gets none from us.
    pub ipam_disabled: bool,
    pub ipv4: Option<(Ipv4Addr, Option<Ipv4Addr>)>,
    pub ipv6: Option<Ipv6Addr>,
    /// The guest's MAC address: others get no answer.
    pub mac: Option<MacAddress>,
    pub gateway: Option<Ipv4Addr>,
    /// Destination, length of its prefix and gateway; the order is virt-handler's.
    pub routes: Vec<Route>,
}

/// A route of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Destination and prefix length; `None` for the default route.
    pub destination: Option<(Ipv4Addr, u8)>,
    /// 0.0.0.0 if the destination is on the link.
    pub gateway: Ipv4Addr,
}

impl CachedAddress {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or makes no sense.
    pub fn read(path: &Path) -> Result<Self, NetworkError> {
        let text = read_limited(path)?;
        text.and_then(|text| Self::parse(&text))
            .map_err(|source| NetworkError::InvalidCache {
                path: path.to_owned(),
                source,
            })
    }

    /// Reads the document.
    ///
    /// # Errors
    /// It makes no sense.
    pub fn parse(document: &[u8]) -> Result<Self, CacheError> {
        let document: Document = serde_json::from_slice(document)?;
        let routes = document.routes.unwrap_or_default();
        if routes.len() > MAX_ROUTES {
            return Err(CacheError::TooManyRoutes);
        }
        let mask = |net: &Net| {
            net.mask
                .as_deref()
                .filter(|mask| !mask.is_empty())
                .map(parse_mask)
                .transpose()
        };
        let ipv4 = match ip("IP", document.ip.ip.as_deref())? {
            Some(ip) => Some((v4("IP", ip)?, mask(&document.ip)?)),
            None => None,
        };
        let ipv6 = match ip("IPv6", document.ipv6.ip.as_deref())? {
            Some(IpAddr::V6(ip)) => Some(ip),
            Some(ip) => {
                return Err(CacheError::Value {
                    field: "IPv6",
                    value: ip.to_string(),
                });
            }
            None => None,
        };
        Ok(Self {
            ipam_disabled: document.ipam_disabled.unwrap_or_default(),
            ipv4,
            ipv6,
            mac: document
                .mac
                .as_deref()
                .filter(|mac| !mac.is_empty())
                .map(parse_mac)
                .transpose()?,
            gateway: ip("Gateway", document.gateway.as_deref())?
                .map(|ip| v4("Gateway", ip))
                .transpose()?,
            routes: routes.iter().map(parse_route).collect::<Result<_, _>>()?,
        })
    }
}

/// The file's content, or why it cannot be used.
fn read_limited(path: &Path) -> Result<Result<Vec<u8>, CacheError>, NetworkError> {
    match os::small_file::read(path, MAX_CACHE_BYTES) {
        Ok(text) => Ok(Ok(text)),
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(Err(CacheError::NotAFile)),
        Err(error) if error.kind() == ErrorKind::FileTooLarge => Ok(Err(CacheError::TooLong)),
        Err(error) => Err(FileError::on("read", path)(error).into()),
    }
}

/// The document as Go's encoding/json writes `net.IP` (text), `net.IPMask` and `net.HardwareAddr`
/// (base64).
#[derive(Deserialize)]
struct Document {
    #[serde(rename = "IP", default)]
    ip: Net,
    #[serde(rename = "IPv6", default)]
    ipv6: Net,
    #[serde(rename = "MAC")]
    mac: Option<String>,
    #[serde(rename = "Gateway")]
    gateway: Option<String>,
    #[serde(rename = "Routes")]
    routes: Option<Vec<RouteDocument>>,
    #[serde(rename = "IPAMDisabled")]
    ipam_disabled: Option<bool>,
}

#[derive(Deserialize, Default)]
struct Net {
    #[serde(rename = "IP")]
    ip: Option<String>,
    #[serde(rename = "Mask")]
    mask: Option<String>,
}

#[derive(Deserialize)]
struct RouteDocument {
    #[serde(rename = "Dst")]
    destination: Option<Net>,
    #[serde(rename = "Gw")]
    gateway: Option<String>,
}

fn ip(field: &'static str, text: Option<&str>) -> Result<Option<IpAddr>, CacheError> {
    let text = text.unwrap_or_default();
    if text.is_empty() {
        return Ok(None);
    }
    text.parse()
        .map(|ip: IpAddr| Some(ip.to_canonical()))
        .map_err(|_| CacheError::Value {
            field,
            value: text.to_owned(),
        })
}

fn v4(field: &'static str, ip: IpAddr) -> Result<Ipv4Addr, CacheError> {
    match ip {
        IpAddr::V4(ip) => Ok(ip),
        IpAddr::V6(ip) => Err(CacheError::Value {
            field,
            value: ip.to_string(),
        }),
    }
}

fn parse_mask(base64: &str) -> Result<Ipv4Addr, CacheError> {
    let octets: Option<[u8; 4]> = STANDARD
        .decode(base64)
        .ok()
        .and_then(|octets| octets.try_into().ok());
    octets.map(Ipv4Addr::from).ok_or_else(|| CacheError::Value {
        field: "Mask",
        value: base64.to_owned(),
    })
}

fn parse_mac(base64: &str) -> Result<MacAddress, CacheError> {
    let mac = STANDARD
        .decode(base64)
        .ok()
        .and_then(|octets| MacAddress::try_from(octets.as_slice()).ok());
    mac.ok_or_else(|| CacheError::Value {
        field: "MAC",
        value: base64.to_owned(),
    })
}

fn parse_route(route: &RouteDocument) -> Result<Route, CacheError> {
    let destination = match &route.destination {
        None => None,
        Some(net) => {
            let Some(destination) = ip("Dst", net.ip.as_deref())? else {
                return Err(CacheError::Value {
                    field: "Dst",
                    value: String::new(),
                });
            };
            let base64 = net.mask.as_deref().unwrap_or_default();
            let mask = parse_mask(base64)?.to_bits();
            let width = u8::try_from(mask.leading_ones()).ok();
            let width = width.filter(|_| mask.leading_ones() + mask.trailing_zeros() >= 32);
            let width = width.ok_or_else(|| CacheError::Value {
                field: "Mask",
                value: base64.to_owned(),
            })?;
            Some((v4("Dst", destination)?, width))
        }
    };
    let gateway = match ip("Gw", route.gateway.as_deref())? {
        Some(gateway) => v4("Gw", gateway)?,
        None => Ipv4Addr::UNSPECIFIED,
    };
    Ok(Route {
        destination,
        gateway,
    })
}

#[cfg(test)]
#[path = "vif_cache_tests.rs"]
mod tests;
