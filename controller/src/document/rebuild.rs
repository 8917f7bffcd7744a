//! An engine from a state document without a snapshot: what the document says is told to a new engine as if it had happened,
//! in the order of its times.
//!
//! ```text
//! policy -> for each time: nodes bought and ready, jobs submitted, runs booked and started -> now
//! ```
//!
//! Never: decides. Everything is applied as recovery applies a journal; the first pass is the caller's.

use super::state::Loaded;
use super::{places, spec};
use forebay_engine::engine::Engine;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::{Decision, DrainWhy};
use forebay_kernel::effect::Terms;
use forebay_kernel::event::{Event, Tick};
use forebay_kernel::ids::{JobId, NodeId, OfferingId, PoolId, PurchaseId, Seq};
use forebay_kernel::journal::{APPLY_VERSION, Batch};
use forebay_kernel::policy::Policy;
use forebay_kernel::units::Timestamp;
use forebay_wire::document::DocumentFault;
use forebay_wire::document::seconds::Seconds;
use forebay_wire::document::state::StateDocument;
use forebay_wire::document::views::{JobPhase, JobView, NodePhaseView, NodeView};
use std::collections::BTreeMap;

/// Puts a policy in force without a pass.
pub fn configure(engine: &mut Engine, policy: Policy) {
    let now = engine.state().now();
    tell(engine, now, vec![Event::Configured(Box::new(policy))], Vec::new());
}

/// An engine in which everything that the document says has happened.
///
/// # Errors
/// When the document contradicts itself or the policy; the field is named.
pub fn engine(document: &StateDocument, mut policy: Policy) -> Result<Loaded, DocumentFault> {
    // Whoever wrote the state down says that the queues have taken these jobs.
    policy.admit_recorded_tiers();
    let told = Told::read(document)?;
    let mut building = Building {
        loaded: Loaded { engine: Engine::new(), jobs: BTreeMap::new(), nodes: BTreeMap::new() },
        nodes: BTreeMap::new(),
        jobs: BTreeMap::new(),
    };
    let first = told.steps.first().map_or(told.now, |s| s.at);
    tell(&mut building.loaded.engine, first, vec![Event::Configured(Box::new(policy))], Vec::new());
    for step in &told.steps {
        match step.what {
            What::Node(at) => building.node(at, &document.nodes[at], step.at)?,
            What::Submit(at) => building.submit(at, &document.jobs[at], step.at)?,
            What::Place(at) => building.place(at, &document.jobs[at], step.at)?,
        }
    }
    tell(&mut building.loaded.engine, told.now, Vec::new(), Vec::new());
    Ok(building.loaded)
}

/// One batch, applied as it stands.
fn tell(engine: &mut Engine, now: Timestamp, events: Vec<Event>, decisions: Vec<Decision>) {
    let tick = Tick { now, resumed: false, delivered: 0 };
    let first_seq = Seq(engine.state().counters().next_seq);
    engine.replay(&Batch { version: APPLY_VERSION, first_seq, tick, events, decisions });
}

/// The document as a history.
struct Told {
    now: Timestamp,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    at: Timestamp,
    what: What,
}

/// In the order in which they happen at one time; the numbers are positions in the document.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Node(usize),
    Submit(usize),
    Place(usize),
}

/// Whether a job is on its nodes, or going there.
fn placed(phase: JobPhase) -> bool {
    matches!(phase, JobPhase::Booked | JobPhase::Starting | JobPhase::Running | JobPhase::Stopping)
}

