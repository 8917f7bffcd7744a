//! Intake as stories: what a pipeline sends, and the event or error that comes of it.

use super::*;
use forebay_kernel::ids::{Attempt, JobId};
use forebay_kernel::job::{Checkpointing, Completion, Gang, JobSpec, Level, Service, TopologyConstraint, WorkerAsk};
use forebay_kernel::units::{Mib, MilliCpu, Span, Timestamp};
use serde_json::json;

const KEY: AttemptKeys = AttemptKeys::first([7; 32]);

fn decode(event: &Value) -> Result<Decoded, Rejected> {
    let caller = Caller::local();
    Intake { caller: &caller, routes: &NoRoutes, key: Some(&KEY) }.decode(event.to_string().as_bytes())
}

fn submitted(data: Value) -> Result<(JobSpec, Vec<String>), Rejected> {
    let decoded = decode(&json!({"type": "job.submitted", "subject": "a", "data": data}))?;
    match decoded.event {
        Event::JobSubmitted(spec) => Ok((*spec, decoded.warnings)),
        other => panic!("{other:?}"),
    }
}

/// The example of the design, whole.
fn resnet() -> Value {
    json!({"specversion":"1.0","type":"job.submitted","dataschema":"urn:forebay:job.submitted:1","source":"//airflow/prod","id":"9f1c",
     "time":"2026-11-21T09:00:00Z","subject":"resnet-0412",
     "data":{"queue":"research/vision","labels":{"team":"vision","costCenter":"4711"},
      "run":{"template":"train","image":"reg/r@sha256:ab","args":["--epochs","90"],"secrets":["wandb"],"volumes":["datasets"]},
      "gang":{"workers":{"min":2,"max":4},"each":{"gpus":8,"models":["H100"],"memory":"900GiB"},"within":"zone"},
      "sharing":"exclusive","batchKey":"resnet","completion":"all","retry":{"attempts":3,"backoff":"30s","never":[2]},
      "checkpoint":{"uri":"s3://ckpt/resnet-0412/","every":"10m","grace":"90s"},
      "expectedRun":"9h","maxRun":"20h","deadline":"2026-11-22T06:00:00Z"}})
}

#[test]
fn the_designs_example_is_taken_in_full() {
    let decoded = decode(&resnet()).unwrap();
    assert_eq!(decoded.warnings, [""; 0]);
    assert_eq!((decoded.envelope.id.as_str(), decoded.envelope.time_ms), ("9f1c", Some(1_795_251_600_000)));
    let Event::JobSubmitted(spec) = decoded.event else { panic!("a submission") };
    let each = WorkerAsk { gpus: 8, share: 1000, gpu_mem: Mib(0), cpu: MilliCpu(0), mem: Mib(900 << 10) };
    assert_eq!(spec.gang, Gang::Workers { min: 2, max: 4, each });
    assert_eq!((spec.subject.as_str(), spec.queue.as_str()), ("resnet-0412", "research/vision"));
    assert_eq!((spec.tenant.as_str(), spec.principal.as_str()), ("default", "local"));
    assert_eq!(spec.models, ["h100"]);
    assert_eq!(spec.checkpoint, Some(Checkpointing { every: Span::mins(10), grace: Span::secs(90) }));
    assert_eq!((spec.retry.attempts, spec.retry.never.as_slice(), spec.completion), (3, &[2][..], Completion::All));
    assert_eq!((spec.expected, spec.max_run), (Some(Span::mins(540)), Some(Span::mins(1200))));
    assert_eq!(spec.deadline, Some(Timestamp(1_795_327_200_000)));
    assert_eq!((spec.spot, spec.shares, spec.rerun), (true, false, false));
    assert_eq!(spec.batch.as_deref(), Some("resnet"));
    assert_eq!(spec.within, Some(TopologyConstraint { level: Level::Zone, required: true }));
    let carried: Value = serde_json::from_slice(&spec.run).unwrap();
    assert_eq!((&carried["run"]["image"], &carried["labels"]["team"]), (&json!("reg/r@sha256:ab"), &json!("vision")));
    assert_eq!(carried["checkpoint.uri"], "s3://ckpt/resnet-0412/");
}

