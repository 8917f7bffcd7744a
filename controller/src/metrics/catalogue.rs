//! All metrics: what each is called, what it counts by which labels, and where a counter is kept. docs/METRICS.md is written from this.
//!
//! Never: a metric that is served and not here, or is here and not served. The suite holds that.

use super::metric::{Folding, KeptIn, Metric};

pub(crate) static BUILD: Metric =
    Metric::info("build", "This build of Forebay.").labels(&["version"]).means("this build");

pub(crate) static RECEIVING: Metric =
    Metric::gauge("receiving", "1 while events are received, 0 while the journal's disk is full.");

pub(crate) static POLICY_REFUSED: Metric =
    Metric::gauge("policy_refused", "1 while the last policy that was offered is refused, 0 otherwise.").means(
        "1 while the last policy that was offered is refused, 0 otherwise: \
         [POLICY-CHANGES.md](POLICY-CHANGES.md)",
    );

pub(crate) static POLICIES_OFFERED: Metric =
    Metric::counter("policies_offered", "Policies that were offered while the controller ran.")
        .labels(&["outcome"])
        .means("policies that were offered while the controller ran: `taken` or `refused`")
        .kept(KeptIn::Process);

pub(crate) static LOOP_LONGEST_HOLD: Metric = Metric::gauge(
    "loop_longest_hold",
    "The longest that one question or batch has computed on the driver's thread since the process started.",
)
.unit("seconds")
.labels(&["work"])
.folding(Folding::Most)
.means(
    "the longest that one `query` or `batch` has computed on the engine's thread, since this process \
         started",
);

pub(crate) static PLAN_PASS: Metric =
    Metric::histogram("plan_pass", "How long batches took to be put together and planned, since this process started.")
        .unit("seconds")
        .means(
            "how long each batch took, by the clock, from its first event until all was decided on it: buckets up to 1, 3, 10, 30, 100, \
         300 ms, 1 and 3 s. Everybody else waits meanwhile. For the roles `metrics` and `operate`",
        )
        .kept(KeptIn::Process);

pub(crate) static METRICS_SERIES: Metric =
    Metric::gauge("metrics_series", "Series of this answer, of which there are at most 5,000.")
        .means("series of this answer, this one included: at most 5,000");

pub(crate) static METRICS_SERIES_FOLDED: Metric = Metric::gauge(
    "metrics_series_folded",
    "By how many series this answer is smaller because there were more than 5,000 since this process started.",
)
.means(
    "by how many series this answer is smaller because there were more than 5,000, in this answer or an earlier one of this process: in the \
         largest metrics values of a label share `other`, where counts are added up and of times the worst is told. Which ones, and that this stays as \
         it is until the process ends, is said above",
);

pub(crate) static CLOCK_OFFSET: Metric =
    Metric::gauge("clock_offset", "How far the host's clock is ahead of the controller's time.").unit("seconds").means(
        "how far the host's clock is ahead of the controller's time, below zero where it is behind: time is monotonic inside a run, so a step of the \
         clock or a suspension of the machine stays until the next start, which takes the later of the host's time and the journal's. Left out in a \
         replay",
    );

pub(crate) static JOURNAL_COMMIT: Metric = Metric::histogram(
    "journal_commit",
    "How long the journal took to make what was decided durable, since this process started.",
)
.unit("seconds")
.means(
    "how long each transaction of the journal took, until what was decided in it was durable: buckets up to 1, 3, 10, 30, 100, 300 ms, 1 and 3 s. \
         Nothing leaves before. For the roles `metrics` and `operate`",
)
.kept(KeptIn::Process);

pub(crate) static START_ESTIMATE_ERROR: Metric = Metric::gauge(
    "start_estimate_error",
    "How late starts came, as a part of the wait that was estimated: the median of those that were sampled.",
)
.unit("ratio")
.means(
    "how late starts came, as a part of the wait that `forebay why` would have said: the median of those that were sampled since this process \
         started. 1 is on time, 2 is after twice the wait. One that is late already counts as if it came now. Left out before there are 20",
);

pub(crate) static START_ESTIMATES_INSIDE: Metric = Metric::gauge(
    "start_estimates_inside",
    "The part of the sampled starts that came inside the interval that was stated for them.",
)
.unit("ratio")
.means("the part of these starts that came inside the interval that was stated for them: 0.8 is meant. One that has not come by its end is outside. Left out before one was stated");

