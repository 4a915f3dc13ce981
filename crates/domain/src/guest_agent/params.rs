//! What `virDomainGetGuestInfo` returns: a flat list of named values, such as `if.0.addr.1.type`
//! (<https://libvirt.org/html/libvirt-libvirt-domain.html#virDomainGetGuestInfo>).

use std::collections::HashMap;

use super::limits::{MAX_ADDRESSES, MAX_INTERFACES, MAX_USERS, text};
use super::{Load, Timezone, User};
use crate::object::{GuestOsInfo, InterfaceStatus};

/// Nobody expects the loopback interface in a VMI's status.
const LOOPBACK: &str = "lo";

#[derive(Debug, Clone, PartialEq)]
pub enum TypedValue {
    Text(String),
    /// A number with a sign.
    Signed(i64),
    /// One without.
    Unsigned(u64),
    /// One with a fraction.
    Double(f64),
}

/// A type that a value can have. libvirt never changes the type of a name, so that any other one
/// counts as missing.
pub(crate) trait FromValue: Sized {
    fn from_value(value: &TypedValue) -> Option<Self>;
}

macro_rules! from_value {
    ($($type:ty: $variant:ident),* $(,)?) => {$(
        impl FromValue for $type {
            fn from_value(value: &TypedValue) -> Option<Self> {
                let TypedValue::$variant(value) = value else { return None };
                value.clone().try_into().ok()
            }
        }
    )*};
}
from_value!(i32: Signed, i64: Signed, u32: Unsigned, u64: Unsigned, f64: Double, String: Text);

/// The parameters of one call.
#[derive(Debug, Clone, Default)]
pub struct GuestInfoParams(HashMap<String, TypedValue>);

impl FromIterator<(String, TypedValue)> for GuestInfoParams {
    /// As in libvirt, the first of several values of one name counts.
    fn from_iter<I: IntoIterator<Item = (String, TypedValue)>>(params: I) -> Self {
        let mut all = HashMap::new();
        for (name, value) in params {
            all.entry(name).or_insert(value);
        }
        Self(all)
    }
}

impl GuestInfoParams {
    /// The guest's operating system; empty where the agent says nothing.
    #[must_use]
    pub fn os(&self) -> GuestOsInfo {
        GuestOsInfo {
            name: self.text("os.name"),
            kernel_release: self.text("os.kernel-release"),
            version: self.text("os.version"),
            pretty_name: self.text("os.pretty-name"),
            version_id: self.text("os.version-id"),
            kernel_version: self.text("os.kernel-version"),
            machine: self.text("os.machine"),
            id: self.text("os.id"),
        }
    }

    /// The guest's interfaces, but for the loopback one. virt-handler merges them with the domain's
    /// (`infoSource`).
    #[must_use]
    pub fn interfaces(&self) -> Vec<InterfaceStatus> {
        (0..self.count("if.count"))
            .map(|index| (index, self.text(&format!("if.{index}.name"))))
            .filter(|(_, name)| name != LOOPBACK)
            .take(MAX_INTERFACES)
            .map(|(index, interface_name)| {
                let (ip, ips) = self.addresses(index);
                InterfaceStatus {
                    mac: self.text(&format!("if.{index}.hwaddr")),
                    ip,
                    ips,
                    interface_name,
                }
            })
            .collect()
    }

    /// The first IPv4 address of an interface, else its first address; and all of them.
    fn addresses(&self, interface: usize) -> (String, Vec<String>) {
        let addresses = format!("if.{interface}.addr");
        let mut first_v4 = None;
        let mut all = Vec::new();
        for index in 0..self.count(&format!("{addresses}.count")).min(MAX_ADDRESSES) {
            let address = self.text(&format!("{addresses}.{index}.addr"));
            // An empty one does not hide a later one.
            let is_v4 = self.text(&format!("{addresses}.{index}.type")) == "ipv4";
            if is_v4 && !address.is_empty() && first_v4.is_none() {
                first_v4 = Some(address.clone());
            }
            all.push(address);
        }
        let first = first_v4.or_else(|| all.first().cloned());
        (first.unwrap_or_default(), all)
    }

    /// The users who are logged in.
    #[must_use]
    pub fn users(&self) -> Vec<User> {
        (0..self.count("user.count").min(MAX_USERS))
            .map(|index| User {
                name: self.text(&format!("user.{index}.name")),
                domain: self.text(&format!("user.{index}.domain")),
                login_time: seconds(
                    self.get(&format!("user.{index}.login-time"))
                        .unwrap_or_default(),
                ),
            })
            .collect()
    }

    /// The guest's host name.
    #[must_use]
    pub fn hostname(&self) -> String {
        self.text("hostname")
    }

