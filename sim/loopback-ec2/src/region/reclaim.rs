//! How instances end and stop: on request, by the market's fall, with a block's end, by hand. And everything else that happens by itself.
//!
//! ```text
//! terminate ----------------------------------> shutting-down -> terminated -> (an hour) forgotten
//! market falls -> warning -> (2 min) reclaimed ------^
//! ```
//!
//! Never: an instance that comes back.

use forebay_engine::catalog::CapacityType;
use forebay_engine::units::{Millis, Span};
use forebay_sim::world::hash::{Draw, chance, draw, name};

use super::agenda::Due;
use super::instance::{Instance, InstanceState, Why};
use super::{Pool, Region, SHOWN_AFTER_END};

/// A reclaim is announced this long ahead.
const NOTICE: Span = Span::secs(120);
/// How long before its end a Capacity Block warns.
pub(super) const BLOCK_WARNS: Span = Span::mins(40);
/// How long before its end a Capacity Block's instances are ended.
pub(super) const BLOCK_CLEARS: Span = Span::mins(30);

impl Region {
    /// Lets everything happen that is due.
    pub(crate) fn settle(&mut self, now: Millis) {
        let until = now.max(self.now);
        while let Some((at, due)) = self.agenda.pop(until) {
            self.now = at.max(self.now);
            self.happen(due);
        }
        self.now = until;
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Runs(number) => {
                if self.state_of(number) == Some(InstanceState::Pending) {
                    self.enter(number, InstanceState::Running, None);
                }
            }
            Due::Failed(number) => self.end(number, Why::NoBoot),
            Due::Reclaimed(number) => self.end(number, Why::Reclaimed),
            Due::Gone(number) => {
                self.enter(number, InstanceState::Terminated, None);
                if let Some(row) = self.instances.row(number).cloned() {
                    self.count(&row, false);
                }
                self.agenda.at(self.now + SHOWN_AFTER_END, Due::Forgotten(number));
            }
            Due::Retired(number) => self.stop(number, Why::Scheduled),
            Due::Stopped(number) => {
                if self.state_of(number) == Some(InstanceState::Stopping) {
                    self.enter(number, InstanceState::Stopped, None);
                }
            }
            Due::Forgotten(number) => self.instances.forget(number),
            Due::Market(pair) => self.market_moved(pair),
            Due::BlockWarns(reservation) => self.say_block_ends(&reservation),
            Due::BlockClears(reservation) => {
                let of_block = self.instances.all().filter(|i| i.reservation.as_ref() == Some(&reservation));
                let numbers: Vec<u64> = of_block.map(|i| i.number).collect();
                for number in numbers {
                    self.end(number, Why::Scheduled);
                }
            }
        }
    }

    /// Ends an instance, unless it is ending already.
    pub(crate) fn end(&mut self, number: u64, why: Why) {
        if self.state_of(number).is_none_or(InstanceState::is_ending) {
            return;
        }
        self.enter(number, InstanceState::ShuttingDown, Some(why));
        let takes = self.about(self.options.gone_after, Draw::Termination, number);
        self.agenda.at(self.now + takes, Due::Gone(number));
    }

    /// Stops an instance, unless it is ending or stopping already.
    fn stop(&mut self, number: u64, why: Why) {
        let Some(row) = self.instances.row(number) else { return };
        if !matches!(row.state, InstanceState::Pending | InstanceState::Running) {
            return;
        }
        let drawn = name(&[&row.id]);
        self.enter(number, InstanceState::Stopping, Some(why));
        let takes = self.about(self.options.gone_after, Draw::Stop, drawn);
        self.agenda.at(self.now + takes, Due::Stopped(number));
    }

    /// Changes tags, and shows it from now on.
    pub(crate) fn tag(&mut self, number: u64, key: &str, value: Option<&str>) {
        let (now, stale) = (self.now, self.options.stale);
        let Some(row) = self.instances.row_mut(number) else { return };
        match value {
            Some(value) => row.tags.insert(key.to_owned(), value.to_owned()),
            None => row.tags.remove(key),
        };
        row.changed(now, stale);
    }

    fn enter(&mut self, number: u64, state: InstanceState, why: Option<Why>) {
        let (now, stale) = (self.now, self.options.stale);
        let Some(row) = self.instances.row_mut(number) else { return };
        row.state = state;
        row.since = now;
        row.why = why.or(row.why);
        row.gone = if state == InstanceState::Terminated { Some(now) } else { row.gone };
        row.changed(now, stale);
        let row = row.clone();
        self.say_state(&row);
    }

    fn state_of(&self, number: u64) -> Option<InstanceState> {
        self.instances.row(number).map(|row| row.state)
    }

    /// Looks at a pair at its next change, once there are spot instances of it.
    pub(super) fn watch(&mut self, pair: usize) {
        if self.watched.contains(&pair) {
            return;
        }
        if let Some(next) = self.market_changes(pair) {
            self.watched.insert(pair);
            self.agenda.at(next, Due::Market(pair));
        }
    }

    /// The pair's availability or price may have changed: what is beyond it, or dearer than its bid, is taken back.
    fn market_moved(&mut self, pair: usize) {
        self.watched.remove(&pair);
        let Some((instance_type, zone)) = self.options.market.pair(pair) else { return };
        let pool = Pool::new(instance_type, zone, CapacityType::Spot);
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
            self.take_back(number);
        }
    }

    /// The market takes an instance back: announced, or at once.
    fn take_back(&mut self, number: u64) {
        let seed = self.options.seed;
        if !chance(draw(seed, Draw::Warning, number, 0), self.options.warning_permille) {
            self.end(number, Why::Reclaimed);
            return;
        }
        if chance(draw(seed, Draw::Rebalance, number, 0), self.options.rebalance_permille) {
            self.advise(number);
        }
        self.announce(number, NOTICE);
    }

    fn announce(&mut self, number: u64, notice: Span) {
        let goes = self.now + notice;
        let Some(row) = self.instances.row_mut(number) else { return };
        row.reclaim_at = Some(goes);
        let row = row.clone();
        self.say_reclaim(&row, goes);
        self.agenda.at(goes, Due::Reclaimed(number));
    }

    fn advise(&mut self, number: u64) {
        let now = self.now;
        let Some(row) = self.instances.row_mut(number) else { return };
        row.rebalance_at = Some(now);
        let row = row.clone();
        self.say_rebalance(&row);
    }

    /// The number of an instance that lives.
    fn living(&mut self, now: Millis, instance: &str) -> Option<u64> {
        self.settle(now);
        self.instances.by_id(instance).filter(|row| !row.state.is_ending()).map(|row| row.number)
    }
}

