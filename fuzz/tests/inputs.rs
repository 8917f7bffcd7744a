//! A short run of the fuzzer, and that it can be trusted: an input is the same each time, and what breaks is found.
//!
//! Never: the long run. `cargo xtask fuzz --inputs 100000000` is.

use forebay_fuzz::corpus;
use forebay_fuzz::input::Maker;
use forebay_fuzz::memory;
use forebay_fuzz::run::{FuzzProgress, Plan, run};
use forebay_fuzz::targets::{DecodeOutcome, FuzzTarget, InputFormat, TARGETS, named};
use std::hint::black_box;

fn hangs(n: u64) -> ! {
    eprintln!("input {n} of seed 1 takes more than 30 s");
    std::process::exit(1)
}

fn maker(only: Option<&'static FuzzTarget>) -> Maker {
    Maker::new(1, &corpus::read(&corpus::folder()).unwrap(), only)
}

/// Inputs of a run in CI.
const INPUTS: u64 = 1_000_000;

/// Of the inputs of each target, so many in a hundred get past its first stage. A fuzzer that is turned away at the door finds nothing behind it.
const LEAST_PAST: u64 = 30;

/// One test: the panic hook, which a run takes, is the whole process's.
#[test]
fn a_million_inputs_break_nothing_and_what_breaks_is_found() {
    let plan = Plan { from: 0, inputs: INPUTS, threads: 2 };
    let mut resumed = Vec::new();
    let mut progress = |at: FuzzProgress| resumed.push(at.resume);
    let figures = run(&maker(None), plan, &mut progress, hangs).unwrap();
    let again = "cargo run --profile sweep -p forebay-fuzz -- --seed 1 --inputs 1 --from N";
    assert!(figures.fault().is_none(), "{:?}; again: {again}", figures.fault());
    assert_eq!(figures.inputs, INPUTS);
    assert!(resumed.is_sorted() && resumed.iter().all(|at| *at <= INPUTS), "{resumed:?}");
    for target in &TARGETS {
        let of = figures.of(target);
        println!("{}: {of:?}", target.name);
        assert!(of.inputs > INPUTS * target.share / 1100, "{}: {of:?}", target.name);
        assert!(of.past * 100 >= of.inputs * LEAST_PAST, "{}: {of:?}: {:?}", target.name, figures.outcomes);
        assert!(of.accepted > 0 && of.accepted < of.inputs, "{}: {of:?}: both outcomes are tried", target.name);
        assert!(of.most_bytes > 0, "{}: its memory is counted", target.name);
    }
    for code in ["BadValue", "FutureVersion", "Inline", "Malformed", "Missing", "TooLarge", "Token", "UnknownType"] {
        assert!(figures.outcomes.keys().any(|(_, outcome)| *outcome == code), "{code} never came out");
    }

    static PANICS: FuzzTarget = FuzzTarget {
        check: |bytes, _| if bytes.len() % 97 == 5 { panic!("five") } else { Ok(DecodeOutcome::Accepted) },
        ..MADE_UP
    };
    let plan = Plan { inputs: 100_000, threads: 1, ..plan };
    let maker_of_panics = maker(Some(&PANICS));
    let found = run(&maker_of_panics, plan, &mut |_| (), hangs).unwrap().finding.unwrap();
    assert!(found.what.contains("five") && found.what.contains("inputs.rs"), "{}", found.what);
    let mut bytes = Vec::new();
    maker_of_panics.make(found.n, &mut bytes);
    assert_eq!(bytes, found.bytes, "the same input again");

    static GREEDY: FuzzTarget = FuzzTarget {
        check: |bytes, _| {
            let size = if bytes.len() % 97 == 5 { 257 << 20 } else { 255 << 20 };
            // Nothing of it is written, so the system gives no pages for it.
            memory::decoding(|| drop(black_box(vec![0_u8; size])));
            Ok(DecodeOutcome::Accepted)
        },
        ..MADE_UP
    };
    let found = run(&maker(Some(&GREEDY)), plan, &mut |_| (), hangs).unwrap().finding.unwrap();
    assert!(found.what.contains("257 MiB at once; 256 are allowed") && found.bytes.len() % 97 == 5, "{}", found.what);
    inputs_from_a_later_one_on_are_those_of_one_run();
}

/// A target of these tests alone.
const MADE_UP: FuzzTarget = FuzzTarget {
    name: "made-up",
    share: 0,
    shape: InputFormat::Event,
    first_stage: &[],
    check: |_, _| Ok(DecodeOutcome::Accepted),
};

fn inputs_from_a_later_one_on_are_those_of_one_run() {
    let outcomes = |from, inputs| {
        let plan = Plan { from, inputs, threads: 2 };
        run(&maker(named("metadata")), plan, &mut |_| (), hangs).unwrap().outcomes
    };
    let (whole, mut parts) = (outcomes(0, 5000), outcomes(0, 1700));
    for (outcome, n) in outcomes(1700, 3300) {
        *parts.entry(outcome).or_default() += n;
    }
    assert_eq!(parts, whole);
}

#[test]
fn an_input_is_made_alone_and_always_the_same() {
    let (one, other) = (maker(None), maker(None));
    let (mut a, mut b) = (Vec::new(), vec![b'x'; 100]);
    for n in (0..2000).rev() {
        let targets = (one.make(n, &mut a).name, other.make(n, &mut b).name);
        assert_eq!((targets.0, &a), (targets.1, &b), "input {n}");
        one.make(n + 7, &mut a);
    }
}
