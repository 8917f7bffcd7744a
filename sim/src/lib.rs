//! The engine under a virtual clock: traces and markets in, a simulated world on the other side, a scorecard out.
//!
//! ```text
//! trace -> convert -> drive <-> engine        drive -> score -> Scorecard
//!                       |                     sweep = drive + faults, for many seeds
//! market -> world <-----+
//! ```
//!
//! One job under a policy, from its submission to the scorecard:
//!
//! ```
//! use forebay_sim::drive::{SimOptions, simulate};
//! use forebay_sim::market::Market;
//! use forebay_sim::policies;
//! use forebay_sim::trace::{Trace, TraceFormat, TraceJob};
//! use forebay_sim::world::spot_pairs;
//!
//! let policy = policies::spot_first();
//! let market = Market::calm(&spot_pairs(&policy));
//! let job = TraceJob { id: "a".into(), duration_ms: 60_000, gpus: 1, gpu_milli: 1000, ..TraceJob::default() };
//! let trace = Trace { name: "one job".into(), format: TraceFormat::Normalized, jobs: vec![job], notes: Vec::new() };
//! let outcome = simulate(policy, &trace, SimOptions::new(1, market))?;
//! assert_eq!((outcome.scorecard.completed, outcome.scorecard.nodes_at_end), (1, 0));
//! # Ok::<(), forebay_sim::drive::SimError>(())
//! ```
//!
//! Never: a clock, a thread, a network, an unseeded draw. Files are read by `trace` and `market` only.

pub mod adapters;
pub mod convert;
pub mod demand;
pub mod drive;
pub mod faults;
pub mod market;
pub mod memory;
pub mod policies;
pub mod score;
pub mod sweep;
pub mod trace;
pub mod world;