#[test]
fn the_digest_knows_the_job_and_neither_the_order_of_fields_nor_the_simulation() {
    let digest = |data: Value| submitted(data).unwrap().0.digest;
    let one = digest(json!({"gang": {"workers": 1, "each": {"gpus": 1, "cpu": 2}}, "queue": "q"}));
    let text =
        r#"{"type":"job.submitted","subject":"a","data":{"queue":"q","gang":{"each":{"cpu":2,"gpus":1},"workers":1}}}"#;
    assert_eq!(one, submitted(serde_json::from_str::<Value>(text).unwrap()["data"].clone()).unwrap().0.digest);
    let more = json!({"gang": {"workers": 1, "each": {"gpus": 1, "cpu": 2}}, "queue": "q", "rerun": true, "simulation": {"durationS": 5}});
    assert_eq!(one, digest(more));
    assert_ne!(one, digest(json!({"gang": {"workers": 2, "each": {"gpus": 1, "cpu": 2}}, "queue": "q"})));
}

#[test]
fn gangs_can_be_written_in_several_ways() {
    let gang = |gang: Value| submitted(json!({"gang": gang})).unwrap().0;
    let share = |spec: &JobSpec| match spec.gang {
        Gang::Workers { each, .. } => (each.gpus, each.share, spec.shares),
        Gang::Spanning { .. } => (0, 0, false),
    };
    assert_eq!(share(&gang(json!({"each": {"gpus": 0.25}}))), (1, 250, true));
    assert_eq!(share(&gang(json!({"each": {"gpus": 1, "share": 0.5}}))), (1, 500, true));
    assert_eq!(share(&gang(json!({"each": {"gpus": 1, "gpuMilli": 125}}))), (1, 125, true));
    assert_eq!(share(&gang(json!({"each": {"gpus": 2.0}}))), (2, 1000, false));
    assert_eq!(share(&gang(json!({"each": {"cpu": 0.5}}))), (0, 1000, false));
    let spanning = gang(json!({"gpus": 12, "each": {"cpu": 4}})).gang;
    assert!(
        matches!(spanning, Gang::Spanning { gpus: 12, per_gpu } if per_gpu.cpu == MilliCpu(4000) && per_gpu.gpus == 1)
    );
    assert!(matches!(
        gang(json!({"workers": {"min": 3}, "each": {"gpus": 1}})).gang,
        Gang::Workers { min: 3, max: 3, .. }
    ));
    let slice = gang(json!({"each": {"mig": "3g.40gb"}}));
    assert_eq!(share(&slice), (1, 428, true));
    // What any GPU with that profile has for it, which is a little less than its name says.
    assert!(matches!(slice.gang, Gang::Workers { each, .. } if each.gpu_mem == Mib(40_192)));
    assert_eq!(share(&gang(json!({"each": {"mig": "7g.80gb", "gpus": 1}}))), (1, 1000, true));
    let near = gang(json!({"workers": 2, "each": {"gpus": 4}, "within": {"prefer": "rack"}}));
    assert_eq!(near.within, Some(TopologyConstraint { level: Level::Rack, required: false }));
    let memory = gang(json!({"each": {"gpus": 1, "gpuMemory": "16GiB", "memory": "1.5GiB"}})).gang;
    assert!(matches!(memory, Gang::Workers { each, .. } if each.gpu_mem == Mib(16 << 10) && each.mem == Mib(1536)));
}

