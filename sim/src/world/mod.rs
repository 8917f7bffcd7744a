//! The simulated world: a simulated cloud and a simulated cluster, behind the same interface as the real ones. Effects go in
//! through [`World::act`], events come out of [`World::take_until`], and [`World::list`] lists what there is.
//!
//! ```text
//! Effect -> act -> agenda (time, number) -> cloud | cluster -> Event
//!                                             |  market       |
//!                                             +--> billing <----+      what the cloud would bill, what was lost
//! ```
//!
//! Never: decides what the engine should; reads a clock; draws from a generator with state. The same seed, state and effects give
//! the same events, whenever it is asked.

pub(crate) mod billing;
mod cloud;
mod cluster;
pub mod hash;
mod rebuild;
mod run;
#[cfg(test)]
mod tests;
mod truth;

use std::collections::BTreeMap;

use forebay_kernel::catalog::CapacityType;
use forebay_kernel::effect::{Action, Effect};
use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId, OfferingId, PurchaseId};
use forebay_kernel::job::JobSpec;
use forebay_kernel::policy::Policy;
use forebay_kernel::reconcile::{Listing, SeenInstance};
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::Job;
use forebay_kernel::units::{Span, Timestamp};

use crate::market::Market;
pub use billing::{Bill, Billing};
use cloud::Cloud;
use cluster::Cluster;
pub use truth::{JobTruth, Truths};

/// Nodes of one (type, zone) that a market with a partial availability is measured against, where no depth is given:
/// at 250 permille, 100 nodes can be had.
pub const DEFAULT_DEPTH: u32 = 400;

/// How the world behaves. [`WorldOptions::new`] is a world without faults.
#[derive(Clone, Debug)]
pub struct WorldOptions {
    /// The seed of everything that the world draws.
    pub seed: u64,
    /// What spot can be had, and at what price. Its time 0 is `origin`.
    pub market: Market,
    /// The instant that is the market's time 0.
    pub origin: Timestamp,
    /// The share of reclaims that are announced 2 minutes ahead, in 1/1000.
    pub warning_permille: u16,
    /// Spot nodes of one (type, zone) at full availability. `None`: no bound at full availability, [`DEFAULT_DEPTH`] below it.
    pub depth: Option<u32>,
    /// Exact counts for some offerings, whatever the market has.
    pub stock: Vec<Stock>,
    /// Launches refused as too many calls, in 1/1000.
    pub throttle_permille: u16,
    /// Launches refused by the cloud's own fault, in 1/1000.
    pub server_error_permille: u16,
    /// Boots that take five times as long, in 1/1000.
    pub slow_boot_permille: u16,
    /// Boots that never end, in 1/1000.
    pub no_boot_permille: u16,
    /// Stops whose clean-up hangs until the deadline, in 1/1000.
    pub hang_permille: u16,
    /// Stops whose clean-up hangs until its node is gone, in 1/1000.
    pub hang_for_ever_permille: u16,
    /// Racks in a zone: the nodes of one purchase stand in one of them, which is reported when they are ready. 0: no rack is reported.
    pub racks: u64,
    /// On-demand is out of stock in these intervals.
    pub on_demand_out: Vec<(Timestamp, Timestamp)>,
    /// Runs save their progress on whole multiples of this, so that many reports share an instant.
    pub save_grid: Span,
    /// Runs and jobs that are over are forgotten after this: a world that lasts stays small. `None`: never, so that all can be checked.
    pub forgets_after: Option<Span>,
}

/// An exact number of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stock {
    /// As in the offering.
    pub instance_type: String,
    /// As in the offering.
    pub zone: String,
    /// As in the offering.
    pub capacity: CapacityType,
    /// How many exist.
    pub count: u32,
}

impl WorldOptions {
    /// A world without faults: nine reclaims of ten announced, everything else as the market has it.
    #[must_use]
    pub fn new(seed: u64, market: Market) -> WorldOptions {
        WorldOptions {
            seed,
            market,
            origin: Timestamp(0),
            warning_permille: 900,
            depth: None,
            stock: Vec::new(),
            throttle_permille: 0,
            server_error_permille: 0,
            slow_boot_permille: 0,
            no_boot_permille: 0,
            hang_permille: 0,
            hang_for_ever_permille: 0,
            racks: 0,
            on_demand_out: Vec::new(),
            save_grid: Span::mins(1),
            forgets_after: None,
        }
    }
}

