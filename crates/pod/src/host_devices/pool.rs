//! Addresses that a device plugin has given to the pod for a resource.

use std::collections::BTreeMap;

use super::super::machine::Machine;

/// Addresses by resource. One address may be listed for several resources; it is given away once.
#[derive(Debug, Default)]
pub(super) struct Pool(BTreeMap<String, Vec<String>>);

impl Pool {
    /// The addresses in `PREFIX_<RESOURCE>`, e.g. `PCI_RESOURCE_NVIDIA_COM_A100`.
    pub fn new<'r>(
        machine: &Machine,
        prefix: &str,
        resources: impl Iterator<Item = &'r str>,
    ) -> Self {
        let addresses = |resource: &str| {
            let list = machine.environment.get(&variable(prefix, resource))?;
            Some(
                list.trim_end_matches(',')
                    .split(',')
                    .filter(|address| !address.is_empty())
                    .map(str::to_owned)
                    .collect(),
            )
        };
        Self(
            resources
                .filter_map(|resource| Some((resource.to_owned(), addresses(resource)?)))
                .collect(),
        )
    }

    /// The next address for the resource.
    pub fn take(&mut self, resource: &str) -> Option<String> {
        let address = self.0.get(resource)?.first()?.clone();
        for addresses in self.0.values_mut() {
            addresses.retain(|other| *other != address);
        }
        Some(address)
    }
}

/// The variable of a resource (`deviceName`): upper case, with `_` for `/` and `.`.
fn variable(prefix: &str, resource: &str) -> String {
    format!(
        "{prefix}_{}",
        resource.to_uppercase().replace(['/', '.'], "_")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(variables: &[(&str, &str)]) -> Machine {
        Machine {
            root: "/".into(),
            environment: variables
                .iter()
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                .collect(),
        }
    }

    #[test]
    fn addresses_are_given_away_in_order_and_once() {
        let machine = machine(&[("P_VENDOR_COM_A-1", "a,b,"), ("P_VENDOR_COM_B", "b,c")]);
        let mut pool = Pool::new(
            &machine,
            "P",
            ["vendor.com/a-1", "vendor.com/b", "vendor.com/none"].into_iter(),
        );
        assert_eq!(pool.take("vendor.com/a-1").as_deref(), Some("a"));
        assert_eq!(pool.take("vendor.com/a-1").as_deref(), Some("b"));
        assert_eq!(pool.take("vendor.com/b").as_deref(), Some("c"), "b is gone");
        assert_eq!(pool.take("vendor.com/b"), None);
        assert_eq!(pool.take("vendor.com/none"), None);
    }

    #[test]
    fn an_empty_variable_has_no_addresses() {
        let mut pool = Pool::new(&machine(&[("P_X", ",")]), "P", ["x"].into_iter());
        assert_eq!(pool.take("x"), None);
    }
}
