//! A verb's failure: the error of the module that failed, and lines printed below it. An error that
//! a caller tells from others has a type; others are a [`TextError`]. `?` turns both into a
//! [`CtlError`].

use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::io;

use client::refusal::{remedy, split_remedy, with_remedy};
use os::logging::chain;

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
    /// Adds a remedy, unless the causes name one.
    pub fn with_remedy(mut self, remedy: String) -> Self {
        self.remedy = Some(remedy);
        self
    }

    /// Adds lines to print below it.
    pub fn with_details(mut self, details: Vec<String>) -> Self {
        self.details = details;
        self
    }

    /// Joins several errors; `None` without any.
    pub fn of_several(mut errors: Vec<Self>) -> Option<Self> {
        if errors.len() < 2 {
            return errors.pop();
        }
        let count = TextError::new(format!("{} problems", errors.len()));
        let details = errors.iter().map(Self::chain).collect();
        Some(Self::from(count).with_details(details))
    }

    /// The module's error, if it has this type.
    pub fn of<E: Error + 'static>(&self) -> Option<&E> {
        self.source.downcast_ref()
    }

    /// Names the option that gave the file.
    pub fn in_option(self, option: String) -> Self {
        TextError::new(option).caused_by(self.source).into()
    }

    /// The error with its causes, on one line.
    pub fn chain(&self) -> String {
        chain(&*self.source)
    }

    /// The error with its causes and remedy.
    pub fn text(&self) -> String {
        let text = self.chain();
        let known = remedy(&text).filter(|_| split_remedy(&text).1.is_none());
        match self.remedy.as_deref().or(known) {
            Some(remedy) => with_remedy(&text, remedy),
            None => text,
        }
    }

    /// The lines to print below the error.
    pub fn details(&self) -> &[String] {
        &self.details
    }
}

/// A failure that no caller tells from others: what failed, why, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct TextError {
    text: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl TextError {
    pub fn new(text: String) -> Self {
        Self { text, source: None }
    }

    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}

/// A [`TextError`] of what `format!` takes.
macro_rules! text_error {
    ($($text:tt)*) => { $crate::error::TextError::new(format!($($text)*)) };
}

/// Returns a [`TextError`] of what `format!` takes.
macro_rules! fail {
    ($($text:tt)*) => { return Err($crate::error::text_error!($($text)*).into()) };
}

pub(crate) use {fail, text_error};

/// The async runtime, or its signal handlers, cannot start.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the runtime")]
pub struct RuntimeError(#[source] pub io::Error);
