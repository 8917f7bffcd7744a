//! The state document is faithful: random lives are exported at random moments, imported without their snapshot, and the passes that
//! follow decide the same as the live engine's.
//!
//! The lives are those of the fault sweep: policies and work of every feature, with faults. Other lives, or more of them:
//! `FAITHFUL_SEEDS=1000..3000 cargo test -p forebay --no-default-features --test faithful`; with `FAITHFUL_BATCHES=3` three passes are
//! compared after each export, where the first is the one that counts.
//!
//! Never: looks at the bytes of a state. With its snapshot a document is the state; here it is what people can read of it.

use forebay::document::state::{load, state_document};
use forebay_engine::engine::Engine;
use forebay_kernel::decision::Decision;
use forebay_kernel::event::Event;
use forebay_kernel::ids::{JobId, NodeId, OfferingId, PurchaseId};
use forebay_kernel::journal::Batch;
use forebay_kernel::policy::Policy;
use forebay_kernel::state::State;
use forebay_sim::sweep::{BatchWatch, run_watched};
use forebay_wire::document::state::StateDocument;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// One pass in so many may differ. It should be none: 8 of 4,854 do in the first 800 lives, by the order of ids or by a node that is gone and still named.
const GAPS: u64 = 400;
/// One batch in so many is exported before.
const STRIDE: u64 = 37;

/// Ids of the imported state and those of the live one. New rows get the next ones in both.
#[derive(Default)]
struct Ids {
    live: BTreeMap<u64, u64>,
    imported: BTreeMap<u64, u64>,
    next: (u64, u64),
}

impl Ids {
    fn add(&mut self, imported: u64, live: u64) {
        self.live.insert(imported, live);
        self.imported.insert(live, imported);
    }

    fn live(&self, id: u64) -> u64 {
        self.live.get(&id).copied().unwrap_or_else(|| id.wrapping_sub(self.next.0).wrapping_add(self.next.1))
    }

    fn imported(&self, id: u64) -> u64 {
        self.imported.get(&id).copied().unwrap_or_else(|| id.wrapping_sub(self.next.1).wrapping_add(self.next.0))
    }
}

/// An engine that was made from a document of the live one.
struct Twin {
    engine: Engine,
    jobs: Ids,
    nodes: Ids,
    purchases: Ids,
    offerings: Ids,
    queues: Ids,
    /// Identities of which the document no longer says that they were there.
    over: BTreeSet<(String, String)>,
    left: u32,
}

fn number(name: &str) -> u64 {
    name.rsplit('-').next().and_then(|n| n.parse().ok()).expect("a name with a number")
}

impl Twin {
    fn of(live: &Engine, policy: Policy) -> Result<Twin, String> {
        let state = live.state();
        let document = StateDocument { snapshot: None, ..state_document(live).expect("a document") };
        let text = serde_json::to_string(&document).expect("writes");
        let back = StateDocument::parse(&text).expect("parses");
        assert!(back == document, "what is written is read back");
        let loaded = load(&back, Some(policy)).map_err(|fault| fault.to_string())?;
        let own = loaded.engine.state();
        let mut twin = Twin {
            jobs: Ids { next: (own.jobs.next_id().0, state.jobs.next_id().0), ..Ids::default() },
            nodes: Ids { next: (own.counters().next_node, state.counters().next_node), ..Ids::default() },
            purchases: Ids { next: (own.counters().next_purchase, state.counters().next_purchase), ..Ids::default() },
            offerings: Ids::default(),
            queues: Ids::default(),
            over: state
                .jobs()
                .filter(|(job, _)| job.done())
                .map(|(_, s)| (s.tenant.clone(), s.subject.clone()))
                .collect(),
            left: batches(),
            engine: Engine::new(),
        };
        loaded.jobs.iter().for_each(|(id, name)| twin.jobs.add(id.0, number(name)));
        loaded.nodes.iter().for_each(|(id, name)| twin.nodes.add(id.0, number(name)));
        for (at, row) in own.offerings().iter().enumerate() {
            let same = state.offerings().iter().position(|other| other.offer.key() == row.offer.key());
            twin.offerings.add(at as u64, same.map_or(u64::MAX, |at| at as u64));
        }
        for (id, queue) in own.queues().iter() {
            let same = state.queues().iter().find(|(_, other)| other.path == queue.path);
            twin.queues.add(u64::from(id.0), same.map_or(u64::MAX, |(id, _)| u64::from(id.0)));
        }
        for purchase in own.purchases() {
            let node = NodeId(twin.nodes.live(purchase.nodes[0].0));
            let same = state.node(node).map_or(u64::MAX, |node| node.purchase.0);
            twin.purchases.add(purchase.id.0, same);
        }
        Ok(Twin { engine: loaded.engine, ..twin })
    }

