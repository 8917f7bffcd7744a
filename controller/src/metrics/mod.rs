//! Figures for monitoring: what `GET /metrics` answers, as text. catalogue.rs has all of them, and docs/METRICS.md is written from it.
//!
//! ```text
//! statuses --(a task counts)--> preemptions, starts -----------------+
//! what enters batches, and batches that became durable --> commits -+
//! engine ----(one question a scrape)--------------------------------+--> families --> series (bounded) --> text
//! journal, by way of cost/accounts.rs ------------------------------+
//! registry of sources, sinks and the cloud -------------------------+
//! ```
//!
//! Counters that come from the engine are in the journal and go on after a restart; what is counted here begins at zero with the process.
//!
//! Never: a job's id or subject as a label (an exemplar may name a job), a label without a bound, a figure that nobody knows as zero.

pub mod catalogue;
pub mod commits;
pub mod engine;
pub mod family;
pub mod histogram;
mod launches;
pub mod metric;
pub mod outside;
mod preemptions;
pub mod series;
pub mod spend;
mod starts;
pub mod statuses;
#[cfg(test)]
mod tests;
pub mod text;
