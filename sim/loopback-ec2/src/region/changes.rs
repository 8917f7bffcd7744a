//! The changes of existing instances: boots, stops, and terminations by request, by the market, by the end of a Capacity Block or by a test.
//!
//! ```text
//! terminate ----------------------------------> shutting-down -> terminated -> (an hour) removed
//! market falls -> warning -> (2 min) reclaimed ------^
//! ```

use forebay_kernel::catalog::CapacityType;
use forebay_kernel::units::{Span, Timestamp};
use forebay_sim::world::hash::{Draw, chance, draw, name};

use super::instance::{EndReason, InstanceState, LoopbackInstance};
use super::launch::Usage;
use super::{DESCRIBED_AFTER_END, Region, StockPool};

/// The time from the warning to the reclaim.
const RECLAIM_NOTICE: Span = Span::secs(120);
/// How long before its end a Capacity Block has a warning.
pub(super) const BLOCK_WARNING_LEAD: Span = Span::mins(40);
/// How long before its end the instances of a Capacity Block are terminated.
pub(super) const BLOCK_RECLAIM_LEAD: Span = Span::mins(30);

/// A scheduled change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TimedChange {
    /// An instance has booted.
    Boot(u64),
    /// An instance fails to boot.
    FailBoot(u64),
    /// A warned instance is reclaimed.
    Reclaim(u64),
    /// An instance has shut down.
    Terminate(u64),
    /// An instance is retired.
    Retire(u64),
    /// An instance has stopped.
    Stop(u64),
    /// A terminated instance is no longer described.
    Forget(u64),
    /// The availability or price of a market pair may change.
    Market(usize),
    /// The warning of a Capacity Block is sent.
    WarnOfBlockEnd(String),
    /// The instances of a Capacity Block are terminated.
    EndBlockInstances(String),
}

impl Region {
    /// Applies all changes that are due.
    pub(crate) fn process_due(&mut self, now: Timestamp) {
        let until = now.max(self.now);
        while let Some((at, due)) = self.schedule.pop(until) {
            self.now = at.max(self.now);
            self.apply(due);
        }
        self.now = until;
    }

    fn apply(&mut self, due: TimedChange) {
        match due {
            TimedChange::Boot(number) => {
                if self.state_of(number) == Some(InstanceState::Pending) {
                    self.enter(number, InstanceState::Running, None);
                }
            }
            TimedChange::FailBoot(number) => self.end(number, EndReason::BootFailed),
            TimedChange::Reclaim(number) => self.end(number, EndReason::Reclaimed),
            TimedChange::Terminate(number) => {
                self.enter(number, InstanceState::Terminated, None);
                if let Some(row) = self.instances.row(number).cloned() {
                    self.count_usage(&row, Usage::Removed);
                }
                self.schedule.at(self.now + DESCRIBED_AFTER_END, TimedChange::Forget(number));
            }
            TimedChange::Retire(number) => self.stop(number, EndReason::Scheduled),
            TimedChange::Stop(number) => {
                if self.state_of(number) == Some(InstanceState::Stopping) {
                    self.enter(number, InstanceState::Stopped, None);
                }
            }
            TimedChange::Forget(number) => self.instances.forget(number),
            TimedChange::Market(pair) => self.market_moved(pair),
            TimedChange::WarnOfBlockEnd(reservation) => self.emit_block_expiration(&reservation),
            TimedChange::EndBlockInstances(reservation) => {
                let of_block = self.instances.all().filter(|i| i.reservation.as_ref() == Some(&reservation));
                let numbers: Vec<u64> = of_block.map(|i| i.number).collect();
                for number in numbers {
                    self.end(number, EndReason::Scheduled);
                }
            }
        }
    }

    /// Terminates an instance, unless it is terminating already.
    pub(crate) fn end(&mut self, number: u64, end_reason: EndReason) {
        if self.state_of(number).is_none_or(InstanceState::is_ending) {
            return;
        }
        self.enter(number, InstanceState::ShuttingDown, Some(end_reason));
        let takes = self.vary(self.options.shutdown_time, Draw::Termination, number);
        self.schedule.at(self.now + takes, TimedChange::Terminate(number));
    }

    /// Stops an instance, unless it is stopping or terminating already.
    fn stop(&mut self, number: u64, end_reason: EndReason) {
        let Some(row) = self.instances.row(number) else { return };
        if !matches!(row.state, InstanceState::Pending | InstanceState::Running) {
            return;
        }
        let drawn = name(&[&row.id]);
        self.enter(number, InstanceState::Stopping, Some(end_reason));
        let takes = self.vary(self.options.shutdown_time, Draw::Stop, drawn);
        self.schedule.at(self.now + takes, TimedChange::Stop(number));
    }

    /// Sets or removes a tag.
    pub(crate) fn tag(&mut self, number: u64, key: &str, value: Option<&str>) {
        let (now, max_staleness) = (self.now, self.options.max_staleness);
        let Some(row) = self.instances.row_mut(number) else { return };
        match value {
            Some(value) => row.tags.insert(key.to_owned(), value.to_owned()),
            None => row.tags.remove(key),
        };
        row.changed(now, max_staleness);
    }

    fn enter(&mut self, number: u64, state: InstanceState, end_reason: Option<EndReason>) {
        let (now, max_staleness) = (self.now, self.options.max_staleness);
        let Some(row) = self.instances.row_mut(number) else { return };
        row.state = state;
        row.since = now;
        row.end_reason = end_reason.or(row.end_reason);
        row.terminated_at = if state == InstanceState::Terminated { Some(now) } else { row.terminated_at };
        row.changed(now, max_staleness);
        let row = row.clone();
        self.emit_state_change(&row);
    }

