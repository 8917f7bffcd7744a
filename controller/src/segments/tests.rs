//! Segments that are torn, damaged, read while they are written, and forgotten.

use super::*;
use serde::Deserialize;
use std::path::PathBuf;

const DAY: u64 = 86_400_000;

#[derive(Deserialize)]
struct Line {
    number: u64,
    at: u64,
}

fn head(line: &[u8]) -> Option<LineHead> {
    serde_json::from_slice(line).ok().map(|Line { number, at }| LineHead { number, at_ms: at })
}

fn line(number: u64, at_ms: u64) -> NumberedLine {
    let json = format!("{{\"number\":{number},\"at\":{at_ms},\"text\":\"{}\"}}", "x".repeat(number as usize % 50));
    NumberedLine { head: LineHead { number, at_ms }, json: json.into_bytes() }
}

fn open(folder: &Path, known: u64, kept: u64) -> Result<SegmentLog, SegmentError> {
    SegmentLog::open(folder, LogPosition { known, kept }, head)
}

/// `count` lines, some a day.
fn write(folder: &Path, count: u64, a_day: u64) -> SegmentLog {
    let mut log = open(folder, 0, 0).unwrap();
    for number in 1..=count {
        log.append(vec![line(number, number / a_day * DAY)]).unwrap();
    }
    log.sync().unwrap();
    log
}

fn files(folder: &Path) -> Vec<PathBuf> {
    segments(folder).unwrap().into_iter().map(|first| folder.join(file_name(first))).collect()
}

fn numbers(folder: &Path) -> Vec<u64> {
    read_all(folder).unwrap().iter().map(|line| head(line).unwrap().number).collect()
}

#[test]
fn a_reader_follows_across_segments_while_they_are_written_and_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = open(folder.path(), 0, 0).unwrap();
    let (mut early, mut late) = (SegmentReader::new(folder.path(), 0), SegmentReader::new(folder.path(), 17));
    assert_eq!(early.next_line().unwrap(), None);
    let mut got = Vec::new();
    for number in 1..=40 {
        log.append(vec![line(number, number / 10 * DAY)]).unwrap();
        got.extend(early.next_line().unwrap().map(|line| line.number));
    }
    assert_eq!(got, (1..=40).collect::<Vec<_>>());
    assert_eq!(late.next_line().unwrap().unwrap().number, 18);
    assert_eq!(files(folder.path()).len(), 5, "one a day");
    let keep = SegmentRetention { age_ms: DAY, bytes: u64::MAX };
    assert_eq!(log.retain(4 * DAY, keep, Some(12)).unwrap(), Retained { removed: 1, held_at: Some(19) });
    assert_eq!(log.retain(4 * DAY, keep, None).unwrap(), Retained { removed: 1, held_at: None });
    assert_eq!(numbers(folder.path()), (20..=40).collect::<Vec<_>>());
    let few = SegmentRetention { age_ms: u64::MAX, bytes: 0 };
    assert_eq!(log.retain(4 * DAY, few, None).unwrap().removed, 2);
    let forgotten = SegmentReader::new(folder.path(), 17).next_line().unwrap_err();
    assert!(matches!(forgotten, SegmentError::Forgotten { first: 40, asked: 18, .. }), "{forgotten}");
    drop(log);
    let mut log = open(folder.path(), 40, 40).unwrap();
    log.append(vec![line(41, 9 * DAY)]).unwrap();
    assert_eq!(numbers(folder.path()), [40, 41]);
}

#[test]
fn wherever_the_last_segment_is_torn_what_can_be_made_again_is_cut_and_written_once() {
    let whole = tempfile::tempdir().unwrap();
    drop(write(whole.path(), 12, 5));
    let last = files(whole.path()).pop().unwrap();
    let bytes = std::fs::read(&last).unwrap();
    for length in 0..=bytes.len() {
        std::fs::write(&last, &bytes[..length]).unwrap();
        let mut log = open(whole.path(), 12, 4).unwrap();
        let missing = (log.last() + 1..=12).map(|number| line(number, number / 5 * DAY)).collect();
        log.append(missing).unwrap();
        assert_eq!(numbers(whole.path()), (1..=12).collect::<Vec<_>>(), "torn at {length}");
    }
}

