//! Evaluates CEL expressions with the program `cel-evaluator`, one process for each: a hostile
//! expression ends only that process. The kernel enforces the limits.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use domain::excerpt;
use domain::xml::tree::Element;
use os::command::{self, CommandError, Limits};
use prost::bytes::Bytes;
use rustix::fs::{MemfdFlags, memfd_create};
use tokio::time::Instant;

use crate::timeout::display_limit;
use crate::work::{self, WorkError};

/// The evaluator's file name, in the launcher's directory.
const PROGRAM: &str = "cel-evaluator";
// D-hook-7 (docs/differences.md).
/// Limit of the evaluator's address space, in bytes. It reserves half of that for its stack.
const MAX_MEMORY: u64 = 512 << 20;
/// Limit of the evaluator's processor time, in seconds. virt-handler gives a sync 20 s.
const MAX_CPU: u64 = 10;
/// Longest error text, in characters. A syntax error quotes the expression.
const MAX_ERROR_CHARS: usize = 2_000;
/// The evaluator's exit status if the expression is invalid or fails.
const EXPRESSION_FAILED: i32 = 1;

#[derive(Debug, thiserror::Error)]
pub enum EvaluatorError {
    /// The expression is invalid or fails. The evaluator wrote the text.
    #[error("{0}")]
    Failed(String),
    #[error("the expression has no result after {}", display_limit(*after))]
    TimedOut { after: Duration },
    /// The evaluator does not start, or exceeded a limit.
    #[error("the expression cannot be evaluated")]
    Evaluator(#[source] CommandError),
    /// The input file cannot be made.
    #[error("the expression cannot be passed to {PROGRAM}")]
    Input(#[source] io::Error),
    #[error(transparent)]
    Work(WorkError),
}

/// Path of the program `cel-evaluator`.
#[derive(Debug, Clone)]
pub struct Evaluator(pub PathBuf);

impl Default for Evaluator {
    /// The program beside this program's executable.
    fn default() -> Self {
        let own = std::env::current_exe().unwrap_or_default();
        Self(own.with_file_name(PROGRAM))
    }
}

#[derive(Debug)]
pub struct PluginInput {
    /// The variable `domainSpec`.
    pub domain: Arc<Element>,
    /// The variable `vmi`.
    pub vmi: Bytes,
}

impl Evaluator {
    pub async fn condition(
        &self,
        text: &str,
        input: &PluginInput,
        deadline: Instant,
    ) -> Result<bool, EvaluatorError> {
        let answer = self.evaluate("condition", text, input, deadline).await?;
        Ok(answer == b"true")
    }

    /// The domain XML with the mutation's result. It is not checked.
    pub async fn mutation(
        &self,
        text: &str,
        input: &PluginInput,
        deadline: Instant,
    ) -> Result<Vec<u8>, EvaluatorError> {
        self.evaluate("mutation", text, input, deadline).await
    }

    async fn evaluate(
        &self,
        kind: &'static str,
        text: &str,
        PluginInput { domain, vmi }: &PluginInput,
        deadline: Instant,
    ) -> Result<Vec<u8>, EvaluatorError> {
        let after = deadline.saturating_duration_since(Instant::now());
        let (program, text) = (self.0.clone(), text.to_owned());
        let (domain, vmi) = (Arc::clone(domain), vmi.clone());
        let run = move || {
            let input = input_file(&text, &domain.to_xml(), &vmi);
            let limits = Limits {
                memory: MAX_MEMORY,
                cpu: MAX_CPU,
                wall: deadline.saturating_duration_since(Instant::now()),
            };
            let input = input.map_err(EvaluatorError::Input)?;
            let answer = command::run(program, [kind], &[], Some(input), limits);
            answer.map_err(|error| match error {
                CommandError::Failed { status, stderr, .. }
                    if status.code() == Some(EXPRESSION_FAILED) =>
                {
                    EvaluatorError::Failed(excerpt(&stderr, MAX_ERROR_CHARS))
                }
                CommandError::TimedOut { .. } => EvaluatorError::TimedOut { after },
                error => EvaluatorError::Evaluator(error),
            })
        };
        match work::until(deadline, run).await {
            Ok(answer) => answer,
            Err(WorkError::TimedOut { .. }) => Err(EvaluatorError::TimedOut { after }),
            Err(error) => Err(EvaluatorError::Work(error)),
        }
    }
}

fn input_file(text: &str, domain: &str, vmi: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(PROGRAM, MemfdFlags::CLOEXEC)?);
    let parts = [text.as_bytes(), domain.as_bytes(), vmi];
    file.write_all(&parts.join(&0))?;
    file.rewind()?;
    Ok(file)
}
