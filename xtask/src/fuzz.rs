//! The decoders under made-up inputs, for as long as somebody wants, and how much of them the inputs reach.
//!
//! The fuzzer itself is a package (`fuzz/`); a finding prints the command that makes its input again. Coverage is the compiler's own
//! (`-Cinstrument-coverage`), read by the tools of the same LLVM, in a target folder apart. The stable compiler counts regions, the nightly one
//! branches as well.
//! Never: installs those tools, or passes figures off as those of branches that are of regions.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::ChoreFailure;
use crate::command::{capture, cargo, run as run_command};
use crate::workspace::Workspace;

/// What `cargo xtask fuzz` takes.
#[derive(clap::Args)]
pub struct FuzzArgs {
    /// How many inputs
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub inputs: u64,
    /// The first input: a run that was broken off goes on from the number that it printed last
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub from: u64,
    /// How many to run at once
    #[arg(long, value_name = "J", default_value_t = 2)]
    pub jobs: u32,
    /// Only this decoder, by the name that `fuzz/src/targets.rs` has for it
    #[arg(long, value_name = "NAME", default_value = "all")]
    pub target: String,
    /// Print how much of each decoder the inputs reach; wants rustup's component `llvm-tools`
    #[arg(long)]
    pub coverage: bool,
}

/// The fuzzer's package and program.
const PROGRAM: &str = "forebay-fuzz";

/// As fast as a release, with a debug build's checks: an overflow is a finding.
const PROFILE: &str = "sweep";

/// The files of each decoder, from the root. What it shares with others is named once.
static DECODERS: [(&str, &[&str]); 11] = [
    ("events", &["crates/wire/src/intake/"]),
    ("policy", &["crates/policy/src/"]),
    ("configuration", &["controller/src/config/"]),
    ("state document", &["crates/wire/src/document/"]),
    ("trace", &["sim/src/trace/", "crates/catalog/src/input/"]),
    ("manifest", &["scalers/checkpoint-s3/src/manifest.rs", "scalers/checkpoint-s3/src/address.rs"]),
    ("metadata", &["scalers/node-agent/src/report.rs"]),
    ("EventBridge", &["scalers/capacity-ec2/src/notice/"]),
    (
        "agent reports",
        &["scalers/node-agent/src/activity/report.rs", "scalers/node-agent/src/worker.rs", "controller/src/activity/"],
    ),
    ("journal records", &["crates/kernel/src/journal.rs", "crates/kernel/src/grown.rs"]),
    ("segments", &["controller/src/segments/", "controller/src/intake/rejected.rs", "controller/src/status.rs"]),
];

/// Builds the fuzzer and runs it.
pub fn run(workspace: &Workspace, args: &FuzzArgs) -> Result<(), ChoreFailure> {
    if args.coverage {
        return run_covered(workspace, args);
    }
    let mut command = cargo(workspace.root());
    command.args(["run", "--profile", PROFILE, "-p", PROGRAM, "--"]);
    run_command(with(&mut command, args))
}

fn with<'a>(command: &'a mut Command, args: &FuzzArgs) -> &'a mut Command {
    command.args(["--inputs", &args.inputs.to_string(), "--from", &args.from.to_string()]);
    command.args(["--threads", &args.jobs.to_string(), "--target", &args.target])
}

