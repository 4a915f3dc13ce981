//! What an expression may use up. Loops in loops end, and a text that is doubled again and again does not fill the
//! memory: each part of an expression that can repeat or grow is handed through a function that counts it.
//!
//! ```text
//!  list.map(x, x + x)   ──►   list.map(x, @counted(@counted(x) + @counted(x)))
//! ```
//!
//! The count is the thread's own: each evaluation has a thread.

use std::cell::Cell;
use std::time::{Duration, Instant};

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, operators};
use cel::common::types::{CelBytes, CelList, CelMap, CelString, CelStruct, DYN_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{Env, ExecutionError, IdedExpr};

use crate::timeout::display_duration;

/// No author can write a name like it.
const COUNTED: &str = "@counted";
/// KubeVirt's limit. What costs how much is not quite the same: a step of a loop and a value count 1 each, ten
/// bytes 1 more, a place in a list or a map 10.
pub const LIMIT: u64 = 10_000_000;

thread_local! {
    static METER: Cell<Meter> = const { Cell::new(Meter { left: LIMIT, until: None }) };
}

#[derive(Debug, Clone, Copy)]
struct Meter {
    left: u64,
    until: Option<Instant>,
}

/// Evaluates within `limit` and until that time.
///
/// # Errors
/// Those of `evaluate`; that a limit was passed, also where the expression would have swallowed it (`… || true`).
pub fn limited<T>(
    limit: u64,
    until: Instant,
    evaluate: impl FnOnce() -> Result<T, String>,
) -> Result<T, String> {
    let start = Instant::now();
    METER.set(Meter {
        left: limit,
        until: Some(until),
    });
    let result = evaluate();
    if METER.get().left == 0 {
        return Err(
            "evaluating expression: operation cancelled: actual cost limit exceeded".to_owned(),
        );
    }
    if Instant::now() >= until {
        Err(too_slow(start.elapsed()))
    } else {
        result
    }
}

/// What is said of an expression that is given up.
pub fn too_slow(after: Duration) -> String {
    format!(
        "the expression has no result after {}",
        display_duration(after)
    )
}

/// Makes the counting function known.
///
/// # Errors
/// When there is one already.
pub fn declare(env: &mut Env) -> Result<(), String> {
    env.add_overload(COUNTED, COUNTED, vec![DYN_TYPE], counted)
        .map_err(|error| error.to_string())
}

fn counted<'b, 'v>(mut arguments: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let over = |what: &str| Err(ExecutionError::function_error(COUNTED, what));
    let Some(value) = arguments.pop() else {
        return over("called without a value");
    };
    let meter = METER.get();
    let left = meter.left.saturating_sub(cost(value.as_ref()));
    METER.set(Meter { left, ..meter });
    match meter.until {
        _ if left == 0 => over("cost limit exceeded"),
        Some(until) if Instant::now() >= until => over("the time is over"),
        _ => Ok(value),
    }
}

fn cost(value: &dyn Val) -> u64 {
    let bytes = |length: usize| 1 + length as u64 / 10;
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        return bytes(text.inner().len());
    }
    if let Some(data) = value.downcast_ref::<CelBytes<'_>>() {
        return bytes(data.inner().len());
    }
    if let Some(list) = value.downcast_ref::<CelList<'_>>() {
        return 1 + list
            .inner()
            .iter()
            .map(|item| 10 + cost(item.as_ref()))
            .sum::<u64>();
    }
    if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
        return 1 + map
            .inner()
            .iter()
            .map(|(key, value)| 10 + cost(key.inner()) + cost(value.as_ref()))
            .sum::<u64>();
    }
    if let Some(made) = value.downcast_ref::<CelStruct<'_>>() {
        return 1 + made
            .field_values()
            .values()
            .map(|value| 10 + cost(value.as_ref()))
            .sum::<u64>();
    }
    1
}

/// Has all counted that can repeat or grow.
pub fn meter(expression: &mut IdedExpr) {
    match &mut expression.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
        Expr::Select(select) => meter(&mut select.operand),
        Expr::List(list) => list.elements.iter_mut().for_each(count),
        Expr::Map(map) => map
            .entries
            .iter_mut()
            .for_each(|entry| entry_of(&mut entry.expr)),
        Expr::Struct(made) => made
            .entries
            .iter_mut()
            .for_each(|entry| entry_of(&mut entry.expr)),
        Expr::Comprehension(comprehension) => of_loop(comprehension),
        Expr::Call(call) => {
            let adds = is_sum(call) && !call.args.first().is_some_and(is_result);
            call.target.iter_mut().for_each(|target| meter(target));
            for argument in &mut call.args {
                meter(argument);
                // What is added up, and not each sum: a chain of them would be twice as deep.
                if adds && !matches!(&argument.expr, Expr::Call(inner) if is_sum(inner)) {
                    wrap(argument);
                }
            }
        }
    }
}

fn is_sum(call: &CallExpr) -> bool {
    call.func_name == operators::ADD
}

fn entry_of(entry: &mut EntryExpr) {
    match entry {
        EntryExpr::StructField(field) => count(&mut field.value),
        EntryExpr::MapEntry(entry) => {
            count(&mut entry.key);
            count(&mut entry.value);
        }
    }
}

/// Of a loop one part is counted at each step. The library knows `map` and `filter` by their shape, which stays.
fn of_loop(comprehension: &mut ComprehensionExpr) {
    let ComprehensionExpr {
        iter_range,
        accu_init,
        loop_cond,
        loop_step,
        result,
        ..
    } = comprehension;
    [
        iter_range,
        accu_init,
        &mut *loop_cond,
        &mut *loop_step,
        result,
    ]
    .into_iter()
    .for_each(meter);
    if !matches!(loop_cond.expr, Expr::Literal(_)) {
        // Here an error ends the loop; `all` and `exists` would go on after one in the step.
        wrap(loop_cond);
    } else if let Expr::Call(step) = &mut loop_step.expr
        && step.func_name == operators::CONDITIONAL
        && let Some(guard) = step.args.first_mut()
    {
        wrap(guard);
    }
}

/// The loop's own variable, to which each step adds a little.
fn is_result(expression: &IdedExpr) -> bool {
    matches!(&expression.expr, Expr::Ident(name) if name.starts_with('@'))
}

fn count(expression: &mut IdedExpr) {
    meter(expression);
    wrap(expression);
}

fn wrap(expression: &mut IdedExpr) {
    let inner = std::mem::take(expression);
    expression.id = inner.id;
    expression.expr = Expr::Call(CallExpr {
        func_name: COUNTED.to_owned(),
        target: None,
        args: vec![inner],
    });
}
