//! The loop on the driver's thread: wait, put a batch together, plan, journal, and only then let anything leave.
//!
//! ```text
//! mailbox, world, feed, timer -> batch: tick + events -> plan -> journal.append (durable)
//!     -> effects to the executor, statuses to status.jsonl, answers to whoever waits
//! ```
//!
//! Batches that follow each other without a pause share a transaction. The embedded world ends with the process, so an effect
//! that reaches it has not left; statuses and answers have, and wait for the transaction.
//!
//! Never: lets anything leave before its batch is durable; goes on when the journal cannot be written.

use super::clock::Time;
use super::error::DriverError;
use super::executor::Executor;
use super::feed::{Feed, FeedIntake, SOURCE};
use super::figures::Figures;
use super::handle::{Context, Outcome};
use super::mailbox::{Mailbox, Taken};
use super::post::Post;
use super::reception::Reception;
use super::stream::Tail;
use crate::journal::{Entry, Positions, SqliteJournal};
use crate::status::StatusFile;
use forebay_engine::effect::Status;
use forebay_engine::engine::Engine;
use forebay_engine::event::{Event, Tick};
use forebay_engine::ids::Seq;
use forebay_engine::journal::{Batch, Journal};
use forebay_engine::units::{Millis, Span};
use forebay_source::Durable;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Events of one batch at most (a submission is never split): a batch is one pass and one transaction, some 10 ms.
pub(super) const MOST_BATCH: usize = 4_096;

/// Batches that share a transaction at most: each costs a sync of the disk, and a crash repeats what was not synced.
const MOST_UNSAVED: usize = 32;

/// How often the world is compared with the state.
const BEAT: Span = Span::mins(5);

/// Statuses that are written between two syncs of their file. Counted and not timed, so that replays agree.
const SYNC_EVERY: u64 = 256;

/// Nothing has come for so long: there is time for what is not urgent.
const CALM: Duration = Duration::from_millis(200);

/// The pause before a full disk is tried again.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// With open jobs, none running and nothing happening for so long, a replay can never end.
const MOST_QUIET: Span = Span::mins(60 * 24 * 60);

/// Everything that the thread owns.
pub(super) struct Cycle {
    pub engine: Engine,
    pub journal: SqliteJournal,
    pub executor: Executor,
    pub status: StatusFile,
    pub feed: Option<Feed>,
    pub intake: Option<FeedIntake>,
    pub reception: Reception,
    pub durable: Durable,
    pub exit_when_drained: bool,
    pub mailbox: Arc<Mailbox>,
    pub tail: Arc<Tail>,
    pub figures: Figures,
    pub context: Context,
    pub time: Time,
    /// What has happened and is not in a batch yet.
    pub arrived: VecDeque<Event>,
    pub resumed: bool,
    pub next_beat: Millis,
    /// When frozen requests that are settled are forgotten next.
    pub forget_at: Millis,
    /// When something was last decided or said.
    pub active_at: Millis,
    /// Batches that are applied and not durable yet, and the statuses that wait for them.
    pub unsaved: Vec<Pending>,
    pub held: Vec<Status>,
    /// Batches to go before the process dies, in tests.
    pub dies_in: Option<u64>,
}

/// Why the loop is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Asked to.
    Stopped,
    /// Nothing left to do, and it was to end then.
    Drained,
    /// It died on purpose, in a test.
    Died,
}

/// A batch that is applied and not durable yet, with what is kept beside it.
pub(super) struct Pending {
    batch: Arc<Batch>,
    positions: Positions,
    seen: Vec<u128>,
    requests: Vec<(Seq, Vec<u8>)>,
}

impl Pending {
    fn entry(&self) -> Entry<'_> {
        Entry {
            batch: &self.batch,
            positions: &self.positions,
            policy: None,
            seen: &self.seen,
            requests: &self.requests,
        }
    }
}

