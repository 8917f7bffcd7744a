//! Keys with nothing after them in the policy's JSON Schema: what the reader refuses there, the schema refuses too.
//!
//! Every field that may be left out is an `Option`, which a derived schema lets be `null`. `decode` takes nothing for a value in a few places
//! only; these are listed here, and a test compares the two.
//!
//! Never: says what an empty section means.

use schemars::Schema;
use schemars::transform::{RecursiveTransform, Transform};
use serde_json::{Value, json};

/// Sections that may be empty, such as one whose lines are all commented out.
const SECTIONS: [&str; 6] = ["billing", "consolidation", "fairness", "lifecycle", "queues", "routes"];

/// Sections in which what stands under a name may be empty: such a queue or pool has every default.
const ENTRIES: [&str; 2] = ["pools", "queues"];

/// Takes `null` out of a policy's schema, wherever the reader refuses a key with nothing after it.
pub fn refuse(schema: &mut Schema) {
    let derived = schema.clone();
    RecursiveTransform(without_null).transform(schema);
    for section in SECTIONS {
        let at = format!("/properties/{section}");
        if let (Some(field), Some(before)) = (schema.pointer_mut(&at), derived.pointer(&at)) {
            field.clone_from(before);
        }
    }
    for section in ENTRIES {
        if let Some(entry) = schema.pointer_mut(&format!("/properties/{section}/additionalProperties")) {
            let named = entry.take();
            *entry = json!({"anyOf": [named, {"type": "null"}]});
        }
    }
}

/// A schema of a file in which no key at all may have nothing after it, such as a configuration.
#[must_use]
pub fn without_empty_values(mut schema: Schema) -> Schema {
    RecursiveTransform(without_null).transform(&mut schema);
    schema
}

/// One schema without the `null` that an `Option` adds: `[TYPE, null]` as a type, or `anyOf` a type and `null`.
fn without_null(schema: &mut Schema) {
    let Some(fields) = schema.as_object_mut() else { return };
    if let Some(Value::Array(kinds)) = fields.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if kinds.len() == 1
            && let Some(only) = kinds.pop()
        {
            fields.insert("type".to_owned(), only);
        }
    }
    let Some(Value::Array(shapes)) = fields.get_mut("anyOf") else { return };
    shapes.retain(|shape| shape["type"] != "null");
    if shapes.len() == 1
        && let Some(Value::Object(only)) = shapes.pop()
    {
        fields.remove("anyOf");
        // What the field says of itself goes before what its type says.
        for (key, value) in only {
            fields.entry(key).or_insert(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemars::json_schema;

    #[test]
    fn what_an_option_adds_is_taken_out_and_other_choices_stay() {
        let mut schema = json_schema!({"properties": {
            "some": {"type": ["integer", "null"], "minimum": 0},
            "either": {"type": ["integer", "string", "null"]},
            "named": {"anyOf": [{"$ref": "#/$defs/Time", "description": "a time"}, {"type": "null"}], "description": "How long."},
            "several": {"anyOf": [{"const": "any"}, {"type": "array", "items": {"type": ["string", "null"]}}]}
        }});
        refuse(&mut schema);
        let expected = json!({"properties": {
            "some": {"type": "integer", "minimum": 0},
            "either": {"type": ["integer", "string"]},
            "named": {"$ref": "#/$defs/Time", "description": "How long."},
            "several": {"anyOf": [{"const": "any"}, {"type": "array", "items": {"type": "string"}}]}
        }});
        assert_eq!(schema.to_value(), expected);
    }
}