#[test]
fn what_is_wrong_is_said_with_its_path_and_a_remedy() {
    use RejectCode::{BadValue, Inline, Missing};
    let ok = json!({"workers": 1, "each": {"gpus": 1}});
    let cases: [(Value, RejectCode, &str, &str); 50] = [
        (json!({}), Missing, "data.gang", "say what it needs"),
        (json!({"gang": 3}), BadValue, "data.gang", "not an object"),
        (json!({"gang": {"workers": 0, "each": {"gpus": 1}}}), BadValue, "data.gang.workers", "from 1 to"),
        (
            json!({"gang": {"workers": {"min": 3, "max": 2}, "each": {"gpus": 1}}}),
            BadValue,
            "data.gang.workers.max",
            "from 3",
        ),
        (json!({"gang": {"workers": 1}}), Missing, "data.gang.each", "one worker needs"),
        (json!({"gang": {"each": {}}}), BadValue, "data.gang.each", "asks for nothing"),
        (json!({"gang": {"gpus": 0}}), BadValue, "data.gang.gpus", "from 1"),
        (json!({"gang": {"gpus": 4, "workers": 2}}), BadValue, "data.gang.gpus", "exclude each other"),
        (json!({"gang": {"each": {"gpus": 1.5}}}), BadValue, "data.gang.each.gpus", "write 2, or 0.5"),
        (json!({"gang": {"each": {"gpus": -1}}}), BadValue, "data.gang.each.gpus", "not an amount"),
        (json!({"gang": {"each": {"gpus": "0.5"}}}), BadValue, "data.gang.each.gpus", "without quotes"),
        (json!({"gang": {"workers": "2", "each": {"gpus": 1}}}), BadValue, "data.gang.workers", "without quotes"),
        (json!({"gang": {"each": {"gpus": 65}}}), BadValue, "data.gang.each.gpus", "more workers"),
        (json!({"gang": {"each": {"gpus": 2, "share": 0.5}}}), BadValue, "data.gang.each.share", "`gpus: 1` only"),
        (json!({"gang": {"each": {"gpus": 1, "share": 1.5}}}), BadValue, "data.gang.each.share", "at most 1"),
        (json!({"gang": {"each": {"gpus": 1, "memory": 900}}}), BadValue, "data.gang.each.memory", "900GiB"),
        (json!({"gang": {"each": {"gpus": 1, "memory": "9GB"}}}), BadValue, "data.gang.each.memory", "900GiB"),
        (json!({"gang": {"each": {"gpus": 1, "models": [1]}}}), BadValue, "data.gang.each.models[0]", "in quotes"),
        (json!({"gang": {"each": {"gpus": 0.5}}, "sharing": "exclusive"}), BadValue, "data.sharing", "write shared"),
        (json!({"gang": ok, "sharing": "maybe"}), BadValue, "data.sharing", "exclusive or shared"),
        (json!({"gang": ok, "completion": "some"}), BadValue, "data.completion", "leader or any"),
        (json!({"gang": ok, "retry": {"attempts": 0}}), BadValue, "data.retry.attempts", "from 1"),
        (json!({"gang": ok, "retry": {"startFailures": 0}}), BadValue, "data.retry.startFailures", "from 1"),
        (json!({"gang": ok, "retry": {"startFailures": "5"}}), BadValue, "data.retry.startFailures", "whole number"),
        (json!({"gang": ok, "checkpoint": {}}), Missing, "data.checkpoint.uri", "s3://"),
        (json!({"gang": ok, "checkpoint": {"uri": "/tmp/x"}}), BadValue, "data.checkpoint.uri", "s3://"),
        (json!({"gang": ok, "checkpoint": {"uri": "ftp://x/y"}}), BadValue, "data.checkpoint.uri", "gs://"),
        (
            json!({"gang": ok, "checkpoint": {"uri": "s3://a/b", "every": "0s"}}),
            BadValue,
            "data.checkpoint.every",
            "longer",
        ),
        (json!({"gang": ok, "expectedRun": 9}), BadValue, "data.expectedRun", "`8h`"),
        (json!({"gang": ok, "maxRun": "9 parsecs"}), BadValue, "data.maxRun", "the unit `parsecs` is not known"),
        (json!({"gang": ok, "maxRun": "9"}), BadValue, "data.maxRun", "write `9s`, `9m` or `9h`"),
        (json!({"gang": ok, "batchKey": ""}), BadValue, "data.batchKey", "write a name"),
        (
            json!({"gang": {"each": {"gpus": 1}, "within": "shelf"}}),
            BadValue,
            "data.gang.within",
            "zone, rack, node, nvlink, numa",
        ),
        (json!({"gang": {"each": {"gpus": 1}, "within": 3}}), BadValue, "data.gang.within", "zone, rack"),
        (
            json!({"gang": {"each": {"gpus": 1}, "within": {"prefer": "aisle"}}}),
            BadValue,
            "data.gang.within.prefer",
            "zone, rack",
        ),
        (json!({"gang": {"each": {"gpus": 1}, "within": {}}}), Missing, "data.gang.within.prefer", "zone, rack"),
        (json!({"gang": {"each": {"mig": "5g.5gb"}}}), BadValue, "data.gang.each.mig", "1g.5gb"),
        (json!({"gang": {"each": {"mig": "1g.5gb", "gpus": 2}}}), BadValue, "data.gang.each.gpus", "one of them"),
        (json!({"gang": {"each": {"mig": "1g.5gb", "share": 0.5}}}), BadValue, "data.gang.each.share", "one of them"),
        (
            json!({"gang": {"each": {"mig": "1g.5gb", "gpuMemory": "5GiB"}}}),
            BadValue,
            "data.gang.each.gpuMemory",
            "one of them",
        ),
        (json!({"gang": {"gpus": 4, "each": {"mig": "1g.5gb"}}}), BadValue, "data.gang.each.mig", "give `workers`"),
        (
            json!({"gang": {"each": {"mig": "1g.5gb"}}, "sharing": "exclusive"}),
            BadValue,
            "data.sharing",
            "write shared",
        ),
        (json!({"gang": ok, "deadline": "tomorrow"}), BadValue, "data.deadline", "RFC 3339"),
        (json!({"gang": ok, "queue": "a//b"}), BadValue, "data.queue", "research/vision"),
        (json!({"gang": ok, "priority": 1e9}), BadValue, "data.priority", "whole number"),
        (json!({"gang": ok, "run": {"containers": []}}), Inline, "data.run.containers", "run.template"),
        (
            json!({"gang": ok, "run": {"secrets": [{"name": "a", "value": "b"}]}}),
            Inline,
            "data.run.secrets[0]",
            "never its content",
        ),
        (json!({"gang": ok, "run": {"env": {"HF_TOKEN": "hf_x"}}}), Inline, "data.run.env.HF_TOKEN", "run.secrets"),
        (
            json!({"gang": ok, "run": {"args": ["--key", "AKIAIOSFODNN7EXAMPLE"]}}),
            Inline,
            "data.run.args[1]",
            "run.secrets",
        ),
        (json!({"gang": ok, "run": {"env": {"A": {"valueFrom": 1}}}}), BadValue, "data.run.env.A", "in quotes"),
    ];
    for (data, code, path, part) in cases {
        let rejected = submitted(data.clone()).expect_err(&data.to_string());
        assert_eq!((rejected.code, rejected.path.as_str()), (code, path), "{data}: {rejected}");
        assert!(rejected.message.contains(part), "{data}: {part} is missing in: {rejected}");
        assert!(!rejected.message.contains("hf_x"), "a secret is repeated: {rejected}");
    }
}

