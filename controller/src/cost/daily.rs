//! The bill of each closed day as a FOCUS dataset in a folder: `focus-YYYY-MM-DD.csv`, kept up by a running Forebay.
//!
//! ```text
//! a day has closed (driver's thread: position, open charges) -> each closed day that the ledger has, one after another:
//!   its charges, its text (blocking thread) -> as in its file? left as it is : written beside it, renamed onto it
//! ```
//!
//! All closed days are compared each time: a day that was missed is caught up with, and one of before that still changed is replaced. What a file
//! says depends on the journal alone, so nothing is written twice.
//!
//! Never: half a file under its name; a read of the disk on the driver's thread; an error that ends the driver.

use super::Unbalanced;
use super::basis::{BalanceCheck, CostBasis};
use super::focus::focus_csv;
use super::range::{CostRange, Slots, local_date};
use crate::clock::now_ms;
use crate::driver::{DriverHandle, MailboxError};
use crate::files::{create_private_folder, replace_private};
use crate::journal::{ArchiveReader, JournalError, SpendQuery, SpendRead};
use backon::{BackoffBuilder as _, ExponentialBuilder};
use forebay_kernel::units::{HOUR_MS, Timestamp};
use jiff::civil::Date;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// So long after its last midnight a day is closed. What is reported afterwards of runs that are over, such as a checkpoint that is verified,
/// comes within minutes; what comes later is in the file that is written a day later.
const SETTLES_MS: u64 = HOUR_MS;

/// Pauses after a failure, doubling: three minutes in all. After them it is tried again in an hour.
const RETRIES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_secs(1))
    .with_max_delay(Duration::from_secs(60))
    .with_max_times(8);

/// It is asked at least so often whether a day has closed: another policy may have another billing zone.
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);

/// And at most so often, where the machine's clock is ahead of the driver's time.
const SHORTEST_WAIT: Duration = Duration::from_secs(60);

/// Times that the journal is asked: what a day is read at passes only while two snapshots are written.
const TRIES: u32 = 3;

/// Keeps a folder up with the bill of each closed day.
pub struct DailyFocus {
    folder: PathBuf,
    handle: DriverHandle,
    archive: Arc<ArchiveReader>,
}

/// Why the file of a day could not be compared or written.
#[derive(Debug, thiserror::Error)]
enum DailyFocusFault {
    /// The driver takes no question, or has stopped.
    #[error(transparent)]
    Driver(#[from] MailboxError),
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Charges are not what the nodes cost.
    #[error(transparent)]
    Unbalanced(#[from] Unbalanced),
    /// The journal went on too fast.
    #[error("the journal went on while the bill of {0} was read")]
    Passed(Date),
    /// A file cannot be read or written.
    #[error(
        "{file}: {error}: let the user that `forebay run` runs as read and write there, make room, or name another folder \
         in `cost.focus.folder`"
    )]
    File {
        /// Which.
        file: String,
        /// Why.
        error: io::Error,
    },
    /// The thread that reads and writes has ended.
    #[error("the bill was not written to its end: {0}: report this")]
    Ended(#[from] tokio::task::JoinError),
}

/// A day of the billing zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct BilledDay {
    date: Date,
    slots: Slots,
}

/// The days that are closed, the earliest first.
#[derive(PartialEq, Eq, Debug)]
struct ClosedDays {
    days: Vec<BilledDay>,
    /// When the next one is. `None`: nothing is billed yet.
    next: Option<Timestamp>,
}

/// What has become of the file of a day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FileOutcome {
    Written,
    /// It says the same.
    Unchanged,
}

/// What comparing all closed days has come to.
#[derive(PartialEq, Eq, Debug)]
#[must_use]
struct PassReport {
    /// The last closed day.
    last: Option<Date>,
    /// When the next one is closed.
    next: Option<Timestamp>,
    /// Days whose files are new.
    written: Vec<Date>,
    /// How many files say the same as before.
    unchanged: usize,
}

impl DailyFocus {
    /// Of a driver and its journal, in a folder that need not be there yet.
    #[must_use]
    pub fn new(folder: PathBuf, handle: DriverHandle, archive: Arc<ArchiveReader>) -> DailyFocus {
        DailyFocus { folder, handle, archive }
    }

