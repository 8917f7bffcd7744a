//! What spot costs now, by type and zone, as DescribeSpotPriceHistory has it.
//!
//! A history that starts now has the price that holds now, which began before (EC2 API reference, "DescribeSpotPriceHistory").
//!
//! Never: a float. Prices are decimal text there and whole micro-dollars here, rounded up.

use super::{Pages, Unknown, parts};
use crate::wire::{Client, filter, within};
use aws_sdk_ec2::types::SpotPrice;
use aws_smithy_types::DateTime;
use forebay_engine::units::{Millis, Rate};
use std::collections::{BTreeMap, BTreeSet};

/// Prices of one page: the most that EC2 gives.
const PAGE: i32 = 1000;

/// What a Linux instance is quoted under.
const PRODUCT: &str = "Linux/UNIX";

/// Above 10,000 dollars an hour the unit is wrong.
const MOST: u64 = 10_000_000_000;

/// The newest price of each of these types in each of these zones, in micro-dollars an hour; those that have none are absent.
///
/// # Errors
/// Why they are not known.
pub async fn prices(
    client: &Client,
    now: Millis,
    types: &BTreeSet<String>,
    zones: &BTreeSet<String>,
) -> Result<BTreeMap<(String, String), Rate>, Unknown> {
    let mut newest: BTreeMap<(String, String), (DateTime, Rate)> = BTreeMap::new();
    let start = DateTime::from_millis(i64::try_from(now.0).unwrap_or(i64::MAX));
    for zones in parts(zones) {
        for names in parts(types) {
            let mut pages = Pages::default();
            loop {
                let call = client.describe_spot_price_history().start_time(start).product_descriptions(PRODUCT);
                let call = call.filters(filter("instance-type", names.iter().cloned()));
                let call = call.filters(filter("availability-zone", zones.iter().cloned()));
                let page = within(call.max_results(PAGE).set_next_token(pages.from()).send()).await?;
                for (place, at, rate) in page.spot_price_history().iter().filter_map(price) {
                    let kept = newest.entry(place).or_insert((at, rate));
                    if at > kept.0 {
                        *kept = (at, rate);
                    }
                }
                if !pages.turn(page.next_token())? {
                    break;
                }
            }
        }
    }
    Ok(newest.into_iter().map(|(place, (_, rate))| (place, rate)).collect())
}

/// A price that cannot be read is none.
fn price(of: &SpotPrice) -> Option<((String, String), DateTime, Rate)> {
    let place = (of.instance_type()?.as_str().to_owned(), of.availability_zone()?.to_owned());
    let text = of.spot_price()?;
    let rate = micro_dollars(text);
    if rate.is_none() {
        tracing::warn!("ec2: the spot price {text:?} of {} in {} is none", place.0, place.1);
    }
    Some((place, *of.timestamp()?, rate?))
}

/// Dollars an hour as decimal text: digits with at most one point. Rounded up to the micro-dollar.
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
    (micros > 0 && micros <= MOST).then_some(Rate(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read_to_the_micro_dollar_and_rounded_up() {
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
