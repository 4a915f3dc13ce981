//! The node's sysfs as the context holds it: files with their contents, and symbolic links.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::Context;
use crate::cpu::parse_list;

/// Most links that a path leads through, as in Linux.
const MAX_LINKS: usize = 40;

/// Why something on the host could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// There is no such file or directory.
    #[error("{0} does not exist on the node")]
    Missing(String),
    /// It holds something else than expected.
    #[error("{path} on the node holds {content:?}; expected {expected}")]
    Content {
        path: String,
        content: String,
        expected: &'static str,
    },
}

/// The kind of a directory's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Directory,
    Link,
    File,
}

#[derive(Debug, Clone, Copy)]
pub struct Host<'a> {
    files: &'a BTreeMap<String, String>,
    links: &'a BTreeMap<String, String>,
}

impl<'a> Host<'a> {
    /// The part of sysfs that the context has.
    #[must_use]
    pub fn new(ctx: &'a Context) -> Self {
        Self {
            files: &ctx.host_files,
            links: &ctx.host_links,
        }
    }

    /// Contents of a file without surrounding white space.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn read(&self, path: &str) -> Result<&'a str, HostError> {
        let content = self
            .files
            .get(path)
            .or_else(|| self.files.get(&self.resolve(path)?));
        content
            .map(|content| content.trim())
            .ok_or_else(|| HostError::Missing(path.into()))
    }

    /// A file that holds one number.
    ///
    /// # Errors
    /// When there is no such file or it holds something else.
    pub fn number(&self, path: &str) -> Result<i64, HostError> {
        let content = self.read(path)?;
        content.parse().map_err(|_| HostError::Content {
            path: path.into(),
            content: content.into(),
            expected: "a number",
        })
    }

    /// A file that holds a list of numbers, such as `0-3,8`.
    ///
    /// # Errors
    /// When there is no such file or it holds something else.
    pub fn list(&self, path: &str) -> Result<Vec<u32>, HostError> {
        let content = self.read(path)?;
        parse_list(content).ok_or_else(|| HostError::Content {
            path: path.into(),
            content: content.into(),
            expected: "a list of numbers such as 0-3,8",
        })
    }

    /// Names in a directory in order, with their kinds.
    ///
    /// # Errors
    /// When there is no such directory.
    pub fn entries(&self, dir: &str) -> Result<BTreeSet<(&'a str, Kind)>, HostError> {
        let missing = || HostError::Missing(dir.into());
        let resolved = self.resolve(dir).ok_or_else(missing)?;
        let prefix = format!("{resolved}/");
        let mut entries = BTreeSet::new();
        for (paths, leaf) in [(self.files, Kind::File), (self.links, Kind::Link)] {
            for (path, _) in below(paths, &prefix) {
                let Some(rest) = path.get(prefix.len()..) else {
                    continue;
                };
                entries.insert(
                    rest.split_once('/')
                        .map_or((rest, leaf), |(name, _)| (name, Kind::Directory)),
                );
            }
        }
        if entries.is_empty() {
            Err(missing())
        } else {
            Ok(entries)
        }
    }

    /// Where a link points to, as it is written.
    #[must_use]
    pub fn link(&self, path: &str) -> Option<&'a String> {
        self.links.get(path).or_else(|| {
            let (dir, name) = path.rsplit_once('/')?;
            self.links.get(&format!("{}/{name}", self.resolve(dir)?))
        })
    }

    /// The path without links in it; `None` where it leads to nothing.
    #[must_use]
    pub fn resolve(&self, path: &str) -> Option<String> {
        let mut done = String::default();
        let mut todo: Vec<String> = components(path);
        let mut links = 0;
        while let Some(component) = todo.pop() {
            if component == ".." {
                let parent = done.rfind('/').unwrap_or(0);
                done.truncate(parent);
                continue;
            }
            let next = format!("{done}/{component}");
            let Some(target) = self.links.get(&next) else {
                done = next;
                continue;
            };
            links += 1;
            if links > MAX_LINKS {
                return None;
            }
            if target.starts_with('/') {
                done.clear();
            }
            todo.extend(components(target));
        }
        self.exists(&done).then_some(done)
    }

    fn exists(&self, path: &String) -> bool {
        let prefix = format!("{path}/");
        let is_directory =
            |paths: &'a BTreeMap<String, String>| below(paths, &prefix).next().is_some();
        self.files.contains_key(path) || is_directory(self.files) || is_directory(self.links)
    }
}

/// Entries with a path that starts with `prefix`.
fn below<'a>(
    paths: &'a BTreeMap<String, String>,
    prefix: &str,
) -> impl Iterator<Item = (&'a String, &'a String)> {
    let prefix = String::from(prefix);
    paths
        .range::<String, _>((Bound::Included(&prefix), Bound::Unbounded))
        .take_while(move |(path, _)| path.starts_with(prefix.as_str()))
}

/// The parts of a path, last first.
fn components(path: &str) -> Vec<String> {
    path.split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .rev()
        .map(String::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Context {
        let map =
            |pairs: &[(&str, &str)]| pairs.iter().map(|&(k, v)| (k.into(), v.into())).collect();
        Context {
            host_files: map(&[
                ("/sys/devices/pci0/0000:81:00.0/numa_node", "1\n"),
                ("/sys/node/node0/cpulist", "0-3,8\n"),
            ]),
            host_links: map(&[
                (
                    "/sys/bus/pci/devices/0000:81:00.0",
                    "../../../devices/pci0/0000:81:00.0",
                ),
                ("/sys/node/node0/loop", "loop"),
            ]),
            ..Context::default()
        }
    }

    #[test]
    fn files_are_found_through_links() {
        let ctx = host();
        let host = Host::new(&ctx);
        assert_eq!(
            host.number("/sys/bus/pci/devices/0000:81:00.0/numa_node"),
            Ok(1)
        );
        assert_eq!(
            host.list("/sys/node/node0/cpulist").unwrap(),
            [0, 1, 2, 3, 8]
        );
        assert_eq!(
            host.resolve("/sys/bus/pci/devices/0000:81:00.0").unwrap(),
            "/sys/devices/pci0/0000:81:00.0"
        );
        assert_eq!(host.resolve("/sys/node/node0/loop"), None);
        assert!(matches!(
            host.read("/sys/nothing"),
            Err(HostError::Missing(_))
        ));
    }

    #[test]
    fn a_directory_lists_what_is_below_it() {
        let ctx = host();
        let entries = Host::new(&ctx).entries("/sys/node/node0").unwrap();
        assert_eq!(
            entries.into_iter().collect::<Vec<_>>(),
            [("cpulist", Kind::File), ("loop", Kind::Link)]
        );
        let entries = Host::new(&ctx).entries("/sys").unwrap();
        assert!(entries.iter().all(|&(_, kind)| kind == Kind::Directory));
        assert!(Host::new(&ctx).entries("/proc").is_err());
    }

    #[test]
    fn damaged_and_endless_lists_are_refused() {
        for text in ["", "a", "-1", "1-", "0-4294967295", "1,,2"] {
            assert_eq!(parse_list(text), None, "{text:?}");
        }
        assert_eq!(parse_list("3-1,5"), Some(vec![5]));
    }
}
