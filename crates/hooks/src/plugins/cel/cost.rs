//! Limits the cost of an evaluation, so that loops in loops end and a text that is doubled again and again does not fill
//! the memory. Every part of an expression that can repeat or grow is passed through a function that counts it:
//!
//! ```text
//!  list.map(x, x + x)   ──►   list.map(x, @count(@count(x) + @count(x)))
//! ```
//!
//! The counter belongs to the thread: every evaluation has a thread of its own.

use std::cell::Cell;
use std::time::Instant;

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, operators};
use cel::common::types::{CelBytes, CelList, CelMap, CelString, CelStruct, DYN_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{Env, ExecutionError, IdedExpr};

use domain::xml::tree::{Element, Node};
use serde_json::Value;

use super::error::ExpressionError;
use super::json_data::JsonData;
use super::object::Object;
use super::xml_data::XmlData;

/// The counting function. Expressions cannot call it: `@` is not allowed in names.
const COUNT: &str = "@count";
/// Limit of an evaluation's cost; the same as in KubeVirt. The costs differ a little: a step of a loop and a value cost 1,
/// every ten bytes 1 more, every item of a list or map 10, every struct 40. A part of the domain or of the VMI costs as
/// much as the structs in it: an expression that keeps one has a copy.
pub const COST_LIMIT: u64 = 10_000_000;
const COST_OF_ITEM: u64 = 10;
const COST_OF_STRUCT: u64 = 40;
const BYTES_PER_COST: u64 = 10;

#[derive(Debug, Clone, Copy)]
struct Budget {
    left: u64,
    deadline: Option<Instant>,
}

thread_local! {
    static BUDGET: Cell<Budget> = const { Cell::new(Budget { left: COST_LIMIT, deadline: None }) };
}

/// Evaluates within a cost limit and a deadline.
///
/// # Errors
/// Those of `evaluate`; [`ExpressionError::CostLimit`] and [`ExpressionError::TimedOut`] also where the expression would
/// swallow the error (`… || true`).
// D-hook-7 (docs/differences.md).
pub fn with_limits<T>(
    cost_limit: u64,
    deadline: Instant,
    evaluate: impl FnOnce() -> Result<T, ExpressionError>,
) -> Result<T, ExpressionError> {
    let start = Instant::now();
    BUDGET.set(Budget {
        left: cost_limit,
        deadline: Some(deadline),
    });
    let result = evaluate();
    if BUDGET.get().left == 0 {
        return Err(ExpressionError::CostLimit);
    }
    if Instant::now() >= deadline {
        return Err(ExpressionError::TimedOut {
            after: start.elapsed(),
        });
    }
    result
}

/// Declares the counting function.
///
/// # Errors
/// If it is declared already.
pub fn declare(env: &mut Env) -> Result<(), cel::DeclarationError> {
    env.add_overload(COUNT, COUNT, vec![DYN_TYPE], count)
}

fn count<'b, 'v>(mut arguments: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let error = |message: &str| Err(ExecutionError::function_error(COUNT, message));
    let Some(value) = arguments.pop() else {
        return error("called without a value");
    };
    let budget = BUDGET.get();
    let left = budget.left.saturating_sub(cost(value.as_ref()));
    BUDGET.set(Budget { left, ..budget });
    match budget.deadline {
        _ if left == 0 => error("cost limit exceeded"),
        Some(deadline) if Instant::now() >= deadline => error("deadline exceeded"),
        _ => Ok(value),
    }
}

fn cost(value: &dyn Val) -> u64 {
    let content: u64 = if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        text.inner().len() as u64 / BYTES_PER_COST
    } else if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
        bytes.inner().len() as u64 / BYTES_PER_COST
    } else if let Some(list) = value.downcast_ref::<CelList<'_>>() {
        let items = list.inner().iter();
        items.map(|item| COST_OF_ITEM + cost(item.as_ref())).sum()
    } else if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
        let entries = map.inner().iter();
        entries
            .map(|(key, value)| COST_OF_ITEM + cost(key.inner()) + cost(value.as_ref()))
            .sum()
    } else if let Some(literal) = value.downcast_ref::<CelStruct<'_>>() {
        let fields = literal.field_values().into_values();
        let fields: u64 = fields
            .map(|field| COST_OF_ITEM + cost(field.as_ref()))
            .sum();
        COST_OF_STRUCT + fields
    } else if let Some(part) = value.downcast_ref::<Object<XmlData>>() {
        cost_of_element(&part.data.element)
    } else if let Some(part) = value.downcast_ref::<Object<JsonData>>() {
        cost_of_json(&part.data.0)
    } else {
        0
    };
    1 + content
}