impl Told {
    fn read(document: &StateDocument) -> Result<Told, DocumentFault> {
        unique("jobs", "job", document.jobs.iter().map(|j| j.job.as_str()))?;
        unique("nodes", "node", document.nodes.iter().map(|n| n.node.as_str()))?;
        let jobs = document.jobs.iter().flat_map(|j| [j.submit_s, j.since_s]);
        let nodes = document.nodes.iter().map(|n| n.since_s);
        let latest = jobs.chain(nodes).flatten().max().unwrap_or_default();
        let now = document.now_s.unwrap_or(latest);
        let mut steps = Vec::new();
        let mut used: BTreeMap<&str, Seconds> = BTreeMap::new();
        for (at, job) in document.jobs.iter().enumerate().filter(|(_, j)| !j.phase.terminal()) {
            let path = |field: &str| format!("jobs[{at}].{field}");
            in_past(job.submit_s, now, || path("submit_s"))?;
            in_past(job.since_s, now, || path("since_s"))?;
            let since = job.since_s.unwrap_or(now);
            let submit = job.submit_s.unwrap_or(if placed(job.phase) { since } else { now });
            steps.push(Step { at: submit.into(), what: What::Submit(at) });
            if placed(job.phase) && !job.nodes.is_empty() {
                let from = since.max(submit);
                steps.push(Step { at: from.into(), what: What::Place(at) });
                for node in &job.nodes {
                    let first = used.entry(node).or_insert(from);
                    *first = from.min(*first);
                }
            } else if placed(job.phase) && job.phase != JobPhase::Booked {
                let message = format!("a {} job has nodes under it", job.phase);
                return Err(DocumentFault::at(path("nodes"), message, "name them, or write the phase `queued`"));
            } else if !job.nodes.is_empty() {
                let message = format!("a {} job has no nodes", job.phase);
                return Err(DocumentFault::at(path("nodes"), message, "leave them out, or write the phase `running`"));
            }
        }
        for (at, node) in document.nodes.iter().enumerate() {
            in_past(node.since_s, now, || format!("nodes[{at}].since_s"))?;
            let since = node.since_s.unwrap_or(now);
            // What runs on it came after it.
            let from = used.get(node.node.as_str()).map_or(since, |&job| job.min(since));
            steps.push(Step { at: from.into(), what: What::Node(at) });
        }
        steps.sort();
        Ok(Told { now: now.into(), steps })
    }
}

fn unique<'a>(list: &str, field: &str, names: impl Iterator<Item = &'a str>) -> Result<(), DocumentFault> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, name) in names.enumerate() {
        if name.is_empty() {
            return Err(DocumentFault::at(format!("{list}[{at}].{field}"), "the name is empty", "give it one"));
        }
        if let Some(first) = seen.insert(name, at) {
            let message = format!("`{name}` stands at {list}[{first}] already");
            return Err(DocumentFault::at(format!("{list}[{at}].{field}"), message, "give each its own name"));
        }
    }
    Ok(())
}

fn in_past(at: Option<Seconds>, now: Seconds, path: impl Fn() -> String) -> Result<(), DocumentFault> {
    match at {
        Some(at) if at > now => {
            let message = format!("{} is after `now_s`, which is {}", at.0 / 1000, now.0 / 1000);
            Err(DocumentFault::at(path(), message, "give a time up to `now_s`, or a later `now_s`"))
        }
        _ => Ok(()),
    }
}

/// The engine as far as it is told, and which row is which in the document.
struct Building {
    loaded: Loaded,
    nodes: BTreeMap<String, NodeId>,
    jobs: BTreeMap<usize, JobId>,
}

