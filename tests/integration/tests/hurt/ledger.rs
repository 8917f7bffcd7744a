//! A ledger of more than one request may read, and whoever asks for bills of all of it.
//!
//! ```text
//! a replay that ended -> a month of charges written into its ledger -> bills of all of it, again and again -> refused, and others are served
//! ```

use crate::wire::{PATIENCE, cost_little, resident_mib};
use forebay_integration::teams::{ask, ask_json, prepared, start, submission, submit, write};
use forebay_integration::{run, until};
use serde_json::Value;
use std::path::Path;

/// The slot of 2026-10-01 in UTC: quarters of an hour since 1970.
const FIRST_SLOT: i64 = 1_989_792;

/// Slots of a day.
const DAY: i64 = 96;

/// Days of the ledger, jobs that are charged on each, and charges of each of these: 600,000, and one bill holds 524,288 (docs/API.md, "Budgets").
const DAYS: i64 = 30;
const JOBS: i64 = 20;
const CHARGES: u32 = 1_000;

/// Bills of all of it that two operators ask for at once.
const BILLS: usize = 8;

/// Writes the month into the ledger of a controller that has ended. It costs nothing: a bill of all of it is what its nodes cost.
fn grow(journal: &Path) {
    let mut db = rusqlite::Connection::open(journal).expect("opens");
    let all = db.transaction().expect("begins");
    for (day, job) in (0..DAYS).flat_map(|day| (0..JOBS).map(move |job| (day, job))) {
        let numbers = [FIRST_SLOT + day * DAY + 4 * job, 1_000_000 + day * JOBS + job];
        let body = body();
        let sealed = [&numbers[0].to_le_bytes()[..], &numbers[1].to_le_bytes(), &body].concat();
        let insert = "INSERT INTO spend VALUES (?1, ?2, ?3, ?4)";
        all.execute(insert, rusqlite::params![numbers[0], numbers[1], body, crc32c(&sealed)]).expect("writes");
    }
    all.commit().expect("is durable");
}

/// The charges of a row, as the journal has them: version, and of each charge attempt, kind, pool, offering, price and amount.
fn body() -> Vec<u8> {
    let mut body = Vec::new();
    varint(1, &mut body);
    varint(CHARGES, &mut body);
    for attempt in 1..=CHARGES {
        [attempt, 0, 0, 0, 0, 3_600_000].into_iter().for_each(|number| varint(number, &mut body));
    }
    body
}

/// A number as the journal writes it: seven bits a byte, the least first.
fn varint(mut number: u32, out: &mut Vec<u8>) {
    while number >= 128 {
        out.push((number % 128) as u8 | 128);
        number /= 128;
    }
    out.push(number as u8);
}

/// CRC-32C, a bit at a time.
fn crc32c(bytes: &[u8]) -> u32 {
    let shifted = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| shifted(crc)))
}

#[test]
fn bills_of_a_ledger_that_is_too_large_are_refused_with_what_fits_and_others_are_served() {
    let folder = prepared();
    let mut first = submission("first", "open", 1);
    first["time"] = Value::from("2026-11-02T00:00:00Z");
    write(folder.path(), "first.jsonl", &format!("{first}\n"));
    let replay = ["run", "--policy", "policy.yaml", "--data", "d", "--replay", "first.jsonl", "--speed", "max"];
    let replayed = run(folder.path(), &[&replay[..], &["--exit-when-drained"]].concat());
    assert_eq!(replayed.code, 0, "{replayed:?}");
    grow(&folder.path().join("d/journal.sqlite"));
    let offline = run(folder.path(), &["cost", "--data", "d", "--by", "day", "--json"]);
    assert_eq!(offline.code, 0, "whoever owns the folder has all of it: {offline:?}");
    let days = offline.json()["rows"].as_array().map_or(0, Vec::len);
    assert!(days >= usize::try_from(DAYS).expect("small"), "{days} days");

    let server = start(folder.path(), &[]);
    let before = resident_mib(&server);
    let refused = |(status, text): (u16, String)| {
        let error: Value = serde_json::from_str(&text).unwrap_or_default();
        assert!(status == 400 && error["error"]["code"] == "BillTooLarge", "{status} {text:.400}");
        error["error"]["remedy"].as_str().expect("a remedy").to_owned()
    };
    std::thread::scope(|scope| {
        let bill = |nth: usize| {
            let (name, path) = (["ops", "night-ops"][nth % 2], ["/v1/cost?by=job", "/v1/cost/focus"][nth / 2 % 2]);
            let server = &server;
            scope.spawn(move || refused(ask(server, name, "GET", path, None)))
        };
        let bills: Vec<_> = (0..BILLS).map(bill).collect();
        let mut served = 0;
        while bills.iter().any(|bill| !bill.is_finished()) {
            submit(&server, "team-a", &submission(&format!("a-{served}"), "a", 36_000));
            for path in ["/v1/jobs?limit=100", "/v1/jobs/a-0"] {
                assert_eq!(ask(&server, "team-a", "GET", path, None).0, 200, "{path}");
            }
            served += 1;
        }
        bills.into_iter().for_each(|bill| drop(bill.join().expect("it is refused")));
        println!("{served} submissions and lists beside {BILLS} bills");
        assert!(served > 0);
    });
    cost_little(&server, "bills of a ledger that is too large", before);

    // A part that fits is whole.
    let remedy = refused(ask(&server, "ops", "GET", "/v1/cost?by=day", None));
    assert!(remedy.contains("may end (`to`) at 2026-10-"), "{remedy}");
    let (status, day) = ask_json(&server, "ops", "GET", "/v1/cost?by=job&from=2026-10-01&to=2026-10-02", None);
    assert!(status == 200 && day["rows"].as_array().map(Vec::len) == usize::try_from(JOBS).ok(), "{status} {day}");
    let said = server.ask(folder.path(), &["cost", "--token-file", "night-ops.token"]);
    assert!(said.code == 2 && said.err.contains("may end (`to`) at 2026-10-"), "{said:?}");
    // Counters are left out until all of it is read, some at each scrape, and a part of it is never told.
    until("what queues have spent is told", PATIENCE, || {
        let (_, metrics) = ask(&server, "scraper", "GET", "/metrics", None);
        if metrics.contains("\nforebay_queue_spend_usd_total{") { Ok(()) } else { Err("not yet".to_owned()) }
    });
}
