//! Properties: what holds for any input, each against an oracle of its own.
//!
//! ```text
//! PROPTEST_CASES=2560    ten times as many cases as by default (256 stands for the modest default of each property)
//! PROPTEST_RNG_SEED=7    other cases; without it always the same ones
//! ```
//!
//! Never: a failure without the command that replays it.

mod ahead;
mod asked;
mod ends;
mod fair;
mod garbage;
mod lacks;
mod life;
mod live;
mod owned;
mod patience;
mod placing;
mod policies;
mod purchases;
mod quota;
mod reclaim;
mod serve;
mod turns;
mod victims;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseResult, TestError, TestRunner};

/// A number that an environment variable holds.
#[expect(clippy::disallowed_methods, reason = "how many are tried is said from outside")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs a property on so many inputs and shrinks what fails.
fn holds<S: Strategy>(name: &str, cases: u32, inputs: &S, test: impl Fn(S::Value) -> TestCaseResult)
where
    S::Value: core::fmt::Debug,
{
    let mut config = Config::default();
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(1);
    }
    let RngSeed::Fixed(seed) = config.rng_seed else {
        return;
    };
    let scale = config.cases;
    config.cases = (cases * scale / 256).max(1);
    config.failure_persistence = None;
    config.max_shrink_iters = 2_000;
    let found = TestRunner::new(config).run(inputs, test);
    let (why, input) = match found {
        Ok(()) => return,
        Err(TestError::Abort(why)) => (why, String::from("too many inputs were left out")),
        Err(TestError::Fail(why, input)) => (why, format!("{input:?}")),
    };
    panic!(
        "{why}\nsmallest input: {input}\nagain: PROPTEST_RNG_SEED={seed} PROPTEST_CASES={scale} \
         cargo test -p forebay-engine --test engine {name}"
    );
}
