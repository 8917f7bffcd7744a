//! Made-up instances of a JSON Schema, and ways to spoil them. The same number of the same seed is always the same instance.
//!
//! Never: all that a schema can say. It knows the words that the event schema uses, and panics at another.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// A small generator of random numbers (SplitMix64).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64, case: u64) -> Dice {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ case);
        dice.next();
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below a usize")
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// Texts of every kind that some field wants.
const TEXTS: [&str; 16] = [
    "resnet-0412",
    "research/vision",
    "10m",
    "1h 30m",
    "90s",
    "0s",
    "900GiB",
    "1.5 TiB",
    "300 KiB",
    "s3://ckpt/a/",
    "file:///a",
    "2026-11-22T06:00:00Z",
    "all",
    "urn:forebay:job.submitted:1",
    "//airflow/prod",
    "3g.40gb",
];

/// Numbers that may have decimals. Whole ones are not among them: JSON Schema takes 1.0 for one, and the decoder wants 1.
const NUMBERS: [f64; 5] = [0.5, 0.25, 0.125, 1.5, 0.12345];

/// What is in the way somewhere.
fn junk(dice: &mut Dice) -> Value {
    let long = "x".repeat(600);
    let values = [
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(1),
        json!(3),
        json!(0.25),
        json!(1.5),
        json!(0.12345),
        json!(64.5),
        json!(65),
        json!(10_001),
        json!(4_294_967_296_u64),
        json!(""),
        json!("x"),
        json!("a//b"),
        json!(" a"),
        json!("90"),
        json!("noon"),
        json!("9GB"),
        json!("999999d"),
        json!("ftp://a"),
        json!("1.1"),
        json!("urn:forebay:other:1"),
        json!(long),
        json!([]),
        json!([1]),
        json!(["a", null]),
        json!({}),
        json!({"min": 3, "max": 2}),
        json!({"prefer": "rack"}),
        json!({"HF_TOKEN": "hf"}),
    ];
    if dice.below(3) == 0 { json!(dice.pick(&TEXTS)) } else { dice.pick(&values).clone() }
}

fn at<'a>(root: &'a Value, reference: &str) -> &'a Value {
    root.pointer(reference.trim_start_matches('#')).unwrap_or_else(|| panic!("{reference} leads nowhere"))
}

/// An instance of a schema that often, not always, is valid: texts are guessed.
pub fn instance(root: &Value, schema: &Value, dice: &mut Dice) -> Value {
    let Value::Object(words) = schema else { return junk(dice) };
    if let Some(fixed) = words.get("const") {
        return fixed.clone();
    }
    if let Some(Value::Array(choices)) = words.get("enum") {
        return dice.pick(choices).clone();
    }
    for several in ["oneOf", "anyOf"] {
        if let Some(Value::Array(schemas)) = words.get(several) {
            let chosen = dice.pick(schemas);
            return instance(root, chosen, dice);
        }
    }
    let own = match kind(words, dice).as_deref() {
        Some("object") => object(root, words, dice),
        Some("array") => {
            let item = words.get("items").unwrap_or(&Value::Bool(true));
            Value::Array((0..dice.below(3)).map(|_| instance(root, item, dice)).collect())
        }
        Some("string") => text(words, dice),
        Some("integer") => integer(words, dice),
        Some("number") if dice.below(2) == 0 => json!(1 + dice.below(2)),
        Some("number") => dice.pick(&NUMBERS.map(|n| json!(n))).clone(),
        Some("boolean") => json!(dice.below(2) == 0),
        Some("null") => Value::Null,
        Some(other) => panic!("a type that is not known here: {other}"),
        None if words.contains_key("$ref") => Value::Null,
        None => junk(dice),
    };
    let Some(Value::String(reference)) = words.get("$ref") else { return own };
    match (own, instance(root, at(root, reference), dice)) {
        (Value::Object(own), Value::Object(mut fields)) => {
            fields.extend(own);
            Value::Object(fields)
        }
        (_, referred) => referred,
    }
}