impl Cycle {
    /// Turns until the end.
    pub fn run(&mut self) -> Result<End, DriverError> {
        loop {
            if let Some(end) = self.turn()? {
                if end != End::Died {
                    self.save()?;
                    self.sync_statuses(true)?;
                }
                return Ok(end);
            }
        }
    }

    fn turn(&mut self) -> Result<Option<End>, DriverError> {
        let drained = self.is_drained();
        self.figures.drained(drained);
        if drained && self.exit_when_drained {
            return Ok(Some(End::Drained));
        }
        // A virtual clock stands still when there is nothing left to do.
        let due = if drained && self.time.is_virtual() { None } else { self.due() };
        let wait = if self.arrived.is_empty() { self.time.wait(due) } else { Some(Duration::ZERO) };
        let idle = wait != Some(Duration::ZERO);
        self.figures.tell(&self.engine, self.feed.as_ref(), idle);
        if idle {
            self.save()?;
        }
        let taken = if idle { self.take_in_peace(wait)? } else { self.mailbox.take(wait, MOST_BATCH) };
        if !taken.queries.is_empty() {
            self.save()?;
        }
        for question in taken.queries {
            question(&self.engine, &self.context);
        }
        if taken.stopping && taken.posts.is_empty() {
            return Ok(Some(End::Stopped));
        }
        let noted = self.reception.note(taken.cursors);
        let last = self.engine.state().now();
        let reach = due.filter(|_| taken.posts.is_empty() && self.arrived.is_empty());
        let now = self.time.now(last, reach);
        self.look_outside(now);
        if now.since(self.active_at) > MOST_QUIET && self.is_stalled() {
            let open = self.engine.state().open_jobs();
            return Err(DriverError::Stalled { open, days: now.since(self.active_at).0 / 86_400_000 });
        }
        let engine_due = self.engine.poll_timeout().is_some_and(|at| at <= now);
        let fed = self.feed.as_ref().and_then(Feed::next).is_some_and(|at| at <= now);
        let nothing = self.arrived.is_empty() && taken.posts.is_empty() && !noted;
        if nothing && !engine_due && !fed && !self.resumed {
            return Ok(None);
        }
        self.batch(now, taken.posts)
    }

    /// Takes what comes, and uses the time to make statuses durable. On the wall's clock only once nothing has come for a while: a sync
    /// at each pause would stand between two batches.
    fn take_in_peace(&mut self, wait: Option<Duration>) -> Result<Taken, DriverError> {
        let pending = self.status.last() > self.status.delivered();
        let calm = wait.map_or(CALM, |wait| wait.min(CALM));
        if pending && !self.time.is_virtual() {
            let taken = self.mailbox.take(Some(calm), MOST_BATCH);
            if !taken.is_empty() || wait == Some(calm) {
                return Ok(taken);
            }
        }
        self.sync_statuses(true)?;
        let left = wait.map(|wait| if pending { wait.saturating_sub(calm) } else { wait });
        Ok(self.mailbox.take(left, MOST_BATCH))
    }

    /// When something is due next, from whichever side.
    fn due(&self) -> Option<Millis> {
        let state = self.engine.state();
        let beat = (state.open_jobs() > 0 || state.nodes().next().is_some()).then_some(self.next_beat);
        let feed = self.feed.as_ref().and_then(Feed::next);
        let resumed = self.resumed.then(|| state.now());
        [self.engine.poll_timeout(), self.executor.next(), feed, beat, resumed].into_iter().flatten().min()
    }

    /// What has happened outside, and on the slow beat what nobody has said.
    fn look_outside(&mut self, now: Millis) {
        self.arrived.extend(self.executor.take_until(now));
        if now >= self.next_beat {
            self.next_beat = now + BEAT;
            self.arrived.extend(self.executor.differences(self.engine.state()));
        }
    }