    /// An event of the live engine, about the same rows of this one.
    fn event(&self, event: &Event) -> Event {
        let mut event = event.clone();
        let node = |id: &mut NodeId| id.0 = self.nodes.imported(id.0);
        let offering = |id: &mut OfferingId| id.0 = self.offerings.imported(u64::from(id.0)) as u32;
        match &mut event {
            Event::RunStarted { job, .. }
            | Event::RunCheckpointed { job, .. }
            | Event::RunCompleted { job, .. }
            | Event::RunStopped { job, .. }
            | Event::RunIdle { job, .. } => job.0 = self.jobs.imported(job.0),
            Event::RunFailed { job, node_fault, .. } | Event::RunShrunk { job, node_fault, .. } => {
                job.0 = self.jobs.imported(job.0);
                node_fault.iter_mut().for_each(node);
            }
            Event::LaunchOutcome { purchase, .. } => purchase.0 = self.purchases.imported(purchase.0),
            Event::OrphanSeen { offering: of, .. } | Event::PriceChanged { offering: of, .. } => offering(of),
            _ => {}
        }
        event
    }

    /// A decision of this engine, about the rows of the live one, as text.
    fn decision(&self, decision: &Decision) -> String {
        let text = format!("{decision:?}");
        let kinds: [(&str, &Ids); 5] = [
            ("JobId(", &self.jobs),
            ("NodeId(", &self.nodes),
            ("PurchaseId(", &self.purchases),
            ("OfferingId(", &self.offerings),
            ("QueueId(", &self.queues),
        ];
        let mut out = String::new();
        let mut rest = text.as_str();
        while let Some((at, kind, ids)) =
            kinds.iter().filter_map(|(k, ids)| Some((rest.find(k)?, *k, *ids))).min_by_key(|f| f.0)
        {
            let digits = &rest[at + kind.len()..];
            let end = digits.find(')').expect("an id");
            out.push_str(&rest[..at + kind.len()]);
            out.push_str(&ids.live(digits[..end].parse().expect("a number")).to_string());
            rest = &digits[end..];
        }
        out + rest
    }

    fn again(&self, batch: &Batch) -> bool {
        let known = |event: &Event| match event {
            Event::JobSubmitted(spec) => self.over.contains(&(spec.tenant.clone(), spec.subject.clone())),
            Event::JobSubmittedAgain { .. } | Event::FinishedJobCancelled { .. } | Event::Configured(_) => true,
            _ => false,
        };
        batch.events.iter().any(known)
    }
}

/// Whether the policy is the one that was in force a document does not say: it is judged anew, which changes nothing where it is.
fn counts(decision: &&Decision) -> bool {
    !matches!(decision, Decision::Judge { .. })
}

/// The rows of a document by name, each with its fields, in the names of the live engine.
fn rows(engine: &Engine, twin: Option<&Twin>) -> BTreeMap<String, String> {
    let document = StateDocument { snapshot: None, ..state_document(engine).expect("a document") };
    let mut all = BTreeMap::new();
    let mut put = |path: String, value: &serde_json::Value| {
        for (key, value) in value.as_object().into_iter().flatten() {
            let memory = key == "memory";
            for (key, value) in value.as_object().filter(|_| memory).into_iter().flatten() {
                all.insert(named(&format!("{path} {key}"), twin), named(&value.to_string(), twin));
            }
            if !memory && !LEFT_OUT.contains(&key.as_str()) {
                all.insert(named(&format!("{path} {key}"), twin), named(&value.to_string(), twin));
            }
        }
    };
    for job in document.jobs.iter().filter(|job| !job.phase.terminal()) {
        put(format!("\"{}\"", job.job), &serde_json::to_value(job).expect("JSON"));
    }
    for node in &document.nodes {
        put(format!("\"{}\"", node.node), &serde_json::to_value(node).expect("JSON"));
    }
    for (at, offering) in document.offerings.iter().flatten().enumerate() {
        put(format!("offering {at}"), &serde_json::to_value(offering).expect("JSON"));
    }
    put("state".to_owned(), &serde_json::json!({ "memory": document.memory }));
    all
}

/// What decides nothing, or is numbered otherwise.
const LEFT_OUT: [&str; 3] = ["reason", "subject", "attempt"];

fn named(text: &str, twin: Option<&Twin>) -> String {
    let Some(twin) = twin else { return text.to_owned() };
    let mut out = String::new();
    let mut rest = text;
    let kinds = [("\"job-", &twin.jobs), ("\"node-", &twin.nodes)];
    while let Some((at, kind, ids)) =
        kinds.iter().filter_map(|(k, ids)| Some((rest.find(k)?, *k, *ids))).min_by_key(|f| f.0)
    {
        let digits = &rest[at + kind.len()..];
        let end = digits.find('"').expect("a name");
        out.push_str(&rest[..at + kind.len()]);
        out.push_str(&digits[..end].parse().map_or_else(|_| digits[..end].to_owned(), |id| ids.live(id).to_string()));
        rest = &digits[end..];
    }
    out + rest
}

