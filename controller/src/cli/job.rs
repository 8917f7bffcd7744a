//! `forebay job`: one job whole, put together of what the server says of it.
//!
//! Never: a figure that no answer has.

use super::Output;
use super::args::JobArgs;
use super::outcome::{Exit, Failure, print, print_json};
use crate::api::jobs::OneJob;
use crate::show::job::{JobRecord, attempts, text};

pub(super) fn run(args: &JobArgs, out: Output) -> Result<Exit, Failure> {
    let client = args.server.client()?;
    let job: OneJob = client.job(&args.job)?;
    // In the form that no subject has: another job's subject may be `job-17`.
    let name = job.job.job.replacen("job-", "#", 1);
    let (cost, statuses) = (client.job_cost(&name)?, client.job_statuses(&name)?);
    let record = JobRecord { attempts: attempts(&statuses, &cost), job, cost, statuses };
    if args.server.json {
        print_json(&record)?;
    } else {
        print(&format!("{}\n", text(&record, out.paint)))?;
    }
    Ok(Exit::Done)
}