/// The (type, zone) pairs of a policy's spot offerings, as markets want them: sorted, without repeats.
#[must_use]
pub fn spot_pairs(policy: &Policy) -> Vec<(String, String)> {
    let spot = policy.offerings.iter().filter(|o| o.capacity == CapacityType::Spot);
    let mut pairs: Vec<_> = spot.map(|o| (o.instance_type.clone(), o.zone.clone())).collect();
    pairs.sort();
    pairs.dedup();
    pairs
}

/// What is due on the agenda.
#[derive(Clone, Debug)]
pub(crate) enum Due {
    /// Something already known is reported again.
    Report(Box<Event>),
    /// The cloud answers a launch.
    Answer(PurchaseId),
    /// An instance joins the cluster.
    Ready(usize),
    /// An instance is taken back.
    Reclaimed(usize),
    /// An instance has ended on request.
    Terminated(usize),
    /// A pair's availability may have changed.
    Market(usize),
    /// An offering's price may have changed.
    Price(OfferingId),
    /// A gang's workers start.
    Started(usize),
    /// A run saves its progress.
    Saves(usize),
    /// A worker of a run, or all of them, has done its work.
    Worked(usize, Option<u32>),
    /// A run fails.
    Fails(usize),
    /// A run that lingers reports its idleness.
    Idles(usize),
    /// The process of a lingering run ends.
    Leaves(usize),
    /// A stop is through.
    Stopped(usize),
    /// Workers leave a run, by their numbers.
    Shrunk(usize, Vec<u32>),
}

impl Due {
    /// The run that it is about, if it is about one.
    fn run(&self) -> Option<usize> {
        match self {
            Due::Started(ix)
            | Due::Saves(ix)
            | Due::Worked(ix, _)
            | Due::Fails(ix)
            | Due::Idles(ix)
            | Due::Leaves(ix)
            | Due::Stopped(ix)
            | Due::Shrunk(ix, _) => Some(*ix),
            Due::Report(_)
            | Due::Answer(_)
            | Due::Ready(_)
            | Due::Reclaimed(_)
            | Due::Terminated(_)
            | Due::Market(_)
            | Due::Price(_) => None,
        }
    }
}

/// What is due when, in a total order: time, then insertion.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agenda {
    queue: BTreeMap<(Timestamp, u64), Due>,
    inserted: u64,
}

impl Agenda {
    pub(crate) fn at(&mut self, when: Timestamp, due: Due) {
        self.inserted += 1;
        self.queue.insert((when, self.inserted), due);
    }

    pub(crate) fn report(&mut self, when: Timestamp, event: Event) {
        self.at(when, Due::Report(Box::new(event)));
    }

    fn next(&self) -> Option<Timestamp> {
        self.queue.first_key_value().map(|((at, _), _)| *at)
    }

    fn pop(&mut self, until: Timestamp) -> Option<(Timestamp, Due)> {
        let first = self.queue.first_entry()?;
        let at = first.key().0;
        (at <= until).then(|| (at, first.remove()))
    }
}

/// The simulated cloud and cluster.
#[derive(Clone, Debug)]
pub struct World {
    options: WorldOptions,
    agenda: Agenda,
    cloud: Cloud,
    cluster: Cluster,
    billing: Billing,
    truths: Truths,
    violations: Vec<String>,
}

impl World {
    /// A world in which nothing of ours exists yet. `state` knows the policy, and so what can be bought.
    #[must_use]
    pub fn new(options: WorldOptions, state: &State) -> World {
        let cluster = Cluster::new(options.forgets_after);
        let mut world = World {
            options,
            agenda: Agenda::default(),
            cloud: Cloud::default(),
            cluster,
            billing: Billing::default(),
            truths: Truths::new(),
            violations: Vec::new(),
        };
        world.cloud.know(&world.options, state, &mut world.agenda, &mut world.billing);
        world
    }

    /// A world that died with its process, put together again from what the engine's journal knows of it.
    ///
    /// Instances that claims name exist, runs that were under way go on from what they had saved, reclaims come from the
    /// market. What was never reported to the engine is gone. The billing begins anew.
    #[must_use]
    pub fn rebuild(options: WorldOptions, state: &State, truths: Truths) -> World {
        let mut world = World::new(options, state);
        world.truths = truths;
        rebuild::instances(&mut world, state);
        rebuild::runs(&mut world, state);
        world
    }