pub(crate) static NODES: Metric = Metric::gauge("nodes", "Nodes from the decision to buy them until they are gone.")
    .labels(&["pool", "capacity_type", "state"])
    .means(
        "nodes, from the decision to buy them until they are gone; `state` is `requested`, `booting`, \
         `ready`, `draining` or `terminating`",
    );

pub(crate) static GPUS: Metric = Metric::gauge("gpus", "Whole GPUs on all nodes, on those that do not exist yet too.")
    .labels(&["pool", "capacity_type"])
    .means("whole GPUs on them");

pub(crate) static GPUS_RUNNING: Metric =
    Metric::gauge("gpus_running", "GPUs and parts of GPUs that started runs hold.")
        .labels(&["pool", "capacity_type"])
        .means("GPUs, and parts of them, that started runs hold");

pub(crate) static GPUS_BOOKED: Metric =
    Metric::gauge("gpus_booked", "GPUs and parts of GPUs that jobs hold whose workers have not started.")
        .labels(&["pool", "capacity_type"])
        .means("the same, of jobs whose workers have not started");

pub(crate) static SPEND_RATE: Metric = Metric::gauge("spend_rate", "What all nodes cost now, in US dollars an hour.")
    .unit("usd_per_hour")
    .labels(&["pool", "capacity_type"])
    .means("what all nodes cost now");

pub(crate) static PURCHASES_OPEN: Metric =
    Metric::gauge("purchases_open", "Purchases whose outcome is not known yet.").labels(&["pool", "capacity_type"]);

pub(crate) static OFFERINGS: Metric =
    Metric::gauge("offerings", "What the policy lets be bought: instance type x zone x capacity type.");

pub(crate) static OFFERINGS_BLOCKED: Metric = Metric::gauge(
    "offerings_blocked",
    "Offerings that are not asked for now, by what the cloud said last; `capacity` is out of stock.",
)
.labels(&["error"])
.means(
    "of these, those that are not asked for now, by what the cloud said last: `capacity` (out of stock), \
         `throttled`, `quota`, `auth`, `config`, `server`, `contested`, `boot` (its nodes end before they are \
         ready)",
);

pub(crate) static POOL_OFFERINGS: Metric = Metric::gauge(
    "pool_offerings",
    "Offerings of each pool by whether they are asked for now.",
)
.labels(&["pool", "capacity_type", "state"])
.means(
    "offerings of each pool; `state` is `open`, `out-of-stock` or `refused` (for anything else that the cloud said). An offering of two \
         pools counts in both",
);

pub(crate) static LAUNCHES: Metric = Metric::counter(
    "launches",
    "Launches that the cloud answered, by its answer, since this process started; `capacity` is out of stock.",
)
.labels(&["pool", "capacity_type", "outcome"])
.means(
    "launches that the cloud answered; `outcome` is `complete`, or why they brought fewer nodes than were asked for: `capacity` (out of stock), \
         `throttled`, `quota`, `auth`, `config`, `server`, `contested`. What the policy's pools sell has zeros before the first. 50 pools have \
         a label of their own, the others share `other`. For the roles `metrics` and `operate`",
)
.kept(KeptIn::Process);

pub(crate) static NODE_BOOT: Metric = Metric::histogram(
    "node_boot",
    "How long nodes of a pool took from the decision to buy them until they were ready, since this process started.",
)
.unit("seconds")
.labels(&["pool"])
.means(
    "from the decision to buy a node until it was ready: buckets up to 15, 30 s, 1, 2, 3, 5, 10 and 20 min. Nodes that an earlier process \
         bought are left out, as are pools before their first. 50 pools have a label of their own, the others share `other`. For the roles \
         `metrics` and `operate`",
)
.kept(KeptIn::Process);

pub(crate) static BOOT: Metric = Metric::gauge(
    "boot",
    "How long nodes of a pool took from the decision to buy them until they were ready, of the last 16 of each offering.",
)
.unit("seconds")
.labels(&["pool", "percentile"])
.folding(Folding::Most)
.means(
    "from the decision to buy a node until it was ready, of the last 16 nodes of each offering of a pool: `50`, `90`. Left out before \
         the first",
)
.kept(KeptIn::Journal);

