//! What a policy means, and whether that can be: every rule beyond the type of a single field, with the place of each fault.
//!
//! ```text
//! names -> tiers -> pools -> lifecycle -> queues -> budgets -> quota tree -> undeclared queues -> routes -> reach (can each queue start anything?)
//! ```
//!
//! Never: advises (that is `advice`), compiles, or stops at the first fault.

mod billing;
mod lifecycle;
mod owned;
mod pools;
mod queues;
mod quota;
mod reach;
mod sharing;
mod targets;
mod tiers;

use super::fault::{FileFault, Pos, shown};
use super::routes::RouteExpression;
use super::tree::YamlNode;
use super::written::WrittenPolicy;
use forebay_catalog::Catalogue;

pub use pools::PoolStock;
pub use sharing::layouts;
pub use targets::{can_hold_on_demand, cheapest_hour};

/// Longest name of a tier or pool, and of one segment of a queue's path: they become metric labels and pod names.
const MAX_NAME: usize = 63;
/// Longest path of a queue.
const MAX_PATH: usize = 253;
/// Deepest path of a queue.
const MAX_LEVELS: usize = 8;
/// Tiers, pools, queues at most. Ids of the quota tree are 16 bits wide: 8,000 queues x 8 levels fit.
const MAX_TIERS: usize = 64;
const MAX_POOLS: usize = 256;
const MAX_QUEUES: usize = 8_000;

/// What the checks found, besides faults: what the compiler needs and would have to do again.
pub struct CheckedPolicy {
    /// Compiled routes with their targets.
    pub routes: Vec<(RouteExpression, String)>,
    /// What each pool can buy, in the order of the pools.
    pub stock: Vec<PoolStock>,
}

/// Checks a policy: as written, and with its defaults filled in.
pub fn check(
    tree: &YamlNode,
    written: &WrittenPolicy,
    filled: &WrittenPolicy,
    catalogue: &Catalogue,
) -> (CheckedPolicy, Vec<FileFault>) {
    let mut check = Check { tree, written, filled, catalogue, faults: Vec::new() };
    check.metadata();
    check.tiers();
    let stock = check.pools();
    check.lifecycle(&stock);
    check.billing();
    check.queues();
    check.budgets(&stock);
    check.quota_tree();
    check.undeclared();
    let routes = check.routes();
    // Only a policy whose names hold can be asked what it can reach.
    if check.faults.is_empty() {
        check.reach(&stock);
    }
    (CheckedPolicy { routes, stock }, check.faults)
}

struct Check<'a> {
    tree: &'a YamlNode,
    /// As written: names are checked where they stand.
    written: &'a WrittenPolicy,
    /// With defaults: figures are checked as they will hold.
    filled: &'a WrittenPolicy,
    catalogue: &'a Catalogue,
    faults: Vec<FileFault>,
}

impl Check<'_> {
    fn fault(&mut self, pos: Pos, message: impl Into<String>, remedy: impl Into<String>) {
        self.faults.push(FileFault::new(pos, message, remedy));
    }

    /// A fault at the value of a path.
    fn at(&mut self, path: &[&str], message: impl Into<String>, remedy: impl Into<String>) {
        self.fault(self.tree.value_pos(path), message, remedy);
    }

    /// A fault at the key of a path.
    fn at_key(&mut self, path: &[&str], message: impl Into<String>, remedy: impl Into<String>) {
        self.fault(self.tree.key_pos(path), message, remedy);
    }

    /// A fault where a map has more entries than there may be.
    fn at_most(&mut self, key: &str, entries: usize, most: usize, remedy: &str) {
        if entries > most {
            self.at_key(&[key], format!("{entries} {key} are more than the {most} that there may be"), remedy);
        }
    }

    fn metadata(&mut self) {
        let name = &self.written.metadata.name;
        if !is_name(name) {
            let what = format!("`{}` cannot be a policy's name", shown(name));
            self.at(&["metadata", "name"], what, NAME_RULE);
        }
    }
}

const NAME_RULE: &str = "use letters, digits, `-`, `_` and `.`, at most 63 of them, the first a letter or digit";

/// A name that can be a label, a file and a part of a path.
fn is_name(name: &str) -> bool {
    let first = name.chars().next().is_some_and(|c| c.is_ascii_alphanumeric());
    let rest = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    first && rest && name.len() <= MAX_NAME
}