    fn batch(&mut self, now: Millis, mut posts: Vec<Post>) -> Result<Option<End>, DriverError> {
        let resumed = std::mem::take(&mut self.resumed);
        self.engine.open(Tick { now, resumed, delivered: self.status.delivered() });
        let mut room = MOST_BATCH;
        while let Some(event) = self.arrived.pop_front() {
            self.engine.handle_event(event);
            room -= 1;
            if room == 0 {
                break;
            }
        }
        self.take_from_feed(now, room);
        let mut outcomes: Vec<Vec<Outcome>> = posts.iter_mut().map(|post| self.receive(post)).collect();
        let report = self.engine.plan();
        if report != Default::default() {
            self.context.report = report;
        }
        let unsaved = self.engine.close();
        for (post, outcomes) in posts.iter_mut().zip(&mut outcomes) {
            self.judge(post, outcomes);
        }
        self.keep_rejected()?;
        if self.dies_in == Some(0) {
            return Ok(Some(End::Died));
        }
        if let Some(left) = self.dies_in.as_mut() {
            *left -= 1;
        }
        let (seq, busy) = (unsaved.batch().first_seq, !unsaved.batch().decisions.is_empty());
        let (positions, seen) = self.reception.moved();
        let requests = self.executor.freeze(unsaved.pending(), self.engine.state());
        self.unsaved.push(Pending { batch: unsaved.share(), positions, seen, requests });
        let must_save = !posts.is_empty() || resumed || self.unsaved.len() >= MOST_UNSAVED;
        if must_save || self.executor.outlives_us() {
            self.save_batches()?;
        }
        let released = unsaved.saved();
        if busy || !released.statuses.is_empty() {
            self.active_at = self.engine.state().now();
        }
        self.executor.release(&released.effects, self.engine.state());
        let at = self.engine.state().now();
        for (post, outcomes) in posts.into_iter().zip(outcomes) {
            post.answer(seq, at, outcomes);
        }
        self.held.extend(released.statuses);
        if self.unsaved.is_empty() { self.saved().map(|()| None) } else { Ok(None) }
    }

    /// Makes everything durable that is not, and lets go what waited for it.
    fn save(&mut self) -> Result<(), DriverError> {
        self.save_batches()?;
        self.saved()
    }

    /// To be called when every batch is durable.
    fn saved(&mut self) -> Result<(), DriverError> {
        let statuses = std::mem::take(&mut self.held);
        self.say(statuses)?;
        self.snapshot_if_due();
        self.forget_requests_if_due();
        Ok(())
    }

    /// Feeds what is due, as far as there is room.
    fn take_from_feed(&mut self, now: Millis, room: usize) {
        for _ in 0..room {
            let (Some(feed), Some(intake)) = (&mut self.feed, &mut self.intake) else { return };
            let Some(item) = feed.pop(now) else { return };
            let event = intake.event(item, (feed.name(), feed.position()), self.engine.state().policy());
            self.reception.reached(SOURCE, feed.position());
            match event {
                Ok(Some(event)) => {
                    let known = self.job_about(&event);
                    self.take_in(event, known);
                }
                Ok(None) => {}
                Err(rejection) => self.reception.reject(*rejection),
            }
        }
    }

    /// What could not be taken is in its file before the batch that counts it is in the journal.
    fn keep_rejected(&mut self) -> Result<(), DriverError> {
        let at = self.engine.state().now();
        self.until_room(|cycle| cycle.reception.write_rejected(at))
    }

    /// Makes the batches durable.
    fn save_batches(&mut self) -> Result<(), DriverError> {
        if self.unsaved.is_empty() {
            return Ok(());
        }
        self.until_room(|cycle| {
            cycle.reception.sync_rejected()?;
            let entries: Vec<Entry<'_>> = cycle.unsaved.iter().map(Pending::entry).collect();
            Ok(cycle.journal.append_many(&entries)?)
        })?;
        for pending in self.unsaved.drain(..) {
            self.durable.put(&pending.positions);
        }
        Ok(())
    }

