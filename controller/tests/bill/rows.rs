//! The rows of a bill that was made again, rounded by a program of its own.
//!
//! Never: the ledger, its charges, its arithmetic.

use super::recomputed::{HOUR, Recomputed, Use};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::ids::JobId;
use forebay_kernel::state::State;
use std::collections::BTreeMap;

struct Who {
    tenant: String,
    queue: String,
    tier: String,
    labels: BTreeMap<String, String>,
}

struct What {
    instance_type: String,
    capacity: CapacityType,
    gpus: u64,
}

/// A bill that was made again, and the names of what is on it.
pub struct Named {
    /// The bill.
    pub bill: Recomputed,
    who: BTreeMap<JobId, Who>,
    what: Vec<What>,
    /// The zone that is billed in.
    pub zone: String,
}

impl Named {
    /// Nothing yet, in slots of so many milliseconds.
    pub fn in_slots_of(slot_ms: u64) -> Named {
        let bill = Recomputed::in_slots_of(slot_ms);
        Named { bill, who: BTreeMap::new(), what: Vec::new(), zone: String::new() }
    }

    /// After each record: what there is.
    pub fn look(&mut self, state: &State) {
        self.bill.look(state);
        self.zone = state.policy().and_then(|p| Some(p.billing.as_ref()?.zone.clone())).unwrap_or_default();
        // An offering stays what it is; more of them may come.
        let more = state.offerings().iter().skip(self.what.len()).map(|row| &row.offer);
        self.what.extend(more.map(|offer| What {
            instance_type: offer.instance_type.clone(),
            capacity: offer.capacity,
            gpus: offer.gpus.into(),
        }));
        for (job, spec) in state.jobs().filter(|(job, _)| !job.places.is_empty()) {
            self.who.entry(job.id).or_insert_with(|| Who {
                tenant: spec.tenant.clone(),
                queue: spec.queue.clone(),
                tier: state.policy().unwrap().tiers[job.tier.index()].name.clone(),
                labels: spec.labels.clone(),
            });
        }
    }

    /// The rows by something: micro-dollars, millionths of a GPU-hour, millionths of spot.
    pub fn rows(&self, by: &str) -> BTreeMap<String, [i64; 3]> {
        // Shares of all nodes that there are, to a common number: 1000 x 1, 2, 4, 8 GPUs or a million.
        let common: u128 = 8_000_000;
        let all = common * u128::from(HOUR);
        let mut sums: BTreeMap<String, [u128; 3]> = BTreeMap::new();
        for (used, amount) in self.bill.used.iter().filter(|(_, amount)| **amount > 0) {
            let what = &self.what[used.stretch.offering];
            let shares = if what.gpus == 0 { 1_000_000 } else { 1000 * u128::from(what.gpus) };
            assert_eq!(common % shares, 0, "{} GPUs", what.gpus);
            let sum = sums.entry(self.key(by, used, what)).or_default();
            sum[0] += u128::from(used.stretch.price) * amount * (common / shares);
            if what.gpus > 0 {
                sum[1] += amount;
                sum[2] += if what.capacity == CapacityType::Spot { *amount } else { 0 };
            }
        }
        let total: u128 = sums.values().map(|sum| sum[0]).sum();
        let down: u128 = sums.values().map(|sum| sum[0] / all).sum();
        let missing = (total * 2 + all) / (all * 2) - down;
        let mut order: Vec<(std::cmp::Reverse<u128>, &String)> =
            sums.iter().map(|(key, sum)| (std::cmp::Reverse(sum[0] % all), key)).collect();
        order.sort();
        let more: Vec<String> = order.into_iter().take(missing as usize).map(|(_, key)| key.clone()).collect();
        let row = |(key, [money, gpu, spot]): (&String, &[u128; 3])| {
            let micro = (money / all) as i64 + i64::from(more.contains(key));
            let hours = ((gpu * 2 + 3_600) / 7_200) as i64;
            (key.clone(), [micro, hours, (spot * 1_000_000).checked_div(*gpu).unwrap_or(0) as i64])
        };
        sums.iter().map(row).collect()
    }

    /// The rows with what was nobody's spread over the jobs of its pool, in dollars and not exactly.
    pub fn spread(&self, by: &str) -> BTreeMap<String, f64> {
        let mut own: BTreeMap<(String, String), f64> = BTreeMap::new();
        let mut nobodys: Vec<(String, String, f64)> = Vec::new();
        let (mut used_in, mut unused_in): (BTreeMap<String, f64>, BTreeMap<String, f64>) = Default::default();
        for (used, amount) in self.bill.used.iter().filter(|(_, amount)| **amount > 0) {
            let what = &self.what[used.stretch.offering];
            let shares = if what.gpus == 0 { 1e6 } else { 1e3 * what.gpus as f64 };
            let usd = used.stretch.price as f64 / 1e6 * (*amount as f64 / shares / HOUR as f64);
            let (pool, name) = (used.stretch.pool.clone(), self.key(by, used, what));
            if used.job.is_none() {
                nobodys.push((pool, name, usd));
            } else {
                *used_in.entry(pool.clone()).or_default() += usd;
                *own.entry((pool, name)).or_default() += usd;
            }
        }
        let mut rows: BTreeMap<String, f64> = BTreeMap::new();
        for (pool, name, usd) in nobodys {
            if used_in.contains_key(&pool) {
                *unused_in.entry(pool).or_default() += usd;
            } else {
                *rows.entry(name).or_default() += usd;
            }
        }
        for ((pool, name), usd) in own {
            let more = unused_in.get(&pool).copied().unwrap_or_default();
            *rows.entry(name).or_default() += usd * (1.0 + more / used_in[&pool]);
        }
        rows
    }

    fn key(&self, by: &str, used: &Use, what: &What) -> String {
        match by {
            "pool" => return used.stretch.pool.clone(),
            "capacity" => return what.capacity.as_str().to_owned(),
            "type" => return what.instance_type.clone(),
            "kind" => return used.kind.to_owned(),
            "day" => {
                let at = jiff::Timestamp::from_millisecond(used.stretch.slot as i64).unwrap();
                // Where a policy says nothing of bills, their days are those of UTC.
                let zone = if self.zone.is_empty() { "UTC" } else { self.zone.as_str() };
                return at.in_tz(zone).unwrap().date().to_string();
            }
            _ => {}
        }
        let Some(id) = used.job else { return format!("({}, pool {})", used.kind, used.stretch.pool) };
        let who = &self.who[&id];
        match by {
            "queue" => who.queue.clone(),
            "tenant" => who.tenant.clone(),
            "tier" => who.tier.clone(),
            "job" => format!("job-{}", id.0),
            label => {
                let name = label.strip_prefix("label:").unwrap();
                who.labels.get(name).cloned().unwrap_or_else(|| format!("(no {name})"))
            }
        }
    }
}
