//! The committed schemas of events and of the state document are those of the types. `cargo xtask schema` writes them.
//!
//! Never: writes one.

use forebay_wire::document::state::StateDocument;
use forebay_wire::intake::JobEvent;
use schemars::{Schema, schema_for};

fn is_committed(name: &str, schema: &Schema) {
    let path = format!("{}/../../policies/schema/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let committed = std::fs::read_to_string(&path).expect("the committed schema");
    let fresh = serde_json::to_string_pretty(schema).expect("JSON") + "\n";
    let differs = fresh.lines().zip(committed.lines()).position(|(a, b)| a != b);
    assert!(fresh == committed, "policies/schema/{name}.json differs at line {differs:?}; run `cargo xtask schema`");
}

#[test]
fn the_schema_of_events_is_committed() {
    is_committed("event", &schema_for!(JobEvent));
}

#[test]
fn the_schema_of_the_state_document_is_committed() {
    is_committed("state", &schema_for!(StateDocument));
}
