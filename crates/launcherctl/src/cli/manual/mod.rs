//! Man pages and shell completions of every program, made from what their `--help` is made from: `make install` lays
//! them out.

mod completion;

use clap::{Arg, Command};

pub use completion::{Shell, completion};

/// What is to be known of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Manual {
    /// Its name.
    pub name: String,
    /// Its purpose, in a line.
    pub purpose: String,
    /// The text of `--help`.
    pub help: String,
    /// Its options.
    pub options: Vec<Word>,
    /// What it can do, each with options of its own.
    pub verbs: Vec<Verb>,
}

/// A word of the command line, and what it means.
#[derive(Debug, Clone, PartialEq)]
pub struct Word {
    /// As it is written.
    pub word: String,
    /// What it means; may be empty.
    pub help: String,
}

/// A verb of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Verb {
    /// Its name and purpose.
    pub word: Word,
    /// Its options, and verbs below it.
    pub options: Vec<Word>,
    /// The text of its `--help`.
    pub help: String,
}

impl Manual {
    /// Of a program whose options are words of its help text.
    #[must_use]
    pub fn of_help(name: &str, purpose: &str, help: String) -> Self {
        let mut options: Vec<Word> = Vec::new();
        for line in help.lines() {
            for word in line.split([' ', ',', '[', ']', '=', ';', '.']) {
                let is_option = word.starts_with("--") && word.len() > 2;
                if is_option && !options.iter().any(|option| option.word == word) {
                    // A line that begins with the option explains it.
                    let is_explained = line.trim_start().starts_with(word);
                    let explained = line.trim_start().split_once("  ");
                    let help = explained
                        .filter(|_| is_explained)
                        .map(|(_, help)| help.trim());
                    options.push(Word {
                        word: word.to_owned(),
                        help: help.unwrap_or_default().to_owned(),
                    });
                }
            }
        }
        Self {
            name: name.to_owned(),
            purpose: purpose.to_owned(),
            help,
            options,
            verbs: Vec::new(),
        }
    }

    /// Of a program with verbs.
    #[must_use]
    pub fn of_clap(mut command: Command, purpose: &str) -> Self {
        command.build();
        let verbs = command
            .get_subcommands()
            .filter(|verb| verb.get_name() != "help" && !verb.is_hide_set());
        let verbs = verbs.map(verb).collect();
        Self {
            name: command.get_name().to_owned(),
            purpose: purpose.to_owned(),
            help: command.clone().render_help().to_string(),
            options: options(&command),
            verbs,
        }
    }

    /// The man page, for section 1.
    #[must_use]
    pub fn page(&self, version: &str) -> String {
        let name = roff(&self.name);
        let mut page = format!(
            ".TH \"{}\" 1 \"\" \"virt-launcher {}\"\n.SH NAME\n{name} \\- {}\n.SH SYNOPSIS AND OPTIONS\n{}",
            name.to_uppercase(),
            roff(version),
            roff(&self.purpose),
            literal(&self.help)
        );
        if !self.verbs.is_empty() {
            page.push_str(".SH COMMANDS\n");
        }
        for verb in &self.verbs {
            page.push_str(&format!(
                ".SS {}\n{}",
                roff(&verb.word.word),
                literal(&verb.help)
            ));
        }
        page
    }
}

fn verb(command: &Command) -> Verb {
    let mut options = options(command);
    let below = command
        .get_subcommands()
        .filter(|verb| verb.get_name() != "help");
    options.extend(below.map(name_and_purpose));
    Verb {
        word: name_and_purpose(command),
        options,
        help: command.clone().render_help().to_string(),
    }
}

fn name_and_purpose(command: &Command) -> Word {
    let about = command.get_about().map(ToString::to_string);
    Word {
        word: command.get_name().to_owned(),
        help: about.unwrap_or_default(),
    }
}

fn options(command: &Command) -> Vec<Word> {
    let is_shown = |option: &&Arg| !option.is_hide_set();
    let options = command.get_arguments().filter(is_shown);
    let word = |option: &Arg| {
        let help = option.get_help().map(ToString::to_string);
        Some(Word {
            word: format!("--{}", option.get_long()?),
            help: help.unwrap_or_default(),
        })
    };
    options.filter_map(word).collect()
}

/// Text as roff: no character of it is a request or a hyphen.
fn roff(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// Text whose lines stay as they are.
fn literal(text: &str) -> String {
    let lines = text.trim_end().lines();
    // A line that begins with one of these would be a request.
    let lines = lines.map(|line| match line.chars().next() {
        Some('.' | '\'') => format!("\\&{}\n", roff(line)),
        _ => format!("{}\n", roff(line)),
    });
    format!(".nf\n{}.fi\n", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn example() -> Manual {
        let option = |name: &'static str| Arg::new(name).long(name).help(format!("help of {name}"));
        let start = Command::new("start")
            .about("Start it: now")
            .arg(option("fast"));
        let command = Command::new("tool")
            .arg(option("all").global(true))
            .subcommand(start)
            .subcommand(Command::new("stop").about("Stop it"));
        Manual::of_clap(command, "does 'things'")
    }

    #[test]
    fn verbs_have_their_options_and_the_global_ones() {
        let manual = example();
        let names = |words: &[Word]| {
            let words = words.iter().map(|word| word.word.clone());
            words.collect::<Vec<_>>()
        };
        assert_eq!(manual.verbs.len(), 2);
        assert_eq!(
            names(&manual.verbs[0].options),
            ["--fast", "--all", "--help"]
        );
        assert_eq!(names(&manual.options), ["--all", "--help"]);
    }

    #[test]
    fn options_are_found_in_a_help_text() {
        let help =
            "usage: tail --logfile FILE [-v N]\n\n  --logfile FILE   what to follow\n  -h, --help";
        let manual = Manual::of_help("tail", "follows", help.to_owned());
        let words: Vec<&str> = manual.options.iter().map(|it| it.word.as_str()).collect();
        assert_eq!(words, ["--logfile", "--help"]);
    }

    #[test]
    fn no_line_of_a_page_is_taken_for_a_request() {
        let manual = Manual::of_help("x-y", "p", ".SH evil\n'quoted\nC:\\path --a-b".to_owned());
        let page = manual.page("1.0");
        assert!(page.starts_with(".TH \"X\\-Y\" 1"));
        assert!(
            page.contains("\\&.SH evil\n\\&'quoted\nC:\\epath \\-\\-a\\-b\n.fi\n"),
            "{page}"
        );
    }
}
