//! `forebay simulate`: a trace through a policy in virtual time, and its scorecard.
//!
//! Never: a figure that depends on how fast this machine is, but `engine_s`.

use super::Output;
use super::args::SimulateArgs;
use super::check::compile_file;
use super::outcome::{Exit, Failure, print, write};
use crate::past::BOOTS_FILE;
use crate::show::closing::Closing;
use crate::show::progress::{Bar, Moment};
use forebay_kernel::policy::Policy;
use forebay_policy::Routes;
use forebay_sim::drive::{SimError, SimOptions, SimOutcome, SimProgress, simulate};
use forebay_sim::market::{Market, find_beside};
use forebay_sim::trace::{self, BootTimes, Replay, ReplayLine, Trace, TraceFormat, TraceJob};
use forebay_sim::world::spot_pairs;
use forebay_wire::intake::{Caller, Intake, NoRoutes};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Instant;

pub(super) fn run(args: &SimulateArgs, out: Output) -> Result<Exit, Failure> {
    let compiled = compile_file(&args.policy, &args.catalog.read()?)?.1;
    let policy = compiled.policy;
    owned_are_named(args, &policy)?;
    let mut trace = read_trace(&args.trace, args.trace_format.as_deref())?;
    let replay = match trace.format {
        TraceFormat::Events => Some(trace::read_events(&args.trace).map_err(Failure::input)?),
        _ => None,
    };
    trace.notes.extend(replay.iter().flat_map(|replay| intake_notes(&replay.lines)));
    route(&mut trace, &compiled.routes, args)?;
    let nodes = args.nodes.as_ref().map(trace::read_nodes).transpose().map_err(Failure::input)?;
    let boots = boots(args)?;
    let market = market(args, &trace, replay.as_ref(), &policy)?;
    let source = market.describe();
    let to_stdout = args.json.as_deref() == Some(Path::new("-"));
    let bar = if to_stdout { Bar::none() } else { Bar::on_terminal() };
    let mut show = |p: &SimProgress| bar.show(&moment(p));
    let options = SimOptions {
        crash_every: args.crash_every,
        nodes: nodes.as_deref(),
        boots,
        progress: if bar.hidden() { None } else { Some(&mut show) },
        clock: nanos,
        ..SimOptions::new(args.seed, market)
    };
    let done = simulate(policy, &trace, options);
    bar.finish();
    let outcome = done.map_err(|error| match (&error, &args.nodes) {
        (SimError::Owned(fault), Some(nodes)) => Failure::input(format_args!("{}: {fault}", nodes.display())),
        _ => broken(&error),
    })?;
    for violation in &outcome.violations {
        eprintln!("{} {violation}", out.err.bad("violation:"));
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&outcome.scorecard).map_err(Failure::outside)?;
        write(path, &format!("{text}\n"))?;
    }
    if !to_stdout {
        print(&report(&outcome, &source, out))?;
    }
    let sound = outcome.violations.is_empty() && outcome.scorecard.is_sound();
    Ok(if sound { Exit::Done } else { Exit::Violations })
}

/// A simulated cluster has no nodes but those that are bought, and those that are listed.
fn owned_are_named(args: &SimulateArgs, policy: &Policy) -> Result<(), Failure> {
    let Some(pool) = policy.pools.iter().find(|pool| pool.owned.is_some()).filter(|_| args.nodes.is_none()) else {
        return Ok(());
    };
    Err(Failure::input(format_args!(
        "{}: pool `{}` has owned nodes, and a simulation has no cluster to find them in; list them: --nodes FILE with the columns \
         node,cpu_milli,mem_mib,gpus,gpu_model, or simulate a copy of the policy without this pool",
        args.policy.display(),
        pool.name
    )))
}

/// A trace in the format that is named, or that its first line tells.
pub(super) fn read_trace(path: &Path, format: Option<&str>) -> Result<Trace, Failure> {
    let format = format.map(str::parse::<TraceFormat>).transpose().map_err(Failure::input)?;
    trace::read(path, format).map_err(Failure::input)
}

