//! CEL expressions over `vmi` and `domainSpec`. They are checked against the tables before they run:
//! types and fields that do not exist, and values of another type than their field, are found then
//! and not only on the branch that is taken.

use std::collections::BTreeMap;
use std::sync::Arc;

use cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue, StructExpr, operators};
use cel::common::types::{CelBool, CelStruct, Type as CelType};
use cel::common::value::{CowVal, Val};
use cel::{Context, Env, ExecutionError, IdedExpr, StructType, Value as CelValue};
use serde_json::Value;

use super::native::{IS_SET, Native};
use super::schema::{Field, Holds, Schema, Type};
use super::{cost, merge, udp};
use domain::xml::tree::Element;

/// Longest expression that is taken, in bytes.
const LENGTH: usize = 32 << 10;
/// Deepest nesting of brackets; the same as in KubeVirt.
const NESTING: usize = 250;
/// Most signs of operators; a chain of them is as deep as it is long.
const OPERATORS: usize = 4_000;
/// What the stack of a thread must have for any expression within these bounds: parsing and walking
/// are recursive. Only what is used of it takes memory.
pub const STACK: usize = 256 << 20;

/// What an expression sees.
#[derive(Debug, Clone)]
pub struct Input {
    /// The domain, as `domainSpec`.
    pub domain: Arc<Element>,
    /// The virtual machine instance, as `vmi`.
    pub vmi: Arc<Value>,
}

/// Whether the condition holds.
///
/// # Errors
/// What is wrong with the expression, or what went wrong in it.
pub fn condition(text: &str, input: &Input) -> Result<bool, String> {
    let (expression, env, kind) = compile(text)?;
    if !matches!(kind, Kind::Bool | Kind::Dyn) {
        return Err(format!("condition must return bool, got {kind}"));
    }
    let context = context(env, udp::joined(&input.domain), &input.vmi);
    let value = CelValue::resolve_val(&expression, &context).map_err(failed)?;
    let truth = value.downcast_ref::<CelBool>().map(|truth| *truth.inner());
    truth.ok_or_else(|| {
        format!(
            "condition must return bool, got {}",
            value.get_type().name()
        )
    })
}

/// The domain with what the expression made laid over it.
///
/// # Errors
/// What is wrong with the expression, or what went wrong in it.
pub fn mutation(text: &str, input: &Input) -> Result<Element, String> {
    let (expression, env, kind) = compile(text)?;
    let root = Schema::libvirt()
        .get("Domain")
        .ok_or("the table of types is empty")?;
    if !matches!(kind, Kind::Dyn) && kind != Kind::Struct(root) {
        return Err(format!("mutation must return a Domain object, got {kind}"));
    }
    let joined = udp::joined(&input.domain);
    let context = context(env, Arc::clone(&joined), &input.vmi);
    let value = CelValue::resolve_val(&expression, &context).map_err(failed)?;
    let wrong = || {
        format!(
            "mutation must return a Domain object, got {}",
            value.get_type().name()
        )
    };
    let given = value
        .downcast_ref::<CelStruct<'_>>()
        .filter(|given| given.get_type() == &root.cel)
        .ok_or_else(wrong)?;
    let mut domain = Element::clone(&joined);
    merge::merge(root, &mut domain, given)?;
    udp::split(&mut domain);
    Ok(domain)
}

/// In the words that authors know from KubeVirt, where the library has others.
fn failed(error: ExecutionError) -> String {
    let words = match &error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::IndexOutOfBounds(CelValue::Int(index)) => {
            format!("index out of bounds: {index}")
        }
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::UndeclaredReference(name) => format!("undeclared reference to '{name}'"),
        other => other.to_string(),
    };
    format!("evaluating expression: {words}")
}

fn context(env: Env, domain: Arc<Element>, vmi: &Arc<Value>) -> Context<'static, 'static> {
    let mut context = Context::with_env(Arc::new(env));
    if let Some(of) = Schema::libvirt().get("Domain") {
        context.add_variable_as_val("domainSpec", Box::new(Native::element(of, domain)));
    }
    if let Some(of) = Schema::vmi().get("VirtualMachineInstance") {
        context.add_variable_as_val("vmi", Box::new(Native::json(of, Arc::clone(vmi))));
    }
    context
}

