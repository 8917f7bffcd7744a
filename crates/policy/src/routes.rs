//! Routes: CEL expressions over a job's data that choose its queue at intake, first match.
//!
//! The chosen queue becomes part of the journaled event, so the engine never sees an expression and replays agree.
//! Never: fails an event. A route that cannot be evaluated on a job (a field it lacks) does not match it.

use super::fault::{meant, shown};
use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::objects::{Key, Value};
use cel::{Context, Program};
use std::fmt;
use std::sync::Arc;

/// Longest expression: bounds the time of its parser.
const MAX_EXPRESSION: usize = 1000;
/// Deepest nesting of brackets: bounds the parser's stack.
const MAX_NESTING: usize = 20;

/// Compiled routes in the order of the policy.
#[derive(Clone, Default)]
pub struct Routes {
    routes: Arc<Vec<(Program, String)>>,
    billing_labels: Arc<Vec<String>>,
}

impl Routes {
    pub(super) fn new(routes: Vec<(Program, String)>, billing_labels: Vec<String>) -> Routes {
        Routes { routes: Arc::new(routes), billing_labels: Arc::new(billing_labels) }
    }

    /// The labels of jobs by which the policy bills.
    #[must_use]
    pub fn billing_labels(&self) -> &[String] {
        &self.billing_labels
    }

    /// The queue of the first route that matches `job`, the submitted event's data as JSON. `None`: the job's own queue stands.
    #[must_use]
    pub fn route(&self, job: &serde_json::Value) -> Option<&str> {
        if self.routes.is_empty() {
            return None;
        }
        let mut context = Context::default();
        context.add_variable_from_value("job", from_json(job));
        self.routes
            .iter()
            .find(|(when, _)| matches!(when.execute(&context), Ok(Value::Bool(true))))
            .map(|(_, q)| q.as_str())
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.routes.iter().map(|(_, queue)| queue)).finish()
    }
}

/// What is wrong with an expression: what, and the remedy.
pub(super) type Wrong = (String, String);

/// Compiles one expression. Names other than `job` and unknown functions are wrong; so is a result that can never be true.
pub(super) fn compile(when: &str) -> Result<Program, Wrong> {
    let example = "write an expression such as `job.labels.kind == \"notebook\"`".to_owned();
    if when.trim().is_empty() {
        return Err(("the route's expression is empty".to_owned(), example));
    }
    if when.len() > MAX_EXPRESSION || nesting(when) > MAX_NESTING {
        let what = format!(
            "the route's expression is longer than {MAX_EXPRESSION} characters or nested deeper than {MAX_NESTING} brackets"
        );
        return Err((what, "split it into several routes".to_owned()));
    }
    // The parser is a third party's, and policies come from people: a panic in it is a refusal, not an end.
    let parsed = std::panic::catch_unwind(|| Program::compile(when));
    let program = match parsed {
        Ok(Ok(program)) => program,
        Ok(Err(errors)) => {
            let first = errors.errors.first();
            let why = first.map_or_else(|| "syntax error".to_owned(), |e| shown(&e.msg));
            let column = first.map_or(1, |e| e.pos.1.max(0));
            return Err((format!("the route's expression is not CEL: {why}, at its column {column}"), example));
        }
        Err(_) => return Err(("the route's expression is not CEL".to_owned(), example)),
    };
    let mut names = Names::default();
    names.walk(program.expression(), &mut Vec::new());
    if let Some(name) = names.unknown.first() {
        let remedy = format!("an expression sees `job` only: write `job.{}` if that is meant", shown(name));
        return Err((format!("`{}` is not known in a route", shown(name)), remedy));
    }
    if let Some(name) = names.functions.iter().find(|f| !known_function(f)) {
        return Err((format!("`{}` is not a function of CEL", shown(name)), meant(name, FUNCTIONS)));
    }
    if !names.sees_job {
        let what = format!("`{}` says nothing about the job", shown(when));
        return Err((
            what,
            "ask for something of `job`; what no route takes keeps its own queue, or falls to `undeclaredQueues`"
                .to_owned(),
        ));
    }
    Ok(program)
}

