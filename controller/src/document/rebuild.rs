//! An engine from a state document without a snapshot: what the document says is told to a new engine as if it had happened,
//! in the order of its times.
//!
//! ```text
//! policy -> for each time: nodes bought and ready, jobs submitted, runs booked and started -> now: runs stopped -> recall
//! ```
//!
//! What a history cannot bring about, such as what was spent, `recall` puts back. What is left out by hand, `guess` makes up.
//!
//! Never: decides. Everything is applied as recovery applies a journal; the first pass is the caller's.

use super::guess::{self, Layouts, TakenBy};
use super::owned;
use super::places::{self, Placed};
use super::recall;
use super::spec;
use super::state::Loaded;
use forebay_engine::engine::Engine;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::{Decision, DrainWhy, Outcome, StopCause};
use forebay_kernel::effect::Terms;
use forebay_kernel::event::{Event, Tick};
use forebay_kernel::ids::{JobId, NodeId, OfferingId, PoolId, PurchaseId, Seq};
use forebay_kernel::job::JobSpec;
use forebay_kernel::journal::{APPLY_VERSION, Batch};
use forebay_kernel::policy::Policy;
use forebay_kernel::state::jobs::Kept;
use forebay_kernel::state::node_reserves::{NodeReserve, NodeRoom};
use forebay_kernel::state::nodes::{Cut, Partition};
use forebay_kernel::units::{Mib, MilliCpu, Span, Timestamp};
use forebay_wire::document::DocumentFault;
use forebay_wire::document::memory::{NodeReserveView, SliceView};
use forebay_wire::document::seconds::Seconds;
use forebay_wire::document::state::StateDocument;
use forebay_wire::document::views::{Capacity, JobPhase, JobView, NodePhaseView, NodeView};
use std::collections::{BTreeMap, BTreeSet};

/// Puts a policy in force without a pass.
pub fn configure(engine: &mut Engine, policy: Policy) {
    let now = engine.state().now();
    tell(engine, now, vec![Event::Configured(Box::new(policy))], Vec::new());
}

/// What of each node of a type is not for work.
fn node_reserve(view: &NodeReserveView) -> Event {
    let room = |cpu, mem| NodeRoom { cpu: MilliCpu(cpu), mem: Mib(mem) };
    let reserve = NodeReserve {
        system: room(view.system_cpu_milli, view.system_memory_mib),
        daemons: room(view.daemons_cpu_milli, view.daemons_memory_mib),
    };
    Event::NodeReserved { instance_type: view.instance_type.clone(), reserve }
}

/// An engine in which everything that the document says has happened.
///
/// # Errors
/// When the document contradicts itself or the policy; the field is named.
pub fn engine(document: &StateDocument, mut policy: Policy) -> Result<Loaded, DocumentFault> {
    // Whoever wrote the state down by hand says that the queues have taken these jobs. What an engine wrote says which it had taken.
    if document.memory.is_none() {
        policy.admit_recorded_tiers();
    }
    let told = Told::read(document)?;
    let mut building = Building {
        document,
        loaded: Loaded { engine: Engine::new(), jobs: BTreeMap::new(), nodes: BTreeMap::new() },
        nodes: BTreeMap::new(),
        jobs: BTreeMap::new(),
        ids: BTreeMap::new(),
        layouts: BTreeMap::new(),
    };
    let waiting = guess::in_order(document, &policy);
    let first = told.steps.first().map_or(told.now, |s| s.at);
    tell(&mut building.loaded.engine, first, vec![Event::Configured(Box::new(policy.clone()))], Vec::new());
    if let Some(memory) = &document.memory {
        recall::with(&mut building.loaded.engine, |machine| {
            memory.queues.iter().for_each(|path| machine.recall_queue(path));
        });
        let reserves = memory.node_reserves.iter().map(node_reserve).collect();
        tell(&mut building.loaded.engine, first, reserves, Vec::new());
    }
    building.guess_layouts(&policy);
    for step in &told.steps {
        match step.what {
            What::Node(at) => building.node(at, &document.nodes[at], step.at)?,
            What::Submit(at) => {
                let told = building.submit(at, &document.jobs[at], step.at);
                // One that is over may have had a queue that is gone.
                if !document.jobs[at].phase.terminal() {
                    told?;
                }
            }
            What::Place(at) => building.place(at, &document.jobs[at], step.at)?,
            What::End(at) => building.end(at, &document.jobs[at], step.at),
        }
    }
    tell(&mut building.loaded.engine, told.now, Vec::new(), Vec::new());
    building.stop_runs(&policy, &waiting)?;
    building.recall()?;
    let Building { mut loaded, .. } = building;
    // As from a snapshot: what a lookup or a memo remembers of the telling is forgotten.
    let again = |e: postcard::Error| DocumentFault::at("", e.to_string(), "report this with the document");
    loaded.engine = Engine::restore(&loaded.engine.snapshot().map_err(again)?).map_err(again)?;
    Ok(loaded)
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
    End(usize),
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
        let named = named(document);
        for (at, job) in document.jobs.iter().enumerate() {
            // One that is over is there for those who still refer to it. What an engine wrote has its last ones: floors know by them what is
            // asked for.
            if job.phase.terminal() && document.memory.is_none() && !named.contains(job.job.as_str()) {
                continue;
            }
            let path = |field: &str| format!("jobs[{at}].{field}");
            in_past(job.submit_s, now, || path("submit_s"))?;
            in_past(job.since_s, now, || path("since_s"))?;
            let since = job.since_s.unwrap_or(now);
            let submit = job.submit_s.unwrap_or(if placed(job.phase) { since } else { now });
            steps.push(Step { at: submit.into(), what: What::Submit(at) });
            if job.phase.terminal() {
                steps.push(Step { at: since.max(submit).into(), what: What::End(at) });
                continue;
            }
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
            let since = node.memory.as_ref().map_or(node.since_s.unwrap_or(now), |memory| memory.decided_s);
            // What runs on it came after it.
            let from = used.get(node.node.as_str()).map_or(since, |&job| job.min(since));
            steps.push(Step { at: from.into(), what: What::Node(at) });
        }
        steps.sort();
        Ok(Told { now: now.into(), steps })
    }
}

