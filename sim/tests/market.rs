//! The market: its tables against a slow oracle, recorded series row by row, and that a seed is all that a drawn one needs.
//! It never tests what the simulated cloud makes of a state.

mod workloads;

use std::path::Path;

use forebay_sim::market::{Market, MarketState, find_beside};
use forebay_sim::trace::SplitMix64;
use workloads::{file, real_or};

const HOUR: u64 = 3_600_000;

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(t, z)| ((*t).to_owned(), (*z).to_owned())).collect()
}

/// Walks from change to change and checks every moment of the grid: states may differ only at the changes announced.
#[track_caller]
fn announced_changes_are_all_changes(market: &Market, pair: usize, from: u64, to: u64, step: u64) {
    let (mut next, mut state, mut changes) = (market.next_change_after(pair, from), market.state_at(pair, from), 0);
    for t in (from..to).step_by(usize::try_from(step).expect("a step")) {
        while let Some(at) = next.filter(|at| *at <= t) {
            assert_eq!(market.state_at(pair, at - 1), state, "just before {at}");
            let now = market.state_at(pair, at);
            assert_ne!(now, state, "an announced change at {at} that is none");
            (state, next, changes) = (now, market.next_change_after(pair, at), changes + 1);
        }
        assert_eq!(market.state_at(pair, t), state, "an unannounced change by {t}");
    }
    assert!(changes > 0, "nothing ever changed");
}

#[test]
fn a_calm_market_never_changes() {
    let market = Market::calm(&pairs(&[("a", "z")]));
    assert_eq!((market.state_at(0, u64::MAX), market.next_change_after(0, 0)), (MarketState::CALM, None));
    assert_eq!(market.state_at(1, 0).available_permille, 0, "a pair that does not exist");
    assert!(market.describe().contains("calm") && market.describe().contains("1 pairs"));
}

#[test]
fn a_drawn_market_depends_on_its_seed_alone() {
    let few = pairs(&[("g5.xlarge", "a"), ("p4d.24xlarge", "b")]);
    let more = pairs(&[("new", "c"), ("g5.xlarge", "a"), ("p4d.24xlarge", "b")]);
    let [one, same, other] = [
        Market::seeded(7, &few, 240 * HOUR),
        Market::seeded(7, &more, 240 * HOUR),
        Market::seeded(8, &few, 240 * HOUR),
    ];
    let mut rng = SplitMix64::new(1);
    let mut differs = false;
    for _ in 0..2000 {
        let t = rng.below(500 * HOUR);
        assert_eq!((one.state_at(0, t), one.state_at(1, t)), (same.state_at(1, t), same.state_at(2, t)), "at {t}");
        differs |= one.state_at(0, t) != other.state_at(0, t);
    }
    assert!(differs, "seeds 7 and 8 agree everywhere");
    assert!(one.describe().contains("seed 7"), "{}", one.describe());
    for pair in 0..2 {
        announced_changes_are_all_changes(&one, pair, 0, 500 * HOUR, 97_001);
    }
}

#[test]
fn a_drawn_market_looks_like_a_recorded_one() {
    let many: Vec<(String, String)> = (0..40).map(|n| (format!("type-{n}"), "z".to_owned())).collect();
    let market = Market::seeded(3, &many, 27 * 24 * HOUR);
    let (mut up, mut part, mut moved) = (0u64, 0u64, 0u64);
    let samples = 40 * 27 * 24;
    for (pair, hour) in (0..40).flat_map(|p| (0..27 * 24).map(move |h| (p, h))) {
        let state = market.state_at(pair, hour * HOUR);
        up += u64::from(state.available_permille == 1000);
        part += u64::from((1..1000).contains(&state.available_permille));
        moved += u64::from(state.price_permille != 1000);
        assert!((850..=1150).contains(&state.price_permille) && state.available_permille <= 1000);
    }
    // Recorded: 12 to 89 % of the time there, 55 % on average; parts are short.
    assert!((420..680).contains(&(up * 1000 / samples)), "up {up} of {samples}");
    assert!(part > 0 && part * 1000 / samples < 120, "part {part} of {samples}");
    assert!(moved * 2 > samples, "prices stand still: {moved}");
}

