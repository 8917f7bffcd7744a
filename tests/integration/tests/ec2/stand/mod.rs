//! A test stand: the engine, its journal, the adapter's machine and SDK calls, a cluster, and the loopback EC2's region, in virtual time.
//! Everything that a controller does between a decision and its outcome happens here one step at a time, so that it can die at each.
//!
//! ```text
//! events -> batch -> freeze -> [dies] -> journal -> [dies] -> machine -> [dies] -> call -> [dies] -> response -> report -> events
//! ```
//!
//! What a crash lost has to be found out as in production: by tokens, tags and listings.

pub mod cluster;
pub mod wire;

use cluster::Cluster;
use forebay_capacity_ec2::machine::CallId;
use forebay_capacity_ec2::sdk::{Client, execute};
use forebay_capacity_ec2::{
    Ec2Call, Ec2Machine, Ec2Response, Ec2Settings, LaunchRequest, LaunchSettings, MachineReport, PurchaseOrigin,
    reconcile,
};
use forebay_driver::step::BatchStep;
use forebay_engine::engine::Engine;
use forebay_integration::dice::Dice;
use forebay_kernel::effect::{Action, Effect};
use forebay_kernel::event::{Event, LaunchError, Tick};
use forebay_kernel::job::JobSpec;
use forebay_kernel::policy::Policy;
use forebay_kernel::state::State;
use forebay_kernel::units::{Rate, Span, Timestamp};
use forebay_loopback_ec2::{InstanceState, Region, RegionOptions};
use forebay_sim::memory::MemoryJournal;
use std::collections::{BTreeMap, BTreeSet};
use wire::Shared;

/// The journal's UUID.
pub const JOURNAL: &str = "6f1c1a52-5a3e-4f0e-9a43-1d2c7b1e9a10";

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// One crash in so many steps at which one can happen. 0: none.
    pub crash_one_in: u64,
    /// Until then; after it everything has to come out.
    pub until: Timestamp,
}

pub struct Stand {
    pub engine: Engine,
    pub region: Shared,
    pub now: Timestamp,
    pub machine: Ec2Machine,
    pub inputs: BTreeMap<(Timestamp, u64), Event>,
    pub crashes: BTreeMap<&'static str, u64>,
    /// Errors of launches as they came, with how often.
    pub errors: BTreeMap<LaunchError, u64>,
    /// Calls made, by name.
    pub made: BTreeMap<&'static str, u64>,
    journal: MemoryJournal,
    /// As the journal keeps them.
    requests: BTreeMap<u64, LaunchRequest>,
    settings: Ec2Settings,
    client: Client,
    runtime: tokio::runtime::Runtime,
    responses: BTreeMap<(Timestamp, u64), (CallId, Ec2Response)>,
    cluster: Cluster,
    faults: Faults,
    dice: Dice,
    /// The most that each purchase asked for, and the least of use.
    asked: BTreeMap<String, (u32, u32)>,
    /// Instances ever launched, by purchase.
    launched: BTreeMap<String, BTreeSet<String>>,
    launch_times: Vec<Timestamp>,
    found: Vec<String>,
    numbered: u64,
    resumed: bool,
}

/// A job of one worker with one GPU.
pub fn job(subject: &str) -> JobSpec {
    JobSpec {
        tenant: "t".into(),
        subject: subject.into(),
        principal: "p".into(),
        queue: "all".into(),
        ..JobSpec::default()
    }
}

/// Settings of the stand's adapter.
pub fn settings() -> Ec2Settings {
    let launch = LaunchSettings {
        template: Some(forebay_loopback_ec2::DEFAULT_TEMPLATE.to_owned()),
        ..LaunchSettings::default()
    };
    Ec2Settings::new("stand", JOURNAL, launch)
}

impl Stand {
    pub fn new(policy: Policy, options: RegionOptions, faults: Faults, seed: u64) -> Stand {
        let now = Timestamp(options.origin.0 + 1000);
        Stand::over(Shared::new(Region::new(options)), now, policy, faults, seed)
    }

