//! Policies that are and were in force: the journal's texts, what was different in each, and who put it there by the audit log.
//!
//! Never: an author that the audit log does not name, or a text that the journal has let go.

use super::{compiled_or_none, hash, in_words};
use crate::audit_log::ACTS;
use crate::journal::PastPolicy;
use forebay_catalog::Catalogue;
use forebay_wire::document::seconds::Seconds;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;

/// Policies of one answer at most, the newest: a text has some KiB.
pub const MOST_ENTRIES: usize = 100;

/// A start writes its act so long after its batch at most, in ms: it reads and checks the folder in between.
const START_TAKES_MS: u64 = 600_000;

/// One policy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PolicyEntry {
    /// The position of its event in the journal.
    pub seq: u64,
    /// Since when, by the engine's time.
    pub since_s: Seconds,
    /// The BLAKE3 hash of its text.
    pub hash: String,
    /// The file that it came from, or `api`. `None`: the audit log does not say.
    pub from: Option<String>,
    /// Who put it in force. `None`: the audit log does not say.
    pub by: Option<String>,
    /// What was different from the one before, in words. `None`: it is the first, or one of the two does not compile with what can be bought now.
    pub changes: Option<String>,
    /// As it was written.
    pub text: String,
}

/// An act of the audit log that put a policy in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyAct {
    at_ms: u64,
    /// The position of its batch. `None`: a start's.
    seq: Option<u64>,
    hash: String,
    from: Option<String>,
    by: Option<String>,
}

/// The acts in a folder's audit log, oldest first. A log that cannot be read has none.
#[must_use]
pub fn acts(folder: &Path) -> Vec<PolicyAct> {
    let text = std::fs::read_to_string(folder.join(ACTS)).unwrap_or_default();
    text.lines().filter_map(|line| act(&serde_json::from_str(line).ok()?)).collect()
}

fn act(line: &Value) -> Option<PolicyAct> {
    let (kind, what) = (line["act"].as_str()?, &line["what"]);
    // A start that found nothing new put nothing in force.
    if kind != "policy" && !(kind == "start" && what["policyIsNew"] == true) {
        return None;
    }
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let at = line["at"].as_str()?.parse::<jiff::Timestamp>().ok()?.as_millisecond();
    let (hash, from, by) = (text(&what["policy"])?, text(&what["policyFrom"]), text(&line["by"]));
    Some(PolicyAct { at_ms: u64::try_from(at).ok()?, seq: what["seq"].as_u64(), hash, from, by })
}

/// Policies with who put them in force, newest first.
#[must_use]
pub fn entries(policies: &[PastPolicy], acts: &[PolicyAct], catalogue: &Catalogue) -> Vec<PolicyEntry> {
    let newest = &policies[..policies.len().min(MOST_ENTRIES + 1)];
    let compiled: Vec<_> = newest.iter().map(|policy| compiled_or_none(&policy.text, catalogue)).collect();
    let entry = |(at, policy): (usize, &PastPolicy)| {
        let hash = hash(&policy.text);
        let of_this = |act: &&PolicyAct| {
            let after = act.at_ms.checked_sub(policy.since.0).is_some_and(|after| after <= START_TAKES_MS);
            // The event follows its batch's tick.
            act.hash == hash && act.seq.map_or(after, |seq| seq + 1 == policy.seq.0)
        };
        let act = acts.iter().find(of_this);
        let before = compiled.get(at + 1).and_then(Option::as_ref);
        let changes =
            before.zip(compiled[at].as_ref()).map(|(old, new)| in_words(&forebay_policy::difference(old, new)));
        PolicyEntry {
            seq: policy.seq.0,
            since_s: policy.since.into(),
            hash,
            from: act.and_then(|act| act.from.clone()),
            by: act.and_then(|act| act.by.clone()),
            changes,
            text: policy.text.clone(),
        }
    };
    newest.iter().enumerate().take(MOST_ENTRIES).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_kernel::ids::Seq;
    use forebay_kernel::units::Timestamp;

    fn text(nodes: u32) -> String {
        format!(
            "apiVersion: forebay/v1\nkind: Policy\nmetadata: {{name: t}}\nlimits: {{nodes: {nodes}}}\nqueues: {{a: {{}}}}\n"
        )
    }

    #[test]
    fn an_entry_has_its_own_act_and_what_was_different() {
        let policies = [(9, 3_000_000, 2), (5, 2_000_000, 1), (1, 1_000_000, 2)]
            .map(|(seq, since, nodes)| PastPolicy { seq: Seq(seq), since: Timestamp(since), text: text(nodes) });
        let (one, two) = (hash(&text(1)), hash(&text(2)));
        let folder = tempfile::tempdir().expect("a folder");
        let lines = [
            serde_json::json!({"at": "1970-01-01T00:16:42Z", "act": "start", "by": "uid 0", "what": {"policy": two, "policyFrom": "p.yaml", "policyIsNew": true}}),
            serde_json::json!({"at": "1970-01-01T00:17:00Z", "act": "start", "by": "uid 1", "what": {"policy": two, "policyIsNew": false}}),
            serde_json::json!({"at": "1970-01-01T00:33:21Z", "act": "policy", "by": "default/ops", "what": {"policy": one, "policyFrom": "api", "seq": 4}}),
            serde_json::json!({"at": "1970-01-01T00:50:00Z", "act": "cancel", "what": {}}),
        ];
        let lines = lines.map(|line| line.to_string()).join("\n");
        std::fs::write(folder.path().join(ACTS), format!("{lines}\nhalf a li")).expect("written");
        let entries = entries(&policies, &acts(folder.path()), &Catalogue::builtin());
        let told: Vec<_> = entries.iter().map(|e| (e.from.as_deref(), e.by.as_deref(), e.changes.as_deref())).collect();
        let (less, more) = ("`limits.nodes` is 1, was 2", "`limits.nodes` is 2, was 1");
        assert_eq!(
            told,
            [
                (None, None, Some(more)),
                (Some("api"), Some("default/ops"), Some(less)),
                (Some("p.yaml"), Some("uid 0"), None)
            ]
        );
    }
}
