//! `forebay cost`: the bill of a running Forebay, or of a data folder.
//!
//! Never: another figure from a folder than from its server.

use super::Output;
use super::args::CostArgs;
use super::outcome::{Exit, Failure, print, print_json};
use crate::api::client::encoded;
use crate::cost::{CostBy, CostFault, CostRange, NobodysShare, of_folder};
use crate::journal::{JournalError, StorageFailure};
use crate::show::cost;

pub(super) fn run(args: &CostArgs, out: Output) -> Result<Exit, Failure> {
    let by: CostBy = args.by.parse().map_err(|e| Failure::input(format_args!("--by {e}")))?;
    let bill = match &args.data {
        Some(folder) => {
            let range = CostRange { from: args.from.clone(), to: args.to.clone() };
            let nobodys = if args.spread { NobodysShare::Spread } else { NobodysShare::OwnRows };
            of_folder(folder, &by, &range, nobodys).map_err(failure)?
        }
        None => {
            let mut asked = format!("by={}", encoded(&by.to_string()));
            for (name, value) in [("from", &args.from), ("to", &args.to)] {
                if let Some(value) = value {
                    asked.push_str(&format!("&{name}={}", encoded(value)));
                }
            }
            if args.spread {
                asked.push_str("&spread=true");
            }
            args.server.client()?.cost(&asked)?
        }
    };
    if args.server.json {
        print_json(&bill)?;
    } else if args.csv {
        print(&cost::csv(&bill))?;
    } else {
        print(&format!("{}\n", cost::table(&bill, &by.to_string(), out.paint)))?;
    }
    Ok(Exit::Done)
}

fn failure(fault: CostFault) -> Failure {
    match fault {
        // Its own remedies are those of `forebay run`.
        CostFault::Journal(JournalError::Missing { path }) => Failure::input(format_args!(
            "{}: there is no journal: name the folder that a Forebay wrote to, or leave --data out to ask a server",
            path.display()
        )),
        CostFault::Journal(e) if !e.is_for_the_caller() => Failure::outside(e),
        CostFault::Unbalanced(e) => Failure { exit: Exit::Violations, text: e.to_string() },
        CostFault::Range(e) => Failure::input(format_args!("--{e}")),
        CostFault::Spread(e) => Failure::input(format_args!("--spread: {e}")),
        other => Failure::input(other),
    }
}
