//! What the cloud and cluster do about effects, and their own books of what is alive where.
//!
//! Never: believes the engine. A start on a node that is down, a GPU taken twice or a second attempt is a failure here.

use super::{Cluster, Run};
use alloc::collections::{BTreeMap, BTreeSet};
use forebay_kernel::effect::{Action, Effect, WorkerPlace};
use forebay_kernel::event::{Event, GoneWhy, LaunchError};
use forebay_kernel::ids::{Attempt, JobId, NodeId};
use forebay_kernel::job::{Completion, Gang, Level};
use forebay_kernel::state::nodes::Node;
use forebay_kernel::units::{Span, Timestamp};

impl Cluster {
    /// What the world does about an effect, once: repeats of one that was heard change nothing.
    pub(super) fn act(&mut self, effect: Effect) {
        let deaf = match effect.action {
            Action::Launch { .. } => self.deaf.launch,
            Action::Terminate { .. } => self.deaf.terminate,
            Action::Start { .. } => self.deaf.start,
            Action::Stop { .. } | Action::Shrink { .. } => self.deaf.stop,
        };
        if deaf || !self.heard.insert(effect.id) {
            return;
        }
        match effect.action {
            Action::Launch { purchase, offering, count, at_least, .. } => {
                let stock = self.stock.entry(offering).or_default();
                let had = count.min(stock.left.unwrap_or(u32::MAX));
                let (had, error) = match stock.refuses {
                    Some(error) => (0, Some(error)),
                    None if had < at_least => (0, Some(LaunchError::Capacity)),
                    None if had < count => (had, Some(LaunchError::Capacity)),
                    None => (had, None),
                };
                stock.left = stock.left.map(|left| left - had);
                let never = stock.never_ready;
                let boot = self.state().offerings()[offering.index()].offer.boot.0;
                let mut instances = Vec::new();
                for _ in 0..had {
                    let instance = format!("i-{}", self.launched);
                    self.launched += 1;
                    self.instances.insert(instance.clone(), false);
                    if !never {
                        let ready = Event::NodeReady { instance: instance.clone() };
                        self.after(self.delays.launch + boot, ready);
                    }
                    instances.push(instance);
                }
                let outcome = Event::LaunchOutcome { purchase, instances, error };
                self.after(self.delays.launch, outcome);
            }
            Action::Terminate { instance, .. } => {
                for (job, run) in self.runs.iter().filter(|(_, run)| run.alive) {
                    let there = run.places.iter().any(|p| self.on(p) == instance);
                    assert!(!there || self.hangs(*job, run.attempt), "{instance} is terminated under {job}");
                }
                assert!(!self.owned.contains_key(&instance), "{instance} is terminated, and nobody bought it");
                let why = GoneWhy::Terminated;
                self.after(self.delays.terminate, Event::NodeGone { instance, why });
            }
            Action::Start { job, attempt, workers, resume_from } => self.start(job, attempt, workers, resume_from.0),
            Action::Stop { job, attempt, checkpoint, .. } if !self.hangs.contains(&job) => {
                self.stop(job, attempt, checkpoint);
            }
            Action::Shrink { job, attempt, leave, .. } if !self.hangs.contains(&job) => {
                self.shrink(job, attempt, &leave);
            }
            Action::Stop { .. } | Action::Shrink { .. } => {}
        }
    }

    /// Whether a run was to be dead so long ago that it counts as hung: only its node's end can end it.
    fn hangs(&self, id: JobId, run: Attempt) -> bool {
        let patience = self.state().lifecycle().hang_after;
        let over = |effect: &Effect| match effect.action {
            Action::Stop { job, attempt, deadline, .. } => {
                (job, attempt) == (id, run) && deadline + patience <= Timestamp(self.now)
            }
            _ => false,
        };
        self.log.effects.iter().any(over)
    }

