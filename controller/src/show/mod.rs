//! What people see in a terminal: tables, progress, colours.
//!
//! Never: decides what is true. Figures come from views and scorecards; machines read `--json`.

pub mod closing;
pub mod colour;
pub mod cost;
pub mod demand;
pub mod doctor;
pub mod figures;
pub mod job;
pub mod lists;
pub mod outlook;
pub mod plot;
pub mod progress;
pub mod scorecard;
pub mod sources;
pub mod status_line;
pub mod table;

pub use colour::{ColourChoice, Paint};
