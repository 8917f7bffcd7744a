//! From the positioned tree to typed values, through serde, finding as many faults as possible in one go.
//!
//! serde stops at the first error. So each fault is recorded where it stands, the value that caused it is set aside, and
//! the whole is read again without it, until it reads or nothing is left to set aside. Unknown keys are found beforehand.
//!
//! Never: changes a value, guesses a type (`1` is a number or a name, as the reader of the field wants it).

use super::fault::{FileFault, Pos, listed, meant, nearest, shown};
use super::tree::{Value, YamlEntry, YamlNode};
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, Expected, IntoDeserializer, Visitor};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

/// Of a value where a list or a map belongs.
const STANDS_HERE: &str = "stands here";

/// What belongs where a list does.
const LIST: &str = "a list, such as `[a, b]`";

/// Of what kind the document is that is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum YamlKind {
    /// A policy.
    Policy,
    /// A configuration. Its values are not repeated in messages: one may be a secret that was written in the wrong place.
    Config,
}

impl YamlKind {
    /// What it is called, how it starts, and what to do about one that is too large.
    pub fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            YamlKind::Policy => (
                "a policy",
                "start with `apiVersion: forebay/v1`, or with one of the ready-made policies",
                "is this a policy? let `undeclaredQueues` take queues that share a rule",
            ),
            YamlKind::Config => (
                "a configuration",
                "start with `apiVersion: forebay/v1` and `kind: Config`",
                "is this a configuration? `forebay schema config` says what may stand in one",
            ),
        }
    }

    fn see(self) -> &'static str {
        match self {
            YamlKind::Policy => "see `forebay schema policy`",
            YamlKind::Config => "see `forebay schema config`",
        }
    }
}

/// Reads a tree as a `T`. Faults are all that could be found; without any there is a value.
pub fn decode<T: DeserializeOwned>(root: &YamlNode, kind: YamlKind) -> (Option<T>, Vec<FileFault>) {
    let cx = Cx { kind, faults: RefCell::default(), aside: RefCell::default() };
    // Each turn sets one value aside; after so many faults nobody reads on.
    for _ in 0..64 {
        match T::deserialize(At { node: root, key: root.pos, name: None, level: 0, cx: &cx }) {
            Ok(value) => {
                let faults = cx.faults.into_inner();
                return (faults.is_empty().then_some(value), faults);
            }
            Err(problem) => {
                let _ = cx.record(root, root.pos, problem);
                if cx.is_aside(root) {
                    break;
                }
            }
        }
    }
    (None, cx.faults.into_inner())
}

/// What to do where the reader of a value says only what is wrong: the standard library's readers of addresses, and others.
fn remedy(message: &str, kind: YamlKind) -> &'static str {
    match message {
        "invalid socket address syntax" => "write an address and a port, such as `127.0.0.1:8080`",
        "invalid IP address syntax" => "write an address, such as `10.0.0.7`",
        _ => kind.see(),
    }
}

struct Cx {
    kind: YamlKind,
    faults: RefCell<Vec<FileFault>>,
    /// Values that are not read again.
    aside: RefCell<BTreeSet<u32>>,
}

impl Cx {
    fn add(&self, fault: FileFault) {
        self.faults.borrow_mut().push(fault);
    }

    fn is_aside(&self, node: &YamlNode) -> bool {
        self.aside.borrow().contains(&node.id)
    }

    fn told(&self, node: &YamlNode, key: Pos, what: &str, remedy: &str) {
        let pos = if matches!(node.value, Value::Scalar { .. }) { node.pos } else { key };
        self.add(FileFault::new(pos, what, remedy));
    }

    /// Turns a fresh problem at `node` into a recorded fault, and sets the node aside.
    fn record(&self, node: &YamlNode, key: Pos, problem: Problem) -> Problem {
        match problem {
            Problem::Recorded => return Problem::Recorded,
            Problem::Said(message) => {
                let (what, remedy) =
                    message.split_once("; ").unwrap_or_else(|| (message.as_str(), remedy(&message, self.kind)));
                self.told(node, key, what, remedy);
            }
            Problem::Of { value, what, remedy } => {
                // One that stands alone is what the list is to have. Those of a configuration are in no message.
                let alone = self.kind == YamlKind::Policy && what == STANDS_HERE && remedy.ends_with(LIST);
                let remedy = if alone { format!("write a list: `[{}]`", shown(&value)) } else { remedy };
                let value = match self.kind {
                    YamlKind::Policy => format!("`{}`", shown(&value)),
                    YamlKind::Config if what == STANDS_HERE => "a single value".to_owned(),
                    YamlKind::Config => "this value".to_owned(),
                };
                self.told(node, key, &format!("{value} {what}"), &remedy);
            }
            Problem::Missing(field) => {
                // A required field that was set aside has its own fault.
                let there = node.child(field).is_some_and(|(n, _)| self.is_aside(n));
                if !there {
                    self.add(FileFault::new(key, format!("`{field}` is missing"), format!("add `{field}:` here")));
                }
            }
        }
        self.aside.borrow_mut().insert(node.id);
        Problem::Recorded
    }
}

