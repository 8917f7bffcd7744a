//! Routes: CEL expressions over a job's data that choose its queue at intake, first match.
//!
//! The chosen queue becomes part of the journaled event, so the engine never sees an expression and replays agree.
//! A route that cannot be evaluated on a job (a field it lacks) does not match it. Routes that take more steps than one event may are
//! an error: nobody knows where the job goes.
//! Never: evaluates longer than that.

use super::fault::{meant, shown};
use super::metered::{MOST_NODES, MOST_ROUTE_STEPS, StepMeter, loop_depth, metered, nodes, worst_steps};
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
    routes: Arc<Vec<(RouteExpression, String)>>,
    billing_labels: Arc<Vec<String>>,
}

/// A compiled expression that counts its steps.
#[derive(Clone)]
pub struct RouteExpression {
    counting: IdedExpr,
    /// Steps on the largest event that there can be, where loops are nested.
    pub worst: Option<u64>,
}

/// The routes took more steps on an event than they may: nobody knows where its job goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the policy's routes take more than {MOST_ROUTE_STEPS} steps on this event, at its route {route}: send less in it, or have a simpler \
     route written"
)]
pub struct RouteUnfinished {
    /// The route, from 1, at which the steps ran out.
    pub route: usize,
}

impl Routes {
    pub(super) fn new(routes: Vec<(RouteExpression, String)>, billing_labels: Vec<String>) -> Routes {
        Routes { routes: Arc::new(routes), billing_labels: Arc::new(billing_labels) }
    }

    /// The labels of jobs by which the policy bills.
    #[must_use]
    pub fn billing_labels(&self) -> &[String] {
        &self.billing_labels
    }

