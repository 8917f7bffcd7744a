//! Slips of the pen: what people do to a good file.
//!
//! Never: a slip that gives another word that is known.

use forebay_sim::trace::SplitMix64;
use serde_json::Value;
use std::collections::BTreeSet;

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Slip {
    /// A key, or the name of a column, is misspelt.
    Key,
    /// A value of a few that are known is misspelt.
    Word,
    /// A line is there twice.
    Twice,
    /// A line is indented with a tab.
    Tab,
    /// A number became a word.
    Number,
    /// The file ends in the middle.
    Cut,
}

impl Slip {
    /// Whether one thing alone gives the original back.
    pub fn has_one_inverse(self) -> bool {
        matches!(self, Slip::Key | Slip::Word | Slip::Twice)
    }
}

/// What Forebay knows by name in a kind of file.
pub struct Words {
    keys: BTreeSet<String>,
    values: BTreeSet<String>,
}

impl Words {
    pub fn new<'a>(keys: impl IntoIterator<Item = &'a str>) -> Words {
        Words { keys: keys.into_iter().map(str::to_owned).collect(), values: BTreeSet::new() }
    }

    pub fn of_schema(schema: &Value) -> Words {
        let mut words = Words { keys: BTreeSet::new(), values: BTreeSet::new() };
        words.read(schema);
        words
    }

    fn read(&mut self, schema: &Value) {
        match schema {
            Value::Object(fields) => {
                for (name, value) in fields {
                    match (name.as_str(), value) {
                        ("properties", Value::Object(keys)) => self.keys.extend(keys.keys().cloned()),
                        ("enum", Value::Array(values)) => {
                            self.values.extend(values.iter().filter_map(Value::as_str).map(str::to_owned));
                        }
                        ("const", Value::String(value)) => _ = self.values.insert(value.clone()),
                        _ => {}
                    }
                    self.read(value);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.read(item)),
            _ => {}
        }
    }

    fn knows(&self, word: &str) -> bool {
        self.keys.contains(word) || self.values.contains(word)
    }
}

/// A good text with a slip in it. `None`: this one is not to be had here.
pub fn broken(good: &str, words: &Words, kind: &str, random: &mut SplitMix64) -> Option<(Slip, String)> {
    let yaml = matches!(kind, "policies" | "configurations");
    match random.below(10) {
        0..6 => misspelt(good, words, Slip::Key, kind, random),
        6 | 7 if kind != "traces" => misspelt(good, words, Slip::Word, kind, random),
        8 if yaml => match random.below(2) {
            0 => twice(good, random),
            _ => tab(good, random),
        },
        9 => number(good, kind, random),
        _ if kind == "events" => cut(good, random),
        _ => None,
    }
}

/// Where words stand: the bytes of each, and whether a colon follows or it is in a header.
fn words_in(text: &str, kind: &str) -> Vec<(usize, usize, bool)> {
    let mut found = Vec::new();
    let mut begins = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let code = if kind == "policies" || kind == "configurations" { before_comment(line) } else { line };
        let mut at = 0;
        while at < code.len() {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || c == '.';
            let len = code[at..].find(|c| !is_part(c)).unwrap_or(code.len() - at);
            if len > 0 {
                let after = code[at + len..].trim_start_matches('"').trim_start();
                let key = if kind == "traces" { number == 0 } else { after.starts_with(':') };
                found.push((begins + at, begins + at + len, key));
                at += len;
            } else {
                at += code[at..].chars().next().map_or(1, char::len_utf8);
            }
        }
        begins += line.len();
    }
    found
}

fn before_comment(line: &str) -> &str {
    match line.find('#') {
        Some(at) if at == 0 || line[..at].ends_with([' ', '\t']) => &line[..at],
        _ => line,
    }
}

fn misspelt(good: &str, words: &Words, slip: Slip, kind: &str, random: &mut SplitMix64) -> Option<(Slip, String)> {
    let known = if slip == Slip::Key { &words.keys } else { &words.values };
    let fits = |(from, to, key): &(usize, usize, bool)| {
        *key == (slip == Slip::Key) && to - from > 3 && known.contains(&good[*from..*to])
    };
    let there: Vec<_> = words_in(good, kind).into_iter().filter(fits).collect();
    let (from, to, _) = *there.get(random.below(there.len().max(1) as u64) as usize)?;
    let wrong = misspell(&good[from..to], random);
    (!words.knows(&wrong)).then(|| (slip, format!("{}{wrong}{}", &good[..from], &good[to..])))
}

/// Two letters swapped, one left out, one twice, or another one. The first stays.
fn misspell(word: &str, random: &mut SplitMix64) -> String {
    let mut chars: Vec<char> = word.chars().collect();
    let at = 1 + random.below(chars.len() as u64 - 2) as usize;
    match random.below(4) {
        0 if chars[at] != chars[at + 1] => chars.swap(at, at + 1),
        1 => drop(chars.remove(at)),
        2 => chars.insert(at, chars[at]),
        _ => chars[at] = if chars[at] == 'x' { 'k' } else { 'x' },
    }
    chars.into_iter().collect()
}

/// A line with a key and a value, once more.
fn twice(good: &str, random: &mut SplitMix64) -> Option<(Slip, String)> {
    let lines: Vec<&str> = good.split_inclusive('\n').collect();
    let at = random.below(lines.len() as u64) as usize;
    let code = before_comment(lines[at]).trim();
    let (key, value) = code.split_once(": ")?;
    let whole = !key.is_empty() && key.chars().all(char::is_alphanumeric) && !value.trim().is_empty();
    let closed = value.matches(['{', '[']).count() == value.matches(['}', ']']).count();
    // The next line begins with a key as well: nothing of it belongs to this one.
    whole.then_some(())?;
    closed.then_some(())?;
    let lines = lines[..=at].iter().chain([&lines[at]]).chain(&lines[at + 1..]);
    Some((Slip::Twice, lines.copied().collect()))
}

fn tab(good: &str, random: &mut SplitMix64) -> Option<(Slip, String)> {
    let lines: Vec<&str> = good.split_inclusive('\n').collect();
    let at = random.below(lines.len() as u64) as usize;
    let rest = lines[at].strip_prefix("  ").filter(|rest| rest.starts_with(|c: char| c.is_alphanumeric()))?;
    let text = lines.iter().enumerate().map(|(n, line)| if n == at { format!("\t{rest}") } else { (*line).to_owned() });
    Some((Slip::Tab, text.collect()))
}

fn number(good: &str, kind: &str, random: &mut SplitMix64) -> Option<(Slip, String)> {
    let is_number = |(from, to, key): &(usize, usize, bool)| {
        !key && good[*from..*to].chars().all(|c| c.is_ascii_digit()) && !good[..*from].ends_with(['"', '-', '/', ':'])
    };
    let there: Vec<_> = words_in(good, kind).into_iter().filter(is_number).collect();
    let (from, to, _) = *there.get(random.below(there.len().max(1) as u64) as usize)?;
    let word = if kind == "events" { "\"many\"" } else { "many" };
    Some((Slip::Number, format!("{}{word}{}", &good[..from], &good[to..])))
}

fn cut(good: &str, random: &mut SplitMix64) -> Option<(Slip, String)> {
    let at = 1 + random.below(good.len() as u64 - 2) as usize;
    let at = (at..good.len()).find(|at| good.is_char_boundary(*at))?;
    Some((Slip::Cut, good[..at].to_owned()))
}