    /// Another controller with an empty journal, in the same account.
    pub fn beside(other: &Stand, policy: Policy) -> Stand {
        // What was done by hand has got around by then.
        Stand::over(other.region.clone(), other.now + Span::mins(2), policy, Faults::default(), 1)
    }

    /// From now on so much goes wrong.
    pub fn faults(&mut self, faults: Faults, seed: u64) {
        (self.faults, self.dice) = (faults, Dice::new(seed));
    }

    /// Starts again with other settings.
    pub fn configure(&mut self, settings: Ec2Settings) {
        self.settings = settings;
        self.restart();
    }

    fn over(region: Shared, now: Timestamp, policy: Policy, faults: Faults, seed: u64) -> Stand {
        let client = region.client();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut stand = Stand {
            engine: Engine::new(),
            region,
            now,
            machine: Ec2Machine::new(settings(), BTreeSet::new(), seed),
            inputs: BTreeMap::new(),
            crashes: BTreeMap::new(),
            errors: BTreeMap::new(),
            made: BTreeMap::new(),
            journal: MemoryJournal::new(),
            requests: BTreeMap::new(),
            settings: settings(),
            client,
            runtime,
            responses: BTreeMap::new(),
            cluster: Cluster::default(),
            faults,
            dice: Dice::new(seed),
            asked: BTreeMap::new(),
            launched: BTreeMap::new(),
            launch_times: Vec::new(),
            found: Vec::new(),
            numbered: 0,
            resumed: false,
        };
        stand.batch(vec![Event::Configured(Box::new(policy))]);
        stand
    }

    /// Something happens then.
    pub fn input(&mut self, at: Timestamp, event: Event) {
        self.numbered += 1;
        self.inputs.insert((at, self.numbered), event);
    }

    fn number(&mut self) -> u64 {
        self.numbered += 1;
        self.numbered
    }

    /// Every job works for so long.
    pub fn works_for(&mut self, span: Span) {
        self.cluster.works = Some(span);
    }

    /// Launches asked for in that time.
    pub fn launches_between(&self, from: Timestamp, to: Timestamp) -> usize {
        self.launch_times.iter().filter(|at| (from..to).contains(at)).count()
    }

    /// One step: to the next moment at which anything happens. `until` at the latest.
    pub fn step(&mut self, until: Timestamp) {
        let next = [
            Some(self.machine.next_poll_at(self.now)),
            self.responses.first_key_value().map(|((at, _), _)| *at),
            self.engine.poll_timeout(),
            self.region.with(|r| r.next_event()),
            self.cluster.next(),
            self.inputs.first_key_value().map(|((at, _), _)| *at),
            self.resumed.then_some(self.now),
        ];
        let due = next.into_iter().flatten().min().unwrap_or(until).min(until);
        self.now = self.now.max(due);
        self.region.at(self.now);
        let now = self.now;
        self.region.with(|r| r.advance(now));
        while let Some(entry) = self.responses.first_entry().filter(|e| e.key().0 <= now) {
            let (number, response) = entry.remove();
            self.machine.handle_response(now, number, response);
        }
        self.calls();
        let mut events = self.reports();
        while let Some(entry) = self.inputs.first_entry().filter(|e| e.key().0 <= now) {
            events.push(entry.remove());
        }
        events.extend(self.cluster.take(now, self.engine.state()));
        let timeout = self.engine.poll_timeout().is_some_and(|at| at <= now);
        if !events.is_empty() || timeout || self.resumed {
            self.batch(events);
        }
        self.check_truth();
    }

    /// Steps until then.
    pub fn run_until(&mut self, until: Timestamp) {
        while self.now < until {
            self.step(until);
        }
    }

