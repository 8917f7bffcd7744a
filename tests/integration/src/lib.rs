//! Tests that drive the `forebay` binary from outside, as its users do.
