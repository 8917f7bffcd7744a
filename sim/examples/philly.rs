//! x
#![allow(clippy::all)]
use forebay_sim::drive::{Options, simulate};
use forebay_sim::market::Market;
use forebay_sim::policies;
use forebay_sim::world::spot_pairs;
fn main() {
    let trace = forebay_sim::trace::read(std::env::args().nth(1).unwrap(), None).unwrap();
    let policy = policies::spot_first();
    let path = forebay_sim::market::find_beside(std::path::Path::new(&std::env::args().nth(1).unwrap())).unwrap(); let market = Market::recorded(path, &spot_pairs(&policy)).unwrap();
    let outcome = simulate(policy, &trace, Options::new(1, market)).unwrap();
    println!("{}", serde_json::to_string_pretty(&outcome.scorecard).unwrap());
}
