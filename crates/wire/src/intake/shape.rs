//! Types of what may stand at a place of an event, each declared once. From the declaration come how it is read, with errors that name
//! the place and the remedy, and how its JSON Schema describes it.
//!
//! ```text
//! object! { Demand, unknown: missing; concurrency: Whole<0, MOST> = "concurrency", needed "say how many ..."; }
//!    |-> Demand::read(cursor) -> Demand, or Rejected with a path
//!    |-> JsonSchema: properties, required, bounds
//! ```
//!
//! Never: a rule about several fields. Those are functions in `rules`, and an object names its own.

use super::Rejected;
use super::json_cursor::JsonCursor;
use schemars::JsonSchema;

/// What may stand at a place of an event.
pub trait WireType: Sized + JsonSchema {
    /// Reads it.
    ///
    /// # Errors
    /// What is wrong there, with its path and what to write instead.
    fn read(at: &JsonCursor<'_>, warnings: &mut Vec<String>) -> Result<Self, Rejected>;
}

/// Declares an object: its fields with their names in JSON, types and descriptions, and what a field that is not declared means.
///
/// A field without `needed` is an `Option`; null is the same as absent. `unknown` decides what becomes of a field that is not
/// declared: it is refused with a message, warned of, or ignored unless it is a slip of one that is declared; with `missing`, what is no object has no field. `rules` checks several fields together.
macro_rules! object {
    (
        $(#[$about:meta])*
        $name:ident, unknown: $unknown:ident $($refusal:literal)? $(, rules: $rules:path)?;
        $( $(#[$doc:meta])* $field:ident: $type:ty = $json:literal $(, needed $remedy:literal)?; )*
    ) => {
        #[derive(Clone, PartialEq, Debug, schemars::JsonSchema)]
        $(#[$about])*
        pub struct $name {
            $( $(#[$doc])* #[schemars(rename = $json)] pub $field: $type, )*
        }

        impl $name {
            /// The names of its fields in JSON, in the order in which they are read.
            pub const FIELDS: &'static [&'static str] = &[$($json),*];
        }

        impl $crate::intake::shape::WireType for $name {
            fn read(
                at: &$crate::intake::json_cursor::JsonCursor<'_>,
                warnings: &mut Vec<String>,
            ) -> Result<Self, $crate::intake::Rejected> {
                $crate::intake::shape::object!(@unknown $unknown $($refusal)?, at, warnings, Self::FIELDS);
                let read = $name {
                    $( $field: $crate::intake::shape::object!(@field at, warnings, $json $(, $remedy)?), )*
                };
                $( $rules(&read, at)?; )?
                Ok(read)
            }
        }
    };
    (@unknown warn, $at:ident, $warnings:ident, $fields:expr) => {
        $at.object()?;
        $at.warn_unknown($fields, $warnings);
    };
    (@unknown ignore, $at:ident, $warnings:ident, $fields:expr) => {
        $at.object()?;
        $at.warn_slips($fields, $warnings);
    };
    // Where no object is, each field is missing.
    (@unknown missing, $at:ident, $warnings:ident, $fields:expr) => {};
    (@unknown refuse $message:literal, $at:ident, $warnings:ident, $fields:expr) => {
        $at.object()?;
        if let Some(field) = $at.unknown($fields).next() {
            return Err($crate::intake::Rejected::new(
                $crate::intake::RejectCode::BadValue,
                &field.path(),
                $message,
            ));
        }
    };
    (@field $at:ident, $warnings:ident, $json:literal) => {
        $at.get($json).map(|at| $crate::intake::shape::WireType::read(&at, $warnings)).transpose()?
    };
    (@field $at:ident, $warnings:ident, $json:literal, $remedy:literal) => {
        $crate::intake::shape::WireType::read(&$at.need($json, $remedy)?, $warnings)?
    };
}
pub(crate) use object;