fn compile(text: &str) -> Result<(IdedExpr, Env, Kind), String> {
    bounded(text).map_err(|error| format!("compiling expression: {error}"))?;
    let mut env = Env::stdlib().with_optional_support(false);
    let program = env
        .compile(text)
        .map_err(|errors| format!("compiling expression: {errors}"))?;
    let mut expression = program.expression().clone();
    let mut checker = Checker {
        scope: Vec::new(),
        constructed: BTreeMap::new(),
    };
    checker.scope.extend(
        Schema::vmi()
            .get("VirtualMachineInstance")
            .map(|of| ("vmi".to_owned(), Kind::Struct(of))),
    );
    checker.scope.extend(
        Schema::libvirt()
            .get("Domain")
            .map(|of| ("domainSpec".to_owned(), Kind::Struct(of))),
    );
    let kind = checker
        .check(&mut expression)
        .map_err(|error| format!("compiling expression: {error}"))?;
    for of in checker.constructed.into_values() {
        env.add_type(Sparse(of))
            .map_err(|error| error.to_string())?;
    }
    cost::meter(&mut expression);
    cost::declare(&mut env)?;
    Ok((expression, env, kind))
}

/// Refuses what would need more stack than [`STACK`] to parse and to walk.
fn bounded(text: &str) -> Result<(), String> {
    if text.len() > LENGTH {
        return Err(format!(
            "expression size exceeds limit: {} bytes, at most {LENGTH} are taken",
            text.len()
        ));
    }
    let operators = text
        .bytes()
        .filter(|byte| b"+-*/%!?.<>=&|".contains(byte))
        .count();
    if operators > OPERATORS {
        return Err(format!(
            "expression has {operators} operators, at most {OPERATORS} are taken"
        ));
    }
    let mut depth = 0_usize;
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > NESTING {
            return Err(format!("expression recursion limit exceeded: {NESTING}"));
        }
    }
    Ok(())
}

/// A struct literal: holds the fields that it names and no others, so that they can be told from
/// those that are zero.
struct Sparse(&'static Type);

impl StructType for Sparse {
    fn get_type(&self) -> &CelType {
        &self.0.cel
    }

    fn new_value<'b, 'v>(
        &self,
        fields: BTreeMap<String, CowVal<'b, 'v>>,
    ) -> Result<Box<dyn Val + 'v>, ExecutionError> {
        let mut made = CelStruct::new(self.0.cel.name().to_owned());
        fields
            .into_iter()
            .for_each(|(name, value)| made.add_field_value(name, value));
        Ok(Box::new(made))
    }
}

// ---- types --------------------------------------------------------------------------------------

/// The type of an expression, as far as it is known before it runs.
#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    List(Box<Self>),
    Map(Box<Self>),
    Struct(&'static Type),
}

impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        self.cel == other.cel
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Null => f.write_str("null_type"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::List(item) => write!(f, "list({item})"),
            Self::Map(item) => write!(f, "map(string, {item})"),
            Self::Struct(of) => f.write_str(of.cel.name()),
        }
    }
}

impl Kind {
    fn of_field(of: &'static Type, field: &Field) -> Self {
        let one = match field.holds {
            Holds::String => Self::String,
            Holds::Int => Self::Int,
            Holds::Uint => Self::Uint,
            Holds::Bool => Self::Bool,
            Holds::Double => Self::Double,
            Holds::Map => Self::Map(Box::new(Self::Dyn)),
            Holds::Timestamp => Self::Timestamp,
            Holds::Any => Self::Dyn,
            Holds::Struct(name) => of.sibling(name).map_or(Self::Dyn, Self::Struct),
        };
        if field.list {
            Self::List(Box::new(one))
        } else {
            one
        }
    }

    /// Whether a value of this type can be in a field of `field`'s type.
    fn fits(&self, field: &Self) -> bool {
        match (self, field) {
            (Self::Dyn, _) | (_, Self::Dyn) => true,
            (Self::Null, Self::Struct(_) | Self::Timestamp) => true,
            (Self::List(a), Self::List(b)) | (Self::Map(a), Self::Map(b)) => a.fits(b),
            (a, b) => a == b,
        }
    }
}

