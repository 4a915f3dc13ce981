//! Answers a shell that asks for completions.

use std::ffi::OsString;
use std::process::ExitCode;

use clap_complete::env::CompleteEnv;

/// Answers, if the environment variable COMPLETE is set, as the shell's script does.
pub fn complete(arguments: &[OsString]) -> Option<ExitCode> {
    let program = OsString::from("launcherctl");
    let arguments = [&program].into_iter().chain(arguments).cloned();
    let directory = std::env::current_dir().ok();
    let answers = CompleteEnv::with_factory(super::command);
    match answers.try_complete(arguments, directory.as_deref()) {
        Ok(false) => None,
        Ok(true) => Some(ExitCode::SUCCESS),
        Err(error) => {
            let _ = error.print();
            Some(ExitCode::from(2))
        }
    }
}
