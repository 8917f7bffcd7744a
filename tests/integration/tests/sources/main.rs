//! The whole binary with a real Apache Kafka and LocalStack: what must hold of job events whatever comes in and whatever breaks.
//! Each test prints its figures in one line.
//!
//! `cargo xtask test integration sources` runs them all; `cargo test -p forebay-integration --test sources -- NAME --nocapture` one.
//! Never: a fixed sleep. What is waited for is looked at, with a limit.

mod bad_input;
mod broker;
mod full_disk;
mod fuzzed;
mod isolation;
mod killed;
mod missed;
mod queue;
mod standby;
mod support;
