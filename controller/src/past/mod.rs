//! A past time out of a journal, as the files that `forebay simulate` plays again: jobs, what was seen of spot, boots, the policy.
//!
//! ```text
//! folder -> state -> finished jobs as they were accepted, open ones between them -> trace.csv, a row at a time
//!                 -> what the cloud did                                          -> spot_availability.csv, boot_times.csv
//!                 -> the text in force                                           -> policy.yaml
//!                 -> owned nodes, types that are not as in the built-in catalogue -> nodes.csv, catalog.csv, where they are needed
//! ```
//!
//! What is not known is left out and counted: an unknown duration is no duration of zero.
//!
//! Never: changes the folder, holds more of the finished jobs than one, or leaves anything behind where it fails.

mod jobs;
mod left_out;
mod market;
mod supply;

use crate::cost::{CostBasis, CostRange, CostRangeFault};
use crate::journal::{FILE, FinishedJob, JournalError, PastPart, PastPolicy, read_folder_past};
use forebay_kernel::ids::JobId;
use forebay_kernel::job::JobSpec;
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::Job;
use forebay_kernel::units::{Span, Timestamp};
use forebay_sim::trace::{HEADER, TraceJob, csv_row};
use jobs::TraceRow;
pub(crate) use jobs::{Lasted, lasted};
use left_out::LeftOut;
use market::{CloudPast, Observed};
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use supply::Supply;

/// A day.
const DAY: Span = Span::mins(24 * 60);

/// The jobs.
pub const TRACE_FILE: &str = "trace.csv";
/// What was seen of spot. `simulate` looks for files that begin like this.
pub const MARKET_FILE: &str = "spot_availability.csv";
/// Boots. `simulate` looks for it beside the trace.
pub const BOOTS_FILE: &str = "boot_times.csv";
/// The policy in force.
pub const POLICY_FILE: &str = "policy.yaml";

/// Nodes that nobody bought.
pub const NODES_FILE: &str = "nodes.csv";
/// Instance types with their prices.
pub const CATALOG_FILE: &str = "catalog.csv";

/// All of them.
const FILES: [&str; 6] = [TRACE_FILE, MARKET_FILE, BOOTS_FILE, POLICY_FILE, NODES_FILE, CATALOG_FILE];

/// Why nothing can be exported.
#[derive(Debug, thiserror::Error)]
pub enum PastFault {
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// From or to is no time.
    #[error("--{0}")]
    Range(#[from] CostRangeFault),
    /// It would lie between the files of a journal.
    #[error("--out {}: is the folder of a journal; give another one", .0.display())]
    InJournal(PathBuf),
    /// It may be somebody's own.
    #[error("{}: is there already, and an export writes a file of that name: give another folder by --out", .0.display())]
    Exists(PathBuf),
    /// Nothing that is known was submitted then.
    #[error(
        "no job can be played again: none was submitted in that time whose duration is known; give another time by --from and --to{}", .0
    )]
    NoJobs(String),
    /// A file cannot be written.
    #[error("{}: {source}: give another folder by --out", .path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What was written.
#[derive(Debug)]
pub struct ExportedPast {
    /// Jobs.
    pub jobs: u64,
    /// The instant that is time 0 of the files.
    pub zero: Timestamp,
    /// The files.
    pub files: Vec<PathBuf>,
    /// Options of `simulate` that playing it again needs beside policy and trace, each with its file.
    pub options: Vec<ReplayOption>,
    /// What a reader should know, a sentence each.
    pub notes: Vec<String>,
}

/// An option of `simulate`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplayOption {
    /// Such as `--nodes`.
    pub option: &'static str,
    /// Its file.
    pub file: ReplayFile,
}

/// A file that an option names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplayFile {
    /// It was written.
    Written(PathBuf),
    /// It has to be written by hand, for the journal does not know what is in it. This stands for it.
    Missing(&'static str),
}

/// Writes what was submitted in a range as files of `out`, which is made.
///
/// # Errors
/// The journal cannot be read, the range is none or has no jobs, or a file is there already or cannot be written.
pub fn export_past(folder: &Path, range: &CostRange, out: &Path) -> Result<ExportedPast, PastFault> {
    if out.join(FILE).exists() {
        return Err(PastFault::InJournal(out.to_owned()));
    }
    if let Some(there) = FILES.map(|name| out.join(name)).into_iter().find(|path| path.exists()) {
        return Err(PastFault::Exists(there));
    }
    let made = MadeFolders::make(out)?;
    let mut export = Export::new(range, out);
    let mut fault = None;
    read_folder_past(folder, &mut |state, part| match export.take(state, part) {
        Ok(()) => ControlFlow::Continue(()),
        Err(why) => {
            fault = Some(why);
            ControlFlow::Break(())
        }
    })?;
    if let Some(fault) = fault {
        return Err(fault);
    }
    let exported = export.finish()?;
    made.keep();
    Ok(exported)
}

/// Folders that were made, the innermost first. As long as they are not kept they go again, those that are empty.
struct MadeFolders(Vec<PathBuf>);

