//! What something cost, by whom or what: `forebay cost --json`, `GET /v1/cost`.
//!
//! Never: sums of its own. `controller/src/cost` fills it.

use serde::{Deserialize, Serialize};

/// A bill. The rows' costs add up to the total, to the micro-dollar.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CostDocument {
    /// Its rows, by key.
    pub rows: Vec<CostRow>,
    /// All of them together, in US dollars.
    pub total_usd: f64,
}

/// A row of a bill.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CostRow {
    /// Whose or of what it is.
    pub key: String,
    /// What it cost, in US dollars with at most six decimals.
    pub cost_usd: f64,
    /// GPU-hours that it held, or that were of no use to anybody.
    pub gpu_hours: f64,
    /// Spot of all GPU-hours that were bought for it. 0 where none were.
    pub spot_ratio: f64,
}
