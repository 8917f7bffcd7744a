//! How fast messages come through LocalStack. Its Python is the bound, not the source: the figure is printed, and a floor checked.

use crate::support::{Admin, settings, start, texts, until};
use std::time::Instant;

const MESSAGES: usize = 2000;
/// Two cores reached 4,500/s. Four receivers that wait a second after every ten messages, such as a poll for its receipt, bring 40/s;
/// a slow machine brings more.
const FLOOR: f64 = 60.0;

#[test]
fn four_receivers_keep_up() {
    let admin = Admin::new();
    let url = admin.create("rate", &[]);
    admin.send(&url, &texts("m", MESSAGES));
    let began = Instant::now();
    let mut settings = settings(admin.endpoint(), &["rate"]);
    settings.receivers = 4;
    let mut running = start(settings, 1000);
    let mut ids: Vec<String> = running.take(MESSAGES).into_iter().map(|(_, id)| id).collect();
    let submitted = began.elapsed();
    until("all are deleted", || admin.count(&url) == (0, 0));
    let took = began.elapsed();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), MESSAGES, "each once");
    let rate = MESSAGES as f64 / submitted.as_secs_f64();
    eprintln!(
        "sqs: {MESSAGES} messages, 4 receivers: submitted within {submitted:.1?} ({rate:.0}/s), deleted within {took:.1?}"
    );
    assert!(rate > FLOOR, "{rate:.0} messages/s");
}
