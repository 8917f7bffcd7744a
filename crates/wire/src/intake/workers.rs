//! How many workers a gang has: a number, or `{"min": 2, "max": 4}`.
//!
//! Never: more than [`MOST_WORKERS`], or at most fewer than at least.

use super::Rejected;
use super::json_cursor::JsonCursor;
use super::shape::WireType;
use super::submission::MOST_WORKERS;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;

/// How many workers a gang has, at least and at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkerCount {
    /// So few will do.
    pub min: u32,
    /// So many can be used.
    pub max: u32,
}

impl WireType for WorkerCount {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<WorkerCount, Rejected> {
        if at.value.is_object() {
            let min = at.need("min", "say how few will do")?.count(1, MOST_WORKERS)?;
            let max = at.get("max").map(|m| m.count(min, MOST_WORKERS)).transpose()?.unwrap_or(min);
            return Ok(WorkerCount { min, max });
        }
        let workers = at.count(1, MOST_WORKERS)?;
        Ok(WorkerCount { min: workers, max: workers })
    }
}

impl JsonSchema for WorkerCount {
    fn schema_name() -> Cow<'static, str> {
        "WorkerCount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number of workers, or at least and at most so many.",
            "oneOf": [
                { "type": "integer", "minimum": 1, "maximum": MOST_WORKERS },
                {
                    "type": "object",
                    "properties": {
                        "min": { "type": "integer", "minimum": 1, "maximum": MOST_WORKERS },
                        "max": { "type": ["integer", "null"], "minimum": 1, "maximum": MOST_WORKERS }
                    },
                    "required": ["min"]
                }
            ]
        })
    }
}
