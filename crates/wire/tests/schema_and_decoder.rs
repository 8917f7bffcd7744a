//! The event schema and the decoder agree: what one takes, the other takes, for made-up events and for events that were spoilt.
//!
//! A JSON Schema cannot say every rule. The rules that it does not say are listed here, and each must turn up: a rule that the schema
//! has learnt to say, or that went away, does not stay in the list.
//! Never: an event that the decoder takes and the schema refuses.

mod generate;

use forebay_wire::intake::{Caller, Decoded, Intake, JobEvent, NoRoutes, RejectCode, Rejected};
use generate::{Dice, instance, spoil};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const SEED: u64 = 1;
const CASES: u64 = 40_000;

/// Rules beyond the schema: what they are about, and a part of the message that they end with.
const BEYOND: [(&str, &str); 14] = [
    ("a share with whole GPUs", "is a share, which goes with `gpus: 1` only"),
    ("a slice with another share", "say the same"),
    ("a gang of whole GPUs with workers", "exclude each other"),
    ("a gang of whole GPUs with a slice", "is part of a GPU, but `gang.gpus` asks for whole ones"),
    ("a gang without workers' needs", "say what one worker needs, such as {\"gpus\":1}"),
    ("an exclusive job on a share", "contradicts a share of a GPU"),
    ("a service that ends", "is for jobs that end, and a service does not"),
    ("at most fewer than at least", "is not possible here; write a whole number from"),
    ("an envelope in part", "CloudEvents 1.0 requires it"),
    ("more than three decimals", "is not an amount"),
    ("one and a half GPUs", "is neither whole GPUs nor a share of one"),
    ("a moment", "write a time as RFC 3339"),
    ("a data schema", "is not a schema of this event's type"),
    ("a very long time", "is more than a thousand years"),
];

fn schema() -> Value {
    serde_json::to_value(schemars::schema_for!(JobEvent)).expect("a schema")
}

fn decode(event: &Value) -> Result<Decoded, Rejected> {
    let caller = Caller::local();
    Intake { caller: &caller, routes: &NoRoutes, key: None }.decode_value(event)
}

/// The rule beyond the schema that an event broke, if it is one.
fn beyond(why: &Rejected) -> Option<&'static str> {
    if why.code == RejectCode::Inline {
        return Some("secrets and pod specifications");
    }
    BEYOND.iter().find(|(_, part)| why.message.contains(part)).map(|(rule, _)| *rule)
}

#[test]
fn what_the_schema_takes_the_decoder_takes() {
    let schema = schema();
    let validator = jsonschema::options().should_validate_formats(false).build(&schema).expect("a sound schema");
    let mut taken = 0u64;
    let mut refused = 0u64;
    let mut met: BTreeMap<&str, u64> = BTreeMap::new();
    for case in 0..CASES {
        let mut dice = Dice::new(SEED, case);
        let mut event = instance(&schema, &schema, &mut dice);
        for _ in 0..dice.below(3) {
            spoil(&mut event, &mut dice);
        }
        let valid = validator.is_valid(&event);
        match decode(&event) {
            Ok(_) if valid => taken += 1,
            Err(_) if !valid => refused += 1,
            Ok(_) => {
                let errors: Vec<String> = validator.iter_errors(&event).map(|e| e.to_string()).collect();
                panic!("case {case} of seed {SEED}: the decoder takes what the schema refuses: {event}\n{errors:#?}");
            }
            Err(why) => match beyond(&why) {
                Some(rule) => *met.entry(rule).or_default() += 1,
                None => panic!("case {case} of seed {SEED}: the schema takes what the decoder refuses: {event}\n{why}"),
            },
        }
    }
    println!("{taken} taken, {refused} refused by both, beyond the schema: {met:#?}");
    assert!(taken > CASES / 10 && refused > CASES / 10, "{taken} taken, {refused} refused");
    for (rule, _) in BEYOND {
        assert!(met.contains_key(rule), "`{rule}` never turned up: {met:#?}");
    }
}

#[test]
fn known_events_are_taken_by_both_or_by_none() {
    let gang = json!({"each": {"gpus": 1}});
    let submitted = |data: Value| json!({"type": "job.submitted", "subject": "a", "data": data});
    let cases = [
        (submitted(json!({"gang": gang})), true),
        (submitted(json!({"gang": {"each": {"gpus": 1, "rdma": true}}, "colour": "red"})), true),
        (submitted(json!({"gang": {"workers": {"min": 2, "max": null}, "each": {"mig": "3g.40gb"}}})), true),
        (submitted(json!({"gang": gang, "restart": "1h 30m", "labels": null, "sharing": null})), true),
        (submitted(json!({"gang": gang, "service": {"max": 1, "target": 1, "maximum": 3}})), false),
        (submitted(json!({"gang": gang, "maxRun": "0s"})), false),
        (submitted(json!({"gang": gang, "restart": "90"})), false),
        (submitted(json!({"gang": {"each": {"gpus": 1, "memory": "9GB"}}})), false),
        (submitted(json!({"gang": gang, "retry": {"attempts": 0}})), false),
        (submitted(json!({"gang": gang, "queue": "a//b"})), false),
        (submitted(json!({})), false),
        (json!({"type": "job.cancelled", "subject": "a", "data": 3}), true),
        (json!({"type": "job.cancelled"}), false),
        (json!({"type": "service.demand", "subject": "a", "data": {"concurrency": 0}}), true),
        (json!({"type": "service.demand", "subject": "a", "data": {"concurrency": -1}}), false),
        (json!({"type": "job.deleted", "subject": "a"}), false),
    ];
    let validator = jsonschema::validator_for(&schema()).expect("a sound schema");
    for (event, good) in cases {
        assert_eq!((validator.is_valid(&event), decode(&event).is_ok()), (good, good), "{event}");
    }
}