const RECORDED: &str = "dataset,t_s,zone,instance_type,available,capacity,probe_gap_s\n\
    d,0,za,one,1,1,600\nd,600,za,one,0,1,600\nd,1800,za,one,1,1,600\nd,2400,za,one,1,1,600\n\
    e,100,zb,four,0,4,300\ne,400,zb,four,3,4,300\ne,700,zb,four,3,4,300\ne,1000,zb,four,4,4,300\ne,1300,zb,four,4,4,300\n";

#[test]
fn a_recorded_market_follows_its_rows_and_begins_again() {
    let (_folder, path) = file("spot_availability_x.csv", RECORDED);
    let market = Market::recorded(&path, &pairs(&[("one", "za"), ("four", "zb")])).expect("a good file");
    let at = |pair, s: u64| market.state_at(pair, s * 1000).available_permille;
    let one: Vec<u16> = [0, 599, 600, 1799, 1800, 2399, 2400, 2999, 3000].map(|s| at(0, s)).to_vec();
    assert_eq!(one, [1000, 1000, 0, 0, 1000, 1000, 1000, 1000, 0]);
    let four: Vec<u16> = [0, 299, 300, 899, 900, 1199, 1200].map(|s| at(1, s)).to_vec();
    assert_eq!(four, [0, 0, 750, 750, 1000, 1000, 0]);
    // The series of "one" ends as it begins, so nothing changes where it wraps.
    let next = |pair, s: u64| market.next_change_after(pair, s * 1000).map(|ms| ms / 1000);
    assert_eq!(
        [next(0, 0), next(0, 600), next(0, 1800), next(0, 2500)],
        [Some(600), Some(1800), Some(3000), Some(3000)]
    );
    assert_eq!([next(1, 0), next(1, 300), next(1, 900), next(1, 1200)], [Some(300), Some(900), Some(1200), Some(1500)]);
    for pair in 0..2 {
        announced_changes_are_all_changes(&market, pair, 0, 20_000_000, 7001);
    }
    let described = market.describe();
    assert!(described.contains("spot_availability_x.csv, 2 series, 2 pairs with one of their own"), "{described}");
}

#[test]
fn pairs_without_a_recording_are_spread_evenly_and_not_in_step() {
    let (_folder, path) = file("spot.csv", RECORDED);
    let strangers = pairs(&[("a", "z"), ("b", "z"), ("c", "z"), ("d", "z")]);
    let market = Market::recorded(&path, &strangers).expect("a good file");
    let again = Market::recorded(&path, &strangers).expect("a good file");
    let profile =
        |m: &Market, pair| (0..2400).map(|s| m.state_at(pair, s * 1000).available_permille).collect::<Vec<_>>();
    let parts = |pair| profile(&market, pair).contains(&750);
    assert_eq!([parts(0), parts(1), parts(2), parts(3)], [false, true, false, true], "one each in turn");
    assert_ne!(profile(&market, 0), profile(&market, 2), "two that share a series move together");
    assert_eq!(profile(&market, 3), profile(&again, 3));
}

#[test]
fn a_drought_takes_every_pair_and_ends() {
    let (_folder, path) = file("spot.csv", RECORDED);
    let market = Market::recorded(&path, &pairs(&[("one", "za"), ("four", "zb")])).expect("a good file");
    // Two that touch, and one that is empty: "one" is away from 600 to 1800 s by itself.
    let dry = market.clone().with_drought(500_000, 700_000).with_drought(650_000, 2_000_000).with_drought(9, 9);
    let at = |pair, s: u64| dry.state_at(pair, s * 1000).available_permille;
    assert_eq!([at(0, 499), at(0, 500), at(0, 1999), at(0, 2000)], [1000, 0, 0, 1000]);
    assert_eq!([at(1, 499), at(1, 500), at(1, 1999), at(1, 2000)], [750, 0, 0, 750]);
    let next = |s: u64| dry.next_change_after(0, s * 1000).map(|ms| ms / 1000);
    assert_eq!(
        [next(0), next(499), next(500), next(1999), next(2000)],
        [Some(500), Some(500), Some(2000), Some(2000), Some(3000)]
    );
    for pair in 0..2 {
        announced_changes_are_all_changes(&dry, pair, 0, 20_000_000, 7001);
        for t in (0..4_000_000).step_by(1000).filter(|t| !(500_000..2_000_000).contains(t)) {
            assert_eq!(dry.state_at(pair, t), market.state_at(pair, t), "outside the drought, at {t}");
        }
    }
    let calm = Market::calm(&pairs(&[("a", "z")])).with_drought(10, 20);
    assert_eq!([0, 10, 20].map(|t| calm.next_change_after(0, t)), [Some(10), Some(20), None]);
    assert!(calm.describe().ends_with("1 droughts"), "{}", calm.describe());
}

