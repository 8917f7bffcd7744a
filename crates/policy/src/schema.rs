//! The policy's JSON Schema, from the same comments that document the fields.
//!
//! Never: more than the types know. Names and sums are checked by `forebay check`.

use super::written::WrittenPolicy;

/// The schema as JSON, for editors and for `forebay schema policy`.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(WrittenPolicy).to_value()
}