/// The same with instrumentation. The profile is written when the program ends, so that a run that is broken off has none.
fn run_covered(workspace: &Workspace, args: &FuzzArgs) -> Result<(), ChoreFailure> {
    let tools = LlvmTools::find()?;
    let folder = workspace.target().join("fuzz-coverage");
    let profiles = folder.join("profiles");
    let io = |e: std::io::Error| ChoreFailure::new(format!("{}: {e}", profiles.display()));
    if profiles.exists() {
        std::fs::remove_dir_all(&profiles).map_err(io)?;
    }
    std::fs::create_dir_all(&profiles).map_err(io)?;
    let mut build = cargo(workspace.root());
    build.env("RUSTFLAGS", tools.flags);
    // With a target named, what runs while it is built is not instrumented.
    build.args(["build", "-p", PROGRAM, "--bin", PROGRAM, "--target", &tools.host, "--target-dir"]).arg(&folder);
    run_command(&mut build)?;
    let program = folder.join(&tools.host).join("debug").join(format!("{PROGRAM}{}", std::env::consts::EXE_SUFFIX));
    let mut fuzz = Command::new(&program);
    fuzz.current_dir(workspace.root()).env("LLVM_PROFILE_FILE", profiles.join("%p-%m.profraw"));
    run_command(with(&mut fuzz, args))?;
    let merged = folder.join("fuzz.profdata");
    let mut merge = Command::new(&tools.profdata);
    merge.args(["merge", "-sparse", "-o"]).arg(&merged);
    for entry in std::fs::read_dir(&profiles).map_err(io)? {
        merge.arg(entry.map_err(io)?.path());
    }
    run_command(&mut merge)?;
    let mut export = Command::new(&tools.cov);
    export.args(["export", "-summary-only", "-instr-profile"]).arg(&merged).arg(&program);
    let figures = read(&capture(&mut export)?, workspace.root())?;
    print!("{}", table(&figures));
    Ok(())
}

/// The tools of the compiler's own LLVM: another one's do not read what it writes.
#[derive(Debug)]
struct LlvmTools {
    profdata: PathBuf,
    cov: PathBuf,
    /// The machine that this compiler builds for by itself.
    host: String,
    flags: &'static str,
}

impl LlvmTools {
    fn find() -> Result<LlvmTools, ChoreFailure> {
        let rustc = || Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        let about = capture(rustc().arg("-vV"))?;
        let sysroot = capture(rustc().args(["--print", "sysroot"]))?;
        let host = field(&about, "host").unwrap_or_default().to_owned();
        let own = Path::new(sysroot.trim()).join("lib/rustlib").join(&host).join("bin");
        let [profdata, cov] = ["llvm-profdata", "llvm-cov"].map(|name| own.join(name));
        let found = |path: &Path| path.with_extension(std::env::consts::EXE_EXTENSION).is_file();
        if !found(&profdata) || !found(&cov) {
            return Err(ChoreFailure::new(not_installed(&about)));
        }
        let nightly = field(&about, "release").is_some_and(|release| release.contains("nightly"));
        let flags = if nightly { "-Cinstrument-coverage -Zcoverage-options=branch" } else { "-Cinstrument-coverage" };
        Ok(LlvmTools { profdata, cov, host, flags })
    }
}

/// The value of a line of `rustc -vV`.
fn field<'a>(about: &'a str, name: &str) -> Option<&'a str> {
    about.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn not_installed(about: &str) -> String {
    let version = field(about, "LLVM version").unwrap_or("of the compiler");
    format!(
        "coverage is read by llvm-profdata and llvm-cov of LLVM {version}, which are not installed, and those of another LLVM do not read \
         it: `rustup component add llvm-tools` brings them; without --coverage the inputs run all the same"
    )
}

/// What of something was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reached {
    covered: u64,
    count: u64,
}

impl Reached {
    fn add(&mut self, summary: &Value, kind: &str) {
        let of = |name: &str| summary.get(kind).and_then(|kind| kind.get(name)).and_then(Value::as_u64).unwrap_or(0);
        self.covered += of("covered");
        self.count += of("count");
    }

    /// A percentage, or that nothing was counted.
    fn shown(self) -> String {
        if self.count == 0 {
            return "not counted".to_owned();
        }
        let percent = self.covered as f64 * 100.0 / self.count as f64;
        format!("{percent:.1} % of {}", self.count)
    }
}

/// What the inputs reached of one decoder.
#[derive(Debug, Default, PartialEq, Eq)]
struct DecoderCoverage {
    name: &'static str,
    regions: Reached,
    branches: Reached,
}

