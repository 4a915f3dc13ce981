//! What a verb fails with: the typed error of the module that failed, and what is printed below it. Each module has its own
//! error type, which `?` makes a [`CtlError`].

use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::io;

use client::refusal::with_remedy;
use os::logging::chain;

/// A failure of a verb.
#[derive(Debug)]
pub struct CtlError {
    source: Box<dyn Error + Send + Sync>,
    remedy: Option<String>,
    details: Vec<String>,
}

impl<E: Error + Send + Sync + 'static> From<E> for CtlError {
    fn from(source: E) -> Self {
        Self {
            source: Box::new(source),
            remedy: None,
            details: Vec::new(),
        }
    }
}

impl Display for CtlError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl CtlError {
    /// Adds what to do about it, where its causes do not say that.
    #[must_use]
    pub fn with_remedy(mut self, remedy: String) -> Self {
        self.remedy = Some(remedy);
        self
    }

    /// Adds lines to print below it.
    #[must_use]
    pub fn with_details(mut self, details: Vec<String>) -> Self {
        self.details = details;
        self
    }

    /// One error of several; none if there are none.
    #[must_use]
    pub fn of_several(mut errors: Vec<Self>) -> Option<Self> {
        match errors.len() {
            0 | 1 => errors.pop(),
            problems => {
                let details = errors.iter().map(Self::chain).collect();
                Some(Self::from(Several { problems }).with_details(details))
            }
        }
    }

    /// The module's error, if it is of this type.
    #[must_use]
    pub fn of<E: Error + 'static>(&self) -> Option<&E> {
        self.source.downcast_ref()
    }

    /// The module's error, as the cause of another.
    #[must_use]
    pub fn into_source(self) -> Box<dyn Error + Send + Sync> {
        self.source
    }

    /// The error with its causes, in a line.
    #[must_use]
    pub fn chain(&self) -> String {
        chain(&*self.source)
    }

    /// The error with its causes, and what to do about it.
    #[must_use]
    pub fn text(&self) -> String {
        match &self.remedy {
            Some(remedy) => with_remedy(&self.chain(), remedy),
            None => self.chain(),
        }
    }

    /// What to print below the error.
    #[must_use]
    pub fn details(&self) -> &[String] {
        &self.details
    }
}

/// More than one thing is missing or wrong.
#[derive(Debug, thiserror::Error)]
#[error("{problems} problems")]
struct Several {
    problems: usize,
}

/// The async runtime, or its signal handlers, cannot start.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the runtime")]
pub struct RuntimeError(#[source] pub io::Error);