pub(crate) static BRAKES: Metric = Metric::gauge("brakes", "What operators have stopped for a time, by kind.")
    .labels(&["kind"])
    .means("what operators have stopped: `buying`, `admission`, `preemption`, `queue`, `pool`, `node`")
    .kept(KeptIn::Journal);

pub(crate) static JOBS_HELD_BACK: Metric = Metric::gauge(
    "jobs_held_back",
    "Jobs that would wait in the order, had an operator not paused admission or held their queue.",
)
.kept(KeptIn::Journal);

pub(crate) static NODE_RECLAIMS: Metric =
    Metric::counter("node_reclaims", "Nodes that the cloud took back or announced to take back.").kept(KeptIn::Journal);

pub(crate) static SPEND: Metric = Metric::counter("spend", "What all nodes have cost, by how they were paid for.")
    .unit("usd")
    .labels(&["capacity_type"])
    .means("what all nodes have cost")
    .kept(KeptIn::Journal);

pub(crate) static JOBS: Metric =
    Metric::gauge("jobs", "Jobs that are not over, by where they are. A service is one job.").labels(&["state"]).means(
        "jobs that are not over: `waiting`, `held` (impossible under the policy in force), `booked`, \
         `starting`, `running`, `stopping`, `serving`; a service is one job. For the roles `metrics` and \
         `operate`, as the counters of the engine below",
    );

pub(crate) static JOBS_WAITING: Metric = Metric::gauge(
    "jobs_waiting",
    "Jobs that wait in their order, by the code of the reason of the first of those like them.",
)
.labels(&["reason"])
.means(
    "jobs that wait in their order, by the code of the [reason](REASONS.md) of the first of those like \
         them (one queue, one shape); `NotAsked` beyond 1,000 such sets. For the roles `metrics` and \
         `operate`",
);

pub(crate) static QUEUE_JOBS: Metric =
    Metric::gauge("queue_jobs", "Jobs of a queue that are not over: those without a worker, and those with one.")
        .labels(&["queue", "state"])
        .means(
            "jobs that are not over: `waiting` has no worker, `running` has one. A service is one job. Of queues \
         200 have a label of their own, those that the policy names first, and the others share `other`. A \
         reader sees the queues that take its jobs",
        );

pub(crate) static QUEUE_GPUS_WAITING: Metric =
    Metric::gauge("queue_gpus_waiting", "GPUs and parts of GPUs that jobs of a queue wait for.")
        .labels(&["queue"])
        .means("GPUs, and parts of them, that those that wait ask for, replicas of services with them");

pub(crate) static QUEUE_HEAD_WAIT: Metric = Metric::gauge(
    "queue_head_wait",
    "For how long the first in order of those that wait has waited, since it was accepted.",
)
.unit("seconds")
.labels(&["queue"])
.folding(Folding::Most)
.means(
    "for how long the first in order of those that wait has waited since it was accepted; of several \
         shapes the longest",
);

pub(crate) static QUEUE_START_TARGET: Metric =
    Metric::gauge("queue_start_target", "Within what time jobs of a queue are to start, by the policy in force.")
        .unit("seconds")
        .labels(&["queue"])
        .folding(Folding::Least)
        .means(
            "within what time its jobs are to start: `start.within` of the policy in force. Queues without a start \
         target are left out",
        );

pub(crate) static START_TARGET_JOBS: Metric = Metric::counter(
    "start_target_jobs",
    "First starts of jobs whose queue has a start target, by whether they met it, since this process started.",
)
.labels(&["queue", "outcome"])
.means(
    "jobs whose queue has a start target, by whether they first started within it, as it is at that time: `in-time` or `late`; those \
         that are rejected for it are `late`. One that still waits is in neither: `forebay_queue_head_wait_seconds` has it. 200 queues have \
         a label of their own, the others share `other`. A reader sees the queues that take its jobs",
)
.kept(KeptIn::Process);

pub(crate) static START_WAIT: Metric = Metric::histogram(
    "start_wait",
    "How long jobs had waited when they first started, by tier, since this process started.",
)
.unit("seconds")
.labels(&["tier"])
.means(
    "how long jobs had waited since they were accepted when they first started, a service with its first replica: buckets up to 10, 30, \
         60 s, 5, 15 min, 1, 4 and 24 h. 20 tiers have a label of their own, the others share `other`. For the roles `metrics` and `operate`, \
         as the one below",
)
.kept(KeptIn::Process);