#[test]
fn bad_recordings_say_what_is_wrong() {
    let head = "t_s,zone,instance_type,available,capacity\n0,z,t,1,4\n";
    let cases = [
        ("60,z,t,5,4\n", "line 3, column available: more than the capacity of 4, found \"5\""),
        ("60,z,t,0,0\n", "line 3, column capacity: nothing was asked for"),
        ("60,z,t,0,4\n30,z,t,1,4\n", "line 4, column t_s: earlier than the row before it"),
        ("x,z,t,0,4\n", "line 3, column t_s: not a number, found \"x\""),
        ("60,z,t,0", "line 3: the last row has 4 fields where the header has 5"),
    ];
    for (rows, want) in cases {
        let (_folder, path) = file("m.csv", format!("{head}{rows}"));
        let message = Market::recorded(path, &[]).expect_err(rows).to_string();
        assert!(message.contains(want), "{message}");
    }
}

#[test]
fn the_recorded_probes_are_found_and_followed() {
    let (_folder, path) = real_or("spot_availability_dev.csv", made_probes);
    let beside = find_beside(&path.with_file_name("philly_2017_dev_oct02_oct22.csv"));
    assert_eq!(beside.as_deref(), Some(path.as_path()));
    are_followed(&path);
    let (_folder, alone) = file("trace.csv", "");
    assert_eq!(find_beside(&alone), None);
}

#[test]
fn probes_that_are_made_where_the_recorded_ones_are_not_are_followed_too() {
    let (_folder, path) = file("spot_availability_made.csv", made_probes());
    are_followed(&path);
}

/// Eleven series, of which two have the lengths and the shares of time of the recorded ones: they come and go every thousand minutes.
fn made_probes() -> String {
    let mut text = "dataset,t_s,zone,instance_type,available,capacity,probe_gap_s\n".to_owned();
    // Minutes of a thousand in which it is there, and how many nodes were asked for.
    let mut series = |zone: &str, kind: &str, minutes: u64, permille: u64, capacity: u64| {
        for from in (0..minutes).step_by(1000) {
            let there = (minutes - from).min(1000) * permille / 1000;
            let set = format!("made/{capacity}-node");
            for (at, available) in [(from, capacity), (from + there, 0)] {
                text += &format!("{set},{},{zone},{kind},{available},{capacity},60\n", at * 60);
            }
        }
        text += &format!("made/{capacity}-node,{},{zone},{kind},{capacity},{capacity},60\n", minutes * 60);
    };
    series("us-west-2a", "p3.2xlarge", 38_940, 793, 1);
    series("us-east-2a", "p3.2xlarge", 25_650, 731, 4);
    (0..9).for_each(|n| series(&format!("zone-{n}"), "p2.xlarge", 3_000, 500, 1));
    text
}

/// The market follows the eleven series of a file.
fn are_followed(path: &Path) {
    let market =
        Market::recorded(path, &pairs(&[("p3.2xlarge", "us-west-2a"), ("p3.2xlarge", "us-east-2a")])).expect("probes");
    assert!(market.describe().contains("11 series"), "{}", market.describe());
    // The shares of time that the files themselves have: 79.3 % of one node, and 73.1 % of four.
    for (pair, minutes, permille) in [(0, 38_940, 793), (1, 25_650, 731)] {
        let sum: u64 = (0..minutes).map(|m| u64::from(market.state_at(pair, m * 60_000).available_permille)).sum();
        assert!((sum / minutes).abs_diff(permille) <= 1, "pair {pair}: {}", sum / minutes);
        announced_changes_are_all_changes(&market, pair, 0, 40 * 24 * HOUR, 299_000);
    }
}
