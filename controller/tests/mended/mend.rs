//! Does what messages say, and nothing else: it knows how they are written, and not what files mean.
//!
//! Never: looks at the original.

use forebay_quantity::slip::nearest;
use std::path::Path;

/// What was said, in its parts: nothing of it is known from elsewhere than from what is printed.
#[derive(Clone, PartialEq, Debug)]
pub struct Told {
    /// As it is printed.
    pub said: String,
    /// Line and column, from 1.
    pub place: Option<(usize, usize)>,
    /// The column or the field that it is about, where there is one.
    pub field: Option<String>,
    pub message: String,
    pub remedy: String,
}

impl Told {
    /// Of a message on one line: `FILE, line N, column C: what is wrong; what to do`.
    pub fn of_line(said: &str) -> Told {
        let (message, remedy) = said.split_once("; ").or_else(|| said.split_once(" = help: ")).unwrap_or((said, ""));
        let remedy = if remedy.is_empty() { question(said).unwrap_or_default() } else { remedy.to_owned() };
        let after = |word: &str| message.split_once(word).map(|(_, rest)| rest);
        let number = |rest: &str| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
        let place = after(", line ").and_then(number).map(|line| (line, 1));
        let field = after(", column ").and_then(|rest| Some(rest.split_once(':')?.0.to_owned()));
        Told { said: said.to_owned(), place, field, message: message.to_owned(), remedy }
    }

    /// Of all faults of a file: `error: what is wrong`, `--> FILE:LINE:COLUMN`, the line itself, `= help: what to do`.
    pub fn of_faults(printed: &str) -> Vec<Told> {
        let mut faults: Vec<Told> = Vec::new();
        for line in printed.lines() {
            if let Some(message) = line.strip_prefix("error: ") {
                let (said, message, remedy) = (line.to_owned(), message.to_owned(), String::new());
                faults.push(Told { said, place: None, field: None, message, remedy });
                continue;
            }
            let Some(fault) = faults.last_mut() else { continue };
            fault.said.push('\n');
            fault.said.push_str(line);
            if let Some(place) = line.trim_start().strip_prefix("--> ") {
                let mut parts = place.rsplitn(3, ':').map(|part| part.parse::<usize>().ok());
                let (column, number) = (parts.next().flatten(), parts.next().flatten());
                fault.place = number.zip(column);
            } else if let Some(remedy) = line.strip_prefix("  = help: ") {
                fault.remedy = remedy.to_owned();
            }
        }
        faults
    }

    /// Of an event, as a replay logs it: `FILE, line N: rejected: FIELD: what is wrong; what to do`, or a warning, which names the field itself. The
    /// log's own fields follow.
    pub fn of_event(logged: &str) -> Told {
        let fields = [" code=", " subject="].iter().find_map(|name| logged.rsplit_once(name));
        let told = Told::of_line(fields.map_or(logged, |(said, _)| said).trim());
        let what = told.message.split_once(": ").map_or("", |(_, what)| what);
        let (field, message) = match what.strip_prefix("rejected: ").and_then(|rest| rest.split_once(": ")) {
            Some((field, message)) => (Some(field), message),
            None => (what.strip_prefix('`').and_then(|rest| Some(rest.split_once('`')?.0)), what),
        };
        Told { field: field.map(str::to_owned), message: message.to_owned(), ..told }
    }

    /// Which part of what a file of this name is told is not there.
    pub fn lacks(&self, file: &str) -> Option<&'static str> {
        if !self.said.contains(file) {
            return Some("the file's name");
        }
        if self.place.is_none() && !self.message.contains("the file") {
            return Some("the line");
        }
        if self.message.trim().is_empty() {
            return Some("what is wrong");
        }
        self.remedy.trim().is_empty().then_some("the remedy")
    }
}

/// The question of a message, with its answer in it.
fn question(said: &str) -> Option<String> {
    let at = said.find("did you mean")?;
    Some(said[at..].to_owned())
}

/// What one is told to write in place of what stands there.
fn replacement(remedy: &str, stands: &str) -> Option<String> {
    let quoted = |text: &str| Some(text.split_once('`')?.1.split_once('`')?.0.to_owned());
    if let Some(rest) = remedy.split_once("did you mean ").map(|(_, rest)| rest) {
        return match rest.strip_prefix("one of ") {
            Some(several) => like(several, stands),
            None => quoted(rest).or_else(|| Some(rest.split('?').next()?.to_owned())),
        };
    }
    if let Some(rest) = remedy.strip_prefix("rename column ") {
        return rest.split_once(" to ").map(|(_, to)| to.to_owned());
    }
    let rest = remedy
        .strip_prefix("write ")
        .or_else(|| remedy.strip_prefix("send "))
        .or_else(|| remedy.strip_prefix("use one of "))?;
    like(rest, stands)
}

