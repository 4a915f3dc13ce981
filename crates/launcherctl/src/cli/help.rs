//! `launcherctl --help`: the verbs in groups, for which clap has no headings, and general remarks.

use clap::Command;

/// A line for each group: its heading and its verbs.
const GROUPS: &str = "\
VMs on this machine: run list status console ssh vnc logs dumpxml stop
Manifests, without a VM: check convert explain
A VM's guest: pause unpause soft-reboot reset shutdown kill guest stats screenshot \
memory-dump
A VM's disks: volumes addvolume removevolume backup
Changes and moves of a VM: plan sync migrate migration
A VM's launcher: ping domain metrics timeline hooks upgrade debug";

fn groups() -> impl Iterator<Item = (&'static str, &'static str)> {
    GROUPS.lines().filter_map(|line| line.split_once(": "))
}

/// The end of `launcherctl --help`.
const GENERAL: &str = "\
A verb about one VM needs no name if only one runs here, or in a pod. launcherctl VERB --help has examples, launcherctl
completion SHELL the completions of a shell.

With -o json, standard output is JSON, except that console and ssh pass on what the guest writes, and a file named - is
written as it is. An error is an object, the last line of standard error:
  {\"error\": \"why\", \"hint\": \"what to do, or null\", \"details\": [\"further lines\"]}

Exit status of most verbs; the others say so in their --help:
  0: done · 1: failed, standard error says why · 2: wrong arguments";

/// Groups the verbs in the command's help.
pub fn with_groups(command: Command) -> Command {
    let line = |name: &str| {
        let about = command.find_subcommand(name).and_then(Command::get_about);
        about.map(|about| format!("  {name:<13} {about}\n"))
    };
    let groups = groups().map(|(heading, verbs)| {
        let lines: String = verbs.split(' ').filter_map(line).collect();
        format!("{heading}:\n{lines}\n")
    });
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}Options:\n{{options}}{{after-help}}\n",
        groups.collect::<String>()
    );
    command.help_template(template).after_help(GENERAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command;

    #[test]
    fn each_verb_is_listed_once() {
        let mut listed: Vec<&str> = groups().flat_map(|(_, verbs)| verbs.split(' ')).collect();
        // Named below the options.
        listed.push("completion");
        listed.sort_unstable();
        let command = command();
        let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        let mut verbs: Vec<&str> = verbs.map(Command::get_name).collect();
        verbs.sort_unstable();
        assert_eq!(listed, verbs);
        let help = crate::cli::command().render_help().to_string();
        assert!(
            help.contains("\n  pause         Pause the guest\n"),
            "{help}"
        );
    }

    #[test]
    fn examples_are_understood() {
        let mut tried = 0;
        let all = command();
        let guest = all.find_subcommand("guest").into_iter();
        let verbs = guest
            .flat_map(Command::get_subcommands)
            .chain(all.get_subcommands());
        for help in verbs.filter_map(Command::get_after_help) {
            let help = help.to_string();
            for example in help
                .lines()
                .filter_map(|line| line.strip_prefix("  launcherctl "))
            {
                // A shell's quotes are not the subject of this test.
                let line = example.split(" '").next().into_iter();
                let words = line.flat_map(|line| line.split(' '));
                let parsed =
                    command().try_get_matches_from(["launcherctl"].into_iter().chain(words));
                assert!(parsed.is_ok(), "{example}: {:?}", parsed.err());
                tried += 1;
            }
        }
        assert!(tried > 30, "{tried}");
    }
}
