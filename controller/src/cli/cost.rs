//! `forebay cost`: the bill of a running Forebay, or of a data folder.
//!
//! Never: another figure from a folder than from its server.

use super::args::CostArgs;
use super::outcome::{Exit, Failure, print, print_json};
use super::{Output, folder};
use crate::api::client::encoded;
use crate::cost::{BillScope, CostBy, CostFault, CostRange, CostSubset, RowsFault, focus_of_folder, of_folder};
use crate::show::cost;

pub(super) fn run(args: &CostArgs, out: Output) -> Result<Exit, Failure> {
    let range = CostRange { from: args.from.clone(), to: args.to.clone() };
    if args.focus {
        let text = match &args.data {
            Some(folder) => focus_of_folder(folder, &range).map_err(failure)?,
            None => args.server.client()?.focus(&range_query(&range))?,
        };
        print(&text)?;
        return Ok(Exit::Done);
    }
    let by: CostBy = args.by.parse().map_err(|e| Failure::input(format_args!("--by {e}")))?;
    let of: Result<Vec<CostSubset>, _> = args.of.iter().map(|row| row.parse()).collect();
    let of = of.map_err(|e| Failure::input(format_args!("--of {e}")))?;
    let scope = BillScope::of_or(of, if args.spread { BillScope::Spread } else { BillScope::All });
    let bill = match &args.data {
        Some(folder) => of_folder(folder, &by, &range, &scope).map_err(failure)?,
        None => {
            let scope = match &scope {
                BillScope::All => String::new(),
                BillScope::Spread => "&spread=true".to_owned(),
                BillScope::Of(rows) => rows.iter().map(|row| format!("&of={}", encoded(&row.to_string()))).collect(),
            };
            let by = encoded(&by.to_string());
            args.server.client()?.cost(&format!("by={by}{scope}&{}", range_query(&range)))?
        }
    };
    if let (true, BillScope::Of(rows)) = (bill.rows.is_empty(), &scope) {
        let asked: Vec<String> = rows.iter().map(|row| format!("`{row}`")).collect();
        let by: Vec<String> = rows.iter().map(|row| format!("`forebay cost --by {}`", row.by)).collect();
        eprintln!(
            "note: nothing of this range is in {}: {} lists the rows that there are",
            asked.join(" and "),
            by.join(", or ")
        );
    }
    if args.server.json {
        print_json(&bill)?;
    } else if args.csv {
        print(&cost::csv(&bill))?;
    } else {
        print(&format!("{}\n", cost::table(&bill, &by.to_string(), out.paint)))?;
    }
    Ok(Exit::Done)
}

/// A range as a query has it.
fn range_query(range: &CostRange) -> String {
    let asked = [("from", &range.from), ("to", &range.to)];
    let parts = asked.iter().filter_map(|(name, value)| Some(format!("{name}={}", encoded(value.as_ref()?))));
    parts.collect::<Vec<_>>().join("&")
}

/// A bill that cannot be made.
pub(super) fn failure(fault: CostFault) -> Failure {
    match fault {
        CostFault::Journal(e) => folder::failure(e),
        CostFault::Unbalanced(e) => Failure { exit: Exit::Violations, text: e.to_string() },
        CostFault::Range(e) => Failure::input(format_args!("--{e}")),
        CostFault::Rows(RowsFault::Spread(e)) => Failure::input(format_args!("--spread: {e}")),
        CostFault::Rows(RowsFault::Label(e)) => Failure::input(e),
    }
}
