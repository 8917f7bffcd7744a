//! Real workloads, replayed by the controller and billed: each file in parts of some hundred rows, each part a run of its own, so that its
//! journal has all of its batches.
//!
//! Never: a file of the folder that is left out. Where the folder is not there, a generated trace stands for all, and the test prints so.

use crate::again::recomputed::HOUR;
use crate::again::{Recount, micro};
use crate::{BY, ZONE, number, replay};
use forebay::document::write::summary;
use forebay::driver::{Feed, FeedContent, FeedItem, LoopEnd, Settings, start};
use forebay::journal::read_folder_spend;
use forebay_kernel::job::JobSpec;
use forebay_kernel::policy::Policy;
use forebay_kernel::units::Timestamp;
use forebay_sim::convert::{Assumptions, Converter};
use forebay_sim::trace::{TraceJob, generate_trace, read};
use std::path::PathBuf;

/// Files of jobs, and how many each has.
const TRACES: [(&str, usize); 7] = [
    ("openb_2023_default.csv", 8_152),
    ("philly_2017_dev_oct02_oct22.csv", 38_322),
    ("philly_vc103959_deadlines_dev.csv", 218),
    ("philly_chronus_mix1.csv", 30_756),
    ("sia_helios_saturn_10days.csv", 1_600),
    ("sia_philly_8days.csv", 1_280),
    ("starburst_tab4_load1.csv", 500),
];

/// Rows of one run: the other program goes through all jobs for each node, so that twice as many take four times as long.
const PART: usize = 250;

/// Batches of one run. Some jobs last for months, and are taken back again and again.
const MOST_BATCHES: u64 = 5_000;

/// The same where only some rows are replayed.
const FEW_BATCHES: u64 = 1_000;

/// Rows of each file that are replayed.
fn rows() -> usize {
    number("FOREBAY_BILL_ROWS", 80)
}

/// A folder of traces beside a parent of this crate.
fn traces() -> Option<PathBuf> {
    let here = std::env::current_dir().unwrap();
    here.ancestors().map(|up| up.join("shared/traces")).find(|path| path.is_dir())
}

/// The jobs of a part, with the labels of three teams, or of none. A CSV has no labels.
fn feed(name: &str, part: &[TraceJob], policy: &Policy) -> Feed {
    let mut converter = Converter::new(policy, Assumptions::default());
    let item = |(number, row): (usize, &TraceJob)| {
        let (spec, truth) = converter.job(row);
        let mut spec = JobSpec { run: truth.to_run(), ..spec };
        for (label, count) in [("team", 4), ("costCenter", 3)] {
            let value = number % count;
            if value > 0 {
                spec.labels.insert(label.to_owned(), format!("{label}-{value}"));
            }
        }
        FeedItem { at: Timestamp(row.submit_ms), content: FeedContent::Job(Box::new(spec)) }
    };
    let items: Vec<FeedItem> = part.iter().enumerate().map(item).collect();
    let first = part.first().map_or(0, |row| row.submit_ms);
    Feed::new(name, Timestamp(first / HOUR * HOUR), items, Vec::new())
}

/// What became of the parts of a trace.
#[derive(Default, Debug)]
struct Billed {
    parts: usize,
    /// Of them, those whose jobs were all over before there were too many batches.
    drained: usize,
    jobs: u64,
    micro_dollars: i64,
    lost: i64,
}

impl Billed {
    fn part(&mut self, name: &str, part: &[TraceJob], most_batches: u64) {
        let folder = tempfile::tempdir().unwrap();
        let settings = replay(folder.path(), ZONE, |policy| feed(name, part, policy));
        let settings = Settings { dies_after: Some(most_batches), ..settings };
        let finished = start(settings).unwrap().join().unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(finished.audit, [""; 0], "{name}");
        let is_drained = finished.end == LoopEnd::Drained;
        drop(finished);
        let expected = Recount { folder: folder.path(), by: &BY, samples: 2, slot_ms: HOUR }.made();
        let stated = summary(&read_folder_spend(folder.path()).unwrap().machine);
        let kinds = expected.rows("kind");
        let total = kinds.values().map(|row| row[0]).sum::<i64>();
        assert_eq!(micro(stated.cost_usd), total, "{name}");
        assert!(total > 0 && stated.jobs <= part.len() as u64, "{name}: {stated:?}");
        assert!(!is_drained || stated.jobs == part.len() as u64, "{name}: each row is a job: {stated:?}");
        self.parts += 1;
        self.drained += usize::from(is_drained);
        self.jobs += stated.jobs;
        self.micro_dollars += total;
        self.lost += kinds.get("lost").map_or(0, |row| row[0]);
    }
}

/// Bills the first rows of a trace, and prints what came of it.
fn billed(name: &str, jobs: &[TraceJob]) -> Billed {
    let some = jobs.get(..rows()).unwrap_or(jobs);
    let most_batches = if some.len() < jobs.len() { FEW_BATCHES } else { MOST_BATCHES };
    let mut billed = Billed::default();
    for part in some.chunks(PART) {
        billed.part(name, part, most_batches);
    }
    println!("{name}: {} of {} rows: {billed:?}", some.len(), jobs.len());
    billed
}

#[test]
fn each_real_trace_is_billed_as_it_is_made_again() {
    let Some(folder) = traces() else {
        println!("shared/traces is not here: a generated trace instead");
        billed("generated", &generate_trace(11, 2_000));
        return;
    };
    let mut lost = 0;
    for (name, count) in TRACES {
        let trace = read(folder.join(name), None).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(trace.jobs.len(), count, "{name}");
        lost += billed(name, &trace.jobs).lost;
    }
    assert!(lost > 0, "no work was lost in any of them");
}
