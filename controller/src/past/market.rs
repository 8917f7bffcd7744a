//! What was seen of spot and of boots, as series that a simulated market follows.
//!
//! ```text
//! asked n, got n                 there is stock; it came back half-way since it was last seen to be out
//! asked n, got fewer             no more than we have; it went half-way since it was last seen to be there
//! a reclaim is announced         no more than what is left to us, from then on
//! a price moved                  in 1/1000 of the policy's price
//! ```
//!
//! What was never asked for counts as there: nobody has seen it out of stock.
//!
//! Never: what other processes may know; stock that is not spot.

use crate::journal::CloudNote;
use forebay_kernel::catalog::{CapacityType, Offering};
use forebay_kernel::event::{GoneWhy, LaunchError};
use forebay_kernel::ids::{OfferingId, PurchaseId};
use forebay_kernel::state::State;
use forebay_kernel::units::{Rate, Span, Timestamp};
use forebay_sim::market::{DEFAULT_DEPTH, MAX_PRICE};
use forebay_sim::trace::{csv_field, csv_seconds};
use std::collections::{BTreeMap, VecDeque};

/// Boots of one offering that are written, the newest.
const MOST_BOOTS: usize = 1024;

/// What is taken for all of the stock.
const WHOLE: u16 = 1000;

/// A series ends so long after what was seen: a simulation that lasts longer meets it again from its beginning.
const AFTER: Span = Span::mins(400 * 24 * 60);

/// An instance type in a zone.
type Pair = (String, String);

/// What is written.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The series of spot. `None`: the policy has no spot.
    pub market: Option<String>,
    /// The boots. `None`: none was seen.
    pub boots: Option<String>,
    /// What a reader should know.
    pub sentences: Vec<String>,
}

/// What the cloud has done so far.
#[derive(Debug, Default)]
pub struct CloudPast {
    asked: BTreeMap<PurchaseId, (OfferingId, u32)>,
    instances: BTreeMap<String, Alive>,
    pairs: BTreeMap<Pair, PairPast>,
    boots: BTreeMap<OfferingId, VecDeque<Span>>,
    first: Option<Timestamp>,
    on_demand_refused: u64,
    other_prices: u64,
    high_prices: u64,
    unknown_reclaims: u64,
}

/// An instance that is there.
#[derive(Debug)]
struct Alive {
    offering: OfferingId,
    launched: Timestamp,
    /// It counts as ours: the cloud has not announced to take it.
    held: bool,
}

/// What was seen of a pair.
#[derive(Debug, Default)]
struct PairPast {
    held: u32,
    /// When stock was last seen to be there, and to be out.
    there: Timestamp,
    out: Timestamp,
    asked: bool,
    /// From when on how much of it there is, in 1/1000.
    stock: Vec<(Timestamp, u16)>,
    /// From when on at what part of the policy's price.
    prices: Vec<(Timestamp, u16)>,
}

fn midway(a: Timestamp, b: Timestamp) -> Timestamp {
    Timestamp(a.0 + b.since(a).0 / 2)
}

impl PairPast {
    fn now(&self) -> u16 {
        self.stock.last().map_or(WHOLE, |(_, there)| *there)
    }

    /// As many as we have, in 1/1000 of what a market is measured against.
    fn as_held(&self) -> u16 {
        let permille = (u64::from(self.held) * u64::from(WHOLE)).div_ceil(u64::from(DEFAULT_DEPTH));
        u16::try_from(permille).unwrap_or(WHOLE).min(WHOLE - 1)
    }

    fn is_there(&mut self, at: Timestamp) {
        if self.now() != WHOLE {
            self.stock.push((midway(self.out, at), WHOLE));
        }
        self.there = at;
    }

    fn refused(&mut self, at: Timestamp) {
        let began = if self.now() == WHOLE { midway(self.there, at) } else { at };
        self.stock.push((began, self.as_held()));
        self.out = at;
    }

    /// One that we had is not to be had any more.
    fn taken(&mut self, at: Timestamp) {
        self.stock.push((at, self.as_held()));
        self.out = at;
    }

    /// One of ours is gone, or is announced to go.
    fn less(&mut self, at: Timestamp) {
        self.held = self.held.saturating_sub(1);
        if self.now() == WHOLE {
            self.there = at;
        }
    }
}

impl CloudPast {
    /// What it did by the batch of a tick.
    pub fn take(&mut self, state: &State, at: Timestamp, notes: &[CloudNote]) {
        self.first = self.first.or(Some(at));
        for note in notes {
            match note {
                CloudNote::Asked { purchase, offering, count } => {
                    self.asked.insert(*purchase, (*offering, *count));
                }
                CloudNote::Answered { purchase, instances, error } => {
                    self.answered(state, at, *purchase, instances, *error);
                }
                CloudNote::Ready { instance } => self.ready(at, instance),
                CloudNote::Reclaiming { instance } => self.reclaimed(state, at, instance),
                CloudNote::Gone { instance, why } => {
                    if *why == GoneWhy::Reclaimed {
                        self.reclaimed(state, at, instance);
                    }
                    self.gone(state, at, instance);
                }
                CloudNote::Priced { offering, price } => self.priced(state, at, *offering, *price),
            }
        }
    }

