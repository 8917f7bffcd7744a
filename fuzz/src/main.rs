//! `forebay-fuzz`: millions of inputs for the decoders. 0: nothing found. 1: a finding, with the command that makes it again. 2: bad use.
//!
//! Never: writes a file, or prints an input whole.

use clap::Parser;
use forebay_fuzz::corpus;
use forebay_fuzz::input::Maker;
use forebay_fuzz::run::{ACCEPTED, Figures, Plan, run};
use forebay_fuzz::targets::{self, FuzzTarget, TARGETS};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

/// Feeds made-up inputs to the decoders that take bytes from outside.
#[derive(Parser)]
#[command(name = "forebay-fuzz", version)]
struct Args {
    /// Which decoder: structured, reports, binary, batch, files, or all of them by their shares
    #[arg(long, default_value = "all")]
    target: String,
    /// How many inputs
    #[arg(long, default_value_t = 1_000_000)]
    inputs: u64,
    /// Which inputs: those of one seed are always the same
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The first input
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// On how many threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// How a finding is made again, but for its number.
static REPLAY: OnceLock<String> = OnceLock::new();

/// Bytes of an input that are shown.
const SHOWN: usize = 600;

fn main() -> ExitCode {
    let args = Args::parse();
    let only: Option<&'static FuzzTarget> = match args.target.as_str() {
        "all" => None,
        name => match targets::named(name) {
            Some(target) => Some(target),
            None => {
                let names: Vec<_> = TARGETS.iter().map(|t| t.name).collect();
                eprintln!("no target `{name}`; there are: all, {}", names.join(", "));
                return ExitCode::from(2);
            }
        },
    };
    let folder = corpus::folder();
    let corpus = match corpus::read(&folder) {
        Ok(corpus) if !corpus.is_empty() => corpus,
        Ok(_) => {
            return bad(&format!("{}: no inputs in it; start this at the root of the repository", folder.display()));
        }
        Err(e) => return bad(&format!("{}: {e}; start this at the root of the repository", folder.display())),
    };
    let target = only.map(|t| format!(" --target {}", t.name)).unwrap_or_default();
    let replay = format!("cargo run --release -p forebay-fuzz --{target} --seed {} --inputs 1 --from ", args.seed);
    let replay = REPLAY.get_or_init(|| replay);
    let maker = Maker::new(args.seed, &corpus, only);
    let plan = Plan { from: args.from, inputs: args.inputs, threads: args.threads };
    let figures = match run(&maker, plan, &mut |done| progress(done, args.inputs), hangs) {
        Ok(figures) => figures,
        Err(e) => return bad(&format!("no folder for temporary files: {e}; set TMPDIR to one that can be written")),
    };
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
    print!("{}", closing(&figures, args.seed));
    let Some(fault) = figures.fault() else { return ExitCode::SUCCESS };
    println!("\nfound: {fault}");
    if let Some(found) = &figures.finding {
        let shown = found.bytes.get(..SHOWN.min(found.bytes.len())).unwrap_or_default();
        println!("input: {} bytes: {}", found.bytes.len(), shown.escape_ascii());
        println!("again: {replay}{}", found.n);
    }
    ExitCode::FAILURE
}

fn bad(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::from(2)
}

/// One line that is written over, where somebody looks.
fn progress(done: u64, of: u64) {
    let mut out = std::io::stderr();
    if out.is_terminal() {
        let percent = done.saturating_mul(100) / of.max(1);
        // A terminal that is gone is no reason to stop.
        let _ = write!(out, "\r{done} of {of} inputs, {percent} %");
        let _ = out.flush();
    }
}

fn hangs(n: u64) -> ! {
    println!("\nfound: input {n} takes more than 30 s\nagain: {}{n}", REPLAY.get().map_or("", String::as_str));
    std::process::exit(1)
}

/// The figures of a run: a table of outcomes by target, and what it took.
fn closing(figures: &Figures, seed: u64) -> String {
    let mut outcomes: BTreeMap<&str, u64> = BTreeMap::new();
    for ((_, outcome), n) in &figures.outcomes {
        *outcomes.entry(outcome).or_default() += n;
    }
    let mut text = format!("{:<14}", "outcome");
    for target in &TARGETS {
        text.push_str(&format!(" {:>11}", target.name));
    }
    text.push_str(&format!(" {:>11}\n", "all"));
    for (outcome, sum) in &outcomes {
        text.push_str(&format!("{outcome:<14}"));
        for target in &TARGETS {
            text.push_str(&format!(" {:>11}", figures.outcomes.get(&(target.name, *outcome)).copied().unwrap_or(0)));
        }
        text.push_str(&format!(" {sum:>11}\n"));
    }
    let seconds = figures.took.as_secs_f64().max(0.001);
    let mib =
        |kib: Option<u64>| kib.map_or_else(|| "not known".to_owned(), |kib| format!("{:.1} MiB", kib as f64 / 1024.0));
    text.push_str(&format!(
        "\nseed {seed}: {} inputs, {:.1} MiB, {} {ACCEPTED}; {:.1} s, {:.0} inputs/s; peak memory {}, {} of it after the start\n",
        figures.inputs,
        figures.bytes as f64 / 1_048_576.0,
        figures.accepted(),
        seconds,
        figures.inputs as f64 / seconds,
        mib(figures.peak_kib),
        mib(figures.growth_kib),
    ));
    text
}
