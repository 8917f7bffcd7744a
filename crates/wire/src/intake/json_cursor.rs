//! A place in a JSON value that knows its path, so that every rejection names where.
//!
//! Never: a default. Whoever reads a field decides what its absence means.

use super::{RejectCode, Rejected};
use forebay_kernel::units::Span;
use forebay_quantity::slip::{is_slip, nearest};
use forebay_quantity::{Time, UnitError, excerpt, is_unseen};
use serde_json::{Map, Value};

/// A value and where it is. The path is kept in pieces and put together only where something is wrong.
#[derive(Clone, Copy)]
pub struct JsonCursor<'a> {
    pub value: &'a Value,
    names: [&'a str; DEEPEST],
    depth: usize,
    item: Option<usize>,
    /// The value may be a secret: it is not repeated.
    veiled: bool,
}

/// The most names of a path: `data.gang.workers.max` has four. The path of what lies deeper ends here.
const DEEPEST: usize = 5;

/// The longest text of one name, and of a piece of what was sent, in bytes.
const MOST_SHOWN: usize = 120;

/// Fields that are not known are named one by one up to here, then counted: a megabyte of them is one mistake.
const MOST_UNKNOWN: usize = 8;

/// A piece of what was sent, escaped and cut.
pub(super) fn shown(text: &str) -> String {
    cut(excerpt::escaped(text), MOST_SHOWN)
}

/// A text of at most `most` bytes, and `...` where there was more.
pub(super) fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push_str("...");
    }
    text
}

impl<'a> JsonCursor<'a> {
    pub(crate) fn root(value: &'a Value) -> JsonCursor<'a> {
        JsonCursor { value, names: [""; DEEPEST], depth: 0, item: None, veiled: false }
    }

    pub(crate) fn under(value: &'a Value, path: &'a str) -> JsonCursor<'a> {
        JsonCursor::root(value).field(path, value)
    }

