//! A short run of the fuzzer, and that it can be trusted: an input is the same each time, and what breaks is found.
//!
//! Never: the long run. `cargo run --release -p forebay-fuzz -- --inputs 10000000` is.

use forebay_fuzz::corpus;
use forebay_fuzz::input::Maker;
use forebay_fuzz::run::{Plan, run};
use forebay_fuzz::targets::{DecodeOutcome, FuzzTarget, InputFormat, TARGETS};

fn hangs(n: u64) -> ! {
    eprintln!("input {n} of seed 1 takes more than 30 s");
    std::process::exit(1)
}

fn maker(only: Option<&'static FuzzTarget>) -> Maker {
    Maker::new(1, &corpus::read(&corpus::folder()).unwrap(), only)
}

/// One test: the panic hook, which a run takes, is the whole process's.
#[test]
fn a_hundred_thousand_inputs_break_nothing_and_what_breaks_is_found() {
    let plan = Plan { from: 0, inputs: 100_000, threads: 2 };
    let figures = run(&maker(None), plan, &mut |_| (), hangs).unwrap();
    let again = "cargo run --release -p forebay-fuzz -- --seed 1 --inputs 1 --from N";
    assert!(figures.fault().is_none(), "{:?}; again: {again}", figures.fault());
    assert_eq!(figures.inputs, 100_000);
    // A fuzzer that is always turned away at the door finds nothing behind it.
    for target in &TARGETS {
        let taken = figures.outcomes.get(&(target.name, "accepted")).copied().unwrap_or(0);
        assert!(taken > target.share * 100 / 20, "{}: {taken} inputs were taken: {:?}", target.name, figures.outcomes);
    }
    for code in ["BadValue", "FutureVersion", "Inline", "Malformed", "Missing", "TooLarge", "Token", "UnknownType"] {
        assert!(figures.outcomes.keys().any(|(_, outcome)| *outcome == code), "{code} never came out");
    }

    static PANICS: FuzzTarget = FuzzTarget {
        name: "panics",
        share: 0,
        shape: InputFormat::Event,
        check: |bytes, _| if bytes.len() % 97 == 5 { panic!("five") } else { Ok(DecodeOutcome::Accepted) },
    };
    let maker = maker(Some(&PANICS));
    let found = run(&maker, Plan { threads: 1, ..plan }, &mut |_| (), hangs).unwrap().finding.unwrap();
    assert!(found.what.contains("five") && found.what.contains("inputs.rs"), "{}", found.what);
    let mut bytes = Vec::new();
    maker.make(found.n, &mut bytes);
    assert_eq!(bytes, found.bytes, "the same input again");
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
