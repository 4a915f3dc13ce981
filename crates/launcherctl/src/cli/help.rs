//! `launcherctl --help`: the verbs in groups, for which clap has no headings, and what stands below
//! the help of each verb.

use clap::Command;
use textwrap::Options;

/// Sections of a title, `= TITLE`, and a text: the groups, a heading and its verbs in each line;
/// and the end of the help of the command that is the title.
const TEXTS: &str = include_str!("help.txt");
/// For a terminal of this many columns.
const WIDTH: usize = 80;

fn section(title: &str) -> Option<&'static str> {
    let mut sections = TEXTS
        .split("\n= ")
        .filter_map(|section| section.split_once('\n'));
    sections
        .find(|(name, _)| *name == title)
        .map(|(_, text)| text.trim_end())
}

/// The lines of a section, each a word and its text.
fn pairs(title: &str) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
    let lines = section(title).unwrap_or_default().lines();
    lines.filter_map(|line| line.split_once(": "))
}

/// Groups the verbs in the command's help, and ends the help of each verb.
pub fn with_texts(command: Command) -> Command {
    let line = |name: &str| {
        let about = command.find_subcommand(name).and_then(Command::get_about)?;
        let options = Options::new(WIDTH).subsequent_indent("                ");
        Some(textwrap::fill(&format!("  {name:<13} {about}"), options) + "\n")
    };
    let groups = pairs("groups").map(|(heading, verbs)| {
        let lines: String = verbs.split(' ').filter_map(line).collect();
        format!("{heading}:\n{lines}\n")
    });
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}Options:\n{{options}}{{after-help}}\n",
        groups.collect::<String>()
    );
    with_end(command, "")
        .help_template(template)
        .max_term_width(WIDTH)
}

/// The title of a verb below another one has both names; without a section of its own it has the
/// other one's.
fn with_end(command: Command, parent: &str) -> Command {
    let name = command.get_name();
    let title = format!("{parent} {name}").trim_start().to_owned();
    let end = section(&title)
        .or_else(|| section(parent))
        .unwrap_or_default();
    let is_group = matches!(name, "launcherctl" | "launcher");
    let parent = if is_group { String::new() } else { title };
    let command = command.after_help(end);
    command.mut_subcommands(|verb| with_end(verb, &parent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command;

    #[test]
    fn each_verb_is_listed_once() {
        let mut listed: Vec<&str> = pairs("groups")
            .flat_map(|(_, verbs)| verbs.split(' '))
            .collect();
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
    fn help_fits_a_terminal() {
        fn check(command: &mut Command) {
            for help in [command.render_help(), command.render_long_help()] {
                let help = help.to_string();
                // Words, and commands to copy, are not broken.
                let mut long = help.lines().filter(|line| line.chars().count() > WIDTH);
                assert_eq!(long.next(), None, "{}", command.get_name());
            }
            command.get_subcommands_mut().for_each(check);
        }
        let mut command = command();
        command.build();
        check(&mut command);
    }

    #[test]
    fn a_verb_has_no_examples_of_another_verb_of_its_name() {
        let mut command = command();
        let launcher = command.find_subcommand_mut("launcher").unwrap();
        let hooks = launcher.find_subcommand_mut("hooks").unwrap();
        let check = hooks.find_subcommand("check").unwrap();
        let end = check.get_after_help().unwrap().to_string();
        assert!(
            end.contains("hooks check") && !end.contains("--image"),
            "{end}"
        );
    }

    #[test]
    fn examples_are_understood() {
        let mut tried = 0;
        let all = command();
        let groups = ["guest", "launcher"].map(|name| all.find_subcommand(name));
        let inner = groups.into_iter().flatten();
        let verbs = inner
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