    /// The queue of the first route that matches `job`, the submitted event's data as JSON. `None`: the job's own queue stands.
    ///
    /// # Errors
    /// The routes take more than [`MOST_ROUTE_STEPS`] steps.
    pub fn route(&self, job: &serde_json::Value) -> Result<Option<&str>, RouteUnfinished> {
        if self.routes.is_empty() {
            return Ok(None);
        }
        let (mut context, meter) = (Context::default(), StepMeter::default());
        meter.install(&mut context);
        context.add_variable_from_value("job", from_json(job));
        for (at, (when, queue)) in self.routes.iter().enumerate() {
            let matched = matches!(Value::resolve(&when.counting, &context), Ok(Value::Bool(true)));
            if meter.is_spent() {
                return Err(RouteUnfinished { route: at + 1 });
            }
            if matched {
                return Ok(Some(queue));
            }
        }
        Ok(None)
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
pub(super) fn compile(when: &str) -> Result<RouteExpression, Wrong> {
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
    let expression = program.expression();
    let size = nodes(expression);
    if size > MOST_NODES {
        let what = format!(
            "the route's expression has {size} parts once its macros are written out; {MOST_NODES} are the most"
        );
        return Err((what, "split it into several routes".to_owned()));
    }
    let mut names = Names::default();
    names.walk(program.expression(), &mut Vec::new());
    if let Some(name) = names.unknown.first() {
        let name = shown(name);
        let remedy = format!(
            "an expression sees `job` only: write `job.{name}` if it is a field of the job, or \"{name}\" if it is a text"
        );
        return Err((format!("`{name}` is not known in a route"), remedy));
    }
    if let Some(name) = names.functions.iter().find(|f| !known_function(f)) {
        return Err((format!("`{}` is not a function of CEL", shown(name)), meant(name, FUNCTIONS)));
    }
    if names.made_patterns {
        let what = "`matches` gets a pattern that is not written in the route".to_owned();
        return Err((what, "write the pattern in quotes: one from an event could take for ever".to_owned()));
    }
    if !names.sees_job {
        let what = format!("`{}` says nothing about the job", shown(when));
        return Err((
            what,
            "ask for something of `job`; what no route takes keeps its own queue, or falls to `undeclaredQueues`"
                .to_owned(),
        ));
    }
    let worst = (loop_depth(expression) > 1).then(|| worst_steps(expression)).filter(|steps| *steps > MOST_ROUTE_STEPS);
    Ok(RouteExpression { counting: metered(expression), worst })
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
    /// A pattern comes from somewhere else than the expression.
    made_patterns: bool,
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
                let literal = |at: &IdedExpr| matches!(at.expr, Expr::Literal(_));
                self.made_patterns |= call.func_name == "matches" && !call.args.last().is_some_and(literal);
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
        let route = |job: serde_json::Value| routes.route(&job).unwrap().map(str::to_owned);
        assert_eq!(route(json!({"labels": {"kind": "notebook"}, "priority": 9})).as_deref(), Some("interactive"));
        assert_eq!(route(json!({"priority": 9, "gang": {"each": {"gpus": 8}}})).as_deref(), Some("big"));
        assert_eq!(route(json!({"run": {"args": ["--sweep=3"]}})).as_deref(), Some("sweep"));
        assert_eq!(route(json!({"queue": "x"})), None);
        assert_eq!(route(json!(null)), None);
    }

    /// What CEL itself says of an expression.
    fn plain(when: &str, job: &serde_json::Value) -> bool {
        let mut context = Context::default();
        context.add_variable_from_value("job", from_json(job));
        matches!(Program::compile(when).unwrap().execute(&context), Ok(Value::Bool(true)))
    }

    #[test]
    fn counting_changes_no_result() {
        let jobs = [
            json!({"run": {"args": ["a", "bb", "--sweep=3"]}, "labels": {"kind": "x", "n": 3}, "priority": 4}),
            json!({"run": {"args": []}, "labels": {}, "priority": 0}),
            json!({"priority": 7, "labels": {"kind": "notebook"}}),
        ];
        for when in [
            "job.run.args.exists(a, a.startsWith('--'))",
            "job.run.args.all(a, size(a) < 3)",
            "job.run.args.exists_one(a, a == 'a')",
            "job.run.args.map(a, size(a)) == [1, 2, 9]",
            "job.run.args.filter(a, a.contains('b')).size() == 1",
            "job.run.args.map(a, a != 'a', a + '!') == ['bb!', '--sweep=3!']",
            "'bb' in job.run.args && job.labels.n + 1 == job.priority",
            "has(job.labels.kind) && job.labels.kind == 'notebook'",
            "job.labels.exists(k, k == 'kind')",
            "job.run.args.exists(a, job.run.args.exists(b, a + a == b))",
            "job.labels.kind.matches('^note.*k$') || job.priority > 5",
            "!(job.run.args == []) && [1, 2].exists(n, n == job.priority - 2)",
        ] {
            let routes = routes(&[(when, "q")]);
            for job in &jobs {
                assert_eq!(routes.route(job).unwrap().is_some(), plain(when, job), "{when} on {job}");
            }
        }
    }

    #[test]
    fn what_takes_too_many_steps_is_an_error_and_once_through_is_not() {
        let args: Vec<String> = (0..16_000).map(|n| format!("--{n}")).collect();
        let job = json!({"run": {"args": args}});
        let once = "job.run.args.exists(a, a == '--none')";
        assert_eq!(routes(&[(once, "q")]).route(&job), Ok(None));
        let squared = "job.run.args.exists(a, job.run.args.exists(b, a + b == 'x'))";
        let cubed = "job.run.args.exists(a, job.run.args.exists(b, job.run.args.exists(c, a + b == c)))";
        let copied = "job.run.args.exists(a, job.run.args + ['x'] == ['y'])";
        let absorbed = "job.run.args.exists(a, job.run.args.exists(b, a + b == 'x')) || true == job.on";
        for when in [squared, cubed, copied, absorbed] {
            assert_eq!(routes(&[(once, "p"), (when, "q")]).route(&job), Err(RouteUnfinished { route: 2 }), "{when}");
        }
        assert!(compile(once).unwrap().worst.is_none());
        assert!(compile(squared).unwrap().worst.is_some_and(|steps| steps > 100_000_000));
        assert!(compile("job.a.matches(job.b)").is_err(), "a pattern of the sender's");
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