fn kind(words: &Map<String, Value>, dice: &mut Dice) -> Option<String> {
    match words.get("type")? {
        Value::String(one) => Some(one.clone()),
        // Null is one of two, and most often not what is meant.
        Value::Array(several) if dice.below(5) > 0 => several.first()?.as_str().map(str::to_owned),
        Value::Array(several) => dice.pick(several).as_str().map(str::to_owned),
        other => panic!("a type that is not known here: {other}"),
    }
}

fn object(root: &Value, words: &Map<String, Value>, dice: &mut Dice) -> Value {
    let required: Vec<&str> =
        words.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let mut fields = Map::new();
    for (name, schema) in words.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if required.contains(&name.as_str()) || dice.below(3) == 0 {
            fields.insert(name.clone(), instance(root, schema, dice));
        }
    }
    if let Some(more @ Value::Object(_)) = words.get("additionalProperties") {
        for name in ["A", "team"] {
            fields.insert(name.to_owned(), instance(root, more, dice));
        }
    }
    Value::Object(fields)
}

fn text(words: &Map<String, Value>, dice: &mut Dice) -> Value {
    let Some(Value::String(pattern)) = words.get("pattern") else {
        let word = if words.get("format").is_some() { "2026-11-22T06:00:00Z" } else { dice.pick(&TEXTS) };
        return json!(word);
    };
    let fitting = fitting(pattern);
    assert!(!fitting.is_empty(), "no text is written for {pattern}");
    json!(dice.pick(&fitting))
}

/// A pattern is met by trying: one of the texts is written for it. Which do is found out once.
fn fitting(pattern: &str) -> Vec<&'static str> {
    static KNOWN: Mutex<BTreeMap<String, Vec<&'static str>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().expect("no test has failed in here");
    let find = || {
        let schema = json!({ "type": "string", "pattern": pattern });
        let validator = jsonschema::validator_for(&schema).expect("a pattern");
        TEXTS.into_iter().filter(|text| validator.is_valid(&json!(text))).collect()
    };
    known.entry(pattern.to_owned()).or_insert_with(find).clone()
}

fn integer(words: &Map<String, Value>, dice: &mut Dice) -> Value {
    let bound = |name: &str| words.get(name).and_then(Value::as_i64);
    let (least, most) = (bound("minimum").unwrap_or(-10), bound("maximum").unwrap_or(10));
    json!(*dice.pick(&[least, least.saturating_add(1).min(most), most]))
}

/// Changes one place: another value, a field less, a field more.
pub fn spoil(value: &mut Value, dice: &mut Dice) {
    let inner = |value: &Value| {
        value.as_object().is_some_and(|o| !o.is_empty()) || value.as_array().is_some_and(|a| !a.is_empty())
    };
    let stop = dice.below(4) == 0;
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let names: Vec<String> = fields.keys().cloned().collect();
            let name = dice.pick(&names);
            let deeper = inner(&fields[name]) && !stop;
            match dice.below(6) {
                _ if deeper => spoil(&mut fields[name], dice),
                0 => drop(fields.remove(name)),
                1 => drop(fields.insert(dice.pick(&FIELDS).to_string(), junk(dice))),
                _ => drop(fields.insert(name.clone(), junk(dice))),
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let at = dice.below(items.len());
            if inner(&items[at]) && !stop { spoil(&mut items[at], dice) } else { items[at] = junk(dice) }
        }
        other => *other = junk(dice),
    }
}

/// Names of fields that may be put anywhere: some are known in one place, some nowhere.
const FIELDS: [&str; 12] = [
    "specversion",
    "gpus",
    "workers",
    "share",
    "gpuMilli",
    "mig",
    "deadline",
    "service",
    "sharing",
    "containers",
    "id",
    "zz",
];
