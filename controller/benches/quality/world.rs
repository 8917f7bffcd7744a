//! A world that answers at once: what is launched is ready after a boot of no time or of a fixed one, what is started has started, what is stopped
//! has saved its progress. For experiments whose published simulations know no cloud.
//!
//! ```text
//! what is due (ends, boots) -> one batch -> effects -> their answers, in the next batch of the same instant -> ... -> nothing more
//! ```
//!
//! Never: a decision; a clock; a draw.

use forebay_driver::journal::NullJournal;
use forebay_driver::step::{self, BatchStep};
use forebay_engine::engine::Engine;
use forebay_kernel::effect::{Action, Effect, WorkerPlace};
use forebay_kernel::event::{Event, GoneWhy, Tick};
use forebay_kernel::ids::{Attempt, JobId, OfferingId, PurchaseId};
use forebay_kernel::job::JobSpec;
use forebay_kernel::policy::Policy;
use forebay_kernel::state::State;
use forebay_kernel::state::owned::{OwnedNode, OwnedShape};
use forebay_kernel::units::{Mib, MilliCpu, Span, Timestamp};
use std::collections::BTreeMap;

/// Batches at one instant after which they are taken to be endless.
const MOST_BATCHES: u32 = 100_000;
/// Memory of each GPU of a fleet, where nothing asks for any.
const GPU_MEM: Mib = Mib(16_384);

/// What a job needs, and what became of it. Times are milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fate {
    pub submitted: u64,
    /// How long its work takes. `None`: until it is ended from outside.
    pub work: Option<u64>,
    /// What it loses at each start but its first.
    pub restart: u64,
    pub started: Option<u64>,
    pub ended: Option<u64>,
    /// Its runs so far.
    pub runs: u32,
    saved: u64,
}

/// A run under way.
#[derive(Clone, Debug)]
pub struct Run {
    pub attempt: Attempt,
    pub workers: Vec<WorkerPlace>,
    subject: String,
    /// When its work goes on.
    from: u64,
    due: Option<(u64, u64)>,
}

enum Due {
    Ready(String),
    Ends(JobId),
}

/// The engine, and what it acts on.
pub struct InstantWorld {
    engine: Engine,
    now: u64,
    boot: u64,
    delivered: u64,
    made: u64,
    agenda: BTreeMap<(u64, u64), Due>,
    runs: BTreeMap<JobId, Run>,
    fates: BTreeMap<String, Fate>,
    /// When each instance was launched, and its price in micro-dollars per hour.
    instances: BTreeMap<String, (u64, u64)>,
    /// Micro-dollars per hour x milliseconds.
    spent: u128,
    /// When nodes were launched, and how many.
    pub launches: Vec<(u64, u32)>,
    /// Runs that were stopped before their job was done.
    pub stops: u64,
}

impl InstantWorld {
    /// A world under a policy, in which nothing is yet. `boot`: from launch to ready, in milliseconds.
    pub fn new(policy: Policy, boot: u64) -> Result<InstantWorld, String> {
        let mut engine = Engine::new();
        let planned = step::configure(&mut engine, tick(0, 0), policy);
        let released = planned.append(&mut NullJournal).map_err(|e| format!("{e:?}"))?;
        let mut world = InstantWorld {
            engine,
            now: 0,
            boot,
            delivered: 0,
            made: 0,
            agenda: BTreeMap::new(),
            runs: BTreeMap::new(),
            fates: BTreeMap::new(),
            instances: BTreeMap::new(),
            spent: 0,
            launches: Vec::new(),
            stops: 0,
        };
        let mut answers = Vec::new();
        for effect in &released.effects {
            world.act(effect, &mut answers);
        }
        world.happen(answers)?;
        Ok(world)
    }

    pub fn state(&self) -> &State {
        self.engine.state()
    }

    /// What has become of each job, by name.
    pub fn fates(&self) -> &BTreeMap<String, Fate> {
        &self.fates
    }

    /// The runs under way.
    pub fn runs(&self) -> &BTreeMap<JobId, Run> {
        &self.runs
    }

    /// What was paid for nodes, in US dollars.
    pub fn spent_usd(&self) -> f64 {
        let open = self.instances.values().map(|(since, rate)| u128::from(self.now - since) * u128::from(*rate));
        (self.spent + open.sum::<u128>()) as f64 / 3.6e12
    }

    /// A job is submitted. `work`: how long it takes; `None`: until it is ended from outside. `restart`: what each further start costs it.
    pub fn submission(&mut self, spec: JobSpec, work: Option<u64>, restart: u64) -> Event {
        let fate = Fate { submitted: self.now, work, restart, ..Fate::default() };
        self.fates.insert(spec.subject.clone(), fate);
        Event::JobSubmitted(Box::new(spec))
    }

    /// A run ends from outside, its work done.
    pub fn completion(&mut self, job: JobId) -> Option<Event> {
        let run = self.runs.remove(&job)?;
        if let Some(due) = run.due {
            self.agenda.remove(&due);
        }
        if let Some(fate) = self.fates.get_mut(&run.subject) {
            fate.ended = Some(self.now);
        }
        Some(Event::RunCompleted { job, attempt: run.attempt, worker: None })
    }

    /// Lets time go on, with everything that is due on the way.
    pub fn until(&mut self, at: u64) -> Result<(), String> {
        while let Some(next) = self.next().filter(|next| *next <= at) {
            self.now = self.now.max(next);
            let events = self.take_due();
            self.happen(events)?;
        }
        self.now = self.now.max(at);
        Ok(())
    }

