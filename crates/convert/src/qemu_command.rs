//! `<qemu:commandline>`: arguments for QEMU that libvirt has no element for.

use super::{ConvertError, DomainSpec, Input};
use domain::spec::Arg;

/// Annotation with the guest's Ignition configuration.
const IGNITION: &str = "kubevirt.io/ignitiondata";
/// Variable with the launcher's verbosity.
const VERBOSITY: &str = "VIRT_LAUNCHER_LOG_VERBOSITY";
/// Above this verbosity the firmware logs too.
const VERBOSE: i64 = 5;

/// Ignition data as a firmware configuration file; the firmware's log.
pub(super) fn apply(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    let mut args = Vec::new();
    // Data that is not an Ignition configuration is ignored, as in the reference.
    if input.annotation(IGNITION).contains("ignition") {
        let meta = &input.vmi.metadata;
        args.push(String::from("-fw_cfg"));
        args.push(joined(
            "name=opt/com.coreos/config,file=",
            &input.paths.ignition(&meta.namespace, &meta.name),
        ));
    }
    let verbosity = input
        .ctx
        .environment
        .get(VERBOSITY)
        .and_then(|verbosity| verbosity.parse::<i64>().ok());
    if input.arch.firmware_log && verbosity.is_some_and(|verbosity| verbosity > VERBOSE) {
        args.push(String::from("-chardev"));
        args.push(joined(
            "file,id=firmwarelog,path=",
            &input.paths.firmware_log_pipe(),
        ));
        args.push(String::from("-device"));
        args.push(String::from(
            "isa-debugcon,iobase=0x402,chardev=firmwarelog",
        ));
    }
    if !args.is_empty() {
        let arguments = args.into_iter().map(|value| Arg { value });
        domain
            .qemu_cmd
            .get_or_insert_default()
            .args
            .extend(arguments);
    }
    Ok(())
}

fn joined(option: &str, path: &str) -> String {
    let mut text = String::with_capacity(option.len() + path.len());
    text.push_str(option);
    text.push_str(path);
    text
}