    /// Writes what days have closed meanwhile, and then each day as it closes, until the driver has stopped.
    pub async fn run(self) {
        let mut done = None;
        loop {
            let mut pauses = RETRIES.build();
            let wait = loop {
                let fault = match self.pass(done).await {
                    Ok(report) => {
                        self.note(&report);
                        done = report.last;
                        break wait_until(report.next, now_ms());
                    }
                    Err(DailyFocusFault::Driver(MailboxError::Stopped(_))) => return,
                    Err(fault) => fault,
                };
                let Some(pause) = pauses.next() else {
                    tracing::error!(
                        "the FOCUS datasets of closed days are not written: {fault}; this is tried again in an hour, and \
                         `forebay cost --focus` has the same meanwhile"
                    );
                    break LONGEST_WAIT;
                };
                tracing::warn!("a FOCUS dataset is not written: {fault}; this is tried again in {pause:?}");
                tokio::time::sleep(pause).await;
            };
            tokio::time::sleep(wait).await;
        }
    }

    fn note(&self, report: &PassReport) {
        if let (Some(first), Some(last)) = (report.written.first(), report.written.last()) {
            let (written, unchanged, folder) = (report.written.len(), report.unchanged, self.folder.display());
            tracing::info!("FOCUS datasets of {first} to {last} in {folder}: {written} new, {unchanged} as they were");
        }
    }

    /// Brings the files of all closed days up to date, unless that is done up to the last of them.
    async fn pass(&self, done: Option<Date>) -> Result<PassReport, DailyFocusFault> {
        let mut basis = self.basis().await?;
        let ClosedDays { days, next } = closed_days(&basis);
        let last = days.last().map(|day| day.date);
        let mut report = PassReport { last, next, written: Vec::new(), unchanged: 0 };
        if last == done {
            return Ok(report);
        }
        for day in days {
            match self.bring_up(&mut basis, day).await? {
                FileOutcome::Written => report.written.push(day.date),
                FileOutcome::Unchanged => report.unchanged += 1,
            }
        }
        Ok(report)
    }

    async fn basis(&self) -> Result<Arc<CostBasis>, MailboxError> {
        Ok(Arc::new(self.handle.query_async(|engine, _| CostBasis::of(engine.state())).await?))
    }

    /// Brings the file of one day up to date, at the basis or, where the journal has passed that, at a new one.
    async fn bring_up(&self, basis: &mut Arc<CostBasis>, day: BilledDay) -> Result<FileOutcome, DailyFocusFault> {
        for _ in 0..TRIES {
            let (at, archive, folder) = (Arc::clone(basis), Arc::clone(&self.archive), self.folder.clone());
            let work = move || -> Result<Option<FileOutcome>, DailyFocusFault> {
                let text = dataset(&at, &archive, &day)?;
                text.map(|text| replace(&folder, day.date, &text)).transpose()
            };
            if let Some(outcome) = tokio::task::spawn_blocking(work).await?? {
                return Ok(outcome);
            }
            *basis = self.basis().await?;
        }
        Err(DailyFocusFault::Passed(day.date))
    }
}

/// How long nothing is to be done: until a day closes, within bounds.
fn wait_until(closes: Option<Timestamp>, now_ms: u64) -> Duration {
    let until = |at: Timestamp| Duration::from_millis(at.0.saturating_sub(now_ms));
    closes.map_or(LONGEST_WAIT, until).clamp(SHORTEST_WAIT, LONGEST_WAIT)
}

/// All days from the one in which the ledger began that are closed by now.
fn closed_days(basis: &CostBasis) -> ClosedDays {
    let mut closed = ClosedDays { days: Vec::new(), next: None };
    let Some(mut date) = local_date(basis, basis.began.at) else { return closed };
    while let Ok(tomorrow) = date.tomorrow() {
        let range = CostRange { from: Some(date.to_string()), to: Some(tomorrow.to_string()) };
        // A day that the zone's clock leaves out has no slots.
        if let Ok(slots) = range.slots(basis) {
            let closes = Timestamp(slots.to.begins().0 + SETTLES_MS);
            if closes > basis.now {
                closed.next = Some(closes);
                return closed;
            }
            closed.days.push(BilledDay { date, slots });
        }
        date = tomorrow;
    }
    closed
}

