//! Why the guest did not do what it was asked through its agent.

use std::path::PathBuf;
use std::time::Duration;

/// An error of an act.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The request is about another domain.
    #[error("this launcher owns the domain {ours}; the request is about {theirs}")]
    ForeignDomain {
        /// `<namespace>_<name>`.
        ours: String,
        /// The same, from the request.
        theirs: String,
    },
    /// The agent has not started the command.
    #[error("the guest agent has not started \"{command}\": its process id is {pid}")]
    NoProcess {
        /// The command's path.
        command: String,
        /// What the agent says.
        pid: i64,
    },
    /// The command has not ended in time; it goes on in the guest.
    #[error("\"{command}\" (process {pid} in the guest) has not ended within {} s; it still runs", after.as_secs())]
    StillRuns {
        /// The command's path.
        command: String,
        /// Its process id in the guest.
        pid: i64,
        /// The limit.
        after: Duration,
    },
    /// What the command printed is not base64.
    #[error("the output of \"{command}\" cannot be decoded")]
    Output {
        /// The command's path.
        command: String,
        /// Why.
        #[source]
        source: base64::DecodeError,
    },
    /// No access credentials reach the guest: its agent does not answer. In KubeVirt's words.
    #[error("{0}")]
    Offline(&'static str),
    /// An access credential could not be set.
    #[error("cannot set the {what} of the guest's user \"{user}\"")]
    Credential {
        /// SSH keys or password.
        what: &'static str,
        /// The user.
        user: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The guest does not know a user, or not its home directory.
    #[error("the guest does not know the home directory of its user \"{0}\"")]
    NoAccount(String),
    /// A program in the guest has failed.
    #[error("\"{command}\" has failed in the guest, with status {code}")]
    Failed {
        /// The program.
        command: &'static str,
        /// Its exit status.
        code: i32,
    },
    /// A freeze in the middle of a migration.
    #[error(
        "the guest's file systems are not frozen while it migrates; try again when the migration has ended"
    )]
    Migrating,
    /// The end of a freeze cannot be noted for the next launcher.
    #[error("the end of the freeze cannot be written to {}", path.display())]
    ThawDeadline {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}