#[test]
fn envelopes_that_are_none_are_rejected() {
    let gang = json!({"gang": {"each": {"gpus": 1}}});
    let long = "x".repeat(513);
    let cases = [
        (json!([]), RejectCode::Malformed, "$"),
        (json!({"subject": "a"}), RejectCode::Missing, "type"),
        (json!({"type": 3}), RejectCode::BadValue, "type"),
        (json!({"type": "job.deleted", "subject": "a"}), RejectCode::UnknownType, "type"),
        (json!({"type": "status.queued", "subject": "a"}), RejectCode::UnknownType, "type"),
        (json!({"type": "service.demand", "subject": "a"}), RejectCode::Missing, "data.concurrency"),
        (
            json!({"type": "service.demand", "subject": "a", "data": {"concurrency": -1}}),
            RejectCode::BadValue,
            "data.concurrency",
        ),
        (json!({"type": "service.demand", "data": {"concurrency": 1}}), RejectCode::Missing, "subject"),
        (json!({"type": "job.submitted", "data": gang}), RejectCode::Missing, "subject"),
        (json!({"type": "job.submitted", "subject": "", "data": gang}), RejectCode::BadValue, "subject"),
        (json!({"type": "job.submitted", "subject": "a\nb", "data": gang}), RejectCode::BadValue, "subject"),
        (json!({"type": "job.submitted", "subject": long, "data": gang}), RejectCode::BadValue, "subject"),
        (json!({"type": "job.cancelled", "subject": "a", "specversion": "0.3"}), RejectCode::BadValue, "specversion"),
        (
            json!({"type": "job.cancelled", "subject": "a", "specversion": "1.0", "id": "1"}),
            RejectCode::Missing,
            "source",
        ),
        (json!({"type": "job.cancelled", "subject": "a", "time": "noon"}), RejectCode::BadValue, "time"),
    ];
    for (event, code, path) in cases {
        let rejected = decode(&event).expect_err(&event.to_string());
        assert_eq!((rejected.code, rejected.path.as_str()), (code, path), "{event}: {rejected}");
    }
    let caller = Caller::local();
    let intake = Intake { caller: &caller, routes: &NoRoutes, key: None };
    assert_eq!(intake.decode(b"{\"type\":").unwrap_err().code, RejectCode::Malformed);
    assert_eq!(intake.decode(&vec![b' '; MOST_BYTES + 1]).unwrap_err().code, RejectCode::TooLarge);
}

