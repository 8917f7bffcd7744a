//! A YAML document as a tree that remembers where everything stands, within fixed budgets.
//!
//! ```text
//! text -> granit events -> Node tree (duplicate keys found here) -> decode (typed) -> check (meaning), both by position
//! ```
//!
//! Never: gives meaning to a value, follows merge keys (`<<`) or custom tags. Aliases are copied and count against the budget.

use super::fault::{FileFault, Pos, shown};
use serde_saphyr::granit_parser::{Event, Marker, Options, Parser, ScalarStyle, Span};
use std::collections::BTreeMap;

/// A policy larger than this is not one: ten thousand queues fit into a quarter of it.
pub const MAX_BYTES: usize = 4 << 20;
/// Values and keys, aliases expanded: a bound on memory and time whatever the anchors say.
const MAX_NODES: usize = 400_000;
/// Written policies are 6 deep.
const MAX_DEPTH: usize = 32;

/// A value and where it stands.
#[derive(Clone, PartialEq, Debug)]
pub struct YamlNode {
    /// Unique within its tree, but for copies made by an alias.
    pub id: u32,
    /// Where it starts.
    pub pos: Pos,
    /// What it is.
    pub value: Value,
}

/// What a node is.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// Nothing, `~` or `null`.
    Null,
    /// Anything written as one word or string.
    Scalar {
        /// After escapes.
        text: String,
        /// Whether it was written without quotes.
        plain: bool,
    },
    /// A sequence.
    List(Vec<YamlNode>),
    /// A map in the order of the file, each key once.
    Map(Vec<YamlEntry>),
}

/// One entry of a map.
#[derive(Clone, PartialEq, Debug)]
pub struct YamlEntry {
    /// The key.
    pub key: String,
    /// Where the key stands.
    pub key_pos: Pos,
    /// Its value.
    pub value: YamlNode,
}

impl YamlNode {
    /// The value under a key of a map, or at a position of a list.
    #[must_use]
    pub fn child(&self, step: &str) -> Option<(&YamlNode, Pos)> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|e| e.key == step).map(|e| (&e.value, e.key_pos)),
            Value::List(items) => items.get(step.parse::<usize>().ok()?).map(|n| (n, n.pos)),
            _ => None,
        }
    }

    /// Whether the path is written.
    #[must_use]
    pub fn has(&self, path: &[&str]) -> bool {
        path.split_first().is_none_or(|(step, rest)| self.child(step).is_some_and(|(n, _)| n.has(rest)))
    }

    /// Where the value at `path` stands; of a path that is not written, the last key that is.
    #[must_use]
    pub fn value_pos(&self, path: &[&str]) -> Pos {
        self.find(path, |node, _| node.pos)
    }

    /// Where the key at the end of `path` stands; of a path that is not written, the last key that is.
    #[must_use]
    pub fn key_pos(&self, path: &[&str]) -> Pos {
        self.find(path, |_, key| key)
    }

    /// The keys and positions that lead to what stands at a place; of several that begin there, the innermost.
    #[must_use]
    pub fn path_to(&self, pos: Pos) -> Option<Vec<String>> {
        let same = |at: Pos| (at.line, at.column) == (pos.line, pos.column);
        let deeper = |step: String, key: Option<Pos>, node: &YamlNode| {
            let mut path = vec![step];
            match node.path_to(pos) {
                Some(rest) => path.extend(rest),
                None if key.is_some_and(same) || same(node.pos) => {}
                None => return None,
            }
            Some(path)
        };
        match &self.value {
            Value::Map(entries) => entries.iter().find_map(|e| deeper(e.key.clone(), Some(e.key_pos), &e.value)),
            Value::List(items) => items.iter().enumerate().find_map(|(at, item)| deeper(at.to_string(), None, item)),
            Value::Null | Value::Scalar { .. } => None,
        }
    }

    fn find(&self, path: &[&str], choose: impl Fn(&YamlNode, Pos) -> Pos) -> Pos {
        let (mut node, mut key) = (self, self.pos);
        for step in path {
            let Some((next, at)) = node.child(step) else {
                return key;
            };
            (node, key) = (next, at);
        }
        // An empty value stands nowhere useful.
        if node.value == Value::Null { key } else { choose(node, key) }
    }
}

/// Reads one YAML document. Faults are those of the syntax, of duplicate keys and of the budgets; the tree is there unless
/// nothing can be read past a fault.
pub fn parse(text: &str) -> (Option<YamlNode>, Vec<FileFault>) {
    let mut options = Options::default();
    options.emit_comments = false;
    let mut reader = Reader {
        events: Parser::new_from_str_with_options(text.strip_prefix('\u{feff}').unwrap_or(text), options),
        text,
        faults: Vec::new(),
        anchors: BTreeMap::new(),
        nodes: 0,
    };
    let tree = reader.document().unwrap_or_else(|fault| {
        reader.faults.push(*fault);
        None
    });
    (tree, reader.faults)
}

struct Reader<'t> {
    events: Parser<'t, serde_saphyr::granit_parser::StrInput<'t>>,
    text: &'t str,
    faults: Vec<FileFault>,
    /// By the parser's anchor number.
    anchors: BTreeMap<usize, YamlNode>,
    nodes: usize,
}

type Stop = Box<FileFault>;

