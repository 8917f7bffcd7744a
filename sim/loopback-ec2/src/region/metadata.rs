//! The instance metadata below `/latest/meta-data/`. The frontend checks tokens.

use forebay_kernel::catalog::CapacityType;
use forebay_kernel::units::Timestamp;
use serde_json::json;

use super::Region;
use super::messages::seconds;

impl Region {
    /// The text at a path below `/latest/meta-data/`. `None`: there is no such path, or the instance is terminated.
    pub fn metadata(&mut self, now: Timestamp, instance: &str, path: &str) -> Option<String> {
        self.process_due(now);
        let row = self.instances.by_id(instance).filter(|row| row.terminated_at.is_none())?;
        let spot = row.capacity == CapacityType::Spot;
        let going = row.reclaim_at.filter(|_| spot);
        match path.trim_end_matches('/') {
            "ami-id" => Some(row.image.clone()),
            "instance-id" => Some(row.id.clone()),
            "instance-type" => Some(row.instance_type.clone()),
            "instance-life-cycle" => Some(if spot { "spot" } else { "on-demand" }.to_owned()),
            "placement/availability-zone" => Some(row.zone.clone()),
            "placement/availability-zone-id" => Some(self.zone_id(&row.zone)),
            "placement/region" => Some(self.options.name.clone()),
            "placement/group-name" => row.placement_group.clone(),
            "spot/instance-action" => going.map(|at| json!({"action": "terminate", "time": seconds(at)}).to_string()),
            "spot/termination-time" => going.map(seconds),
            "events/recommendations/rebalance" => {
                row.rebalance_at.map(|at| json!({"noticeTime": seconds(at)}).to_string())
            }
            "tags/instance" => Some(row.tags.keys().cloned().collect::<Vec<_>>().join("\n")),
            other => row.tags.get(other.strip_prefix("tags/instance/")?).cloned(),
        }
    }
}
