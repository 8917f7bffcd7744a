//! Why tests failed: the first panic of each, as the test binaries print it.
//!
//! Never: runs anything. Lines come in as they arrive.

use std::collections::BTreeMap;

/// Lines of a message that are kept, and characters of each.
const LINES: usize = 4;
const WIDTH: usize = 300;

/// The first panic of each test, by the test's name.
#[derive(Debug, Default)]
pub struct Causes {
    of: BTreeMap<String, Vec<String>>,
    /// The test whose output is being printed, where it was kept until the end.
    printing: Option<String>,
    /// The test whose message is being read.
    reading: Option<String>,
}

impl Causes {
    /// Reads one line of output.
    pub fn read(&mut self, line: &str) {
        if let Some(test) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.printing = Some(test.to_owned());
            self.reading = None;
            return;
        }
        if let Some((thread, place)) = panicked(line) {
            let test = self.printing.clone().unwrap_or_else(|| thread.to_owned());
            // What a test does not survive is its first panic; those of its threads come after it, or are it.
            self.reading = (!self.of.contains_key(&test)).then(|| test.clone());
            self.of.entry(test).or_insert_with(|| vec![place.to_owned()]);
            return;
        }
        if ["stack backtrace:", "note: ", "test ", "failures:"].iter().any(|end| line.starts_with(end)) {
            self.reading = None;
        }
        if line == "failures:" {
            self.printing = None;
        }
        let Some(lines) = self.reading.as_ref().and_then(|test| self.of.get_mut(test)) else { return };
        if lines.len() <= LINES && !line.trim().is_empty() {
            lines.push(line.chars().take(WIDTH).collect());
        }
    }

    /// Where this test's first panic was, and what it said. Nothing where none was seen.
    pub fn of(&self, test: &str) -> &[String] {
        self.of.get(test).map_or(&[], Vec::as_slice)
    }
}

/// The thread and the place of `thread 'NAME' (ID) panicked at PLACE:`.
fn panicked(line: &str) -> Option<(&str, &str)> {
    let (thread, rest) = line.strip_prefix("thread '")?.split_once('\'')?;
    let (_, place) = rest.split_once("panicked at ")?;
    Some((thread, place.trim_end_matches(':')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Causes {
        let mut causes = Causes::default();
        for line in text.lines() {
            causes.read(line);
        }
        causes
    }

    #[test]
    fn the_first_panic_of_each_test_is_kept_whoever_panicked() {
        let causes = read(
            "
test a::one ... FAILED
failures:

---- a::one stdout ----
what it said before

thread 'tokio-rt-worker' (12) panicked at tests/a.rs:3:9:
assertion failed
  left: 1
stack backtrace:
   0: core

thread 'a::one' (11) panicked at tests/a.rs:9:1:
no panic

---- a::two stdout ----

thread 'a::two' panicked at tests/a.rs:20:5:
boom

failures:
    a::one
    a::two
",
        );
        assert_eq!(causes.of("a::one"), ["tests/a.rs:3:9", "assertion failed", "  left: 1"]);
        assert_eq!(causes.of("a::two"), ["tests/a.rs:20:5", "boom"]);
        assert!(causes.of("a::three").is_empty());
    }

    #[test]
    fn what_is_printed_at_once_is_read_by_its_thread_and_long_messages_are_cut() {
        let long = "x".repeat(1_000);
        let text = format!("thread 'b' (2) panicked at b.rs:1:1:\n{long}\n2\n3\n4\n5\n6\ntest b ... FAILED\nafter\n");
        let causes = read(&text);
        assert_eq!(causes.of("b").len(), 1 + LINES);
        assert_eq!(causes.of("b")[1].len(), WIDTH);
    }
}
