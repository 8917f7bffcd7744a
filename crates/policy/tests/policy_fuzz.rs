//! Whatever the bytes, compiling a policy ends with a policy or with faults that have a place and a remedy. Never a panic.

use forebay_catalog::Catalogue;
use forebay_policy::{compile, compile_bytes};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::sync::LazyLock;

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(Catalogue::builtin);

const SEEDS: [&str; 6] = [
    include_str!("../../../policies/spot-first.yaml"),
    include_str!("../../../policies/on-demand-only.yaml"),
    include_str!("../../../policies/teams.yaml"),
    include_str!("../../../policies/mig.yaml"),
    include_str!("../../../policies/notebooks.yaml"),
    include_str!("data/everything.yaml"),
];

/// Pieces that break parsers and sums.
const PIECES: [&str; 40] = [
    "",
    "\n",
    "\t",
    "  ",
    ":",
    ": ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    "*a",
    "&a ",
    "!x ",
    "'",
    "\"",
    "|",
    ">",
    "#",
    "---\n",
    "~",
    "null",
    "all",
    "0",
    "-1",
    "0.0005",
    "99999999999999999999",
    "18446744073709551615",
    "100 %",
    "2500 USD",
    "7d",
    "a/b",
    "\u{0}",
    "\u{feff}",
    "é",
    "job.x((((",
    "7 x 1g.10gb",
    "whole",
    "Fri-Mon 22:00-06:00",
    "Europe/Berlin",
];

/// One change to a text.
#[derive(Clone, Debug)]
enum Change {
    Cut(usize, usize),
    Put(usize, usize),
    Copy(usize, usize, usize),
    SwapLines(usize, usize),
    SwapWords(usize, usize),
    Byte(usize, u8),
}

fn change() -> impl Strategy<Value = Change> {
    let at = || any::<usize>();
    prop_oneof![
        (at(), 0usize..40).prop_map(|(a, n)| Change::Cut(a, n)),
        (at(), at()).prop_map(|(a, p)| Change::Put(a, p)),
        (at(), 0usize..80, at()).prop_map(|(a, n, b)| Change::Copy(a, n, b)),
        (at(), at()).prop_map(|(a, b)| Change::SwapLines(a, b)),
        (at(), at()).prop_map(|(a, b)| Change::SwapWords(a, b)),
        (at(), any::<u8>()).prop_map(|(a, b)| Change::Byte(a, b)),
    ]
}

/// Where the words of a text are: runs of letters, digits and a few signs.
fn words(text: &[u8]) -> Vec<(usize, usize)> {
    let mut out = Vec::new();
    let mut start = None;
    for (at, byte) in text.iter().enumerate() {
        let inside = byte.is_ascii_alphanumeric() || b"-./_%".contains(byte);
        match (inside, start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                out.push((from, at));
                start = None;
            }
            _ => {}
        }
    }
    out
}

fn apply(text: &mut Vec<u8>, change: &Change) {
    let len = text.len().max(1);
    let end = |from: usize, n: usize, len: usize| (from + n).min(len);
    match change {
        Change::Cut(at, n) => {
            let from = (at % len).min(text.len());
            let to = end(from, *n, text.len());
            text.drain(from..to);
        }
        Change::Put(at, piece) => {
            let from = (at % len).min(text.len());
            text.splice(from..from, PIECES[piece % PIECES.len()].bytes());
        }
        Change::Copy(at, n, to) => {
            let from = (at % len).min(text.len());
            let piece = text[from..end(from, *n, text.len())].to_vec();
            let to = (to % len).min(text.len());
            text.splice(to..to, piece);
        }
        Change::SwapLines(a, b) => {
            let mut lines: Vec<Vec<u8>> = text.split(|c| *c == b'\n').map(<[u8]>::to_vec).collect();
            let count = lines.len();
            lines.swap(a % count, b % count);
            *text = lines.join(&b'\n');
        }
        Change::SwapWords(a, b) => {
            let words = words(text);
            if !words.is_empty() {
                let (from, to) = words[a % words.len()];
                let (start, stop) = words[b % words.len()];
                let word = text[start..stop].to_vec();
                text.splice(from..to, word);
            }
        }
        Change::Byte(at, byte) => {
            if !text.is_empty() {
                let at = at % text.len();
                text[at] = *byte;
            }
        }
    }
}

proptest! {
    // Always the same cases; PROPTEST_RNG_SEED gives others.
    #![proptest_config(ProptestConfig {
        cases: 20_000,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_change_of_a_policy_makes_the_compiler_panic(
        seed in 0..SEEDS.len(),
        changes in proptest::collection::vec(change(), 1..6),
    ) {
        let mut text = SEEDS[seed].as_bytes().to_vec();
        changes.iter().for_each(|c| apply(&mut text, c));
        match compile_bytes("fuzz.yaml", &text, &CATALOGUE) {
            Ok(compiled) => {
                // What was accepted can be explained, and the explanation means the same.
                let explained = compiled.explain();
                let again = compile("explained", &explained, &CATALOGUE).unwrap_or_else(|e| panic!("{explained}\n{e}"));
                prop_assert_eq!(&compiled.policy, &again.policy);
                prop_assert!(!compiled.report("fuzz.yaml").is_empty());
            }
            Err(errors) => {
                prop_assert!(!errors.faults.is_empty());
                for (fault, _) in &errors.faults {
                    prop_assert!(!fault.message.is_empty() && !fault.remedy.is_empty(), "{:?}", fault);
                }
                prop_assert!(errors.to_string().contains("= help: "));
            }
        }
    }
}
