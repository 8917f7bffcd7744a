//! A market out of a seed: dwell times drawn like the recorded ones, partial availability, a slow walk of the price.
//! It never makes one pair depend on another: adding a pair leaves the others as they were.

use super::{Market, MarketState, Pair, Series};
use crate::trace::SplitMix64;

/// Dwell times in s: the 0th to 90th percentile in tenths, then the 90th to 100th in hundredths.
struct Dwell([u64; 10], [u64; 11]);

/// How long spot stays there, as recorded in public probes of p2 and p3 instances in 2022 and 2023 (11 series, 1,708 dwells,
/// 7,291 s on average).
const UP: Dwell = Dwell(
    [300, 600, 600, 600, 1200, 1800, 2400, 4200, 7500, 17_400],
    [17_400, 19_200, 21_600, 24_600, 28_800, 33_000, 37_800, 47_100, 57_000, 88_200, 307_200],
);
/// How long it stays away, likewise (1,665 dwells); the longest, 14 days of one type in one zone, is cut to two.
const DOWN: Dwell = Dwell(
    [300, 600, 600, 600, 600, 1200, 1800, 3000, 4200, 11_400],
    [11_400, 12_600, 13_800, 15_000, 17_400, 19_800, 23_400, 33_000, 42_600, 76_200, 172_800],
);
/// How long a part of the capacity is there, likewise (431 dwells).
const PART: Dwell = Dwell(
    [300, 300, 300, 300, 300, 300, 300, 600, 600, 900],
    [900, 1200, 1200, 1200, 1200, 1200, 1200, 1500, 1800, 2100, 3300],
);
/// How lucky a pair is: its up times in 1/1000 of the recorded ones. Recorded series are there for 12 to 89 % of the time.
const LUCK: [u64; 5] = [350, 700, 1000, 1500, 4000];
/// The price moves at most this often, in ms: recorded prices stand still for hours.
const PRICE_EVERY_MS: u64 = 6 * 3_600_000;
/// The walk's bounds in 1/1000 of the mean price, and its longest step.
const PRICE: (u16, u16, u16) = (850, 1150, 25);

impl Market {
    /// A market drawn from `seed` up to `horizon_ms`, then repeating.
    #[must_use]
    pub fn seeded(seed: u64, pairs: &[(String, String)], horizon_ms: u64) -> Self {
        let period = horizon_ms.max(PRICE_EVERY_MS);
        let series = pairs.iter().map(|(t, z)| draw(seed, &format!("{t}@{z}"), period)).collect::<Vec<_>>();
        let pairs = pairs.iter().enumerate().map(|(n, (t, z))| Pair::new(t, z, n, 0)).collect();
        let origin = format!("drawn from seed {seed}, {} series of {} h", series.len(), period / 3_600_000);
        Self { pairs, series, droughts: Vec::new(), origin }
    }
}

fn draw(seed: u64, name: &str, period: u64) -> Series {
    let mut stock = SplitMix64::named(seed, name);
    let mut prices = SplitMix64::named(seed ^ 0x5bd1_e995, name);
    let (mut at, mut available, mut next_price, mut price) = (0u64, 1000u16, 0u64, 1000u16);
    let luck = stock.quantile(&LUCK);
    let mut until = UP.draw(&mut stock) * luck;
    let mut changes = Vec::new();
    while at < period {
        if at == next_price {
            price = walk(&mut prices, price);
            next_price = at.saturating_add(PRICE_EVERY_MS / 2 + prices.below(PRICE_EVERY_MS));
        }
        changes.push((at, MarketState { available_permille: available, price_permille: price }));
        at = until.min(next_price);
        if at == until {
            available = follow(&mut stock, available);
            let dwell = match available {
                1000 => UP.draw(&mut stock) * luck,
                0 => DOWN.draw(&mut stock) * 1000,
                _ => PART.draw(&mut stock) * 1000,
            };
            until = at.saturating_add(dwell);
        }
    }
    Series::new(changes, Some(period))
}

/// From whole or none, one time in four by way of a part: 431 of 1,708 + 1,665 + 431 dwells, of which a part has two sides.
fn follow(rng: &mut SplitMix64, available: u16) -> u16 {
    match available {
        0 | 1000 if rng.chance(250) => [250, 500, 750][usize::try_from(rng.below(3)).unwrap_or(0)],
        1000 => 0,
        0 => 1000,
        _ if rng.chance(500) => 1000,
        _ => 0,
    }
}

fn walk(rng: &mut SplitMix64, price: u16) -> u16 {
    let (low, high, longest) = PRICE;
    let step = u16::try_from(rng.below(2 * u64::from(longest) + 1)).unwrap_or(longest);
    (price + step).saturating_sub(longest).clamp(low, high)
}

impl Dwell {
    /// Seconds, at least 300: no dwell is empty.
    fn draw(&self, rng: &mut SplitMix64) -> u64 {
        if rng.chance(900) { rng.quantile(&self.0) } else { rng.quantile(&self.1) }
    }
}
