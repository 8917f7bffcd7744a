//! The state as it is at one instant, to be written down elsewhere while the state itself goes on.
//!
//! ```text
//! freeze -> FrozenState -> chunks: one for everything small, one for each 64 neighbouring jobs, one for their specifications
//!                          a chunk that has not changed since the last freeze is known as the same without being read
//! thaw   <- the bytes of the same chunks, in any order
//! ```
//!
//! Never: copies a specification or a row of the job tables. What is not in these tables is copied; it grows with nodes, queues and
//! classes, not with jobs.

use super::State;
use super::jobs::Job;
use super::table::{Table, TableChunk};
use crate::grown::{self, Grown};
use crate::ids::JobId;
use crate::journal::{ChunkContent, ChunkId, StateChunk};
use crate::state::SharedSpec;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Everything but jobs and their specifications.
const BASE: u16 = 1;
/// The rows of up to 64 neighbouring jobs.
const JOBS: u16 = 2;
/// Their specifications.
const SPECS: u16 = 3;

/// A state that does not change any more. Cheap to make, cheap to clone.
#[derive(Clone, Debug)]
pub struct FrozenState {
    base: Arc<State>,
    jobs: Table<JobId, Job>,
    specs: Table<JobId, SharedSpec>,
}

impl FrozenState {
    /// A state that is the same, with its lookups made again. Rows and specifications stay shared.
    #[must_use]
    pub fn into_state(self) -> State {
        let mut state = Arc::unwrap_or_clone(self.base);
        (state.jobs, state.specs) = (self.jobs, self.specs);
        state.rebuild();
        state
    }

    /// All parts. Encoding one is the caller's to do, on a thread that has the time.
    pub fn into_chunks(self) -> impl Iterator<Item = StateChunk> + Send + 'static {
        let base: Arc<dyn ChunkContent> = self.base;
        let base = StateChunk { id: ChunkId { kind: BASE, number: 0 }, content: base };
        core::iter::once(base).chain(of_table(self.jobs, JOBS)).chain(of_table(self.specs, SPECS))
    }
}

fn of_table<T>(table: Table<JobId, T>, kind: u16) -> impl Iterator<Item = StateChunk> + Send + 'static
where
    T: Grown + Serialize + Send + Sync + 'static,
{
    table.into_chunks().map(move |(number, rows)| StateChunk { id: ChunkId { kind, number }, content: rows })
}

impl ChunkContent for State {
    fn encode(&self) -> Result<Vec<u8>, postcard::Error> {
        State::encode(self)
    }
}

impl<T: Grown + Serialize + Send + Sync> ChunkContent for TableChunk<T> {
    fn encode(&self) -> Result<Vec<u8>, postcard::Error> {
        let mut bytes = postcard::to_allocvec(self)?;
        grown::say(&mut bytes, self.rows())?;
        Ok(bytes)
    }
}

fn read_rows<T: Grown + DeserializeOwned>(bytes: &[u8]) -> Result<TableChunk<T>, postcard::Error> {
    let (mut chunk, rest) = postcard::take_from_bytes::<TableChunk<T>>(bytes)?;
    grown::hear(rest, chunk.rows_mut())?;
    Ok(chunk)
}

/// Puts a state together again from the bytes of its chunks.
#[derive(Debug, Default)]
pub struct Thaw {
    base: Option<Box<State>>,
    jobs: Vec<(u64, TableChunk<Job>)>,
    specs: Vec<(u64, TableChunk<SharedSpec>)>,
}

impl Thaw {
    /// Takes the bytes of one chunk. Chunks of one kind come in the order of their numbers.
    ///
    /// # Errors
    ///
    /// The bytes are damaged, or another version wrote them.
    pub fn take(&mut self, id: ChunkId, bytes: &[u8]) -> Result<(), postcard::Error> {
        match id {
            ChunkId { kind: BASE, .. } => {
                let (mut base, rest) = postcard::take_from_bytes::<Box<State>>(bytes)?;
                grown::hear(rest, &mut *base)?;
                self.base = Some(base);
            }
            ChunkId { kind: JOBS, number } => self.jobs.push((number, read_rows(bytes)?)),
            ChunkId { kind: SPECS, number } => self.specs.push((number, read_rows(bytes)?)),
            ChunkId { .. } => return Err(postcard::Error::SerdeDeCustom),
        }
        Ok(())
    }

    /// The state, with its lookups rebuilt.
    ///
    /// # Errors
    ///
    /// A chunk is missing, or chunks do not belong together.
    pub fn finish(self) -> Result<State, postcard::Error> {
        let damaged = postcard::Error::SerdeDeCustom;
        let mut state = *self.base.ok_or(damaged.clone())?;
        let (jobs, specs) = (state.jobs.next_id(), state.specs.next_id());
        state.jobs = Table::from_chunks(jobs.0, self.jobs).ok_or(damaged.clone())?;
        state.specs = Table::from_chunks(specs.0, self.specs).ok_or(damaged.clone())?;
        if !state.jobs.ids().eq(state.specs.ids()) {
            return Err(damaged);
        }
        state.rebuild();
        Ok(state)
    }
}

impl State {
    /// The state as it is now. It costs a pointer for each 64 jobs and a copy of what is not a job.
    #[must_use]
    pub fn freeze(&self) -> FrozenState {
        let base = State {
            now: self.now,
            policy: self.policy.clone(),
            counters: self.counters,
            specs: self.specs.emptied(),
            jobs: self.jobs.emptied(),
            classes: self.classes.clone(),
            queues: self.queues.clone(),
            models: self.models.clone(),
            batches: self.batches.clone(),
            racks: self.racks.clone(),
            mix: self.mix.clone(),
            offerings: self.offerings.clone(),
            nodes: self.nodes.clone(),
            purchases: self.purchases.clone(),
            quota: self.quota.clone(),
            fair: self.fair.clone(),
            budgets: self.budgets.clone(),
            totals: self.totals.clone(),
            ledger: self.ledger,
            observed: self.observed.clone(),
            stream: self.stream.clone(),
            services: self.services.clone(),
            pending_cancels: self.pending_cancels.clone(),
            consolidate_at: self.consolidate_at,
            listed: self.listed.clone(),
            reservations: self.reservations.clone(),
            keeps_finished: self.keeps_finished,
            kept_tiers: self.kept_tiers,
            kept_pools: self.kept_pools,
            streaks: self.streaks.clone(),
            node_reserves: self.node_reserves.clone(),
            allowances: self.allowances.clone(),
            brakes: self.brakes.clone(),
            billing: self.billing.as_ref().map(|billing| Box::new(billing.frozen())),
            resumed_at: self.resumed_at,
            ..State::default()
        };
        FrozenState { base: Arc::new(base), jobs: self.jobs.clone(), specs: self.specs.clone() }
    }

    /// Makes again what is not part of the bytes.
    pub(crate) fn rebuild(&mut self) {
        self.renew_rules();
        let ids: Vec<JobId> = self.jobs.ids().collect();
        for id in ids {
            let at = super::start_by(&self.jobs[id], &self.specs[id], &self.classes[self.jobs[id].class]);
            if self.jobs[id].start_by != at {
                self.jobs[id].start_by = at;
            }
        }
        self.cordon_anew();
        self.rebuild_replica_counts();
        self.index = super::Index::rebuilt(self);
        self.names = super::names::Names::rebuilt(self);
        self.rebuild_billing();
        self.woken = self.index.booked.values().flatten().map(|key| key.job).collect();
    }
}