pub(crate) static START_TARGET_DECISIONS: Metric = Metric::counter(
    "start_target_decisions",
    "What was decided of waiting jobs for their start targets, since this process started.",
)
.labels(&["decision"])
.means(
    "what was decided of waiting jobs for their start targets: `deferred` (nothing is bought yet: the burst is noise so far), `promised` \
         (it waits for the places of a run), `due` (it is bought for from now on, to start in time), `late` (it has not started in time, and on-demand is \
         bought). A job may be deferred more than once",
)
.kept(KeptIn::Process);

pub(crate) static CHECKPOINT_AGE: Metric = Metric::gauge(
    "checkpoint_age",
    "How long ago runs of a queue that save checkpoints saved the last one, of the run that has not for longest.",
)
.unit("seconds")
.labels(&["queue"])
.folding(Folding::Most)
.means(
    "for how long the run that has not saved for longest has not: since its last checkpoint that counts, or since it started. Jobs \
         without `checkpoint` and queues without such a run are left out. A reader sees the queues that take its jobs",
);

pub(crate) static QUEUE_SPEND: Metric =
    Metric::counter("queue_spend", "What the jobs of a queue have cost, by how capacity was paid for.")
        .unit("usd")
        .labels(&["queue", "capacity_type"])
        .means(
            "what the jobs of a queue have cost, as `forebay cost --by queue` has it: `(nobody)` is boot, idle \
         and free time, `(before)` what was spent before there was a ledger. Together they are \
         `forebay_spend_usd_total`. 200 queues have a label of their own, in the order in which they first \
         cost something; the others share `other`. For the roles `metrics` and `operate`, as the four below",
        )
        .kept(KeptIn::Journal);

pub(crate) static TIER_SPEND: Metric =
    Metric::counter("tier_spend", "What the jobs of a tier have cost, by how capacity was paid for.")
        .unit("usd")
        .labels(&["tier", "capacity_type"])
        .means("the same by tier. 20 tiers have a label of their own, the others share `other`")
        .kept(KeptIn::Journal);

pub(crate) static LABEL_SPEND: Metric =
    Metric::counter("label_spend", "What jobs have cost by the labels that the policy bills by.")
        .unit("usd")
        .labels(&["label", "value", "capacity_type"])
        .means(
            "the same by the labels that the policy bills by: `(none)` has jobs without it. 200 values of all \
         labels together have one of their own",
        )
        .kept(KeptIn::Journal);

pub(crate) static WASTE: Metric = Metric::counter("waste", "What was spent on anything but work, by what it was.")
    .unit("usd")
    .labels(&["kind", "pool"])
    .means(
        "what was spent on anything but work: `boot`, `idle`, `fragmentation`, `booked`, `lost`, `lingering`, \
         `foreign` ([BILLING.md](BILLING.md)). What was lost and turns out to have been saved is not taken \
         back: the counter waits until it is overtaken. 50 pools have a label of their own, in the order in which \
         they were first charged for it; the others share `other`",
    )
    .kept(KeptIn::Journal);

pub(crate) static WASTE_GPU_TIME: Metric =
    Metric::counter("waste_gpu", "GPU-seconds of bought and owned nodes that were not work, by what it was.")
        .unit("seconds")
        .labels(&["kind", "pool"])
        .means("the same in GPU-seconds: its `rate()` is how many GPUs were wasted")
        .kept(KeptIn::Journal);

pub(crate) static JOBS_OVER: Metric = Metric::counter("jobs_over", "Jobs that are over, by outcome.")
    .labels(&["outcome"])
    .means("`completed`, `failed`, `cancelled`, `rejected`")
    .kept(KeptIn::Journal);

pub(crate) static SUBMISSIONS_REFUSED: Metric =
    Metric::counter("submissions_refused", "Submissions that were refused before they became a job.")
        .means("submissions refused because their job is known and differs (`Conflict`). What is turned away before that is in `forebay_events_rejected_total`")
        .kept(KeptIn::Journal);

pub(crate) static STATUSES: Metric =
    Metric::counter("statuses", "Status messages to submitters.").kept(KeptIn::Journal);

pub(crate) static STATUSES_BY_KIND: Metric = Metric::counter(
    "statuses_by_kind",
    "Status messages to submitters by what they say and by the code of its reason, since this process started.",
)
.labels(&["kind", "reason"])
.means(
    "the same by what they say (`queued`, `admitted`, `started` ...) and by the code of its [reason](REASONS.md), `(none)` without one. A \
         series begins with its first status",
)
.kept(KeptIn::Process);

