//! The policy as an SRE writes it, and its way into the engine.
//!
//! ```text
//! text -> tree (positions) -> decode (types) -> defaults -> check (meaning) -> compile -> engine policy
//!                                                  |                             |
//!                                               explain                   routes, advice
//! ```
//!
//! ```
//! use forebay_catalog::Catalogue;
//! use forebay_policy::compile;
//!
//! let text = "apiVersion: forebay/v1
//! kind: Policy
//! metadata: {name: small}
//! limits: {nodes: 8, spend: 10 USD/h}
//! queues: {research: {}}
//! pools: {gpus: {instanceTypes: [g5.xlarge]}}
//! ";
//! let compiled = compile("small.yaml", text, &Catalogue::builtin())?;
//! assert_eq!((compiled.policy.name.as_str(), compiled.policy.limits.nodes), ("small", Some(8)));
//!
//! let errors = compile("small.yaml", &text.replace("g5.", "g55."), &Catalogue::builtin()).expect_err("no such type");
//! assert!(errors.to_string().contains("small.yaml:6:"));
//! # Ok::<(), forebay_policy::FileErrors>(())
//! ```
//!
//! Every error names file, line and column, shows the line and the remedy; as many as can be found come at once.
//! Never: reads a file, asks a cloud, panics on any bytes, or reads a field that nothing acts on.

mod advice;
mod check;
mod compile;
mod decode;
mod defaults;
mod difference;
mod empty_values;
mod explain;
mod fault;
mod metered;
mod promises;
mod routes;
mod short_times;
mod small_budgets;
mod tree;
mod undeclared;
mod words;
mod written;

pub use advice::Advice;
pub use difference::difference;
pub use empty_values::without_empty_values;
pub use fault::{FileErrors, FileFault, Pos, meant};
pub use metered::MOST_ROUTE_STEPS;
pub use routes::{RouteUnfinished, Routes};

use decode::YamlKind;
use forebay_catalog::Catalogue;
use forebay_kernel::policy::Policy;
use serde::de::DeserializeOwned;
use tree::YamlNode;
use written::WrittenPolicy;

/// A policy that can be applied.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// What the engine runs under.
    pub policy: Policy,
    /// Which queue a job goes to, asked at intake.
    pub routes: Routes,
    /// What is allowed but unwise, in the order of the file.
    pub advice: Vec<Advice>,
    /// As written, with every default filled in.
    filled: WrittenPolicy,
    /// Where each thing stands.
    tree: tree::YamlNode,
}

impl Compiled {
    /// The whole policy as YAML, every default filled in and marked. It compiles to the same policy.
    #[must_use]
    pub fn explain(&self) -> String {
        explain::explain(&self.filled, &self.tree)
    }

    /// What `forebay check` prints for a good policy: a line of figures, then the advice.
    #[must_use]
    pub fn report(&self, source_name: &str) -> String {
        advice::report(self, source_name)
    }
}

/// The policy's JSON Schema, from the comments that document the fields. It knows types only: names and sums are checked by
/// `forebay check`. A key with nothing after it fits where a policy may have one.
#[must_use]
pub fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(WrittenPolicy);
    empty_values::refuse(&mut schema);
    schema.to_value()
}

/// The tree of a text that is a map with something in it, and what is wrong so far.
fn parsed(text: &str, kind: YamlKind) -> Result<(YamlNode, Vec<FileFault>), Vec<FileFault>> {
    let whole = |message: String, remedy: &str| vec![FileFault::new(Pos::default(), message, remedy)];
    let (a, start, large) = kind.words();
    if text.len() > tree::MAX_BYTES {
        let message = format!("the file has {} bytes, more than the {} that {a} may have", text.len(), tree::MAX_BYTES);
        return Err(whole(message, large));
    }
    let (tree, faults) = tree::parse(text);
    let Some(tree) = tree else {
        return Err(if faults.is_empty() { whole("the file is empty".to_owned(), start) } else { faults });
    };
    match &tree.value {
        tree::Value::Map(entries) if !entries.is_empty() => Ok((tree, faults)),
        tree::Value::Null | tree::Value::Map(_) => Err(whole("the file is empty".to_owned(), start)),
        _ => Err(vec![FileFault::new(tree.pos, format!("this is not {a}: it is not a map"), start)]),
    }
}

