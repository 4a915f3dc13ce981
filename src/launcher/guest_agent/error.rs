use std::time::Duration;

/// Why a request to the guest's agent failed.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The request is about another domain.
    #[error("this launcher owns the domain {ours}; the request is about {theirs}")]
    ForeignDomain {
        /// `<namespace>_<name>`.
        ours: String,
        /// `<namespace>_<name>` from the request.
        theirs: String,
    },
    /// The agent did not start the command.
    #[error("the guest agent has not started \"{command}\": its process id is {pid}")]
    NoProcess {
        command: String,
        /// The agent's answer.
        pid: i64,
    },
    /// The command did not end in time; it continues in the guest.
    #[error("\"{command}\" (process {pid} in the guest) has not ended within {} s; it still runs", after.as_secs())]
    StillRuns {
        command: String,
        /// The command's process id in the guest.
        pid: i64,
        /// The limit.
        after: Duration,
    },
    /// The command's output is not base64.
    #[error("the output of \"{command}\" cannot be decoded")]
    Output {
        command: String,
        #[source]
        source: base64::DecodeError,
    },
    /// The agent does not answer, so no credentials can be set. The text is KubeVirt's.
    #[error("Guest agent is offline")]
    Offline,
    /// An access credential could not be set.
    #[error("Error encountered {what} for user [{user}]")]
    Credential {
        /// In the words of the condition's message: `setting password`.
        what: &'static str,
        user: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Neither the agent's command nor writing the file has set a user's SSH keys.
    #[error(
        "the guest agent does not set SSH keys ({command}), and authorized_keys is not written"
    )]
    Keys {
        /// The error of the command.
        command: String,
        #[source]
        file: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The guest does not know the user or the user's home directory.
    #[error("the guest does not know the home directory of its user \"{0}\"")]
    NoAccount(String),
    /// A program in the guest failed.
    #[error("\"{command}\" has failed in the guest, with status {code}")]
    Failed { command: &'static str, code: i32 },
    /// A freeze was requested during a migration.
    #[error(
        "the guest's file systems are not frozen while it migrates; try again when the migration has ended"
    )]
    Migrating,
    /// The agent was busy with other calls. The freeze was not begun.
    #[error("the guest could not be frozen within {} s; try again", .0.as_secs())]
    Late(Duration),
}
