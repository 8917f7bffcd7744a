//! From samples of the GPUs to reports of what each worker does with them.
//!
//! ```text
//! GpuSample --judge--> busy, idle or not known, a worker --tracker--> sums and idleness --report--> POST /v1/agent/activity
//! owners of processes --'                                    '-- acknowledged: what it had is not sent again
//! ```
//!
//! While the controller is away the sums grow and nothing else does. Never: decides what happens to a worker.

pub(crate) mod judge;
pub(crate) mod monitor;
pub mod report;
pub(crate) mod reporter;
pub(crate) mod tracker;