    /// Workers leave; the rest goes on.
    fn shrink(&mut self, job: JobId, attempt: Attempt, leave: &[u32]) {
        let Some(run) = self.runs.get(&job).filter(|run| run.attempt == attempt && run.whole) else { return };
        let event = if run.goes_on_without(leave) {
            let mut left = [leave, &run.left].concat();
            left.sort_unstable();
            Event::RunShrunk { job, attempt, left, node_fault: None }
        } else {
            Event::RunStopped { job, attempt, progress: None }
        };
        self.after(self.delays.stop, event);
    }

    fn start(&mut self, job: JobId, attempt: Attempt, places: Vec<WorkerPlace>, from: u64) {
        let alive = self.runs.get(&job).is_some_and(|run| run.alive);
        assert!(!alive, "{job} starts a second attempt beside the first");
        let (_, spec) = self.state().job(job).expect("a job that starts exists");
        let subject = spec.subject.clone();
        let count = places.len() as u32;
        match &spec.gang {
            Gang::Workers { min, max, .. } => assert!((*min..=*max).contains(&count)),
            Gang::Spanning { gpus, .. } => {
                let sum: u32 = places.iter().map(|p| p.gpus.count_ones()).sum();
                assert_eq!(sum, *gpus, "{job} starts whole");
            }
        }
        let run = Run {
            attempt,
            gang: spec.gang.clone(),
            alive: true,
            whole: true,
            resumed_from: from,
            since: None,
            restart: spec.restart.0,
            numbers: (0..count).collect(),
            left: Vec::new(),
            finished: BTreeSet::new(),
            leader: spec.completion == Completion::Leader,
            places,
        };
        let model = |p: &WorkerPlace| {
            let node = self.state().node(p.node).expect("a claim");
            self.state().offerings()[node.offering.index()].models.first().copied()
        };
        let models: BTreeSet<_> = run.places.iter().map(model).collect();
        assert_eq!(models.len(), 1, "{job} is of one model");
        for place in &run.places {
            let up = self.instances.get(&self.on(place)).copied();
            assert_eq!(up, Some(true), "{job} starts on a node that is up");
        }
        self.close_enough(job, &run.places);
        self.slices(&run);
        self.runs.insert(job, run);
        self.room();
        if !self.mute.contains(&subject) {
            self.after(self.delays.start, Event::RunStarted { job, attempt });
        }
    }

    /// All within one domain of the level that the job requires.
    fn close_enough(&self, job: JobId, places: &[WorkerPlace]) {
        let within = self.state().job(job).and_then(|(_, spec)| spec.within).filter(|w| w.required);
        let Some(within) = within else { return };
        let nodes: Vec<&Node> = places.iter().filter_map(|p| self.state().node(p.node)).collect();
        let same = |of: &dyn Fn(&Node) -> String| nodes.iter().map(|n| of(n)).collect::<BTreeSet<_>>().len() == 1;
        let offer = |n: &Node| &self.state().offerings()[n.offering.index()].offer;
        let groups = |size: u16| -> BTreeSet<(NodeId, usize)> {
            let of = |p: &WorkerPlace| {
                let (node, gpus) = (p.node, p.gpus);
                let gpus = (0..64).filter(move |at| gpus & (1 << at) != 0);
                gpus.map(move |at| (node, if size == 0 { at } else { at / usize::from(size) })).collect::<Vec<_>>()
            };
            places.iter().flat_map(of).collect()
        };
        let first = offer(nodes[0]);
        let holds = match within.level {
            Level::Numa => groups(first.numa).len() <= 1,
            Level::Nvlink => groups(first.nvlink).len() <= 1,
            Level::Node => same(&|n| n.id.to_string()),
            Level::Rack => {
                let named = nodes[0].rack.is_some() && same(&|n| format!("{:?}", n.rack));
                let bought = nodes.iter().all(|n| n.cluster) && same(&|n| n.purchase.to_string());
                named || bought || same(&|n| n.id.to_string())
            }
            Level::Zone => same(&|n| offer(n).zone.clone()),
        };
        assert!(holds, "{job} requires {within:?} and has {places:?}");
    }

