//! Expressions that count their steps while they are evaluated, and stop at the most that one event may take.
//!
//! ```text
//! range.exists(x, body)   ->   (@left() ? @loop(range, nodes) : ..).exists(x, body)   items x nodes, before the first one
//! a == b, a + b, a in b   ->   @sized(a) == @sized(b)                                 what has to be gone through in each
//! ```
//!
//! Never: another result than that of the expression as it was written. One that ran out has none.

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use cel::{Context, ExecutionError, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Steps that all routes together may take on one event: some 50 ms. One that looks at a label takes about ten; one that goes through
/// 16,000 arguments once takes some 100,000, and one that compares each with each 256 million.
pub const MOST_ROUTE_STEPS: u64 = 500_000;

/// Nodes of an expression after its macros are expanded.
pub(super) const MOST_NODES: u64 = 4_096;

/// The most values that an event has: what a loop can go through at the worst.
const MOST_ITEMS: u64 = 16_384;

/// A call of `matches` compiles its pattern each time.
const PATTERN_STEPS: u64 = 1_000;

/// Bytes of text that are gone through in one step.
const STEP_BYTES: usize = 32;

const LOOP: &str = "@loop";
const LEFT: &str = "@left";
const SIZED: &str = "@sized";
const PATTERN: &str = "@pattern";

/// Functions that go through all of what they are given.
const LINEAR: [&str; 18] = [
    operators::ADD,
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::GREATER,
    operators::GREATER_EQUALS,
    operators::LESS,
    operators::LESS_EQUALS,
    operators::IN,
    "contains",
    "startsWith",
    "endsWith",
    "string",
    "int",
    "double",
    "bytes",
    "min",
    "max",
    "timestamp",
];

/// Counts the steps of one event.
#[derive(Clone, Debug, Default)]
pub(super) struct StepMeter {
    used: Arc<AtomicU64>,
}

impl StepMeter {
    /// Lets expressions that are evaluated in a context count here.
    pub fn install(&self, context: &mut Context<'_, '_>) {
        let meter = self.clone();
        let looped = move |range: Value, nodes: i64| {
            meter.charge(items(&range).saturating_mul(nodes.unsigned_abs())).map(|()| range)
        };
        let meter = self.clone();
        let left = move || meter.charge(1).map(|()| true);
        let meter = self.clone();
        let sized = move |value: Value| meter.charge(size(&value)).map(|()| value);
        let meter = self.clone();
        let pattern = move |value: Value| meter.charge(PATTERN_STEPS).map(|()| value);
        // Their names cannot be written in CEL, so none is taken.
        let _ = context.add_function(LOOP, looped);
        let _ = context.add_function(LEFT, left);
        let _ = context.add_function(SIZED, sized);
        let _ = context.add_function(PATTERN, pattern);
    }

    /// Whether there are no steps left. A logical operator may have swallowed the error that said so.
    pub fn is_spent(&self) -> bool {
        self.used.load(Ordering::Relaxed) > MOST_ROUTE_STEPS
    }

    fn charge(&self, steps: u64) -> Result<(), ExecutionError> {
        let used = self.used.load(Ordering::Relaxed).saturating_add(steps.max(1));
        self.used.store(used, Ordering::Relaxed);
        if used > MOST_ROUTE_STEPS { Err(ExecutionError::function_error("route", "no steps left")) } else { Ok(()) }
    }
}

fn items(range: &Value) -> u64 {
    match range {
        Value::List(list) => list.len() as u64,
        Value::Map(map) => map.map.len() as u64,
        _ => 1,
    }
}

/// What is gone through to compare or copy a value.
fn size(value: &Value) -> u64 {
    match value {
        Value::List(list) => list.iter().map(size).sum::<u64>() + 1,
        Value::Map(map) => map.map.values().map(size).sum::<u64>() + 1,
        Value::String(text) => (text.len() / STEP_BYTES) as u64 + 1,
        Value::Bytes(bytes) => (bytes.len() / STEP_BYTES) as u64 + 1,
        _ => 1,
    }
}

/// The same expression, counting.
pub(super) fn metered(at: &IdedExpr) -> IdedExpr {
    let expr = match &at.expr {
        Expr::Call(call) => return metered_call(at.id, call),
        Expr::Comprehension(loops) => Expr::Comprehension(Box::new(metered_loop(loops))),
        Expr::Select(select) => {
            let mut select = select.clone();
            *select.operand = metered(&select.operand);
            Expr::Select(select)
        }
        Expr::List(list) => {
            let mut list = list.clone();
            list.elements.iter_mut().for_each(|element| *element = metered(element));
            Expr::List(list)
        }
        Expr::Map(map) => {
            let mut map = map.clone();
            map.entries.iter_mut().for_each(|entry| metered_entry(&mut entry.expr));
            Expr::Map(map)
        }
        Expr::Struct(_) | Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => at.expr.clone(),
    };
    IdedExpr { id: at.id, expr }
}

fn metered_entry(entry: &mut EntryExpr) {
    match entry {
        EntryExpr::StructField(field) => field.value = metered(&field.value),
        EntryExpr::MapEntry(entry) => {
            entry.key = metered(&entry.key);
            entry.value = metered(&entry.value);
        }
    }
}

fn metered_call(id: u64, call: &CallExpr) -> IdedExpr {
    let is_linear = LINEAR.contains(&call.func_name.as_str());
    let argument = |argument: &IdedExpr| {
        let inner = metered(argument);
        if is_linear && has_size(&inner) { wrapped(SIZED, inner, None) } else { inner }
    };
    let call = CallExpr {
        func_name: call.func_name.clone(),
        target: call.target.as_ref().map(|target| Box::new(argument(target))),
        args: call.args.iter().map(argument).collect(),
    };
    let is_pattern = call.func_name == "matches";
    let call = IdedExpr { id, expr: Expr::Call(call) };
    if is_pattern { wrapped(PATTERN, call, None) } else { call }
}

/// Whether the size of what an expression gives is not known: constants are short, and types have none.
fn has_size(at: &IdedExpr) -> bool {
    match &at.expr {
        Expr::Literal(_) => false,
        Expr::Call(call) => call.func_name != "type",
        Expr::Ident(name) => !TYPES.contains(&name.as_str()),
        _ => true,
    }
}

/// Names of types, which are values of their own.
const TYPES: [&str; 10] = ["int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type"];

fn metered_loop(loops: &ComprehensionExpr) -> ComprehensionExpr {
    let nodes = own_nodes(&loops.loop_step) + own_nodes(&loops.loop_cond);
    ComprehensionExpr {
        iter_range: while_left(wrapped(LOOP, metered(&loops.iter_range), Some(nodes))),
        iter_var: loops.iter_var.clone(),
        iter_var2: loops.iter_var2.clone(),
        accu_var: loops.accu_var.clone(),
        accu_init: metered(&loops.accu_init),
        loop_cond: loops.loop_cond.clone(),
        loop_step: metered_step(&loops.loop_step, &loops.accu_var),
        result: loops.result.clone(),
    }
}

/// The step of a loop. What is added to the result so far stays as it is: the interpreter knows it by its shape, and appends in place.
fn metered_step(step: &IdedExpr, accu: &str) -> IdedExpr {
    let is_accu = |at: &IdedExpr| matches!(&at.expr, Expr::Ident(name) if name == accu);
    let Expr::Call(call) = &step.expr else { return metered(step) };
    let part = |at: &IdedExpr| if is_accu(at) { at.clone() } else { metered_step(at, accu) };
    match call.func_name.as_str() {
        operators::CONDITIONAL | operators::LOGICAL_AND | operators::LOGICAL_OR => {
            let call = CallExpr { args: call.args.iter().map(part).collect(), ..call.clone() };
            IdedExpr { id: step.id, expr: Expr::Call(call) }
        }
        operators::ADD if call.args.first().is_some_and(is_accu) => {
            let call = CallExpr { args: call.args.iter().map(part).collect(), ..call.clone() };
            IdedExpr { id: step.id, expr: Expr::Call(call) }
        }
        _ => metered(step),
    }
}

fn wrapped(function: &str, inner: IdedExpr, nodes: Option<u64>) -> IdedExpr {
    let id = inner.id;
    let nodes = nodes.map(|nodes| {
        let nodes = i64::try_from(nodes).unwrap_or(i64::MAX);
        IdedExpr { id, expr: Expr::Literal(LiteralValue::Int(nodes.into())) }
    });
    let args = std::iter::once(inner).chain(nodes).collect();
    IdedExpr { id, expr: Expr::Call(CallExpr { func_name: function.to_owned(), target: None, args }) }
}

/// Only while steps are left: where none are, a list is not even copied to be counted.
fn while_left(inner: IdedExpr) -> IdedExpr {
    let id = inner.id;
    let call = |func_name: &str, args| Expr::Call(CallExpr { func_name: func_name.to_owned(), target: None, args });
    let left = IdedExpr { id, expr: call(LEFT, Vec::new()) };
    let never = IdedExpr { id, expr: call(LEFT, Vec::new()) };
    IdedExpr { id, expr: call(operators::CONDITIONAL, vec![left, inner, never]) }
}

/// Nodes that are evaluated once where this is: the bodies of loops in it are counted by themselves.
fn own_nodes(at: &IdedExpr) -> u64 {
    1 + parts(at).map(own_nodes).sum::<u64>()
}

/// What an expression is made of, without the bodies of loops.
fn parts(at: &IdedExpr) -> Box<dyn Iterator<Item = &IdedExpr> + '_> {
    match &at.expr {
        Expr::Call(call) => Box::new(call.target.as_deref().into_iter().chain(&call.args)),
        Expr::Select(select) => Box::new(std::iter::once(&*select.operand)),
        Expr::List(list) => Box::new(list.elements.iter()),
        Expr::Map(map) => Box::new(map.entries.iter().flat_map(|entry| match &entry.expr {
            EntryExpr::StructField(field) => vec![&field.value],
            EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        })),
        Expr::Comprehension(loops) => Box::new([&loops.iter_range, &loops.accu_init, &loops.result].into_iter()),
        Expr::Struct(_) | Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Box::new(std::iter::empty()),
    }
}

/// All nodes, those of loops too.
pub(super) fn nodes(at: &IdedExpr) -> u64 {
    let body = match &at.expr {
        Expr::Comprehension(loops) => nodes(&loops.loop_step) + nodes(&loops.loop_cond),
        _ => 0,
    };
    1 + body + parts(at).map(nodes).sum::<u64>()
}

/// Steps on the largest event there can be, where every loop goes through all of it.
pub(super) fn worst_steps(at: &IdedExpr) -> u64 {
    let body = match &at.expr {
        Expr::Comprehension(loops) => {
            let once = worst_steps(&loops.loop_step).saturating_add(worst_steps(&loops.loop_cond));
            once.saturating_mul(MOST_ITEMS)
        }
        _ => 0,
    };
    parts(at).fold(body.saturating_add(1), |steps, part| steps.saturating_add(worst_steps(part)))
}

/// Loops within loops, at the deepest.
pub(super) fn loop_depth(at: &IdedExpr) -> u32 {
    let body = match &at.expr {
        Expr::Comprehension(loops) => loop_depth(&loops.loop_step).max(loop_depth(&loops.loop_cond)) + 1,
        _ => 0,
    };
    parts(at).map(loop_depth).fold(body, u32::max)
}
