//! A strict reader of OpenMetrics text, written from its specification: it refuses what any scraper might refuse.
//!
//! Never: skips a line. Of the types it knows those that Forebay has: counters, gauges, histograms and infos.

use crate::Server;
use std::collections::{BTreeMap, BTreeSet};

/// Asks for it, as Prometheus does.
const ACCEPT: (&str, &str) = ("accept", "application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1");

/// What a point of a histogram is has the place of a label.
pub const PART: &str = "__part__";

/// Names with values, in the order of the text.
pub type LabelSet = BTreeMap<String, String>;

/// What was read.
#[derive(Debug, Default)]
pub struct Exposition {
    /// Families by name.
    pub families: BTreeMap<String, MetricFamily>,
}

/// One family.
#[derive(Debug, Default)]
pub struct MetricFamily {
    /// `counter`, `gauge`, `histogram` or `info`.
    pub kind: String,
    /// For people.
    pub help: String,
    /// What its name ends in.
    pub unit: Option<String>,
    /// Its points.
    pub points: Vec<Point>,
}

/// One point.
#[derive(Debug)]
pub struct Point {
    /// Which. Of a histogram [`PART`] says what it is: `bucket`, `sum` or `count`.
    pub labels: LabelSet,
    /// Its value.
    pub value: f64,
    /// One of those that were counted: its labels, its value, and its time where there is one.
    pub exemplar: Option<(LabelSet, f64, Option<f64>)>,
}

impl Exposition {
    /// What a server answers to whoever has this token, or none.
    ///
    /// # Panics
    /// When it answers anything but OpenMetrics.
    #[must_use]
    pub fn scrape(server: &Server, token: Option<&str>) -> Exposition {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let headers: Vec<_> = bearer.iter().map(|bearer| ("authorization", bearer.as_str())).chain([ACCEPT]).collect();
        let (status, text) = server.send("GET", "/metrics", &headers, &[]);
        assert_eq!(status, 200, "{text}");
        Exposition::parse(&text).unwrap_or_else(|why| panic!("{why}\n\n{text}"))
    }

    /// Reads a whole answer.
    ///
    /// # Errors
    /// The first line that is wrong, and why.
    pub fn parse(text: &str) -> Result<Exposition, String> {
        let body = text.strip_suffix("# EOF\n").ok_or("it does not end in `# EOF` and a line end")?;
        let mut read = Exposition::default();
        let mut current = String::new();
        for line in body.split_terminator('\n') {
            read.line(line, &mut current).map_err(|why| format!("{why}: {line}"))?;
        }
        if !body.is_empty() && !body.ends_with('\n') {
            return Err("the last line has no end".to_owned());
        }
        for (name, family) in &read.families {
            let told = !family.kind.is_empty() && !family.help.is_empty();
            told.then_some(()).ok_or_else(|| format!("`{name}` has no TYPE or no HELP"))?;
        }
        Ok(read)
    }

    /// The value of a point by its family and all of its labels. `None`: there is none.
    #[must_use]
    pub fn value(&self, family: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.point(family, labels).map(|point| point.value)
    }

    /// The same, whole.
    #[must_use]
    pub fn point(&self, family: &str, labels: &[(&str, &str)]) -> Option<&Point> {
        let labels: LabelSet = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.families.get(family)?.points.iter().find(|point| point.labels == labels)
    }

    fn line(&mut self, line: &str, current: &mut String) -> Result<(), String> {
        let Some(described) = line.strip_prefix("# ") else { return self.sample(line, current) };
        let mut words = described.splitn(3, ' ');
        let (Some(what), Some(name), Some(rest)) = (words.next(), words.next(), words.next()) else {
            return Err("three words are needed".to_owned());
        };
        is_name(name, true)?;
        if name != current && self.families.contains_key(name) {
            return Err("its family is not in one piece".to_owned());
        }
        name.clone_into(current);
        let family = self.families.entry(name.to_owned()).or_default();
        if !family.points.is_empty() {
            return Err("it comes after its points".to_owned());
        }
        match what {
            "HELP" if family.help.is_empty() && !rest.contains(['\\', '"']) => rest.clone_into(&mut family.help),
            "TYPE" if family.kind.is_empty() && ["counter", "gauge", "histogram", "info"].contains(&rest) => {
                rest.clone_into(&mut family.kind);
            }
            "UNIT" if family.unit.is_none() && name.ends_with(&format!("_{rest}")) => {
                family.unit = Some(rest.to_owned());
            }
            _ => return Err("it is no HELP, TYPE or UNIT, or a second one".to_owned()),
        }
        Ok(())
    }

