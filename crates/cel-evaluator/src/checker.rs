//! Checks the types of an expression before it runs. KubeVirt's CEL library does so, but [`cel`]
//! does not. The check finds missing fields and values of a wrong type on every branch.
//!
//! The checker also rewrites three things that [`cel`] evaluates differently from KubeVirt:
//!
//! ```text
//!  Domain{…}             libvirtxml.Domain{…}           the type's full name
//!  has(vmi.Spec.X)       has(vmi.Spec.?X)               asks the object whether the field is set
//!  vmi.CreationTimestamp timestamp(vmi.Creation…)       a string in JSON, a timestamp in expressions
//! ```

use std::collections::BTreeMap;

use cel::IdedExpr;
use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapExpr, SelectExpr,
    StructExpr, operators,
};

use super::error::CompileError;
use super::expr_type::ExprType;
use super::object::IS_SET_PREFIX;
use super::schema::{self, StructType};

/// The result of a successful check.
#[derive(Debug)]
pub struct Checked {
    /// The expression's type.
    pub result: ExprType,
    /// The struct types that the expression constructs.
    pub constructed: Vec<&'static StructType>,
}

/// Checks and rewrites the expression.
///
/// # Errors
/// The first type error.
pub fn check(expression: &mut IdedExpr) -> Result<Checked, CompileError> {
    let mut checker = Checker::default();
    for (name, of) in schema::variables() {
        checker.declare(name, ExprType::Struct(of));
    }
    Ok(Checked {
        result: checker.check(expression)?,
        constructed: checker.constructed.into_values().collect(),
    })
}

#[derive(Debug, Default)]
struct Checker {
    /// The variables in scope, innermost last.
    scope: Vec<(String, ExprType)>,
    constructed: BTreeMap<&'static str, &'static StructType>,
}

impl Checker {
    fn check(&mut self, expression: &mut IdedExpr) -> Result<ExprType, CompileError> {
        let of = match &mut expression.expr {
            Expr::Literal(literal) => literal_type(literal),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => self.select(select)?,
            Expr::List(list) => self.list(list)?,
            Expr::Map(map) => self.map(map)?,
            Expr::Struct(literal) => self.construct(literal)?,
            Expr::Call(call) => self.call(call)?,
            Expr::Comprehension(comprehension) => self.comprehension(comprehension)?,
            Expr::Unspecified => ExprType::Dyn,
        };
        if of == ExprType::Timestamp && matches!(expression.expr, Expr::Select(_)) {
            convert_to_timestamp(expression);
        }
        Ok(of)
    }

    fn declare(&mut self, name: impl Into<String>, of: ExprType) {
        self.scope.push((name.into(), of));
    }

    fn variable(&self, name: &str) -> ExprType {
        let mut innermost_first = self.scope.iter().rev();
        innermost_first
            .find(|(known, _)| known == name)
            .map_or(ExprType::Dyn, |(_, of)| of.clone())
    }

    /// `operand.field`, `has(operand.field)`.
    fn select(&mut self, select: &mut SelectExpr) -> Result<ExprType, CompileError> {
        let of = match self.check(&mut select.operand)? {
            ExprType::Struct(of) => {
                let field = field_type(of, &select.field)?;
                if select.test {
                    select.field.insert(0, IS_SET_PREFIX);
                }
                field
            }
            ExprType::Map(item) => *item,
            ExprType::Dyn => ExprType::Dyn,
            other => {
                return Err(CompileError::NotSelectable {
                    operand: other.to_string(),
                });
            }
        };
        Ok(if select.test { ExprType::Bool } else { of })
    }

    /// `[a, b]`: returns the type of the items, if they share one.
    fn list(&mut self, list: &mut ListExpr) -> Result<ExprType, CompileError> {
        let items = self.check_all(&mut list.elements)?;
        Ok(ExprType::list(match items.split_first() {
            Some((first, rest)) if rest.iter().all(|item| item == first) => first.clone(),
            _ => ExprType::Dyn,
        }))
    }