impl Building {
    fn node(&mut self, at: usize, view: &NodeView, when: Timestamp) -> Result<(), DocumentFault> {
        let (pool, offering) = self.offered(at, view)?;
        let engine = &mut self.loaded.engine;
        let counters = engine.state().counters();
        let (id, purchase) = (NodeId(counters.next_node), PurchaseId(counters.next_purchase));
        let buy = Decision::Buy { purchase, pool, offering, count: 1, at_least: 1, terms: Terms::default() };
        tell(engine, when, Vec::new(), vec![buy]);
        let instance = view.instance.clone().unwrap_or_else(|| format!("document:{}", view.node));
        let mut events = Vec::new();
        let mut decisions = Vec::new();
        if view.phase != NodePhaseView::Requested {
            events.push(Event::LaunchOutcome { purchase, instances: vec![instance.clone()], error: None });
        }
        if !matches!(view.phase, NodePhaseView::Requested | NodePhaseView::Booting) {
            events.push(Event::NodeReady { instance: instance.clone() });
        }
        if let (Some(reclaim), false) = (view.reclaim_s, view.phase == NodePhaseView::Requested) {
            events.push(Event::ReclaimNotice { instance, at: reclaim.into() });
        }
        match view.phase {
            NodePhaseView::Draining => {
                decisions.push(Decision::Drain { node: id, why: DrainWhy::Surplus, check_at: when });
            }
            NodePhaseView::Terminating => decisions.push(Decision::Terminate { node: id }),
            NodePhaseView::Requested | NodePhaseView::Booting | NodePhaseView::Ready => {}
        }
        tell(engine, when, events, decisions);
        if engine.state().node(id).is_none() {
            return Err(DocumentFault::at(
                format!("nodes[{at}]"),
                "could not be set up",
                "check its fields, or leave it out",
            ));
        }
        self.nodes.insert(view.node.clone(), id);
        self.loaded.nodes.insert(id, view.node.clone());
        Ok(())
    }

    /// The pool and offering of a node.
    fn offered(&self, at: usize, view: &NodeView) -> Result<(PoolId, OfferingId), DocumentFault> {
        let state = self.loaded.engine.state();
        let capacity = CapacityType::from(view.capacity_type);
        let wanted = (view.instance_type.as_str(), view.zone.as_str(), capacity);
        let found = state.offerings().iter().position(|row| row.offer.key() == wanted);
        let policy = state.policy();
        let pools = policy.map(|p| p.pools.as_slice()).unwrap_or_default();
        let offers = |pool: &forebay_kernel::policy::Pool| {
            let named = pool.offerings.iter().filter_map(|&o| policy?.offerings.get(o as usize));
            named.into_iter().any(|o| o.key() == wanted)
        };
        let Some(offering) = found.filter(|_| pools.iter().any(offers)) else {
            return Err(self.not_offered(at, view));
        };
        let pool = match &view.pool {
            Some(name) => pools.iter().position(|p| p.name == *name && offers(p)),
            None => pools.iter().position(offers),
        };
        let Some(pool) = pool else {
            let with: Vec<&str> = pools.iter().filter(|p| offers(p)).map(|p| p.name.as_str()).collect();
            let message = format!("the policy's pool of that name does not offer {}", view.instance_type);
            return Err(DocumentFault::at(
                format!("nodes[{at}].pool"),
                message,
                format!("write one of: {}", with.join(", ")),
            ));
        };
        Ok((PoolId(pool as u16), OfferingId(offering as u32)))
    }

    fn not_offered(&self, at: usize, view: &NodeView) -> DocumentFault {
        let state = self.loaded.engine.state();
        let same_type: Vec<_> =
            state.offerings().iter().filter(|o| o.offer.instance_type == view.instance_type).collect();
        let (field, known) = if same_type.is_empty() {
            let mut types: Vec<_> = state.offerings().iter().map(|o| o.offer.instance_type.clone()).collect();
            // The same family first: `p4d.24xlarge` for `p4d.xlarge`.
            let family = view.instance_type.split('.').next().unwrap_or_default();
            types.sort_by_key(|t| (t.split('.').next() != Some(family), t.clone()));
            types.dedup();
            ("instanceType", types)
        } else {
            let places = same_type.iter().map(|o| format!("{} in {}", o.offer.capacity, o.offer.zone)).collect();
            ("zone", places)
        };
        let capacity = CapacityType::from(view.capacity_type);
        let message = format!("the policy offers no {} in {} ({capacity})", view.instance_type, view.zone);
        let shown: Vec<String> = known.iter().take(12).cloned().collect();
        let more = if known.len() > shown.len() { ", ..." } else { "" };
        DocumentFault::at(format!("nodes[{at}].{field}"), message, format!("write one of: {}{more}", shown.join(", ")))
    }

