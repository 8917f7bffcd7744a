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
use forebay_kernel::event::{Event, GoneWhy, LaunchError};
use forebay_kernel::ids::{OfferingId, PurchaseId};
use forebay_kernel::job::JobSpec;
use forebay_kernel::policy::Policy;
use forebay_kernel::reconcile::{Listing, SeenInstance};
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::Job;
use forebay_kernel::units::{Span, Timestamp};

use crate::market::Market;
use crate::trace::BootTimes;
pub use billing::{Bill, Billing};
use cloud::Cloud;
use cluster::{Cluster, RunDue};
pub use truth::{JobTruth, Truths};

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
    /// Spot nodes of one (type, zone) at full availability. `None`: no bound at full availability, [`crate::market::DEFAULT_DEPTH`] below it.
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
    /// Boots that never end of which the cloud says so, in 1/1000.
    pub boot_failed_permille: u16,
    /// The account launches nothing in these intervals, and the cloud says why: a limit, credentials, another controller.
    pub account_refuses: Vec<(Timestamp, Timestamp, LaunchError)>,
    /// Stops whose clean-up hangs until the deadline, in 1/1000.
    pub hang_permille: u16,
    /// Stops whose clean-up hangs until its node is gone, and runs whose workers never leave though they are asked to, in 1/1000.
    pub hang_for_ever_permille: u16,
    /// Racks in a zone: the nodes of one purchase stand in one of them, which is reported when they are ready. 0: no rack is reported.
    pub racks: u64,
    /// Boots that were measured: of an offering that is in it, a boot takes as long as one of these.
    pub boots: BootTimes,
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
            boot_failed_permille: 0,
            account_refuses: Vec::new(),
            hang_permille: 0,
            hang_for_ever_permille: 0,
            racks: 0,
            boots: BootTimes::new(),
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
    /// An instance is taken back, or has ended on request.
    Gone(usize, GoneWhy),
    /// A pair's availability may have changed.
    Market(usize),
    /// An offering's price may have changed.
    Price(OfferingId),
    /// Something is due for a run.
    Run(usize, RunDue),
}

/// What is due when, in a total order: time, then insertion.
#[derive(Clone, Debug)]
pub struct Agenda<T> {
    queue: BTreeMap<(Timestamp, u64), T>,
    inserted: u64,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Agenda { queue: BTreeMap::new(), inserted: 0 }
    }
}

impl<T> Agenda<T> {
    /// Something will be due.
    pub fn at(&mut self, when: Timestamp, due: T) {
        self.inserted += 1;
        self.queue.insert((when, self.inserted), due);
    }

    /// When the first is due.
    #[must_use]
    pub fn next(&self) -> Option<Timestamp> {
        self.queue.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the first that is due by `until`.
    pub fn pop(&mut self, until: Timestamp) -> Option<(Timestamp, T)> {
        let first = self.queue.first_entry()?;
        let at = first.key().0;
        (at <= until).then(|| (at, first.remove()))
    }
}

impl Agenda<Due> {
    fn report(&mut self, when: Timestamp, event: Event) {
        self.at(when, Due::Report(Box::new(event)));
    }
}

/// The simulated cloud and cluster.
#[derive(Clone, Debug)]
pub struct World {
    options: WorldOptions,
    agenda: Agenda<Due>,
    /// What has happened and is not taken yet.
    events: Vec<Event>,
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
        let mut world = World {
            options,
            agenda: Agenda::default(),
            events: Vec::new(),
            cloud: Cloud::default(),
            cluster: Cluster::default(),
            billing: Billing::default(),
            truths: Truths::new(),
            violations: Vec::new(),
        };
        world.know(state);
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
        self.know(state);
        match &effect.action {
            Action::Launch { purchase, offering, count, at_least, .. } => {
                let ask = cloud::LaunchRequest {
                    purchase: *purchase,
                    offering: *offering,
                    count: *count,
                    at_least: *at_least,
                };
                self.launch(now, ask);
            }
            Action::Terminate { instance, .. } => {
                if let Some(ix) = self.terminate(now, instance) {
                    self.check_idle(ix, state);
                }
            }
            Action::Start { job, attempt, workers, resume_from } => {
                let order = cluster::StartRequest { job: *job, attempt: *attempt, workers, resume_from: *resume_from };
                self.start(now, &order, state);
            }
            Action::Stop { job, attempt, checkpoint, deadline } => {
                let stop = cluster::StopRequest { checkpoint: *checkpoint, deadline: *deadline };
                self.stop(now, (*job, *attempt), stop);
            }
            Action::Shrink { job, attempt, leave, deadline } => {
                self.shrink(now, (*job, *attempt), leave, *deadline);
            }
        }
    }

    /// When something is due next.
    #[must_use]
    pub fn next_event(&self) -> Option<Timestamp> {
        self.agenda.next()
    }

    /// Everything that has happened up to `now`, in order of time.
    pub fn take_until(&mut self, now: Timestamp) -> Vec<Event> {
        while let Some((at, due)) = self.agenda.pop(now) {
            self.happen(at, due);
        }
        std::mem::take(&mut self.events)
    }

    /// All instances and runs. A run's end is listed once its own event has had [`forebay_kernel::reconcile::SETTLED`] to
    /// arrive, and for two hours.
    #[must_use]
    pub fn list(&self, now: Timestamp) -> Listing {
        let instances = self.existing().map(|i| SeenInstance {
            instance: i.name.clone(),
            purchase: i.purchase,
            offering: i.offering,
            ready: i.ready,
        });
        Listing { seen_at: now, instances: instances.collect(), runs: self.list_runs(now) }
    }

    /// What the cloud would bill up to `now`, and what was lost.
    #[must_use]
    pub fn billing(&self, now: Timestamp) -> Billing {
        let mut billing = self.billing.clone();
        for instance in self.existing().chain(self.owned()) {
            billing.bill(instance.offering, instance.launched, now);
        }
        billing
    }

    /// Instances that exist.
    #[must_use]
    pub fn instances(&self) -> usize {
        self.existing().count()
    }

    /// What went against the rules in the world itself: two attempts alive at once, work under a termination, GPUs given
    /// out twice.
    #[must_use]
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    fn happen(&mut self, at: Timestamp, due: Due) {
        let event = match due {
            Due::Report(event) => Some(*event),
            Due::Answer(purchase) => self.answer(at, purchase),
            Due::Ready(ix) => {
                let ready = self.ready(ix);
                self.events.extend(ready);
                self.stands(ix)
            }
            Due::Gone(ix, why) => self.gone(at, ix, why),
            Due::Market(pair) => return self.market(at, pair),
            Due::Price(offering) => self.price(at, offering),
            Due::Run(ix, due) => return self.run_due(at, ix, due),
        };
        self.events.extend(event);
    }

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
}