/// Of the words of a remedy the one that is most like what stands there.
fn like(words: &str, stands: &str) -> Option<String> {
    let words = words.split([' ', ',', '`', ';']).filter(|word| !word.is_empty());
    nearest(stands, words).first().map(|word| (*word).to_owned())
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || "_-./".contains(c)
}

/// A text after one message was followed. `None`: it says nothing that a program can do.
fn followed(text: &str, told: &Told) -> Option<String> {
    let (number, column) = told.place?;
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let line = *lines.get(number - 1)?;
    let with = |new: String| -> String {
        lines[..number - 1].iter().copied().chain([new.as_str()]).chain(lines[number..].iter().copied()).collect()
    };
    if told.remedy == "keep one of them" {
        return Some(with(String::new()));
    }
    // The word that stands there: by the field's name, by what the message quotes, or by the column.
    if let Some((from, to)) = told.remedy.strip_prefix("rename column ").and_then(|rest| rest.split_once(" to ")) {
        return replaced(line, from, to).map(with);
    }
    if let Some((from, to)) = told.remedy.strip_prefix("rename `").and_then(|rest| rest.split_once("` to `")) {
        let quoted = |name: &str| format!("\"{}\"", name.trim_end_matches('`'));
        return replaced(line, &quoted(from), &quoted(to)).map(with);
    }
    if let Some(rest) = told.message.split_once("were not used: ").map(|(_, rest)| rest) {
        let (from, _) = rest.split_once(' ')?;
        let to = replacement(&told.remedy, from)?;
        return replaced(line, from, &to).map(with);
    }
    if let Some(field) = &told.field {
        let last = field.rsplit('.').next()?;
        let unknown = told.message.contains("is not a field that is known");
        let stands = if unknown { last } else { told.message.strip_prefix('`')?.split_once('`')?.0 };
        let to = replacement(&told.remedy, stands)?;
        return replaced(line, &format!("\"{stands}\""), &format!("\"{to}\"")).map(with);
    }
    let at = line.char_indices().nth(column - 1).map_or(line.len(), |(at, _)| at);
    let at = at + (line[at..].len() - line[at..].trim_start_matches(['"', '\'']).len());
    let len = line[at..].find(|c| !is_part(c)).unwrap_or(line.len() - at);
    let to = replacement(&told.remedy, &line[at..at + len])?;
    Some(with(format!("{}{to}{}", &line[..at], &line[at + len..])))
}

/// A line with a word replaced that stands in it once.
fn replaced(line: &str, from: &str, to: &str) -> Option<String> {
    let whole = |at: &usize| {
        let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        from.starts_with('"') || !part(line[..*at].chars().next_back()) && !part(line[at + from.len()..].chars().next())
    };
    let places: Vec<usize> = line.match_indices(from).map(|(at, _)| at).filter(whole).collect();
    let [at] = places[..] else { return None };
    Some(format!("{}{to}{}", &line[..at], &line[at + from.len()..]))
}

/// A text after what is said of it was followed, again and again until nothing is said, five times at most.
pub fn mended(broken: &str, read: fn(&Path, &str) -> Vec<Told>, path: &Path) -> Option<String> {
    let mut text = broken.to_owned();
    for _ in 0..5 {
        let told = read(path, &text);
        if told.is_empty() {
            return Some(text);
        }
        text = told.iter().find_map(|one| followed(&text, one))?;
    }
    None
}

/// The first line, from 1, in which two texts differ.
pub fn first_difference(good: &str, broken: &str) -> usize {
    1 + good.lines().zip(broken.lines()).take_while(|(a, b)| a == b).count()
}

/// The lines in which two texts differ.
pub fn difference(good: &str, broken: &str) -> String {
    let pairs = good.lines().zip(broken.lines()).find(|(a, b)| a != b);
    let short = |line: &str| line.chars().take(400).collect::<String>();
    pairs.map_or_else(|| "one ends before the other".to_owned(), |(a, b)| format!("- {}\n+ {}", short(a), short(b)))
}