    /// Gives the world the truth about a job. Jobs without one last as long as they are expected to, or a minute.
    pub fn learn(&mut self, tenant: &str, subject: &str, truth: JobTruth) {
        self.truths.insert((tenant.to_owned(), subject.to_owned()), truth);
    }

    /// Carries an effect out. The same effect again has no second effect: what is known of it is reported again.
    pub fn act(&mut self, now: Timestamp, effect: &Effect, state: &State) {
        self.cloud.know(&self.options, state, &mut self.agenda, &mut self.billing);
        match &effect.action {
            Action::Launch { purchase, offering, count, at_least, .. } => {
                let ask = cloud::LaunchRequest {
                    purchase: *purchase,
                    offering: *offering,
                    count: *count,
                    at_least: *at_least,
                };
                self.cloud.launch(now, ask, &self.options, &mut self.agenda);
            }
            Action::Terminate { instance, .. } => {
                if let Some(at) = self.cloud.terminate(now, instance, &self.options, &mut self.agenda) {
                    self.check_idle(at, state);
                }
            }
            Action::Start { job, attempt, workers, resume_from } => {
                let order = cluster::StartRequest { job: *job, attempt: *attempt, workers, resume_from: *resume_from };
                self.start(now, &order, state);
            }
            Action::Stop { job, attempt, checkpoint, deadline } => {
                let stop = cluster::StopRequest { checkpoint: *checkpoint, deadline: *deadline };
                self.cluster.stop(now, (*job, *attempt), stop, &self.options, &mut self.agenda);
            }
            Action::Shrink { job, attempt, leave, deadline } => {
                self.cluster.shrink(now, (*job, *attempt), leave, *deadline, &self.options, &mut self.agenda);
            }
        }
    }

    /// An instance of another cloud than this world's: runs may be started on it. For a real cloud with a simulated cluster.
    pub fn host(&mut self, now: Timestamp, instance: &str, purchase: PurchaseId, offering: OfferingId, state: &State) {
        self.cloud.know(&self.options, state, &mut self.agenda, &mut self.billing);
        self.cloud.host(now, instance, purchase, offering, &mut self.billing);
    }

    /// A hosted instance is no more, and so is every worker on it. The world reports nothing of it: its own cloud does.
    pub fn take_away(&mut self, now: Timestamp, instance: &str) {
        if let Some(ix) = self.cloud.find(instance) {
            let mut untold = Vec::new();
            self.gone(now, ix, cloud::terminated(), &mut untold);
        }
    }

    /// When something is due next.
    #[must_use]
    pub fn next_event(&self) -> Option<Timestamp> {
        self.agenda.next()
    }

