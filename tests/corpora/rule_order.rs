//! The order of the conversion's rules: each runs after those that it names (`Rule::after`), and
//! no other order matters. So each case of the corpora, and each example, is also converted with
//! each rule as early as the names allow.

use std::collections::BTreeSet;

use api::vmi::Vmi;
use convert::{Context, Input, RULES, Rule};
use domain::DomainSpec;
use libtest_mimic::Trial;

use crate::corpus::{Differences, test};

pub fn tests() -> Vec<Trial> {
    vec![test("rule_order/table".to_owned(), || {
        let mut above = BTreeSet::new();
        let mut found = Vec::new();
        for rule in RULES {
            let missing = rule.after.iter().filter(|name| !above.contains(*name));
            let line = |name| format!("{:?} runs after {name:?}, which is not above it", rule.name);
            found.extend(missing.map(line));
            if !above.insert(rule.name) {
                found.push(format!("two rules are {:?}", rule.name));
            }
        }
        found
    })]
}

/// The rules whose place matters though they do not say so.
pub fn differences(vmi: &Vmi, context: &Context) -> Differences {
    let expected = convert(RULES.iter(), vmi, context);
    RULES
        .iter()
        .filter(|rule| convert(early(rule).into_iter(), vmi, context) != expected)
        .map(|rule| {
            let (name, after) = (rule.name, rule.after);
            format!("{name:?}, run right after {after:?}, makes another domain: name the rule that it needs")
        })
        .collect()
}

/// The table with this rule and those that it needs at its top.
fn early(rule: &Rule) -> Vec<&'static Rule> {
    let mut needed = BTreeSet::from([rule.name]);
    for rule in RULES.iter().rev() {
        if needed.contains(rule.name) {
            needed.extend(rule.after);
        }
    }
    let (mut order, rest): (Vec<_>, Vec<_>) =
        RULES.iter().partition(|rule| needed.contains(rule.name));
    order.extend(rest);
    order
}

/// The domain; `None` if a rule refuses the VMI.
fn convert(
    mut rules: impl Iterator<Item = &'static Rule>,
    vmi: &Vmi,
    context: &Context,
) -> Option<DomainSpec> {
    let input = Input::new(vmi, context).ok()?;
    let mut domain = DomainSpec::default();
    rules
        .try_for_each(|rule| (rule.apply)(&input, &mut domain))
        .ok()?;
    Some(domain)
}
