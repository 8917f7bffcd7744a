//! An object as a submission: the event that a pipeline would send for it.

use super::demand::Demand;
use super::{LABEL_QUEUE, LABEL_TIER, Workload};
use serde_json::{Value, json};

/// The event for an object: its id is the object's uid, so that it is one job however often it is sent. A failure is final, because an object
/// that has failed cannot run again; its own `backoffLimit` says what it takes to fail.
#[must_use]
pub fn submission(workload: &Workload, demand: &Demand) -> Value {
    let id = workload.id();
    let label = |name: &str| workload.metadata.label(name);
    // A label's value has no slashes.
    let queue = label(LABEL_QUEUE).unwrap_or_default().replace('.', "/");
    // At most three decimals, of a number far below where a float would lose them.
    let cpu = demand.cpu_milli as f64 / 1000.0;
    let mut each = json!({"cpu": cpu, "memory": format!("{}MiB", demand.memory_mib)});
    if demand.gpus > 0 {
        each["gpus"] = json!(demand.gpus);
    }
    let mut data = json!({
        "queue": queue,
        "gang": {"workers": demand.workers, "each": each},
        "retry": {"attempts": 1},
    });
    if let Some(tier) = label(LABEL_TIER) {
        data["tier"] = json!(tier);
    }
    json!({
        "specversion": "1.0",
        "type": "job.submitted",
        "source": format!("kubernetes/{}", id.namespace),
        "id": id.uid,
        "subject": id.to_string(),
        "data": data,
    })
}
