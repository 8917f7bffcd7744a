//! Reads the scheduled events of instances with DescribeInstanceStatus: retirements, reboots and maintenance.
//!
//! AWS announces them once and days ahead, so they are not remembered but read repeatedly, and after each start. EC2 returns past events for
//! days, marked only in their description; they are left out.

use crate::offerings::{LookupError, Pages};
use crate::sdk::{Client, filter, send};
use aws_sdk_ec2::types::InstanceStatusEvent;
use forebay_kernel::units::Timestamp;
use std::collections::BTreeMap;

/// The codes of the events (EC2 User Guide, "Scheduled events for your instances"). Each stops the programs on the instance.
const CODES: [&str; 5] =
    ["instance-reboot", "instance-retirement", "instance-stop", "system-maintenance", "system-reboot"];

/// Instances per page, EC2's maximum.
const PAGE: i32 = 1000;

/// When the next event of each instance begins, on AWS's clock, for all running instances of the account that have one.
///
/// # Errors
/// The events could not be read completely.
pub async fn scheduled_events(client: &Client) -> Result<BTreeMap<String, Timestamp>, LookupError> {
    let mut found: BTreeMap<String, Timestamp> = BTreeMap::new();
    let mut pages = Pages::default();
    loop {
        let call = client.describe_instance_status().filters(filter("event.code", CODES.map(str::to_owned)));
        let page = send(call.max_results(PAGE).set_next_token(pages.next_token()).send()).await?;
        for status in page.instance_statuses() {
            let next = status.events().iter().filter_map(begin).min();
            if let (Some(instance), Some(at)) = (status.instance_id(), next) {
                let first = found.entry(instance.to_owned()).or_insert(at);
                *first = at.min(*first);
            }
        }
        if !pages.advance(page.next_token())? {
            return Ok(found);
        }
    }
}

fn begin(event: &InstanceStatusEvent) -> Option<Timestamp> {
    let over = event.description().is_some_and(|d| d.starts_with("[Completed]") || d.starts_with("[Canceled]"));
    let at = event.not_before().filter(|_| !over)?;
    at.to_millis().ok().and_then(|ms| u64::try_from(ms).ok()).map(Timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_smithy_types::DateTime;

    #[test]
    fn past_events_and_events_without_a_time_are_left_out() {
        let event = InstanceStatusEvent::builder().not_before(DateTime::from_secs(60));
        let at = |text: &str| begin(&event.clone().description(text).build());
        assert_eq!(at("The instance is running on degraded hardware"), Some(Timestamp(60_000)));
        assert_eq!((at("[Completed] reboot"), at("[Canceled] reboot")), (None, None));
        assert_eq!(begin(&InstanceStatusEvent::builder().build()), None);
    }
}