    /// A worker of a partitioned node has a slice of its own that is large enough; nobody else has any.
    fn slices(&self, starting: &Run) {
        let others = self.runs.values().filter(|run| run.alive);
        let taken: BTreeSet<_> = others.flat_map(|r| &r.places).map(|p| (p.node, p.gpus, p.slice)).collect();
        for place in &starting.places {
            let Some(node) = self.state().node(place.node) else { continue };
            let cuts = node.partition.as_ref().filter(|_| place.gpus != 0).map(|p| &p.slices);
            assert_eq!(cuts.is_some(), place.slice.is_some(), "{place:?}");
            let (Some(cuts), Some(at)) = (cuts, place.slice) else { continue };
            let Gang::Workers { each, .. } = &starting.gang else { panic!("whole GPUs on {place:?}") };
            let cut = cuts[usize::from(at)];
            assert!(cut.share >= each.share && cut.mem >= each.gpu_mem, "{place:?} is too small for {each:?}");
            assert!(!taken.contains(&(place.node, place.gpus, place.slice)), "{place:?} is taken twice");
        }
    }

    /// No GPU, core or byte is taken twice.
    fn room(&self) {
        let mut gpus: BTreeMap<(NodeId, usize), (u64, u64)> = BTreeMap::new();
        let mut hosts: BTreeMap<NodeId, (u64, u64)> = BTreeMap::new();
        for run in self.runs.values().filter(|run| run.alive) {
            for place in &run.places {
                let (each, n) = match &run.gang {
                    Gang::Workers { each, .. } => (each, 1),
                    Gang::Spanning { per_gpu, .. } => (per_gpu, u64::from(place.gpus.count_ones())),
                };
                let host = hosts.entry(place.node).or_default();
                *host = (host.0 + each.cpu.0 * n, host.1 + each.mem.0 * n);
                for at in (0..64).filter(|at| place.gpus & (1 << at) != 0) {
                    let gpu = gpus.entry((place.node, at)).or_default();
                    *gpu = (gpu.0 + u64::from(place.share), gpu.1 + each.gpu_mem.0);
                }
            }
        }
        let offer = |node: NodeId| {
            let node = self.state().node(node)?;
            Some(&self.state().offerings()[node.offering.index()].offer)
        };
        for ((node, at), (share, mem)) in gpus {
            let Some(offer) = offer(node) else { continue };
            assert!(at < usize::from(offer.gpus), "{node} has no GPU {at}");
            assert!(share <= 1000, "{node} GPU {at} is taken {share}/1000");
            assert!(mem <= offer.gpu_mem.0, "{node} GPU {at} is out of memory");
        }
        for (node, (cpu, mem)) in hosts {
            let Some(offer) = offer(node) else { continue };
            assert!(cpu <= offer.cpu.0 && mem <= offer.mem.0, "{node} is too full");
        }
    }

