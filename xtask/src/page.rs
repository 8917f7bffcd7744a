//! docs/POLICY.md: every field of a policy with its default, from the JSON Schema, which comes from the comments of the fields.
//!
//! ```text
//! written/*.rs (comments) -> forebay schema policy -> policies/schema/policy.json -> docs/POLICY.md
//! ```
//!
//! Never written by hand, and never stale: `cargo xtask schema` writes it, tidy compares it.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Map, Value};

/// Where the page lies, from the root.
pub const PATH: &str = "docs/POLICY.md";

/// What stands above the fields.
const HEAD: &str = "\
# The policy, field by field

Start from one of the [ready-made policies](../policies/README.md), which explain themselves; this page is for looking things up.
`forebay check P.yaml --explain` prints a policy with every default filled in. This page is made from the schema by
`cargo xtask schema`: to change a line, change the comment of the field in `crates/policy/src/written/`.

`*` in a path stands for a name of your own, `[]` for each line of a list. Values carry their unit: `15m`, `2500 USD/h`, `25 %`.
A key with nothing after it is refused. Only `queues`, `routes`, `consolidation`, `fairness`, `lifecycle` and `billing` may be empty, and so may
one queue or pool.
";

/// The page for a schema. `None` where it is not a policy's.
#[must_use]
pub fn render(schema: &Value) -> Option<String> {
    let defs = schema.get("$defs")?.as_object()?;
    let mut page = Page { defs, open: VecDeque::new(), seen: BTreeMap::new() };
    let mut out = HEAD.to_owned();
    page.section("", schema, &mut out);
    while let Some((path, name)) = page.open.pop_front() {
        page.section(&path, defs.get(&name)?, &mut out);
    }
    Some(out)
}

struct Page<'a> {
    defs: &'a Map<String, Value>,
    /// Maps that are still to be described: where they stand first, and their names in the schema.
    open: VecDeque<(String, String)>,
    /// All that have a place on the page, by their names in the schema.
    seen: BTreeMap<String, String>,
}

impl Page<'_> {
    /// One map with its fields.
    fn section(&mut self, path: &str, schema: &Value, out: &mut String) {
        let title = if path.is_empty() { "The file".to_owned() } else { format!("`{path}`") };
        let what = text(schema, "description");
        out.push_str(&format!(
            "\n## {title}\n\n{what}\n\n| field | value | default | meaning |\n| --- | --- | --- | --- |\n"
        ));
        let needed = |name: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|n| n == name));
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let at = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let value = self.value(&at, field);
            let (meaning, default) = meaning(text(field, "description"));
            let default = match default {
                _ if needed(name) => "required".to_owned(),
                Some(default) => default,
                None if value.starts_with("a map") => "that of its fields".to_owned(),
                None => "none".to_owned(),
            };
            out.push_str(&format!("| `{name}` | {} | {} | {} |\n", cell(&value), cell(&default), cell(&meaning)));
        }
    }

    /// What may stand in a field, in words. Maps are put on the list of what is still to be described.
    fn value(&mut self, path: &str, schema: &Value) -> String {
        if let Some(name) = schema["$ref"].as_str().and_then(|r| r.rsplit('/').next()) {
            return self.named(path, name);
        }
        if let Some(options) = schema["anyOf"].as_array().or_else(|| schema["oneOf"].as_array()) {
            let some = options.iter().filter(|o| o["type"] != "null");
            return some.map(|o| self.value(path, o)).collect::<Vec<_>>().join(" or ");
        }
        if let Some(only) = schema["const"].as_str() {
            return format!("`{only}`");
        }
        if let Some(words) = schema["enum"].as_array() {
            let words: Vec<String> = words.iter().filter_map(Value::as_str).map(|w| format!("`{w}`")).collect();
            return words.join(" or ");
        }
        let types = &schema["type"];
        let is = |kind: &str| types == kind || types.as_array().is_some_and(|types| types.iter().any(|t| t == kind));
        match (&schema["items"], &schema["additionalProperties"]) {
            (Value::Null, entries @ Value::Object(_)) if is("object") => {
                format!("by name: {}", self.value(&format!("{path}.*"), entries))
            }
            (items, _) if is("array") && !items.is_null() => {
                format!("a list: {}", self.value(&format!("{path}[]"), items))
            }
            _ if is("integer") => "a whole number".to_owned(),
            _ if is("boolean") => "`true` or `false`".to_owned(),
            _ => "text".to_owned(),
        }
    }

    fn named(&mut self, path: &str, name: &str) -> String {
        let Some(def) = self.defs.get(name) else { return "text".to_owned() };
        if def.get("properties").is_some() {
            let first = self.seen.entry(name.to_owned()).or_insert_with(|| {
                self.open.push_back((path.to_owned(), name.to_owned()));
                path.to_owned()
            });
            return format!("a map, [`{first}`](#{})", anchor(first));
        }
        if let Some(options) = def["oneOf"].as_array()
            && options.iter().all(|o| o.get("const").is_some())
        {
            let described = |o: &Value| match text(o, "description") {
                // The only word that there is needs no meaning.
                _ if options.len() == 1 => format!("`{}`", text(o, "const")),
                "" => format!("`{}`", text(o, "const")),
                what => format!("`{}`: {}", text(o, "const"), what.trim_end_matches('.')),
            };
            return options.iter().map(described).collect::<Vec<_>>().join("<br>");
        }
        // A text with a unit is its own best description.
        if def.get("type").is_some() && def.get("enum").is_none() {
            return text(def, "description").to_owned();
        }
        self.value(path, def)
    }
}