#[test]
fn a_durable_line_that_is_damaged_or_missing_stops_the_start_with_file_and_line() {
    let whole = tempfile::tempdir().unwrap();
    drop(write(whole.path(), 12, 5));
    let last = files(whole.path()).pop().unwrap();
    let bytes = std::fs::read(&last).unwrap();
    let lines = bytes.iter().filter(|b| **b == b'\n').count();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        std::fs::write(&last, &damaged).unwrap();
        let error = open(whole.path(), 12, 12).unwrap_err();
        let SegmentError::Damaged { path, line, .. } = &error else { panic!("byte {at}: {error}") };
        assert_eq!((path, *line <= lines as u64 + 1), (&last, true), "byte {at}: {error}");
        assert_eq!(std::fs::read(&last).unwrap(), damaged, "nothing was changed");
    }
    for length in 0..bytes.len() {
        std::fs::write(&last, &bytes[..length]).unwrap();
        assert!(open(whole.path(), 12, 12).is_err(), "cut at {length}");
    }
}

#[test]
fn damage_in_a_segment_that_is_not_written_any_more_stops_its_readers_with_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    drop(write(folder.path(), 12, 5));
    let first = files(folder.path()).remove(0);
    let bytes = std::fs::read(&first).unwrap();
    let second_line = bytes.iter().position(|b| *b == b'\n').unwrap() + 3;
    let mut damaged = bytes.clone();
    damaged[second_line] ^= 1;
    std::fs::write(&first, &damaged).unwrap();
    let mut reader = SegmentReader::new(folder.path(), 0);
    assert_eq!(reader.next_line().unwrap().unwrap().number, 1);
    let error = reader.next_line().unwrap_err();
    assert!(matches!(&error, SegmentError::Damaged { path, line: 2, .. } if *path == first), "{error}");
    std::fs::write(&first, &bytes[..bytes.len() - 3]).unwrap();
    let mut reader = SegmentReader::new(folder.path(), 2);
    let error = std::iter::from_fn(|| reader.next_line().transpose()).find_map(Result::err).unwrap();
    assert!(error.to_string().contains("it is cut off, and another segment follows"), "{error}");
}

#[test]
fn lines_that_the_journal_lost_are_cut_across_segments() {
    for known in 0..=12 {
        let folder = tempfile::tempdir().unwrap();
        drop(write(folder.path(), 12, 5));
        let mut log = open(folder.path(), known, 0).unwrap();
        assert_eq!((log.last(), log.ahead()), (known, 12 - known));
        log.append(vec![line(known + 1, 9 * DAY)]).unwrap();
        assert_eq!(numbers(folder.path()), (1..=known + 1).collect::<Vec<_>>());
    }
}

#[test]
fn a_folder_that_was_moved_away_begins_anew_where_the_journal_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = open(folder.path(), 77, 77).unwrap();
    assert_eq!((log.last(), log.is_begun()), (77, false));
    log.append(vec![line(78, 5)]).unwrap();
    assert_eq!(numbers(folder.path()), [78]);
}

#[test]
fn a_segment_that_is_missing_between_two_others_is_a_hole_and_the_log_begins_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    drop(write(folder.path(), 22, 5));
    let all = files(folder.path());
    assert_eq!(holes(folder.path(), 22, head).unwrap(), []);
    std::fs::remove_file(&all[1]).unwrap();
    std::fs::remove_file(&all[3]).unwrap();
    let hole = |before: usize, last, next| SegmentHole { before: all[before].clone(), last, next };
    assert_eq!(holes(folder.path(), 22, head).unwrap(), [hole(0, 4, 10), hole(2, 14, 20)]);
    assert_eq!(holes(folder.path(), 14, head).unwrap(), [hole(0, 4, 10)], "as far as the journal knows numbers");
    let looked = look_at(folder.path(), LogPosition { known: 22, kept: 22 }, head).unwrap();
    assert_eq!((looked.last, looked.begun), (22, true), "none of those that are there is damaged");
    forget_before_holes(folder.path(), 22, head).unwrap();
    assert_eq!(numbers(folder.path()), [20, 21, 22]);
    assert_eq!(holes(folder.path(), 22, head).unwrap(), []);
    assert_eq!(open(folder.path(), 22, 22).unwrap().last(), 22);
}

#[test]
fn a_disk_on_which_this_user_has_no_room_is_a_full_one() {
    for (kind, full) in [
        (std::io::ErrorKind::StorageFull, true),
        (std::io::ErrorKind::QuotaExceeded, true),
        (std::io::ErrorKind::PermissionDenied, false),
    ] {
        let error = SegmentError::Io { path: PathBuf::new(), source: kind.into() };
        assert_eq!(error.is_full(), full, "{kind}");
    }
}
