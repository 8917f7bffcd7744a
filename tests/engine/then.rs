//! Then: what a story may expect, read from the engine's tables and from what it has said and released.
//!
//! Never: computed by a stage. A phase, a count, an order: each is stated in the story and compared here.

use crate::cluster::Cluster;
use crate::words::Words;
use alloc::collections::{BTreeMap, BTreeSet};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::Decision;
use forebay_kernel::effect::Action;
use forebay_kernel::ids::{NodeId, Seq};
use forebay_kernel::state::jobs::Phase;

fn phase_word(phase: Phase) -> String {
    let word = format!("{phase:?}");
    let word = word.split([' ', '{']).next().unwrap_or_default();
    match phase {
        Phase::Done { outcome } => format!("{outcome:?}").to_lowercase(),
        _ => word.to_lowercase(),
    }
}

/// Then: what must be so by now.
pub fn then(world: &Cluster, names: &[String], verb: &str, mut w: Words) {
    let said = match verb {
        // nodes [none] PHASE|OFFERING|all=N
        "nodes" => nodes(world, names),
        // bought OFFERING=N: claims decided on so far
        "bought" => {
            let mut bought = BTreeMap::new();
            for decision in world.log.batches.iter().flat_map(|b| &b.decisions) {
                if let Decision::Buy { offering, count, .. } = decision {
                    *bought.entry(names[offering.index()].clone()).or_insert(0) += count;
                }
            }
            bought.into_iter().map(|(k, n)| (k, n.to_string())).collect()
        }
        // gpu-minutes spot=N on-demand=N: GPU time bought so far
        "gpu-minutes" => {
            let ledger = world.state().ledger_now();
            let of = |capacity| (ledger.account(capacity).bought.0 / 60_000_000).to_string();
            BTreeMap::from([("spot".into(), of(CapacityType::Spot)), ("on-demand".into(), of(CapacityType::OnDemand))])
        }
        // released start=N start-ids=N ...: effects so far, and how many different ones
        "released" => released(world),
        // decided book=N ...: decisions so far
        "decided" => {
            let mut kinds: BTreeMap<String, u32> = BTreeMap::new();
            for decision in world.log.batches.iter().flat_map(|b| &b.decisions) {
                let word = format!("{decision:?}");
                let word = word.split([' ', '{']).next().unwrap_or_default();
                *kinds.entry(word.to_lowercase()).or_default() += 1;
            }
            kinds.into_iter().map(|(k, n)| (k, n.to_string())).collect()
        }
        // started a b ...: all starts so far, in order
        "started" => {
            let started = world.log.effects.iter().filter_map(|e| match &e.action {
                Action::Start { job, .. } => Some(world.state().job(*job)?.1.subject.as_str()),
                _ => None,
            });
            return assert_eq!(started.collect::<Vec<&str>>(), w.plain);
        }
        // said NAME queued admitted ...: all its messages so far, in order
        "said" => {
            let own = world.log.statuses.iter().filter(|s| s.subject == w.at(0));
            let words: Vec<&str> = own.map(|s| s.kind.as_str()).collect();
            return assert_eq!(words, w.plain[1..]);
        }
        // counted open= running= completed= failed= cancelled= rejected= over-budget= replicas= replicas-over= ignored= early=:
        // replicas apart from jobs; events that changed nothing; cancels that are kept
        "counted" => counted(world),
        // refused NAME CODE: the last submission never became a job
        "refused" => {
            let last = world.log.statuses.iter().rfind(|s| s.job.is_none());
            let last = last.expect("a refusal");
            let code = last.reason.map(|r| r.code());
            return assert_eq!((last.subject.as_str(), code), (w.at(0), Some(w.at(1))));
        }
        // because NAME CODE: why, as its last message says
        "because" => {
            let last = world.log.statuses.iter().rfind(|s| s.subject == w.at(0)).expect("a message");
            return assert_eq!(last.reason.map(|r| r.code()), Some(w.at(1)));
        }
        // node NODE [condemned=yes|no] [faults=N]
        "node" => {
            let node = world.state().nodes().find(|node| node.id.to_string() == w.at(0)).expect("a node");
            let condemned = if node.condemned { "yes" } else { "no" };
            BTreeMap::from([("condemned".into(), condemned.into()), ("faults".into(), node.faults.to_string())])
        }
        // NAME PHASE [CODE] [replicas= loaded= attempt= failures= progress= workers= on= from= saved= share= ...]
        name => about(world, names, name, &w),
    };
    for (key, wanted) in w.rest() {
        let got = said.get(key).map_or("0", String::as_str);
        assert_eq!(got, wanted, "{verb}: {key}");
    }
}

