//! Writes `authorized_keys` by `guest-file-open` and `guest-exec`, for agents without
//! `guest-ssh-add-authorized-keys`. The guest needs `getent`, `mkdir`, `chown` and `chmod`.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::launcher::error::LauncherError;
use crate::launcher::guest_agent::error::AgentError;
use crate::launcher::guest_agent::exec::{AgentCommands, GuestCommand};
use domain::guest_agent::answer;

/// Limit of a command in the guest.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest `authorized_keys` that is read. A longer file is replaced.
const MAX_FILE_BYTES: usize = 1 << 20;
/// Part of the agent's error for a missing file, on Linux and BSD.
const NO_FILE: &str = "No such file or directory";

/// A user of the guest.
#[derive(Debug, PartialEq, Eq)]
struct Account {
    home: String,
    /// `<uid>:<gid>`.
    owner: String,
}

/// Makes `authorized_keys` contain exactly these keys. `call_timeout` limits each agent call.
pub(super) async fn write(
    commands: &AgentCommands,
    user: &str,
    keys: &[String],
    call_timeout: Duration,
) -> Result<(), LauncherError> {
    let guest = Guest {
        commands,
        call_timeout,
    };
    let passwd = guest.run("getent", &["passwd", user]).await?;
    let account = account(&passwd).ok_or_else(|| AgentError::NoAccount(user.to_owned()))?;
    let dir = format!("{}/.ssh", account.home);
    let file = format!("{dir}/authorized_keys");
    let wanted = keys.join("\n");
    let present = guest.read(&file).await?;
    if present.as_deref() == Some(wanted.as_bytes()) {
        return Ok(());
    }
    guest.run("mkdir", &["-p", &dir]).await?;
    guest.run("chown", &[&account.owner, &dir]).await?;
    guest.run("chmod", &["700", &dir]).await?;
    guest.write(&file, &wanted).await?;
    guest.run("chown", &[&account.owner, &file]).await?;
    guest.run("chmod", &["600", &file]).await?;
    Ok(())
}

/// Parses a line of `getent passwd`.
fn account(line: &str) -> Option<Account> {
    let parts: Vec<&str> = line.trim().split(':').collect();
    let [_, _, uid, gid, _, home, ..] = parts[..] else {
        return None;
    };
    home.starts_with('/').then(|| Account {
        home: home.to_owned(),
        owner: format!("{uid}:{gid}"),
    })
}

/// The guest's files and programs.
struct Guest<'a> {
    commands: &'a AgentCommands,
    call_timeout: Duration,
}

impl Guest<'_> {
    /// The file's content; `None` if it is missing.
    async fn read(&self, path: &str) -> Result<Option<Vec<u8>>, LauncherError> {
        let opened = self
            .ask("guest-file-open", json!({"path": path, "mode": "r"}))
            .await;
        let handle = match opened {
            Ok(answer) => answer::file_handle(&answer)?,
            Err(error) if os::logging::chain(&error).contains(NO_FILE) => return Ok(None),
            Err(error) => return Err(error),
        };
        let read = json!({"handle": handle, "count": MAX_FILE_BYTES});
        let read = self.ask("guest-file-read", read).await;
        self.ask("guest-file-close", json!({"handle": handle}))
            .await?;
        let content = answer::file_content(&read?)?;
        Ok(BASE64_STANDARD.decode(content.data).ok())
    }

    async fn write(&self, path: &str, text: &str) -> Result<(), LauncherError> {
        let opened = self
            .ask("guest-file-open", json!({"path": path, "mode": "w"}))
            .await?;
        let handle = answer::file_handle(&opened)?;
        let data = BASE64_STANDARD.encode(text);
        let write = json!({"handle": handle, "buf-b64": data});
        let written = self.ask("guest-file-write", write).await;
        self.ask("guest-file-close", json!({"handle": handle}))
            .await?;
        written.map(drop)
    }

    async fn ask(&self, command: &'static str, arguments: Value) -> Result<String, LauncherError> {
        let command = json!({"execute": command, "arguments": arguments});
        let end = os::time::deadline(self.call_timeout);
        self.commands.ask(command.to_string(), end).await
    }

    /// Runs a command and returns its output; a nonzero exit status is an error.
    async fn run(
        &self,
        program: &'static str,
        arguments: &[&str],
    ) -> Result<String, LauncherError> {
        let command = GuestCommand {
            domain: String::new(),
            path: program.to_owned(),
            args: arguments.iter().map(|&word| word.to_owned()).collect(),
            timeout: COMMAND_TIMEOUT,
        };
        let output = self.commands.exec(command).await?;
        if output.exit_code == 0 {
            return Ok(output.stdout);
        }
        Err(AgentError::Failed {
            command: program,
            code: output.exit_code,
        }
        .into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_an_absolute_home() {
        let root = account("root:x:0:0:root:/root:/bin/bash\n");
        let expected = Account {
            home: "/root".into(),
            owner: "0:0".into(),
        };
        assert_eq!(root, Some(expected));
        assert_eq!(account("root:x:0:0:root::/bin/bash"), None);
        assert_eq!(account(""), None);
    }
}