/// What the intake of a running Forebay would say of the events of an event file: how many it would reject, how many it would warn of, and
/// the first of each.
fn intake_notes(lines: &[ReplayLine]) -> Vec<String> {
    let caller = Caller::local();
    let intake = Intake { caller: &caller, routes: &NoRoutes, key: None };
    let (mut rejected, mut warned) = (Said::default(), Said::default());
    for ReplayLine { line, event, .. } in lines {
        // It is for the simulated market, no event of a pipeline.
        if event.get("type").and_then(Value::as_str) == Some("simulation.market") {
            continue;
        }
        match intake.decode_value(event) {
            Ok(decoded) => decoded.warnings.into_iter().take(1).for_each(|warning| warned.add(*line, warning)),
            Err(why) => rejected.add(*line, why.to_string()),
        }
    }
    let notes = [rejected.note("events would be rejected"), warned.note("events would be warned of")];
    notes.into_iter().flatten().collect()
}

/// How many events something was said of, and what of the first.
#[derive(Default)]
struct Said {
    count: usize,
    first: Option<(u64, String)>,
}

impl Said {
    fn add(&mut self, line: u64, said: String) {
        self.count += 1;
        // They come in order of time; the file is read in order of lines.
        if self.first.as_ref().is_none_or(|(first, _)| line < *first) {
            self.first = Some((line, said));
        }
    }

    fn note(self, what: &str) -> Option<String> {
        let (line, said) = self.first?;
        Some(format!("{} {what} by a running Forebay; the first is on line {line}: {said}", self.count))
    }
}

/// Sends each job where the policy's routes would send its event.
fn route(trace: &mut Trace, routes: &Routes, args: &SimulateArgs) -> Result<(), Failure> {
    let mut routed = 0;
    for job in trace.jobs.iter_mut().filter(|_| !routes.is_empty()) {
        let queue = routes.route(&as_submitted(job)).map_err(|unfinished| {
            Failure::input(format_args!("{}: line {}: {unfinished}", args.trace.display(), job.line))
        })?;
        if let Some(queue) = queue.filter(|queue| job.queue.as_deref() != Some(queue)) {
            job.queue = Some(queue.to_owned());
            routed += 1;
        }
    }
    if routed > 0 {
        trace.notes.push(format!("{routed} jobs were sent to another queue by the policy's routes"));
    }
    Ok(())
}

/// A job of a trace as the data of the event that would submit it: what routes look at. What the trace does not state is not in it.
fn as_submitted(job: &TraceJob) -> Value {
    let workers = u64::from(job.workers.unwrap_or(1).max(1));
    let share = if job.gpu_milli < 1000 {
        json!(f64::from(job.gpu_milli) / 1000.0)
    } else {
        json!(u64::from(job.gpus) / workers)
    };
    let mut each = json!({});
    let mut gang = json!({});
    match job.workers {
        None if job.gpus > 1 => gang["gpus"] = json!(job.gpus),
        _ => {
            each["gpus"] = share;
            gang["workers"] = json!(workers);
        }
    }
    if !job.gpu_models.is_empty() {
        each["models"] = json!(job.gpu_models);
    }
    if job.cpu_milli > 0 {
        each["cpu"] = json!(job.cpu_milli as f64 / 1000.0 / workers as f64);
    }
    if job.mem_mib > 0 {
        each["memory"] = json!(format!("{}MiB", job.mem_mib / workers));
    }
    gang["each"] = each;
    let mut data = json!({ "gang": gang });
    let words = [("queue", &job.queue), ("tier", &job.tier), ("user", &job.user), ("priority", &job.priority)];
    for (name, word) in words {
        if let Some(word) = word {
            data[name] =
                word.parse::<i64>().ok().filter(|_| name == "priority").map_or_else(|| json!(word), |n| json!(n));
        }
    }
    if !job.labels.is_empty() {
        data["labels"] = json!(job.labels);
    }
    data
}

