//! Advice about times of `lifecycle` that are allowed, but shorter than what they have to outlast.
//!
//! Never: refuses. A time within which nothing at all can happen is a fault and belongs to `check`.

use super::advice::Advice;
use super::check::PoolStock;
use super::fault::{Pos, listed};
use super::tree::YamlNode;
use super::written::WrittenPolicy;
use forebay_kernel::units::Span;
use forebay_quantity::Time;

/// What a drain should wait for: Kubernetes' objective for the start of a pod whose images are there is 5 s, and its binding is a part of
/// it (Kubernetes scalability SLOs, "Pod startup latency").
const BINDING: Span = Span::secs(5);

/// What a start should be given: images for GPUs have several GB, and few are pulled in less.
const PULL: Span = Span::mins(1);

/// All of it, in the order of the fields here.
pub(super) fn advise(tree: &YamlNode, filled: &WrittenPolicy, stock: &[PoolStock]) -> Vec<Advice> {
    let lifecycle = filled.lifecycle.unwrap_or_default();
    let texts = [
        ("drainSettle", lifecycle.drain_settle.filter(|settle| settle.0 < BINDING).map(unsettled)),
        ("startTimeout", lifecycle.start_timeout.filter(|timeout| timeout.0 < PULL).map(unstarted)),
        ("bootTimeout", lifecycle.boot_timeout.and_then(|timeout| given_up(timeout, stock))),
    ];
    texts.into_iter().filter_map(|(field, text)| Some(advice(tree, field, text?))).collect()
}

fn advice(tree: &YamlNode, field: &str, text: String) -> Advice {
    let path = ["lifecycle", field];
    // A default stands nowhere.
    if !tree.has(&path) {
        return Advice { pos: Pos::default(), path: Vec::new(), text };
    }
    Advice { pos: tree.key_pos(&path), path: Vec::from(path.map(str::to_owned)), text }
}

fn unsettled(settle: Time) -> String {
    format!(
        "`lifecycle.drainSettle` is {settle}: a pod that was being bound when its node was tainted may be missed, and the node terminated under \
         it; write {} or more, unless the cluster is simulated",
        Time(BINDING)
    )
}

fn unstarted(timeout: Time) -> String {
    format!(
        "`lifecycle.startTimeout` is {timeout}: a gang that has to pull its image is stopped before it has started, again and again; write {} or \
         more",
        Time(PULL)
    )
}

/// About types that take longer to boot than they are given.
fn given_up(timeout: Time, stock: &[PoolStock]) -> Option<String> {
    let slow = || stock.iter().flat_map(|stock| &stock.offerings).filter(|offering| offering.boot > timeout.0);
    let longest = slow().map(|offering| offering.boot).max().map(Time)?;
    let mut types: Vec<&str> = slow().map(|offering| offering.instance_type.as_str()).collect();
    types.sort_unstable();
    types.dedup();
    Some(format!(
        "`lifecycle.bootTimeout` is {timeout}, too short for {}: such a node is given up before it is ready; write {longest} or more, or leave \
         such types out",
        listed(&types)
    ))
}