    /// Makes the machine's calls. The responses come a little later, or never.
    fn calls(&mut self) {
        for (number, call) in self.machine.poll(self.now) {
            if self.dies("before a call") {
                return;
            }
            *self.made.entry(name(&call)).or_default() += 1;
            let response = self.runtime.block_on(execute(&self.client, &call));
            if let Ec2Call::Launch(request) = &call {
                self.launch_times.push(self.now);
                self.asked.insert(request.purchase.to_string(), (request.count, request.at_least));
            }
            if self.dies("before an answer") {
                return;
            }
            let takes = Span(50 + self.dice.below(if matches!(call, Ec2Call::Launch(_)) { 3000 } else { 300 }));
            let at = (self.now + takes, self.number());
            self.responses.insert(at, (number, response));
        }
    }

    fn reports(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for report in self.machine.take_reports() {
            match report {
                MachineReport::Outcome(event) => {
                    if let Event::LaunchOutcome { error: Some(error), .. } = &event {
                        *self.errors.entry(*error).or_default() += 1;
                    }
                    events.push(event);
                }
                MachineReport::Listing(seen) => {
                    let state = self.engine.state();
                    events.extend(reconcile::listing_events(state, self.machine.settings(), &seen));
                    let held = state.nodes().filter_map(|n| n.instance.clone()).collect();
                    self.machine.set_claims(&held);
                }
                MachineReport::Failing { .. } | MachineReport::Recovered { .. } | MachineReport::Contested(_) => {}
            }
        }
        events
    }

    fn batch(&mut self, events: Vec<Event>) {
        let resumed = std::mem::take(&mut self.resumed);
        let mut step = BatchStep::open(&mut self.engine, Tick { now: self.now, resumed, delivered: u64::MAX });
        events.into_iter().for_each(|event| _ = step.handle_event(event));
        let planned = step.plan();
        let state = self.engine.state();
        let request = |e: &Effect| Some((e.id.0, LaunchRequest::from_effect(&self.settings, e, state)?));
        let frozen: Vec<(u64, LaunchRequest)> = planned.pending_effects().filter_map(request).collect();
        let found = self.engine.audit_rows(planned.batch());
        if self.dies("before the journal") {
            return;
        }
        let released = planned.append(&mut self.journal).unwrap();
        self.requests.extend(frozen);
        self.found.extend(found);
        if self.dies("before effects leave") {
            return;
        }
        self.release(&released.effects, PurchaseOrigin::New);
    }

    fn release(&mut self, effects: &[Effect], origin: PurchaseOrigin) {
        for effect in effects {
            match &effect.action {
                Action::Launch { .. } => {
                    let request = self.requests.get(&effect.id.0).cloned();
                    self.machine.launch(request.expect("its request is in the journal"), origin);
                }
                Action::Terminate { instance, .. } => self.machine.terminate(self.now, instance.clone()),
                _ => self.cluster.act(self.now, effect),
            }
        }
    }

    /// Whether the controller dies here. It is there again after a while, with what its journal has.
    fn dies(&mut self, place: &'static str) -> bool {
        let one_in = self.faults.crash_one_in;
        if one_in == 0 || self.now >= self.faults.until || self.dice.below(one_in) != 0 {
            return false;
        }
        *self.crashes.entry(place).or_default() += 1;
        self.restart();
        true
    }

    /// Dies and comes back.
    pub fn restart(&mut self) {
        self.engine = self.journal.recover().unwrap().engine;
        self.responses.clear();
        if self.dice.below(4) == 0 {
            self.now = self.now + Span(self.dice.below(600_000));
        }
        let state = self.engine.state();
        self.now = self.now.max(state.now());
        let claims = state.nodes().filter_map(|n| n.instance.clone()).collect();
        let seed = self.dice.below(u64::MAX);
        self.machine = Ec2Machine::new(self.settings.clone(), claims, seed);
        self.resumed = true;
        let open = self.engine.open_effects();
        self.release(&open, PurchaseOrigin::Recovered);
    }

