//! From the text of an expression to something that can be evaluated.

use std::collections::BTreeMap;
use std::sync::Arc;

use cel::common::types::{CelStruct, Type as CelType};
use cel::common::value::{CowVal, Val};
use cel::{Env, ExecutionError, IdedExpr, StructType as CelStructType};

use super::error::CompileError;
use super::expr_type::ExprType;
use super::schema::StructType;
use super::{checker, cost};

/// Limit of an expression's text.
const MAX_BYTES: usize = 32 << 10;
/// Limit of nested brackets; the same as in KubeVirt.
const MAX_NESTING: usize = 250;
/// Limit of operators. A chain of them is parsed into a tree as deep as it is long.
const MAX_OPERATORS: usize = 4_000;

/// A compiled expression.
pub struct Program {
    /// What is evaluated.
    pub expression: IdedExpr,
    /// The functions and types that it uses.
    pub env: Arc<Env>,
    /// The type of its result.
    pub result: ExprType,
}

/// Compiles the expression.
///
/// # Errors
/// If it is beyond a limit, has a syntax error, or does not pass the [`checker`].
pub fn compile(text: &str) -> Result<Program, CompileError> {
    check_limits(text)?;
    let mut env = Env::stdlib().with_optional_support(false);
    let mut expression = env.compile(text)?.expression().clone();
    let checked = checker::check(&mut expression)?;
    for of in checked.constructed {
        env.add_type(SparseStruct(of))?;
    }
    cost::instrument(&mut expression);
    cost::declare(&mut env)?;
    Ok(Program {
        expression,
        env: Arc::new(env),
        result: checked.result,
    })
}

/// Refuses what would need more stack to parse and to evaluate than the thread has.
fn check_limits(text: &str) -> Result<(), CompileError> {
    if text.len() > MAX_BYTES {
        return Err(CompileError::TooLong {
            bytes: text.len(),
            limit: MAX_BYTES,
        });
    }
    let operators = text.bytes().filter(|byte| b"+-*/%!?.<>=&|".contains(byte));
    let count = operators.count();
    if count > MAX_OPERATORS {
        return Err(CompileError::TooManyOperators {
            count,
            limit: MAX_OPERATORS,
        });
    }
    let mut depth = 0_usize;
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth = depth.saturating_add(1),
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_NESTING {
            return Err(CompileError::TooDeep { limit: MAX_NESTING });
        }
    }
    Ok(())
}

/// The constructor of a struct type. The struct has only the fields that the expression names, so that a merge can tell
/// them from those that are zero.
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
