//! Delivers reports to the controller until it accepts them, or until they are no longer useful.
//!
//! An unreachable controller never makes it give up early, and a warning never waits because another report was not accepted.

use crate::controller_client::{ControllerClient, Delivery};
use crate::outbox::{Due, Outbox, Stopping};
use crate::report::ReportKind;
use crate::{AgentTimings, LogLine};
use backon::{BackoffBuilder, ExponentialBuilder};
use std::convert::Infallible;

pub(crate) fn run(controller: &ControllerClient, outbox: &Outbox, timings: AgentTimings, log: &LogLine) {
    // Stopping is no failure.
    let _ = deliver(controller, outbox, timings, log);
}

fn deliver(
    controller: &ControllerClient,
    outbox: &Outbox,
    timings: AgentTimings,
    log: &LogLine,
) -> Result<Infallible, Stopping> {
    let (mut delays, mut last_failure) = (delays(&timings).build(), None);
    loop {
        let due = outbox.next()?;
        let what = due.report.describe();
        let (why, retry_after) = match controller.deliver(&due.instance, &due.report) {
            Delivery::Accepted => {
                outbox.remove(&due.report);
                log(&format!("delivered: {what}"));
                (delays, last_failure) = (self::delays(&timings).build(), None);
                continue;
            }
            Delivery::Refused(why) => {
                outbox.remove(&due.report);
                log(&format!("refused by the controller ({what}): {why}"));
                continue;
            }
            Delivery::Later(why, retry_after) => (why, retry_after),
        };
        if is_expired(&due, timings) {
            outbox.remove(&due.report);
            log(&format!("abandoned after {:?} ({what}): {why}", timings.notice_lifetime));
            continue;
        }
        // The same failure is logged once.
        if last_failure.as_ref() != Some(&why) {
            log(&format!("not delivered yet and retried ({what}): {why}"));
            last_failure = Some(why);
        }
        // The delays have no end.
        let delay = delays.next().unwrap_or_default().max(retry_after.unwrap_or_default());
        outbox.wait_for_new(due.revision, delay)?;
    }
}

/// Whether a notice is no longer useful. That the instance has started stays useful for as long as it runs.
fn is_expired(due: &Due, timings: AgentTimings) -> bool {
    due.report.kind != ReportKind::Hello && due.since.elapsed() >= timings.notice_lifetime
}

/// The upper half of each delay is drawn, so that the agents of a cluster do not return together: backon's jitter adds up to the delay.
fn delays(timings: &AgentTimings) -> ExponentialBuilder {
    let builder = ExponentialBuilder::new().with_min_delay(timings.first_delay / 2);
    builder.with_max_delay(timings.longest_delay / 2).with_jitter().without_max_times()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest() {
        for (nth, delay) in delays(&AgentTimings::default()).build().take(40).enumerate() {
            let step = (500_u128 << nth.min(10)).min(10_000);
            assert!((step / 2..=step).contains(&delay.as_millis()), "delay {nth} is {delay:?}");
        }
    }
}