pub(crate) static EVENTS_IGNORED: Metric =
    Metric::counter("events_ignored", "Events that said nothing new or came too late.").kept(KeptIn::Journal);

pub(crate) static DECISIONS: Metric = Metric::counter("decisions", "Decisions of the engine.").kept(KeptIn::Journal);

pub(crate) static WORKER_OBSERVED: Metric = Metric::counter(
    "worker_observed",
    "Time of workers in which their node's agent knew whether they compute, since this process started.",
)
.unit("seconds")
.labels(&["queue"])
.means(
    "time of workers in which their node's agent knew whether they compute: [AGENT.md](AGENT.md). Queues \
         that the policy does not name share `other`; a reader sees the queues that take its jobs",
)
.kept(KeptIn::Process);

pub(crate) static WORKER_BUSY: Metric =
    Metric::counter("worker_busy", "Time of workers in which they computed on a GPU, since this process started.")
        .unit("seconds")
        .labels(&["queue"])
        .means("of this, the time in which they computed on a GPU")
        .kept(KeptIn::Process);

pub(crate) static WORKER_RESIDENT: Metric = Metric::counter(
    "worker_resident",
    "Time of workers in which they held memory of a GPU, since this process started.",
)
.unit("seconds")
.labels(&["queue"])
.means("the time in which they held memory of a GPU")
.kept(KeptIn::Process);

pub(crate) static AGENTS: Metric = Metric::gauge(
    "agents",
    "Agents that have reported what GPUs do within two and a half minutes, by whether they have figures.",
)
.labels(&["source", "state"])
.means(
    "agents that have reported what GPUs do within two and a half minutes; `state` is `reading` or \
         `failing` (there are GPUs, and it cannot read them); agents of nodes without GPUs are neither. For the roles `metrics` and `operate`, as the three below",
);

pub(crate) static WORKERS_OBSERVED: Metric =
    Metric::gauge("workers_observed", "Current workers by what their agent says of them.")
        .labels(&["state"])
        .means("current workers by what their agent says: `busy`, `idle`, `unknown`");

pub(crate) static ACTIVITY_IGNORED: Metric = Metric::counter(
    "activity_ignored",
    "Reports of agents, and workers in them, that changed nothing, since this process started.",
)
.labels(&["cause"])
.means(
    "reports of agents and workers in them that changed nothing: `repeated`, `unknown-node`, \
         `unknown-job`, `not-current` (an attempt that is over), `elsewhere` (on another node)",
)
.kept(KeptIn::Process);

pub(crate) static ACTIVITY_DROPPED: Metric = Metric::counter(
    "activity_dropped",
    "Workers whose observations agents have dropped because there were too many, since this process started.",
)
.means("workers whose observations agents have dropped because there were too many")
.kept(KeptIn::Process);

pub(crate) static PREEMPTIONS: Metric = Metric::counter(
    "preemptions",
    "Runs that were stopped before they were done, by the queue of their job and by cause, since this process started.",
)
.labels(&["queue", "cause"])
.means(
    "runs stopped before they were done, by the queue of their job; `cause` is `preempted` (for a higher \
         tier), `reclaimed` (by the cloud), `moved` (to cheaper capacity), `quota-reclaimed` (by a lender), \
         `overran` (a reservation), `hurried` (by its deadline), `node-hung`, or `other`. A series begins \
         with its first run. 200 queues that the policy does not name have a label of their own, the others \
         share `other`. A reader sees the queues that take its jobs, and exemplars of jobs that it may see",
)
.kept(KeptIn::Process);

pub(crate) static PREEMPTION_STATUSES_UNREAD: Metric = Metric::counter(
    "preemption_statuses_unread",
    "Statuses that could not be counted by what they say, as they or their jobs had left memory, since this process started.",
)
.means(
    "statuses that left memory before what they say was counted, and starts of jobs that had: above zero, the counts of preemptions, starts \
         and statuses by kind are too low",
)
.kept(KeptIn::Process);

pub(crate) static SOURCE_UP: Metric = Metric::gauge(
    "source_up",
    "1 while a source, a sink or the cloud works or is held back, 0 while it starts, fails or has stopped.",
)
.labels(&["source", "direction"])
.folding(Folding::Least)
.means(
    "1 while it works or is held back, 0 while it starts, fails or has stopped; `direction` as in \
         `/v1/sources`: `in`, `status`, `rejected`, `cloud`, `cluster`. For the roles `metrics` and `operate`, as all \
         below",
);