#[test]
fn services_and_their_demand() {
    let gang = json!({"each": {"gpus": 1}});
    let (spec, warnings) = submitted(json!({"gang": gang, "service": {"max": 4, "target": 8}})).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(spec.service, Some(Service { min: 1, max: 4, target: 8, spread: None }));
    assert!(!spec.spot, "never on spot unless it asks for that");
    let told = [
        json!({"min": 0, "max": 4, "target": 8, "spread": "zone", "spot": true}),
        json!({"max": 4, "target": 8, "spot": false}),
    ];
    let spots = told.map(|service| submitted(json!({"gang": gang, "spot": true, "service": service})).unwrap().0.spot);
    assert_eq!(spots, [true, false]);
    assert!(submitted(json!({"gang": gang, "spot": true, "service": {"max": 1, "target": 1}})).unwrap().0.spot);
    let cases = [
        (json!({"max": 4}), "data.service.target"),
        (json!({"target": 4}), "data.service.max"),
        (json!({"min": 3, "max": 2, "target": 1}), "data.service.max"),
        (json!({"max": 0, "min": 0, "target": 1}), "data.service.max"),
        (json!({"max": 10_001, "target": 1}), "data.service.max"),
        (json!({"max": 1, "target": 0}), "data.service.target"),
        (json!({"max": 1, "target": 1, "spread": "numa"}), "data.service.spread"),
        (json!({"max": 1, "target": 1, "maximum": 3}), "data.service.maximum"),
    ];
    for (service, path) in cases {
        let rejected = submitted(json!({"gang": gang, "service": service.clone()})).expect_err(&service.to_string());
        assert_eq!(rejected.path, path, "{service}: {rejected}");
    }
    let ends = json!({"gang": gang, "deadline": "2026-11-22T06:00:00Z", "service": {"max": 1, "target": 1}});
    assert_eq!(submitted(ends).unwrap_err().path, "data.deadline");
    let demand = decode(&json!({"type": "service.demand", "subject": "a", "data": {"concurrency": 12}})).unwrap();
    let (tenant, subject) = ("default".to_owned(), "a".to_owned());
    assert_eq!(demand.event, Event::ServiceDemand { tenant, subject, by: None, concurrency: 12 });
}

#[test]
fn unknown_fields_are_carried_and_warned_of() {
    let (spec, warnings) = submitted(json!({"gang": {"each": {"gpus": 1, "rdma": true}}, "colour": "red"})).unwrap();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("`data.colour`") && warnings[1].contains("`data.gang.each.rdma`"), "{warnings:?}");
    assert_eq!(serde_json::from_slice::<Value>(&spec.run).unwrap(), json!({"colour": "red"}));
}

#[test]
fn who_asks_and_when_it_was_sent_is_taken_along() {
    let as_caller = |operator: bool, event: Value| {
        let caller = Caller { tenant: "t".to_owned(), principal: "airflow".to_owned(), operator };
        Intake { caller: &caller, routes: &NoRoutes, key: None }.decode_value(&event).unwrap().event
    };
    let (tenant, subject) = ("t".to_owned(), "a".to_owned());
    let cancel = json!({"type": "job.cancelled", "subject": "a", "time": "1970-01-01T00:00:07Z"});
    let (by, sent) = (Some("airflow".to_owned()), Some(Timestamp(7_000)));
    let said = Event::JobCancelled { tenant: tenant.clone(), subject: subject.clone(), by: by.clone(), sent };
    assert_eq!(as_caller(false, cancel.clone()), said);
    let said = Event::JobCancelled { tenant: tenant.clone(), subject: subject.clone(), by: None, sent };
    assert_eq!(as_caller(true, cancel), said);
    let untimed = json!({"type": "job.cancelled", "subject": "a"});
    let said = Event::JobCancelled { tenant: tenant.clone(), subject: subject.clone(), by: by.clone(), sent: None };
    assert_eq!(as_caller(false, untimed), said);
    let demand = json!({"type": "service.demand", "subject": "a", "data": {"concurrency": 3}});
    assert_eq!(as_caller(false, demand), Event::ServiceDemand { tenant, subject, by, concurrency: 3 });
    let gang = json!({"each": {"gpus": 1}});
    let event = |time: Value| json!({"type": "job.submitted", "subject": "a", "time": time, "data": {"gang": gang}});
    let spec = |time: Value| match as_caller(true, event(time)) {
        Event::JobSubmitted(spec) => *spec,
        other => panic!("{other:?}"),
    };
    let (early, late) = (spec(json!("1970-01-01T00:00:07Z")), spec(Value::Null));
    assert_eq!((early.sent, late.sent, early.principal.as_str()), (Some(Timestamp(7_000)), None, "airflow"));
    assert_eq!(early.digest, late.digest, "when it was sent is not what was asked");
}

