//! One state after the other, looked at: what the engine decided for a head as it came, and who still waits at rest.
//!
//! Never: asks the engine whether a decision was right.

use super::model::{Gone, Head, How, Model, RULES, Rule};
use super::ranking::{Ranking, Set};
use super::states::{self, Flavour};
use super::world::{Dice, Loop};
use alloc::collections::BTreeMap;
use core::fmt;
use forebay_kernel::decision::{Decision, StopCause};
use forebay_kernel::event::Event;
use forebay_kernel::ids::JobId;
use forebay_kernel::job::{Gang, JobSpec};
use forebay_kernel::state::jobs::Phase;

/// The seeds of all, and what was wrong with the first of them.
type Faults = (Vec<u64>, Vec<(u64, String)>);

/// What was seen, and what was wrong.
#[derive(Default)]
pub(super) struct Counts {
    states: u64,
    /// States in which a head was told no at first.
    told_no: u64,
    /// Heads that were looked at.
    heads: u64,
    /// States with more sets than the oracle tries.
    too_large: u64,
    decisive: BTreeMap<Rule, u64>,
    /// Finds of the engine, and how many cost at most 1.5 times the cheapest of their kind, and at most 3 times.
    finds: u64,
    close: u64,
    fair: u64,
    /// Finds that take no more GPUs of the highest tiers than they have to.
    least: u64,
    /// By property: how many, and the first seeds with what was wrong.
    faults: BTreeMap<&'static str, Faults>,
}

impl Counts {
    pub(super) fn plus(mut self, other: Counts) -> Counts {
        self.states += other.states;
        self.told_no += other.told_no;
        self.heads += other.heads;
        self.too_large += other.too_large;
        self.finds += other.finds;
        self.close += other.close;
        self.fair += other.fair;
        self.least += other.least;
        for (rule, count) in other.decisive {
            *self.decisive.entry(rule).or_default() += count;
        }
        for (property, (seeds, first)) in other.faults {
            let own = self.faults.entry(property).or_default();
            own.0.extend(seeds);
            own.0.sort_unstable();
            own.1.extend(first);
            own.1.sort();
            own.1.truncate(5);
        }
        self
    }

    fn fault(&mut self, property: &'static str, seed: u64, what: String) {
        let own = self.faults.entry(property).or_default();
        own.0.push(seed);
        if own.1.len() < 5 {
            own.1.push((seed, what));
        }
    }

    /// What does not hold.
    pub(super) fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (property, (seeds, first)) in &self.faults {
            let count = seeds.len();
            for (seed, what) in first {
                let again = format!(
                    "FOREBAY_STATES=1 FOREBAY_STATES_FROM={seed} cargo test -p forebay-engine --test engine lacks_are_served"
                );
                wrong.push(format!("{property} ({count} in all): seed {seed}: {what}\n  again: {again}"));
            }
        }
        if self.states >= 2_000 {
            if self.told_no * 3 < self.states {
                wrong.push(format!("only {} of {} states tell a head no", self.told_no, self.states));
            }
            for rule in RULES {
                // A thousand in 100,000.
                let count = self.decisive.get(&rule).copied().unwrap_or(0);
                if count * 100 < self.states {
                    wrong.push(format!("{rule:?} is decisive in {count} states only"));
                }
            }
            if self.close * 100 < self.finds * 95 || self.fair * 1000 < self.finds * 999 {
                wrong.push(format!(
                    "of {} finds {} are within 1.5 times the cheapest, {} within 3 times",
                    self.finds, self.close, self.fair
                ));
            }
        }
        wrong
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "states {}, with a head told no {}, heads looked at {}", self.states, self.told_no, self.heads)?;
        writeln!(f, "heads with too many sets to try {}", self.too_large)?;
        for rule in RULES {
            writeln!(f, "  decisive {rule:?}: {}", self.decisive.get(&rule).copied().unwrap_or(0))?;
        }
        writeln!(
            f,
            "finds {}: least GPUs by tier {}, within 1.5 x the cheapest {}, within 3 x {}",
            self.finds, self.least, self.close, self.fair
        )?;
        for (property, (seeds, _)) in &self.faults {
            writeln!(f, "  not {property}: {}: seeds {seeds:?}", seeds.len())?;
        }
        Ok(())
    }
}