    /// What a decision starts on owned nodes fits beside what others hold there, as the engine was last told. By the time that its workers
    /// are bound others may have taken more: then their kubelet refuses them.
    pub(super) fn beside_others(&self, starting: JobId) {
        let Some((row, _)) = self.state().job(starting) else { return };
        let nodes: BTreeSet<NodeId> = row.places.iter().map(|place| place.node).collect();
        for node in nodes {
            let name = self.state().node(node).and_then(|n| n.instance.clone()).unwrap_or_default();
            let owned = self.owned.get(&name);
            assert!(owned.is_none_or(|owned| owned.open), "{name} takes work and is closed");
            let (mut all, mut new) = ((0, 0, 0), (0, 0, 0));
            for (job, spec) in self.state().alive_jobs() {
                for place in job.places.iter().filter(|place| place.node == node) {
                    let n = u64::from(place.gpus.count_ones());
                    let (cpu, mem) = match &spec.gang {
                        Gang::Workers { each, .. } => (each.cpu.0, each.mem.0),
                        Gang::Spanning { per_gpu, .. } => (per_gpu.cpu.0 * n, per_gpu.mem.0 * n),
                    };
                    all = (all.0 + n, all.1 + cpu, all.2 + mem);
                    if job.id == starting {
                        new = (new.0 + n, new.1 + cpu, new.2 + mem);
                    }
                }
            }
            let Some(owned) = owned else {
                self.beside_reserve(node, (all.1, all.2), (new.1, new.2));
                continue;
            };
            // Others may have taken more beside what runs: what is started needs room for what it takes itself.
            let (most, foreign) = (&owned.shape, &owned.foreign);
            let fits = (new.0 == 0 || all.0 + u64::from(foreign.gpus) <= u64::from(most.gpus))
                && (new.1 == 0 || all.1 + foreign.cpu.0 <= most.cpu.0)
                && (new.2 == 0 || all.2 + foreign.mem.0 <= most.mem.0);
            assert!(fits, "{starting} takes {new:?} on {name}, of {all:?} in all beside others: {owned:?}");
        }
    }

    /// What is started on a bought node leaves what is not for work. A reserve may grow beside what runs already.
    fn beside_reserve(&self, node: NodeId, all: (u64, u64), new: (u64, u64)) {
        let Some(row) = self.state().node(node) else { return };
        let offer = &self.state().offerings()[row.offering.index()].offer;
        let kept = self.state().node_reserve(&offer.instance_type).all();
        let fits =
            (new.0 == 0 || all.0 + kept.cpu.0 <= offer.cpu.0) && (new.1 == 0 || all.1 + kept.mem.0 <= offer.mem.0);
        assert!(fits, "{new:?} is started on {node}, of {all:?} in all beside {kept:?}");
    }

    fn stop(&mut self, job: JobId, attempt: Attempt, checkpoint: bool) {
        let run = self.runs.get(&job).filter(|run| run.attempt == attempt && run.whole);
        let done = run.and_then(|run| {
            let worked = (self.now + self.delays.stop).saturating_sub(run.since? + run.restart);
            Some(Span(run.resumed_from + worked))
        });
        let progress = done.filter(|_| checkpoint);
        let stopped = Event::RunStopped { job, attempt, progress };
        self.after(self.delays.stop, stopped);
    }

    /// The instance of a place.
    fn on(&self, place: &WorkerPlace) -> String {
        let node = self.state().node(place.node);
        node.and_then(|n| n.instance.clone()).unwrap_or_default()
    }

    /// Whether something planned for now still happens: the dead report nothing.
    pub(super) fn comes_true(&self, event: &Event) -> bool {
        let lives = |job: &JobId, attempt: &Attempt| {
            let run = self.runs.get(job);
            run.is_some_and(|run| run.alive && run.attempt == *attempt)
        };
        match event {
            Event::NodeReady { instance }
            | Event::NodeGone { instance, .. }
            | Event::ReclaimNotice { instance, .. } => self.instances.contains_key(instance),
            Event::RunStarted { job, attempt } => lives(job, attempt),
            Event::RunShrunk { job, attempt, .. } | Event::RunCompleted { job, attempt, .. } => {
                lives(job, attempt) && self.runs[job].whole
            }
            _ => true,
        }
    }