/// Why reading stopped.
#[derive(Debug, thiserror::Error)]
enum Problem {
    /// The fault is in the list already.
    #[error("recorded")]
    Recorded,
    /// "what is wrong; what to do".
    #[error("{0}")]
    Said(String),
    /// A value, what is wrong with it, and what to do.
    #[error("a value {what}")]
    Of { value: String, what: &'static str, remedy: String },
    /// A required field.
    #[error("`{0}` is missing")]
    Missing(&'static str),
}

impl de::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Problem::Said(message.to_string())
    }

    fn missing_field(field: &'static str) -> Self {
        Problem::Missing(field)
    }

    fn invalid_type(found: de::Unexpected<'_>, expected: &dyn Expected) -> Self {
        // serde's own words for lists and texts are those of programmers.
        let wanted = match expected.to_string().as_str() {
            "a sequence" => LIST.to_owned(),
            "a string" => "a name".to_owned(),
            other => other.to_owned(),
        };
        match found {
            de::Unexpected::Str(text) => Problem::of(text, STANDS_HERE, format!("write {wanted}")),
            other => Problem::Said(format!("{} stands here; write {wanted}", found_words(&other))),
        }
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        Problem::Said(format!("unknown field `{}`; {}", shown(field), meant(field, known.iter().copied())))
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        let help = match nearest(variant, known.iter().copied())[..] {
            [name] if known.len() > 1 => format!("did you mean `{name}`? known: {}", listed(known)),
            _ => meant(variant, known.iter().copied()),
        };
        Problem::of(variant, "is not known here", help)
    }
}

impl Problem {
    fn of(value: &str, what: &'static str, remedy: impl Into<String>) -> Problem {
        Problem::Of { value: value.to_owned(), what, remedy: remedy.into() }
    }
}

fn found_words(found: &de::Unexpected<'_>) -> String {
    match found {
        de::Unexpected::Map => "a map".to_owned(),
        de::Unexpected::Seq => "a list".to_owned(),
        de::Unexpected::Unit => "nothing".to_owned(),
        other => other.to_string(),
    }
}

/// A node being read.
#[derive(Clone, Copy)]
struct At<'t> {
    node: &'t YamlNode,
    key: Pos,
    /// The key whose value it is. `None`: the whole file, or a line of a list.
    name: Option<&'t str>,
    /// So many maps and lists are around it.
    level: usize,
    cx: &'t Cx,
}

impl<'t> At<'t> {
    /// Whether it is a top-level key of a policy with nothing at it, such as `queues:` with all of its lines commented out.
    fn is_empty_section(self) -> bool {
        self.node.value == Value::Null && self.level <= 1 && self.cx.kind == YamlKind::Policy
    }

    /// Whether it is a key of a configuration with nothing at it. No section is empty there: what is commented out was meant to be set.
    fn is_empty_key(self) -> bool {
        self.node.value == Value::Null && self.name.is_some() && self.cx.kind == YamlKind::Config
    }

    /// That nothing is where something was meant. No line of a configuration is shown, so its key is named.
    fn nothing(self, wanted: &str) -> Problem {
        let place = match (self.cx.kind, self.name) {
            (YamlKind::Config, Some(name)) => format!("after `{}:`", shown(name)),
            (YamlKind::Config | YamlKind::Policy, _) => "here".to_owned(),
        };
        Problem::Said(format!("nothing stands {place}; write {wanted}, or remove the key"))
    }

