//! Pools: types and zones that exist, ceilings and limits above floors, schedules that have an effect, one bid for one offering.
//!
//! Never: reads queues.

use super::super::fault::{meant, nearest, shown};
use super::super::tree::Value;
use super::super::words::{InstanceTypes, KeepReady};
use super::super::written::{WrittenBuys, WrittenCeiling, WrittenPool, WrittenWhenLate};
use super::{Check, MAX_POOLS, NAME_RULE, is_name};
use forebay_catalog::{PriceRow, offering};
use forebay_kernel::catalog::{CapacityType, Offering};
use forebay_kernel::units::{Mib, Rate};
use forebay_quantity::{PerHour, Percent};
use std::collections::{BTreeMap, BTreeSet};

/// What one pool can buy, before any ceiling.
#[derive(Clone, Debug, Default)]
pub struct PoolStock {
    /// Offerings in the order of the catalogue, zones and capacity types inside.
    pub offerings: Vec<Offering>,
    /// Types whose mean spot price is above the pool's bid: not offered as spot.
    pub outbid: Vec<String>,
    /// How much of a GPU each of its GPUs is, in thousandths, and the least memory of any. `None`: they are whole.
    pub fraction: Option<(u16, Mib)>,
}

impl PoolStock {
    /// The fewest GPUs that so many nodes of the pool have.
    fn fewest_gpus(&self, nodes: u32) -> u64 {
        self.least(nodes, |offering| u64::from(offering.gpus))
    }

    /// The least that so many nodes of the pool cost, spot at its maximum price.
    fn least_spend(&self, nodes: u32) -> Rate {
        Rate(self.least(nodes, |offering| offering.max_price.0))
    }

    fn least(&self, nodes: u32, of: impl Fn(&Offering) -> u64) -> u64 {
        self.offerings.iter().map(of).min().unwrap_or(0).saturating_mul(u64::from(nodes))
    }
}

/// GPUs on a node at most; the engine's bound.
const MAX_NODE_GPUS: u32 = 64;