/// The dataset of a day. `None`: the journal has passed the basis.
fn dataset(
    basis: &CostBasis,
    archive: &ArchiveReader,
    BilledDay { slots, .. }: &BilledDay,
) -> Result<Option<String>, DailyFocusFault> {
    let asked = SpendQuery { from: slots.from, to: slots.to, upto: basis.upto };
    let SpendRead::Found { charges, jobs } = archive.spend(&asked)? else { return Ok(None) };
    let (charges, jobs) = basis.complete(charges, jobs, slots, BalanceCheck::NotRead)?;
    Ok(Some(focus_csv(&basis.clone().within(slots), &charges, &jobs)))
}

/// Lets the file of a day say this.
fn replace(folder: &Path, date: Date, text: &str) -> Result<FileOutcome, DailyFocusFault> {
    let path = folder.join(format!("focus-{date}.csv"));
    let fault = |error| DailyFocusFault::File { file: path.display().to_string(), error };
    match std::fs::read(&path) {
        Ok(bytes) if bytes == text.as_bytes() => return Ok(FileOutcome::Unchanged),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(fault(error)),
        _ => {}
    }
    write(folder, &path, text).map_err(fault)?;
    Ok(FileOutcome::Written)
}

/// Written beside it first, then put in its place: half a dataset is never found.
fn write(folder: &Path, path: &Path, text: &str) -> io::Result<()> {
    create_private_folder(folder)?;
    replace_private(path, &path.with_extension("csv.new"), text.as_bytes())?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::focus_of_folder;
    use crate::driver::tests::{two_threads, world};
    use crate::driver::{ClockMode, Settings, load, start};
    use forebay_catalog::Catalogue;
    use forebay_kernel::state::billing::BillingBegan;
    use forebay_policy::compile;
    use std::collections::BTreeMap;

    fn at(text: &str) -> Timestamp {
        Timestamp(u64::try_from(text.parse::<jiff::Timestamp>().unwrap().as_millisecond()).unwrap())
    }

    #[test]
    fn a_day_is_closed_an_hour_after_its_last_midnight() {
        let closed = |offset: i32, now: &str| {
            let mut basis = CostBasis::with_offsets(&[(0, offset)]);
            basis.began = BillingBegan { at: at("2026-11-24T09:20:00Z"), ..BillingBegan::default() };
            basis.now = at(now);
            let closed = closed_days(&basis);
            let days: Vec<String> = closed.days.iter().map(|day| day.date.to_string()).collect();
            (days.join(" "), closed.next)
        };
        let of = |days: &str, next: &str| (days.to_owned(), Some(at(next)));
        assert_eq!(closed(0, "2026-11-24T09:20:00Z"), of("", "2026-11-25T01:00:00Z"));
        assert_eq!(closed(0, "2026-11-25T00:59:59Z"), of("", "2026-11-25T01:00:00Z"));
        assert_eq!(closed(0, "2026-11-25T01:00:00Z"), of("2026-11-24", "2026-11-26T01:00:00Z"));
        assert_eq!(closed(0, "2026-11-27T12:00:00Z"), of("2026-11-24 2026-11-25 2026-11-26", "2026-11-28T01:00:00Z"));
        // Days of India end at half past six in the evening, UTC.
        assert_eq!(closed(19_800, "2026-11-24T19:29:59Z"), of("", "2026-11-24T19:30:00Z"));
        assert_eq!(closed(19_800, "2026-11-24T19:30:00Z"), of("2026-11-24", "2026-11-25T19:30:00Z"));
    }

    #[test]
    fn what_is_waited_for_has_bounds() {
        let at = |minute: u64| Timestamp(minute * 60_000);
        let minutes = |closes: Option<u64>| wait_until(closes.map(at), at(10).0).as_secs() / 60;
        assert_eq!([None, Some(0), Some(10), Some(40), Some(700)].map(minutes), [60, 1, 1, 30, 60]);
    }

    /// The example day, which stands still when nothing is left to do, in days that close before it is over.
    fn day(folder: &Path) -> Settings {
        let mut text = std::fs::read_to_string("../policies/spot-first.yaml").unwrap();
        text.push_str("\nbilling: {labels: [team], zone: Asia/Kolkata}\n");
        let policy = compile("spot-first.yaml", &text, &Catalogue::builtin()).unwrap().policy;
        let feed = load(Path::new("../examples/day.jsonl"), None, &policy).unwrap().feed;
        Settings {
            policy: Some((text, policy)),
            clock: ClockMode::Max,
            feed: Some(feed),
            ..Settings::new(folder.to_owned(), world())
        }
    }

    fn files(folder: &Path) -> BTreeMap<String, String> {
        let read = |entry: io::Result<std::fs::DirEntry>| {
            let path = entry.unwrap().path();
            (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read_to_string(&path).unwrap())
        };
        std::fs::read_dir(folder).unwrap().map(read).collect()
    }

    #[test]
    fn closed_days_have_a_file_each_that_is_written_again_only_where_it_differs() {
        let (data, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folder = out.path().join("bills/focus");
        let (running, runtime) = (start(day(data.path())).unwrap(), two_threads());
        let export = DailyFocus::new(folder.clone(), running.handle.clone(), Arc::clone(&running.archive));
        let mut progress = running.handle.watch();
        assert!(runtime.block_on(progress.wait_for(|progress| progress.drained)).is_ok());

        let first = runtime.block_on(export.pass(None)).unwrap();
        assert_eq!(first.written.first().map(Date::to_string).as_deref(), Some("2026-11-02"));
        assert_eq!((first.unchanged, first.last), (0, first.written.last().copied()));
        let written = files(&folder);
        let names: Vec<String> = first.written.iter().map(|date| format!("focus-{date}.csv")).collect();
        assert_eq!(written.keys().collect::<Vec<_>>(), names.iter().collect::<Vec<_>>(), "no draft is left");

        let again = runtime.block_on(export.pass(None)).unwrap();
        assert_eq!((again.written.len(), again.unchanged), (0, names.len()), "a restart writes nothing again");
        let idle = runtime.block_on(export.pass(first.last)).unwrap();
        assert_eq!((idle.written.len(), idle.unchanged), (0, 0), "no day has closed meanwhile");

        let torn = folder.join(&names[0]);
        std::fs::write(&torn, "BilledCost").unwrap();
        let mended = runtime.block_on(export.pass(None)).unwrap();
        assert_eq!((mended.written, files(&folder)), (vec![first.written[0]], written.clone()), "it differed");
        std::fs::remove_file(&torn).unwrap();
        let mended = runtime.block_on(export.pass(None)).unwrap();
        assert_eq!((mended.written, files(&folder)), (vec![first.written[0]], written.clone()), "it was missing");

        running.handle.stop();
        drop(running.join().unwrap());
        let stopped = runtime.block_on(export.pass(None));
        assert!(matches!(stopped, Err(DailyFocusFault::Driver(MailboxError::Stopped(_)))), "{stopped:?}");
        runtime.block_on(export.run());
        for date in first.written {
            let range = CostRange { from: Some(date.to_string()), to: Some(date.tomorrow().unwrap().to_string()) };
            let text = focus_of_folder(data.path(), &range).unwrap();
            assert!(text.lines().count() > 1 || date.to_string() != "2026-11-02", "the day was billed");
            assert_eq!(written[&format!("focus-{date}.csv")], text, "{date}");
        }
    }

    #[test]
    fn what_cannot_be_written_is_said_with_where_and_what_to_do() {
        let out = tempfile::tempdir().unwrap();
        let taken = out.path().join("focus");
        std::fs::write(&taken, "a file").unwrap();
        let date = "2026-11-24".parse().unwrap();
        let fault = replace(&taken, date, "text").unwrap_err().to_string();
        let is_said = ["focus-2026-11-24.csv", "cost.focus.folder"].into_iter().all(|part| fault.contains(part));
        assert!(is_said, "{fault}");
        assert_eq!(replace(&out.path().join("made"), date, "text").unwrap(), FileOutcome::Written);
    }
}
