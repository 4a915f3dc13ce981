//! CEL expressions over `vmi` and `domainSpec`: conditions, and mutations of the domain.
//!
//! ```text
//!  text ─► limits ─► parse ─► check types ─► count costs ─► evaluate ─► bool
//!          └──────────── compile ─────────────────────┘          └────► Domain{…} ─► merge into the domain XML
//! ```
//!
//! The values are read from the domain XML and the VMI's JSON ([`object`]) by two tables of types ([`schema`]).

mod checker;
mod compile;
mod cost;
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
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use self::expr_type::ExprType;
use self::json_data::JsonData;
use self::object::Object;
use self::schema::StructType;
use self::xml_data::XmlData;
pub use error::{CompileError, EvaluationError, ExpressionError, MergeError, MergeReason};

/// Stack of the thread that compiles and evaluates an expression. Both are recursive, and this is enough for every
/// expression within the limits of [`compile`]. Only what is used of it takes memory.
const STACK_BYTES: usize = 256 << 20;

/// What an expression sees.
#[derive(Debug, Clone)]
pub struct Input {
    /// The domain XML, as `domainSpec`.
    pub domain: Arc<Element>,
    /// The VMI's JSON, as `vmi`.
    pub vmi: Arc<Value>,
}

impl Input {
    /// Whether the condition `text` holds.
    ///
    /// # Errors
    /// If it is wrong, fails, costs too much, or has no result at the deadline.
    pub async fn condition(
        &self,
        text: String,
        deadline: Instant,
    ) -> Result<bool, ExpressionError> {
        self.on_thread(deadline, move |input| condition(&text, input))
            .await
    }

    /// The domain with the result of the mutation `text` merged into it.
    ///
    /// # Errors
    /// As [`Self::condition`].
    pub async fn mutation(
        &self,
        text: String,
        deadline: Instant,
    ) -> Result<Element, ExpressionError> {
        self.on_thread(deadline, move |input| mutation(&text, input))
            .await
    }

    /// Evaluates on a thread of its own, with a large stack: a slow expression blocks nothing else.
    async fn on_thread<T: Send + 'static>(
        &self,
        deadline: Instant,
        evaluate: impl FnOnce(&Self) -> Result<T, ExpressionError> + Send + 'static,
    ) -> Result<T, ExpressionError> {
        let input = self.clone();
        let start = Instant::now();
        let (sender, receiver) = oneshot::channel();
        let run = move || {
            let result =
                cost::with_limits(cost::COST_LIMIT, deadline.into_std(), || evaluate(&input));
            // Nobody waits for it after the deadline.
            let _ = sender.send(result);
        };
        std::thread::Builder::new()
            .name("cel".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(run)
            .map_err(ExpressionError::Thread)?;
        match timeout_at(deadline, receiver).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(ExpressionError::Internal),
            Err(_) => Err(ExpressionError::TimedOut {
                after: start.elapsed(),
            }),
        }
    }
}

fn condition(text: &str, input: &Input) -> Result<bool, ExpressionError> {
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

fn mutation(text: &str, input: &Input) -> Result<Element, ExpressionError> {
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
