//! Advice: what a policy says that this version does not do yet, and what is allowed but unwise.
use super::check::Stock;
use super::tree::Node;
use super::written::Written;
use super::Compiled;
use forebay_engine::policy::Policy;

/// One line of advice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advice {
    /// Line.
    pub line: u32,
    /// Text.
    pub text: String,
}

pub(super) fn advise(_tree: &Node, _written: &Written, _filled: &Written, _policy: &Policy, _stock: &[Stock]) -> Vec<Advice> {
    Vec::new()
}

pub(super) fn report(_compiled: &Compiled, _source: &str) -> String {
    String::new()
}