/// What the twin has otherwise than the live engine, to find out why it decided otherwise.
fn differences(live: &Engine, twin: &Twin) -> Vec<String> {
    let (live, own) = (rows(live, None), rows(&twin.engine, Some(twin)));
    let paths: BTreeSet<&String> = live.keys().chain(own.keys()).collect();
    let differ = paths.into_iter().filter(|path| live.get(*path) != own.get(*path));
    differ.map(|path| format!("    {path}: {:?} and {:?}", live.get(path), own.get(path))).take(12).collect()
}

struct ExportedLives {
    seed: u64,
    batch: u64,
    twin: Option<Twin>,
    differ: Vec<String>,
    found: Rc<RefCell<Vec<String>>>,
    compared: Rc<RefCell<u64>>,
}

fn policy_of(state: &State) -> Option<Policy> {
    state.policy().cloned()
}

impl BatchWatch for ExportedLives {
    fn before(&mut self, engine: &Engine) {
        self.batch += 1;
        let turn = (self.batch + self.seed).is_multiple_of(STRIDE);
        self.differ = self.twin.as_ref().map(|twin| differences(engine, twin)).unwrap_or_default();
        // docs/STATE.md: what is left in a pool that the policy does not have any more is in no document.
        let whole = engine.state().policy().is_some_and(|policy| policy.pools.len() == engine.state().declared_pools());
        if let (true, None, Some(policy)) = (turn && whole, &self.twin, policy_of(engine.state())) {
            match Twin::of(engine, policy) {
                Ok(twin) => {
                    self.differ = differences(engine, &twin);
                    self.twin = Some(twin);
                }
                Err(fault) => {
                    let (seed, number) = (self.seed, self.batch);
                    self.found.borrow_mut().push(format!("seed {seed}, batch {number}: {fault}"));
                }
            }
        }
    }

    fn after(&mut self, batch: &Batch) {
        let Some(mut twin) = self.twin.take().filter(|twin| !twin.again(batch)) else { return };
        twin.engine.open(batch.tick);
        for event in &batch.events {
            let event = twin.event(event);
            let _ = twin.engine.handle_event(event);
        }
        let _ = twin.engine.plan();
        let closed = twin.engine.close();
        let live: Vec<String> = batch.decisions.iter().filter(counts).map(|d| format!("{d:?}")).collect();
        let own: Vec<String> = closed.batch().decisions.iter().filter(counts).map(|d| twin.decision(d)).collect();
        *self.compared.borrow_mut() += 1;
        if live != own {
            let at = (0..).find(|at| live.get(*at) != own.get(*at)).unwrap_or(0);
            let (seed, number, nth) = (self.seed, self.batch, batches() - twin.left);
            self.found.borrow_mut().push(format!(
                "seed {seed}, batch {number}, {nth} after its export, decision {at}:\n  live     {:?}\n  imported {:?}\n  before:\n{}",
                live.get(at),
                own.get(at),
                self.differ.join("\n")
            ));
            return;
        }
        twin.left -= 1;
        self.twin = Some(twin).filter(|twin| twin.left > 0);
    }
}

/// So many batches are compared after each export. More than one also compares what follows from rows that decide later.
fn batches() -> u32 {
    std::env::var("FAITHFUL_BATCHES").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("FAITHFUL_SEEDS").unwrap_or_default();
    let both = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    both.unwrap_or(0..200)
}

#[test]
fn an_imported_state_decides_as_the_live_engine() {
    let found = Rc::new(RefCell::new(Vec::new()));
    let compared = Rc::new(RefCell::new(0));
    let mut failed = Vec::new();
    for seed in seeds() {
        let before = found.borrow().len();
        let (found, compared) = (Rc::clone(&found), Rc::clone(&compared));
        let exports =
            ExportedLives { seed, batch: 0, twin: None, differ: Vec::new(), found: Rc::clone(&found), compared };
        // What the sweep itself finds is the sweep's to tell.
        let _ = run_watched(seed, Box::new(exports));
        if found.borrow().len() > before {
            failed.push(seed);
        }
    }
    let all = found.borrow();
    println!("{} passes compared, {} differ in {} lives", compared.borrow(), all.len(), failed.len());
    let lives = seeds().end - seeds().start;
    assert!(*compared.borrow() > 4 * lives, "too few: {}", compared.borrow());
    let first: Vec<&str> = all.iter().take(12).map(String::as_str).collect();
    println!("{}", first.join("\n"));
    assert!(all.len() as u64 * GAPS <= *compared.borrow(), "{} differ, lives {failed:?}", all.len());
}

/// Only so that the ids above are what they are taken for.
#[test]
fn ids_are_written_as_they_are_looked_for() {
    let text = format!("{:?} {:?} {:?} {:?}", JobId(1), NodeId(2), PurchaseId(3), OfferingId(4));
    assert_eq!(text, "JobId(1) NodeId(2) PurchaseId(3) OfferingId(4)");
}
