//! The loop on the driver's thread: wait, put a batch together, plan, journal, and only then let anything leave.
//!
//! ```text
//! mailbox, adapters, feed, timer -> batch: tick + events -> plan -> journal.append_many (durable)
//!     -> effects to the adapters, statuses to their log, answers to whoever waits
//! ```
//!
//! Batches that follow each other without a pause share a transaction. A simulated world ends with the process, so an effect that
//! reaches it has not left; statuses and answers have, and wait for the transaction.
//!
//! Never: lets anything leave before its batch is durable; goes on when the journal cannot be written.

use super::clock::LoopClock;
use super::error::DriverError;
use super::executor::Executor;
use super::feed::EventFeed;
use super::figures::ProgressReporter;
use super::handle::{DriverHandle, ItemOutcome, QueryContext};
use super::holds::Stopwatch;
use super::input::InputTracker;
use super::mailbox::Taken;
use super::output::{StatusWriter, or_held_back};
use super::submission::Submission;
use crate::adapters::EffectOrigin;
use crate::journal::Journal;
use crate::step::{BatchObserver, BatchStep, GroupCommit, PlannedBatch};
use forebay_engine::engine::Engine;
use forebay_kernel::effect::Status;
use forebay_kernel::event::{Event, Tick};
use forebay_kernel::units::{Span, Timestamp};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Events of one batch at most (a submission is never split): a batch is one pass and one transaction, some 10 ms.
const MOST_BATCH: usize = 4_096;

/// Batches that share a transaction at most: each costs a sync of the disk, and a crash repeats what was not synced.
const MOST_UNSAVED: usize = 32;

/// How often what is there is compared with the state.
const COMPARE_EVERY: Span = Span::mins(5);

/// Statuses that are written between two syncs of their log. Counted and not timed, so that replays agree.
const SYNC_EVERY: u64 = 256;

/// After so long without input there is time for what is not urgent.
const CALM: Duration = Duration::from_millis(200);

/// Queries are answered for so long between two batches; the others have their turn after the next one.
const QUERIES_TURN: Duration = Duration::from_millis(20);

/// On the wall clock, who asks is told of a state that is younger than this.
const FRESH: Span = Span::secs(5);

/// The pause before a full disk is tried again.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// With open jobs, none running and nothing happening for so long, a replay can never end.
const MOST_QUIET: Span = Span::mins(60 * 24 * 60);

/// Everything that the thread owns.
pub(super) struct LiveLoop<J> {
    pub engine: Engine,
    pub journal: J,
    pub executor: Executor,
    pub statuses: Box<dyn StatusWriter>,
    pub feed: Option<Box<dyn EventFeed>>,
    pub input: InputTracker,
    pub exit_when_drained: bool,
    /// What the loop shares with the other threads.
    pub handle: DriverHandle,
    pub progress: ProgressReporter,
    pub context: QueryContext,
    pub clock: LoopClock,
    /// What has happened and is not in a batch yet.
    pub arrived: VecDeque<Event>,
    pub resumed: bool,
    pub compare_at: Timestamp,
    /// When frozen requests that are settled are forgotten next.
    pub forget_at: Timestamp,
    /// When what is beyond its retention is taken away next.
    pub retain_at: Timestamp,
    /// When a batch last decided something or had a status.
    pub active_at: Timestamp,
    /// Batches that are applied and not durable yet, and the statuses that wait for them.
    pub commit: GroupCommit,
    /// Counts what enters batches, and how long they take.
    pub observer: Option<Arc<dyn BatchObserver>>,
    /// Batches to go before the process dies, in tests.
    pub dies_in: Option<u64>,
}

/// Why the loop is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopEnd {
    /// Asked to.
    Stopped,
    /// Nothing left to do, and it was to end then.
    Drained,
    /// It died on purpose, in a test.
    Died,
}

impl<J: Journal> LiveLoop<J> {
    /// Turns until the end.
    ///
    /// # Errors
    /// The journal or a log cannot be written, or a replay can never end.
    pub fn run(&mut self) -> Result<LoopEnd, DriverError> {
        loop {
            if let Some(end) = self.turn()? {
                return if end == LoopEnd::Died { Ok(end) } else { self.finish(end) };
            }
        }
    }

    /// Makes everything durable before the end. How far sinks have come by now needs a batch, or the next start would have them send again.
    fn finish(&mut self, end: LoopEnd) -> Result<LoopEnd, DriverError> {
        let cursors = self.handle.mailbox.take_cursors();
        self.input.record_cursors(cursors);
        if self.input.has_moved() {
            let now = self.clock.now(self.engine.state().now(), None);
            if let Some(died) = self.batch(now, Vec::new())? {
                return Ok(died);
            }
        }
        self.save()?;
        self.sync_statuses()?;
        Ok(end)
    }