/// Looks at one state as its heads come, and at rest after each.
pub(super) fn look_at(seed: u64, counts: &mut Counts) {
    counts.states += 1;
    if let Err((property, what)) = look(seed, counts) {
        counts.fault(property, seed, what);
    }
}

type Fault = (&'static str, String);

fn look(seed: u64, counts: &mut Counts) -> Result<(), Fault> {
    let mut dice = Dice(seed);
    let flavour = Flavour::of(&mut dice);
    let (policy, tree) = states::policy(&mut dice, flavour);
    let ranks = (policy.tiers.len() << tree.len()) as u32;
    let acyclic = |what: String| ("acyclic", what);
    let starts = if seed.is_multiple_of(4) { Loop::beside_plain } else { Loop::new };
    let mut world = starts(policy, super::model::BOOT).map_err(acyclic)?;
    let filling = 2 + dice.roll(5);
    for n in 0..filling {
        let spec = states::job(&mut dice, flavour, &tree, n);
        world.step(Some(Event::JobSubmitted(Box::new(spec)))).map_err(acyclic)?;
        let until = world.now + 180_000 + 60_000 * dice.roll(15);
        world.rest(until).map_err(acyclic)?;
        world.now = until.max(world.now);
    }
    let mut seen = Seen::default();
    let heads = 1 + dice.roll(3);
    for n in 0..heads {
        let mut spec = states::job(&mut dice, flavour, &tree, filling + n);
        if let Gang::Workers { min, max, .. } = &mut spec.gang {
            *min = *max;
        }
        let before = world.stops;
        comes(&mut world, &tree, spec, counts, &mut seen)?;
        let until = world.now + 400_000 + 60_000 * dice.roll(15);
        world.rest(until).map_err(acyclic)?;
        let runs = world.engine.state().running_jobs() as u32 + 1;
        if world.stops - before > runs * ranks {
            return Err(("acyclic", format!("{} stops among {runs} runs", world.stops - before)));
        }
        world.is_whole().map_err(|what| ("whole", what))?;
        at_rest(&world, &tree, counts, &mut seen)?;
    }
    let until = world.now + 86_400_000;
    world.rest(until).map_err(acyclic)?;
    at_rest(&world, &tree, counts, &mut seen)?;
    counts.told_no += u64::from(seen.told_no);
    for rule in seen.decisive {
        *counts.decisive.entry(rule).or_default() += 1;
    }
    Ok(())
}

/// What was seen in one state.
#[derive(Default)]
struct Seen {
    told_no: bool,
    decisive: alloc::collections::BTreeSet<Rule>,
}

/// A head comes: whatever is taken for it must be permitted, enough and frugal, and something must be taken where it helps.
fn comes(
    world: &mut Loop,
    tree: &[super::super::quota::Plain],
    spec: JobSpec,
    counts: &mut Counts,
    seen: &mut Seen,
) -> Result<(), Fault> {
    let before = Model::at(world.engine.state(), world.now, tree);
    if matches!(spec.gang, Gang::Spanning { .. }) {
        return Ok(());
    }
    let subject = spec.subject.clone();
    world.step(Some(Event::JobSubmitted(Box::new(spec)))).map_err(|what| ("acyclic", what))?;
    world.is_whole().map_err(|what| ("whole", what))?;
    let state = world.engine.state();
    let Some((row, spec)) = state.job_of("t", &subject).and_then(|id| state.job(id)) else { return Ok(()) };
    if before.moving || !before.reserved.is_empty() || matches!(row.phase, Phase::Held | Phase::Done { .. }) {
        return Ok(());
    }
    let hurried = spec_target(state, &spec.queue).is_some_and(|within| within < super::model::BOOT);
    let waits = row.start_target.is_some_and(|t| t.wait != forebay_kernel::state::jobs::Wait::Over);
    let head = before.head(row, spec, hurried);
    let Some(gone) = taken(&before, &world.decided, head.id) else { return Ok(()) };
    if waits {
        return Ok(());
    }
    let Some(sets) = judge(&before, &head, counts, seen) else { return Ok(()) };
    // What is kept for others moves with the pass, as their reservations do: at rest it is looked at.
    if !before.set_aside.is_empty() {
        let takes = gone.iter().any(|gone| *gone != 0) && before.set_aside.iter().all(|kept| !kept.money);
        return if takes && !before.leaves_what_is_kept(&head, &gone) {
            Err(("kept", format!("{} takes {gone:?}, which others wait for: {}", head.id, shown(&before, &head))))
        } else {
            Ok(())
        };
    }
    // Where nothing helps in time, what is late is better than nothing.
    let in_time = !sets.is_empty();
    let head = Head { hurried: head.hurried && in_time, ..head };
    let sets = if in_time { sets } else { judge(&before, &head, counts, seen).unwrap_or_default() };
    let seen_by = before.seen_by(&head, &|_| true, None);
    let ranking = Ranking { model: &seen_by, head: &head, without: None };
    if gone.iter().all(|gone| *gone == 0) {
        let none = row.phase == Phase::Queued && row.kept.is_none() && !sets.is_empty();
        let late = row.phase == Phase::Booked && head.hurried && !sets.is_empty();
        if none || late {
            let set = &sets[0];
            return Err((
                "stable",
                format!(
                    "as it comes {} gets nothing, though {:?} {:?} would do: {}",
                    head.id,
                    set.gone,
                    set.cost,
                    shown(&seen_by, &head)
                ),
            ));
        }
        return Ok(());
    }
    if ranking.permits(&gone) == Some(false) {
        return Err(("permitted", format!("{} takes {gone:?}: {}", head.id, shown(&seen_by, &head))));
    }
    if seen_by.starts(&head, &gone, None).is_none() {
        return Err((
            "enough",
            format!("{} takes {gone:?}, which is not enough: {:?} {}", head.id, world.decided, shown(&seen_by, &head)),
        ));
    }
    is_frugal(&ranking, &gone, &sets, counts)
        .map_err(|what| ("frugal", format!("{} {what}: {}", head.id, shown(&seen_by, &head))))
}

fn is_frugal(ranking: &Ranking<'_>, gone: &Gone, sets: &[Set], counts: &mut Counts) -> Result<(), String> {
    // Nodes are given back only where nothing on those that are there helps (docs/stages/preempt.md).
    let how = |gone: &Gone| ranking.model.starts(ranking.head, gone, None) == Some(How::Room);
    let part = |set: &&Set| {
        let less = set.gone != *gone && set.gone.iter().zip(gone).all(|(a, b)| a & b == *a);
        less && (how(gone) || !how(&set.gone))
    };
    if let Some(less) = sets.iter().find(part) {
        return Err(format!("takes {gone:?}, though {:?} is enough", less.gone));
    }
    let (tiers, money) = ranking.cost(gone);
    let shares = ranking.model.used(gone);
    let alike = sets.iter().filter(|set| set.cost.0 == tiers && set.shares == shares);
    let least = alike.map(|set| set.cost.1).min().unwrap_or(money);
    // 0.05 USD, in micro-dollars an hour x milliseconds.
    let small = 50_000 * 3_600_000u128;
    counts.finds += 1;
    counts.close += u64::from(money * 2 <= least * 3 + small * 2);
    counts.fair += u64::from(money <= least * 3 + small);
    counts.least += u64::from(sets.iter().all(|set| set.cost.0 >= tiers));
    Ok(())
}

fn spec_target(state: &forebay_kernel::state::State, queue: &str) -> Option<u64> {
    Some(state.policy()?.queues.get(queue)?.start?.within.0)
}

/// What a pass took of each run for a head. `None`: it did something for somebody else too.
fn taken(model: &Model, decided: &[Decision], head: JobId) -> Option<Gone> {
    let mut gone = model.nothing_gone();
    for decision in decided {
        match decision {
            Decision::Stop { job, cause, .. } => {
                let at = model.runs.iter().position(|run| run.id == *job)?;
                is_for(*cause, head)?;
                gone[at] = model.runs[at].whole();
            }
            Decision::Shrink { job, cause, leave, .. } => {
                let at = model.runs.iter().position(|run| run.id == *job)?;
                is_for(*cause, head)?;
                let places = model.runs[at].workers.iter().enumerate();
                places.filter(|(_, (_, number))| leave.contains(number)).for_each(|(bit, _)| gone[at] |= 1 << bit);
            }
            Decision::Book { job, .. } | Decision::Keep { job, .. } | Decision::Unbook { job } if *job != head => {
                return None;
            }
            Decision::KeepAllowance { reservation, .. } if reservation.job != head => return None,
            _ => {}
        }
    }
    Some(gone)
}

fn is_for(cause: StopCause, head: JobId) -> Option<()> {
    let (StopCause::Preempted { by } | StopCause::QuotaReclaimed { by }) = cause else { return None };
    (by == head).then_some(())
}

/// All permitted sets that start a head, and which rules decide what is found. `None`: there are too many to try.
fn judge(model: &Model, head: &Head, counts: &mut Counts, seen: &mut Seen) -> Option<Vec<Set>> {
    let owns = |other: &Head| {
        let ranking = Ranking { model, head: other, without: None };
        !ranking.stands(&model.nothing_gone()).contains(&true)
    };
    let verdict = |without: Option<Rule>| {
        let model = model.seen_by(head, &owns, without);
        Ranking { model: &model, head, without }.sets()
    };
    counts.heads += 1;
    let Some(sets) = verdict(None) else {
        counts.too_large += 1;
        return None;
    };
    let best = |sets: &[Set]| sets.iter().map(|set| (set.cost.clone(), set.gone.clone())).min();
    if model.starts(head, &model.nothing_gone(), None).is_none() {
        seen.told_no = true;
    }
    for rule in RULES.into_iter().filter(|rule| !seen.decisive.contains(rule)).collect::<Vec<_>>() {
        if concerns(model, head, rule) && verdict(Some(rule)).is_some_and(|other| best(&other) != best(&sets)) {
            seen.decisive.insert(rule);
        }
    }
    if model.leaves_to_another(head) {
        return None;
    }
    let leaves =
        |set: &Set| model.leaves_what_is_kept(head, &set.gone) && model.leaves_all_that_is_kept(head, &set.gone);
    Some(sets.into_iter().filter(leaves).collect())
}

/// Whether a rule says anything in a state at all.
fn concerns(model: &Model, head: &Head, rule: Rule) -> bool {
    match rule {
        Rule::MinRun => model.runs.iter().any(|run| run.shielded),
        Rule::Overdue => model.runs.iter().any(|run| run.overdue),
        Rule::MinShare => model.tiers.iter().any(|tier| tier.min_share > 0),
        Rule::Money => model.money.iter().any(|money| model.is_below(head.quota, money.at)),
        Rule::StartTarget => head.hurried,
        _ => true,
    }
}

/// Nobody waits who could be served.
fn at_rest(
    world: &Loop,
    tree: &[super::super::quota::Plain],
    counts: &mut Counts,
    seen: &mut Seen,
) -> Result<(), Fault> {
    let state = world.engine.state();
    let model = Model::at(state, state.now().0, tree);
    if model.moving {
        return Ok(());
    }
    for head in &model.heads {
        let Some(sets) = judge(&model, head, counts, seen) else { continue };
        if let Some(set) = sets.first() {
            let how = model.starts(head, &set.gone, None);
            return Err((
                "stable",
                format!(
                    "at rest {} waits ({:?}), though {:?} would do by {how:?}: {}",
                    head.id,
                    world.engine.why(head.id),
                    set.gone,
                    shown(&model, head)
                ),
            ));
        }
    }
    Ok(())
}

/// A state in words.
fn shown(model: &Model, head: &Head) -> String {
    format!(
        "\n  head {head:?}\n  runs {:#?}\n  nodes {:?}\n  kinds {:?}\n  ceilings {:?}\n  tree {:?} weights {:?}\n  money {:?}\n  tiers {:?}\n  kept {:?} reserved {:?} set aside {:?}",
        Plainly(&model.runs),
        model.nodes,
        model.kinds,
        model.ceilings,
        model.tree,
        model.weights,
        model.money,
        model.tiers,
        model.kept,
        model.reserved,
        model.set_aside
    )
}

struct Plainly<'a>(&'a [super::model::Run]);

impl fmt::Debug for Plainly<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|run| write!(f, "\n    {run:?}"))
    }
}
