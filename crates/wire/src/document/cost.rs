//! What something cost, by whom or what: `forebay cost --json`, `GET /v1/cost`.
//!
//! Never: sums of its own. `controller/src/cost` fills it.

use super::seconds::Seconds;
use serde::{Deserialize, Serialize};

/// A bill. The rows' costs add up to the total, to the micro-dollar.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CostDocument {
    /// Its rows, by key.
    pub rows: Vec<CostRow>,
    /// All of them together, in US dollars.
    pub total_usd: f64,
}

/// What one job cost: `GET /v1/jobs/{id}/cost`. Its rows add up to its cost, to the micro-dollar.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct JobCost {
    /// The engine's time.
    pub now_s: Seconds,
    /// Which job.
    pub job: String,
    /// What it was charged for, by attempt, kind, instance type and capacity type.
    pub rows: Vec<JobCostRow>,
    /// All of them together, in US dollars.
    pub cost_usd: f64,
    /// GPU-hours of all of them.
    pub gpu_hours: f64,
}

/// What a job was charged for.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobCostRow {
    /// In which attempt. What was booked is of the one that it was booked for, also where that never started.
    pub attempt: u32,
    /// What it was: `worked`, `lost`, `lingering` or `booked`.
    pub kind: String,
    /// On which instance type.
    pub instance_type: String,
    /// How that was paid for.
    pub capacity_type: String,
    /// What it cost, in US dollars with at most six decimals.
    #[serde(rename = "cost_usd")]
    pub cost_usd: f64,
    /// GPU-hours that it held.
    #[serde(rename = "gpu_hours")]
    pub gpu_hours: f64,
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
    /// Spot of all GPU-hours that were bought for it. Null where none were.
    pub spot_ratio: Option<f64>,
}