    fn turn(&mut self) -> Result<Option<LoopEnd>, DriverError> {
        let drained = self.is_drained();
        self.progress.drained = drained;
        if drained && self.exit_when_drained {
            return Ok(Some(LoopEnd::Drained));
        }
        // A virtual clock stands still when there is nothing left to do.
        let due = if drained && self.clock.is_virtual() { None } else { self.due() };
        let wait = if self.arrived.is_empty() { self.clock.wait(due) } else { Some(Duration::ZERO) };
        let taken = self.wait(wait)?;
        // They are in the mailbox no more, whatever becomes of this turn.
        self.input.record_cursors(taken.cursors);
        if taken.asked {
            self.save()?;
            if let Some(end) = self.bring_up_to_date()? {
                return Ok(Some(end));
            }
            self.answer_queries();
        }
        if taken.stopping && taken.submissions.is_empty() {
            return Ok(Some(LoopEnd::Stopped));
        }
        if let Some(change) = taken.policy {
            self.change_policy(change)?;
        }
        let last = self.engine.state().now();
        let jump_to = due.filter(|_| taken.submissions.is_empty() && self.arrived.is_empty());
        let now = self.clock.now(last, jump_to);
        self.take_from_adapters(now);
        if now.since(self.active_at) > MOST_QUIET && self.is_stalled() {
            let open = self.engine.state().open_jobs();
            return Err(DriverError::Stalled { open, days: now.since(self.active_at).0 / 86_400_000 });
        }
        let engine_due = self.engine.poll_timeout().is_some_and(|at| at <= now);
        let fed = self.feed.as_ref().and_then(|feed| feed.next()).is_some_and(|at| at <= now);
        let nothing = self.arrived.is_empty() && taken.submissions.is_empty() && !self.input.has_moved();
        if nothing && !engine_due && !fed && !self.resumed {
            return Ok(None);
        }
        self.batch(now, taken.submissions)
    }

    /// Waits for input, and uses the time.
    fn wait(&mut self, wait: Option<Duration>) -> Result<Taken, DriverError> {
        if wait == Some(Duration::ZERO) {
            self.progress.publish_if_due(&self.engine, self.feed.as_deref());
            return Ok(self.handle.mailbox.take(wait, MOST_BATCH));
        }
        self.progress.publish(&self.engine, self.feed.as_deref());
        self.save()?;
        self.wait_and_sync(wait)
    }

    /// Waits for input, and makes statuses durable meanwhile. On the wall clock only once nothing has come for a while: a sync at each
    /// pause would stand between two batches.
    fn wait_and_sync(&mut self, wait: Option<Duration>) -> Result<Taken, DriverError> {
        let pending = self.statuses.last() > self.statuses.delivered();
        let calm = wait.map_or(CALM, |wait| wait.min(CALM));
        if pending && !self.clock.is_virtual() {
            let taken = self.handle.mailbox.take(Some(calm), MOST_BATCH);
            if !taken.is_empty() || wait == Some(calm) {
                return Ok(taken);
            }
        }
        self.sync_statuses()?;
        let left = wait.map(|wait| if pending { wait.saturating_sub(calm) } else { wait });
        Ok(self.handle.mailbox.take(left, MOST_BATCH))
    }

    /// What jobs wait for and nodes cost changes with time alone: where no batch has come for a while, one of its own takes the state on.
    fn bring_up_to_date(&mut self) -> Result<Option<LoopEnd>, DriverError> {
        let last = self.engine.state().now();
        let now = if self.context.wall_clock { self.clock.now(last, None) } else { last };
        self.context.now = now;
        if now.since(last) < FRESH {
            return Ok(None);
        }
        let end = self.batch(now, Vec::new())?;
        self.save()?;
        Ok(end)
    }

    /// Answers who asks, for a while. To be called when every batch is durable, or none can be.
    fn answer_queries(&self) {
        let end = Instant::now() + QUERIES_TURN;
        while let Some(query) = self.handle.mailbox.next_query() {
            let watch = Stopwatch::start();
            query(&self.engine, &self.context);
            self.handle.holds.queried(&watch);
            if Instant::now() >= end {
                return;
            }
        }
    }