    /// The same place, whose content is never repeated.
    pub(crate) fn veiled(self) -> JsonCursor<'a> {
        JsonCursor { veiled: true, ..self }
    }

    pub(crate) fn path(&self) -> String {
        let mut path = String::new();
        for name in self.names.iter().take(self.depth) {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&shown(name));
        }
        if path.is_empty() {
            path.push('$');
        }
        self.item.map_or_else(|| path.clone(), |n| format!("{path}[{n}]"))
    }

    /// A field of this object.
    pub(crate) fn field(&self, name: &'a str, value: &'a Value) -> JsonCursor<'a> {
        let mut at = JsonCursor { value, ..*self };
        if let Some(next) = at.names.get_mut(at.depth) {
            *next = name;
            at.depth += 1;
        }
        at
    }

    /// A field, where it is there and not null.
    pub(crate) fn get(&self, name: &'a str) -> Option<JsonCursor<'a>> {
        let value = self.value.get(name).filter(|v| !v.is_null())?;
        Some(self.field(name, value))
    }

    /// A field, which has the value null where it is not there.
    pub(crate) fn at(&self, name: &'a str) -> JsonCursor<'a> {
        self.field(name, self.value.get(name).unwrap_or(&Value::Null))
    }

    /// A field that must be there.
    pub(crate) fn need(&self, name: &'a str, remedy: &str) -> Result<JsonCursor<'a>, Rejected> {
        self.get(name).ok_or_else(|| self.missing(name, remedy))
    }

    pub(crate) fn missing(&self, name: &str, remedy: &str) -> Rejected {
        let path = self.field(name, self.value).path();
        Rejected::new(RejectCode::Missing, &path, format!("is missing; {remedy}"))
    }

    /// Bad because it is newer than this controller.
    pub(crate) fn future(&self, what: &str, remedy: &str) -> Rejected {
        let bad = self.bad(what, &format!("{remedy}, or upgrade the controller"));
        Rejected { code: RejectCode::FutureVersion, ..bad }
    }

    pub(crate) fn bad(&self, what: &str, remedy: &str) -> Rejected {
        let message = match self.value {
            _ if self.veiled => format!("what was sent (not repeated, it may be a secret) {what}; {remedy}"),
            Value::String(text) => format!("`{}` {what}; {remedy}", shown(text)),
            other => format!("`{}` {what}; {remedy}", shown(&other.to_string())),
        };
        Rejected::new(RejectCode::BadValue, &self.path(), message)
    }

    /// The same where a number or a flag is wanted, and may be there as text.
    fn quoted(&self, what: &str, remedy: &str) -> Rejected {
        let bare = |text: &str| serde_json::from_str::<Value>(text).is_ok_and(|v| v.is_number() || v.is_boolean());
        if self.value.as_str().is_some_and(bare) {
            return self.bad("is text", &format!("{remedy}, without quotes"));
        }
        self.bad(what, remedy)
    }

    pub(crate) fn object(&self) -> Result<&'a Map<String, Value>, Rejected> {
        self.value.as_object().ok_or_else(|| self.bad("is not an object", "write {...}"))
    }

    pub(crate) fn list(&self) -> Result<Vec<JsonCursor<'a>>, Rejected> {
        let items = self.value.as_array().ok_or_else(|| self.bad("is not a list", "write [...]"))?;
        Ok(items.iter().enumerate().map(|(n, value)| JsonCursor { value, item: Some(n), ..*self }).collect())
    }

    /// A list that is not longer than it has use to be.
    pub(crate) fn at_most(&self, most: usize) -> Result<Vec<JsonCursor<'a>>, Rejected> {
        let items = self.list()?;
        if items.len() > most {
            return Err(self.bad(&format!("has {} items", items.len()), &format!("list at most {most}")));
        }
        Ok(items)
    }

    pub(crate) fn text(&self) -> Result<&'a str, Rejected> {
        self.value.as_str().ok_or_else(|| self.bad("is not text", "write it in quotes"))
    }

    /// Text that can be a name: not empty, bounded, and all of it can be seen.
    pub(crate) fn word(&self, most: usize) -> Result<&'a str, Rejected> {
        let text = self.text()?;
        if text.trim().is_empty() {
            return Err(self.bad("is empty", "write a name"));
        }
        if text.len() > most {
            return Err(self.bad(&format!("has {} bytes", text.len()), &format!("write at most {most}")));
        }
        if text.chars().any(is_unseen) {
            return Err(self.bad("has characters that cannot be seen", "write printable characters"));
        }
        Ok(text)
    }

    pub(crate) fn flag(&self) -> Result<bool, Rejected> {
        self.value.as_bool().ok_or_else(|| self.quoted("is not true or false", "write true or false"))
    }

    /// A whole number within bounds.
    pub(crate) fn whole(&self, least: i64, most: i64) -> Result<i64, Rejected> {
        let n = self.value.as_i64().filter(|n| (least..=most).contains(n));
        n.ok_or_else(|| self.quoted("is not possible here", &format!("write a whole number from {least} to {most}")))
    }

    pub(crate) fn count(&self, least: u32, most: u32) -> Result<u32, Rejected> {
        let n = self.whole(i64::from(least), i64::from(most))?;
        u32::try_from(n).map_err(|_| self.bad("is too large", "write a smaller number"))
    }

    /// A number with up to three decimals, in thousandths.
    pub(crate) fn thousandths(&self) -> Result<u64, Rejected> {
        let wrong = || self.quoted("is not an amount", "write a number with at most three decimals, such as 0.5");
        let text = match self.value {
            Value::Number(n) => n.to_string(),
            _ => return Err(wrong()),
        };
        let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
        let part = part.trim_end_matches('0');
        let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || part.len() > 3 || !digits(whole) || !digits(part) {
            return Err(wrong());
        }
        let whole = whole.parse::<u64>().ok().and_then(|n| n.checked_mul(1000)).ok_or_else(wrong)?;
        whole.checked_add(format!("{part:0<3}").parse().map_err(|_| wrong())?).ok_or_else(wrong)
    }

    /// A length of time such as `10m`, `1h30m`, `90s`: as in a policy.
    pub(crate) fn span(&self) -> Result<Span, Rejected> {
        let text = self.value.as_str().ok_or_else(|| {
            self.bad("has no unit of time", "write a time with its unit, such as `90s`, `15m`, `8h` or `7d`")
        })?;
        let time: Time =
            text.parse().map_err(|e: UnitError| Rejected::new(RejectCode::BadValue, &self.path(), e.to_string()))?;
        Ok(time.0)
    }

    /// Fields that nobody reads, by their paths.
    pub(crate) fn unknown(&self, known: &[&str]) -> impl Iterator<Item = JsonCursor<'a>> {
        let fields = self.value.as_object().into_iter().flatten();
        fields.filter(|(name, _)| !known.contains(&name.as_str())).map(|(name, value)| self.field(name, value))
    }

    /// Where fields of others are carried along: says of each that is surely a slip of one that is not given that it has no effect.
    pub(crate) fn warn_slips(&self, known: &[&str], warnings: &mut Vec<String>) {
        let given = |name: &str| self.value.get(name).is_some();
        for field in self.unknown(known) {
            let name = field.name();
            let meant = known.iter().find(|known| is_slip(name, known) && !given(known));
            if let Some(meant) = meant.filter(|_| warnings.len() < MOST_UNKNOWN) {
                let path = field.path();
                warnings.push(format!(
                    "`{path}` is not a field that is known here; it has no effect: did you mean `{meant}`?"
                ));
            }
        }
    }

    /// The last name of its path.
    fn name(&self) -> &'a str {
        self.depth.checked_sub(1).map_or("", |last| self.names[last])
    }

    /// Says of each field that nobody reads that it has no effect.
    pub(crate) fn warn_unknown(&self, known: &[&str], warnings: &mut Vec<String>) {
        let mut more = 0;
        for field in self.unknown(known) {
            if warnings.len() < MOST_UNKNOWN {
                let path = field.path();
                let near = nearest(path.rsplit('.').next().unwrap_or(&path), known.iter().copied());
                let near = near.into_iter().min().map_or_else(String::new, |name| format!(": did you mean `{name}`?"));
                warnings.push(format!(
                    "`{path}` is not a field that is known here; it is carried along and has no effect{near}"
                ));
            } else {
                more += 1;
            }
        }
        if more > 0 {
            warnings.push(format!("{more} more fields of `{}` are not known here and have no effect", self.path()));
        }
    }
}
