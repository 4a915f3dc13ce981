//! Why an expression has no result. The texts are those of KubeVirt, where its authors may know
//! them.

use std::fmt;

use cel::{ExecutionError, Value};
use domain::xml::ReadError;

/// Why an expression has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExpressionError {
    /// The expression is wrong.
    #[error("compiling expression")]
    Compile(#[from] CompileError),
    /// An operation failed.
    #[error("evaluating expression")]
    Evaluate(#[source] EvaluationError),
    /// A condition with another result.
    #[error("condition must return bool, got {found}")]
    NotBool {
        /// The type of the result.
        found: String,
    },
    /// A mutation with another result.
    #[error("mutation must return a Domain object, got {found}")]
    NotDomain {
        /// The type of the result.
        found: String,
    },
    /// The result cannot be merged into the domain.
    #[error(transparent)]
    Merge(#[from] MergeError),
}

/// What is wrong with an expression.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// Too long.
    #[error("expression code point size exceeds limit: size: {size}, limit {limit}")]
    TooLong {
        /// Its length, in characters.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// A syntax error, or brackets nested too deeply.
    #[error(transparent)]
    Syntax(#[from] cel::ParseErrors),
    /// A struct type that does not exist.
    #[error("undeclared reference to '{name}'")]
    UndeclaredType {
        /// The name in the expression.
        name: String,
    },
    /// A field that does not exist.
    #[error("undefined field '{field}' of {of}")]
    UndefinedField {
        /// The name in the expression.
        field: String,
        /// The struct type.
        of: &'static str,
    },
    /// A field of something that has none.
    #[error("type '{operand}' does not support field selection")]
    NotSelectable {
        /// The type.
        operand: String,
    },
    /// A field set to a value of another type.
    #[error(
        "expected type of field '{field}' of {of} is '{expected}' but provided type is '{found}'"
    )]
    FieldType {
        /// The field.
        field: String,
        /// The struct type.
        of: &'static str,
        /// The field's type.
        expected: String,
        /// The value's type.
        found: String,
    },
    /// An operator that does not take operands of these types.
    #[error("found no matching overload for '{function}' applied to '({operands})'")]
    NoOverload {
        /// The operator.
        function: String,
        /// The types of the operands.
        operands: String,
    },
    /// A name that cannot be declared to the CEL library. A defect of this launcher.
    #[error(transparent)]
    Declaration(#[from] cel::DeclarationError),
}

/// An operation that failed. Shown in KubeVirt's words, where those of the library differ.
#[derive(Debug)]
pub struct EvaluationError(pub ExecutionError);

impl fmt::Display for EvaluationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ExecutionError::NoSuchKey(key) => write!(f, "no such key: {key}"),
            ExecutionError::IndexOutOfBounds(Value::Int(index)) => {
                write!(f, "index out of bounds: {index}")
            }
            ExecutionError::DivisionByZero(_) => f.write_str("division by zero"),
            ExecutionError::RemainderByZero(_) => f.write_str("modulus by zero"),
            ExecutionError::Overflow(..) => f.write_str("integer overflow"),
            ExecutionError::UndeclaredReference(name) => {
                write!(f, "undeclared reference to '{name}'")
            }
            other => fmt::Display::fmt(other, f),
        }
    }
}

impl std::error::Error for EvaluationError {}

/// A field of a mutation that cannot be set.
#[derive(Debug, thiserror::Error)]
#[error("{}", path.join("."))]
pub struct MergeError {
    /// The field, from the outermost struct: `Domain`, `Devices`, `Disks`.
    pub path: Vec<&'static str>,
    /// Why.
    #[source]
    pub reason: Box<MergeReason>,
}

/// Why a field cannot be set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MergeReason {
    /// A value of another type. Only a `dyn` value gets past the check before the evaluation.
    #[error("expected {expected} but got {found}")]
    Type {
        /// The field's type.
        expected: String,
        /// The value's type.
        found: String,
    },
    /// The struct does not have the field.
    #[error("undefined field '{field}' of {of}")]
    UndefinedField {
        /// The name.
        field: String,
        /// The struct type.
        of: &'static str,
    },
    /// The text for an element's content is not XML.
    #[error(transparent)]
    Xml(#[from] ReadError),
}