    /// When something is due next, from whichever side.
    fn due(&self) -> Option<Timestamp> {
        let state = self.engine.state();
        let compare = (state.open_jobs() > 0 || state.nodes().next().is_some()).then_some(self.compare_at);
        let feed = self.feed.as_ref().and_then(|feed| feed.next());
        let resumed = self.resumed.then(|| state.now());
        let times = [self.engine.poll_timeout(), self.executor.adapters.next_event(), feed, compare, resumed];
        times.into_iter().flatten().min()
    }

    /// What has happened in adapters under this clock, and every five minutes what no event has reported.
    fn take_from_adapters(&mut self, now: Timestamp) {
        self.arrived.extend(self.executor.adapters.take_events(now));
        if now >= self.compare_at {
            self.compare_at = now + COMPARE_EVERY;
            self.arrived.extend(self.executor.adapters.differences(self.engine.state()));
        }
    }

    fn batch(&mut self, now: Timestamp, mut submissions: Vec<Submission>) -> Result<Option<LoopEnd>, DriverError> {
        let resumed = std::mem::take(&mut self.resumed);
        let tick = Tick { now, resumed, delivered: self.statuses.delivered() };
        let watch = Stopwatch::start();
        let (planned, outcomes) = self.plan(tick, &mut submissions)?;
        self.planned(&watch);
        self.journal.note_finished(planned.finished());
        self.input.tenants.finished(planned.finished());
        self.keep_rejected()?;
        if self.dies_in == Some(0) {
            return Ok(Some(LoopEnd::Died));
        }
        if let Some(left) = self.dies_in.as_mut() {
            *left -= 1;
        }
        let (seq, decided) = (planned.batch().first_seq, !planned.batch().decisions.is_empty());
        let requests = self.executor.freeze(planned.pending_effects(), self.engine.state());
        let (before, beside) = (self.commit.held_statuses(), self.input.side_records(requests));
        self.commit.push(planned, beside);
        let at = self.engine.state().now();
        if decided || self.commit.held_statuses() > before {
            self.active_at = at;
        }
        let must_save = !submissions.is_empty() || resumed || self.commit.pending() >= MOST_UNSAVED;
        if must_save || self.executor.outlives_process() {
            self.save_batches()?;
        }
        self.release_effects();
        for (submission, outcomes) in submissions.into_iter().zip(outcomes) {
            submission.answer(seq, at, outcomes);
        }
        if self.commit.pending() == 0 {
            self.saved()?;
        }
        Ok(None)
    }

    /// Hands over what was decided, as far as what it rests on is durable.
    pub fn release_effects(&mut self) {
        let effects = self.commit.take_effects(self.executor.adapters.lifetime());
        self.executor.execute(&effects, EffectOrigin::Decided, self.engine.state());
    }

    /// A batch is planned, and took what the stopwatch says.
    pub fn planned(&self, watch: &Stopwatch) {
        self.handle.holds.planned(watch);
        if let Some(observer) = &self.observer {
            observer.planned(watch.elapsed());
        }
    }

    /// Puts a batch together from everything that has arrived, and plans it. One list of outcomes a submission.
    fn plan(
        &mut self,
        tick: Tick,
        submissions: &mut [Submission],
    ) -> Result<(PlannedBatch, Vec<Vec<ItemOutcome>>), DriverError> {
        let mut step = BatchStep::open(&mut self.engine, tick).observed_by(self.observer.as_deref());
        let mut room = MOST_BATCH;
        while room > 0
            && let Some(event) = self.arrived.pop_front()
        {
            step.handle_event(event);
            room -= 1;
        }
        if let Some(feed) = self.feed.as_deref_mut() {
            self.input.take_from_feed(&mut step, &self.journal, feed, tick.now, room)?;
        }
        let received = submissions.iter_mut().map(|one| self.input.receive(&mut step, &self.journal, one));
        let mut outcomes = received.collect::<Result<Vec<_>, _>>()?;
        let planned = step.plan();
        if *planned.report() != Default::default() {
            self.context.report = planned.report().clone();
        }
        for job in self.input.take_accepted() {
            if let Some((_, spec)) = planned.job(self.engine.state(), job) {
                self.executor.adapters.job_accepted(spec);
            }
        }
        for (submission, outcomes) in submissions.iter_mut().zip(&mut outcomes) {
            self.input.judge(&planned, submission, outcomes);
        }
        Ok((planned, outcomes))
    }

    /// Makes everything durable that is not, and lets go what waited for it.
    pub fn save(&mut self) -> Result<(), DriverError> {
        self.save_batches()?;
        self.saved()
    }

    /// To be called when every batch is durable.
    pub fn saved(&mut self) -> Result<(), DriverError> {
        let statuses = self.commit.take_statuses();
        self.publish_statuses(statuses)?;
        self.snapshot_if_due();
        self.forget_requests_if_due();
        self.retain_if_due();
        Ok(())
    }

