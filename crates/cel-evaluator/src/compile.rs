//! Compiles the text of an expression.

use std::collections::BTreeMap;
use std::sync::Arc;

use cel::common::types::{CelStruct, Type as CelType};
use cel::common::value::{CowVal, Val};
use cel::{Env, ExecutionError, IdedExpr, ParseErrors, StructType as CelStructType};

use super::checker;
use super::error::CompileError;
use super::expr_type::ExprType;
use super::schema::StructType;

/// Limit of an expression's length, in characters; the same as in KubeVirt.
const MAX_CHARS: usize = 100_000;

pub struct Program {
    pub expression: IdedExpr,
    /// The functions and types that the expression may use.
    pub env: Arc<Env>,
    /// The type of the result.
    pub result: ExprType,
}

/// Compiles the expression.
///
/// # Errors
/// The expression is too long, has a syntax error, or fails the [`checker`].
pub fn compile(text: &str) -> Result<Program, CompileError> {
    let size = text.chars().count();
    if size > MAX_CHARS {
        return Err(CompileError::TooLong {
            size,
            limit: MAX_CHARS,
        });
    }
    let mut env = Env::stdlib().with_optional_support(false);
    let compiled = env.compile(text).map_err(without_far_snippets)?;
    let mut expression = compiled.expression().clone();
    let checked = checker::check(&mut expression)?;
    for of in checked.constructed {
        env.add_type(SparseStruct(of))?;
    }
    Ok(Program {
        expression,
        env: Arc::new(env),
        result: checked.result,
    })
}

/// Leaves out the line of an error so far behind its start that the mark below would be wider than
/// a text can be padded.
fn without_far_snippets(mut errors: ParseErrors) -> ParseErrors {
    for error in &mut errors.errors {
        if u16::try_from(error.pos.1).is_err() {
            error.source_info = None;
        }
    }
    errors
}

/// Constructs a struct with only the fields that the expression sets, so that a merge can tell a
/// field set to zero from a field that is not set.
struct SparseStruct(&'static StructType);

impl CelStructType for SparseStruct {
    fn get_type(&self) -> &CelType {
        &self.0.cel_type
    }

    fn new_value<'b, 'v>(
        &self,
        fields: BTreeMap<String, CowVal<'b, 'v>>,
    ) -> Result<Box<dyn Val + 'v>, ExecutionError> {
        let mut value = CelStruct::new(self.0.cel_type.name().to_owned());
        for (name, field) in fields {
            value.add_field_value(name, field);
        }
        Ok(Box::new(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syntax_error_far_behind_the_start_of_its_line_has_a_place() {
        let text = format!("'{}' +", "x".repeat(90_000));
        let error = compile(&text).err().map(|error| error.to_string());
        let error = error.unwrap_or_default();
        assert!(error.starts_with("ERROR: <input>:1:9"), "{error:.200}");
    }
}
