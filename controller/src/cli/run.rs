//! `forebay run`.
use super::Output;
use super::args::RunArgs;
use super::outcome::{Exit, Failure};
pub(super) fn run(_: RunArgs, _: Output) -> Result<Exit, Failure> {
    Err(Failure::outside("wired up when the driver lands"))
}