    fn answered(
        &mut self,
        state: &State,
        at: Timestamp,
        purchase: PurchaseId,
        instances: &[String],
        error: Option<LaunchError>,
    ) {
        // One that is answered again says nothing new.
        let Some((offering, count)) = self.asked.remove(&purchase) else { return };
        for instance in instances {
            self.instances.insert(instance.clone(), Alive { offering, launched: at, held: true });
        }
        let refused = error == Some(LaunchError::Capacity);
        let first = self.first.unwrap_or(at);
        let Some(pair) = self.pair(state, offering) else {
            self.on_demand_refused += u64::from(refused);
            return;
        };
        if !std::mem::replace(&mut pair.asked, true) {
            // Nobody knows of before the journal's first note.
            pair.there = pair.there.max(first);
        }
        pair.held += u32::try_from(instances.len()).unwrap_or(u32::MAX);
        if refused {
            pair.refused(at);
        } else if instances.len() >= count as usize {
            pair.is_there(at);
        }
    }

    fn ready(&mut self, at: Timestamp, instance: &str) {
        let Some(alive) = self.instances.get(instance) else { return };
        let boots = self.boots.entry(alive.offering).or_default();
        boots.push_back(at.since(alive.launched));
        if boots.len() > MOST_BOOTS {
            boots.pop_front();
        }
    }

    fn reclaimed(&mut self, state: &State, at: Timestamp, instance: &str) {
        let Some(alive) = self.instances.get_mut(instance) else {
            self.unknown_reclaims += 1;
            return;
        };
        let (offering, held) = (alive.offering, std::mem::take(&mut alive.held));
        if let Some(pair) = self.pair(state, offering).filter(|_| held) {
            pair.less(at);
            pair.taken(at);
        }
    }

    fn gone(&mut self, state: &State, at: Timestamp, instance: &str) {
        let Some(Alive { offering, held, .. }) = self.instances.remove(instance) else { return };
        if let Some(pair) = self.pair(state, offering).filter(|_| held) {
            pair.less(at);
        }
    }

    fn priced(&mut self, state: &State, at: Timestamp, offering: OfferingId, price: Rate) {
        let listed = listed(state, offering).filter(|offer| offer.price.0 > 0).map(|offer| offer.price.0);
        let permille = listed.map(|listed| u64::from(WHOLE) * price.0 / listed);
        let (Some(pair), Some(permille)) = (self.pair(state, offering), permille) else {
            self.other_prices += 1;
            return;
        };
        pair.prices.push((at, written_price(permille)));
        self.high_prices += u64::from(permille > u64::from(MAX_PRICE));
    }

    /// What is kept of an offering of spot.
    fn pair(&mut self, state: &State, offering: OfferingId) -> Option<&mut PairPast> {
        let offer = &state.offerings().get(offering.index())?.offer;
        let pair = || (offer.instance_type.clone(), offer.zone.clone());
        (offer.capacity == CapacityType::Spot).then(|| self.pairs.entry(pair()).or_default())
    }

    /// What is written of it.
    pub fn observed(&self, state: &State, zero: Timestamp, last: Timestamp) -> Observed {
        let spot = state.offerings().iter().filter(|row| row.listed && row.offer.capacity == CapacityType::Spot);
        let mut pairs: Vec<Pair> = spot.map(|row| (row.offer.instance_type.clone(), row.offer.zone.clone())).collect();
        pairs.extend(self.pairs.keys().cloned());
        pairs.sort_unstable();
        pairs.dedup();
        let (never, ends) = (PairPast::default(), last.since(zero) + AFTER);
        let of = |pair: &Pair| self.pairs.get(pair).unwrap_or(&never);
        let market = pairs.iter().map(|pair| series(pair, of(pair), zero, ends)).collect::<String>();
        let unasked = pairs.iter().filter(|pair| !of(pair).asked).count() as u64;
        let market =
            (!pairs.is_empty()).then(|| format!("t_s,zone,instance_type,available,capacity,price_permille\n{market}"));
        let boots = (!self.boots.is_empty()).then(|| self.boot_rows(state));
        let mut sentences = self.sentences(zero);
        if unasked > 0 {
            sentences.push(format!(
                "{unasked} of {} pairs of instance type and zone were never asked for spot: it counts as in stock there",
                pairs.len()
            ));
        }
        Observed { market, boots, sentences }
    }

    fn boot_rows(&self, state: &State) -> String {
        let mut out = "instance_type,zone,capacity,boot_s\n".to_owned();
        for (offering, boots) in &self.boots {
            let Some(row) = state.offerings().get(offering.index()) else { continue };
            let Offering { instance_type, zone, capacity, .. } = &row.offer;
            let (instance_type, zone) = (csv_field(instance_type), csv_field(zone));
            for boot in boots {
                out.push_str(&format!("{instance_type},{zone},{capacity},{}\n", csv_seconds(boot.0)));
            }
        }
        out
    }

