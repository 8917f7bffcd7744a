//! What the cloud sells, as the compiler sees it: price rows x zones, and the globs that choose among them.
//!
//! Never: knows stock, or a price of the day. The list price and the mean spot price enter the policy; the market moves them.

use crate::prices::{self, PriceRow};
use forebay_kernel::catalog::{CapacityType, Offering};
use forebay_kernel::units::{Mib, MilliCpu, Rate, Span};
use std::collections::{BTreeMap, BTreeSet};

/// Instance types with prices, and the zones that they are sold in.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    /// The price rows. Every type is sold in every zone.
    pub rows: Vec<PriceRow>,
    /// The zones.
    pub zones: Vec<String>,
    /// Sold in any zone that a policy names: the simulated cloud has them all.
    pub everywhere: bool,
    /// Types that are not sold as spot.
    pub not_spot: BTreeSet<String>,
    /// What is paid for already, by type and zone.
    pub reserved: BTreeSet<(String, String)>,
    /// Types that other clouds sell: a policy may name them beside those that can be had here.
    pub elsewhere: BTreeSet<String>,
    /// How many EFA interfaces each type takes, 0 for those without; absent where the cloud has not said so.
    pub efa: BTreeMap<String, u32>,
}

impl Catalogue {
    /// The zones of the simulated cloud, where a policy names none.
    pub const SIMULATED_ZONES: [&'static str; 3] = ["sim-1a", "sim-1b", "sim-1c"];

    /// The built-in price rows in the simulated cloud, which has whatever zone a policy names.
    #[must_use]
    pub fn builtin() -> Catalogue {
        let zones = Self::SIMULATED_ZONES.map(str::to_owned).to_vec();
        Catalogue { rows: prices::builtin(), zones, everywhere: true, ..Catalogue::default() }
    }

    /// The same, sold in these zones too.
    #[must_use]
    pub fn with_zones<'a>(mut self, more: impl Iterator<Item = &'a str>) -> Catalogue {
        for zone in more {
            if !self.zones.iter().any(|z| z == zone) {
                self.zones.push(zone.to_owned());
            }
        }
        self
    }

    /// Whether some of a type in a zone is paid for already.
    #[must_use]
    pub fn has_reserved(&self, instance_type: &str, zone: &str) -> bool {
        self.reserved.contains(&(instance_type.to_owned(), zone.to_owned()))
    }

    /// Whether a glob names what another cloud sells.
    #[must_use]
    pub fn is_elsewhere(&self, glob: &str) -> bool {
        self.elsewhere.iter().any(|name| matches_glob(glob, name))
    }

    /// Whether a type is sold as spot.
    #[must_use]
    pub fn sells_spot(&self, instance_type: &str) -> bool {
        !self.not_spot.contains(instance_type)
    }

    /// Whether the cloud has a zone of that name.
    #[must_use]
    pub fn has_zone(&self, zone: &str) -> bool {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let shaped = !zone.is_empty() && zone.len() <= 64 && zone.chars().all(plain);
        self.zones.iter().any(|z| z == zone) || (self.everywhere && shaped)
    }

    /// The rows whose types a list of names and globs takes, in the catalogue's order. Parts of a GPU are had by name only.
    #[must_use]
    pub fn rows_named(&self, globs: &[String]) -> Vec<&PriceRow> {
        let named = |row: &PriceRow, glob: &str| {
            let name = row.instance_type.as_str();
            if row.is_fractional() { glob == name } else { matches_glob(glob, name) }
        };
        self.rows.iter().filter(|row| globs.iter().any(|glob| named(row, glob))).collect()
    }

    /// The rows of types without GPUs and with whole ones, in the catalogue's order.
    #[must_use]
    pub fn rows_of_whole_gpus(&self) -> Vec<&PriceRow> {
        self.rows.iter().filter(|row| !row.is_fractional()).collect()
    }

    /// The first type with parts of a GPU that a glob would match, were they not had by name only.
    #[must_use]
    pub fn fraction_like(&self, glob: &str) -> Option<&str> {
        let matched = |r: &&PriceRow| r.is_fractional() && matches_glob(glob, &r.instance_type);
        self.rows.iter().find(matched).map(|r| r.instance_type.as_str())
    }
}

/// An offering of a price row. `max_price` is what ceilings book: for spot a part of the on-demand price, in thousandths.
#[must_use]
pub fn offering(row: &PriceRow, zone: &str, capacity: CapacityType, spot_max_permille: u16) -> Offering {
    let on_demand = Rate(row.on_demand_micros_per_hour);
    // Rounded up: a bound in money may be missed by a micro-dollar on the safe side only.
    let booked = Rate(on_demand.0.saturating_mul(u64::from(spot_max_permille)).div_ceil(1000));
    let (price, max_price) = match capacity {
        CapacityType::Spot => (Rate(row.spot_micros_per_hour()), booked),
        CapacityType::Reserved | CapacityType::OnDemand | CapacityType::Owned => (on_demand, on_demand),
    };
    let mut models: Vec<String> =
        std::iter::once(&row.gpu_model).chain(&row.aliases).map(|m| m.to_lowercase()).collect();
    models.retain(|m| !m.is_empty());
    Offering {
        instance_type: row.instance_type.clone(),
        zone: zone.to_owned(),
        capacity,
        gpus: u16::try_from(row.gpus).unwrap_or(u16::MAX),
        gpu_mem: Mib(u64::from(row.gpu_mem_mib)),
        models,
        cpu: MilliCpu(row.cpu_milli),
        mem: Mib(row.mem_mib),
        price,
        max_price,
        on_demand,
        boot: Span(row.boot_ms),
        nvlink: row.nvlink_group(),
        numa: row.numa_group(),
    }
}

/// Whether a glob matches: `*` is any run of characters, `?` any one.
#[must_use]
pub fn matches_glob(glob: &str, name: &str) -> bool {
    let (glob, name): (Vec<char>, Vec<char>) = (glob.chars().collect(), name.chars().collect());
    let (mut g, mut n) = (0, 0);
    // Where to go on when a run must be one longer.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match glob.get(g) {
            Some('*') => {
                star = Some((g + 1, n));
                g += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => (g, n) = (g + 1, n + 1),
            _ => match star {
                Some((after, from)) => {
                    star = Some((after, from + 1));
                    (g, n) = (after, from + 1);
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_as_in_a_shell() {
        for (glob, name, yes) in [
            ("g5.*", "g5.xlarge", true),
            ("g5.*", "g5n.xlarge", false),
            ("*", "", true),
            ("*.48xlarge", "p5.48xlarge", true),
            ("p?.48xlarge", "p5.48xlarge", true),
            ("p?.48xlarge", "p.48xlarge", false),
            ("p*l*e", "p5.48xlarge", true),
            ("p5.48xlarge", "p5.48xlarge", true),
            ("p5.48xlarge", "p5.48xlargex", false),
            ("a*b*c", "aXbX", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "xxaxxbxx", false),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(matches_glob(glob, name), yes, "{glob} {name}");
        }
    }
}