    /// Keeps the world's books when something happens in it.
    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::NodeReady { instance } => {
                self.instances.entry(instance.clone()).and_modify(|up| *up = true);
            }
            Event::NodeGone { instance, .. } => self.node_gone(instance),
            Event::OwnedNodeSeen(seen) => {
                self.instances.insert(seen.name.clone(), true);
                self.owned.insert(seen.name.clone(), (**seen).clone());
            }
            // What runs there goes on.
            Event::OwnedNodeLeft { name } => {
                if let Some(owned) = self.owned.get_mut(name) {
                    owned.open = false;
                }
            }
            Event::RunStarted { job, attempt } => {
                let now = self.now;
                let name = self.state().job(*job).map(|j| j.1.subject.clone());
                let Some(run) = self.runs.get_mut(job).filter(|r| r.attempt == *attempt) else {
                    return;
                };
                run.since = Some(now);
                let (from, restart) = (run.resumed_from, run.restart);
                if let Some(work) = name.and_then(|name| self.work.get(&name).copied()) {
                    let completed = Event::RunCompleted { job: *job, attempt: *attempt, worker: None };
                    self.after(restart + work.saturating_sub(from), completed);
                }
            }
            Event::RunShrunk { job, attempt, left, .. } => {
                if let Some(run) = self.runs.get_mut(job).filter(|r| r.attempt == *attempt) {
                    run.lose(left);
                    run.alive &= run.works();
                }
            }
            Event::RunCompleted { job, attempt, worker: Some(worker) } => self.meet(*job, *attempt, *worker),
            Event::RunFailed { job, attempt, .. } => {
                let failures =
                    self.state().job(*job).filter(|(row, _)| row.service.is_none()).map(|(row, _)| row.failures);
                if let Some(run) = self.runs.get_mut(job).filter(|r| r.attempt == *attempt) {
                    if let Some(before) = failures.filter(|_| run.alive && !run.whole) {
                        self.bereft.insert(*job, before);
                    }
                    run.alive = false;
                }
            }
            Event::RunCompleted { job, attempt, worker: None }
            | Event::RunStopped { job, attempt, .. }
            | Event::RunDenied { job, attempt } => {
                if let Some(run) = self.runs.get_mut(job).filter(|r| r.attempt == *attempt) {
                    run.alive = false;
                }
            }
            _ => {}
        }
    }

    /// One worker has finished. A service has no end to meet.
    fn meet(&mut self, id: JobId, attempt: Attempt, worker: u32) {
        let there = |run: &Run| run.alive && run.attempt == attempt && run.numbers.contains(&worker);
        let Some((job, spec)) = self.state().job(id).filter(|_| self.runs.get(&id).is_some_and(there)) else { return };
        let enough = match spec.completion {
            Completion::All => false,
            Completion::Leader => worker == 0,
            Completion::Any => true,
        };
        if enough && job.service.is_none() {
            self.met.insert(id);
        }
        if let Some(run) = self.runs.get_mut(&id) {
            run.finished.insert(worker);
            run.alive = run.works();
        }
    }

    fn node_gone(&mut self, instance: &str) {
        self.instances.remove(instance);
        let Some(node) = self.state().node_of(instance).map(|n| n.id) else {
            return;
        };
        for run in self.runs.values_mut() {
            let there = run.places.iter().zip(&run.numbers).filter(|(p, _)| p.node == node);
            let gone: Vec<u32> = there.map(|(_, number)| *number).collect();
            if !gone.is_empty() {
                run.whole &= run.since.is_some() && run.goes_on_without(&gone);
                run.lose(&gone);
                run.alive &= run.works();
            }
        }
    }
}

impl Run {
    /// Whether enough workers stay without these, the leader among them where it counts.
    fn goes_on_without(&self, gone: &[u32]) -> bool {
        let Gang::Workers { min, .. } = &self.gang else { return false };
        let staying = self.numbers.iter().filter(|n| !gone.contains(n)).count();
        staying >= *min as usize && !(self.leader && gone.contains(&0))
    }

    /// Whether a worker that has not finished is left.
    fn works(&self) -> bool {
        !self.numbers.iter().all(|n| self.finished.contains(n))
    }

    fn lose(&mut self, gone: &[u32]) {
        let stays: Vec<bool> = self.numbers.iter().map(|n| !gone.contains(n)).collect();
        let mut stays = stays.into_iter();
        self.places.retain(|_| stays.next().unwrap_or(true));
        self.left.extend(self.numbers.iter().filter(|n| gone.contains(n)));
        self.numbers.retain(|n| !gone.contains(n));
    }
}