    /// Everything that has happened up to `now`, in order of time.
    pub fn take_until(&mut self, now: Timestamp) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some((at, due)) = self.agenda.pop(now) {
            self.happen(at, due, &mut events);
        }
        events
    }

    /// All instances and runs. A run's end is listed once its own event has had [`forebay_kernel::reconcile::SETTLED`] to
    /// arrive, and for two hours.
    #[must_use]
    pub fn list(&self, now: Timestamp) -> Listing {
        let instances = self.cloud.existing().map(|i| SeenInstance {
            instance: i.name.clone(),
            purchase: i.purchase,
            offering: i.offering,
            ready: i.ready,
        });
        Listing { seen_at: now, instances: instances.collect(), runs: self.cluster.list(now) }
    }

    /// What the cloud would bill up to `now`, and what was lost.
    #[must_use]
    pub fn billing(&self, now: Timestamp) -> Billing {
        let mut billing = self.billing.clone();
        billing.out_of_memory = self.cluster.out_of_memory;
        for instance in self.cloud.existing() {
            billing.bill(instance.offering, instance.launched, now);
        }
        billing
    }

    /// Instances that exist.
    #[must_use]
    pub fn instances(&self) -> usize {
        self.cloud.existing().count()
    }

    /// Runs with a live worker.
    #[must_use]
    pub fn runs_alive(&self) -> usize {
        self.cluster.alive()
    }

    /// Runs that will end by themselves.
    #[must_use]
    pub fn runs_working(&self) -> usize {
        self.cluster.working()
    }

    /// How often each job's work was brought to its end.
    #[must_use]
    pub fn completions(&self, job: JobId) -> u32 {
        self.cluster.completions(job)
    }

    /// The same of every job whose work was brought to its end at least once.
    pub fn all_completions(&self) -> impl Iterator<Item = (JobId, u32)> + '_ {
        self.cluster.all_completions()
    }

    /// What durable progress a job has, by its own account.
    #[must_use]
    pub fn saved(&self, job: JobId) -> Span {
        self.cluster.saved(job)
    }

    /// What went against the rules in the world itself: two attempts alive at once, work under a termination, GPUs given
    /// out twice.
    #[must_use]
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Breaks a rule on purpose, for tests of the checks: workers of this run will survive their stop.
    pub(crate) fn keep_alive_after_stop(&mut self, job: JobId, attempt: Attempt) {
        self.cluster.keep_alive_after_stop(job, attempt);
    }

    fn happen(&mut self, at: Timestamp, due: Due, events: &mut Vec<Event>) {
        match due {
            Due::Report(event) => events.push(*event),
            Due::Answer(purchase) => {
                self.cloud.answer(at, purchase, &self.options, &mut self.agenda, &mut self.billing, events);
            }
            Due::Ready(ix) => {
                events.extend(self.cloud.ready(ix));
                events.extend(self.cloud.stands(ix, &self.options));
            }
            Due::Reclaimed(ix) => self.gone(at, ix, cloud::reclaimed(), events),
            Due::Terminated(ix) => self.gone(at, ix, cloud::terminated(), events),
            Due::Market(pair) => self.cloud.market(at, pair, &self.options, &mut self.agenda, events),
            Due::Price(offering) => {
                events.extend(self.cloud.price(at, offering, &self.options, &mut self.agenda, &mut self.billing));
            }
            run => self.cluster.happen(at, run, &self.options, &mut self.agenda, &mut self.billing, events),
        }
        self.violations.append(&mut self.cluster.violations);
    }

    /// An instance is no more, and so is every worker on it.
    fn gone(&mut self, at: Timestamp, ix: usize, why: forebay_kernel::event::GoneWhy, events: &mut Vec<Event>) {
        let Some(event) = self.cloud.gone(at, ix, why, &mut self.billing) else { return };
        self.cluster.node_gone(at, ix, why, &mut self.billing);
        events.push(event);
    }

    fn start(&mut self, now: Timestamp, order: &cluster::StartRequest<'_>, state: &State) {
        if self.cluster.knows(now, (order.job, order.attempt), &mut self.agenda) {
            return;
        }
        // A start that comes when its job is over is for a run whose nodes are gone: nothing would be left of it.
        let Some((row, spec)) = state.job(order.job) else { return };
        let truth = self.truth(row, spec);
        let places = order.workers.iter().map(|w| {
            let instance = state.node(w.node).and_then(|n| n.instance.as_deref());
            (instance.and_then(|i| self.cloud.find(i)).filter(|ix| self.cloud.usable(*ix)), w)
        });
        let places: Vec<_> = places.collect();
        let shape = |ix: usize| self.cloud.gpus(ix);
        self.cluster.start(now, order, &places, spec, truth, &self.options, &mut self.agenda, &shape);
        self.violations.append(&mut self.cluster.violations);
    }

    /// What is true of a job. A replica's is its service's, and without one it never ends.
    fn truth(&self, row: &Job, spec: &JobSpec) -> JobTruth {
        // A replica is named after its service: `<service>/<number>`.
        let service = row.service.and_then(|_| spec.subject.rsplit_once('/')).map(|(service, _)| service);
        let subject = service.unwrap_or(&spec.subject);
        let truth = self.truths.get(&(spec.tenant.clone(), subject.to_owned())).copied();
        truth.unwrap_or_else(|| match row.service {
            Some(_) => JobTruth::endless(),
            None => JobTruth::lasting(spec.expected.unwrap_or(Span::mins(1))),
        })
    }

    fn check_idle(&mut self, ix: usize, state: &State) {
        // A run that has hung did not receive its stop, or will never report it: it ends with its node.
        let hung = |job: JobId| state.job(job).is_some_and(|(row, _)| row.hung);
        if let Some((job, attempt)) = self.cluster.working_on(ix).filter(|(job, _)| !hung(*job)) {
            self.violations.push(format!("terminated a node under {job} {attempt} while it was at work"));
        }
    }
}