    fn entries(self, entries: &'t [YamlEntry]) -> Entries<'t> {
        Entries { entries: entries.iter(), value: None, level: self.level + 1, cx: self.cx }
    }

    fn items(self, items: &'t [YamlNode]) -> Items<'t> {
        Items { items: items.iter(), level: self.level + 1, cx: self.cx }
    }

    fn wrong(self, expected: &dyn Expected) -> Problem {
        let found = match &self.node.value {
            Value::Null => de::Unexpected::Unit,
            Value::Scalar { text, .. } => de::Unexpected::Str(text),
            Value::List(_) => de::Unexpected::Seq,
            Value::Map(_) => de::Unexpected::Map,
        };
        de::Error::invalid_type(found, expected)
    }
}

macro_rules! whole_numbers {
    ($($method:ident $visit:ident $type:ty),*) => {$(
        fn $method<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Problem> {
            let Value::Scalar { text, .. } = &self.node.value else {
                return Err(self.wrong(&"a whole number"));
            };
            match text.parse::<$type>() {
                Ok(n) => visitor.$visit(n),
                Err(_) if text.parse::<i128>().is_ok() => Err(Problem::Said(format!(
                    "{} is out of range; write a whole number from {} to {}", shown(text), <$type>::MIN, <$type>::MAX))),
                Err(_) => Err(Problem::of(text, "is not a whole number", "write a number such as 20")),
            }
        }
    )*};
}

impl<'t> Deserializer<'t> for At<'t> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Problem> {
        match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Scalar { text, .. } => visitor.visit_borrowed_str(text),
            Value::List(items) => visitor.visit_seq(self.items(items)),
            Value::Map(_) => self.deserialize_map(visitor),
        }
    }

    whole_numbers!(
        deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16, deserialize_u32 visit_u32 u32, deserialize_u64 visit_u64 u64,
        deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16, deserialize_i32 visit_i32 i32, deserialize_i64 visit_i64 i64
    );

    fn deserialize_bool<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Problem> {
        match &self.node.value {
            Value::Scalar { text, .. } if text == "true" => visitor.visit_bool(true),
            Value::Scalar { text, .. } if text == "false" => visitor.visit_bool(false),
            Value::Scalar { text, .. } => {
                Err(Problem::of(text, "is neither true nor false", "write `true` or `false`"))
            }
            _ => Err(self.wrong(&visitor)),
        }
    }

    fn deserialize_option<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Problem> {
        // What was commented out or rendered empty was meant as some value, and the default may be none: no bound, everybody.
        if self.node.value == Value::Null && !self.is_empty_section() {
            return Err(self.nothing("a value"));
        }
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Problem> {
        if self.is_empty_section() {
            visitor.visit_seq(self.items(&[]))
        } else if self.is_empty_key() {
            Err(self.nothing(LIST))
        } else {
            self.deserialize_any(visitor)
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'t>>(self, _: &'static str, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_map<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Problem> {
        match &self.node.value {
            Value::Null if self.is_empty_key() => Err(self.nothing("a map")),
            // `queues:` with all of its lines commented out, or `queues: {a: }`.
            Value::Null => visitor.visit_map(self.entries(&[])),
            Value::Map(entries) => visitor.visit_map(self.entries(entries)),
            _ => Err(self.wrong(&visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'t>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        if let Value::Map(entries) = &self.node.value {
            for entry in entries.iter().filter(|e| !fields.contains(&e.key.as_str()) && !self.cx.is_aside(&e.value)) {
                let what = format!("unknown field `{}`", shown(&entry.key));
                let remedy = meant(&entry.key, fields.iter().copied());
                self.cx.add(FileFault::new(entry.key_pos, what, remedy));
                self.cx.aside.borrow_mut().insert(entry.value.id);
            }
        }
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'t>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        match &self.node.value {
            Value::Scalar { text, .. } => visitor.visit_enum(text.as_str().into_deserializer()),
            Value::Null => Err(Problem::Said(format!("nothing stands here; write one of {}", listed(known)))),
            _ => Err(self.wrong(&visitor)),
        }
    }

    serde::forward_to_deserialize_any! {
        <V: Visitor<'t>>
        i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

struct Entries<'t> {
    entries: std::slice::Iter<'t, YamlEntry>,
    value: Option<&'t YamlEntry>,
    /// That of its values.
    level: usize,
    cx: &'t Cx,
}

impl<'t> de::MapAccess<'t> for Entries<'t> {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'t>>(&mut self, seed: K) -> Result<Option<K::Value>, Problem> {
        let cx = self.cx;
        let Some(entry) = self.entries.by_ref().find(|e| !cx.is_aside(&e.value)) else {
            return Ok(None);
        };
        self.value = Some(entry);
        seed.deserialize(de::value::BorrowedStrDeserializer::new(&entry.key)).map(Some).map_err(|e: Problem| {
            // A key that cannot be read is set aside with its value.
            cx.record(&YamlNode { pos: entry.key_pos, ..entry.value.clone() }, entry.key_pos, e)
        })
    }

    fn next_value_seed<S: DeserializeSeed<'t>>(&mut self, seed: S) -> Result<S::Value, Problem> {
        let Some(entry) = self.value.take() else {
            return Err(Problem::Said("a value without a key; see the schema".to_owned()));
        };
        let name = Some(entry.key.as_str());
        let at = At { node: &entry.value, key: entry.key_pos, name, level: self.level, cx: self.cx };
        seed.deserialize(at).map_err(|e| self.cx.record(at.node, at.key, e))
    }
}

struct Items<'t> {
    items: std::slice::Iter<'t, YamlNode>,
    /// That of its items.
    level: usize,
    cx: &'t Cx,
}

impl<'t> de::SeqAccess<'t> for Items<'t> {
    type Error = Problem;

    fn next_element_seed<S: DeserializeSeed<'t>>(&mut self, seed: S) -> Result<Option<S::Value>, Problem> {
        let cx = self.cx;
        let Some(node) = self.items.by_ref().find(|n| !cx.is_aside(n)) else {
            return Ok(None);
        };
        let at = At { node, key: node.pos, name: None, level: self.level, cx };
        seed.deserialize(at).map(Some).map_err(|e| cx.record(node, node.pos, e))
    }
}
