//! Expressions that would take too much stack, time or memory.

use std::time::Duration;

use super::super::{ExpressionError, STACK_BYTES, cost};
use super::{DOMAIN, chain, condition, input, vmi};

/// On a thread with the stack that evaluations have.
fn on_thread<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    thread.spawn(run).unwrap().join().unwrap()
}

#[test]
fn deep_expressions_do_not_overflow_the_stack() {
    for deep in [
        format!("{}true{}", "(".repeat(250), ")".repeat(250)),
        format!("0{} == 0", "+0".repeat(3_900)),
        format!("{}true", "!".repeat(3_900)),
        format!("vmi{}", ".Spec".repeat(3_900)),
        format!("true{}", " ? true : false".repeat(1_900)),
        format!("{}1{}", "[".repeat(200), "]".repeat(200)),
    ] {
        // Whether it holds does not matter.
        let _ = on_thread(move || condition(&deep));
    }
}

#[test]
// D-hook-7 (docs/differences.md).
fn an_expression_that_costs_too_much_is_cancelled() {
    let ten = format!("[{}]", ["1"; 10].join(","));
    let loops = |last: &str| format!("{ten}.all(a, {ten}.all(b, {ten}.all(c, {ten}.{last})))");
    let doubled = |start: &str, step: &str| {
        format!(
            "size({start}{}) == 1",
            format!(".map(x, {step})").repeat(60)
        )
    };
    for text in [
        loops("all(d, a + b + c + d == 4)"),
        loops("exists(d, d == 2) || true"),
        loops("filter(d, d == 2).size() == 0"),
        loops("exists_one(d, d == 2) || true"),
        doubled("['a']", "x + x"),
        doubled("[[1]]", "x + x"),
        doubled("[1]", "[x, x]"),
        doubled("[1]", "{'a': x, 'b': x}"),
    ] {
        let error = within_limit(text.clone()).unwrap_err();
        assert!(error.contains("cost limit exceeded"), "{text}: {error}");
    }
    // What authors do costs a small part of it.
    let all = "domainSpec.Devices.Disks.all(d, domainSpec.Devices.Disks.exists(e, e.Target.Dev == d.Target.Dev))";
    assert_eq!(within_limit(all.to_owned()), Ok(true));
    assert_eq!(
        within_limit(format!(
            "{ten}.map(a, a * 2).filter(a, a == 2).size() == 10"
        )),
        Ok(true)
    );
}

/// A condition under a limit that is low enough for a test.
fn within_limit(text: String) -> Result<bool, String> {
    on_thread(move || {
        let deadline = os::time::deadline(Duration::from_secs(60)).into_std();
        let input = input(DOMAIN, vmi());
        cost::with_limits(5_000, deadline, || super::super::condition(&text, &input))
            .map_err(|error: ExpressionError| chain(&error))
    })
}