    /// What could not be taken is in its log before the batch that counts it is in the journal.
    fn keep_rejected(&mut self) -> Result<(), DriverError> {
        let at = self.engine.state().now();
        self.until_there_is_room(|this| this.input.write_rejected(at).map_err(DriverError::Storage))
    }

    /// Makes the batches durable.
    pub fn save_batches(&mut self) -> Result<(), DriverError> {
        if self.commit.pending() == 0 {
            return Ok(());
        }
        self.until_there_is_room(|this| {
            this.input.log.sync().map_err(DriverError::Storage)?;
            let moved = this.commit.commit(&mut this.journal)?;
            this.handle.durable.update(&moved);
            Ok(())
        })
    }

    /// Tries until the disk has room: nothing is received meanwhile, and nothing has left that waits for it.
    fn until_there_is_room(
        &mut self,
        mut attempt: impl FnMut(&mut Self) -> Result<(), DriverError>,
    ) -> Result<(), DriverError> {
        let mut paused = false;
        loop {
            match attempt(self) {
                Ok(()) => break,
                Err(e) if e.is_full() => {
                    if !paused {
                        tracing::error!("nothing is received: {e}");
                        self.progress.pause(Some(e.to_string()));
                        paused = true;
                    }
                    let taken = self.handle.mailbox.wait_for_queries(FULL_PAUSE);
                    self.answer_queries();
                    if taken.stopping {
                        return Err(e);
                    }
                }
                Err(e) => return Err(e),
            }
        }
        if paused {
            tracing::info!("there is room again: receiving");
            self.progress.pause(None);
        }
        Ok(())
    }

    /// Statuses to their log and to whoever follows. A full disk leaves them in the engine until there is room.
    fn publish_statuses(&mut self, statuses: Vec<Status>) -> Result<(), DriverError> {
        let follows = statuses.first().is_none_or(|s| s.number == self.statuses.last() + 1);
        let written = if follows {
            self.statuses.write(&mut statuses.iter())
        } else {
            self.statuses.write(&mut self.engine.state().undelivered())
        };
        or_held_back(written)?;
        if self.statuses.last() - self.statuses.delivered() >= SYNC_EVERY {
            self.sync_statuses()?;
        }
        self.handle.tail.push(statuses);
        Ok(())
    }

    /// Makes all statuses durable that have been written, and those that a full disk has held back.
    fn sync_statuses(&mut self) -> Result<(), DriverError> {
        if self.statuses.last() < self.engine.state().counters().statuses {
            or_held_back(self.statuses.write(&mut self.engine.state().undelivered()))?;
        }
        // What is written is made durable, though the rest may find no room.
        or_held_back(self.statuses.sync())
    }

    /// A snapshot spares the next start some work; without one it only takes longer.
    fn snapshot_if_due(&mut self) {
        if self.journal.wants_snapshot()
            && let Err(e) = self.journal.begin_snapshot(self.engine.state())
        {
            tracing::warn!("no snapshot: {e}");
        }
    }

    /// Frozen requests whose outcome is known are of no more use.
    fn forget_requests_if_due(&mut self) {
        if self.executor.frozen.is_empty() || self.engine.state().now() < self.forget_at {
            return;
        }
        self.forget_at = self.engine.state().now() + COMPARE_EVERY;
        let open: BTreeSet<u64> = self.engine.open_effects().iter().map(|effect| effect.id.0).collect();
        self.executor.frozen.retain(|effect, _| open.contains(effect));
        if let Err(e) = self.journal.forget_requests(&open) {
            tracing::warn!("requests that are settled stay in the journal: {e}");
        }
    }

    /// Nothing left to do: the feed is over, no job is open, and no more nodes are there than the policy keeps.
    fn is_drained(&self) -> bool {
        let state = self.engine.state();
        let Some(feed) = &self.feed else { return false };
        if feed.next().is_some() || state.open_jobs() > 0 || !self.arrived.is_empty() || self.resumed {
            return false;
        }
        state.holds_only_floors()
    }

    fn is_stalled(&self) -> bool {
        let state = self.engine.state();
        let fed = self.feed.as_ref().is_some_and(|f| f.next().is_none());
        fed && self.exit_when_drained
            && state.open_jobs() > 0
            && state.purchases().next().is_none()
            // A service runs for ever, unless the file cancels it.
            && !state.open_job_ids().any(|id| state.job(id).is_some_and(|(job, _)| job.alive() && job.service.is_none()))
    }
}
