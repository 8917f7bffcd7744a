//! Checkpoints in a real LocalStack, in folders, and at an endpoint that fails in ways that LocalStack does not.
//!
//! Never: a sleep to wait for something; each wait looks for its condition and has a deadline.

mod failing;
mod files;
mod s3;
mod support;
mod workload;
