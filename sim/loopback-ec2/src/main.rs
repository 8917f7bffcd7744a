//! The loopback EC2 as a program.
//!
//! Never: a port beyond 127.0.0.1.

fn main() {}