pub(crate) static SOURCE_BACKLOG_MESSAGES: Metric =
    Metric::gauge("source_backlog_messages", "Messages that wait, in all. Left out while it is not known.")
        .labels(&["source", "direction"])
        .means("messages that wait. Left out while it is not known; it is never 0 for that");

pub(crate) static SOURCE_RESTARTS: Metric =
    Metric::counter("source_restarts", "How often it was started again, since this process started.")
        .labels(&["source", "direction"])
        .means("how often it was started again")
        .kept(KeptIn::Process);

pub(crate) static SOURCE_MISSED_MESSAGES: Metric = Metric::counter(
    "source_missed_messages",
    "Messages that the broker dropped before they were read, as far as it tells.",
)
.labels(&["source", "direction"])
.kept(KeptIn::Process);

pub(crate) static EVENTS: Metric = Metric::counter(
    "events",
    "Events that were received and are durable, since this process started: `new`, or `seen` before.",
)
.labels(&["source", "outcome"])
.means("events that are durable: `new`, or `seen` before. `source` is `http` or as above")
.kept(KeptIn::Process);

pub(crate) static EVENTS_REJECTED: Metric =
    Metric::counter("events_rejected", "Events that were not taken, by source and code, since this process started.")
        .labels(&["source", "code"])
        .means("events that were not taken, by the [codes](API.md#sending-events) of rejections")
        .kept(KeptIn::Process);

pub(crate) static EVENT_WARNINGS: Metric =
    Metric::counter("event_warnings", "Fields of events that nobody knows, since this process started.")
        .labels(&["source"])
        .means("fields of events that nobody knows")
        .kept(KeptIn::Process);

pub(crate) static EVENT_LATENCY: Metric = Metric::gauge(
    "event_latency",
    "From the broker to the durable decision, since this process started, rounded up by at most an eighth.",
)
.unit("seconds")
.labels(&["source", "percentile"])
.folding(Folding::Most)
.means(
    "from the broker to the durable decision, over the life of the process: `50`, `95`, `99`, \
         rounded up by at most an eighth. Left out before the first",
)
.kept(KeptIn::Process);

/// All of them, in the order of the page.
pub static ALL: &[&Metric] = &[
    &BUILD,
    &RECEIVING,
    &POLICY_REFUSED,
    &POLICIES_OFFERED,
    &LOOP_LONGEST_HOLD,
    &PLAN_PASS,
    &METRICS_SERIES,
    &METRICS_SERIES_FOLDED,
    &CLOCK_OFFSET,
    &JOURNAL_COMMIT,
    &START_ESTIMATE_ERROR,
    &START_ESTIMATES_INSIDE,
    &NODES,
    &GPUS,
    &GPUS_RUNNING,
    &GPUS_BOOKED,
    &SPEND_RATE,
    &PURCHASES_OPEN,
    &OFFERINGS,
    &OFFERINGS_BLOCKED,
    &POOL_OFFERINGS,
    &LAUNCHES,
    &NODE_BOOT,
    &BOOT,
    &BRAKES,
    &JOBS_HELD_BACK,
    &NODE_RECLAIMS,
    &SPEND,
    &JOBS,
    &JOBS_WAITING,
    &QUEUE_JOBS,
    &QUEUE_GPUS_WAITING,
    &QUEUE_HEAD_WAIT,
    &QUEUE_START_TARGET,
    &START_TARGET_JOBS,
    &START_WAIT,
    &START_TARGET_DECISIONS,
    &CHECKPOINT_AGE,
    &QUEUE_SPEND,
    &TIER_SPEND,
    &LABEL_SPEND,
    &WASTE,
    &WASTE_GPU_TIME,
    &JOBS_OVER,
    &SUBMISSIONS_REFUSED,
    &STATUSES,
    &STATUSES_BY_KIND,
    &EVENTS_IGNORED,
    &DECISIONS,
    &WORKER_OBSERVED,
    &WORKER_BUSY,
    &WORKER_RESIDENT,
    &AGENTS,
    &WORKERS_OBSERVED,
    &ACTIVITY_IGNORED,
    &ACTIVITY_DROPPED,
    &PREEMPTIONS,
    &PREEMPTION_STATUSES_UNREAD,
    &SOURCE_UP,
    &SOURCE_BACKLOG_MESSAGES,
    &SOURCE_RESTARTS,
    &SOURCE_MISSED_MESSAGES,
    &EVENTS,
    &EVENTS_REJECTED,
    &EVENT_WARNINGS,
    &EVENT_LATENCY,
];