    fn sample(&mut self, line: &str, current: &str) -> Result<(), String> {
        let at = line.find(['{', ' ']).ok_or("a point has a value")?;
        let (name, rest) = line.split_at(at);
        is_name(name, true)?;
        let family = self.families.get_mut(current).ok_or("it comes before its TYPE")?;
        let suffixes: &[&str] = match family.kind.as_str() {
            "counter" => &["_total"],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        let Some(suffix) = name.strip_prefix(current).filter(|suffix| suffixes.contains(suffix)) else {
            return Err(format!("a {} of `{current}` is not named so", family.kind));
        };
        let (mut labels, rest) = if rest.starts_with('{') { labels(rest)? } else { (LabelSet::new(), rest) };
        let (value, exemplar) = match rest.split_once(" # ") {
            Some((value, exemplar)) => (value, Some(exemplar)),
            None => (rest, None),
        };
        let value = number(value.strip_prefix(' ').ok_or("one space goes before the value")?)?;
        if family.kind == "counter" && value < 0.0 || family.kind == "info" && value != 1.0 {
            return Err(format!("{value} is no value of a {}", family.kind));
        }
        if family.kind == "histogram" {
            if value < 0.0 || labels.contains_key("le") != (suffix == "_bucket") {
                return Err("a histogram is never below zero, and its buckets have `le`".to_owned());
            }
            labels.insert(PART.to_owned(), suffix.trim_start_matches('_').to_owned());
        }
        let exemplar = match exemplar {
            Some(_) if family.kind != "counter" => return Err("only counters have exemplars".to_owned()),
            Some(text) => Some(self::exemplar(text)?),
            None => None,
        };
        if family.points.iter().any(|point| point.labels == labels) {
            return Err("there are two of it".to_owned());
        }
        family.points.push(Point { labels, value, exemplar });
        Ok(())
    }
}

fn exemplar(text: &str) -> Result<(LabelSet, f64, Option<f64>), String> {
    let (labels, rest) = labels(text)?;
    let characters: usize = labels.iter().map(|(name, value)| name.chars().count() + value.chars().count()).sum();
    if characters > 128 {
        return Err(format!("its exemplar has {characters} characters"));
    }
    let mut numbers = rest.strip_prefix(' ').ok_or("its exemplar has no value")?.splitn(2, ' ');
    let value = number(numbers.next().unwrap_or_default())?;
    Ok((labels, value, numbers.next().map(number).transpose()?))
}

/// From `{` to after `}`, and what follows.
fn labels(text: &str) -> Result<(LabelSet, &str), String> {
    let mut rest = text.strip_prefix('{').ok_or("labels begin with a brace")?;
    let (mut labels, mut names) = (LabelSet::new(), BTreeSet::new());
    if let Some(after) = rest.strip_prefix('}') {
        return Ok((labels, after));
    }
    loop {
        let (name, quoted) = rest.split_once("=\"").ok_or("a label is a name, `=` and a value in quotes")?;
        is_name(name, false)?;
        if !names.insert(name) {
            return Err(format!("two labels `{name}`"));
        }
        let (value, after) = value(quoted)?;
        labels.insert(name.to_owned(), value);
        match after.chars().next() {
            Some(',') => rest = &after[1..],
            Some('}') => return Ok((labels, &after[1..])),
            _ => return Err("a comma or a brace goes after a label".to_owned()),
        }
    }
}

/// The text of a value up to its quote, and what follows.
fn value(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => value.push(match characters.next() {
                Some((_, 'n')) => '\n',
                Some((_, c @ ('\\' | '"'))) => c,
                _ => return Err("this escape is not known".to_owned()),
            }),
            c => value.push(c),
        }
    }
    Err("a value has no end".to_owned())
}

