//! What `--help` of each verb ends with: examples, and what the exit status says.

use clap::Command;

/// Of a verb without a meaning of its own.
const STATUS: &str = "0: done · 1: failed, standard error says why · 2: wrong arguments";

/// The verbs as `launcherctl --help` lists them.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "VMs on this machine",
        &[
            "run", "list", "status", "console", "ssh", "vnc", "logs", "dumpxml", "stop",
        ],
    ),
    (
        "Manifests, without a VM",
        &["check", "convert", "explain", "domain-json"],
    ),
    (
        "A VM's guest",
        &[
            "pause",
            "unpause",
            "soft-reboot",
            "reset",
            "shutdown",
            "kill",
            "delete",
            "guest",
            "stats",
            "screenshot",
            "memory-dump",
        ],
    ),
    (
        "A VM's disks",
        &[
            "volumes",
            "addvolume",
            "removevolume",
            "backup",
            "freeze",
            "unfreeze",
        ],
    ),
    (
        "Changes and moves of a VM",
        &["plan", "sync", "migrate", "migration"],
    ),
    (
        "A VM's launcher",
        &[
            "ping",
            "info",
            "domain",
            "qemu-version",
            "metrics",
            "timeline",
            "watch",
            "hooks",
            "upgrade",
            "debug",
        ],
    ),
];

/// What `launcherctl --help` ends with.
const GENERAL: &str = "\
A verb about one VM needs no name if only one runs here, or in a pod. launcherctl VERB --help has examples.

With -o json, standard output is JSON, except that console and ssh pass on what the guest writes, and a file named - is
written as it is. An error is an object, the last line of standard error:
  {\"error\": \"why\", \"hint\": \"what to do, or null\", \"details\": [\"further lines\"]}

Exit status of most verbs; the others say so in their --help:
  0: done · 1: failed, standard error says why · 2: wrong arguments";

/// Examples of a verb, and its exit status. Each line is run through the parser by a test.
struct VerbHelp {
    verb: &'static str,
    examples: &'static [&'static str],
    status: &'static str,
}

const fn help(
    verb: &'static str,
    examples: &'static [&'static str],
    status: &'static str,
) -> VerbHelp {
    VerbHelp {
        verb,
        examples,
        status,
    }
}