fn cost_of_element(element: &Element) -> u64 {
    let bytes = |text: &str| text.len() as u64 / BYTES_PER_COST;
    let attributes = element.attributes.iter();
    let attributes: u64 = attributes
        .map(|(name, value)| COST_OF_ITEM + bytes(name) + bytes(value))
        .sum();
    let nodes = element.nodes.iter().map(|node| match node {
        Node::Element(child) => cost_of_element(child),
        Node::Text(text) => COST_OF_ITEM + bytes(text),
    });
    COST_OF_STRUCT + bytes(&element.name) + attributes + nodes.sum::<u64>()
}

fn cost_of_json(value: &Value) -> u64 {
    let bytes = |text: &str| text.len() as u64 / BYTES_PER_COST;
    match value {
        Value::Array(items) => items
            .iter()
            .map(|item| COST_OF_ITEM + cost_of_json(item))
            .sum(),
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(name, member)| COST_OF_ITEM + bytes(name) + cost_of_json(member));
            COST_OF_STRUCT + members.sum::<u64>()
        }
        Value::String(text) => 1 + bytes(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

/// Passes every part of the expression that can repeat or grow through the counting function.
pub fn instrument(expression: &mut IdedExpr) {
    match &mut expression.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
        Expr::Select(select) => instrument(&mut select.operand),
        Expr::List(list) => list.elements.iter_mut().for_each(instrument_and_wrap),
        Expr::Map(map) => map
            .entries
            .iter_mut()
            .for_each(|entry| instrument_entry(&mut entry.expr)),
        Expr::Struct(literal) => literal
            .entries
            .iter_mut()
            .for_each(|entry| instrument_entry(&mut entry.expr)),
        Expr::Comprehension(comprehension) => instrument_comprehension(comprehension),
        Expr::Call(call) => instrument_call(call),
    }
}

fn instrument_and_wrap(expression: &mut IdedExpr) {
    instrument(expression);
    wrap(expression);
}

/// `x` becomes `@count(x)`.
fn wrap(expression: &mut IdedExpr) {
    let inner = std::mem::take(expression);
    expression.id = inner.id;
    expression.expr = Expr::Call(CallExpr {
        func_name: COUNT.to_owned(),
        target: None,
        args: vec![inner],
    });
}

fn instrument_entry(entry: &mut EntryExpr) {
    match entry {
        EntryExpr::StructField(field) => instrument_and_wrap(&mut field.value),
        EntryExpr::MapEntry(entry) => {
            instrument_and_wrap(&mut entry.key);
            instrument_and_wrap(&mut entry.value);
        }
    }
}

/// Of a sum, only the operands are counted: counting every partial sum would make a chain of `+` twice as deep.
fn instrument_call(call: &mut CallExpr) {
    if let Some(target) = &mut call.target {
        instrument(target);
    }
    let counts_operands = is_sum(call) && !call.args.first().is_some_and(is_accumulator);
    for argument in &mut call.args {
        instrument(argument);
        let is_partial_sum = matches!(&argument.expr, Expr::Call(inner) if is_sum(inner));
        if counts_operands && !is_partial_sum {
            wrap(argument);
        }
    }
}

fn is_sum(call: &CallExpr) -> bool {
    call.func_name == operators::ADD
}

/// The variable in which a loop collects its result. Every step adds a little to it.
fn is_accumulator(expression: &IdedExpr) -> bool {
    matches!(&expression.expr, Expr::Ident(name) if name.starts_with('@'))
}

/// Counts one part of the loop in every step. The library recognizes `map` and `filter` by their shape, which stays.
fn instrument_comprehension(comprehension: &mut ComprehensionExpr) {
    let ComprehensionExpr {
        iter_range,
        accu_init,
        loop_cond,
        loop_step,
        result,
        ..
    } = comprehension;
    instrument(iter_range);
    instrument(accu_init);
    instrument(loop_cond);
    instrument(loop_step);
    instrument(result);
    if !matches!(loop_cond.expr, Expr::Literal(_)) {
        // An error in the condition ends the loop. After an error in the step, `all` and `exists` would go on.
        wrap(loop_cond);
    } else if let Expr::Call(step) = &mut loop_step.expr
        && step.func_name == operators::CONDITIONAL
        && let Some(guard) = step.args.first_mut()
    {
        wrap(guard);
    }
}