struct Checker {
    /// Variables, innermost last.
    scope: Vec<(String, Kind)>,
    /// The types of struct literals.
    constructed: BTreeMap<&'static str, &'static Type>,
}

impl Checker {
    /// The type of the expression. Struct names become full ones, and `has()` of one of our fields
    /// asks whether it is set.
    fn check(&mut self, expression: &mut IdedExpr) -> Result<Kind, String> {
        let kind = self.kind(expression)?;
        if kind == Kind::Timestamp && matches!(expression.expr, Expr::Select(_)) {
            let text = std::mem::take(expression);
            expression.id = text.id;
            expression.expr = Expr::Call(CallExpr {
                func_name: "timestamp".to_owned(),
                target: None,
                args: vec![text],
            });
        }
        Ok(kind)
    }

    fn kind(&mut self, expression: &mut IdedExpr) -> Result<Kind, String> {
        Ok(match &mut expression.expr {
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => Kind::Bool,
                LiteralValue::Bytes(_) => Kind::Bytes,
                LiteralValue::Double(_) => Kind::Double,
                LiteralValue::Int(_) => Kind::Int,
                LiteralValue::Null => Kind::Null,
                LiteralValue::String(_) => Kind::String,
                LiteralValue::UInt(_) => Kind::Uint,
            },
            Expr::Ident(name) => self
                .scope
                .iter()
                .rev()
                .find(|(known, _)| known == name)
                .map_or(Kind::Dyn, |(_, kind)| kind.clone()),
            Expr::Select(select) => {
                let kind = match self.check(&mut select.operand)? {
                    Kind::Struct(of) => {
                        let (way, field) = of.find(&select.field).ok_or_else(|| {
                            format!("undefined field '{}' of {}", select.field, of.name)
                        })?;
                        let holder = way
                            .last()
                            .and_then(|outer| of.sibling(outer.of()?))
                            .unwrap_or(of);
                        if select.test {
                            select.field.insert(0, IS_SET);
                        }
                        Kind::of_field(holder, field)
                    }
                    Kind::Map(item) => *item,
                    Kind::Dyn => Kind::Dyn,
                    other => {
                        return Err(format!("type '{other}' does not support field selection"));
                    }
                };
                if select.test { Kind::Bool } else { kind }
            }
            Expr::List(list) => {
                let mut kinds = Vec::new();
                for element in &mut list.elements {
                    kinds.push(self.check(element)?);
                }
                let first = kinds.first().cloned().unwrap_or(Kind::Dyn);
                Kind::List(Box::new(if kinds.iter().all(|kind| *kind == first) {
                    first
                } else {
                    Kind::Dyn
                }))
            }
            Expr::Map(map) => {
                for entry in &mut map.entries {
                    if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                        self.check(&mut entry.key)?;
                        self.check(&mut entry.value)?;
                    }
                }
                Kind::Map(Box::new(Kind::Dyn))
            }
            Expr::Struct(literal) => self.literal(literal)?,
            Expr::Call(call) => self.call(call)?,
            Expr::Comprehension(loop_) => {
                let item = match self.check(&mut loop_.iter_range)? {
                    Kind::List(item) => *item,
                    Kind::Map(_) => Kind::String,
                    _ => Kind::Dyn,
                };
                let depth = self.scope.len();
                let start = self.check(&mut loop_.accu_init)?;
                self.scope.push((loop_.accu_var.clone(), start));
                let accumulated = self.scope.len() - 1;
                // With two variables the first one is the index or key.
                let two = loop_.iter_var2.clone().map(|second| (second, Kind::Dyn));
                self.scope.push((
                    loop_.iter_var.clone(),
                    if two.is_some() { Kind::Dyn } else { item },
                ));
                self.scope.extend(two);
                self.check(&mut loop_.loop_cond)?;
                let step = self.check(&mut loop_.loop_step)?;
                self.scope.truncate(accumulated);
                self.scope.push((loop_.accu_var.clone(), step));
                let result = self.check(&mut loop_.result)?;
                self.scope.truncate(depth);
                result
            }
            Expr::Unspecified => Kind::Dyn,
        })
    }

    fn literal(&mut self, literal: &mut StructExpr) -> Result<Kind, String> {
        let name = literal
            .type_name
            .trim_start_matches('.')
            .trim_start_matches("libvirtxml.")
            .to_owned();
        let of = Schema::libvirt()
            .get(&name)
            .ok_or_else(|| format!("undeclared reference to '{name}'"))?;
        for entry in &mut literal.entries {
            let EntryExpr::StructField(entry) = &mut entry.expr else {
                continue;
            };
            let (way, field) = of
                .find(&entry.field)
                .ok_or_else(|| format!("undefined field '{}' of {name}", entry.field))?;
            let holder = way
                .last()
                .and_then(|outer| of.sibling(outer.of()?))
                .unwrap_or(of);
            let (wanted, got) = (Kind::of_field(holder, field), self.check(&mut entry.value)?);
            if !got.fits(&wanted) {
                return Err(format!(
                    "expected type of field '{}' of {name} is '{wanted}' but provided type is '{got}'",
                    entry.field
                ));
            }
        }
        of.cel.name().clone_into(&mut literal.type_name);
        self.constructed.insert(of.name, of);
        Ok(Kind::Struct(of))
    }

    fn call(&mut self, call: &mut CallExpr) -> Result<Kind, String> {
        let target = call
            .target
            .as_mut()
            .map(|target| self.check(target))
            .transpose()?;
        let mut kinds = Vec::new();
        for argument in &mut call.args {
            kinds.push(self.check(argument)?);
        }
        overload(&call.func_name, &kinds)?;
        Ok(match (call.func_name.as_str(), target, kinds.as_slice()) {
            (operators::CONDITIONAL, _, [_, yes, no]) => {
                if yes.fits(no) && *yes != Kind::Dyn {
                    yes.clone()
                } else {
                    Kind::Dyn
                }
            }
            (
                operators::LOGICAL_AND
                | operators::LOGICAL_OR
                | operators::LOGICAL_NOT
                | operators::EQUALS
                | operators::NOT_EQUALS
                | operators::GREATER
                | operators::GREATER_EQUALS
                | operators::LESS
                | operators::LESS_EQUALS
                | operators::IN
                | "contains"
                | "startsWith"
                | "endsWith"
                | "matches",
                _,
                _,
            ) => Kind::Bool,
            (operators::ADD, _, [Kind::List(a), Kind::List(b)]) => {
                Kind::List(if **a == Kind::Dyn {
                    b.clone()
                } else {
                    a.clone()
                })
            }
            (
                operators::ADD
                | operators::SUBSTRACT
                | operators::MULTIPLY
                | operators::DIVIDE
                | operators::MODULO,
                _,
                [a, b],
            ) if a == b => a.clone(),
            (operators::INDEX, _, [Kind::List(item) | Kind::Map(item), _]) => (**item).clone(),
            ("size" | "int", _, _) => Kind::Int,
            ("uint", None, _) => Kind::Uint,
            ("double", None, _) => Kind::Double,
            ("string", None, _) => Kind::String,
            ("timestamp", None, _) => Kind::Timestamp,
            ("bool", None, _) => Kind::Bool,
            _ => Kind::Dyn,
        })
    }
}

/// Refuses to compare what can never be equal, and to take a struct for a map.
fn overload(operator: &str, kinds: &[Kind]) -> Result<(), String> {
    use operators::{EQUALS, GREATER, GREATER_EQUALS, INDEX, LESS, LESS_EQUALS, NOT_EQUALS};
    let [a, b] = kinds else { return Ok(()) };
    let compares = [
        EQUALS,
        NOT_EQUALS,
        LESS,
        LESS_EQUALS,
        GREATER,
        GREATER_EQUALS,
    ]
    .contains(&operator);
    let unequal = compares && !a.fits(b) && !b.fits(a);
    if unequal || (operator == INDEX && matches!(a, Kind::Struct(_))) {
        return Err(format!(
            "found no matching overload for '{operator}' applied to '({a}, {b})'"
        ));
    }
    Ok(())
}