const VERBS: &[VerbHelp] = &[
    help(
        "run",
        &[
            "launcherctl run vm.yaml --disk rootdisk=disk.img",
            "launcherctl run vm.yaml --emulate --until login:",
            "launcherctl run vm.yaml --detach --publish 8080:80 --secret keys=keys",
        ],
        "0: the VM ran and its guest was shut down, TEXT appeared, or it was left running · 1: it could not be started, was stopped before TEXT appeared, has crashed, or was lost · 2: wrong arguments",
    ),
    help(
        "list",
        &["launcherctl list", "launcherctl -o json list"],
        STATUS,
    ),
    help("status", &["launcherctl status web"], STATUS),
    help(
        "console",
        &[
            "launcherctl console web",
            "launcherctl console web --until login: --timeout 60",
        ],
        "0: left, standard input or the guest has ended; with --until: TEXT appeared · 1: there is no console, or TEXT did not appear · 2: wrong arguments",
    ),
    help(
        "ssh",
        &[
            "launcherctl ssh fedora@web",
            "launcherctl ssh root@web -- uname -r",
        ],
        "that of ssh, which is the command's · 1: the VM has no network · 2: wrong arguments",
    ),
    help(
        "vnc",
        &["launcherctl vnc web", "launcherctl vnc --proxy-only"],
        STATUS,
    ),
    help(
        "logs",
        &["launcherctl logs web -f", "launcherctl logs --console"],
        STATUS,
    ),
    help("dumpxml", &["launcherctl dumpxml web"], STATUS),
    help(
        "stop",
        &["launcherctl stop web", "launcherctl stop --all --force"],
        "0: the VMs have ended · 1: one has not · 2: wrong arguments",
    ),
    help(
        "check",
        &[
            "launcherctl check vm.yaml",
            "launcherctl -o json check a.yaml b.yaml",
        ],
        "0: nothing is wrong · 1: something is, or a file cannot be read · 2: wrong arguments",
    ),
    help(
        "convert",
        &[
            "launcherctl convert vm.yaml",
            "launcherctl convert vmi.json --context context.json",
        ],
        STATUS,
    ),
    help("domain-json", &["launcherctl domain-json"], STATUS),
    help(
        "explain",
        &[
            "launcherctl explain vm.yaml",
            "launcherctl explain vm.yaml --element disk",
        ],
        STATUS,
    ),
    help(
        "plan",
        &[
            "launcherctl plan vm.yaml",
            "launcherctl plan --live live.xml --wanted wanted.xml",
        ],
        STATUS,
    ),
    help("info", &["launcherctl info"], STATUS),
    help(
        "ping",
        &["launcherctl ping web"],
        "0: the launcher answers · 1: it does not · 2: wrong arguments",
    ),
    help(
        "sync",
        &["launcherctl sync", "launcherctl sync vm.yaml"],
        STATUS,
    ),
    help("domain", &["launcherctl -o json domain"], STATUS),
    help("qemu-version", &["launcherctl qemu-version"], STATUS),
    help("metrics", &["launcherctl metrics"], STATUS),
    help("debug", &["launcherctl debug --log launcher.log"], STATUS),
    help("screenshot", &["launcherctl screenshot screen.png"], STATUS),
    help("stats", &["launcherctl stats --watch"], STATUS),
    help(
        "timeline",
        &["launcherctl timeline --svg start.svg"],
        STATUS,
    ),
    help(
        "guest",
        &[
            "launcherctl guest info",
            "launcherctl guest exec -- /bin/uname -a",
        ],
        "0: done · 1: failed · 2: wrong arguments; of exec: that of the command in the guest",
    ),
    help("freeze", &["launcherctl freeze --timeout 60"], STATUS),
    help("unfreeze", &["launcherctl unfreeze"], STATUS),
    help(
        "upgrade",
        &["launcherctl upgrade --root / /var/run/kubevirt-private/virt-launcher"],
        STATUS,
    ),
    help("pause", &["launcherctl pause web"], STATUS),
    help("unpause", &["launcherctl unpause web"], STATUS),
    help("reset", &["launcherctl reset web"], STATUS),
    help("soft-reboot", &["launcherctl soft-reboot web"], STATUS),
    help(
        "shutdown",
        &[
            "launcherctl shutdown web",
            "launcherctl shutdown --wait --timeout 60",
        ],
        "0: asked; with --wait: the guest is down · 1: not asked, or not down in time · 2: wrong arguments",
    ),
    help("kill", &["launcherctl kill web"], STATUS),
    help("delete", &["launcherctl delete web"], STATUS),
    help(
        "addvolume",
        &[
            "launcherctl addvolume data --file data.img --serial DATA-1",
            "launcherctl addvolume cdrom --file tools.iso",
        ],
        STATUS,
    ),
    help("removevolume", &["launcherctl removevolume data"], STATUS),
    help(
        "memory-dump",
        &["launcherctl memory-dump memory.elf"],
        STATUS,
    ),
    help(
        "backup",
        &[
            "launcherctl backup /backups",
            "launcherctl backup /backups --incremental",
        ],
        STATUS,
    ),
    help(
        "migrate",
        &[
            "launcherctl migrate --plot migration.svg",
            "launcherctl migrate --name web --detach",
            "launcherctl migrate --root /proc/4711/root --to /proc/4812/root",
        ],
        "0: the VM has moved · 1: it has not, and runs on where it was unless the error says otherwise · 2: wrong arguments",
    ),
    help(
        "migration",
        &[
            "launcherctl migration --name web",
            "launcherctl migration --root /proc/4711/root --plot migration.svg",
        ],
        "0: it has succeeded, or is in progress · 1: it has failed, or there was none · 2: wrong arguments",
    ),
    help("volumes", &["launcherctl volumes"], STATUS),
    help(
        "hooks",
        &[
            "launcherctl hooks",
            "launcherctl hooks try --vmi vm.yaml --sidecar ./onDefineDomain",
            "launcherctl hooks try --vmi vm.yaml --sidecar /tmp/hooks/a.sock",
            "launcherctl hooks check ./onDefineDomain",
            "launcherctl hooks check --junit junit.xml -- ./server --sockets {}",
        ],
        "0: done, passed · 1: failed, not idempotent, a check failed · 2: wrong arguments",
    ),
    help(
        "watch",
        &[
            "launcherctl watch web",
            "launcherctl watch --count 3",
            "launcherctl watch /var/lib/kubelet/pods",
        ],
        STATUS,
    ),
];

