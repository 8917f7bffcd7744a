//! Tells the controller until it acknowledges, or until there is no use in it any more.
//!
//! Never: gives up because the controller is away, or waits with a warning because something else was not taken.

use crate::controller::{Answer, Controller};
use crate::outbox::{Due, Ending, Outbox};
use crate::report::Kind;
use crate::{Pace, Say};
use std::time::Duration;

pub(crate) fn run(controller: &Controller, outbox: &Outbox, pace: Pace, say: &Say) {
    // The end is no failure.
    let _ = tell(controller, outbox, pace, say);
}

fn tell(controller: &Controller, outbox: &Outbox, pace: Pace, say: &Say) -> Result<std::convert::Infallible, Ending> {
    let (mut tries, mut trouble) = (0, None);
    loop {
        let due = outbox.next()?;
        let (why, after) = match controller.tell(&due.instance, &due.report) {
            Answer::Taken => {
                outbox.done(&due.report);
                say(&format!("the controller knows: {}", due.report.words()));
                (tries, trouble) = (0, None);
                continue;
            }
            Answer::Refused(why) => {
                outbox.done(&due.report);
                say(&format!("given up, for the controller refuses it ({}): {why}", due.report.words()));
                continue;
            }
            Answer::Later(why, after) => (why, after),
        };
        if is_over(&due, pace) {
            outbox.done(&due.report);
            say(&format!("given up after {:?} ({}): {why}", pace.notice, due.report.words()));
            continue;
        }
        // The same trouble is said once.
        if trouble.as_ref() != Some(&why) {
            say(&format!("not taken yet, and told again and again ({}): {why}", due.report.words()));
            trouble = Some(why);
        }
        let pause = pause(&pace, tries);
        tries += 1;
        outbox.wait_for_news(due.news, after.map_or(pause, |after| after.max(pause)))?;
    }
}

/// Whether a notice is of no use any more. That the instance is there is, as long as it is.
fn is_over(due: &Due, pace: Pace) -> bool {
    due.report.kind != Kind::Hello && due.since.elapsed() >= pace.notice
}

/// Doubles up to the longest, with jitter so that the agents of a cluster do not come back together.
fn pause(pace: &Pace, tries: u32) -> Duration {
    let step = pace.first_pause.saturating_mul(1 << tries.min(16)).min(pace.longest_pause);
    let half = u64::try_from(step.as_millis() / 2).unwrap_or(u64::MAX / 4);
    Duration::from_millis(half + fastrand::u64(0..=half))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pace = Pace::default();
        for tries in 0..40 {
            let step = (500_u128 << tries.min(10)).min(10_000);
            let waits = pause(&pace, tries).as_millis();
            assert!((step / 2..=step).contains(&waits), "{waits} ms after {tries}");
        }
    }
}