/// Jobs that others refer to.
fn named(document: &StateDocument) -> BTreeSet<&str> {
    let mut named = BTreeSet::new();
    for job in &document.jobs {
        let memory = job.memory.as_deref();
        let stops = job.stop.iter().chain(memory.and_then(|m| m.broken.as_ref()));
        let stops = stops.chain(memory.and_then(|m| m.leaving.as_ref()).map(|leaving| &leaving.stop));
        let stops = stops.chain(memory.and_then(|m| m.end.as_ref()).and_then(|end| end.stop.as_ref()));
        named.extend(stops.filter_map(|stop| stop.by.as_deref()));
        named.extend(memory.and_then(|m| m.backfill_for.as_deref()));
        named.extend(memory.and_then(|m| m.start_target.as_ref()).and_then(|target| target.run.as_deref()));
    }
    let nodes = document.nodes.iter().filter_map(|node| node.memory.as_ref());
    named.extend(nodes.flat_map(|memory| memory.reserved.iter().map(|kept| kept.job.as_str())));
    named
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
pub struct Building<'a> {
    pub(super) document: &'a StateDocument,
    pub(super) loaded: Loaded,
    /// By name.
    pub(super) nodes: BTreeMap<String, NodeId>,
    /// By position in the document.
    pub(super) jobs: BTreeMap<usize, JobId>,
    /// By name.
    pub(super) ids: BTreeMap<String, JobId>,
    /// Layouts that the document does not name, by position of the node.
    layouts: BTreeMap<usize, u8>,
}

