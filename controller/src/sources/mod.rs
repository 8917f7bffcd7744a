//! Where job events come from and statuses go to, beside HTTP: starts what the configuration names, decodes what it hands in, and
//! sends what the controller says.
//!
//! ```text
//! adapter --Posted--> clerk: intake --Post--> driver          status.jsonl, rejected.jsonl --> follower --> sink
//! ```
//!
//! Never: a payload's word on who sent it. That is the topic's or the queue's, by the configuration.

pub mod clerk;
pub mod figures;
pub mod follower;
pub mod lines;
#[cfg(test)]
mod tests;
