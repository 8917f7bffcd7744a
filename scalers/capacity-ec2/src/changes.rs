//! What AWS has planned for instances: retirements, reboots and maintenance, as DescribeInstanceStatus has it.
//!
//! They are announced days ahead, once, when the instance may have nothing to do with the day yet. So they are not remembered: EC2 is asked
//! again, and again after each start.
//!
//! Never: what is over. EC2 shows it for days, and says so in its description alone.

use crate::offerings::{Pages, Unknown};
use crate::wire::{Client, filter, within};
use aws_sdk_ec2::types::InstanceStatusEvent;
use forebay_engine::units::Millis;
use std::collections::BTreeMap;

/// The kinds of changes (EC2 User Guide, "Scheduled events for your instances"). Each stops what runs there.
const CODES: [&str; 5] =
    ["instance-reboot", "instance-retirement", "instance-stop", "system-maintenance", "system-reboot"];

/// Instances of one page: the most that EC2 gives.
const PAGE: i32 = 1000;

/// When the next change of each instance begins, for all running instances of the account that have one.
///
/// # Errors
/// Why they are not known.
pub async fn changes(client: &Client) -> Result<BTreeMap<String, Millis>, Unknown> {
    let mut found: BTreeMap<String, Millis> = BTreeMap::new();
    let mut pages = Pages::default();
    loop {
        let call = client.describe_instance_status().filters(filter("event.code", CODES.map(str::to_owned)));
        let page = within(call.max_results(PAGE).set_next_token(pages.from()).send()).await?;
        for status in page.instance_statuses() {
            let next = status.events().iter().filter_map(begins).min();
            if let (Some(instance), Some(at)) = (status.instance_id(), next) {
                let first = found.entry(instance.to_owned()).or_insert(at);
                *first = at.min(*first);
            }
        }
        if !pages.turn(page.next_token())? {
            return Ok(found);
        }
    }
}

fn begins(change: &InstanceStatusEvent) -> Option<Millis> {
    let over = change.description().is_some_and(|d| d.starts_with("[Completed]") || d.starts_with("[Canceled]"));
    let at = change.not_before().filter(|_| !over)?;
    at.to_millis().ok().and_then(|ms| u64::try_from(ms).ok()).map(Millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_smithy_types::DateTime;

    #[test]
    fn what_is_over_or_has_no_time_is_no_change() {
        let change = InstanceStatusEvent::builder().not_before(DateTime::from_secs(60));
        let at = |text: &str| begins(&change.clone().description(text).build());
        assert_eq!(at("The instance is running on degraded hardware"), Some(Millis(60_000)));
        assert_eq!((at("[Completed] reboot"), at("[Canceled] reboot")), (None, None));
        assert_eq!(begins(&InstanceStatusEvent::builder().build()), None);
    }
}
