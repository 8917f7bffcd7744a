//! Damage of a controller's files: cut, bits flipped, pages zeroed, files removed. Never a start that loses without a word.
//!
//! Cursors of sinks have no file of their own: they are in the database and its log, and are changed there where they stand.

use super::checker::Judged;
use super::folder::{End, HurtFolder, acknowledged, cases, ended, opened};
use forebay::driver::Consent;
use forebay_integration::dice::Dice;
use forebay_integration::folders::copied;
use forebay_kernel::event::Event;
use std::collections::BTreeMap;
use std::path::Path;

/// Jobs that were acknowledged.
const JOBS: usize = 60;

/// The files of the folder that hold what was acknowledged.
fn files(data: &Path) -> Vec<String> {
    let all = forebay_integration::folders::contents(data).into_keys();
    all.filter(|name| !name.ends_with("-shm") && !name.starts_with("logs")).collect()
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Cut,
    FlippedBit,
    ZeroedPage,
}

fn damaged(bytes: &[u8], damage: Damage, dice: &mut Dice) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let at = usize::try_from(dice.below(bytes.len() as u64)).expect("small");
    match damage {
        Damage::Cut => bytes.truncate(at),
        Damage::FlippedBit => bytes[at] ^= 1 << dice.below(8),
        Damage::ZeroedPage => {
            let page = at / 4096 * 4096;
            let end = bytes.len().min(page + 4096);
            bytes[page..end].fill(0);
        }
    }
    bytes
}

/// Hurts every file, of a controller that was killed and of one that ended in order.
fn attack(damage: Damage, small: u64, all: u64) {
    for how in [End::Killed, End::InOrder] {
        attack_one(&acknowledged(JOBS, how), damage, cases(small, all));
    }
}

fn attack_one(whole: &HurtFolder, damage: Damage, seeds: std::ops::Range<u64>) {
    let data = whole.data();
    let mut counts = BTreeMap::<String, [u32; 2]>::new();
    for name in files(&data) {
        let bytes = std::fs::read(data.join(&name)).expect("a file");
        if bytes.is_empty() {
            continue;
        }
        for seed in seeds.clone() {
            let mut dice = Dice(seed);
            let hurt = copied(&data);
            std::fs::write(hurt.path().join(&name), damaged(&bytes, damage, &mut dice)).expect("damaged");
            let case = format!("{damage:?} of {name}, seed {seed}");
            let count = counts.entry(name.clone()).or_default();
            match whole.judge(hurt.path(), &name, &case) {
                Judged::Whole => count[0] += 1,
                Judged::Refused(said) => {
                    count[1] += 1;
                    if seed % 5 == 0 {
                        whole.give_up(hurt.path(), &said, &case);
                    }
                }
            }
        }
    }
    println!("{damage:?}: goes on whole and is refused, by file: {counts:?}");
    let refused: u32 = counts.values().map(|[_, refused]| refused).sum();
    assert!(refused > 0, "no attack was seen");
}

#[test]
fn a_file_that_is_cut_anywhere_loses_nothing_without_a_word() {
    attack(Damage::Cut, 4, 300);
}

#[test]
fn a_flipped_bit_anywhere_loses_nothing_without_a_word() {
    attack(Damage::FlippedBit, 4, 300);
}

#[test]
fn a_zeroed_page_anywhere_loses_nothing_without_a_word() {
    attack(Damage::ZeroedPage, 3, 100);
}

#[test]
fn each_file_that_is_removed_is_missed() {
    for how in [End::Killed, End::InOrder] {
        let whole = acknowledged(JOBS, how);
        for name in files(&whole.data()) {
            let hurt = copied(&whole.data());
            std::fs::remove_file(hurt.path().join(&name)).expect("removed");
            // Where nothing is lost nothing is refused: statuses that the journal still holds are written again, word for word.
            let Judged::Refused(said) = whole.judge(hurt.path(), &name, &name) else {
                assert!(!name.starts_with("journal.") && !name.starts_with("rejected"), "{name} was not missed");
                continue;
            };
            println!("{name}: {}", said.replace('\n', " "));
            whole.give_up(hurt.path(), &said, &name);
        }
    }
}

#[test]
fn a_segment_that_is_emptied_is_missed_and_given_up_as_one_that_is_gone() {
    let whole = acknowledged(JOBS, End::InOrder);
    let hurt = copied(&whole.data());
    // The journal learns that its statuses were written, and keeps them no longer.
    for _ in 0..2 {
        let running = opened(hurt.path(), Consent::default()).expect("it starts");
        let cancel = Event::JobCancelled { tenant: "default".into(), subject: "job-0".into(), by: None, sent: None };
        running.handle.submit(vec![cancel]).expect("it is taken");
        ended(running);
    }
    for name in ["status/00000000000000000001.jsonl", "rejected/00000000000000000001.jsonl"] {
        let hurt = copied(hurt.path());
        std::fs::write(hurt.path().join(name), "").expect("emptied");
        let Judged::Refused(said) = whole.judge(hurt.path(), name, name) else { panic!("{name} was not missed") };
        assert!(said.contains("has nothing") && said.contains("--accept-loss"), "{said}");
        whole.give_up(hurt.path(), &said, name);
    }
}

/// Some of the places where a text stands in a file, from the first on.
fn places(bytes: &[u8], text: &str) -> Vec<usize> {
    let all = bytes.windows(text.len()).enumerate().filter(|(_, window)| *window == text.as_bytes());
    let all: Vec<usize> = all.map(|(at, _)| at).collect();
    let step = all.len().div_ceil(crate::many(3, 50)).max(1);
    all.into_iter().step_by(step).collect()
}

/// Changes a byte of a file where the controller left off, and starts.
fn changed(whole: &HurtFolder, name: &str, bytes: &[u8], at: usize) -> Judged {
    let mut changed = bytes.to_vec();
    changed[at] ^= 1;
    let hurt = copied(&whole.data());
    std::fs::write(hurt.path().join(name), changed).expect("changed");
    whole.judge(hurt.path(), name, &format!("byte {at} of {name}"))
}

#[test]
fn a_cursor_that_is_changed_or_taken_away_moves_no_sink_without_a_word() {
    let mut refused = 0;
    for how in [End::Killed, End::InOrder] {
        let whole = acknowledged(JOBS, how);
        for name in files(&whole.data()).into_iter().filter(|name| name.starts_with("journal.sqlite")) {
            let bytes = std::fs::read(whole.data().join(&name)).expect("a file");
            let each = |sink: &String| places(&bytes, sink).into_iter().map(|at| at + sink.len()).collect::<Vec<_>>();
            let ends: Vec<usize> = whole.cursors.keys().flat_map(each).filter(|end| *end < bytes.len()).collect();
            // The last letter of its name, so that it is another's, and the number behind that.
            let all: Vec<Judged> =
                ends.iter().flat_map(|end| [end - 1, *end]).map(|at| changed(&whole, &name, &bytes, at)).collect();
            let seen = all.iter().filter(|judged| **judged != Judged::Whole).count();
            println!("{name}: {} changes of cursors, {seen} refused", all.len());
            refused += seen;
        }
    }
    assert!(refused > 0, "no change was seen");
}
