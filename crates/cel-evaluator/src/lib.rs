//! Evaluates CEL expressions over `vmi` and `domainSpec`: conditions, and mutations of the domain.
//! The launcher starts the program in `main.rs` for each expression.
//!
//! ```text
//!  text ─► parse ─► check types ─► evaluate ─► bool
//!          └───── compile ─────┘         └────► Domain{…} ─► merge into the domain XML
//! ```
//!
//! The values are read from the domain XML and the VMI's JSON ([`object`]). Two tables of types,
//! `libvirtxml.txt` and `vmi.txt`, have the place of each value ([`schema`]).
#![forbid(unsafe_code)]

mod checker;
mod compile;
mod error;
mod expr_type;
mod json_data;
mod merge;
mod object;
mod schema;
mod udp_source;
mod xml_data;

use std::sync::Arc;

use cel::common::types::{CelBool, CelStruct};
use cel::common::value::{CowVal, Val};
use cel::{Context, Value as CelValue};
use domain::xml::tree::Element;
use serde_json::Value;

use self::expr_type::ExprType;
use self::json_data::JsonData;
use self::object::Object;
use self::schema::StructType;
use self::xml_data::XmlData;
pub use error::{CompileError, EvaluationError, ExpressionError, MergeError, MergeReason};

#[derive(Debug, Clone)]
pub struct ExpressionInput {
    /// The variable `domainSpec`.
    pub domain: Arc<Element>,
    /// The variable `vmi`.
    pub vmi: Arc<Value>,
}

/// Evaluates the condition `text`.
///
/// # Errors
/// The expression is invalid, fails, or is not a condition.
pub fn condition(text: &str, input: &ExpressionInput) -> Result<bool, ExpressionError> {
    let program = compile::compile(text)?;
    if !matches!(program.result, ExprType::Bool | ExprType::Dyn) {
        return Err(ExpressionError::NotBool {
            found: program.result.to_string(),
        });
    }
    let domain = udp_source::join(&input.domain);
    let context = context(program.env, domain, &input.vmi);
    let value = evaluate(&program.expression, &context)?;
    match value.downcast_ref::<CelBool>() {
        Some(holds) => Ok(*holds.inner()),
        None => Err(ExpressionError::NotBool {
            found: value.get_type().name().to_owned(),
        }),
    }
}

/// Evaluates the mutation `text` and merges its result into the domain.
///
/// # Errors
/// The expression is invalid, fails, or is not a mutation; or its result does not fit the domain.
pub fn mutation(text: &str, input: &ExpressionInput) -> Result<Element, ExpressionError> {
    let program = compile::compile(text)?;
    let is_domain = |of: &StructType| schema::domain() == Some(of);
    let may_be_domain = match program.result {
        ExprType::Dyn => true,
        ExprType::Struct(of) => is_domain(of),
        _ => false,
    };
    if !may_be_domain {
        return Err(ExpressionError::NotDomain {
            found: program.result.to_string(),
        });
    }
    let domain = udp_source::join(&input.domain);
    let context = context(program.env, Arc::clone(&domain), &input.vmi);
    let value = evaluate(&program.expression, &context)?;
    let mutation = value
        .downcast_ref::<CelStruct<'_>>()
        .and_then(|of| Some((of, schema::domain()?)))
        .filter(|(of, domain)| *of.get_type() == domain.cel_type);
    let Some((mutation, domain_type)) = mutation else {
        return Err(ExpressionError::NotDomain {
            found: value.get_type().name().to_owned(),
        });
    };
    let mut domain = Element::clone(&domain);
    merge::merge(domain_type, &mut domain, mutation)?;
    udp_source::split(&mut domain);
    Ok(domain)
}

fn context(
    env: Arc<cel::Env>,
    domain: Arc<Element>,
    vmi: &Arc<Value>,
) -> Context<'static, 'static> {
    let mut context = Context::with_env(env);
    for (name, of) in schema::variables() {
        let value: Box<dyn Val> = match name {
            "vmi" => Box::new(Object {
                of,
                data: JsonData(Arc::clone(vmi)),
            }),
            _ => Box::new(Object {
                of,
                data: XmlData::root(Arc::clone(&domain)),
            }),
        };
        context.add_variable_as_val(name, value);
    }
    context
}

fn evaluate<'c>(
    expression: &'c cel::IdedExpr,
    context: &'c Context<'static, 'static>,
) -> Result<CowVal<'c, 'static>, ExpressionError> {
    CelValue::resolve_val(expression, context)
        .map_err(|error| ExpressionError::Evaluate(EvaluationError(error)))
}

#[cfg(test)]
mod tests;
