//! Pools of owned nodes: labels that a node can have and that no other pool names too, and nothing beside them that is about buying.
//!
//! Never: asks a cluster which nodes there are.

use super::super::fault::shown;
use super::super::written::{WrittenOwned, WrittenPool};
use super::Check;

/// Labels of nodes that Forebay itself writes.
const OWN_LABELS: &str = "forebay.dev/";
/// What Kubernetes allows.
const LABEL_RULE: &str =
    "a label is letters, digits, `-`, `_` and `.`, at most 63 of them, a key with a DNS name and `/` before it at will";

impl Check<'_> {
    pub(super) fn owned(&mut self, name: &str, owned: &WrittenOwned) {
        self.nothing_beside(name);
        let at = ["pools", name, "owned", "nodes"];
        if owned.nodes.is_empty() {
            let what = format!("pool `{name}` names no label, so every node of the cluster would be one of its own");
            self.at_key(&at, what, "name a label of its nodes, such as `nodes: {example.com/team: [lab]}`");
        }
        for (key, values) in &owned.nodes {
            let at = ["pools", name, "owned", "nodes", key.as_str()];
            if key.starts_with(OWN_LABELS) {
                let what = format!("`{}` is on nodes that Forebay bought", shown(key));
                self.at_key(&at, what, "name a label that the owner of the nodes sets");
            } else if !is_key(key) {
                self.at_key(&at, format!("`{}` cannot be the key of a label", shown(key)), LABEL_RULE);
            }
            if values.is_empty() {
                self.at_key(&at, format!("label `{}` of pool `{name}` has no value", shown(key)), "list at least one");
            }
            for (place, value) in values.iter().enumerate().filter(|(_, value)| !is_value(value)) {
                let place = place.to_string();
                self.at(
                    &["pools", name, "owned", "nodes", key.as_str(), &place],
                    format!("`{}` cannot be the value of a label", shown(value)),
                    LABEL_RULE,
                );
            }
        }
    }

    /// What is about buying says nothing of nodes that are there.
    fn nothing_beside(&mut self, name: &str) {
        let Some(WrittenPool { instance_types, zones, ceiling, keep_ready, drain, sharing, spot, network, owned: _ }) =
            self.written.pools.as_ref().and_then(|pools| pools.get(name))
        else {
            return;
        };
        let beside = [
            ("instanceTypes", instance_types.is_some()),
            ("zones", zones.is_some()),
            ("ceiling", ceiling.is_some()),
            ("keepReady", keep_ready.is_some()),
            ("drain", drain.is_some()),
            ("sharing", sharing.is_some()),
            ("spot", spot.is_some()),
            ("network", network.is_some()),
        ];
        for (field, _) in beside.iter().filter(|(_, written)| *written) {
            let what = format!("pool `{name}` has owned nodes, and `{field}` is for nodes that are bought");
            self.at_key(
                &["pools", name, field],
                what,
                "leave it out, or make two pools of it and list both in the queue",
            );
        }
    }

    /// A node is in one pool: two that could name the same one need a label with different values.
    pub(super) fn one_owner(&mut self) {
        let pools: Vec<(&String, &WrittenOwned)> =
            self.filled.pools.iter().flatten().filter_map(|(name, pool)| Some((name, pool.owned.as_ref()?))).collect();
        // One without labels has been told so.
        let named = |(_, (_, owned)): &(usize, &(&String, &WrittenOwned))| !owned.nodes.is_empty();
        for (at, (name, owned)) in pools.iter().enumerate().filter(named) {
            let twin = pools[..at].iter().find(|(_, other)| !other.nodes.is_empty() && !apart(owned, other));
            if let Some((other, _)) = twin {
                let what = format!("pools `{other}` and `{name}` may name the same node");
                let remedy = "give both one label in common with other values in each";
                self.at_key(&["pools", name, "owned", "nodes"], what, remedy);
            }
        }
    }
}

/// Whether no node can have the labels of both.
fn apart(one: &WrittenOwned, other: &WrittenOwned) -> bool {
    one.nodes.iter().any(|(key, values)| {
        other.nodes.get(key).is_some_and(|others| values.iter().all(|value| !others.contains(value)))
    })
}

fn is_key(key: &str) -> bool {
    let (prefix, name) = key.rsplit_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let dns = |text: &str| {
        text.len() <= 253 && text.split('.').all(|part| is_value(part) && !part.is_empty() && !part.contains('_'))
    };
    !name.is_empty() && is_value(name) && prefix.is_none_or(dns)
}

/// An empty value is one.
fn is_value(value: &str) -> bool {
    let ends = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    let inside = value.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    value.len() <= 63 && inside && ends(value.chars().next()) && ends(value.chars().last())
}