    fn state_of(&self, number: u64) -> Option<InstanceState> {
        self.instances.row(number).map(|row| row.state)
    }

    /// Schedules the next change of a market pair, once there are spot instances of it.
    pub(super) fn watch(&mut self, pair: usize) {
        if self.watched.contains(&pair) {
            return;
        }
        if let Some(next) = self.market_changes(pair) {
            self.watched.insert(pair);
            self.schedule.at(next, TimedChange::Market(pair));
        }
    }

    /// Reclaims the instances that exceed the new availability or whose maximum price is below the new price.
    fn market_moved(&mut self, pair: usize) {
        self.watched.remove(&pair);
        let Some((instance_type, zone)) = self.options.market.pair(pair) else { return };
        let pool = StockPool::new(instance_type, zone, CapacityType::Spot);
        let price = self.spot_price(&pool.instance_type, &pool.zone);
        let of_pool = self.instances.all().filter(|i| is_held(i, &pool));
        let mut held: Vec<(u64, u64)> = of_pool.map(|i| (i.number, i.max_price)).collect();
        if held.is_empty() {
            return;
        }
        self.watch(pair);
        let (seed, at) = (self.options.seed, self.now.0);
        let (dear, mut cheap): (Vec<_>, Vec<_>) = held.drain(..).partition(|(_, most)| *most < price);
        cheap.sort_by_key(|(number, _)| (draw(seed, Draw::Reclaim, *number, at), *number));
        let most = self.market_bound(&pool).map_or(usize::MAX, |most| most as usize);
        let beyond = cheap.len().saturating_sub(most);
        for (number, _) in dear.into_iter().chain(cheap.into_iter().take(beyond)) {
            self.reclaim_by_market(number);
        }
    }

    /// Reclaims an instance, with or without a warning.
    fn reclaim_by_market(&mut self, number: u64) {
        let seed = self.options.seed;
        if !chance(draw(seed, Draw::Warning, number, 0), self.options.warning_permille) {
            self.end(number, EndReason::Reclaimed);
            return;
        }
        if chance(draw(seed, Draw::Rebalance, number, 0), self.options.rebalance_permille) {
            self.recommend(number);
        }
        self.warn(number, RECLAIM_NOTICE);
    }

    fn warn(&mut self, number: u64, notice: Span) {
        let goes = self.now + notice;
        let Some(row) = self.instances.row_mut(number) else { return };
        row.reclaim_at = Some(goes);
        let row = row.clone();
        self.emit_reclaim_warning(&row, goes);
        self.schedule.at(goes, TimedChange::Reclaim(number));
    }

    fn recommend(&mut self, number: u64) {
        let now = self.now;
        let Some(row) = self.instances.row_mut(number) else { return };
        row.rebalance_at = Some(now);
        let row = row.clone();
        self.emit_rebalance_recommendation(&row);
    }

    /// The number of an instance that is not terminating.
    fn alive(&mut self, now: Timestamp, instance: &str) -> Option<u64> {
        self.process_due(now);
        self.instances.by_id(instance).filter(|row| !row.state.is_ending()).map(|row| row.number)
    }
}

/// Changes from a test or a user. Each returns whether there is such an instance that is not terminating.
impl Region {
    /// Reclaims an instance this long after a warning, or (`None`) at once without one. The warning of a reserved instance is that of its
    /// reservation.
    pub fn reclaim(&mut self, now: Timestamp, instance: &str, notice: Option<Span>) -> bool {
        let Some(number) = self.alive(now, instance) else { return false };
        match notice {
            Some(notice) => self.warn(number, notice),
            None => self.end(number, EndReason::Reclaimed),
        }
        true
    }

    /// Sends a rebalance recommendation, which has no effect on the instance.
    pub fn recommend_rebalance(&mut self, now: Timestamp, instance: &str) -> bool {
        let number = self.alive(now, instance);
        number.inspect(|number| self.recommend(*number)).is_some()
    }

    /// Announces the retirement of an instance by AWS Health and in its status. The instance is stopped at that time.
    pub fn schedule_retirement(&mut self, now: Timestamp, instance: &str, starts: Timestamp) -> bool {
        let Some(number) = self.alive(now, instance) else { return false };
        let Some(row) = self.instances.row_mut(number) else { return false };
        row.retires_at = Some(starts);
        let row = row.clone();
        self.emit_retirement(&row, starts);
        self.schedule.at(starts, TimedChange::Retire(number));
        true
    }

    /// Terminates an instance, as a user of the console does.
    pub fn terminate_as_user(&mut self, now: Timestamp, instance: &str) -> bool {
        let number = self.alive(now, instance);
        number.inspect(|number| self.end(*number, EndReason::Requested)).is_some()
    }

    /// Stops an instance, as a user of the console does. It still counts against the stock.
    pub fn stop_as_user(&mut self, now: Timestamp, instance: &str) -> bool {
        let number = self.alive(now, instance);
        number.inspect(|number| self.stop(*number, EndReason::Requested)).is_some()
    }

    /// Sets a tag of an instance, or (`None`) removes it.
    pub fn retag(&mut self, now: Timestamp, instance: &str, key: &str, value: Option<&str>) -> bool {
        let number = self.alive(now, instance);
        number.inspect(|number| self.tag(*number, key, value)).is_some()
    }
}

/// Whether the market may reclaim it: it is neither terminating nor warned.
fn is_held(instance: &LoopbackInstance, pool: &StockPool) -> bool {
    instance.capacity == CapacityType::Spot
        && instance.instance_type == pool.instance_type
        && instance.zone == pool.zone
        && instance.reclaim_at.is_none()
        && !instance.state.is_ending()
}
