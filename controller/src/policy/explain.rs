//! The policy with all of its defaults, as YAML with a comment at each of them.
use super::tree::Node;
use super::written::Written;

/// Prints.
pub fn explain(_filled: &Written, _tree: &Node) -> String {
    String::new()
}