fn nodes(world: &Cluster, names: &[String]) -> BTreeMap<String, String> {
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for node in world.state().nodes() {
        let offering = names[node.offering.index()].clone();
        for key in ["all".to_owned(), node.phase.as_str().to_owned(), offering] {
            *counts.entry(key).or_default() += 1;
        }
    }
    let money = |n: u64| (n / crate::making::DOLLAR).to_string();
    let mut said: BTreeMap<String, String> = counts.into_iter().map(|(k, n)| (k, n.to_string())).collect();
    said.insert("spend".into(), money(world.state().totals().all.spend.0));
    said
}

fn counted(world: &Cluster) -> BTreeMap<String, String> {
    let (state, counters) = (world.state(), world.state().counters());
    let [completed, failed, cancelled, rejected] = counters.outcomes;
    let counts = [
        ("open", state.open_jobs() as u64),
        ("running", state.running_jobs() as u64),
        ("completed", completed),
        ("failed", failed),
        ("cancelled", cancelled),
        ("rejected", rejected),
        ("over-budget", counters.over_budget),
        ("replicas", counters.replicas),
        ("replicas-over", counters.replicas_over),
        ("ignored", counters.ignored_events),
        ("early", state.pending_cancels().count() as u64),
    ];
    counts.into_iter().map(|(k, n)| (k.to_owned(), n.to_string())).collect()
}

fn released(world: &Cluster) -> BTreeMap<String, String> {
    let mut ids: BTreeMap<&str, (u32, BTreeSet<Seq>)> = BTreeMap::new();
    for effect in &world.log.effects {
        let kind = match effect.action {
            Action::Launch { .. } => "launch",
            Action::Terminate { .. } => "terminate",
            Action::Start { .. } => "start",
            Action::Stop { .. } => "stop",
            Action::Shrink { .. } => "shrink",
        };
        let entry = ids.entry(kind).or_default();
        entry.0 += 1;
        entry.1.insert(effect.id);
    }
    let mut said = BTreeMap::new();
    for (kind, (times, ids)) in ids {
        said.insert(kind.to_owned(), times.to_string());
        said.insert(format!("{kind}-ids"), ids.len().to_string());
    }
    said
}

/// `NAME PHASE [CODE] key=value ...`: the phase and code are compared here, the rest is returned.
fn about(world: &Cluster, names: &[String], name: &str, w: &Words) -> BTreeMap<String, String> {
    let id = world.id(name).unwrap_or_else(|| panic!("no job {name}"));
    let (row, _) = world.state().job(id).expect("a row");
    let code = world.engine.why(id).map_or("-", |r| r.code());
    let phase = phase_word(row.phase);
    let wanted = (w.at(0), w.plain.get(1).copied().unwrap_or(code));
    assert_eq!((phase.as_str(), code), wanted, "{name}: {:?}", world.engine.why(id));
    let on: BTreeSet<NodeId> = row.places.iter().map(|p| p.node).collect();
    let of = |node: &NodeId| Some(names[world.state().node(*node)?.offering.index()].as_str());
    let kinds: BTreeSet<&str> = on.iter().filter_map(of).collect();
    let join = |set: Vec<String>| set.join(",");
    let slices = row.places.iter().filter_map(|p| Some(format!("{}:{}", p.node, p.slice?)));
    let places = row.places.iter().map(|p| format!("{}:{:b}", p.node, p.gpus));
    let mut said = BTreeMap::from([
        ("attempt", row.attempt.0.to_string()),
        ("failures", row.failures.to_string()),
        ("interruptions", row.interruptions.to_string()),
        ("progress", format!("{}s", row.progress.0 / 1000)),
        ("workers", row.places.len().to_string()),
        ("nodes", on.len().to_string()),
        ("on", join(on.iter().map(|n| n.to_string()).collect())),
        ("of", join(kinds.into_iter().map(String::from).collect())),
        ("gpus", join(places.collect())),
        ("slices", join(slices.collect())),
        ("share", row.share.to_string()),
        ("replicas", world.state().replicas(id).count().to_string()),
        ("loaded", world.state().service(id).map_or(0, |s| s.loaded).to_string()),
    ]);
    let streak = world.state().streak(id).cloned().unwrap_or_default();
    said.insert("start-failures", streak.start_failures.to_string());
    said.insert("reclaims", streak.reclaims.to_string());
    let eta = world.engine.why(id).and_then(|r| r.eta());
    said.insert("eta", eta.map_or("-".into(), |at| format!("{}s", at.0 / 1000)));
    for effect in &world.log.effects {
        match &effect.action {
            Action::Start { job, resume_from, .. } if *job == id => {
                said.insert("from", format!("{}s", resume_from.0 / 1000));
            }
            Action::Stop { job, checkpoint, .. } if *job == id => {
                said.insert("saves", if *checkpoint { "yes" } else { "no" }.into());
            }
            _ => {}
        }
    }
    said.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
}
