//! `forebay demand`: the seven inputs of the demand model, measured on a trace or a data folder.
//!
//! Never: changes anything, or asks a server.

use super::Output;
use super::args::DemandArgs;
use super::outcome::{Exit, Failure, print, print_json};
use crate::cost::CostFault;
use crate::demand::{DemandFault, document, of_folder, of_trace};
use crate::journal::JournalError;
use crate::show::demand;
use forebay_kernel::units::Span;
use forebay_sim::trace::TraceFormat;

pub(super) fn run(args: &DemandArgs, out: Output) -> Result<Exit, Failure> {
    let format = args.trace_format.as_deref().map(str::parse::<TraceFormat>).transpose().map_err(Failure::input)?;
    let gathered = match (&args.trace, &args.data) {
        (Some(trace), _) => of_trace(trace, format),
        (None, Some(folder)) => of_folder(folder),
        (None, None) => return Err(Failure::input("give a trace by --trace, or a data folder by --data")),
    };
    let mut gathered = gathered.map_err(failure)?;
    if let Some(boot) = args.boot {
        gathered = gathered.booting(Span(u64::try_from(boot.as_millis()).unwrap_or(u64::MAX)));
    }
    let found = document(&gathered).map_err(failure)?;
    if args.json {
        print_json(&found)?;
    } else {
        print(&format!("{}\n", demand::text(&found, out.paint)))?;
    }
    Ok(Exit::Done)
}

fn failure(fault: DemandFault) -> Failure {
    match fault {
        // Its own remedies are those of `forebay run`.
        DemandFault::Journal(JournalError::Missing { path })
        | DemandFault::Ledger(CostFault::Journal(JournalError::Missing { path })) => Failure::input(format_args!(
            "{}: there is no journal: name the folder that a Forebay wrote to, or give a trace by --trace",
            path.display()
        )),
        DemandFault::Journal(e) | DemandFault::Ledger(CostFault::Journal(e)) => Failure::storage(&e),
        DemandFault::Ledger(CostFault::Unbalanced(e)) => Failure { exit: Exit::Violations, text: e.to_string() },
        other => Failure::input(other),
    }
}
