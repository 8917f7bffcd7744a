//! Checkpoints in a real LocalStack, in folders, and at an endpoint that fails in ways that LocalStack does not.
//!
//! Tests never sleep to wait: each wait checks a condition until a deadline.

mod failing;
mod files;
mod s3;
mod support;
mod workload;
