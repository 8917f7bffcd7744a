//! Services: `data.service` of a submission, and the demand that is told of one later.
//!
//! Never: finds out what demand is. Whoever sees the requests (a gateway, an autoscaler's metric) tells it.

use super::look::At;
use super::{RejectCode, Rejected};
use forebay_engine::job::{Level, Service};
use serde_json::Value;

/// Most replicas of one service, as the engine has it.
const MOST_REPLICAS: u32 = 10_000;

/// What a submission says of its service, and whether its replicas may run on spot: not unless it says so.
pub(super) fn read(data: &At<'_>) -> Result<Option<(Service, bool)>, Rejected> {
    let Some(at) = data.get("service") else { return Ok(None) };
    at.object()?;
    for field in ["deadline", "expectedRun"] {
        if let Some(end) = data.get(field) {
            return Err(end.bad("is for jobs that end, and a service does not", "leave it out"));
        }
    }
    if let Some(field) = at.unknown(&[&["min", "max", "target", "spread", "spot"]]).next() {
        let message = "is not a field of a service; write min, max, target, spread or spot";
        return Err(Rejected::new(RejectCode::BadValue, &field.path(), message));
    }
    let min = at.get("min").map(|n| n.count(0, MOST_REPLICAS)).transpose()?.unwrap_or(1);
    let max = at.need("max", "say how many replicas it may have at most")?.count(min.max(1), MOST_REPLICAS)?;
    let target = at.need("target", "say how many requests at once one replica is to have")?.count(1, u32::MAX)?;
    let spread = at.get("spread").map(|level| spread(&level)).transpose()?;
    let spot = at.get("spot").or(data.get("spot")).map(|spot| spot.flag()).transpose()?.unwrap_or(false);
    Ok(Some((Service { min, max, target, spread }, spot)))
}

fn spread(at: &At<'_>) -> Result<Level, Rejected> {
    let level = Level::named(at.text()?).filter(|l| matches!(l, Level::Node | Level::Rack | Level::Zone));
    level.ok_or_else(|| at.bad("is not known", "write node, rack or zone"))
}

/// `data.concurrency` of a `service.demand`.
pub(super) fn concurrency(data: &Value) -> Result<u32, Rejected> {
    let data = At::under(data, "data");
    data.need("concurrency", "say how many requests it has at once, those that wait included")?.count(0, u32::MAX)
}
