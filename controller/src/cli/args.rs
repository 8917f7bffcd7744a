//! The words of the command line. The comments are its help.
//!
//! Never: behaviour. Defaults that have a reason name it.

pub mod agent;
pub mod brakes;
pub mod catalog;
pub mod demand;
pub mod lists;
pub mod logs;

pub use agent::{AgentArgs, GateArgs};
pub use brakes::{BrakeArgs, BrakeOrderArgs, BrakeReleaseArgs, Pausable, PauseArgs, ResumeArgs};
pub use catalog::CatalogArgs;
pub use demand::DemandArgs;
pub use lists::{ColumnArgs, EventsArgs, JobsArgs, ListArgs, TypesArgs};
pub use logs::{LogsArgs, MOST_LINES};

use super::server::{HERE, server_url};
use crate::driver::{Consent, TimeConsent};
use crate::show::ColourChoice;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the run found violations or lost work, or a fault of Forebay; check --strict: a warning or advice; plan --until steady: no rest
  2  bad input: what, where and how to mend it is on stderr
  3  wait, submit --wait: a job failed or was rejected
  4  wait, submit --wait: a job was cancelled, and none failed
  5  wait, submit --wait: a job was not over in time
  6  something outside failed: no answer from the server, a disk that is full or fails, no right to write, a port in use

Examples:
  forebay run                    # embedded journal, simulated cloud, API and page on 127.0.0.1:8080
  forebay run --replay examples/day.jsonl --speed max --exit-when-drained
  forebay simulate --policy policies/spot-first.yaml --trace trace.csv
  forebay submit job.json && forebay wait resnet-0412 --timeout 2h";

/// Turns GPU job events into finished work at the lowest cost that a policy allows.
#[derive(Debug, Parser)]
#[command(name = "forebay", bin_name = "forebay", version = env!("FOREBAY_VERSION"), after_help = EXIT_CODES, propagate_version = true, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Colours. Default: auto, which is in a terminal unless NO_COLOR is set.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "auto|always|never",
        hide_possible_values = true,
        hide_default_value = true,
        help_heading = "Output"
    )]
    pub color: ColourChoice,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the controller, or replay a file of events through it.
    #[command(after_help = "\
Examples:
  forebay run --policy policies/teams.yaml --data ./data
  forebay run --replay examples/day.jsonl --speed max --exit-when-drained --json out.json
  forebay run --replay examples/day.jsonl --resume ./day --speed max --exit-when-drained     # begun with --data ./day")]
    Run(RunArgs),
    /// Run a recorded trace through a policy in virtual time, and say what it would have cost.
    #[command(after_help = "\
Examples:
  forebay simulate --policy policies/spot-first.yaml --trace trace.csv --json out.json
  forebay simulate --policy policies/teams.yaml --trace openb_pod_list.csv --trace-format openb --nodes nodes.csv
  forebay simulate --policy owned-and-cloud.yaml --trace T.csv --nodes ours.csv   # burst to the cloud from a fleet of one's own
  forebay simulate --policy P.yaml --trace T.csv --market calm --seed 7")]
    Simulate(SimulateArgs),
    /// Measure what a trace or a data folder asks for: the seven inputs of the demand model, which bursts are noise and why.
    #[command(after_help = demand::AFTER_DEMAND)]
    Demand(DemandArgs),
    /// Make one planning pass over a state, or passes until nothing changes; change nothing, and say what would be decided and why jobs wait.
    #[command(after_help = "\
Examples:
  forebay state export --out s.json && forebay plan --state s.json
  forebay plan --policy new.yaml --state s.json --json
  forebay plan --policy new.yaml --state s.json --until steady
  forebay plan --policy ours.yaml --state s.json --catalog ours.csv

With `--until steady` all goes well: launches and starts succeed, stops save and stop, nodes boot as long as they usually do, and no work
completes. It ends when for an hour of the state's time nothing more is decided, and with exit code 1 when that never comes.

The state is an export, or written by hand: `forebay schema state` says how.")]
    Plan(PlanArgs),
    /// Check a policy or a configuration: errors with line, column and remedy.
    #[command(after_help = "\