/// The faults that are shown, each with the keys that lead to it: to look for all of a hundred thousand would take hours.
fn with_paths(tree: &YamlNode, mut errors: FileErrors) -> FileErrors {
    errors.faults.iter_mut().for_each(|(fault, _)| fault.path = tree.path_to(fault.pos).unwrap_or_default());
    errors
}

/// Reads the text of a configuration as a `T`, as strictly as a policy is read, and no key of it may have nothing after it. No value of it and no
/// line of it is in an error: a secret may have been written where it does not belong.
///
/// # Errors
/// All faults of YAML and of types that could be found, with places and remedies.
pub fn read_config<T: DeserializeOwned>(source_name: &str, text: &str) -> Result<T, FileErrors> {
    let refused = |faults: Vec<FileFault>| FileErrors::without_lines(source_name, faults);
    let (tree, mut faults) = parsed(text, YamlKind::Config).map_err(refused)?;
    let (read, wrong) = decode::decode::<T>(&tree, YamlKind::Config);
    faults.extend(wrong);
    read.filter(|_| faults.is_empty()).ok_or_else(|| with_paths(&tree, refused(faults)))
}

/// Compiles the text of a policy. `source_name` is the file's name in errors.
///
/// # Errors
/// All faults that could be found, with places and remedies: see [`FileErrors`].
pub fn compile(source_name: &str, text: &str, catalogue: &Catalogue) -> Result<Compiled, FileErrors> {
    let refused = |faults: Vec<FileFault>| FileErrors::new(source_name, text, faults);
    let (tree, mut faults) = parsed(text, YamlKind::Policy).map_err(refused)?;
    let refused = |faults: Vec<FileFault>| with_paths(&tree, refused(faults));
    let (written, wrong) = decode::decode::<WrittenPolicy>(&tree, YamlKind::Policy);
    faults.extend(wrong);
    let Some(written) = written else {
        return Err(refused(faults));
    };
    let filled = defaults::filled(&written);
    let (checked, wrong) = check::check(&tree, &written, &filled, catalogue);
    faults.extend(wrong);
    if !faults.is_empty() {
        return Err(refused(faults));
    }
    let policy = compile::build(&written, &filled, &checked.stock);
    let worst = checked.routes.iter().map(|(route, _)| route.worst).collect::<Vec<_>>();
    let mut advice = advice::advise(&tree, &filled, &policy, &checked.stock, &worst);
    advice.extend(short_times::advise(&tree, &filled, &checked.stock));
    advice.extend(small_budgets::advise(&tree, &filled, &checked.stock));
    advice.sort_by_key(|a| a.pos.line);
    let labels = policy.billing.as_ref().map(|rule| rule.labels.clone()).unwrap_or_default();
    Ok(Compiled { policy, routes: Routes::new(checked.routes, labels), advice, filled, tree })
}

/// Compiles the bytes of a policy file, which need not be text.
///
/// # Errors
/// As [`compile`]; bytes that are not UTF-8 are an error with their place.
pub fn compile_bytes(source_name: &str, bytes: &[u8], catalogue: &Catalogue) -> Result<Compiled, FileErrors> {
    match std::str::from_utf8(bytes) {
        Ok(text) => compile(source_name, text, catalogue),
        Err(e) => {
            let good = String::from_utf8_lossy(&bytes[..e.valid_up_to().min(tree::MAX_BYTES)]).into_owned();
            let line = good.matches('\n').count() + 1;
            let column = good.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
            let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
            let pos = Pos { line: number(line), column: number(column), width: 1 };
            let what = "the file is not text: a byte here is not UTF-8";
            let fault = FileFault::new(pos, what, "save the policy as UTF-8 text");
            Err(FileErrors::new(source_name, &good, vec![fault]))
        }
    }
}