    /// What EC2 really has, against what was allowed.
    fn check_truth(&mut self) {
        let own: Vec<_> = self.region.with(|r| {
            let own = r.instances().filter(|i| i.tags.get("forebay:journal").is_some_and(|j| j == JOURNAL));
            own.map(|i| {
                let purchase = i.tags.get("forebay:purchase").cloned().unwrap_or_default();
                (i.id.clone(), i.instance_type.clone(), i.zone.clone(), i.capacity, i.state, purchase)
            })
            .collect()
        });
        let state = self.engine.state();
        let (mut nodes, mut gpus, mut spend) = (0u32, 0u32, Rate(0));
        for (id, instance_type, zone, capacity, life, purchase) in &own {
            self.launched.entry(purchase.clone()).or_default().insert(id.clone());
            if *life == InstanceState::Terminated {
                continue;
            }
            let key = (instance_type.as_str(), zone.as_str(), *capacity);
            let offer = state.offerings().iter().find(|o| o.offer.key() == key).map(|o| &o.offer);
            nodes += 1;
            gpus += offer.map_or(0, |o| u32::from(o.gpus));
            spend = spend + offer.map_or(Rate(0), |o| o.max_price);
        }
        let Some(limits) = state.policy().map(|p| p.limits) else { return };
        let over = |what: &str, most: Option<u64>, is: u64| {
            most.filter(|most| is > *most).map(|most| format!("{is} {what} exist, {most} are allowed"))
        };
        self.found.extend(over("nodes", limits.nodes.map(u64::from), u64::from(nodes)));
        self.found.extend(over("GPUs", limits.gpus.map(u64::from), u64::from(gpus)));
        self.found.extend(over("micro-dollars an hour", limits.spend.map(|r| r.0), spend.0));
        for (purchase, made) in &self.launched {
            let Some((count, at_least)) = self.asked.get(purchase) else { continue };
            let made = made.len() as u32;
            if made > *count {
                self.found.push(format!("purchase {purchase} asked for {count} and has {made}: it was made twice"));
            }
            if made > 0 && made < *at_least {
                self.found.push(format!("purchase {purchase} is a gang of {at_least} and has {made}"));
            }
        }
    }

    /// Instances of ours that exist and that neither a claim nor an open purchase accounts for.
    pub fn unaccounted(&self) -> Vec<String> {
        let state = self.engine.state();
        let open: BTreeSet<String> = state.purchases().map(|p| p.id.0.to_string()).collect();
        self.region.with(|r| {
            let existing = r.instances().filter(|i| i.state != InstanceState::Terminated);
            let own = existing.filter(|i| i.tags.get("forebay:journal").is_some_and(|j| j == JOURNAL));
            let unknown = own.filter(|i| {
                let awaited = i.tags.get("forebay:purchase").is_some_and(|p| open.contains(p));
                state.node_of(&i.id).is_none() && !awaited
            });
            unknown.map(|i| i.id.clone()).collect()
        })
    }

    /// Nodes of ours that exist.
    pub fn existing(&self) -> usize {
        self.region.with(|r| r.instances().filter(|i| i.state != InstanceState::Terminated).count())
    }

    /// What did not hold so far.
    pub fn found(&mut self) -> Vec<String> {
        std::mem::take(&mut self.found)
    }

    /// The state.
    pub fn state(&self) -> &State {
        self.engine.state()
    }

    /// Whether everything is over: no open job, no claim, no purchase, no instance.
    pub fn is_over(&self) -> bool {
        let state = self.state();
        self.inputs.is_empty()
            && state.open_jobs() == 0
            && state.nodes().next().is_none()
            && state.purchases().next().is_none()
            && self.existing() == 0
            && self.machine.is_idle()
    }
}

fn name(call: &Ec2Call) -> &'static str {
    match call {
        Ec2Call::Launch(_) => "launch",
        Ec2Call::CreateGroup(_) => "make group",
        Ec2Call::Terminate(_) => "terminate",
        Ec2Call::List { .. } | Ec2Call::Describe(_) => "describe",
    }
}