impl Check<'_> {
    pub(super) fn pools(&mut self) -> Vec<PoolStock> {
        if let Some(pools) = &self.written.pools {
            if pools.is_empty() {
                let remedy = "declare one, or leave `pools` out for one pool of any instance type";
                self.at_key(&["pools"], "no pool is declared", remedy);
            }
            let remedy = "merge some of them: a pool may have many instance types";
            self.at_most("pools", pools.len(), MAX_POOLS, remedy);
        }
        let pools = self.filled.pools.as_ref().into_iter().flatten();
        let stock: Vec<PoolStock> = pools.map(|(name, pool)| self.pool(name, pool)).collect();
        self.limits(&stock);
        self.one_bid(&stock);
        self.one_owner();
        stock
    }

    /// The limits, and what all pools keep ready together against them.
    fn limits(&mut self, stock: &[PoolStock]) {
        // Other sections may be empty. Here nothing would be no bound at all.
        if self.tree.child("limits").is_some_and(|(limits, _)| limits.value == Value::Null) {
            let remedy = "write a bound, such as `limits: {nodes: 120, spend: 2500 USD/h}`, or remove the key";
            self.at_key(&["limits"], "nothing stands here", remedy);
        }
        let (mut nodes, mut gpus, mut spend) = (0_u64, 0_u64, 0_u64);
        for ((_, pool), stock) in self.filled.pools.iter().flatten().zip(stock) {
            nodes += u64::from(floor(pool));
            // Schedules of two pools may never overlap.
            let always = always(pool);
            gpus = gpus.saturating_add(stock.fewest_gpus(always));
            spend = spend.saturating_add(stock.least_spend(always).0);
        }
        let limits = self.filled.limits.unwrap_or_default();
        if let Some(bound) = limits.nodes.filter(|n| u64::from(*n) < nodes) {
            let what = format!("limits.nodes is {bound}, but the pools keep {nodes} nodes ready together");
            self.at(&["limits", "nodes"], what, "raise it, or keep fewer nodes ready");
        }
        if let Some(bound) = limits.gpus.filter(|g| u64::from(*g) < gpus) {
            let what = format!(
                "limits.gpus is {bound}, but the nodes that the pools keep ready have {gpus} GPUs together at least"
            );
            self.at(&["limits", "gpus"], what, format!("raise it to {gpus} or more, or keep fewer nodes ready"));
        }
        if let Some(bound) = limits.spend.filter(|s| s.0.0 < spend) {
            let least = PerHour(Rate(spend));
            let what = format!(
                "limits.spend is {bound}, but the nodes that the pools keep ready cost {least} together at least"
            );
            self.at(&["limits", "spend"], what, format!("raise it to {least} or more, or keep fewer nodes ready"));
        }
    }

    fn pool(&mut self, name: &str, pool: &WrittenPool) -> PoolStock {
        if !is_name(name) {
            self.at_key(&["pools", name], format!("`{}` cannot be a pool's name", shown(name)), NAME_RULE);
        }
        if let Some(owned) = &pool.owned {
            self.owned(name, owned);
            return PoolStock::default();
        }
        self.instance_types(name, pool);
        self.zones(name, pool);
        if pool.spot.and_then(|s| s.max_price).is_some_and(|p| p.0 == 0) {
            let what = format!("pool `{name}` bids 0 % for spot and can never get any");
            self.at(&["pools", name, "spot", "maxPrice"], what, "raise it, or use tiers that buy on-demand");
        }
        self.schedule(name, pool);
        self.fractions(name, pool);
        let stock = self.stock(pool);
        self.sharing(name, pool, &stock);
        self.floor_fits(name, pool, &stock);
        stock
    }

    fn instance_types(&mut self, name: &str, pool: &WrittenPool) {
        let Some(InstanceTypes::Listed(globs)) = &pool.instance_types else {
            return;
        };
        if globs.is_empty() {
            let what = format!("pool `{name}` has no instance type");
            self.at_key(&["pools", name, "instanceTypes"], what, "name some, or write `any`");
        }
        let known: BTreeSet<&str> = self.catalogue.rows.iter().map(|r| r.instance_type.as_str()).collect();
        for (at, glob) in globs.iter().enumerate() {
            let path = ["pools", name, "instanceTypes", &at.to_string()];
            let rows = self.catalogue.rows_named(std::slice::from_ref(glob));
            if let Some(row) = rows.iter().min_by_key(|row| row.gpus) {
                // Of several that match, those with more GPUs are left out.
                if row.gpus > MAX_NODE_GPUS {
                    let what = format!(
                        "`{}` has {} GPUs, more than the {MAX_NODE_GPUS} that a node may have",
                        shown(&row.instance_type),
                        row.gpus
                    );
                    self.at(&path, what, format!("remove `{}`: no such node is ever bought", shown(glob)));
                }
                continue;
            }
            if self.catalogue.is_elsewhere(glob) {
                continue;
            }
            if let Some(fraction) = self.catalogue.fraction_like(glob) {
                let what = format!("`{}` matches only types with a part of a GPU, which are had by name", shown(glob));
                self.at(&path, what, format!("name them without wildcards, such as `{fraction}`"));
            } else if glob.contains(['*', '?']) {
                let some = known.iter().next().copied().unwrap_or_default();
                let remedy =
                    format!("write a type of the catalogue such as `{some}`, a glob that matches some, or `any`");
                self.at(&path, format!("no instance type matches `{}`", shown(glob)), remedy);
            } else {
                let near = nearest(glob, known.iter().copied());
                let remedy = if near.is_empty() {
                    "use a type of the catalogue, or add it to the catalogue".to_owned()
                } else {
                    meant(glob, near)
                };
                self.at(&path, format!("the catalogue has no instance type `{}`", shown(glob)), remedy);
            }
        }
    }

    /// A part of a GPU is never taken for a whole one: types with one have a pool of their own, all of one size.
    fn fractions(&mut self, name: &str, pool: &WrittenPool) {
        let Some(InstanceTypes::Listed(names)) = &pool.instance_types else { return };
        let rows = self.catalogue.rows_named(names);
        let Some(first) = rows.iter().find(|r| r.is_fractional()) else { return };
        let size = |row: &PriceRow| (row.is_fractional(), row.gpu_milli);
        let Some(other) = rows.iter().find(|r| size(r) != size(first)) else { return };
        let has = |row: &PriceRow| match (row.gpus, row.is_fractional()) {
            (0, _) => format!("`{}` has none", row.instance_type),
            (_, true) => format!("`{}` has {} of a GPU", row.instance_type, Percent(row.gpu_milli)),
            (_, false) => format!("`{}` has whole ones", row.instance_type),
        };
        let what = format!("pool `{name}` mixes parts of a GPU with others: {}, {}", has(first), has(other));
        let remedy = format!("give `{}` a pool of its own, with types of the same part only", first.instance_type);
        let at = names.iter().position(|n| *n == first.instance_type).unwrap_or(0).to_string();
        self.at(&["pools", name, "instanceTypes", &at], what, remedy);
    }

    fn zones(&mut self, name: &str, pool: &WrittenPool) {
        let Some(zones) = &pool.zones else { return };
        if zones.is_empty() {
            let what = format!("pool `{name}` has no zone");
            self.at_key(&["pools", name, "zones"], what, "name some, or leave `zones` out for all");
        }
        for (at, zone) in zones.iter().enumerate() {
            if !self.catalogue.has_zone(zone) {
                let remedy = meant(zone, self.catalogue.zones.iter().map(String::as_str));
                let what = format!("the cloud has no zone `{}`", shown(zone));
                self.at(&["pools", name, "zones", &at.to_string()], what, remedy);
            }
        }
    }

    /// All offerings of a pool. What no tier would ever buy is left out.
    fn stock(&self, pool: &WrittenPool) -> PoolStock {
        let buys = |wanted: &[WrittenBuys]| {
            self.filled.tiers.as_ref().into_iter().flatten().any(|(_, t)| t.buys.is_some_and(|b| wanted.contains(&b)))
        };
        let spot = buys(&[WrittenBuys::Spot, WrittenBuys::SpotThenOnDemand]);
        let late = self.filled.queues.iter().flatten().filter_map(|(_, q)| q.start?.when_late);
        let rescues = late.into_iter().any(|w| w == WrittenWhenLate::BuyOnDemand);
        let on_demand = rescues || buys(&[WrittenBuys::OnDemand, WrittenBuys::SpotThenOnDemand]);
        let bid = pool.spot.and_then(|s| s.max_price).map_or(1000, |p| p.0);
        let rows = match &pool.instance_types {
            None | Some(InstanceTypes::Any) => self.catalogue.rows_of_whole_gpus(),
            Some(InstanceTypes::Listed(globs)) => self.catalogue.rows_named(globs),
        };
        let zones = pool.zones.as_deref().unwrap_or(&self.catalogue.zones);
        let mut stock = PoolStock::default();
        for row in rows.into_iter().filter(|r| r.gpus <= MAX_NODE_GPUS) {
            if row.is_fractional() {
                let mem = Mib(u64::from(row.gpu_mem_mib));
                let least = stock.fraction.map_or(mem, |(_, least)| least.min(mem));
                stock.fraction = Some((row.gpu_milli, least));
            }
            let spot = spot && self.catalogue.sells_spot(&row.instance_type);
            let outbid = row.spot_permille > u32::from(bid);
            if spot && outbid {
                stock.outbid.push(row.instance_type.clone());
            }
            for zone in zones {
                if self.catalogue.has_reserved(&row.instance_type, zone) {
                    stock.offerings.push(offering(row, zone, CapacityType::Reserved, bid));
                }
                if spot && !outbid {
                    stock.offerings.push(offering(row, zone, CapacityType::Spot, bid));
                }
                if on_demand {
                    stock.offerings.push(offering(row, zone, CapacityType::OnDemand, bid));
                }
            }
        }
        stock
    }

    /// A time zone without hours has no effect.
    fn schedule(&mut self, name: &str, pool: &WrittenPool) {
        let Some(KeepReady::Scheduled(lines)) = &pool.keep_ready else { return };
        for (at, _) in lines.iter().enumerate().filter(|(_, l)| l.zone.is_some() && l.when.is_none()) {
            let what = format!("pool `{name}` names a time zone, but no hours in it");
            let place = at.to_string();
            self.at(&["pools", name, "keepReady", &place, "zone"], what, "add `when:`, such as `Mon-Fri 09:00-18:00`");
        }
        for (at, line) in lines.iter().enumerate().filter(|(_, l)| l.low.is_some() || l.high.is_some()) {
            let place = at.to_string();
            let place = ["pools", name, "keepReady", &place];
            let (low, high) = (line.low.unwrap_or(line.nodes), line.high.unwrap_or(line.nodes));
            if line.low.is_none() || line.high.is_none() {
                let what = format!("pool `{name}` has one watermark without the other");
                self.at(&place, what, "write both, such as `{nodes: 10, low: 2, high: 16}`");
            } else if lines.len() > 1 || line.when.is_some() {
                let what = format!("pool `{name}` has watermarks beside hours or other lines");
                self.at(
                    &place,
                    what,
                    "watermarks are for one line that always holds: leave out `when` and the other lines",
                );
            } else if low == 0 || low > line.nodes || high < line.nodes {
                let what = format!("pool `{name}` keeps {} nodes between watermarks of {low} and {high}", line.nodes);
                self.at(&place, what, "write `low` from 1 to `nodes`, and `high` from `nodes` on");
            }
        }
    }

    fn floor_fits(&mut self, name: &str, pool: &WrittenPool, stock: &PoolStock) {
        let floor = floor(pool);
        let ceiling = pool.ceiling.unwrap_or_default();
        if floor == 0 {
            return;
        }
        let (gpus, spend) = (stock.fewest_gpus(floor), stock.least_spend(floor));
        let (bound, field, least) = if let Some(nodes) = ceiling.nodes.filter(|n| *n < floor) {
            (format!(", but its ceiling is {nodes} nodes"), "nodes", floor.to_string())
        } else if let Some(bound) = ceiling.gpus.filter(|g| u64::from(*g) < gpus) {
            (format!(", which are {gpus} GPUs at least, but its ceiling is {bound} GPUs"), "gpus", gpus.to_string())
        } else if let Some(bound) = ceiling.spend.filter(|s| s.0 < spend) {
            let least = PerHour(spend).to_string();
            (format!(", which cost {least} at least, but its ceiling is {bound}"), "spend", least)
        } else {
            return;
        };
        let remedy = format!("raise ceiling.{field} to {least} or more, or keep fewer");
        self.at(&["pools", name, "keepReady"], format!("pool `{name}` keeps {floor} nodes ready{bound}"), remedy);
    }

    /// Two pools that offer the same thing must bid the same for it: an offering has one maximum price.
    fn one_bid(&mut self, stock: &[PoolStock]) {
        let names: Vec<&str> = self.filled.pools.iter().flatten().map(|(n, _)| n.as_str()).collect();
        let mut first: BTreeMap<(String, String), (usize, u64)> = BTreeMap::new();
        let mut reported: BTreeSet<(usize, usize)> = BTreeSet::new();
        for (at, pool) in stock.iter().enumerate() {
            for o in pool.offerings.iter().filter(|o| o.capacity == CapacityType::Spot) {
                let key = (o.instance_type.clone(), o.zone.clone());
                let (other, price) = *first.entry(key).or_insert((at, o.max_price.0));
                if price != o.max_price.0 && reported.insert((other, at)) {
                    let what = format!(
                        "pools `{}` and `{}` both offer {} in {}, but bid differently for it",
                        names[other], names[at], o.instance_type, o.zone
                    );
                    let remedy = "give both the same spot.maxPrice, or part their types or zones";
                    self.at(&["pools", names[at], "spot", "maxPrice"], what, remedy);
                }
            }
        }
    }
}

