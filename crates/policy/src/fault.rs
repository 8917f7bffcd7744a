//! What is wrong with a policy or a configuration: where, what, and how to mend it, shown with the line itself and a caret under the spot.
//!
//! Never: decides what is wrong. Lower case, no chains; the remedy comes last.

pub(crate) use forebay_quantity::excerpt::one_line as shown;
use forebay_quantity::slip::did_you_mean;
pub(crate) use forebay_quantity::slip::{listed, nearest};
use std::fmt::{self, Write as _};

/// A place in the source: both counted from 1, the column in characters. Line 0 is the file as a whole.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Pos {
    /// Line, from 1; 0: no line, the whole file.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Characters to underline, at least 1.
    pub width: u32,
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileFault {
    /// Where it stands.
    pub pos: Pos,
    /// The keys and positions of lists that lead there. Empty: the file as a whole, or a place that cannot be read.
    pub path: Vec<String>,
    /// What is wrong, with the figures.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

impl FileFault {
    /// A fault at a place.
    #[must_use]
    pub fn new(pos: Pos, message: impl Into<String>, remedy: impl Into<String>) -> FileFault {
        FileFault { pos, path: Vec::new(), message: message.into(), remedy: remedy.into() }
    }
}

/// All that was found wrong with one file, in the order of the file. Its text is what `forebay check` prints.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", self.rendered())]
pub struct FileErrors {
    /// The file's name as the user gave it.
    pub source_name: String,
    /// Each fault with the source line that it points at; where lines are not to be shown it is empty.
    pub faults: Vec<(FileFault, String)>,
    /// Faults beyond [`FileErrors::SHOWN`] are counted, not kept.
    pub more: usize,
}

impl FileErrors {
    /// At most so many faults are shown: mending the first ones often mends the rest.
    pub const SHOWN: usize = 20;
    /// A source line is shown up to this width; longer ones are cut around the caret.
    const LINE_WIDTH: usize = 120;

    /// Faults of `source_name`, sorted by place, with their source lines from `text`.
    #[must_use]
    pub fn new(source_name: &str, text: &str, mut faults: Vec<FileFault>) -> FileErrors {
        faults.sort_by_key(|f| (f.pos.line, f.pos.column));
        faults.dedup();
        let more = faults.len().saturating_sub(Self::SHOWN);
        faults.truncate(Self::SHOWN);
        let line_of = |line: u32| {
            let at = usize::try_from(line).ok().and_then(|l| l.checked_sub(1));
            at.and_then(|at| text.lines().nth(at)).unwrap_or_default().to_owned()
        };
        let faults = faults.into_iter().map(|f| (f.clone(), line_of(f.pos.line))).collect();
        FileErrors { source_name: source_name.to_owned(), faults, more }
    }

    /// As [`FileErrors::new`], and no line of the source is shown.
    #[must_use]
    pub fn without_lines(source_name: &str, faults: Vec<FileFault>) -> FileErrors {
        FileErrors::new(source_name, "", faults)
    }

    fn rendered(&self) -> String {
        let mut out = String::new();
        for (at, (fault, line)) in self.faults.iter().enumerate() {
            if at > 0 {
                out.push('\n');
            }
            // Writing to a string cannot fail.
            let _ = render(&mut out, &self.source_name, fault, line);
        }
        if self.more > 0 {
            let _ = writeln!(out, "\nand {} more", self.more);
        }
        out.truncate(out.trim_end().len());
        out
    }
}

fn render(out: &mut String, source: &str, fault: &FileFault, line: &str) -> fmt::Result {
    let Pos { line: number, column, width } = fault.pos;
    writeln!(out, "error: {}", fault.message)?;
    if number == 0 {
        writeln!(out, "  --> {source}")?;
    } else {
        let gutter = " ".repeat(number.to_string().len());
        let (shown, indent, width) = window(line, column, width);
        writeln!(out, "{gutter}--> {source}:{number}:{column}")?;
        if !line.is_empty() {
            writeln!(out, "{gutter} |")?;
            writeln!(out, "{number} | {shown}")?;
            writeln!(out, "{gutter} | {}{}", " ".repeat(indent), "^".repeat(width))?;
        }
    }
    writeln!(out, "  = help: {}", fault.remedy)
}

/// The part of a line to show, with the caret's indent and width in it. Tabs and control characters become blanks.
fn window(line: &str, column: u32, width: u32) -> (String, usize, usize) {
    let chars: Vec<char> = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let at = usize::try_from(column.saturating_sub(1)).unwrap_or(0).min(chars.len());
    let start = if chars.len() > FileErrors::LINE_WIDTH { at.saturating_sub(40) } else { 0 };
    let end = chars.len().min(start + FileErrors::LINE_WIDTH);
    let longest = end.saturating_sub(at).max(1);
    let width = usize::try_from(width).unwrap_or(1).clamp(1, longest);
    (chars[start..end].iter().collect(), at - start, width)
}

/// The remedy for a name that is not known: what was meant, or else what there is.
#[must_use]
pub fn meant<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match &known[..] {
        [] => "declare it first".to_owned(),
        [only] => format!("write `{only}`"),
        several => {
            did_you_mean(given, several.iter().copied()).unwrap_or_else(|| format!("use one of {}", listed(several)))
        }
    }
}
