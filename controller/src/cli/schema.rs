//! `forebay schema`: JSON Schemas, made from the types that read the documents.
//!
//! Never: a schema of its own.

use super::args::SchemaOf;
use super::outcome::{Exit, Failure, print_json};
use crate::config::Config;
use forebay_policy::without_empty_values;
use forebay_wire::document::state::StateDocument;
use forebay_wire::intake::JobEvent;
use schemars::schema_for;

pub(super) fn run(of: SchemaOf) -> Result<Exit, Failure> {
    match of {
        SchemaOf::Policy => print_json(&forebay_policy::schema())?,
        SchemaOf::Event => print_json(&schema_for!(JobEvent))?,
        SchemaOf::State => print_json(&schema_for!(StateDocument))?,
        SchemaOf::Config => print_json(&without_empty_values(schema_for!(Config)))?,
    }
    Ok(Exit::Done)
}