impl<'t> Reader<'t> {
    fn next(&mut self) -> Result<Option<(Event<'t>, Span)>, Stop> {
        match self.events.next() {
            None => Ok(None),
            Some(Ok(next)) => Ok(Some(next)),
            Some(Err(e)) => {
                let what = e.info();
                let tab = self
                    .text
                    .lines()
                    .nth(e.marker().line().saturating_sub(1))
                    .is_some_and(|l| l.trim_start_matches(' ').starts_with('\t'));
                let remedy = if tab {
                    "indent with blanks, not with tabs"
                } else {
                    "check the indentation, quotes and brackets of this line and the one before it"
                };
                Err(stop(spot(*e.marker(), 1), format!("not valid YAML: {what}"), remedy))
            }
        }
    }

    fn document(&mut self) -> Result<Option<YamlNode>, Stop> {
        let mut root = None;
        while let Some((event, span)) = self.next()? {
            match event {
                Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
                Event::StreamEnd => break,
                _ if root.is_some() => {
                    let remedy = "keep one document a file: remove it and the `---` before it";
                    self.fault(spot(span.start, 1), "a second document in one file", remedy);
                    break;
                }
                event => root = Some(self.node(event, span, 0)?),
            }
        }
        Ok(root)
    }

    fn fault(&mut self, pos: Pos, message: impl Into<String>, remedy: &str) {
        self.faults.push(FileFault::new(pos, message, remedy));
    }

    fn count(&mut self, more: usize, pos: Pos) -> Result<(), Stop> {
        self.nodes += more;
        if self.nodes <= MAX_NODES {
            return Ok(());
        }
        let what = format!("more than {MAX_NODES} values, aliases expanded");
        Err(stop(pos, what, "split the file, or write fewer queues"))
    }

    fn fresh(&mut self, pos: Pos, value: Value) -> Result<YamlNode, Stop> {
        self.count(1, pos)?;
        // Bounded by MAX_NODES.
        Ok(YamlNode { id: self.nodes as u32, pos, value })
    }

    fn node(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<YamlNode, Stop> {
        let pos = spot(span.start, u32::try_from(span.len()).unwrap_or(1));
        if depth > MAX_DEPTH {
            let what = format!("nested deeper than {MAX_DEPTH} levels");
            return Err(stop(pos, what, "nothing needs more than 8 levels; flatten this"));
        }
        if event.tag().is_some_and(|t| t.is_custom()) {
            self.fault(pos, "a custom YAML tag (`!...`) means nothing here", "remove the tag");
        }
        let (node, anchor) = match event {
            Event::Scalar(text, style, anchor, _) => {
                let plain = style == ScalarStyle::Plain;
                let null = plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let value = if null { Value::Null } else { Value::Scalar { text: text.into_owned(), plain } };
                (self.fresh(pos, value)?, anchor)
            }
            Event::SequenceStart(_, anchor, _) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        None | Some((Event::SequenceEnd, _)) => break,
                        Some((event, span)) => items.push(self.node(event, span, depth + 1)?),
                    }
                }
                (self.fresh(Pos { width: 1, ..pos }, Value::List(items))?, anchor)
            }
            Event::MappingStart(_, anchor, _) => {
                let entries = self.map(depth)?;
                (self.fresh(Pos { width: 1, ..pos }, Value::Map(entries))?, anchor)
            }
            Event::Alias(anchor) => {
                let Some(copy) = self.anchors.get(&anchor).cloned() else {
                    return Err(stop(pos, "an alias inside of its own anchor", "write the value out"));
                };
                self.count(size(&copy), pos)?;
                return Ok(copy);
            }
            _ => (self.fresh(pos, Value::Null)?, 0),
        };
        if anchor > 0 {
            // Kept copies are memory too.
            self.nodes += size(&node);
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn map(&mut self, depth: usize) -> Result<Vec<YamlEntry>, Stop> {
        let mut entries: Vec<YamlEntry> = Vec::new();
        let mut first: BTreeMap<String, u32> = BTreeMap::new();
        loop {
            let key = match self.next()? {
                None | Some((Event::MappingEnd, _)) => return Ok(entries),
                Some((event, span)) => self.node(event, span, depth + 1)?,
            };
            let value = match self.next()? {
                None => return Ok(entries),
                Some((event, span)) => self.node(event, span, depth + 1)?,
            };
            let Value::Scalar { text: name, .. } = key.value else {
                self.fault(key.pos, "a key that is not a name", "write a name before the colon");
                continue;
            };
            if let Some(line) = first.get(&name) {
                let message = format!("`{}` is given twice: first on line {line}", shown(&name));
                self.fault(key.pos, message, "keep one of them");
                continue;
            }
            first.insert(name.clone(), key.pos.line);
            entries.push(YamlEntry { key: name, key_pos: key.pos, value });
        }
    }
}

fn spot(mark: Marker, width: u32) -> Pos {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Pos { line: number(mark.line()).max(1), column: number(mark.col()).saturating_add(1), width: width.max(1) }
}

fn size(node: &YamlNode) -> usize {
    1 + match &node.value {
        Value::Null | Value::Scalar { .. } => 0,
        Value::List(items) => items.iter().map(size).sum(),
        Value::Map(entries) => entries.iter().map(|e| 1 + size(&e.value)).sum(),
    }
}

fn stop(pos: Pos, message: impl Into<String>, remedy: &str) -> Stop {
    Box::new(FileFault::new(pos, message, remedy))
}