    fn sentences(&self, zero: Timestamp) -> Vec<String> {
        let all = [
            (self.on_demand_refused, "launches of other capacity than spot were refused: a simulation always has it"),
            (
                self.other_prices,
                "prices of other capacity than spot, or of what the policy does not list, are not in it",
            ),
            (self.high_prices, "prices were above 60 times the policy's: they are written as 60 times"),
            (self.unknown_reclaims, "reclaims are not in it: the journal does not know any more what was reclaimed"),
        ];
        let counted = all.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        let late = match self.first {
            None => Some(
                "the journal has kept nothing of what the cloud did: spot counts as in stock, at the policy's prices"
                    .to_owned(),
            ),
            Some(first) if first.since(zero) > Span::mins(24 * 60) => {
                let at = crate::clock::instant(first.0).map_or_else(|| first.0.to_string(), |at| at.to_string());
                Some(format!("what the cloud did before {at} is not kept: spot counts as in stock until then"))
            }
            Some(_) => None,
        };
        counted.chain(late).collect()
    }
}

/// A price as a series states it, in 1/1000 of the policy's.
fn written_price(permille: u64) -> u16 {
    u16::try_from(permille).unwrap_or(MAX_PRICE).min(MAX_PRICE)
}

/// An offering as the policy in force lists it.
fn listed(state: &State, offering: OfferingId) -> Option<&Offering> {
    let key = state.offerings().get(offering.index())?.offer.key();
    state.policy()?.offerings.iter().find(|offer| offer.key() == key)
}

/// The rows of a pair: a row is a change, and the last one ends the series.
fn series((instance_type, zone): &Pair, past: &PairPast, zero: Timestamp, ends: Span) -> String {
    let mut changes: BTreeMap<u64, (u16, u16)> = BTreeMap::new();
    let (mut stock, mut prices) = (past.stock.iter().peekable(), past.prices.iter().peekable());
    let (mut there, mut price) = (WHOLE, WHOLE);
    changes.insert(0, (there, price));
    loop {
        let next = [stock.peek().map(|row| row.0), prices.peek().map(|row| row.0)].into_iter().flatten().min();
        let Some(at) = next else { break };
        while let Some((_, permille)) = stock.next_if(|row| row.0 <= at) {
            there = *permille;
        }
        while let Some((_, permille)) = prices.next_if(|row| row.0 <= at) {
            price = *permille;
        }
        changes.insert(at.since(zero).0, (there, price));
    }
    changes.insert(ends.0, (there, price));
    let (zone, instance_type) = (csv_field(zone), csv_field(instance_type));
    let row = |(at, (there, price)): (u64, (u16, u16))| {
        format!("{},{zone},{instance_type},{there},{WHOLE},{price}\n", csv_seconds(at))
    };
    changes.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(past: &PairPast) -> Vec<String> {
        let text = series(&("x".into(), "a".into()), past, Timestamp(1000), Span::secs(100));
        text.lines().map(|line| line.replace(",a,x", "")).collect()
    }

    #[test]
    fn stock_goes_and_comes_back_half_way_between_what_was_seen() {
        let mut past = PairPast { held: 2, ..PairPast::default() };
        past.is_there(Timestamp(11_000));
        past.refused(Timestamp(21_000));
        past.refused(Timestamp(31_000));
        past.is_there(Timestamp(41_000));
        past.prices.push((Timestamp(500), 900));
        past.prices.push((Timestamp(51_000), 950));
        let expected = [
            "0,1000,1000,900",
            "15,5,1000,900",
            "30,5,1000,900",
            "35,1000,1000,900",
            "50,1000,1000,950",
            "100,1000,1000,950",
        ];
        assert_eq!(rows(&past), expected);
    }

    #[test]
    fn what_is_taken_is_gone_from_that_instant_on() {
        let mut past = PairPast { held: 1, ..PairPast::default() };
        past.is_there(Timestamp(2000));
        past.less(Timestamp(9000));
        past.taken(Timestamp(9000));
        assert_eq!(rows(&past), ["0,1000,1000,1000", "8,0,1000,1000", "100,0,1000,1000"]);
        assert_eq!(rows(&PairPast::default()), ["0,1000,1000,1000", "100,1000,1000,1000"]);
    }

    #[test]
    fn the_highest_price_that_is_written_is_the_highest_that_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spot_availability.csv");
        let reads = |price: u32| {
            let rows = format!("0,a,x,1000,1000,{price}\n60,a,x,1000,1000,1000\n");
            std::fs::write(&path, format!("t_s,zone,instance_type,available,capacity,price_permille\n{rows}")).unwrap();
            forebay_sim::market::Market::recorded(&path, &[]).map(|_| ()).map_err(|e| e.to_string())
        };
        assert_eq!(reads(MAX_PRICE.into()), Ok(()));
        assert!(reads(u32::from(MAX_PRICE) + 1).is_err_and(|e| e.contains("price_permille")));
        for (permille, written) in [(0, 0), (900, 900), (60_000, MAX_PRICE), (60_001, MAX_PRICE), (1 << 40, MAX_PRICE)]
        {
            assert_eq!(written_price(permille), written, "{permille}");
        }
    }
}