    /// The guest's time zone, if the agent says it.
    #[must_use]
    pub fn timezone(&self) -> Option<Timezone> {
        let known = self.0.contains_key("timezone.name") || self.0.contains_key("timezone.offset");
        known.then(|| Timezone {
            name: self.text("timezone.name"),
            offset: self.get("timezone.offset").unwrap_or_default(),
        })
    }

    /// The guest's load average.
    #[must_use]
    pub fn load(&self) -> Load {
        Load {
            one: self.get("load.1m"),
            five: self.get("load.5m"),
            fifteen: self.get("load.15m"),
        }
    }

    fn get<T: FromValue>(&self, name: &str) -> Option<T> {
        self.0.get(name).and_then(T::from_value)
    }

    fn text(&self, name: &str) -> String {
        self.get(name).map(text).unwrap_or_default()
    }

    /// The length of a list. Each element has a parameter of its own, so no list is longer than all
    /// parameters.
    fn count(&self, name: &str) -> usize {
        let count = usize::try_from(self.get(name).unwrap_or(0_u64)).unwrap_or(usize::MAX);
        count.min(self.0.len())
    }
}

/// Seconds of milliseconds.
#[allow(
    clippy::cast_precision_loss,
    reason = "a double has a millisecond's precision for 285,000 years"
)]
fn seconds(milliseconds: u64) -> f64 {
    // In two parts, as Go does: the sum is then the same double as in KubeVirt's answers.
    (milliseconds / 1000) as f64 + (milliseconds % 1000) as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(all: &[(&str, TypedValue)]) -> GuestInfoParams {
        all.iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect()
    }

    fn text(value: &str) -> TypedValue {
        TypedValue::Text(value.into())
    }

    #[test]
    fn an_interface_shows_its_first_ipv4_address() {
        let params = params(&[
            ("if.count", TypedValue::Unsigned(2)),
            ("if.0.name", text("lo")),
            ("if.1.name", text("eth0")),
            ("if.1.hwaddr", text("02:00:00:00:00:01")),
            ("if.1.addr.count", TypedValue::Unsigned(2)),
            ("if.1.addr.0.type", text("ipv6")),
            ("if.1.addr.0.addr", text("fe80::1")),
            ("if.1.addr.1.type", text("ipv4")),
            ("if.1.addr.1.addr", text("10.0.2.2")),
        ]);
        let expected = InterfaceStatus {
            mac: "02:00:00:00:00:01".into(),
            ip: "10.0.2.2".into(),
            ips: vec!["fe80::1".into(), "10.0.2.2".into()],
            interface_name: "eth0".into(),
        };
        assert_eq!(params.interfaces(), [expected]);
    }

    #[test]
    fn a_count_that_lies_makes_no_long_list() {
        let params = params(&[
            ("if.count", TypedValue::Unsigned(u64::MAX)),
            ("user.count", TypedValue::Unsigned(u64::MAX)),
        ]);
        assert_eq!((params.interfaces().len(), params.users().len()), (2, 2));
    }

    #[test]
    fn an_agent_that_reports_interfaces_without_end_is_cut_short() {
        let count = 3 * MAX_INTERFACES;
        let mut params = params(&[
            ("if.count", TypedValue::Unsigned(count as u64)),
            ("if.0.addr.count", TypedValue::Unsigned(count as u64)),
        ]);
        let more = GuestInfoParams::from_iter((0..count).flat_map(|index| {
            [
                (format!("if.{index}.name"), text("veth")),
                (format!("if.0.addr.{index}.addr"), text("10.0.2.2")),
            ]
        }));
        params.0.extend(more.0);
        let interfaces = params.interfaces();
        assert_eq!(interfaces.len(), MAX_INTERFACES);
        assert_eq!(interfaces[0].ips.len(), MAX_ADDRESSES);
    }

    #[test]
    fn a_login_is_in_seconds() {
        let params = params(&[
            ("user.count", TypedValue::Unsigned(1)),
            ("user.0.name", text("root")),
            ("user.0.login-time", TypedValue::Unsigned(1_700_000_000_123)),
        ]);
        let times: Vec<f64> = params.users().iter().map(|user| user.login_time).collect();
        assert_eq!(times, [1_700_000_000.123]);
    }

    #[test]
    fn a_time_zone_that_is_not_known_is_none() {
        assert_eq!(GuestInfoParams::default().timezone(), None);
        let params = params(&[("timezone.offset", TypedValue::Signed(-3600))]);
        let timezone = params.timezone().unwrap_or_default();
        assert_eq!((timezone.name.as_str(), timezone.offset), ("", -3600));
    }
}
