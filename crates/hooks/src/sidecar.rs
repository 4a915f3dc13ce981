//! One sidecar: who it is, what it wants to be called for, and in which order.

use std::cmp::Ordering;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where a sidecar can step in; the names are those of `kubevirt.hooks.info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Point {
    /// Changes the domain before it is defined.
    OnDefineDomain,
    /// Changes the cloud-init data before the ISO image is made.
    PreCloudInitIso,
    /// Hears that the virtual machine is gone, so that the sidecar can end.
    Shutdown,
}

impl Point {
    /// The point of that name, if there is one.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::OnDefineDomain, Self::PreCloudInitIso, Self::Shutdown]
            .into_iter()
            .find(|point| point.name() == name)
    }

    /// The name in the protocol.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OnDefineDomain => "OnDefineDomain",
            Self::PreCloudInitIso => "PreCloudInitIso",
            Self::Shutdown => "Shutdown",
        }
    }

    /// The first version of the protocol that has it.
    #[must_use]
    pub const fn since(self) -> Version {
        match self {
            Self::OnDefineDomain => Version::V1alpha1,
            Self::PreCloudInitIso => Version::V1alpha2,
            Self::Shutdown => Version::V1alpha3,
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A version of the callbacks, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// OnDefineDomain.
    V1alpha1,
    /// PreCloudInitIso too.
    V1alpha2,
    /// Shutdown too.
    V1alpha3,
}

impl Version {
    /// All versions, newest first: the order in which they are preferred.
    pub const ALL: [Self; 3] = [Self::V1alpha3, Self::V1alpha2, Self::V1alpha1];

    /// The newest version that both sides speak.
    #[must_use]
    pub fn common(offered: &[String]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|version| offered.iter().any(|name| name == version.name()))
    }

    /// The name in the protocol.
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

/// A sidecar that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sidecar {
    /// The name it gives itself; not unique, all shims are called `shim`.
    pub name: String,
    /// Its socket, below the directory of the sockets: what tells it from others.
    pub place: String,
    /// Its socket.
    pub socket: PathBuf,
    /// The version it is spoken to in.
    pub version: Version,
    /// The points it wants to be called at that its version has, with the priority for each.
    pub points: Vec<(Point, i32)>,
}

impl Sidecar {
    /// Its priority at a point, if it wants to be called there.
    #[must_use]
    pub fn priority(&self, point: Point) -> Option<i32> {
        self.points
            .iter()
            .find(|(at, _)| *at == point)
            .map(|&(_, priority)| priority)
    }
}

impl fmt::Display for Sidecar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The name is the sidecar's own text: quoted, so that it cannot fake a log line.
        write!(f, "{:?} ({})", self.name, self.place)
    }
}

/// Those that want to be called at `point`: highest priority first; equal ones by the place of
/// their sockets in natural order, so `hook-sidecar-2` before `hook-sidecar-10`.
pub fn ordered(sidecars: &[Sidecar], point: Point) -> Vec<&Sidecar> {
    let mut called: Vec<(i32, &Sidecar)> = sidecars
        .iter()
        .filter_map(|sidecar| Some((sidecar.priority(point)?, sidecar)))
        .collect();
    called
        .sort_by(|(a, left), (b, right)| b.cmp(a).then_with(|| natural(&left.place, &right.place)));
    called.into_iter().map(|(_, sidecar)| sidecar).collect()
}

/// Compares names as people count: digits by their value, all else by character.
#[must_use]
pub fn natural(left: &str, right: &str) -> Ordering {
    let (mut a, mut b) = (left, right);
    loop {
        let (mut rest_a, mut rest_b) = (a.chars(), b.chars());
        let (Some(x), Some(y)) = (rest_a.next(), rest_b.next()) else {
            // The same value may be written in two ways, "1" and "01": still two names.
            return a.len().cmp(&b.len()).then_with(|| left.cmp(right));
        };
        let order = if x.is_ascii_digit() && y.is_ascii_digit() {
            let ((p, rest_a), (q, rest_b)) = (number(a), number(b));
            (a, b) = (rest_a, rest_b);
            p.len().cmp(&q.len()).then_with(|| p.cmp(q))
        } else {
            (a, b) = (rest_a.as_str(), rest_b.as_str());
            x.cmp(&y)
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// The digits at the start without leading zeros, and what follows them.
fn number(text: &str) -> (&str, &str) {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = text.strip_suffix(rest).unwrap_or(text);
    (digits.trim_start_matches('0'), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sidecar(place: &str, priority: i32) -> Sidecar {
        Sidecar {
            name: "shim".into(),
            place: place.into(),
            socket: PathBuf::new(),
            version: Version::V1alpha3,
            points: vec![(Point::OnDefineDomain, priority)],
        }
    }

    #[test]
    fn the_newest_common_version_is_taken() {
        let offered = |names: &[&str]| {
            Version::common(&names.iter().map(ToString::to_string).collect::<Vec<_>>())
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
    fn the_highest_priority_comes_first_and_equal_ones_by_place() {
        let all = [
            sidecar("hook-sidecar-10/a", 0),
            sidecar("hook-sidecar-2/b", 0),
            sidecar("hook-sidecar-3/c", 7),
            sidecar("x", -1),
        ];
        let places: Vec<_> = ordered(&all, Point::OnDefineDomain)
            .iter()
            .map(|s| s.place.as_str())
            .collect();
        assert_eq!(
            places,
            [
                "hook-sidecar-3/c",
                "hook-sidecar-2/b",
                "hook-sidecar-10/a",
                "x"
            ]
        );
        assert!(ordered(&all, Point::Shutdown).is_empty());
    }

    #[test]
    fn numbers_in_names_count_by_value() {
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
        names.sort_by(|a, b| natural(a, b));
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