fn nesting(text: &str) -> usize {
    let mut depth = 0usize;
    let mut deepest = 0;
    for c in text.chars() {
        match c {
            // Prefix operators nest as well.
            '(' | '[' | '{' | '!' | '-' | '?' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

const FUNCTIONS: [&str; 27] = [
    "contains",
    "endsWith",
    "startsWith",
    "matches",
    "size",
    "has",
    "all",
    "exists",
    "exists_one",
    "map",
    "filter",
    "string",
    "int",
    "uint",
    "double",
    "bool",
    "bytes",
    "type",
    "dyn",
    "duration",
    "timestamp",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getDayOfWeek",
    "min",
    "max",
];

fn known_function(name: &str) -> bool {
    // Operators have names of their own, such as `_==_` and `@in`.
    name.starts_with(['_', '@', '!', '-']) || FUNCTIONS.contains(&name)
}

/// The names in an expression, those bound by macros (`exists(x, ...)`) left out.
#[derive(Default)]
struct Names {
    unknown: Vec<String>,
    functions: Vec<String>,
    sees_job: bool,
}

impl Names {
    fn walk(&mut self, at: &IdedExpr, bound: &mut Vec<String>) {
        match &at.expr {
            Expr::Unspecified | Expr::Literal(_) => {}
            Expr::Ident(name) if name == "job" => self.sees_job = true,
            Expr::Ident(name) => {
                if !bound.contains(name) && !name.starts_with('@') {
                    self.unknown.push(name.clone());
                }
            }
            Expr::Call(call) => {
                self.functions.push(call.func_name.clone());
                call.target.iter().for_each(|t| self.walk(t, bound));
                call.args.iter().for_each(|a| self.walk(a, bound));
            }
            Expr::Select(select) => self.walk(&select.operand, bound),
            Expr::List(list) => list.elements.iter().for_each(|e| self.walk(e, bound)),
            Expr::Map(map) => map.entries.iter().for_each(|e| self.entry(&e.expr, bound)),
            Expr::Struct(made) => {
                self.unknown.push(made.type_name.clone());
                made.entries.iter().for_each(|e| self.entry(&e.expr, bound));
            }
            Expr::Comprehension(loops) => {
                self.walk(&loops.iter_range, bound);
                let before = bound.len();
                bound.extend([loops.iter_var.clone(), loops.accu_var.clone()]);
                bound.extend(loops.iter_var2.clone());
                for part in [&loops.accu_init, &loops.loop_cond, &loops.loop_step, &loops.result] {
                    self.walk(part, bound);
                }
                bound.truncate(before);
            }
        }
    }

    fn entry(&mut self, entry: &EntryExpr, bound: &mut Vec<String>) {
        match entry {
            EntryExpr::StructField(field) => self.walk(&field.value, bound),
            EntryExpr::MapEntry(entry) => {
                self.walk(&entry.key, bound);
                self.walk(&entry.value, bound);
            }
        }
    }
}

/// JSON as CEL sees it: whole numbers are `int`, so that `job.priority > 5` is what it looks like.
fn from_json(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(b) => Value::Bool(*b),
        serde_json::Value::Number(n) => match (n.as_i64(), n.as_f64()) {
            (Some(n), _) => Value::Int(n),
            (None, Some(n)) => Value::Float(n),
            (None, None) => Value::Null,
        },
        serde_json::Value::String(s) => Value::from(s.as_str()),
        serde_json::Value::Array(items) => Value::from(items.iter().map(from_json).collect::<Vec<Value>>()),
        serde_json::Value::Object(fields) => {
            #[expect(clippy::disallowed_types, reason = "CEL takes this map; routes look keys up and never walk it")]
            let map: std::collections::HashMap<Key, Value> =
                fields.iter().map(|(k, v)| (Key::from(k.as_str()), from_json(v))).collect();
            Value::from(map)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn routes(whens: &[(&str, &str)]) -> Routes {
        let compiled = whens.iter().map(|(w, q)| (compile(w).unwrap(), (*q).to_owned())).collect();
        Routes::new(compiled, Vec::new())
    }

    #[test]
    fn the_first_match_wins_and_a_missing_field_is_no_match() {
        let routes = routes(&[
            ("job.labels.kind == \"notebook\"", "interactive"),
            ("job.priority > 5 && job.gang.each.gpus >= 8", "big"),
            ("job.run.args.exists(a, a.startsWith(\"--sweep\"))", "sweep"),
        ]);
        assert_eq!(routes.route(&json!({"labels": {"kind": "notebook"}, "priority": 9})), Some("interactive"));
        assert_eq!(routes.route(&json!({"priority": 9, "gang": {"each": {"gpus": 8}}})), Some("big"));
        assert_eq!(routes.route(&json!({"run": {"args": ["--sweep=3"]}})), Some("sweep"));
        assert_eq!(routes.route(&json!({"queue": "x"})), None);
        assert_eq!(routes.route(&json!(null)), None);
    }

    #[test]
    fn expressions_that_cannot_choose_are_refused() {
        for bad in
            ["", "job.", "labels.kind == 'a'", "true", "job.name.lower() == 'a'", "1 + ", "((((((((((((((((((((((job"]
        {
            assert!(compile(bad).is_err(), "{bad}");
        }
    }
}