    fn submit(&mut self, at: usize, view: &JobView, when: Timestamp) -> Result<(), DocumentFault> {
        if let Some(service) = &view.of {
            return self.replicate(at, view, service, when);
        }
        let engine = &mut self.loaded.engine;
        let spec = spec::of(at, view, engine.state().policy())?;
        let (tenant, subject) = (spec.tenant.clone(), spec.subject.clone());
        if engine.state().job_of(&tenant, &subject).is_some() {
            let message = format!("`{subject}` of tenant `{tenant}` is a job above already");
            return Err(DocumentFault::at(format!("jobs[{at}].subject"), message, "give each job its own subject"));
        }
        tell(engine, when, vec![Event::JobSubmitted(Box::new(spec))], Vec::new());
        let Some(id) = engine.state().job_of(&tenant, &subject) else {
            let message = format!("the policy has no queue `{}`", view.queue);
            return Err(DocumentFault::at(
                format!("jobs[{at}].queue"),
                message,
                "name a queue of the policy, or allow undeclared queues",
            ));
        };
        self.jobs.insert(at, id);
        self.loaded.jobs.insert(id, view.job.clone());
        let in_the_way = self.loaded.engine.why_impossible(id);
        if let (JobPhase::Held, Some(reason)) = (view.phase, in_the_way) {
            tell(&mut self.loaded.engine, when, Vec::new(), vec![Decision::Hold { job: id, reason }]);
        }
        if let (Some(service), JobPhase::Serving) = (&view.service, view.phase) {
            tell(&mut self.loaded.engine, when, Vec::new(), vec![Decision::Resume { job: id }]);
            let demand = Event::ServiceDemand { tenant, subject, by: None, concurrency: service.demand };
            tell(&mut self.loaded.engine, when, vec![demand], Vec::new());
        }
        Ok(())
    }

    /// A replica of a service that stands before it.
    fn replicate(&mut self, at: usize, view: &JobView, service: &str, when: Timestamp) -> Result<(), DocumentFault> {
        let found = self.loaded.jobs.iter().find(|(_, name)| *name == service).map(|(id, _)| *id);
        let found = found.filter(|id| self.loaded.engine.state().service(*id).is_some());
        let Some(service) = found else {
            let message = format!("no service above is called `{service}`");
            return Err(DocumentFault::at(format!("jobs[{at}].of"), message, "name one, or leave `of` out"));
        };
        tell(&mut self.loaded.engine, when, Vec::new(), vec![Decision::Replicate { service }]);
        let newest = self.loaded.engine.state().replicas(service).last();
        if let Some(id) = newest {
            self.jobs.insert(at, id);
            self.loaded.jobs.insert(id, view.job.clone());
        }
        Ok(())
    }

    fn place(&mut self, at: usize, view: &JobView, when: Timestamp) -> Result<(), DocumentFault> {
        let Some(&job) = self.jobs.get(&at) else { return Ok(()) };
        let mut nodes = Vec::new();
        for (position, name) in view.nodes.iter().enumerate() {
            let Some(&id) = self.nodes.get(name) else {
                let message = format!("there is no node `{name}`");
                return Err(DocumentFault::at(
                    format!("jobs[{at}].nodes[{position}]"),
                    message,
                    "add it under `nodes`, or name one that is there",
                ));
            };
            nodes.push(id);
        }
        let running = view.phase != JobPhase::Booked;
        let engine = &mut self.loaded.engine;
        let (pool, places) = places::find(engine.state(), at, job, &nodes, running)?;
        let mut decisions = vec![Decision::Book { job, pool, places }];
        if view.of.is_none() {
            decisions.insert(0, Decision::Resume { job });
        }
        if running {
            decisions.push(Decision::Start { job });
        }
        tell(engine, when, Vec::new(), decisions);
        if running && view.phase != JobPhase::Starting {
            let attempt = engine.state().job(job).map(|(row, _)| row.attempt).unwrap_or_default();
            let mut events = vec![Event::RunStarted { job, attempt }];
            if let Some(progress) = view.progress_s.filter(|p| p.0 > 0) {
                events.push(Event::RunCheckpointed { job, attempt, progress: progress.into() });
            }
            tell(engine, when, events, Vec::new());
        }
        Ok(())
    }
}