/// The nodes that a pool keeps ready at all times.
fn always(pool: &WrittenPool) -> u32 {
    match &pool.keep_ready {
        None => 0,
        Some(KeepReady::Always(nodes)) => *nodes,
        Some(KeepReady::Scheduled(lines)) => {
            lines.iter().filter(|line| line.when.is_none()).map(|line| line.nodes).max().unwrap_or(0)
        }
    }
}

/// The most nodes that a pool keeps ready at any time.
pub(super) fn floor(pool: &WrittenPool) -> u32 {
    match &pool.keep_ready {
        None => 0,
        Some(KeepReady::Always(nodes)) => *nodes,
        Some(KeepReady::Scheduled(lines)) => lines.iter().map(|l| l.nodes.max(l.high.unwrap_or(0))).max().unwrap_or(0),
    }
}

/// Which dimension of a ceiling forbids even one node of this offering; `None`: it fits.
pub(super) fn forbids(ceiling: &WrittenCeiling, o: &Offering) -> Option<(&'static str, String)> {
    let on_demand = o.capacity == CapacityType::OnDemand;
    if ceiling.nodes == Some(0) {
        Some(("nodes", "0 nodes".to_owned()))
    } else if on_demand && ceiling.on_demand_nodes == Some(0) {
        Some(("onDemandNodes", "0 on-demand nodes".to_owned()))
    } else if let Some(gpus) = ceiling.gpus.filter(|g| *g < u32::from(o.gpus)) {
        Some(("gpus", format!("{gpus} GPUs")))
    } else {
        ceiling.spend.filter(|s| s.0 < o.max_price).map(|s| ("spend", s.to_string()))
    }
}