/// The hands of a test, or of a person: each says whether there was such a living instance.
impl Region {
    /// Takes an instance back: announced so long ahead, or (`None`) without a word. One of a reservation has a reservation's warning.
    pub fn reclaim(&mut self, now: Millis, instance: &str, notice: Option<Span>) -> bool {
        let Some(number) = self.living(now, instance) else { return false };
        match notice {
            Some(notice) => self.announce(number, notice),
            None => self.end(number, Why::Reclaimed),
        }
        true
    }

    /// Recommends to move away from an instance; nothing follows from it.
    pub fn recommend_rebalance(&mut self, now: Millis, instance: &str) -> bool {
        let number = self.living(now, instance);
        number.inspect(|number| self.advise(*number)).is_some()
    }

    /// Announces, through AWS Health and in its status, that an instance will be retired then. It is stopped then.
    pub fn schedule_retirement(&mut self, now: Millis, instance: &str, starts: Millis) -> bool {
        let Some(number) = self.living(now, instance) else { return false };
        let Some(row) = self.instances.row_mut(number) else { return false };
        row.retires_at = Some(starts);
        let row = row.clone();
        self.say_retirement(&row, starts);
        self.agenda.at(starts, Due::Retired(number));
        true
    }

    /// Ends an instance, as somebody at the console does.
    pub fn end_by_hand(&mut self, now: Millis, instance: &str) -> bool {
        let number = self.living(now, instance);
        number.inspect(|number| self.end(*number, Why::Asked)).is_some()
    }

    /// Stops an instance, as somebody at the console does. It keeps its place in the stock.
    pub fn stop_by_hand(&mut self, now: Millis, instance: &str) -> bool {
        let number = self.living(now, instance);
        number.inspect(|number| self.stop(*number, Why::Asked)).is_some()
    }

    /// Sets a tag of an instance, or (`None`) takes it away.
    pub fn retag(&mut self, now: Millis, instance: &str, key: &str, value: Option<&str>) -> bool {
        let number = self.living(now, instance);
        number.inspect(|number| self.tag(*number, key, value)).is_some()
    }
}

/// Whether the market holds it: neither ending nor told that it will.
fn is_held(instance: &Instance, pool: &Pool) -> bool {
    instance.capacity == CapacityType::Spot
        && instance.instance_type == pool.instance_type
        && instance.zone == pool.zone
        && instance.reclaim_at.is_none()
        && !instance.state.is_ending()
}