fn number(text: &str) -> Result<f64, String> {
    // Rust reads words too, such as `infinity`; nothing here is other than a number.
    let known = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b"+-.e".contains(&b));
    text.parse().ok().filter(|_| known).ok_or_else(|| format!("`{text}` is no number"))
}

fn is_name(text: &str, of_metric: bool) -> Result<(), String> {
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    let rest = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || of_metric && b == b':');
    if first && rest { Ok(()) } else { Err(format!("`{text}` is no name")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "# HELP a_usd Help.\n# TYPE a_usd counter\n# UNIT a_usd usd\n";

    #[test]
    fn what_is_right_is_read() {
        let text = format!(
            "{HEAD}a_usd_total{{x=\"\\\\ \\\" \\n}}\",y=\"\"}} 2 # {{job=\"1\"}} 1.0 3.5\na_usd_total 1e3\n# EOF\n"
        );
        let read = Exposition::parse(&text).expect("reads");
        assert_eq!(read.value("a_usd", &[]), Some(1000.0));
        let point = read.point("a_usd", &[("x", "\\ \" \n}"), ("y", "")]).expect("a point");
        let job = LabelSet::from([("job".to_owned(), "1".to_owned())]);
        assert_eq!((point.value, point.exemplar.as_ref()), (2.0, Some(&(job, 1.0, Some(3.5)))));
    }

    #[test]
    fn a_histogram_is_read_by_its_parts() {
        let head = "# HELP h Help.\n# TYPE h histogram\n";
        let points =
            "h_sum{x=\"1\"} 2.5\nh_count{x=\"1\"} 2\nh_bucket{le=\"1.0\",x=\"1\"} 1\nh_bucket{le=\"+Inf\",x=\"1\"} 2\n";
        let read = Exposition::parse(&format!("{head}{points}# EOF\n")).expect("reads");
        assert_eq!(read.value("h", &[("x", "1"), (PART, "count")]), Some(2.0));
        assert_eq!(read.value("h", &[("x", "1"), (PART, "bucket"), ("le", "1.0")]), Some(1.0));
        for wrong in ["h 1", "h_total 1", "h_bucket 1", "h_sum{le=\"1.0\"} 1", "h_count -1"] {
            assert!(Exposition::parse(&format!("{head}{wrong}\n# EOF\n")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_wrong_is_refused() {
        let long = format!("a_usd_total 1 # {{job=\"{}\"}} 1\n", "x".repeat(126));
        for (lines, why) in [
            ("a_usd_total 1\n# EOF\n", "two ends"),
            ("a_usd_total 1", "no line end"),
            ("a_usd 1\n", "a counter without its suffix"),
            ("b_total 1\n", "another family"),
            ("a_usd_total -1\n", "a counter below zero"),
            ("a_usd_total NaN\n", "no number"),
            ("a_usd_total  1\n", "two spaces"),
            ("a_usd_total{x=\"1\"} 1\na_usd_total{x=\"1\"} 2\n", "the same twice"),
            ("a_usd_total{x=\"1\",x=\"2\"} 1\n", "a label twice"),
            ("a_usd_total{x=\"1} 1\n", "a value without its end"),
            ("a_usd_total{x=\"\\t\"} 1\n", "an escape that is not known"),
            ("a_usd_total{1x=\"1\"} 1\n", "no name"),
            ("a_usd_total{x=\"1\",} 1\n", "a comma too many"),
            ("a_usd_total 1 # {job=\"1\"}\n", "an exemplar without a value"),
            (&long, "an exemplar that is too long"),
            ("# TYPE a_usd gauge\n", "a second type"),
            ("a_usd_total 1\n# TYPE b gauge\n# HELP b B.\nb 1\n# HELP a_usd Help.\n", "a family in two pieces"),
            ("# TYPE b gauge\nb 1\n", "no help"),
            ("\n", "an empty line"),
        ] {
            let text = format!("{HEAD}{lines}# EOF\n");
            assert!(Exposition::parse(&text).is_err(), "{why}: {text}");
        }
        assert!(Exposition::parse(&format!("{HEAD}a_usd_total 1\n")).is_err(), "no end");
        assert!(Exposition::parse(&format!("{HEAD}# EOF\n")).is_ok());
    }
}
