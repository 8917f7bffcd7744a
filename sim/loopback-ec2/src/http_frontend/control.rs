//! Control requests over HTTP: changes to a region as by its users, the market or AWS, and its actual state.

use std::collections::BTreeMap;
use std::fmt::Write;

use forebay_kernel::catalog::CapacityType;
use forebay_kernel::units::{Span, Timestamp};

use super::HttpResponse;
use crate::params::Params;
use crate::region::Region;

const HELP: &str = "\
GET  /control/help         this text
GET  /control/instances    all instances: id, type, its GPUs, zone, capacity type, state, launch time, tags
GET  /control/calls        the calls of each action, and how many were throttled
POST /control/reclaim      ?instance=ID&notice=120     reclaimed this many seconds after a warning; without notice: at once
POST /control/rebalance    ?instance=ID                a rebalance recommendation
POST /control/retire       ?instance=ID&after=86400    AWS Health announces its retirement
POST /control/end          ?instance=ID                terminated by a user
POST /control/stop         ?instance=ID                stopped by a user
POST /control/tag          ?instance=ID&key=K&value=V  a tag is set; without value: removed
POST /control/foreign      ?type=T&zone=Z&capacity=C   an instance of another user is launched
POST /control/stock        ?type=T&zone=Z&capacity=C&most=N  the most instances that may exist; without most: no limit
capacity is spot or on-demand
";

pub(super) fn respond(region: &mut Region, now: Timestamp, method: &str, verb: &str, params: &Params) -> HttpResponse {
    match (method, verb) {
        ("GET", "help") => HttpResponse::text(200, HELP),
        ("GET", "instances") => HttpResponse::text(200, instances(region)),
        ("GET", "calls") => HttpResponse::text(200, calls(region)),
        ("POST", verb) => match execute(region, now, verb, params) {
            Ok(said) => HttpResponse::text(200, said),
            Err(error) => HttpResponse::text(400, error),
        },
        _ => HttpResponse::text(404, HELP),
    }
}

fn execute(region: &mut Region, now: Timestamp, verb: &str, params: &Params) -> Result<String, String> {
    let text = |name: &str| params.text(name).ok_or_else(|| format!("`{name}` is missing; see /control/help\n"));
    let seconds = |name: &str| match params.text(name).map(str::parse) {
        None => Ok(None),
        Some(Ok(s)) => Ok(Some(Span::secs(s))),
        Some(Err(_)) => Err(format!("`{name}` is not a number of seconds\n")),
    };
    let capacity = || match text("capacity")? {
        "spot" => Ok(CapacityType::Spot),
        "on-demand" => Ok(CapacityType::OnDemand),
        other => Err(format!("`capacity` is spot or on-demand, not {other}\n")),
    };
    let done = match verb {
        "reclaim" => region.reclaim(now, text("instance")?, seconds("notice")?),
        "rebalance" => region.recommend_rebalance(now, text("instance")?),
        "retire" => {
            let starts = now + seconds("after")?.unwrap_or(Span::mins(24 * 60));
            region.schedule_retirement(now, text("instance")?, starts)
        }
        "end" => region.terminate_as_user(now, text("instance")?),
        "stop" => region.stop_as_user(now, text("instance")?),
        "tag" => region.retag(now, text("instance")?, text("key")?, params.text("value")),
        "foreign" => {
            let id = region.launch_foreign(now, text("type")?, text("zone")?, capacity()?, BTreeMap::new());
            return id.map(|id| id + "\n").ok_or_else(|| "there is no such instance type\n".to_owned());
        }
        "stock" => {
            let most = params.text("most").map(str::parse).transpose();
            let most = most.map_err(|_| "`most` is not a number\n".to_owned())?;
            region.set_stock(text("type")?, text("zone")?, capacity()?, most);
            true
        }
        other => return Err(format!("there is no command {other}; see /control/help\n")),
    };
    if done { Ok("done\n".to_owned()) } else { Err("there is no such running instance\n".to_owned()) }
}

fn instances(region: &Region) -> String {
    let mut out = String::new();
    for row in region.instances() {
        let tags: Vec<String> = row.tags.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let known = region.options().types.iter().find(|known| known.instance_type == row.instance_type);
        // Writing to a String does not fail.
        let _ = writeln!(
            out,
            "{} {} {} {} {} {} {} {}",
            row.id,
            row.instance_type,
            known.map_or(0, |known| known.gpus),
            row.zone,
            row.capacity.as_str(),
            row.state.as_str(),
            crate::region::seconds(row.launched),
            tags.join(",")
        );
    }
    out
}

fn calls(region: &Region) -> String {
    let mut out = String::new();
    for (action, count) in region.calls() {
        // Writing to a String does not fail.
        let _ = writeln!(
            out,
            "{action} {} throttled {} most in a minute {}",
            count.total, count.throttled, count.most_in_a_minute
        );
    }
    out
}
