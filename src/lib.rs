//! The engine.
#![no_std]
extern crate alloc;
