//! The first hour of a spot instance that EC2 interrupts is free; of one that its owner terminates it is not (EC2 User Guide, "Billing for
//! interrupted Spot Instances").
//!
//! An instance that EC2 announces to take back in its first hour is left to EC2 therefore, even when nothing runs on it any more. If EC2 does
//! not take it, it is terminated soon after.

use forebay_kernel::catalog::CapacityType;
use forebay_kernel::units::{Span, Timestamp};

/// For how long an interruption makes an instance free.
const FREE: Span = Span::mins(60);
/// EC2 warns two minutes ahead. What is announced earlier, such as a retirement, is waited for by nobody.
const WARNED_WITHIN: Span = Span::mins(3);
/// EC2 may be late by this much, which costs little beside an hour.
const LATE_BY: Span = Span::mins(2);

/// Until when the end of an instance is left to EC2. `None`: it is not. All times are on the engine's clock. An instance is launched after the
/// decision to buy it, so the hour is never taken for longer than it is.
#[must_use]
pub fn left_to_ec2(
    capacity: CapacityType,
    decided_at: Timestamp,
    reclaim_at: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    let at = reclaim_at.filter(|_| capacity == CapacityType::Spot)?;
    let until = at + LATE_BY;
    (at.since(decided_at) < FREE && at <= now + WARNED_WITHIN && now < until).then_some(until)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_spot_instance_in_its_first_hour_is_left_to_ec2() {
        let decided = Timestamp(1_800_000_000_000);
        let after = |minutes: u64| decided + Span::mins(minutes);
        for (case, capacity, reclaim, now, expected) in [
            ("in its first hour", CapacityType::Spot, Some(32), 30, Some(34)),
            ("at once", CapacityType::Spot, Some(30), 30, Some(32)),
            ("not taken in time", CapacityType::Spot, Some(32), 34, None),
            ("taken after its first hour", CapacityType::Spot, Some(60), 58, None),
            ("a retirement", CapacityType::Spot, Some(50), 30, None),
            ("on demand", CapacityType::OnDemand, Some(32), 30, None),
            ("reserved", CapacityType::Reserved, Some(32), 30, None),
            ("not taken back", CapacityType::Spot, None, 30, None),
        ] {
            let until = left_to_ec2(capacity, decided, reclaim.map(after), after(now));
            assert_eq!(until, expected.map(after), "{case}");
        }
    }
}
