//! Completions of the command line for bash, zsh and fish: verbs first, then the options of the verb, else files.

use std::fmt::Write;
use std::str::FromStr;

use super::{Manual, Word};

/// A shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shell {
    /// bash.
    Bash,
    /// zsh.
    Zsh,
    /// fish.
    Fish,
}

impl FromStr for Shell {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "bash" => Ok(Self::Bash),
            "zsh" => Ok(Self::Zsh),
            "fish" => Ok(Self::Fish),
            _ => Err(()),
        }
    }
}

/// The file that makes a shell complete the program's command line.
#[must_use]
pub fn completion(shell: Shell, manual: &Manual) -> String {
    match shell {
        Shell::Bash => bash(manual),
        Shell::Zsh => zsh(manual),
        Shell::Fish => fish(manual),
    }
}

/// In single quotes, for any of the shells.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "’").replace('\\', "/"))
}

fn words(words: &[Word]) -> String {
    let words: Vec<&str> = words.iter().map(|word| word.word.as_str()).collect();
    words.join(" ")
}

fn bash(manual: &Manual) -> String {
    let function = format!("_{}", manual.name.replace('-', "_"));
    let mut cases = String::new();
    for verb in &manual.verbs {
        // Writing to a text does not fail.
        let _ = writeln!(
            cases,
            "        {}) words={} ;;",
            verb.word.word,
            quoted(&words(&verb.options))
        );
    }
    let verbs: Vec<Word> = manual.verbs.iter().map(|verb| verb.word.clone()).collect();
    let first = [words(&verbs), words(&manual.options)].join(" ");
    format!(
        "{function}() {{\n    local words={}\n    [ \"$COMP_CWORD\" -lt 2 ] || case ${{COMP_WORDS[1]}} in\n{cases}        *) words={} ;;\n    esac\n    \
        COMPREPLY=($(compgen -W \"$words\" -- \"${{COMP_WORDS[COMP_CWORD]}}\"))\n}}\ncomplete -o default -F {function} {}\n",
        quoted(first.trim()),
        quoted(&words(&manual.options)),
        manual.name
    )
}

fn zsh(manual: &Manual) -> String {
    // A colon ends the word, so one of the word itself is written with a backslash; words here have none.
    let list = |words: &[Word]| {
        let items = words
            .iter()
            .map(|word| quoted(&format!("{}:{}", word.word, word.help)));
        items.collect::<Vec<_>>().join(" ")
    };
    let mut cases = String::new();
    for verb in &manual.verbs {
        let _ = writeln!(
            cases,
            "        {}) words_of=({}) ;;",
            verb.word.word,
            list(&verb.options)
        );
    }
    let verbs: Vec<Word> = manual.verbs.iter().map(|verb| verb.word.clone()).collect();
    format!(
        "#compdef {}\nlocal -a words_of\nwords_of=({} {})\nif (( CURRENT > 2 )); then\n    case $words[2] in\n{cases}        *) words_of=({}) ;;\n    \
        esac\nfi\n_describe word words_of\n_files\n",
        manual.name,
        list(&verbs),
        list(&manual.options),
        list(&manual.options)
    )
}

fn fish(manual: &Manual) -> String {
    let mut text = String::new();
    let name = &manual.name;
    let mut add = |condition: &str, word: &Word| {
        let what = match word.word.strip_prefix("--") {
            Some(option) => format!("-l {option}"),
            None => format!("-a {}", word.word),
        };
        let _ = writeln!(
            text,
            "complete -c {name} {condition}{what} -d {}",
            quoted(&word.help)
        );
    };
    for option in &manual.options {
        add("", option);
    }
    for verb in &manual.verbs {
        add("-n __fish_use_subcommand ", &verb.word);
        let below = format!("-n '__fish_seen_subcommand_from {}' ", verb.word.word);
        for option in &verb.options {
            add(&below, option);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;
    use std::process::Command;

    /// What bash offers for this command line.
    fn offered(line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let script = format!(
            "{}\nCOMP_WORDS=({line}'') COMP_CWORD={}\n_tool\necho \"${{COMPREPLY[*]}}\"",
            bash(&example()),
            words.len() - 1
        );
        let output = Command::new("bash").args(["-c", &script]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn bash_offers_verbs_and_then_their_options() {
        assert_eq!(offered("tool st"), "start stop");
        assert_eq!(offered("tool start --"), "--fast --all --help");
        assert_eq!(offered("tool stop --f"), "");
        assert_eq!(offered("tool --a"), "--all");
    }

    #[test]
    fn each_word_is_explained_where_the_shell_shows_it() {
        let zsh = zsh(&example());
        assert!(zsh.starts_with("#compdef tool\n"));
        assert!(
            zsh.contains("start) words_of=('--fast:help of fast' "),
            "{zsh}"
        );
        let fish = fish(&example());
        for line in [
            "complete -c tool -n __fish_use_subcommand -a start -d 'Start it: now'\n",
            "complete -c tool -n '__fish_seen_subcommand_from start' -l fast -d 'help of fast'\n",
            "complete -c tool -l all -d 'help of all'\n",
        ] {
            assert!(fish.contains(line), "{line} in {fish}");
        }
    }

    /// Where the shell is installed, it reads the file.
    #[test]
    fn the_shells_that_are_here_read_their_files() {
        let dir = tempfile::tempdir().unwrap();
        for (name, shell) in [
            ("bash", Shell::Bash),
            ("zsh", Shell::Zsh),
            ("fish", Shell::Fish),
        ] {
            let file = dir.path().join(name);
            std::fs::write(&file, completion(shell, &example())).unwrap();
            if let Ok(output) = Command::new(name).arg("-n").arg(&file).output() {
                assert!(output.status.success(), "{name}: {output:?}");
            }
        }
    }
}