/// Of `guest exec`, whose exit status is another than that of its siblings.
const GUEST_EXEC: &str = "\
Examples:
  launcherctl guest exec -- /bin/uname -a
  launcherctl guest exec --name web -- /bin/sh -c 'ls /nonexistent 2>&1'

Exit status:
  that of the command; 1 also if it was not run, 2 also for wrong arguments";

/// The command with the examples and exit statuses of its verbs.
#[must_use]
pub fn with_examples(command: Command) -> Command {
    let command = command.mut_subcommand("guest", |guest| {
        guest.mut_subcommand("exec", |exec| exec.after_help(GUEST_EXEC))
    });
    let template = template(&command);
    let command = command.help_template(template).after_help(GENERAL);
    VERBS.iter().fold(command, |command, help| {
        let has_verb = command.find_subcommand(help.verb).is_some();
        if has_verb {
            command.mut_subcommand(help.verb, |verb| verb.after_help(text(help)))
        } else {
            command
        }
    })
}

/// clap has no headings for verbs.
fn template(command: &Command) -> String {
    let line = |name: &&str| {
        let about = command.find_subcommand(name).and_then(Command::get_about);
        about.map(|about| format!("  {name:<13} {about}\n"))
    };
    let groups: String = GROUPS
        .iter()
        .map(|(heading, verbs)| {
            let lines: String = verbs.iter().filter_map(line).collect();
            format!("{heading}:\n{lines}\n")
        })
        .collect();
    format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}\n"
    )
}

fn text(help: &VerbHelp) -> String {
    let examples: String = help
        .examples
        .iter()
        .map(|example| format!("  {example}\n"))
        .collect();
    format!("Examples:\n{examples}\nExit status:\n  {}", help.status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command;

    #[test]
    fn each_verb_is_listed_once() {
        let mut listed: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, verbs)| *verbs)
            .copied()
            .collect();
        listed.sort_unstable();
        let command = command();
        let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        let mut verbs: Vec<&str> = verbs.map(Command::get_name).collect();
        verbs.retain(|name| *name != "help");
        verbs.sort_unstable();
        assert_eq!(listed, verbs);
        let help = crate::cli::command().render_help().to_string();
        assert!(
            help.contains("\n  pause         Pause the guest\n"),
            "{help}"
        );
    }

    #[test]
    fn each_verb_has_examples_that_are_understood() {
        for verb in command()
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
        {
            let name = verb.get_name();
            let help = VERBS.iter().find(|help| help.verb == name);
            assert!(help.is_some_and(|it| !it.examples.is_empty()), "{name}");
        }
        for example in VERBS.iter().flat_map(|help| help.examples) {
            let parsed = command().try_get_matches_from(example.split(' '));
            assert!(parsed.is_ok(), "{example}: {:?}", parsed.err());
            assert!(example.starts_with("launcherctl "));
        }
    }
}
