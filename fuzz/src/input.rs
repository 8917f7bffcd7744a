//! Input `n` of a seed: which target it is for, and its bytes.
//!
//! ```text
//! (seed, n) -> a generator of numbers of its own -> target by share -> made up | from the corpus and changed | noise | huge
//! ```
//!
//! Never: anything that is remembered from one input to the next, so that each can be made again alone.

use crate::corpus::Seed;
use crate::generate;
use crate::mutate::{MOST, mutate};
use crate::targets::{FuzzTarget, InputFormat, ReportKey, TARGETS};
use forebay_kernel::event::Tick;
use forebay_kernel::ids::{Attempt, JobId, Seq};
use forebay_kernel::journal::{APPLY_VERSION, Batch};
use forebay_kernel::units::Timestamp;
use forebay_sim::trace::SplitMix64;
use forebay_wire::intake::AttemptKeys;

/// The key that true tokens are made with here.
pub static KEY: AttemptKeys = AttemptKeys::first([7; 32]);

/// Makes inputs.
#[derive(Debug)]
pub struct Maker {
    seed: u64,
    only: Option<&'static FuzzTarget>,
    events: Vec<Vec<u8>>,
    headers: Vec<Vec<u8>>,
    batches: Vec<Vec<u8>>,
    lines: Vec<Vec<u8>>,
    token: String,
}

impl Maker {
    /// For a seed, a corpus, and one target or all of them.
    #[must_use]
    pub fn new(seed: u64, corpus: &[Seed], only: Option<&'static FuzzTarget>) -> Maker {
        let (headers, events): (Vec<_>, Vec<_>) = corpus.iter().partition(|s| s.name.ends_with(".headers"));
        let bytes = |seeds: Vec<&Seed>| -> Vec<Vec<u8>> { seeds.into_iter().map(|s| s.bytes.clone()).collect() };
        let (events, headers) = (bytes(events), bytes(headers));
        let batches = events.iter().filter_map(|bytes| batch(bytes)).collect();
        let lines = LINES.iter().map(|line| line.as_bytes().to_vec()).collect();
        let token = KEY.token(JobId(12), Attempt(3));
        Maker { seed, only, events, headers, batches, lines, token }
    }

    /// Which target input `n` is for; `bytes` becomes the input.
    pub fn make(&self, n: u64, bytes: &mut Vec<u8>) -> &'static FuzzTarget {
        let base = SplitMix64::new(self.seed).next_u64();
        let mut rng = SplitMix64::new(base ^ n.wrapping_mul(0xd134_2543_de82_ef95));
        let drawn = by_share(rng.below(TARGETS.iter().map(|t| t.share).sum()));
        let target = self.only.unwrap_or(drawn);
        bytes.clear();
        match rng.below(10_000) {
            0 => self.huge(&mut rng, target.shape, bytes),
            1..200 => bytes.extend((0..rng.below(256)).map(|_| rng.next_u64().to_le_bytes()[0])),
            200..4500 => self.changed(&mut rng, target.shape, bytes),
            kind => {
                self.made_up(&mut rng, target.shape, bytes);
                if kind > 9000 {
                    mutate(&mut rng, bytes, one_of(&self.events, kind));
                }
            }
        }
        target
    }

    fn seeds(&self, shape: InputFormat) -> &[Vec<u8>] {
        match shape {
            InputFormat::Event => &self.events,
            InputFormat::Headers => &self.headers,
            InputFormat::Batch => &self.batches,
            InputFormat::Lines => &self.lines,
        }
    }

    fn changed(&self, rng: &mut SplitMix64, shape: InputFormat, bytes: &mut Vec<u8>) {
        let seeds = self.seeds(shape);
        bytes.extend_from_slice(one_of(seeds, rng.next_u64()));
        let other = one_of(seeds, rng.next_u64());
        mutate(rng, bytes, other);
    }

    fn made_up(&self, rng: &mut SplitMix64, shape: InputFormat, bytes: &mut Vec<u8>) {
        match shape {
            InputFormat::Event => generate::event(rng, &self.token, bytes),
            InputFormat::Headers => generate::headers(rng, &self.token, bytes),
            InputFormat::Batch => bytes.extend_from_slice(one_of(&self.batches, rng.next_u64())),
            InputFormat::Lines => {
                for _ in 0..rng.below(6) {
                    bytes.extend_from_slice(one_of(&self.lines, rng.next_u64()));
                }
            }
        }
    }

    /// A piece over and over, up to 2 MiB: long lists, long texts, many fields, deep nesting.
    fn huge(&self, rng: &mut SplitMix64, shape: InputFormat, bytes: &mut Vec<u8>) {
        self.changed(rng, shape, bytes);
        bytes.truncate(4096);
        let at = usize::try_from(rng.below(bytes.len() as u64 + 1)).unwrap_or(0);
        let piece = generate::pick(
            rng,
            &["0,", "\"a\",", "{\"a\":0},", "[", "{\"a\":", "x", "\\u0000", " ", "\"h1\",\"h2\",", "\n", "\u{ff}"],
        );
        let room = (MOST - bytes.len()) as u64;
        // Just below what is taken as often as far above it.
        let size = if rng.chance(500) { rng.below(1_000_000) } else { rng.below(room) };
        let times = usize::try_from(size).unwrap_or(0) / piece.len();
        drop(bytes.splice(at..at, piece.repeat(times).into_bytes()));
    }
}

fn one_of(of: &[Vec<u8>], n: u64) -> &[u8] {
    let at = usize::try_from(n % (of.len() as u64).max(1)).unwrap_or(0);
    of.get(at).map_or(&[], Vec::as_slice)
}

fn by_share(mut n: u64) -> &'static FuzzTarget {
    for target in &TARGETS {
        if n < target.share {
            return target;
        }
        n -= target.share;
    }
    &TARGETS[0]
}

/// What is journaled for an event of the corpus that is taken.
fn batch(bytes: &[u8]) -> Option<Vec<u8>> {
    let event = crate::targets::decode(bytes, ReportKey::Known).ok()?.event;
    let tick = Tick { now: Timestamp(1_795_251_600_000), resumed: false, delivered: 7 };
    Batch { version: APPLY_VERSION, first_seq: Seq(41), tick, events: vec![event], decisions: Vec::new() }.encode().ok()
}

/// Lines of the files that are read back after a crash.
const LINES: [&str; 6] = [
    "{\"source\":\"f.jsonl\",\"position\":3,\"code\":\"Malformed\",\"path\":\"$\",\"message\":\"not JSON\",\"event\":\"{\"}\n",
    "{\"position\":18446744073709551615}\n",
    "{\"specversion\":\"1.0\",\"id\":\"00000000-0000-0000-0000-000000000007-1\",\"type\":\"status.queued\",\"data\":{}}\n",
    "{\"id\":\"00000000-0000-0000-0000-000000000007-2\"}\n",
    "{\"id\":\"00000000-0000-0000-0000-000000000008-1\"}\n",
    "\n",
];