const INTRODUCTION: &str = "\
# Metrics

What `GET /metrics` answers, written from `controller/src/metrics/catalogue.rs`: change it there, then run
`FOREBAY_BLESS=1 cargo test -p forebay --lib metrics::catalogue`. How to scrape it, and which role sees what, is in
[API.md](API.md#metrics); alerts are in [deploy/prometheus](../deploy/prometheus/README.md), dashboards in
[deploy/grafana](../deploy/grafana/README.md).

Counters kept in the journal are the engine's own and go on after a restart; those of the process begin at zero with each one, which `rate()`
and `increase()` allow for. Labels are bounded: no job, subject, tenant or node is one; where senders or time bring ever more values, 200 of them (of
pools 50, of tiers 20) have a label of their own and the others share `other`; and an answer has at most 5,000 series (`forebay_metrics_series`).

Where there would be more, the largest metrics are folded, each down to the same size: values of their widest label share `other`, those first that the
last answer did not show, then the last ones in the order of the alphabet. Until the process ends, what is folded stays folded: a value that shares
`other` has no series of its own again, nor has a value that comes later to a label of which one was folded; one that has a series keeps it while it
fits. So folding lets no counter go down, `other` included, and no series that it ended comes back: `rate()` and `increase()` of `other` are exact but
for one step up each time that more is folded. This is so for the roles `metrics` and `operate` together, and for each reader apart; a queue that a reader may
no longer see leaves its `other` too. After a restart values are chosen anew, so that across it `other`, and of counters kept in the journal what it
adds up, may be less or more than before.

";

/// The page docs/METRICS.md.
#[must_use]
pub fn page() -> String {
    let mut page = String::from(INTRODUCTION);
    page.push_str("| metric | type | labels | means | kept in |\n| --- | --- | --- | --- | --- |\n");
    for metric in ALL {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let kept = match metric.kept {
            KeptIn::Nowhere => "",
            KeptIn::Journal => "journal",
            KeptIn::Process => "process",
        };
        let cells = [
            format!("`{}`", metric.full_name()),
            metric.kind.as_str().to_owned(),
            labels.join(", "),
            metric.means.map_or_else(|| in_a_cell(metric.help), str::to_owned),
            kept.to_owned(),
        ];
        let row = format!("| {} |\n", cells.join(" | "));
        page.push_str(&row.replace("|  |", "| |"));
    }
    page
}

/// A sentence as a phrase: without its full stop, and small unless it begins with a name such as GPUs.
fn in_a_cell(help: &str) -> String {
    let help = help.trim_end_matches('.');
    let mut chars = help.chars();
    match (chars.next(), help.chars().nth(1)) {
        (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => help.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::MetricType;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn the_page_is_what_the_code_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/METRICS.md");
        if std::env::var_os("FOREBAY_BLESS").is_some() {
            std::fs::write(&path, page()).expect("writes docs/METRICS.md");
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            written,
            page(),
            "if this is wanted: FOREBAY_BLESS=1 cargo test -p forebay --lib metrics::catalogue"
        );
    }

    #[test]
    fn names_are_legal_and_no_two_are_the_same() {
        let of_name = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        let mut names = BTreeSet::new();
        for metric in ALL {
            assert!(of_name(metric.name) && metric.labels.iter().all(|label| of_name(label)), "{metric:?}");
            assert!(names.insert(metric.full_name()), "{} stands twice", metric.name);
            assert!(metric.kept != KeptIn::Nowhere || !matches!(metric.kind, MetricType::Counter), "{}", metric.name);
            // As promtool wants it: time in seconds, sizes in bytes, parts of one.
            let units = ["hours", "minutes", "days", "milliseconds", "ms", "mib", "gib", "percent"];
            assert!(!metric.full_name().split('_').any(|part| units.contains(&part)), "{}", metric.name);
            assert!(metric.help.ends_with('.') && metric.labels.len() <= 3, "{metric:?}");
        }
    }
}
