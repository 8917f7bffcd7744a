//! `forebay journal`: which of its commands does what; verifying, exporting and upgrading.
//!
//! Never: changes a journal but by `upgrade`, which keeps the files that it replaces. What a start would cut off is reported, not cut.

use super::args::{JournalDo, JournalExportArgs};
use super::backup::{backup_one, failure, restore_one};
use super::outcome::{Exit, Failure, print};
use crate::cost::CostRange;
use crate::intake::rejected;
use crate::journal::{JournalAct, JournalError, UpgradedJournal, VerifiedJournal, upgrade_folder, verify};
use crate::past::{ExportedPast, POLICY_FILE, PastFault, ReplayFile, ReplayOption, TRACE_FILE, export_past};
use crate::pasted::shell_path;
use crate::segments::{ReadHead, split_into_segments};
use crate::status;
use std::path::Path;

pub(super) fn run(what: &JournalDo) -> Result<Exit, Failure> {
    match what {
        JournalDo::Verify { folder } => verify_one(folder),
        JournalDo::Backup { folder, to } => backup_one(folder, to),
        JournalDo::Restore { backup, folder } => restore_one(backup, folder),
        JournalDo::Export(args) => export_one(args),
        JournalDo::Upgrade { folder } => upgrade_one(folder),
    }
}

fn verify_one(folder: &Path) -> Result<Exit, Failure> {
    let VerifiedJournal { meta, batches, first, end, snapshots, finished, identities, acts } =
        verify(folder).map_err(failure)?;
    let (folder, format, snapshots) = (folder.display(), meta.format, snapshots.len());
    print(&format!(
        "{folder}: sound: format {format}, {batches} batches from position {first} to {end}, {snapshots} snapshots, {finished} finished \
         jobs, {identities} identities\n"
    ))?;
    for JournalAct { kind, at_ms, text, era } in acts.iter().filter(|act| !act.text.is_empty()) {
        let at = crate::clock::instant(*at_ms).map_or_else(|| at_ms.to_string(), |at| at.to_string());
        print(&format!("  {at}: {kind}, incarnation {} from position {}: {text}\n", era.incarnation, era.begins))?;
    }
    Ok(Exit::Done)
}

fn export_one(args: &JournalExportArgs) -> Result<Exit, Failure> {
    let range = CostRange { from: args.from.clone(), to: args.to.clone() };
    let exported = export_past(&args.folder, &range, &args.out).map_err(|fault| match fault {
        // Its own remedies are those of `forebay run`.
        PastFault::Journal(JournalError::Missing { path }) => Failure::input(format_args!(
            "{}: there is no journal: name the folder that a Forebay wrote to",
            path.display()
        )),
        PastFault::Journal(e) => failure(e),
        PastFault::Write { .. } => Failure::outside(fault),
        other => Failure::input(other),
    })?;
    for note in &exported.notes {
        eprintln!("note: {note}");
    }
    let zero = crate::clock::instant(exported.zero.0).map_or_else(|| exported.zero.0.to_string(), |at| at.to_string());
    print(&format!("{}: {} jobs; time 0 of the files is {zero}\n", args.out.display(), exported.jobs))?;
    print(&format!("play it again:  {}\n", play_again(&args.out, &exported)))?;
    Ok(Exit::Done)
}

/// The command that plays an export again. What it needs and nobody could write has a name in capitals, which a note explains.
fn play_again(out: &Path, exported: &ExportedPast) -> String {
    let with_policy = exported.files.iter().any(|file| file.ends_with(POLICY_FILE));
    let policy = if with_policy { shell_path(&out.join(POLICY_FILE)) } else { "POLICY.yaml".to_owned() };
    let mut command = format!("forebay simulate --policy {policy} --trace {}", shell_path(&out.join(TRACE_FILE)));
    for ReplayOption { option, file } in &exported.options {
        let file = match file {
            ReplayFile::Written(path) => shell_path(path),
            ReplayFile::Missing(stand_in) => (*stand_in).to_owned(),
        };
        command.push_str(&format!(" {option} {file}"));
    }
    command
}

/// The logs of statuses and of rejected events as format 1 has them: the file, the folder, what the file is called afterwards.
struct OldLog {
    file: &'static str,
    folder: &'static str,
    kept: &'static str,
    head: ReadHead,
}

const OLD_LOGS: [OldLog; 2] = [
    OldLog { file: "status.jsonl", folder: status::FOLDER, kept: "status-1.jsonl", head: status::line_head },
    OldLog { file: "rejected.jsonl", folder: rejected::FOLDER, kept: "rejected-1.jsonl", head: rejected::line_head },
];

fn upgrade_one(folder: &Path) -> Result<Exit, Failure> {
    let upgraded = upgrade_folder(folder, &mut || split_logs(folder)).map_err(failure)?;
    // The journal has its new format: whatever comes now, the old files are not needed.
    for OldLog { file, kept, .. } in &OLD_LOGS {
        let old = folder.join(file);
        if old.exists() {
            let moved = std::fs::rename(&old, folder.join(kept));
            moved.map_err(|e| Failure::outside(format_args!("{}: {e}", old.display())))?;
        }
    }
    let text = match upgraded {
        UpgradedJournal::Already => format!("{}: has the newest format already\n", folder.display()),
        UpgradedJournal::Records { from, to } => format!(
            "{}: upgraded from record version {from} to {to}: nothing else was changed, and the release before cannot open it any more\n",
            folder.display()
        ),
        UpgradedJournal::Done { batches, end, finished, old, cut } => {
            let cut = cut.map_or(String::new(), |tail| format!("{tail}\n"));
            format!(
                "{cut}{}: upgraded: {batches} batches up to position {end}, {finished} finished jobs in the archive\nthe old journal is {}; \
                 remove it and `status-1.jsonl`, `rejected-1.jsonl` when you are content\n",
                folder.display(),
                old.display()
            )
        }
    };
    print(&text)?;
    Ok(Exit::Done)
}

/// Writes statuses and rejected events as segments. The old files stay as they are.
fn split_logs(data: &Path) -> Result<(), String> {
    for OldLog { file, folder, head, .. } in &OLD_LOGS {
        split_into_segments(&data.join(file), &data.join(folder), *head).map_err(|e| e.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_kernel::units::Timestamp;

    #[test]
    fn the_command_that_plays_it_again_has_what_it_needs() {
        let out = Path::new("last week");
        let mut exported = ExportedPast {
            jobs: 1,
            zero: Timestamp(0),
            files: vec![out.join(TRACE_FILE), out.join(POLICY_FILE)],
            options: Vec::new(),
            notes: Vec::new(),
        };
        let plain = "forebay simulate --policy 'last week/policy.yaml' --trace 'last week/trace.csv'";
        assert_eq!(play_again(out, &exported), plain);
        exported.options = vec![
            ReplayOption { option: "--nodes", file: ReplayFile::Written(out.join("nodes.csv")) },
            ReplayOption { option: "--catalog", file: ReplayFile::Missing("CATALOG.csv") },
        ];
        assert_eq!(play_again(out, &exported), format!("{plain} --nodes 'last week/nodes.csv' --catalog CATALOG.csv"));
    }
}
