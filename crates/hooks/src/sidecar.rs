//! A sidecar's name, protocol version and hook points, and the order in which sidecars are called.

use std::cmp::Ordering;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// When a sidecar is called. `kubevirt.hooks.info` has the same names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum HookPoint {
    /// Changes the domain before it is defined.
    OnDefineDomain,
    /// Changes the cloud-init data before the ISO image is made.
    PreCloudInitIso,
    /// Tells the sidecar that the virtual machine is gone, so that it can exit.
    Shutdown,
}

impl HookPoint {
    /// Parses the protocol's name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::OnDefineDomain, Self::PreCloudInitIso, Self::Shutdown]
            .into_iter()
            .find(|point| point.name() == name)
    }

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OnDefineDomain => "OnDefineDomain",
            Self::PreCloudInitIso => "PreCloudInitIso",
            Self::Shutdown => "Shutdown",
        }
    }

    /// The first protocol version with this hook point.
    #[must_use]
    pub const fn since(self) -> Version {
        match self {
            Self::OnDefineDomain => Version::V1alpha1,
            Self::PreCloudInitIso => Version::V1alpha2,
            Self::Shutdown => Version::V1alpha3,
        }
    }
}

impl fmt::Display for HookPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The versions of the protocol `kubevirt.hooks.*`, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// Has `OnDefineDomain`.
    V1alpha1,
    /// Adds `PreCloudInitIso`.
    V1alpha2,
    /// Adds `Shutdown`.
    V1alpha3,
}

impl Version {
    /// All versions, newest first, for error texts.
    pub const ALL: [Self; 3] = [Self::V1alpha3, Self::V1alpha2, Self::V1alpha1];

    /// Parses the protocol's name; `None` if this launcher does not support the version.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.name() == name)
    }

    /// The newest version that this launcher and the sidecar support.
    #[must_use]
    pub fn newest_common(offered: &[String]) -> Option<Self> {
        offered
            .iter()
            .filter_map(|name| Self::from_name(name))
            .max()
    }

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1alpha1 => "v1alpha1",
            Self::V1alpha2 => "v1alpha2",
            Self::V1alpha3 => "v1alpha3",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A sidecar that has answered `Info`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sidecar {
    /// The name in its answer to `Info`. It is not unique: every sidecar-shim is called `shim`.
    pub name: String,
    /// The path of its socket below the hooks directory, such as `hook-sidecar-0/shim.sock`.
    pub id: String,
    pub socket: PathBuf,
    /// The protocol version in use.
    pub version: Version,
    /// Its hook points with their priorities. Points that the version lacks are left out.
    pub points: Vec<(HookPoint, i32)>,
}

impl Sidecar {
    /// Its priority at `point`; `None` if the sidecar does not subscribe to that hook point.
    #[must_use]
    pub fn priority(&self, point: HookPoint) -> Option<i32> {
        self.points
            .iter()
            .find(|(at, _)| *at == point)
            .map(|&(_, priority)| priority)
    }
}

impl fmt::Display for Sidecar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The name is quoted, because the sidecar chooses it and could forge a log line.
        write!(f, "{:?} ({})", self.name, self.id)
    }
}

/// The hook sidecars that subscribe to `point`, in calling order: by falling priority, then in
/// natural order of their sockets (`hook-sidecar-2` before `hook-sidecar-10`).
pub fn calling_order(sidecars: &[Sidecar], point: HookPoint) -> Vec<&Sidecar> {
    let mut subscribed: Vec<(i32, &Sidecar)> = sidecars
        .iter()
        .filter_map(|sidecar| Some((sidecar.priority(point)?, sidecar)))
        .collect();
    subscribed.sort_by(|(priority, sidecar), (other_priority, other)| {
        let by_priority = other_priority.cmp(priority);
        by_priority.then_with(|| natural_order(&sidecar.id, &other.id))
    });
    subscribed.into_iter().map(|(_, sidecar)| sidecar).collect()
}

/// Natural sort order: compares runs of digits by value, everything else by character.
#[must_use]
pub fn natural_order(left: &str, right: &str) -> Ordering {
    // "1" and "01" have the same value but are different names.
    parts(left).cmp(parts(right)).then_with(|| left.cmp(right))
}

/// A run of digits (its length, then the digits without leading zeros), or of other characters.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part<'a> {
    Number(usize, &'a str),
    Text(&'a str),
}

fn parts(name: &str) -> impl Iterator<Item = Part<'_>> {
    let mut rest = name;
    std::iter::from_fn(move || {
        let is_number = rest.chars().next()?.is_ascii_digit();
        let tail = rest.trim_start_matches(|c: char| c.is_ascii_digit() == is_number);
        let part = rest.strip_suffix(tail)?;
        rest = tail;
        Some(if is_number {
            let digits = part.trim_start_matches('0');
            Part::Number(digits.len(), digits)
        } else {
            Part::Text(part)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sidecar(id: &str, priority: i32) -> Sidecar {
        Sidecar {
            name: "shim".into(),
            id: id.into(),
            socket: PathBuf::new(),
            version: Version::V1alpha3,
            points: vec![(HookPoint::OnDefineDomain, priority)],
        }
    }

    #[test]
    fn newest_common_version_is_chosen() {
        let offered = |names: &[&str]| {
            Version::newest_common(&names.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(
            offered(&["v1alpha1", "v1alpha3", "v1"]),
            Some(Version::V1alpha3)
        );
        assert_eq!(offered(&["v1alpha2", "v1alpha1"]), Some(Version::V1alpha2));
        assert_eq!(offered(&["v1beta1"]), None);
        assert_eq!(offered(&[]), None);
    }

    #[test]
    fn highest_priority_first_and_equal_ones_by_socket() {
        let all = [
            sidecar("hook-sidecar-10/a", 0),
            sidecar("hook-sidecar-2/b", 0),
            sidecar("hook-sidecar-3/c", 7),
            sidecar("x", -1),
        ];
        let ids: Vec<_> = calling_order(&all, HookPoint::OnDefineDomain)
            .iter()
            .map(|s| s.id.as_str())
            .collect();
        assert_eq!(
            ids,
            [
                "hook-sidecar-3/c",
                "hook-sidecar-2/b",
                "hook-sidecar-10/a",
                "x"
            ]
        );
        assert!(calling_order(&all, HookPoint::Shutdown).is_empty());
    }

    #[test]
    fn numbers_in_names_compare_by_value() {
        let mut names = [
            "s10",
            "s2",
            "s",
            "s02",
            "s2a",
            "s99999999999999999999",
            "é1",
            "s1",
        ];
        names.sort_by(|a, b| natural_order(a, b));
        assert_eq!(
            names,
            [
                "s",
                "s1",
                "s02",
                "s2",
                "s2a",
                "s10",
                "s99999999999999999999",
                "é1"
            ]
        );
    }
}
