//! Why an expression has no result. Texts that plugin authors may know are KubeVirt's.

use std::fmt;

use cel::{ExecutionError, Value};
use domain::xml::ReadError;

#[derive(Debug, thiserror::Error)]
pub enum ExpressionError {
    /// The expression is invalid.
    #[error("compiling expression")]
    Compile(#[from] CompileError),
    #[error("evaluating expression")]
    Evaluate(#[source] EvaluationError),
    /// The result of a condition is not a boolean.
    #[error("condition must return bool, got {found}")]
    NotBool {
        /// The result's type.
        found: String,
    },
    /// The result of a mutation is not a domain.
    #[error("mutation must return a Domain object, got {found}")]
    NotDomain { found: String },
    /// The result cannot be merged into the domain.
    #[error(transparent)]
    Merge(#[from] MergeError),
}

#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    #[error("expression code point size exceeds limit: size: {size}, limit {limit}")]
    TooLong {
        /// Size of the expression, in characters.
        size: usize,
        limit: usize,
    },
    /// A syntax error, or more than 95 nested brackets: the recursion limit of `cel`'s parser.
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
    /// A field of a type without fields.
    #[error("type '{operand}' does not support field selection")]
    NotSelectable { operand: String },
    /// A field set to a value of another type.
    #[error(
        "expected type of field '{field}' of {of} is '{expected}' but provided type is '{found}'"
    )]
    FieldType {
        field: String,
        /// The struct type.
        of: &'static str,
        expected: String,
        /// The value's type.
        found: String,
    },
    /// An operator that does not take operands of these types.
    #[error("found no matching overload for '{function}' applied to '({operands})'")]
    NoOverload { function: String, operands: String },
    /// The CEL library refuses a declared name: a bug of the launcher.
    #[error(transparent)]
    Declaration(#[from] cel::DeclarationError),
}

/// An operation that failed. Where the library's text differs from KubeVirt's, this has KubeVirt's.
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

/// A field that a mutation cannot set.
#[derive(Debug, thiserror::Error)]
#[error("{}", path.join("."))]
pub struct MergeError {
    /// The field, from the outermost struct: `Domain`, `Devices`, `Disks`.
    pub path: Vec<&'static str>,
    #[source]
    pub reason: Box<MergeReason>,
}

#[derive(Debug, thiserror::Error)]
pub enum MergeReason {
    /// A value of a wrong type. Only a `dyn` value passes the check before the evaluation.
    #[error("expected {expected} but got {found}")]
    Type {
        expected: String,
        /// The value's type.
        found: String,
    },
    /// The struct lacks the field.
    #[error("undefined field '{field}' of {of}")]
    UndefinedField {
        field: String,
        /// The struct type.
        of: &'static str,
    },
    /// The text for an element's content is not XML.
    #[error(transparent)]
    Xml(#[from] ReadError),
}
