//! The options by which a verb finds its VM, where they stand before a verb that does not have them.

use clap::error::ErrorKind;
use clap::{ArgMatches, Command};

/// The options of [`crate::verbs::target::Target`].
const OPTIONS: [&str; 4] = ["namespace", "name", "root", "socket"];

/// Refuses those that the verb does not have: it would go on without what was meant. `command` is not built yet: then each
/// verb has them all.
///
/// # Errors
/// Names the first one that the verb does not have.
pub fn refuse_ignored(command: &Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let (mut verb, mut given, mut words) = (command, vec![matches], Vec::new());
    while let Some((name, inner)) = given.last().and_then(|last| last.subcommand()) {
        let Some(found) = verb.find_subcommand(name) else {
            return Ok(());
        };
        words.push(name);
        verb = found;
        given.push(inner);
    }
    let has = |option: &&str| verb.get_arguments().any(|it| it.get_id() == *option);
    // A verb between, such as `hooks`, may have an option of that name itself.
    let is_given = |option: &&str| {
        let mut levels = given.iter();
        levels.any(|it| it.try_contains_id(option).unwrap_or(false))
    };
    let mut ignored = OPTIONS
        .iter()
        .filter(|option| is_given(option) && !has(option));
    let Some(option) = ignored.next() else {
        return Ok(());
    };
    let verb = words.join(" ");
    let others: Vec<String> = OPTIONS
        .iter()
        .filter(|it| has(it))
        .map(|it| format!("--{it}"))
        .collect();
    let others = match others.as_slice() {
        [] => String::new(),
        others => format!("; it takes {}", others.join(", ")),
    };
    let text = format!("launcherctl {verb} does not take --{option}{others}");
    Err(command.clone().error(ErrorKind::UnknownArgument, text))
}

#[cfg(test)]
mod tests {
    use crate::cli::parse;

    #[test]
    fn an_option_that_a_verb_does_not_have_is_refused_on_both_sides() {
        let error = |line: &str| {
            let words = line.split(' ').map(Into::into).collect();
            parse(words).err().map(|error| error.to_string())
        };
        for (line, option) in [
            ("--root /vm list", "--root"),
            ("list --root /vm", "--root"),
            ("list --name web", "--name"),
            ("--socket /s list -n ns", "--socket"),
            ("--name web ssh web", "--name"),
            ("ssh web --root /vm", "--root"),
            ("--root /vm convert vmi.yaml", "--root"),
            ("--name web hooks check ./sidecar", "--name"),
        ] {
            let text = error(line).unwrap_or_default();
            assert!(
                text.contains(&format!("does not take {option}")),
                "{line}: {text}"
            );
        }
        let list = error("list --root /vm").unwrap_or_default();
        assert!(list.contains("; it takes --namespace\n"), "{list}");
        for line in [
            "-n ns list",
            "--name web ping",
            "--root /vm stop",
            "--name web guest exec -- ls",
            "--root /vm hooks",
            "-n ns run vmi.yaml",
            "--root /vm migrate --to /other",
        ] {
            assert_eq!(error(line), None, "{line}");
        }
    }
}
