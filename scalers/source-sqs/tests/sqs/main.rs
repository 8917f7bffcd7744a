//! The source and the sink against a real LocalStack, and against an endpoint of their own that fails in ways that LocalStack does not.
//!
//! Tests never sleep to wait: each wait checks a condition until a deadline.

mod chain;
mod failing;
mod localstack;
mod rate;
mod sending;
mod sending_failing;
mod support;