/// `What it is. Default: x.` in two.
fn meaning(description: &str) -> (String, Option<String>) {
    match description.split_once("Default: ") {
        Some((what, default)) => (what.trim().to_owned(), Some(default.trim().trim_end_matches('.').to_owned())),
        None => (description.to_owned(), None),
    }
}

fn text<'a>(schema: &'a Value, key: &str) -> &'a str {
    schema[key].as_str().unwrap_or_default()
}

/// A table's cell: one line, no bar that is not the table's own.
fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

/// The anchor that Markdown gives a heading of this path.
fn anchor(path: &str) -> String {
    path.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect::<String>().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_map_is_told_once_with_its_fields_and_defaults() {
        let schema = json!({
            "description": "A policy.",
            "properties": {
                "kind": {"$ref": "#/$defs/Kind", "description": "Always `Policy`."},
                "limits": {"anyOf": [{"$ref": "#/$defs/Ceiling"}, {"type": "null"}], "description": "Hard bounds."},
                "pools": {"type": ["object", "null"], "additionalProperties": {"$ref": "#/$defs/Pool"}, "description": "What can be bought. Default: one."}
            },
            "required": ["kind"],
            "$defs": {
                "Kind": {"oneOf": [{"const": "Policy", "type": "string", "description": "A policy."}]},
                "Ceiling": {"description": "A bound.", "properties": {"nodes": {"type": ["integer", "null"], "description": "Nodes | all."}}},
                "Pool": {"description": "A pool.", "properties": {
                    "ceiling": {"$ref": "#/$defs/Ceiling", "description": "Its own."},
                    "types": {"type": "array", "items": {"type": "string"}, "description": "Names. Default: `any`."}
                }}
            }
        });
        let page = render(&schema).unwrap();
        let fields = page.split_once("\n## The file\n").unwrap().1;
        for line in [
            "| `kind` | `Policy` | required | Always `Policy`. |",
            "| `limits` | a map, [`limits`](#limits) | that of its fields | Hard bounds. |",
            "| `pools` | by name: a map, [`pools.*`](#pools) | one | What can be bought. |",
            "## `limits`\n\nA bound.",
            "| `nodes` | a whole number | none | Nodes \\| all. |",
            "## `pools.*`\n\nA pool.",
            "| `ceiling` | a map, [`limits`](#limits) | that of its fields | Its own. |",
            "| `types` | a list: text | `any` | Names. |",
        ] {
            assert!(fields.contains(line), "{line}\nis not in\n{page}");
        }
        assert_eq!(page.matches("## `limits`").count(), 1);
    }
}