impl MadeFolders {
    fn make(out: &Path) -> Result<MadeFolders, PastFault> {
        let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
        let made = MadeFolders(out.ancestors().take_while(is_missing).map(Path::to_owned).collect());
        std::fs::create_dir_all(out).map_err(|source| PastFault::Write { path: out.to_owned(), source })?;
        Ok(made)
    }

    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for MadeFolders {
    fn drop(&mut self) {
        for folder in &self.0 {
            // It may never have been made, and somebody may have put something into it.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// An export under way.
struct Export<'a> {
    range: &'a CostRange,
    out: &'a Path,
    from: Timestamp,
    to: Timestamp,
    /// Open jobs that are not written yet, as they were accepted.
    open: VecDeque<JobId>,
    trace: Option<Draft>,
    zero: Timestamp,
    rows: u64,
    /// The last instant that the files know of.
    last: Timestamp,
    /// Digests of the names that are taken.
    names: BTreeSet<u64>,
    left_out: LeftOut,
    cloud: CloudPast,
    observed: Observed,
    policy: Option<String>,
    nodes: Supply,
    catalogue: Supply,
}

impl<'a> Export<'a> {
    fn new(range: &'a CostRange, out: &'a Path) -> Export<'a> {
        Export {
            range,
            out,
            from: Timestamp(0),
            to: Timestamp::NEVER,
            open: VecDeque::new(),
            trace: None,
            zero: Timestamp(0),
            rows: 0,
            last: Timestamp(0),
            names: BTreeSet::new(),
            left_out: LeftOut::default(),
            cloud: CloudPast::default(),
            observed: Observed::default(),
            policy: None,
            nodes: Supply::default(),
            catalogue: Supply::default(),
        }
    }

    fn take(&mut self, state: &State, part: PastPart<'_>) -> Result<(), PastFault> {
        match part {
            PastPart::Policies(policies) => self.begin(state, policies),
            PastPart::Finished(finished) => self.finished(state, &finished),
            PastPart::Cloud(at, notes) => {
                if at < self.to {
                    self.cloud.take(state, at, &notes);
                }
                Ok(())
            }
            PastPart::End => self.end(state),
        }
    }

    fn begin(&mut self, state: &State, policies: &[PastPolicy]) -> Result<(), PastFault> {
        let slots = self.range.slots(&CostBasis::of(state))?;
        (self.from, self.last) = (slots.from.begins(), state.now());
        if self.range.to.is_some() {
            self.to = slots.to.begins();
            self.last = self.last.min(self.to);
        }
        self.open = state.open_job_ids().collect();
        self.policy = policies.first().map(|policy| policy.text.clone());
        let changed = policies.iter().filter(|policy| policy.since > self.from && policy.since < self.to).count();
        self.left_out.policies = changed.saturating_sub(usize::from(self.range.from.is_none()));
        Ok(())
    }

    fn finished(&mut self, state: &State, finished: &FinishedJob) -> Result<(), PastFault> {
        self.left_out.archived += 1;
        let id = finished.job.id;
        while let Some(open) = self.open.pop_front_if(|open| *open < id) {
            self.open_job(state, open)?;
        }
        self.job(&finished.job, &finished.spec)
    }

    fn open_job(&mut self, state: &State, id: JobId) -> Result<(), PastFault> {
        let Some((job, spec)) = state.job(id).filter(|(job, _)| job.service.is_none()) else { return Ok(()) };
        self.job(job, spec)
    }

    fn job(&mut self, job: &Job, spec: &JobSpec) -> Result<(), PastFault> {
        if job.arrival >= self.to {
            return Ok(());
        }
        if job.arrival < self.from {
            self.left_out.before += u64::from(job.ended.is_none_or(|ended| ended > self.from));
            return Ok(());
        }
        let lasted = jobs::lasted(job, spec);
        let Some(TraceRow { row, unsaid }) = jobs::row(job, spec, lasted) else {
            self.left_out.job(job, spec, lasted);
            return Ok(());
        };
        if self.trace.is_none() {
            self.zero = Timestamp(job.arrival.0 - job.arrival.0 % DAY.0);
            let mut trace = Draft::new(self.out.join(TRACE_FILE))?;
            trace.write(&format!("{HEADER}\n"))?;
            self.trace = Some(trace);
        }
        self.left_out.written(job, lasted, unsaid);
        let id = self.name(job.id, spec);
        let since_zero = |at: u64| at.saturating_sub(self.zero.0);
        let submit_ms = since_zero(row.submit_ms);
        let row = TraceJob { id, submit_ms, deadline_ms: row.deadline_ms.map(since_zero), ..row };
        self.rows += 1;
        self.trace.as_mut().map_or(Ok(()), |trace| trace.write(&csv_row(&row)))
    }

    /// A name that no other row has: the subject, where no other tenant or earlier job has it.
    fn name(&mut self, id: JobId, spec: &JobSpec) -> String {
        let digest = |name: &str| {
            let mut first = [0; 8];
            first.copy_from_slice(&blake3::hash(name.as_bytes()).as_bytes()[..8]);
            u64::from_le_bytes(first)
        };
        if spec.subject.trim() == spec.subject && self.names.insert(digest(&spec.subject)) {
            return spec.subject.clone();
        }
        self.left_out.renamed += 1;
        let other = format!("{id}@{}", self.left_out.renamed);
        self.names.insert(digest(&other));
        other
    }

    fn end(&mut self, state: &State) -> Result<(), PastFault> {
        while let Some(open) = self.open.pop_front() {
            self.open_job(state, open)?;
        }
        self.left_out.counted(state, self.range.is_all());
        self.observed = self.cloud.observed(state, self.zero, self.last);
        self.nodes = supply::nodes(state);
        self.catalogue = supply::catalogue(state, self.policy.as_deref());
        Ok(())
    }

    fn finish(self) -> Result<ExportedPast, PastFault> {
        let mut notes = self.left_out.sentences();
        let Some(trace) = self.trace else {
            let why = notes.iter().map(|note| format!("\n  {note}")).collect::<String>();
            return Err(PastFault::NoJobs(why));
        };
        let Observed { market, boots, sentences } = self.observed;
        notes.extend(sentences);
        let mut drafts = vec![trace];
        for (name, text) in [(MARKET_FILE, market), (BOOTS_FILE, boots), (POLICY_FILE, self.policy)] {
            if let Some(text) = text {
                drafts.push(Draft::written(self.out.join(name), &text)?);
            }
        }
        let mut options = Vec::new();
        let needs = [
            (self.nodes, "--nodes", NODES_FILE, ("NODES.csv", NO_NODES)),
            (self.catalogue, "--catalog", CATALOG_FILE, ("CATALOG.csv", NO_CATALOG)),
        ];
        for (supply, option, name, (stand_in, why)) in needs {
            let file = match supply {
                Supply::NotNeeded => continue,
                Supply::Known(text) => {
                    let path = self.out.join(name);
                    drafts.push(Draft::written(path.clone(), &text)?);
                    ReplayFile::Written(path)
                }
                Supply::Unknown => {
                    notes.push(why.to_owned());
                    ReplayFile::Missing(stand_in)
                }
            };
            options.push(ReplayOption { option, file });
        }
        // None gets its name before all of them are whole.
        drafts.iter_mut().try_for_each(Draft::complete)?;
        let files = drafts.into_iter().map(Draft::close).collect::<Result<Vec<_>, _>>()?;
        Ok(ExportedPast { jobs: self.rows, zero: self.zero, files, options, notes })
    }
}

/// Why a list of nodes has to be written by hand.
const NO_NODES: &str = "the policy has a pool of owned nodes, and none of them is there now: write those that were there as NODES.csv, with the \
                        columns node,cpu_milli,mem_mib,gpus,gpu_model,pool";

/// Why a catalogue has to be given by hand.
const NO_CATALOG: &str = "the policy names instance types that the built-in catalogue does not have: CATALOG.csv stands for the catalogue that has \
                          them, with the columns of crates/catalog/data/README.md";

/// A file that gets its name when it is whole.
struct Draft {
    path: PathBuf,
    draft: PathBuf,
    to: BufWriter<File>,
}

impl Draft {
    fn new(path: PathBuf) -> Result<Draft, PastFault> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let draft = path.with_file_name(name);
        match File::create(&draft) {
            Ok(file) => Ok(Draft { path, draft, to: BufWriter::new(file) }),
            Err(source) => Err(PastFault::Write { path, source }),
        }
    }

    fn written(path: PathBuf, text: &str) -> Result<Draft, PastFault> {
        let mut draft = Draft::new(path)?;
        draft.write(text)?;
        Ok(draft)
    }

    fn write(&mut self, text: &str) -> Result<(), PastFault> {
        self.to.write_all(text.as_bytes()).map_err(|source| PastFault::Write { path: self.path.clone(), source })
    }

    /// All of it is in the file.
    fn complete(&mut self) -> Result<(), PastFault> {
        self.to.flush().map_err(|source| PastFault::Write { path: self.path.clone(), source })
    }

    fn close(self) -> Result<PathBuf, PastFault> {
        std::fs::rename(&self.draft, &self.path)
            .map_err(|source| PastFault::Write { path: self.path.clone(), source })?;
        Ok(self.path.clone())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Once it has its name there is no draft any more.
        let _ = std::fs::remove_file(&self.draft);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_were_made_go_again_unless_they_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a/b");
        drop(MadeFolders::make(&out).unwrap());
        assert!(!folder.path().join("a").exists() && folder.path().exists());
        std::fs::create_dir(folder.path().join("a")).unwrap();
        drop(MadeFolders::make(&out).unwrap());
        assert!(folder.path().join("a").exists() && !out.exists(), "what was there stays");
        MadeFolders::make(&out).unwrap().keep();
        assert!(out.exists());
        drop(MadeFolders::make(&out).unwrap());
        assert!(out.exists(), "it was there already");
    }
}
