//! Parsing in pflag's spellings: `--flag=value`, `--flag value`, `--switch`, `--switch=true`, `-v
//! 3`, `-v=3` and `-v3`. The last one of several counts; arguments that are not flags are ignored,
//! as in KubeVirt.

use std::ffi::OsString;

use lexopt::{Arg, Parser, ValueExt};

use super::{BadValue, Flag, GROUPS, LauncherFlags};

/// The command line's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    Run(Box<LauncherFlags>),
    /// Print [`super::usage`].
    Help,
    Version,
}

/// Why a command line is refused (exit status 2).
#[derive(Debug, thiserror::Error)]
pub enum FlagError {
    /// There is no such flag.
    #[error("unknown flag: {0}")]
    Unknown(String),
    /// The flag stands at the end, without its value.
    #[error("flag needs an argument: {0}")]
    NoValue(&'static str),
    /// The value is not of the flag's kind.
    #[error("invalid argument {value:?} for \"{flag}\" flag")]
    Invalid {
        /// The flag, with its dashes.
        flag: &'static str,
        value: String,
        /// What is wrong with it.
        #[source]
        source: BadValue,
    },
    /// An argument is not text.
    #[error("argument {0:?} is not UTF-8")]
    NotText(OsString),
}

impl LauncherFlags {
    /// Parses the arguments that follow the program's name.
    ///
    /// # Errors
    /// At the first flag that is unknown, lacks its value or has a wrong one.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Parsed, FlagError> {
        let mut config = Self::default();
        let mut parser = Parser::from_args(args);
        loop {
            let name = match parser.next().map_err(refused)? {
                None => return Ok(Parsed::Run(Box::new(config))),
                Some(Arg::Value(_)) => continue,
                Some(Arg::Short('h') | Arg::Long("help")) => return Ok(Parsed::Help),
                Some(Arg::Long("version")) => return Ok(Parsed::Version),
                Some(Arg::Short('v')) => "--v".to_owned(),
                Some(Arg::Short(other)) => return Err(FlagError::Unknown(format!("-{other}"))),
                Some(Arg::Long(name)) => format!("--{name}"),
            };
            let flag = find(&name).ok_or(FlagError::Unknown(name))?;
            set(&mut config, flag, &mut parser)?;
        }
    }

    /// Parses for virt-launcher-monitor, which has the launcher's arguments: flags that are unknown
    /// or have a wrong value are ignored, as the launcher will refuse them.
    #[must_use]
    pub fn parse_known(args: impl IntoIterator<Item = OsString>) -> Self {
        let mut config = Self::default();
        let mut parser = Parser::from_args(args);
        loop {
            let name = match parser.next() {
                Ok(None) => return config,
                Ok(Some(Arg::Short('v'))) => "--v".to_owned(),
                Ok(Some(Arg::Long(name))) => format!("--{name}"),
                Ok(Some(Arg::Short(_) | Arg::Value(_))) | Err(_) => continue,
            };
            match find(&name) {
                Some(flag) => drop(set(&mut config, flag, &mut parser)),
                None => drop(parser.optional_value()),
            }
        }
    }
}

fn find(name: &str) -> Option<&'static Flag> {
    let mut flags = GROUPS.iter().flat_map(|group| group.flags);
    flags.find(|flag| flag.name() == name)
}

/// Reads the flag's value. For a switch the next argument is never the value.
fn set(
    config: &mut LauncherFlags,
    flag: &'static Flag,
    parser: &mut Parser,
) -> Result<(), FlagError> {
    let value = match (flag.is_switch, parser.optional_value()) {
        (_, Some(value)) => value,
        (true, None) => "true".into(),
        (false, None) => parser
            .value()
            .map_err(|_| FlagError::NoValue(flag.name()))?,
    };
    let value = value.string().map_err(refused)?;
    (flag.set)(config, &value).map_err(|source| FlagError::Invalid {
        flag: flag.name(),
        value,
        source,
    })
}

/// Arguments that the parser itself refuses.
fn refused(error: lexopt::Error) -> FlagError {
    match error {
        lexopt::Error::NonUnicodeValue(value) => FlagError::NotText(value),
        lexopt::Error::UnexpectedOption(name) => FlagError::Unknown(name),
        other => FlagError::Unknown(other.to_string()),
    }
}
