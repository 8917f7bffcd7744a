//! What must always hold.
use crate::state::State;
use alloc::string::String;
use alloc::vec::Vec;
/// Everything.
#[must_use]
pub fn full(state: &State) -> Vec<String> {
    let _ = state;
    Vec::new()
}