#[test]
fn binary_mode_is_the_same_event() {
    let structured = resnet();
    let fields = ["specversion", "type", "dataschema", "source", "id", "time", "subject"];
    let headers: Vec<_> = fields.iter().map(|f| (format!("Ce-{f}"), structured[*f].as_str().unwrap())).collect();
    let headers = headers.iter().map(|(name, value)| (name.as_str(), *value));
    let event = from_headers(headers, structured["data"].to_string().as_bytes()).unwrap();
    assert_eq!(decode(&event).unwrap(), decode(&structured).unwrap());
    assert_eq!(from_headers([], b"{").unwrap_err().code, RejectCode::Malformed);
}

#[test]
fn a_route_chooses_the_queue() {
    struct Fixed;
    impl Router for Fixed {
        fn route(&self, event: &Value, _: &Caller) -> Result<Option<String>, String> {
            Ok(event["data"]["labels"]["kind"].as_str().map(str::to_owned))
        }
    }
    let caller = Caller::local();
    let intake = Intake { caller: &caller, routes: &Fixed, key: None };
    let event = json!({"type": "job.submitted", "subject": "a", "data": {"gang": {"each": {"gpus": 1}}, "labels": {"kind": "notebook"}}});
    let Event::JobSubmitted(spec) = intake.decode_value(&event).unwrap().event else { panic!("a submission") };
    assert_eq!(spec.queue, "notebook");
}

#[test]
fn a_billed_label_has_nothing_that_is_unseen_and_is_not_long() {
    struct Billed;
    impl Router for Billed {
        fn route(&self, _: &Value, _: &Caller) -> Result<Option<String>, String> {
            Ok(None)
        }
        fn billing_labels(&self) -> Arc<[String]> {
            ["team", "note", "absent"].map(String::from).into()
        }
    }
    let caller = Caller::local();
    let intake = Intake { caller: &caller, routes: &Billed, key: None };
    let labels = json!({"team": "a\u{1b}[31m\u{202e}b\nc", "note": "é".repeat(200), "other": "x"});
    let event =
        json!({"type": "job.submitted", "subject": "a", "data": {"gang": {"each": {"gpus": 1}}, "labels": labels}});
    let Event::JobSubmitted(spec) = intake.decode_value(&event).unwrap().event else { panic!("a submission") };
    let expected = [("note", "é".repeat(128)), ("team", "a [31m b c".to_owned())];
    assert_eq!(spec.labels, expected.map(|(name, value)| (name.to_owned(), value)).into());
}

#[test]
fn a_report_needs_its_attempts_token() {
    let report = |kind: &str, more: Value| {
        let mut data = json!({"job": "job-12", "attempt": 3, "token": KEY.token(JobId(12), Attempt(3))});
        data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        decode(&json!({"type": kind, "data": data}))
    };
    let (job, attempt) = (JobId(12), Attempt(3));
    let event = |kind, more| report(kind, more).unwrap().event;
    assert_eq!(event("run.completed", json!({})), Event::RunCompleted { job, attempt, worker: None });
    assert_eq!(
        event("run.failed", json!({"exitCode": 137})),
        Event::RunFailed { job, attempt, exit_code: 137, node_fault: None }
    );
    let saved = Event::RunCheckpointed { job, attempt, progress: Span::mins(90) };
    assert_eq!(event("run.checkpointed", json!({"progress": "1h30m"})), saved);
    let wrong = report("run.completed", json!({"attempt": 4})).unwrap_err();
    assert_eq!((wrong.code, wrong.path.as_str()), (RejectCode::Token, "data.token"));
    assert_eq!(report("run.danced", json!({})).unwrap_err().code, RejectCode::UnknownType);
    let caller = Caller::local();
    let closed = Intake { caller: &caller, routes: &NoRoutes, key: None };
    assert!(closed.decode_value(&json!({"type": "run.completed", "data": {}})).is_err());
}

#[test]
fn a_deadline_that_can_only_be_counted_is_warned_of() {
    let told = |data: Value| submitted(data).unwrap().1;
    let gang = json!({"each": {"gpus": 1}});
    let warnings = told(json!({"gang": gang, "deadline": "2027-01-01T00:00:00Z"}));
    assert!(warnings.len() == 1 && warnings[0].contains("without `expectedRun`"), "{warnings:?}");
    assert_eq!(told(json!({"gang": gang, "deadline": "2027-01-01T00:00:00Z", "expectedRun": "1h"})), [""; 0]);
}
