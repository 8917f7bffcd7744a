//! `forebay-fuzz`: millions of inputs for the decoders. 0: nothing found. 1: a finding, with the command that makes it again. 2: bad use.
//!
//! Never: writes a file, or prints an input whole.

use clap::Parser;
use forebay_fuzz::corpus;
use forebay_fuzz::input::Maker;
use forebay_fuzz::run::{ACCEPTED, Figures, FuzzProgress, Plan, run};
use forebay_fuzz::targets::{self, FuzzTarget, TARGETS};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

/// Feeds made-up inputs to the decoders that take bytes from outside.
#[derive(Parser)]
#[command(name = "forebay-fuzz", version)]
struct Args {
    /// Which decoder: structured, reports, binary, batch, files, policy, config, state, trace, manifest, metadata, notices, agents, or all of
    /// them by their shares
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
    let seed = args.seed;
    let replay = format!("cargo run --profile sweep -p forebay-fuzz --{target} --seed {seed} --inputs 1 --from ");
    let replay = REPLAY.get_or_init(|| replay);
    let maker = Maker::new(args.seed, &corpus, only);
    let plan = Plan { from: args.from, inputs: args.inputs, threads: args.threads };
    let mut written = 0;
    let mut progress = |at: FuzzProgress| progress(at, plan, &mut written);
    let figures = match run(&maker, plan, &mut progress, hangs) {
        Ok(figures) => figures,
        Err(e) => return bad(&format!("no folder for temporary files: {e}; set TMPDIR to one that can be written")),
    };
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
    print!("{}", closing(&figures, args.seed));
    let next = args.from.saturating_add(args.inputs);
    if figures.finding.is_none() {
        println!("inputs {} to {} are done; the next ones: --from {next}", args.from, next.saturating_sub(1));
    }
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

/// Inputs between two lines of a run that nobody looks at: a minute or so.
const A_LINE: u64 = 1_000_000;

/// One line that is written over, where somebody looks; else one each million inputs, with how to go on from there. `written`: how many of
/// those lines were.
fn progress(at: FuzzProgress, plan: Plan, written: &mut u64) {
    let mut out = std::io::stderr();
    // A terminal that is gone is no reason to stop.
    if out.is_terminal() {
        let percent = at.done.saturating_mul(100) / plan.inputs.max(1);
        let _ = write!(out, "\r{} of {} inputs, {percent} %", at.done, plan.inputs);
        let _ = out.flush();
        return;
    }
    let gone = at.resume.saturating_sub(plan.from);
    if gone / A_LINE > *written {
        *written = gone / A_LINE;
        let left = plan.inputs.saturating_sub(gone);
        let (of, next) = (plan.inputs, at.resume);
        let _ = writeln!(out, "{gone} of {of} inputs; to go on from here: --from {next} --inputs {left}");
    }
}

fn hangs(n: u64) -> ! {
    println!("\nfound: input {n} takes more than 30 s\nagain: {}{n}", REPLAY.get().map_or("", String::as_str));
    std::process::exit(1)
}

/// The figures of a run: a line for each target, what it refused and why, and what all took.
fn closing(figures: &Figures, seed: u64) -> String {
    let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
    let names = ["inputs", "past the first stage", "accepted", "refused", "most MiB"];
    let [inputs, past, accepted, refused, most] = names;
    let mut text = format!("{:<12} {inputs:>10} {past:>22} {accepted:>10} {refused:>10} {most:>9}\n", "target");
    for target in &TARGETS {
        let of = figures.of(target);
        let percent = of.past as f64 * 100.0 / of.inputs.max(1) as f64;
        text.push_str(&format!(
            "{:<12} {:>10} {:>14} {percent:>5.1} % {:>10} {:>10} {:>9.1}\n",
            target.name,
            of.inputs,
            of.past,
            of.accepted,
            of.inputs - of.accepted,
            mib(of.most_bytes),
        ));
    }
    text.push('\n');
    for target in &TARGETS {
        let own = figures.outcomes.iter().filter(|((name, code), _)| *name == target.name && *code != ACCEPTED);
        let refused: Vec<String> = own.map(|((_, code), n)| format!("{code} {n}")).collect();
        if !refused.is_empty() {
            text.push_str(&format!("{:<12} refused: {}\n", target.name, refused.join(", ")));
        }
    }
    let seconds = figures.took.as_secs_f64().max(0.001);
    let peak = figures.peak_kib.map_or_else(|| "not known".to_owned(), |kib| format!("{:.1} MiB", kib as f64 / 1024.0));
    text.push_str(&format!(
        "\nseed {seed}: {} inputs, {:.1} MiB, {} {ACCEPTED}; {seconds:.1} s, {:.0} inputs/s; peak memory {peak}, of it {:.1} MiB kept since \
         it was warm\n",
        figures.inputs,
        mib(figures.bytes),
        figures.accepted(),
        figures.inputs as f64 / seconds,
        mib(figures.growth),
    ));
    text
}