fn boots(args: &SimulateArgs) -> Result<BootTimes, Failure> {
    let beside = args.trace.with_file_name(BOOTS_FILE);
    let path = match args.boots.as_str() {
        "catalogue" => return Ok(BootTimes::new()),
        "auto" if !beside.is_file() => return Ok(BootTimes::new()),
        "auto" => beside,
        path => PathBuf::from(path),
    };
    trace::read_boots(path).map_err(Failure::input)
}

fn market(args: &SimulateArgs, trace: &Trace, replay: Option<&Replay>, policy: &Policy) -> Result<Market, Failure> {
    let pairs = spot_pairs(policy);
    // Half as long again as the submissions last, and a week: what is still running then sees the market repeat.
    let last = trace.jobs.last().map_or(0, |j| j.submit_ms);
    let horizon = last + last / 2 + 7 * 86_400_000;
    let recorded = |path: PathBuf| Market::recorded(path, &pairs).map_err(Failure::input);
    let market = match args.market.as_str() {
        "calm" => Market::calm(&pairs),
        "seeded" => Market::seeded(args.seed, &pairs, horizon),
        "auto" => match find_beside(&args.trace) {
            Some(path) => recorded(path)?,
            None => Market::seeded(args.seed, &pairs, horizon),
        },
        path => recorded(PathBuf::from(path))?,
    };
    // An event file may say when spot is gone.
    let droughts = replay.map_or(&[][..], |replay| &replay.droughts);
    Ok(droughts.iter().fold(market, |market, (from, to)| market.with_drought(*from, *to)))
}

/// Nanoseconds since the first call.
fn nanos() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn moment(p: &SimProgress) -> Moment {
    Moment {
        elapsed_ms: p.now.0,
        queued: p.submitted.saturating_sub(p.ended + p.running),
        running: p.running,
        nodes: p.nodes,
        spend_micro: p.spent,
        done: p.ended,
        total: p.jobs,
    }
}

/// A simulation that came to no end found a violation, whatever the input was.
fn broken(error: &SimError) -> Failure {
    let text = format!("{error}: this is a fault of Forebay; report it with the policy, the trace and the seed");
    Failure { exit: Exit::Violations, text }
}

fn report(outcome: &SimOutcome, market: &str, out: Output) -> String {
    let card = &outcome.scorecard;
    let closing = Closing { card, open: 0, violations: outcome.violations.len() as u64 };
    let mut notes = vec![format!("market: {market}")];
    notes.extend(card.assumptions.iter().map(|a| format!("assumed: {a}")));
    if outcome.crashes > 0 {
        notes.push(format!("recovered from the journal {} times", outcome.crashes));
    }
    let notes: Vec<String> = notes.iter().map(|n| out.paint.faint(n)).collect();
    format!("{}\n\n{}\n\n{}\n", closing.table(out.paint), notes.join("\n"), closing.line(out.paint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_intake_would_say_of_an_event_file_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("day.jsonl");
        let event = |name: &str, minute: u32, data: &str| {
            format!(
                "{{\"type\":\"job.submitted\",\"time\":\"2026-11-02T09:{minute:02}:00Z\",\"subject\":\"{name}\",\"data\":{{{data},\
                 \"gang\":{{\"each\":{{\"gpus\":1}}}}}}}}\n"
            )
        };
        let notes = |text: String| {
            std::fs::write(&path, text).unwrap();
            intake_notes(&trace::read_events(&path).unwrap().lines)
        };
        assert_eq!(notes(event("a", 0, "\"queue\":\"q\"")), [""; 0]);
        // The first in the file, not in time.
        let bad = event("b", 9, "\"sharing\":\"exclusvie\"") + &event("c", 1, "\"sharing\":\"share\"");
        let noted = notes(bad + &event("d", 0, "\"quueue\":\"q\""));
        assert!(
            noted[0].starts_with("2 events would be rejected") && noted[0].contains("line 1: data.sharing"),
            "{noted:?}"
        );
        assert!(
            noted[1].starts_with("1 events would be warned of") && noted[1].contains("did you mean `queue`?"),
            "{noted:?}"
        );
    }
}
