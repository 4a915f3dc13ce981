//! Verbs and habits of virsh and virtctl that launcherctl has by another name or in another order.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// What virsh, virtctl and others call it, and what it is here.
const VERBS: [(&str, &str); 15] = [
    ("start", "run VMI starts a VM from its manifest"),
    ("create", "run VMI starts a VM from its manifest"),
    (
        "restart",
        "soft-reboot reboots the guest; for a new start, stop and run",
    ),
    ("undefine", "stop ends a VM and removes its files"),
    ("rm", "stop ends a VM and removes its files"),
    ("ps", "list shows the VMs"),
    ("dominfo", "status shows what is known of a VM"),
    ("domstate", "status shows what is known of a VM"),
    ("edit", "sync FILE sends a changed manifest"),
    ("apply", "sync FILE sends a changed manifest"),
    ("attach-disk", "addvolume NAME --file FILE attaches a disk"),
    ("detach-disk", "removevolume NAME detaches a disk"),
    (
        "change-media",
        "addvolume DRIVE --file FILE puts a medium into a CD-ROM drive, removevolume ejects it",
    ),
    ("domblklist", "volumes lists the disks"),
    ("dump", "memory-dump FILE saves the guest's memory"),
];

/// Verbs that are about no running VM.
const OF_FILES: [&str; 5] = ["run", "check", "convert", "explain", "domain-json"];

/// For a verb of another tool, clap proposes one that is spelt like it, and may do something else.
#[must_use]
pub fn with_own_verb(error: clap::Error) -> clap::Error {
    let (ErrorKind::InvalidSubcommand, Some(ContextValue::String(verb))) =
        (error.kind(), error.get(ContextKind::InvalidSubcommand))
    else {
        return error;
    };
    match VERBS.iter().find(|(theirs, _)| theirs == verb) {
        Some((_, ours)) => {
            let text = format!("there is no verb '{verb}': launcherctl {ours}\n");
            clap::Error::raw(ErrorKind::InvalidSubcommand, text)
        }
        None => error,
    }
}

/// For a word too many, which is often the VM's name: some verbs take that by an option only, as another word follows them.
#[must_use]
pub fn with_name_option(error: clap::Error) -> clap::Error {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(word))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return error;
    };
    let usage = match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => usage.to_string(),
        _ => String::new(),
    };
    let is_of_a_vm = !OF_FILES
        .iter()
        .any(|verb| usage.contains(&format!("launcherctl {verb} ")));
    if word.starts_with('-') || !is_of_a_vm {
        return error;
    }
    let text = format!(
        "unexpected argument '{word}'; if one of the words is a VM's name: here --name VM chooses the VM\n\n{usage}\n"
    );
    clap::Error::raw(ErrorKind::UnknownArgument, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command;

    fn refusal(line: &str) -> String {
        let words = std::iter::once("launcherctl").chain(line.split(' '));
        let error = command().try_get_matches_from(words).err();
        let error = error.map(with_own_verb).map(with_name_option);
        error.map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn verbs_of_other_tools_lead_to_those_of_this_one() {
        for (theirs, ours) in VERBS {
            let text = refusal(theirs);
            assert!(text.contains(ours) && !text.contains("similar"), "{text}");
            let verb = ours.split(' ').next().unwrap_or_default();
            assert!(command().find_subcommand(verb).is_some(), "{verb}");
        }
        assert!(refusal("pasue").contains("pause"));
    }

    #[test]
    fn a_name_where_none_is_expected_is_told_where_it_belongs() {
        for line in [
            "backup web dir",
            "removevolume web data",
            "addvolume web data --file a",
        ] {
            let text = refusal(line);
            assert!(
                text.contains("--name VM") && text.contains("Usage: launcherctl"),
                "{text}"
            );
        }
        for other in ["list --nmae web", "run web.yaml --disk root root.img"] {
            let text = refusal(other);
            assert!(!text.contains("--name VM") && !text.is_empty(), "{text}");
        }
    }
}