    /// `{a: b}`.
    fn map(&mut self, map: &mut MapExpr) -> Result<ExprType, CompileError> {
        for entry in &mut map.entries {
            if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                self.check(&mut entry.key)?;
                self.check(&mut entry.value)?;
            }
        }
        Ok(ExprType::Map(Box::new(ExprType::Dyn)))
    }

    /// `Domain{Title: "a"}`.
    fn construct(&mut self, literal: &mut StructExpr) -> Result<ExprType, CompileError> {
        let name = literal.type_name.trim_start_matches('.');
        let name = name.trim_start_matches("libvirtxml.").to_owned();
        let of = schema::libvirtxml()
            .get(&name)
            .ok_or(CompileError::UndeclaredType { name })?;
        for entry in &mut literal.entries {
            let EntryExpr::StructField(entry) = &mut entry.expr else {
                continue;
            };
            let expected = field_type(of, &entry.field)?;
            let found = self.check(&mut entry.value)?;
            if !found.is_assignable_to(&expected) {
                return Err(CompileError::FieldType {
                    field: entry.field.clone(),
                    of: of.name,
                    expected: expected.to_string(),
                    found: found.to_string(),
                });
            }
        }
        of.cel_type.name().clone_into(&mut literal.type_name);
        self.constructed.insert(of.name, of);
        Ok(ExprType::Struct(of))
    }

    /// `f(a, b)`, `target.f(a)`, and operators, which are functions too.
    fn call(&mut self, call: &mut CallExpr) -> Result<ExprType, CompileError> {
        let is_method = call.target.is_some();
        if let Some(target) = &mut call.target {
            self.check(target)?;
        }
        let arguments = self.check_all(&mut call.args)?;
        check_operands(&call.func_name, &arguments)?;
        Ok(result_type(&call.func_name, is_method, &arguments))
    }

    /// The macros `all`, `exists`, `map` and `filter`, which loop over a list or map.
    fn comprehension(&mut self, of: &mut ComprehensionExpr) -> Result<ExprType, CompileError> {
        let item = match self.check(&mut of.iter_range)? {
            ExprType::List(item) => *item,
            ExprType::Map(_) => ExprType::String,
            _ => ExprType::Dyn,
        };
        let start = self.check(&mut of.accu_init)?;

        let outer = self.scope.len();
        self.declare(of.accu_var.clone(), start);
        match &of.iter_var2 {
            // With two loop variables, the first is the index or key.
            Some(second) => {
                self.declare(of.iter_var.clone(), ExprType::Dyn);
                self.declare(second.clone(), ExprType::Dyn);
            }
            None => self.declare(of.iter_var.clone(), item),
        }
        self.check(&mut of.loop_cond)?;
        let accumulated = self.check(&mut of.loop_step)?;
        self.scope.truncate(outer);

        self.declare(of.accu_var.clone(), accumulated);
        let result = self.check(&mut of.result)?;
        self.scope.truncate(outer);
        Ok(result)
    }

    fn check_all(&mut self, all: &mut [IdedExpr]) -> Result<Vec<ExprType>, CompileError> {
        all.iter_mut().map(|one| self.check(one)).collect()
    }
}

fn literal_type(literal: &LiteralValue) -> ExprType {
    match literal {
        LiteralValue::Boolean(_) => ExprType::Bool,
        LiteralValue::Bytes(_) => ExprType::Bytes,
        LiteralValue::Double(_) => ExprType::Double,
        LiteralValue::Int(_) => ExprType::Int,
        LiteralValue::Null => ExprType::Null,
        LiteralValue::String(_) => ExprType::String,
        LiteralValue::UInt(_) => ExprType::Uint,
    }
}

fn field_type(of: &'static StructType, field: &str) -> Result<ExprType, CompileError> {
    match of.find(field) {
        Some(path) => Ok(ExprType::of_field(path.field)),
        None => Err(CompileError::UndefinedField {
            field: field.to_owned(),
            of: of.name,
        }),
    }
}

/// `x` becomes `timestamp(x)`.
fn convert_to_timestamp(expression: &mut IdedExpr) {
    let text = std::mem::take(expression);
    expression.id = text.id;
    expression.expr = Expr::Call(CallExpr {
        func_name: "timestamp".to_owned(),
        target: None,
        args: vec![text],
    });
}

/// Operators that compare two values of the same type.
const COMPARISONS: [&str; 6] = [
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::LESS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::GREATER_EQUALS,
];

/// Other operators and functions that return a boolean.
const PREDICATES: [&str; 8] = [
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::IN,
    "contains",
    "startsWith",
    "endsWith",
    "matches",
];

/// Operators on two operands of one type that return a value of this type.
const ARITHMETIC: [&str; 5] = [
    operators::ADD,
    operators::SUBSTRACT,
    operators::MULTIPLY,
    operators::DIVIDE,
    operators::MODULO,
];

/// Refuses to compare different types, and to index a struct like a map.
fn check_operands(function: &str, arguments: &[ExprType]) -> Result<(), CompileError> {
    let [a, b] = arguments else { return Ok(()) };
    let differ = !a.is_assignable_to(b) && !b.is_assignable_to(a);
    let indexes_struct = function == operators::INDEX && matches!(a, ExprType::Struct(_));
    if indexes_struct || (differ && COMPARISONS.contains(&function)) {
        return Err(CompileError::NoOverload {
            function: function.to_owned(),
            operands: format!("{a}, {b}"),
        });
    }
    Ok(())
}

fn result_type(function: &str, is_method: bool, arguments: &[ExprType]) -> ExprType {
    if COMPARISONS.contains(&function) || PREDICATES.contains(&function) {
        return ExprType::Bool;
    }
    match (function, arguments) {
        (operators::CONDITIONAL, [_, yes, no]) if yes.is_assignable_to(no) => yes.clone(),
        (operators::ADD, [ExprType::List(a), ExprType::List(b)]) => {
            // The empty list takes the type of the other list.
            let item = if **a == ExprType::Dyn { b } else { a };
            ExprType::List(item.clone())
        }
        (_, [a, b]) if ARITHMETIC.contains(&function) && a == b => a.clone(),
        (operators::INDEX, [ExprType::List(item) | ExprType::Map(item), _]) => (**item).clone(),
        ("size" | "int", _) => ExprType::Int,
        ("uint", _) if !is_method => ExprType::Uint,
        ("double", _) if !is_method => ExprType::Double,
        ("string", _) if !is_method => ExprType::String,
        ("timestamp", _) if !is_method => ExprType::Timestamp,
        ("bool", _) if !is_method => ExprType::Bool,
        _ => ExprType::Dyn,
    }
}
