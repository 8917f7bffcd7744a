//! `pause`, `resume`, `hold`, `release`, `drain`, `undrain`: what operators stop for a time. Each shows what is stopped afterwards.
//!
//! Never: decides what a name means. The server knows its queues, pools and nodes.

use super::Output;
use super::args::{BrakeArgs, BrakeReleaseArgs, Pausable, PauseArgs, ResumeArgs, ServerArgs};
use super::outcome::{Exit, Failure, print, print_json};
use crate::api::brakes::{BrakeReleaseRequest, BrakeRequest, Brakes};
use crate::show::lists;
use crate::show::table::{ShownColumns, terminal_width};

fn word(what: Pausable) -> &'static str {
    match what {
        Pausable::Buying => "buying",
        Pausable::Admission => "admission",
        Pausable::Preemption => "preemption",
        Pausable::All => "all",
    }
}

pub(super) fn pause(args: &PauseArgs, out: Output) -> Result<Exit, Failure> {
    let (why, until) = (args.order.why.clone(), args.order.until.clone());
    let asked = BrakeRequest { brake: word(args.what).to_owned(), target: None, why, until };
    show(&args.server, &args.server.client()?.set_brake(&asked)?, out)
}

pub(super) fn resume(args: &ResumeArgs, out: Output) -> Result<Exit, Failure> {
    let asked = BrakeReleaseRequest { brake: word(args.what).to_owned(), target: None };
    show(&args.server, &args.server.client()?.release_brake(&asked)?, out)
}

pub(super) fn set(kind: &str, args: &BrakeArgs, out: Output) -> Result<Exit, Failure> {
    let (why, until) = (args.order.why.clone(), args.order.until.clone());
    let asked = BrakeRequest { brake: kind.to_owned(), target: Some(args.target.clone()), why, until };
    show(&args.server, &args.server.client()?.set_brake(&asked)?, out)
}

pub(super) fn release(kind: &str, args: &BrakeReleaseArgs, out: Output) -> Result<Exit, Failure> {
    let asked = BrakeReleaseRequest { brake: kind.to_owned(), target: Some(args.target.clone()) };
    show(&args.server, &args.server.client()?.release_brake(&asked)?, out)
}

fn show(server: &ServerArgs, found: &Brakes, out: Output) -> Result<Exit, Failure> {
    if server.json {
        print_json(found)?;
    } else {
        let columns = ShownColumns { named: Vec::new(), width: terminal_width() };
        print(&format!("{}\n", lists::brakes(found, &columns, out.paint).map_err(Failure::input)?))?;
    }
    Ok(Exit::Done)
}
