//! The current spot prices by type and zone, from DescribeSpotPriceHistory.
//!
//! A history that starts now contains the current price, which began earlier (EC2 API reference, "DescribeSpotPriceHistory"). The decimal text
//! is converted to whole micro-dollars and rounded up, without floating point.

use super::{LookupError, Pages, filter_values};
use crate::sdk::{Client, filter, send};
use aws_sdk_ec2::types::SpotPrice;
use aws_smithy_types::DateTime;
use forebay_kernel::units::{Rate, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Prices per page, EC2's maximum.
const PAGE: i32 = 1000;

/// The product of Linux instances.
const PRODUCT: &str = "Linux/UNIX";

/// A price above 10,000 dollars per hour has a wrong unit.
const MAX_MICRO_DOLLARS: u64 = 10_000_000_000;

/// An instance type in a zone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpotMarket {
    /// The instance type.
    pub instance_type: String,
    /// The availability zone.
    pub zone: String,
}

/// The newest price of each of these types in each of these zones, in micro-dollars per hour. Markets without a price are left out.
///
/// # Errors
/// The prices could not be read completely.
pub async fn spot_prices(
    client: &Client,
    now: Timestamp,
    types: &BTreeSet<String>,
    zones: &BTreeSet<String>,
) -> Result<BTreeMap<SpotMarket, Rate>, LookupError> {
    let mut newest: BTreeMap<SpotMarket, (DateTime, Rate)> = BTreeMap::new();
    let start = DateTime::from_millis(i64::try_from(now.0).unwrap_or(i64::MAX));
    for zones in filter_values(zones) {
        for names in filter_values(types) {
            let mut pages = Pages::default();
            loop {
                let call = client.describe_spot_price_history().start_time(start).product_descriptions(PRODUCT);
                let call = call.filters(filter("instance-type", names.iter().cloned()));
                let call = call.filters(filter("availability-zone", zones.iter().cloned()));
                let page = send(call.max_results(PAGE).set_next_token(pages.next_token()).send()).await?;
                for (market, at, rate) in page.spot_price_history().iter().filter_map(price) {
                    let newest = newest.entry(market).or_insert((at, rate));
                    if at > newest.0 {
                        *newest = (at, rate);
                    }
                }
                if !pages.advance(page.next_token())? {
                    break;
                }
            }
        }
    }
    Ok(newest.into_iter().map(|(market, (_, rate))| (market, rate)).collect())
}

/// `None` for an unreadable price.
fn price(of: &SpotPrice) -> Option<(SpotMarket, DateTime, Rate)> {
    let instance_type = of.instance_type()?.as_str().to_owned();
    let market = SpotMarket { instance_type, zone: of.availability_zone()?.to_owned() };
    let text = of.spot_price()?;
    let rate = micro_dollars(text);
    if rate.is_none() {
        tracing::warn!("ec2: the spot price {text:?} of {} in {} is not a price", market.instance_type, market.zone);
    }
    Some((market, *of.timestamp()?, rate?))
}

/// Converts dollars per hour in decimal, digits with at most one point, to micro-dollars per hour, rounded up.
#[must_use]
pub fn micro_dollars(text: &str) -> Option<Rate> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && part.is_empty()) || !digits(whole) || !digits(part) {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let (six, rest) = part.split_at(part.len().min(6));
    let six: u64 = format!("{six:0<6}").parse().ok()?;
    let up = u64::from(rest.bytes().any(|b| b != b'0'));
    let micros = whole.checked_mul(1_000_000)?.checked_add(six)?.checked_add(up)?;
    (micros > 0 && micros <= MAX_MICRO_DOLLARS).then_some(Rate(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_rounded_up_to_the_micro_dollar() {
        for (text, micros) in [
            ("0.362160", Some(362_160)),
            ("0.3621600", Some(362_160)),
            ("0.3621601", Some(362_161)),
            ("0.9999991", Some(1_000_000)),
            ("12", Some(12_000_000)),
            ("12.", Some(12_000_000)),
            (".5", Some(500_000)),
            ("0.0000000001", Some(1)),
            ("10000", Some(10_000_000_000)),
            ("10000.000001", None),
            ("99999999999999999999", None),
            ("0.000000", None),
            ("", None),
            (".", None),
            ("-1", None),
            ("+1", None),
            ("1e-1", None),
            ("0,5", None),
            (" 1", None),
            ("1.2.3", None),
            ("½", None),
            ("NaN", None),
        ] {
            assert_eq!(micro_dollars(text), micros.map(Rate), "{text:?}");
        }
    }
}
