//! `forebay job`: one job whole, put together of what the server says of it, or a data folder.
//!
//! Never: a figure that no answer has.

use super::args::JobRecordArgs;
use super::outcome::{Exit, Failure, print, print_json};
use super::{Output, folder};
use crate::api::jobs::OneJob;
use crate::show::job::{JobRecord, attempts, text};

pub(super) fn run(args: &JobRecordArgs, out: Output) -> Result<Exit, Failure> {
    let record = match &args.data {
        Some(folder) => folder::job(folder, &args.job)?,
        None => asked(args)?,
    };
    if args.server.json {
        print_json(&record)?;
    } else {
        print(&format!("{}\n", text(&record, out.paint)))?;
    }
    Ok(Exit::Done)
}

fn asked(args: &JobRecordArgs) -> Result<JobRecord, Failure> {
    let client = args.server.client()?;
    let job: OneJob = client.job(&args.job)?;
    // In the form that no subject has: another job's subject may be `job-17`.
    let name = job.job.job.replacen("job-", "#", 1);
    let (cost, statuses) = (client.job_cost(&name)?, client.job_statuses(&name)?);
    Ok(JobRecord { attempts: attempts(&statuses, &cost), job, cost, statuses })
}
