//! What people do to a region by hand, over HTTP: the hands of a test, and a look at the truth.
//!
//! Never: what a test can do and a person cannot; `help` names all of it.

use std::collections::BTreeMap;
use std::fmt::Write;

use forebay_engine::catalog::CapacityType;
use forebay_engine::units::{Millis, Span};

use super::Response;
use crate::params::Params;
use crate::region::Region;

const HELP: &str = "\
GET  /control/help         this
GET  /control/instances    every instance: id, type, zone, capacity type, state, launched, tags
GET  /control/calls        how often each action was called, and throttled
POST /control/reclaim      ?instance=ID&notice=120     taken back, so many seconds after its warning; without notice: at once
POST /control/rebalance    ?instance=ID                a rebalance recommendation
POST /control/retire       ?instance=ID&after=86400    AWS Health announces its retirement
POST /control/end          ?instance=ID                ended, as at the console
POST /control/stop         ?instance=ID                stopped, as at the console
POST /control/tag          ?instance=ID&key=K&value=V  a tag set; without value: taken away
POST /control/foreign      ?type=T&zone=Z&capacity=C   an instance of somebody else's
POST /control/stock        ?type=T&zone=Z&capacity=C&most=N  the most that may exist; without most: no bound
capacity is spot or on-demand
";

pub(super) fn answer(region: &mut Region, now: Millis, method: &str, verb: &str, ask: &Params) -> Response {
    match (method, verb) {
        ("GET", "help") => Response::text(200, HELP),
        ("GET", "instances") => Response::text(200, instances(region)),
        ("GET", "calls") => Response::text(200, calls(region)),
        ("POST", verb) => match act(region, now, verb, ask) {
            Ok(said) => Response::text(200, said),
            Err(why) => Response::text(400, why),
        },
        _ => Response::text(404, HELP),
    }
}

fn act(region: &mut Region, now: Millis, verb: &str, ask: &Params) -> Result<String, String> {
    let text = |name: &str| ask.text(name).ok_or_else(|| format!("`{name}` is missing; see /control/help\n"));
    let seconds = |name: &str| match ask.text(name).map(str::parse) {
        None => Ok(None),
        Some(Ok(s)) => Ok(Some(Span::secs(s))),
        Some(Err(_)) => Err(format!("`{name}` is not a number of seconds\n")),
    };
    let capacity = || match text("capacity")? {
        "spot" => Ok(CapacityType::Spot),
        "on-demand" => Ok(CapacityType::OnDemand),
        other => Err(format!("`capacity` is spot or on-demand, not {other}\n")),
    };
    let found = match verb {
        "reclaim" => region.reclaim(now, text("instance")?, seconds("notice")?),
        "rebalance" => region.recommend_rebalance(now, text("instance")?),
        "retire" => {
            let starts = now + seconds("after")?.unwrap_or(Span::mins(24 * 60));
            region.schedule_retirement(now, text("instance")?, starts)
        }
        "end" => region.end_by_hand(now, text("instance")?),
        "stop" => region.stop_by_hand(now, text("instance")?),
        "tag" => region.retag(now, text("instance")?, text("key")?, ask.text("value")),
        "foreign" => {
            let id = region.launch_foreign(now, text("type")?, text("zone")?, capacity()?, BTreeMap::new());
            return id.map(|id| id + "\n").ok_or_else(|| "there is no such type\n".to_owned());
        }
        "stock" => {
            let most = ask.text("most").map(str::parse).transpose();
            let most = most.map_err(|_| "`most` is not a number\n".to_owned())?;
            region.set_stock(text("type")?, text("zone")?, capacity()?, most);
            true
        }
        other => return Err(format!("nothing is called {other}; see /control/help\n")),
    };
    if found { Ok("done\n".to_owned()) } else { Err("there is no such instance alive\n".to_owned()) }
}

fn instances(region: &Region) -> String {
    let mut out = String::new();
    for row in region.instances() {
        let tags: Vec<String> = row.tags.iter().map(|(k, v)| format!("{k}={v}")).collect();
        // Writing to a String does not fail.
        let _ = writeln!(
            out,
            "{} {} {} {} {} {} {}",
            row.id,
            row.instance_type,
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
