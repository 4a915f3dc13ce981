//! Answers a shell that asks for completions.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Command;
use clap_complete::engine;
use clap_complete::env::{Bash, CompleteEnv, EnvCompleter, Fish, Shells, Zsh};

/// Answers, if the environment variable COMPLETE is set, as the shell's script does.
pub fn complete(arguments: &[OsString]) -> Option<ExitCode> {
    let program = OsString::from("launcherctl");
    let arguments = [&program].into_iter().chain(arguments).cloned();
    let directory = std::env::current_dir().ok();
    let answers = CompleteEnv::with_factory(super::command);
    let answers = answers.shells(Shells(&[&BashWithWords, &Fish, &Zsh]));
    match answers.try_complete(arguments, directory.as_deref()) {
        Ok(false) => None,
        Ok(true) => Some(ExitCode::SUCCESS),
        Err(error) => {
            let _ = error.print();
            Some(ExitCode::from(2))
        }
    }
}

/// bash hands over `--disk NAME=FILE` as the words `--disk`, `NAME`, `=` and `FILE`, and wants only
/// the last one back.
struct BashWithWords;

impl EnvCompleter for BashWithWords {
    fn name(&self) -> &'static str {
        Bash.name()
    }

    fn is(&self, name: &str) -> bool {
        Bash.is(name)
    }

    fn write_registration(
        &self,
        var: &str,
        name: &str,
        bin: &str,
        completer: &str,
        buf: &mut dyn Write,
    ) -> io::Result<()> {
        Bash.write_registration(var, name, bin, completer, buf)
    }

    fn write_complete(
        &self,
        command: &mut Command,
        mut words: Vec<OsString>,
        directory: Option<&Path>,
        buf: &mut dyn Write,
    ) -> io::Result<()> {
        let setting = |name| std::env::var(name).ok();
        let index = setting("_CLAP_COMPLETE_INDEX").and_then(|it| it.parse().ok());
        words.truncate(index.map_or(usize::MAX, |index: usize| index.saturating_add(1)));
        let prefix = join_last(&mut words);
        let last = words.len().saturating_sub(1);
        let found = engine::complete(command, words, last, directory)?;
        let values = found.iter().map(|it| it.get_value().to_string_lossy());
        let values = values.map(|it| it.strip_prefix(&*prefix).unwrap_or(&it).to_owned());
        let separator = setting("_CLAP_IFS").unwrap_or_else(|| "\n".to_owned());
        write!(buf, "{}", values.collect::<Vec<_>>().join(&separator))
    }
}

/// Joins `NAME`, `=` and `FILE` at the end of the words. Returns `NAME=`.
fn join_last(words: &mut Vec<OsString>) -> String {
    let [.., name, equals, file] = words.as_slice() else {
        return String::new();
    };
    if equals != "=" {
        return String::new();
    }
    let prefix = format!("{}=", name.to_string_lossy());
    let joined = format!("{prefix}{}", file.to_string_lossy());
    words.truncate(words.len().saturating_sub(3));
    words.push(joined.into());
    prefix
}