Examples:
  forebay check policies/teams.yaml
  forebay check policies/*.yaml forebay.yaml --strict --json
  forebay check policies/teams.yaml --explain     # every default filled in
  forebay check ours.yaml --catalog ours.csv      # names types of a catalogue of one's own; a configuration names its own
  forebay check forebay.yaml                      # by `kind: Config`; a secret that is not there yet is a warning")]
    Check(CheckArgs),
    /// Try every connection and permission that a configuration needs, and change nothing.
    #[command(after_help = "\
Exit codes:
  0  nothing is bad
  2  something is bad in the files: configuration, policy, secrets
  6  the files are good, and something outside is bad: it does not answer, refuses, or is not there

Examples:
  forebay doctor --config forebay.yaml
  forebay doctor --config forebay.yaml --json | jq '.findings[] | select(.outcome != \"ok\")'

It reads only: nothing is received, sent or deleted, no group is joined, no journal is opened. It ends within some 20 s.")]
    Doctor(DoctorArgs),
    /// Print a JSON Schema.
    #[command(after_help = "\
Examples:
  forebay schema policy > policy.schema.json
  forebay schema state")]
    Schema(SchemaArgs),
    /// Print completions of these words for a shell.
    #[command(after_help = "\
Examples:
  forebay completions bash > /etc/bash_completion.d/forebay
  forebay completions zsh > ~/.zfunc/_forebay
  forebay completions fish > ~/.config/fish/completions/forebay.fish")]
    Completions(CompletionsArgs),
    /// Make man pages: of `forebay` on stdout, or of all commands in a folder.
    #[command(after_help = "\
Examples:
  forebay man | man -l -
  forebay man --out /usr/local/share/man/man1")]
    Man(ManArgs),
    /// Look after a journal.
    #[command(after_help = "\
Examples:
  forebay journal verify forebay-data                 # reads all of it, changes nothing
  forebay journal backup forebay-data /backup/2026-11-02     # beside a running controller
  forebay journal restore /backup/2026-11-02 forebay-data
  forebay journal upgrade forebay-data                # once, after a new release refused it
  forebay journal export forebay-data --trace --from 2026-11-16 --to 2026-11-23 --out last-week")]
    Journal(JournalArgs),
    /// On a node: tell the controller what the cloud says about it, and what its GPUs do for which workers.
    #[command(after_help = "\
Examples:
  forebay agent --controller http://forebay:8080 --token-file /etc/forebay/agent.token
  forebay agent --controller http://forebay:8080 --gpus dcgm=http://127.0.0.1:9400
  forebay agent --once           # what it sees of GPUs and workers, without a controller

It asks the instance's metadata (IMDSv2) every 2 s and the GPUs every second, and runs until it is ended. It needs no GPU,
and no rights in the cloud. The token has the role `agent` in forebay.yaml. docs/AGENT.md has more.")]
    Agent(AgentArgs),
    /// In a worker's pod: wait until the whole gang is there. Forebay puts it first into each pod that it starts.
    #[command(after_help = "\
Example:
  forebay gate --file /etc/forebay/worker/barrier

It reads the file, which the kubelet writes from the pod's annotation `forebay.dev/barrier`, and ends when it says `open`. It calls
nobody and needs no rights.")]
    Gate(GateArgs),
    /// Remove Forebay's finalizers from pods, without a journal: for a cluster that Forebay leaves.
    #[command(after_help = "\
Examples:
  forebay uninstall --config forebay.yaml           # says which pods have one
  forebay uninstall --config forebay.yaml --yes     # removes it
  forebay uninstall --namespace jobs --namespace research --yes

Stop the controller first: what it does not know any more it would not run twice, and a pod without its finalizer may go before its outcome is
journaled. Pods that run go on. `kubectl delete pods,services,configmaps -l forebay.dev/journal -n NAMESPACE` ends them and removes the rest.")]
    Uninstall(UninstallArgs),
    /// Send events to a running Forebay: one JSON object, an array of them, or one a line.
    #[command(after_help = "\
Examples:
  forebay submit job.json
  forebay submit night/*.json
  cat jobs.jsonl | forebay submit -
  forebay submit job.json --wait --timeout 2h      # exits like `wait`
  forebay submit job.json --server http://forebay:8080 --token-file /run/secrets/forebay

Warnings and refusals name the file and the line that their event begins on. With --json: {\"accepted\":[{\"file\",\"line\",\"column\",\"job\",
\"subject\",\"new\",\"warnings\"}],\"rejected\":[{\"file\",\"line\",\"column\",\"index\",\"subject\",\"code\",\"path\",\"message\",..}]}.")]
    Submit(SubmitArgs),
    /// Wait until a job is over: exits 0 completed, 3 failed or rejected, 4 cancelled, 5 timed out.
    #[command(after_help = "\
Examples:
  forebay wait resnet-0412 --timeout 2h
  forebay wait job-17 && echo done

A lost connection is made again; after some two minutes without an answer it ends with exit code 6.")]
    Wait(WaitArgs),
    /// Stop jobs for good.
    #[command(after_help = "Examples:\n  forebay cancel resnet-0412\n  forebay cancel job-17 job-18")]
    Cancel(CancelArgs),
    /// Confirm that workers are dead which nothing else proves, so that their job goes on.
    #[command(after_help = "\
Example:
  forebay confirm-dead resnet-0412 --attempt 2 --worker 0 --worker 3

Look first: `forebay why` names the workers that are held, and their nodes. Whoever confirms the death of one that runs has it run twice. It
counts where the node of the worker does not answer, or its pod is gone; never against a kubelet that says that it runs. Who confirmed what is in
the journal and in the log. The token needs the role `operate`.")]
    ConfirmDead(ConfirmDeadArgs),
    /// Stop buying nodes, admitting jobs, or stopping runs for other jobs. What runs goes on.
    #[command(after_help = "\
Examples:
  forebay pause buying --why 'the bill doubled' --until 2h
  forebay pause admission
  forebay pause all --why 'upgrade of the cluster' --until 2026-11-25T18:00:00Z

While buying is paused no launch leaves: one whose outcome is unknown is looked for, never repeated. Jobs say `BuyingPaused`,
`AdmissionPaused` or `PreemptionPaused` with who and why. The token needs the role `operate`. `forebay brakes` lists what is stopped.")]
    Pause(PauseArgs),
    /// Let go on what `pause` stopped.
    #[command(after_help = "Examples:\n  forebay resume buying\n  forebay resume all")]
    Resume(ResumeArgs),
    /// Admit no job of a queue, nor of those below it. What runs goes on.
    #[command(
        after_help = "Examples:\n  forebay hold research --why 'over its budget' --until 8h\n  forebay hold research/vision"
    )]
    #[command(mut_arg("target", |arg| arg.help("The queue")))]
    Hold(BrakeArgs),
    /// Let the jobs of a queue go on that `hold` held.
    #[command(after_help = "Example:\n  forebay release research")]
    #[command(mut_arg("target", |arg| arg.help("The queue")))]
    Release(BrakeReleaseArgs),
    /// Send no more work to a node, or to all nodes of a pool, and give each back when what runs on it has ended.
    #[command(after_help = "\
Examples:
  forebay drain node-17 --why 'it throws ECC errors'
  forebay drain a10g --until 2h          # a pool: nothing is bought into it either

What runs there goes on; `forebay cancel` stops a job. Owned nodes are only left empty.")]
    #[command(mut_arg("target", |arg| arg.help("The pool, or the node: as in `forebay nodes`, or by the cloud's id")))]
    Drain(BrakeArgs),
    /// Send work again to what `drain` drained.
    #[command(after_help = "Example:\n  forebay undrain a10g")]
    #[command(mut_arg("target", |arg| arg.help("The pool, or the node")))]
    Undrain(BrakeReleaseArgs),
    /// List what operators have stopped: who, why, since and until when.
    #[command(after_help = "Example:\n  forebay brakes --json")]
    Brakes(ListArgs),
    /// The policy of a running Forebay: show, history, set, rollback; and the difference between two files.
    Policy(super::policy::PolicyArgs),
    /// Show one job whole: its attempts with their nodes, its waits and why, its statuses, its labels, and what it cost.
    #[command(after_help = "\
Examples:
  forebay job resnet-0412
  forebay job job-17 --json | jq '.attempts[] | {attempt, wait_s, cost_usd}'
  forebay job resnet-0412 --data ./forebay-data

Statuses that are not kept any more (`statuses` in forebay.yaml) are missing, and with them attempts of which they were all that was known.")]
    Job(JobRecordArgs),
    /// Say why a job is where it is, and until when.
    #[command(after_help = "Example:\n  forebay why job-17")]
    Why(JobArgs),
    /// Show what the workers of a job have printed last, while their pods are there and afterwards.
    #[command(after_help = "\
Examples:
  forebay logs resnet-0412
  forebay logs job-17 --worker 0 --tail 50
  forebay logs job-17 --attempt 1 --json
  forebay logs resnet-0412 --follow

Where a job has several workers, each line begins with its worker, such as `w0 | `. In a terminal control characters are replaced.")]
    Logs(LogsArgs),
    /// List jobs.
    #[command(after_help = "\
Examples:
  forebay jobs                          # those that are not over
  forebay jobs --all --queue research/vision
  forebay jobs --watch=5s               # again every five seconds, until Ctrl-C
  forebay jobs -o job,subject,age,labels,why
  forebay jobs --phase failed --json")]
    Jobs(JobsArgs),
    /// List nodes.
    #[command(after_help = "Examples:\n  forebay nodes --watch\n  forebay nodes -o node,type,usd/h,kept-for")]
    Nodes(ListArgs),
    /// List queues with their quota and its use.
    #[command(after_help = "Example:\n  forebay queues")]
    Queues(ListArgs),
    /// List what events come from and statuses go to: Kafka, SQS.
    #[command(after_help = "\
Examples:
  forebay sources                       # backlog `?`: nobody can say
  forebay sources --json | jq '.sources[] | select(.condition == \"failing\") | .why'")]
    Sources(ListArgs),
    /// Say what was spent, by whom and on what.
    #[command(after_help = "\
Examples:
  forebay cost                                    # by queue, since the beginning
  forebay cost --by label:team --from 2026-11-16 --to 2026-11-23
  forebay cost --by label:team --spread           # with each team's part of boots and idle time
  forebay cost --by kind --data ./forebay-data    # of a folder that no Forebay serves
  forebay cost --by day --json
  forebay cost --focus --from 2026-11-01 --to 2026-12-01 > focus-2026-11.csv

What belongs to no job has rows of its own: `(idle, pool a10g)`. docs/BILLING.md says what each kind is.")]
    Cost(CostArgs),
    /// List what happened to jobs: every status from the oldest that is kept, in order.
    #[command(after_help = "\
Examples:
  forebay events                        # all that is kept
  forebay events --follow               # and what comes, until Ctrl-C
  forebay events --after 4711 --json    # CloudEvents, one a line

The first column is the number to go on from with --after. How long statuses are kept says `statuses` in forebay.yaml.")]
    Events(EventsArgs),
    /// List instance types: their GPUs, sizes and list prices.
    #[command(after_help = "\
Examples:
  forebay types --model h100
  forebay types --gpus 8 -o type,model,gpus,usd/h
  forebay types --catalog mine.csv --json

The prices are those of the catalogue, not of the day: docs/POLICY.md says where they come from. A controller on EC2 asks EC2.")]
    Types(TypesArgs),
    /// The whole state of a running Forebay.
    State {
        /// What to do with it.
        #[command(subcommand)]
        command: StateCommand,
    },
}

/// What to do with a state.
#[derive(Debug, Subcommand)]
pub enum StateCommand {
    /// Write it as one JSON document, for people and for `forebay plan`.
    #[command(after_help = "Example:\n  forebay state export --out s.json")]
    // The document is JSON either way.
    #[command(mut_arg("json", |arg| arg.hide(true)))]
    Export(ExportArgs),
}

/// `forebay run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Configuration; flags below go before it. `forebay schema config` says what may stand in it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Policy. Default: the built-in `policies/teams.yaml`, or with --resume the journal's own.
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Where the API and the page listen. Default: 127.0.0.1:8080; none with --replay.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Folder of the journal. Default: ./forebay-data; a new one with --replay.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// While another process holds the folder: wait, and take over when it ends. Default: end with an error.
    #[arg(long, conflicts_with = "replay")]
    pub standby: bool,
    /// Feed the controller from a file instead: CloudEvents, one a line, or a trace.
    #[arg(long, value_name = "FILE", help_heading = "Replay")]
    pub replay: Option<PathBuf>,
    /// Format of the file: normalized, openb, philly, helios, events. Default: as its first line tells.
    #[arg(long, value_name = "FORMAT", requires = "replay", help_heading = "Replay")]
    pub trace_format: Option<String>,
    /// How fast time goes: a whole factor such as 60, or max. Default: 1.
    #[arg(long, value_name = "N|max", requires = "replay", help_heading = "Replay", value_parser = Speed::parse)]
    pub speed: Option<Speed>,
    /// End when the file is at its end, every job is over and every node is gone.
    #[arg(long, requires = "replay", help_heading = "Replay")]
    pub exit_when_drained: bool,
    /// Go on with the journal in this folder.
    #[arg(long, value_name = "DIR", requires = "replay", conflicts_with = "data", help_heading = "Replay")]
    pub resume: Option<PathBuf>,
    /// Seed of the simulated cloud. Default: 1, or that of the journal that is gone on with.
    #[arg(long, value_name = "N", help_heading = "Simulated cloud")]
    pub seed: Option<u64>,
    /// Go on although so much of what was acknowledged is missing, as a start said that was refused. Once; the journal keeps what was given up.
    #[arg(long, value_name = "N", help_heading = "Journal")]
    pub accept_loss: Option<u64>,
    /// Take this machine's time although it is far from that of the journal and nothing confirms it. Once.
    #[arg(long, help_heading = "Journal")]
    pub accept_time: bool,
    /// Write the closing figures there as JSON; `-` is stdout.
    #[arg(long, value_name = "OUT", requires = "replay", num_args = 0..=1, default_missing_value = "-", help_heading = "Output")]
    pub json: Option<PathBuf>,
}

/// How fast a replay's time goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speed {
    /// So many times faster than the wall's clock.
    Times(u32),
    /// As fast as it can.
    Max,
}

impl RunArgs {
    /// What the owner allows this start.
    pub(super) fn consent(&self) -> Consent {
        let time = if self.accept_time { TimeConsent::Given } else { TimeConsent::Ask };
        Consent { loss: self.accept_loss, time }
    }
}

impl Speed {
    fn parse(text: &str) -> Result<Speed, String> {
        if text.eq_ignore_ascii_case("max") {
            return Ok(Speed::Max);
        }
        match text.parse() {
            Ok(n) if n > 0 => Ok(Speed::Times(n)),
            _ => Err("write a whole factor from 1 on, such as 60, or `max`".to_owned()),
        }
    }
}

/// `forebay simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// Policy.
    #[arg(long, value_name = "FILE")]
    pub policy: PathBuf,
    /// Trace: CSV, one of the public formats, or events.
    #[arg(long, value_name = "FILE")]
    pub trace: PathBuf,
    /// Its format: normalized, openb, philly, helios, events. Default: as its first line tells.
    #[arg(long, value_name = "FORMAT")]
    pub trace_format: Option<String>,
    /// Nodes that are paid for already, as CSV: node,cpu_milli,mem_mib,gpus,gpu_model. With a pool of owned nodes in the policy they are its
    /// nodes, and others are bought beside them (a column `pool` says which of several); else they are all that there is.
    #[arg(long, value_name = "FILE")]
    pub nodes: Option<PathBuf>,
    /// What can be bought.
    #[command(flatten)]
    pub catalog: CatalogArgs,
    /// The spot market: a recorded series, or auto (one found beside the trace, else seeded), seeded, calm.
    #[arg(long, value_name = "FILE|auto|seeded|calm", default_value = "auto")]
    pub market: String,
    /// Boots that were measured, as CSV: auto (boot_times.csv beside the trace, else the catalogue), catalogue, or a file.
    #[arg(long, value_name = "FILE|auto|catalogue", default_value = "auto")]
    pub boots: String,
    /// Drop the controller and recover it from its journal every N decisions.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub crash_every: Option<u64>,
    /// Seed of everything that is drawn.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the scorecard there as JSON; `-` is stdout.
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Output")]
    pub json: Option<PathBuf>,
}

/// `forebay plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Policy. Default: the one in the export; for a state written by hand, the built-in `policies/teams.yaml`.
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// State: an export, or written by hand. `-` is stdin.
    #[arg(long, value_name = "FILE")]
    pub state: PathBuf,
    /// What can be bought.
    #[command(flatten)]
    pub catalog: CatalogArgs,
    /// Make passes with the outcomes of their own decisions until this is reached.
    #[arg(long, value_name = "WHEN")]
    pub until: Option<PlanUntil>,
    /// JSON on stdout: {"decisions":[{"job","action","nodes"}],"pending":[{"job","reason","figures","eta_s"}]}; with `--until` also
    /// "passes":[{"at_s","decisions"}] and "steady".
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// How long a plan goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PlanUntil {
    /// Nothing changes any more.
    Steady,
}

/// `forebay doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Configuration. Default: none, and with that the defaults of `forebay run`.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// JSON on stdout: {"findings":[{"what","outcome","said"}],"bad","warnings"}; outcome is ok, warning or bad.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// `forebay check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Policies and configurations. `-` is stdin.
    #[arg(required = true, value_name = "FILE.yaml")]
    pub files: Vec<PathBuf>,
    /// Print one with every default filled in.
    #[arg(long)]
    pub explain: bool,
    /// What can be bought.
    #[command(flatten)]
    pub catalog: CatalogArgs,
    /// End with exit code 1 where there is a warning or advice.
    #[arg(long, conflicts_with = "explain")]
    pub strict: bool,
    /// JSON on stdout: {"apiVersion","kind","errors","warnings","files":[{"file","kind","findings":[{"level","line","column","path","message",
    /// "remedy"}],"more"}]}; level is error or warning.
    #[arg(long, conflicts_with = "explain", help_heading = "Output")]
    pub json: bool,
}

/// `forebay schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Of what.
    #[arg(value_enum)]
    pub of: SchemaOf,
}

/// `forebay completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// For which shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `forebay man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write the pages of all commands into this folder, which has to be there. Default: the page of `forebay` itself on stdout.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// `forebay journal`.
#[derive(Debug, Args)]
pub struct JournalArgs {
    /// What to do.
    #[command(subcommand)]
    pub what: JournalDo,
}

/// What can be done with a journal.
#[derive(Debug, Subcommand)]
pub enum JournalDo {
    /// Check everything in it: checksums, hash chain, gaps, finished jobs, identities. Nothing is changed.
    Verify {
        /// The journal's folder.
        folder: PathBuf,
    },
    /// Copy a journal and all that lies beside it to a new folder, while a controller works on it. The copy is verified.
    Backup {
        /// The journal's folder.
        folder: PathBuf,
        /// The folder to make.
        to: PathBuf,
    },
    /// Make a journal from a backup, or from a copy of the folder of a controller that had stopped. It begins a new incarnation, so that no
    /// id is given out twice: what was bought or started after the backup is left for an operator to look at.
    Restore {
        /// The backup.
        backup: PathBuf,
        /// The folder to make, which has no journal. What is left of one goes to a folder in it.
        folder: PathBuf,
    },
    /// Write what was submitted in a past time as the files that `simulate` plays again: trace.csv, what was seen of spot
    /// (spot_availability.csv), boots (boot_times.csv), the policy in force (policy.yaml), and where it needs them owned nodes (nodes.csv) and
    /// instance types (catalog.csv). Nothing is changed, and a controller may be working on the journal. What is not known is left out and counted.
    #[command(after_help = "\
Examples:
  forebay journal export forebay-data --trace --out past
  forebay journal export /data --trace --from 2026-11-16 --to 2026-11-23 --out last-week
  forebay simulate --policy last-week/policy.yaml --trace last-week/trace.csv")]
    Export(JournalExportArgs),
    /// Bring a journal that an earlier release wrote to this release's format and records. A file that is replaced stays beside the new one.
    Upgrade {
        /// The journal's folder.
        folder: PathBuf,
    },
}

/// `forebay journal export`.
#[derive(Debug, Args)]
pub struct JournalExportArgs {
    /// The journal's folder.
    pub folder: PathBuf,
    /// As a trace for `simulate`.
    #[arg(long, required = true)]
    pub trace: bool,
    /// Jobs that were submitted from then on: a day of the billing zone, or a full hour such as 2026-11-24T09:00:00Z. Default: the beginning.
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// Before then. Default: up to now.
    #[arg(long, value_name = "TIME")]
    pub to: Option<String>,
    /// The folder to write to, which is made. It is refused where one of the files is there already.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// What there is a schema of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SchemaOf {
    /// A policy.
    Policy,
    /// An event that may be sent.
    Event,
    /// A state document.
    State,
    /// The configuration of `forebay run`.
    Config,
}

/// Whom to ask.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// The running Forebay.
    #[arg(long, env = "FOREBAY_SERVER", default_value = HERE, value_name = "URL", value_parser = server_url)]
    pub server: String,
    /// File with the token for it. Default: the variable FOREBAY_TOKEN, else none.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// JSON on stdout.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// `forebay cost`.
#[derive(Debug, Args)]
pub struct CostArgs {
    /// By what: queue, tenant, tier, label:NAME, pool, capacity, type, kind, day or job.
    #[arg(long, value_name = "WHAT", default_value = "queue")]
    pub by: String,
    /// From then on: a day of the billing zone, or a full hour such as 2026-11-24T09:00:00Z. Default: the beginning.
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// Before then. Default: up to now.
    #[arg(long, value_name = "TIME")]
    pub to: Option<String>,
    /// Only what is in this row of another bill, as BY=KEY: capacity=spot, kind=idle, label:team=vision. Given again: in that one too.
    #[arg(long, value_name = "BY=KEY", conflicts_with = "spread")]
    pub of: Vec<String>,
    /// Spread what belongs to no job over the jobs of its pool, by what their use cost. The total is the same.
    #[arg(long)]
    pub spread: bool,
    /// Read this data folder instead of asking a server. One may be running on it.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// CSV on stdout.
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    pub csv: bool,
    /// A FOCUS 1.2 dataset as CSV on stdout: a row an hour, job, kind, pool and offering.
    #[arg(long, conflicts_with_all = ["json", "csv", "by", "of", "spread"], help_heading = "Output")]
    pub focus: bool,
    /// Whom to ask. With `--json`: {"rows":[{"key","cost_usd","gpu_hours","spot_ratio"}],"total_usd"}.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// A command about one job.
#[derive(Debug, Args)]
pub struct JobArgs {
    /// Its subject, or its number such as job-17.
    pub job: String,
    /// Whom to ask.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `forebay job`.
#[derive(Debug, Args)]
pub struct JobRecordArgs {
    /// Its subject, or its number such as job-17.
    pub job: String,
    /// Read this data folder instead of asking a server. One may be running on it.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Whom to ask.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `forebay cancel`.
#[derive(Debug, Args)]
pub struct CancelArgs {
    /// Their subjects, or their numbers such as job-17.
    #[arg(required = true, value_name = "JOB")]
    pub jobs: Vec<String>,
    /// Whom to ask.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `forebay confirm-dead`.
#[derive(Debug, Args)]
pub struct ConfirmDeadArgs {
    /// Its subject, or its number such as job-17.
    pub job: String,
    /// The attempt that is held.
    #[arg(long, value_name = "N")]
    pub attempt: u32,
    /// A worker that is dead, by its number; several times for several.
    #[arg(long = "worker", required = true, value_name = "N")]
    pub workers: Vec<u32>,
    /// Whom to ask.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `forebay uninstall`.
#[derive(Debug, Args)]
pub struct UninstallArgs {
    /// Configuration, whose `kubernetes` names the cluster and the namespaces.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A namespace, instead of those of the configuration; several times for several. Without a configuration the cluster is that of KUBECONFIG, of the
    /// pod's service account, or of ~/.kube/config.
    #[arg(long = "namespace", value_name = "NAME")]
    pub namespaces: Vec<String>,
    /// Only pods of this journal, by the value of their label `forebay.dev/journal`. Default: of any.
    #[arg(long, value_name = "ID")]
    pub journal: Option<String>,
    /// Do it.
    #[arg(long)]
    pub yes: bool,
}

/// `forebay wait`.
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// Its subject, or its number such as job-17.
    pub job: String,
    /// Give up after this time. Default: never.
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub timeout: Option<Duration>,
    /// Whom to ask.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `forebay submit`.
#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// Events as JSON: one object, an array, or one a line. `-` is stdin.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Wait until all submitted jobs are over, and exit like `wait`: 3 if one failed, else 4 if one was cancelled, 5 if time is up.
    #[arg(long)]
    pub wait: bool,
    /// With --wait: give up after this time. Default: never.
    #[arg(long, value_name = "TIME", value_parser = span, requires = "wait")]
    pub timeout: Option<Duration>,
    /// Whom to send to.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `forebay state export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Where to. Default: stdout.
    #[arg(long, value_name = "OUT")]
    pub out: Option<PathBuf>,
    /// Whom to ask.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// A length of time on the command line.
fn span(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<jiff::SignedDuration>().ok().and_then(|d| Duration::try_from(d).ok());
    parsed.ok_or_else(|| "write a length of time such as 90s, 10m or 2h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        for command in Cli::command().get_subcommands().filter(|c| c.get_subcommands().next().is_none()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("forebay "), "{} has no example", command.get_name());
        }
    }
}