impl Building<'_> {
    fn guess_layouts(&mut self, policy: &Policy) {
        let mut layouts = Layouts::new(self.document, policy);
        for (at, view) in self.document.nodes.iter().enumerate().filter(|(_, v)| v.layout.is_none()) {
            let Ok((pool, offering)) = self.offered(at, view) else { continue };
            let gpus = self.loaded.engine.state().offerings()[offering.index()].offer.gpus;
            let layout = if view.memory.is_some() { None } else { layouts.of(view, pool, gpus) };
            self.layouts.extend(layout.map(|layout| (at, layout)));
        }
    }

    /// The nodes that one purchase brings: those that name it, this one first. Without an answer from the cloud they are there together.
    fn bought_with(&self, at: usize, view: &NodeView) -> Vec<usize> {
        let nodes = || self.document.nodes.iter().enumerate();
        match unanswered(view) {
            Some(purchase) => {
                nodes().filter(|(_, other)| unanswered(other) == Some(purchase)).map(|(at, _)| at).collect()
            }
            None => vec![at],
        }
    }

    fn node(&mut self, at: usize, view: &NodeView, when: Timestamp) -> Result<(), DocumentFault> {
        if self.nodes.contains_key(&view.node) {
            return Ok(());
        }
        if view.capacity_type == Capacity::Owned {
            return self.owned_node(at, view, when);
        }
        let (pool, offering) = self.offered(at, view)?;
        let group = self.bought_with(at, view);
        let named = unanswered(view);
        let purchases = self.document.memory.as_ref().map(|memory| memory.purchases.as_slice()).unwrap_or_default();
        let bought = purchases.iter().find(|p| Some(p.purchase) == named);
        let engine = &mut self.loaded.engine;
        let counters = engine.state().counters();
        let (id, purchase) = (NodeId(counters.next_node), PurchaseId(counters.next_purchase));
        let terms = Terms {
            layout: view.layout.or_else(|| self.layouts.get(&at).copied()),
            cluster: bought.is_some_and(|p| p.cluster),
            efa: bought.is_some_and(|p| p.efa),
        };
        let count = group.len() as u32;
        let at_least = bought.map_or(1, |p| p.at_least);
        tell(engine, when, Vec::new(), vec![Decision::Buy { purchase, pool, offering, count, at_least, terms }]);
        if let Some(bought) = bought {
            recall::with(engine, |machine| {
                machine.recall_purchase(purchase, |row| {
                    row.effect.next_try = bought.request.again_s.map_or(Timestamp::NEVER, Timestamp::from);
                    row.effect.tries = bought.request.tries;
                });
            });
        }
        for (place, &of) in (0u64..).zip(&group) {
            let name = self.document.nodes[of].node.clone();
            self.nodes.insert(name.clone(), NodeId(id.0 + place));
            self.loaded.nodes.insert(NodeId(id.0 + place), name);
            recall_hardware(&mut self.loaded.engine, NodeId(id.0 + place), &self.document.nodes[of]);
            self.boot(&self.document.nodes[of], (NodeId(id.0 + place), purchase), when);
        }
        if self.loaded.engine.state().node(id).is_none() {
            return Err(DocumentFault::at(
                format!("nodes[{at}]"),
                "could not be set up",
                "check its fields, or leave it out",
            ));
        }
        Ok(())
    }

    /// A node that nobody bought: it is there.
    fn owned_node(&mut self, at: usize, view: &NodeView, when: Timestamp) -> Result<(), DocumentFault> {
        let id = NodeId(self.loaded.engine.state().counters().next_node);
        let seen = owned::seen(view);
        tell(&mut self.loaded.engine, when, vec![Event::OwnedNodeSeen(Box::new(seen))], Vec::new());
        if self.loaded.engine.state().node(id).is_none() {
            return Err(owned::not_set_up(at, view, self.loaded.engine.state()));
        }
        self.nodes.insert(view.node.clone(), id);
        self.loaded.nodes.insert(id, view.node.clone());
        Ok(())
    }

    /// What became of a node after it was bought.
    fn boot(&mut self, view: &NodeView, (id, purchase): (NodeId, PurchaseId), when: Timestamp) {
        let instance = view.instance.clone().unwrap_or_else(|| format!("document:{}", view.node));
        let mut events = Vec::new();
        let mut decisions = Vec::new();
        if view.phase != NodePhaseView::Requested && unanswered(view).is_none() {
            events.push(Event::LaunchOutcome { purchase, instances: vec![instance.clone()], error: None });
        }
        if let (Some(rack), false) = (&view.rack, view.phase == NodePhaseView::Requested) {
            events.push(Event::NodePlaced { instance: instance.clone(), rack: rack.clone() });
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
        tell(&mut self.loaded.engine, when, events, decisions);
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
            // What nobody bought counts somewhere, and so does what is left of a pool that the policy does not have, where another offers its type.
            Some(name) if view.memory.is_some() => {
                pools.iter().position(|p| p.name == *name).or_else(|| pools.iter().position(offers))
            }
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
        let before = engine.state().job_of(&tenant, &subject);
        let over = before.and_then(|id| engine.state().job(id)).is_some_and(|(row, _)| row.done());
        let spec = JobSpec { rerun: over, ..spec };
        if before.is_some() && !over {
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
        self.knows(at, id, view);
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
            self.knows(at, id, view);
        }
        Ok(())
    }

    /// A job is over.
    fn end(&mut self, at: usize, view: &JobView, when: Timestamp) {
        let outcome = match view.phase {
            JobPhase::Completed => Outcome::Completed,
            JobPhase::Failed => Outcome::Failed,
            JobPhase::Cancelled => Outcome::Cancelled,
            _ => Outcome::Rejected,
        };
        if let Some(&job) = self.jobs.get(&at) {
            tell(&mut self.loaded.engine, when, Vec::new(), vec![Decision::Finish { job, outcome, reason: None }]);
        }
    }

    fn knows(&mut self, at: usize, id: JobId, view: &JobView) {
        self.jobs.insert(at, id);
        self.ids.insert(view.job.clone(), id);
        self.loaded.jobs.insert(id, view.job.clone());
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
        let placed = Placed { at, job, nodes: &nodes, running, workers: view.workers_now };
        let (pool, places) = if view.places.is_empty() {
            places::find(engine.state(), placed)?
        } else {
            places::given(engine.state(), placed, &view.places, &self.nodes)?
        };
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

    /// Stops the runs that are being stopped.
    fn stop_runs(&mut self, policy: &Policy, waiting: &[usize]) -> Result<(), DocumentFault> {
        // For whom runs are stopped of which the document does not say it: the first that waits, until it has enough.
        let mut freed: BTreeMap<usize, u32> = BTreeMap::new();
        for (at, view) in self.document.jobs.iter().enumerate().filter(|(_, v)| v.phase == JobPhase::Stopping) {
            let Some(&job) = self.jobs.get(&at) else { continue };
            let mut decisions = Vec::new();
            let cause = match &view.stop {
                Some(stop) => self.cause(&format!("jobs[{at}].stop"), stop)?,
                None => {
                    let short = |by: &usize| {
                        let asked = self.document.jobs[*by].gpus;
                        freed.get(by).copied().unwrap_or(0) < asked.max(1) && self.jobs.contains_key(by)
                    };
                    let waiting: Vec<usize> = waiting.iter().copied().filter(short).collect();
                    let found = guess::stopped_for(self.document, policy, view, &waiting);
                    match found.and_then(|(by, taken)| Some((by, *self.jobs.get(&by)?, taken))) {
                        Some((position, by, taken)) => {
                            *freed.entry(position).or_default() += view.gpus.max(1);
                            decisions = self.kept_for(job, by);
                            match taken {
                                TakenBy::Tier => StopCause::Preempted { by },
                                TakenBy::Owner => StopCause::QuotaReclaimed { by },
                            }
                        }
                        None => StopCause::Moved,
                    }
                }
            };
            let state = self.loaded.engine.state();
            let Some((_, spec)) = state.job(job) else { continue };
            let (stop, now) = (view.stop.as_ref(), state.now());
            let checkpoint = stop.and_then(|s| s.checkpoint).unwrap_or(spec.checkpoint.is_some());
            let grace = spec.checkpoint.map_or(Span::ZERO, |c| c.grace);
            let deadline = stop.and_then(|s| s.deadline_s).map_or(now + grace, Timestamp::from);
            decisions.insert(0, Decision::Stop { job, cause, checkpoint, deadline });
            tell(&mut self.loaded.engine, now, Vec::new(), decisions);
        }
        Ok(())
    }

    /// What a stop frees is kept for the job that it is for.
    fn kept_for(&self, victim: JobId, by: JobId) -> Vec<Decision> {
        let state = self.loaded.engine.state();
        let (Some((row, _)), Some((_, asks))) = (state.job(victim), state.job(by)) else { return Vec::new() };
        let Some(pool) = row.pool else { return Vec::new() };
        let until = state.now() + state.lifecycle().grace + KEPT_FOR;
        let nodes = forebay_kernel::state::places::nodes_of(&row.places);
        let kept = Kept { pool, share: asks.gang.gpu_share(), own: true };
        vec![Decision::Keep { job: by, kept }, Decision::Reserve { job: by, nodes, until }]
    }
}

/// What was freed is kept for so long past the victims' grace, as where the engine itself stops them.
const KEPT_FOR: Span = Span::mins(5);

/// The purchase of a node that the cloud has not answered. It may have been given back since.
fn unanswered(view: &NodeView) -> Option<u64> {
    view.memory.as_ref().and_then(|memory| memory.purchase)
}

/// How a node that was just bought is made, where the document says it.
fn recall_hardware(engine: &mut Engine, id: NodeId, view: &NodeView) {
    let Some(memory) = view.memory.as_ref() else { return };
    let cut = |slice: &SliceView| Cut { share: slice.share_milli, held: slice.held_milli, mem: Mib(slice.mem_mib) };
    let slices: Vec<Cut> = memory.slices.iter().map(cut).take(8).collect();
    recall::with(engine, |machine| {
        machine.recall_node(id, |row| {
            row.partition = view.layout.filter(|_| !slices.is_empty()).map(|layout| Partition { layout, slices });
            let free = row.partition.as_ref().map_or(0, Partition::all_free);
            row.slots.iter_mut().for_each(|slot| slot.slices = free);
        });
    });
}
