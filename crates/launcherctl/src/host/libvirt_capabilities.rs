//! The machine types and CPU models of this machine's libvirt and QEMU, from `virsh`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;

use crate::error::{CtlError, text_error};
use crate::files::FileError;
use domain::xml::tree::Element;
use os::command::{self, Limits};

/// The only architecture for which libvirt has a list of CPU models.
const ARCH_WITH_MODELS: &str = "x86_64";
/// libvirt's driver starts each of the image's emulators, which takes seconds.
const LIMITS: Limits = Limits {
    memory: 0,
    cpu: 120,
    wall: Duration::from_secs(120),
};

/// What libvirt and QEMU have.
#[derive(Debug, Default, Serialize)]
pub struct LibvirtCapabilities {
    /// libvirt's version.
    pub libvirt: String,
    /// QEMU's version.
    pub qemu: String,
    /// The machine types of each architecture, by libvirt's name.
    #[serde(skip)]
    machines: BTreeMap<String, BTreeSet<String>>,
    /// The CPU models of [`ARCH_WITH_MODELS`].
    #[serde(skip)]
    cpu_models: BTreeSet<String>,
}

impl LibvirtCapabilities {
    /// Asks libvirt's driver inside `virsh`: no daemon has to run.
    ///
    /// # Errors
    /// `virsh` is missing, or fails.
    pub fn read() -> Result<Self, CtlError> {
        // For libvirt's driver.
        let root = tempfile::tempdir().map_err(FileError::on("make", std::env::temp_dir()))?;
        let commands = format!("capabilities; cpu-models {ARCH_WITH_MODELS}; version");
        let uri = format!("qemu:///embed?root={}", root.path().display());
        let output = command::run("virsh", ["-c", &uri, &commands], &[], None, LIMITS)?;
        Self::parse(&String::from_utf8_lossy(&output))
    }

    fn parse(output: &str) -> Result<Self, CtlError> {
        const END: &str = "</capabilities>";
        let end = output.find(END).map(|at| at.saturating_add(END.len()));
        let parts = end.and_then(|end| output.split_at_checked(end));
        let (xml, rest) = parts.ok_or_else(|| text_error!("virsh printed no capabilities"))?;
        let mut found = Self::default();
        let capabilities = Element::parse(xml)?;
        let guests = capabilities.children().filter(|it| it.name == "guest");
        for arch in guests.filter_map(|guest| guest.child("arch")) {
            let name = arch.attribute("name").unwrap_or_default().to_owned();
            let domains = arch.children().filter(|it| it.name == "domain");
            // libvirt may name them for each kind of domain, or once for all.
            let machines = std::iter::once(arch).chain(domains);
            let machines = machines.flat_map(Element::children);
            let machines = machines
                .filter(|it| it.name == "machine")
                .map(Element::text);
            found.machines.entry(name).or_default().extend(machines);
        }
        for line in rest.lines().map(str::trim) {
            if let Some(version) = line.strip_prefix("Using library: libvirt ") {
                found.libvirt = version.to_owned();
            } else if let Some(version) = line.strip_prefix("Running hypervisor: QEMU ") {
                found.qemu = version.to_owned();
            } else if !line.is_empty() && !line.contains(' ') {
                found.cpu_models.insert(line.to_owned());
            }
        }
        Ok(found)
    }

    /// Whether QEMU emulates the architecture at all.
    pub fn has_arch(&self, arch: &str) -> bool {
        self.machines.contains_key(arch)
    }

    pub fn has_machine(&self, arch: &str, machine: &str) -> bool {
        let machines = self.machines.get(arch);
        machines.is_some_and(|machines| machines.contains(machine))
    }

    /// Whether libvirt knows the CPU model. It replaces one that QEMU has no more.
    pub fn has_cpu_model(&self, arch: &str, model: &str) -> bool {
        arch != ARCH_WITH_MODELS || self.cpu_models.contains(model)
    }
}

/// The answer of an image with two machine types and one CPU model.
#[cfg(test)]
pub fn of_test() -> LibvirtCapabilities {
    const OUTPUT: &str = "<capabilities><host/><guest><os_type>hvm</os_type><arch name='x86_64'><machine maxCpus='4096'>pc-q35-10.0</machine><machine canonical='pc-q35-10.0'>q35</machine><domain type='qemu'/></arch></guest></capabilities>\n\nEPYC\n\nCompiled against library: libvirt 11.3.0\nUsing library: libvirt 11.3.0\nUsing API: QEMU 11.3.0\nRunning hypervisor: QEMU 10.0.2\n";
    LibvirtCapabilities::parse(OUTPUT).unwrap_or_default()
}
