//! The policy's JSON Schema, from the same comments that document the fields.
//!
//! Never: says more than the types do. Names and sums are checked by `forebay check`.

use super::written::Written;

/// The schema as JSON, for editors and for `forebay schema policy`.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Written).to_value()
}