    /// Tries until the disk has room: nothing is received meanwhile, and nothing has left.
    fn until_room(
        &mut self,
        mut attempt: impl FnMut(&mut Cycle) -> Result<(), DriverError>,
    ) -> Result<(), DriverError> {
        let mut paused = false;
        loop {
            match attempt(self) {
                Ok(()) => break,
                Err(e) if e.is_full() => {
                    if !paused {
                        tracing::error!("nothing is received: {e}");
                        self.figures.pause(Some(e.to_string()));
                        paused = true;
                    }
                    let taken = self.mailbox.take_queries(FULL_PAUSE);
                    for question in taken.queries {
                        question(&self.engine, &self.context);
                    }
                    if taken.stopping {
                        return Err(e);
                    }
                }
                Err(e) => return Err(e),
            }
        }
        if paused {
            tracing::info!("there is room again: receiving");
            self.figures.pause(None);
        }
        Ok(())
    }

    /// Statuses to their file and to whoever follows. A full disk leaves them in the engine until there is room.
    fn say(&mut self, statuses: Vec<Status>) -> Result<(), DriverError> {
        let follows = statuses.first().is_none_or(|s| s.number == self.status.last() + 1);
        let written = if follows {
            self.status.write(statuses.iter())
        } else {
            self.status.write(self.engine.state().undelivered())
        };
        match written {
            Err(e) if e.is_full() => tracing::error!("statuses are held back: {e}"),
            other => other?,
        }
        self.sync_statuses(false)?;
        self.tail.push(statuses);
        Ok(())
    }

    fn sync_statuses(&mut self, now: bool) -> Result<(), DriverError> {
        if now || self.status.last() - self.status.delivered() >= SYNC_EVERY {
            if self.status.last() < self.engine.state().counters().statuses {
                let caught_up = self.status.write(self.engine.state().undelivered());
                caught_up.or_else(|e| if e.is_full() { Ok(()) } else { Err(e) })?;
            }
            self.status.sync()?;
        }
        Ok(())
    }

    /// A snapshot spares the next start some work; without one it only takes longer.
    fn snapshot_if_due(&mut self) {
        if self.journal.wants_snapshot()
            && let Err(e) = self.journal.snapshot(&self.engine.snapshot())
        {
            tracing::warn!("no snapshot: {e}");
        }
    }

    /// Frozen requests whose outcome is known are of no more use.
    fn forget_requests_if_due(&mut self) {
        if !self.executor.has_requests() || self.engine.state().now() < self.forget_at {
            return;
        }
        self.forget_at = self.engine.state().now() + BEAT;
        let open: BTreeSet<u64> = self.engine.open_effects().iter().map(|effect| effect.id.0).collect();
        self.executor.forget_requests(&open);
        if let Err(e) = self.journal.forget_requests(&open) {
            tracing::warn!("requests that are settled stay in the journal: {e}");
        }
    }

    /// Nothing left to do: the file is over, no job is open, and no more nodes are there than the policy keeps.
    fn is_drained(&self) -> bool {
        let state = self.engine.state();
        let Some(feed) = &self.feed else { return false };
        if feed.next().is_some() || state.open_jobs() > 0 || !self.arrived.is_empty() || self.resumed {
            return false;
        }
        let kept: u32 = state.policy().map_or(0, |p| p.pools.iter().map(|pool| pool.kept(state.now())).sum());
        let nodes = state.nodes().count();
        let settled = state.index().idle.len() == nodes;
        state.purchases().next().is_none() && nodes <= kept as usize && settled
    }

    fn is_stalled(&self) -> bool {
        let state = self.engine.state();
        let fed = self.feed.as_ref().is_some_and(|f| f.next().is_none());
        fed && self.exit_when_drained
            && state.open_jobs() > 0
            && state.purchases().next().is_none()
            // A service runs for ever, unless the file cancels it.
            && !state.open_job_ids().any(|id| state.job(id).is_some_and(|(job, _)| job.alive() && job.of.is_none()))
    }
}