/// Sums what `llvm-cov export` says of files by decoder.
fn read(export: &str, root: &Path) -> Result<Vec<DecoderCoverage>, ChoreFailure> {
    let export: Value = serde_json::from_str(export).map_err(|e| ChoreFailure::new(format!("llvm-cov export: {e}")))?;
    let files = export.pointer("/data/0/files").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let decoders = DECODERS.iter().map(|(name, paths)| {
        let mut sum = DecoderCoverage { name, ..DecoderCoverage::default() };
        for file in files {
            let path = Path::new(file.get("filename").and_then(Value::as_str).unwrap_or_default());
            let from_root = path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/");
            let own = paths.iter().any(|path| from_root.starts_with(path));
            if let Some(summary) = file.get("summary").filter(|_| own) {
                sum.regions.add(summary, "regions");
                sum.branches.add(summary, "branches");
            }
        }
        sum
    });
    let decoders: Vec<_> = decoders.collect();
    match decoders.iter().find(|decoder| decoder.regions.count == 0) {
        Some(without) => Err(ChoreFailure::new(format!(
            "llvm-cov knows no file of the decoder `{}`: correct its files in xtask/src/fuzz.rs",
            without.name
        ))),
        None => Ok(decoders),
    }
}

fn table(figures: &[DecoderCoverage]) -> String {
    let mut text = format!("\n{:<16} {:>20} {:>20}\n", "reached of", "regions", "branches");
    for DecoderCoverage { name, regions, branches } in figures {
        text.push_str(&format!("{name:<16} {:>20} {:>20}\n", regions.shown(), branches.shown()));
    }
    if figures.iter().all(|decoder| decoder.branches.count == 0) {
        text.push_str("branches are counted by the nightly compiler alone: `cargo +nightly xtask fuzz --coverage`\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_are_summed_by_decoder_and_a_decoder_without_files_is_told() {
        let file = |path: &str, covered: u64| {
            let reached = json!({ "count": 10, "covered": covered });
            json!({ "filename": path, "summary": { "regions": reached, "branches": { "count": 0, "covered": 0 } } })
        };
        let first = |path: &str| if path.ends_with('/') { format!("/w/{path}mod.rs") } else { format!("/w/{path}") };
        let mut files: Vec<Value> = DECODERS.iter().map(|(_, paths)| file(&first(paths[0]), 5)).collect();
        files.push(file("/w/crates/wire/src/intake/json.rs", 9));
        files.push(file("/w/src/engine.rs", 1));
        let read_of = |files: &[Value]| read(&json!({ "data": [{ "files": files }] }).to_string(), Path::new("/w"));
        let figures = read_of(&files).unwrap();
        assert_eq!(figures[0].regions, Reached { covered: 14, count: 20 });
        assert!(figures[1..].iter().all(|decoder| decoder.regions == Reached { covered: 5, count: 10 }), "{figures:?}");
        let text = table(&figures);
        assert!(text.contains("70.0 % of 20") && text.contains("not counted") && text.contains("+nightly"), "{text}");
        let error = read_of(&files[1..11]).unwrap_err();
        assert!(error.message.contains("no file of the decoder `events`"), "{}", error.message);
    }

    #[test]
    fn the_files_of_decoders_are_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for path in DECODERS.iter().flat_map(|(_, paths)| *paths) {
            assert!(root.join(path).exists(), "{path}");
        }
    }

    #[test]
    fn tools_that_are_not_there_are_named_with_what_brings_them() {
        let about = "rustc 1.95.0\nhost: x86_64-unknown-linux-gnu\nrelease: 1.95.0\nLLVM version: 22.1.2\n";
        assert_eq!(field(about, "host"), Some("x86_64-unknown-linux-gnu"));
        let message = not_installed(about);
        assert!(message.contains("LLVM 22.1.2") && message.contains("rustup component add llvm-tools"), "{message}");
    }
}