    /// When something is due next.
    pub fn next(&self) -> Option<u64> {
        let due = self.agenda.first_key_value().map(|((at, _), _)| *at);
        due.into_iter().chain(self.engine.poll_timeout().map(|at| at.0)).min()
    }

    /// Events of this instant, and everything that they lead to in it.
    pub fn happen(&mut self, mut events: Vec<Event>) -> Result<(), String> {
        for _ in 0..MOST_BATCHES {
            events = self.batch(events)?;
            if events.is_empty() {
                return Ok(());
            }
        }
        Err(format!("no end of batches at {} ms", self.now))
    }

    fn take_due(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= self.now) {
            match entry.remove() {
                Due::Ready(instance) if self.instances.contains_key(&instance) => {
                    events.push(Event::NodeReady { instance });
                }
                Due::Ready(_) => {}
                Due::Ends(job) => events.extend(self.completion(job)),
            }
        }
        events
    }

    fn batch(&mut self, events: Vec<Event>) -> Result<Vec<Event>, String> {
        let mut step = BatchStep::open(&mut self.engine, tick(self.now, self.delivered));
        for event in events {
            step.handle_event(event);
        }
        let released = step.plan().append(&mut NullJournal).map_err(|e| format!("{e:?}"))?;
        self.delivered = released.statuses.last().map_or(self.delivered, |status| status.number);
        let mut answers = Vec::new();
        for effect in &released.effects {
            self.act(effect, &mut answers);
        }
        Ok(answers)
    }

    fn act(&mut self, effect: &Effect, answers: &mut Vec<Event>) {
        match &effect.action {
            Action::Launch { purchase, offering, count, .. } => self.launch(*purchase, *offering, *count, answers),
            Action::Terminate { instance, .. } => {
                if let Some((since, rate)) = self.instances.remove(instance) {
                    self.spent += u128::from(self.now - since) * u128::from(rate);
                    answers.push(Event::NodeGone { instance: instance.clone(), why: GoneWhy::Terminated });
                }
            }
            Action::Start { job, attempt, workers, .. } => {
                self.start(*job, *attempt, workers);
                answers.push(Event::RunStarted { job: *job, attempt: *attempt });
            }
            Action::Stop { job, attempt, .. } => answers.extend(self.stop(*job, *attempt)),
            // Whoever would shrink is stopped as a whole: no experiment has elastic gangs.
            Action::Shrink { job, attempt, .. } => answers.extend(self.stop(*job, *attempt)),
        }
    }

    fn launch(&mut self, purchase: PurchaseId, offering: OfferingId, count: u32, answers: &mut Vec<Event>) {
        let rate = self.state().offerings()[offering.index()].offer.price.0;
        let names: Vec<String> = (0..count).map(|nth| format!("i-{:08}", self.made + u64::from(nth))).collect();
        self.made += u64::from(count);
        self.launches.push((self.now, count));
        answers.push(Event::LaunchOutcome { purchase, instances: names.clone(), error: None });
        for name in names {
            self.instances.insert(name.clone(), (self.now, rate));
            if self.boot == 0 {
                answers.push(Event::NodeReady { instance: name });
            } else {
                self.later(self.now + self.boot, Due::Ready(name));
            }
        }
    }

    fn start(&mut self, job: JobId, attempt: Attempt, workers: &[WorkerPlace]) {
        let subject = self.state().job(job).map(|(_, spec)| spec.subject.clone()).unwrap_or_default();
        let now = self.now;
        let fate = self.fates.entry(subject.clone()).or_default();
        fate.started.get_or_insert(now);
        fate.runs += 1;
        let from = now + if fate.runs > 1 { fate.restart } else { 0 };
        let ends = fate.work.map(|work| from + work.saturating_sub(fate.saved));
        let due = ends.map(|ends| self.later(ends, Due::Ends(job)));
        self.runs.insert(job, Run { attempt, workers: workers.to_vec(), subject, from, due });
    }

    fn stop(&mut self, job: JobId, attempt: Attempt) -> Option<Event> {
        let run = self.runs.remove(&job)?;
        if let Some(due) = run.due {
            self.agenda.remove(&due);
        }
        self.stops += 1;
        let fate = self.fates.entry(run.subject).or_default();
        fate.saved += self.now.saturating_sub(run.from);
        Some(Event::RunStopped { job, attempt, progress: Some(Span(fate.saved)) })
    }

    fn later(&mut self, at: u64, due: Due) -> (u64, u64) {
        self.made += 1;
        self.agenda.insert((at, self.made), due);
        (at, self.made)
    }
}

/// A node that is there without having been bought, as a pool of owned nodes takes it.
pub fn owned(name: String, pool: &str, room: (u16, u64, u64), model: Option<&str>) -> Event {
    let (gpus, cpu, mem) = room;
    let shape = OwnedShape {
        instance_type: format!("{}-{gpus}-{cpu}-{mem}", model.unwrap_or("node")),
        zone: "fleet".to_owned(),
        gpus,
        gpu_mem: GPU_MEM,
        models: model.map(str::to_owned).into_iter().collect(),
        cpu: MilliCpu(cpu),
        mem: Mib(mem),
        nvlink: 0,
    };
    let node = OwnedNode { name, pool: pool.to_owned(), shape, open: true, ..OwnedNode::default() };
    Event::OwnedNodeSeen(Box::new(node))
}

fn tick(now: u64, delivered: u64) -> Tick {
    Tick { now: Timestamp(now), resumed: false, delivered }
}
