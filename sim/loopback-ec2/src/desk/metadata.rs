//! The instance metadata paths, version 2: a token first, then what an instance reads about itself. Each instance has its own below `/i-ID`.
//!
//! Never: an answer without a token.

use forebay_engine::units::{Millis, Span};
use forebay_sim::world::hash::{Draw, draw, name};

use super::{Request, Response};
use crate::region::Region;

/// The longest that a token may live.
const MOST_TTL_S: u64 = 21_600;

pub(super) fn answer(region: &mut Region, now: Millis, request: &Request<'_>, path: &str) -> Response {
    let Some((instance, path)) = path.strip_prefix('/').and_then(|p| p.split_once('/')) else {
        return Response::text(404, "");
    };
    let reachable = region.instance(instance).is_some_and(|row| row.gone.is_none());
    match (request.method, path) {
        _ if !reachable => Response::text(404, ""),
        ("PUT", "latest/api/token") => match ttl(request) {
            Some(ttl) => {
                let token = token(region, instance, now + Span::secs(ttl));
                let headers = vec![("x-aws-ec2-metadata-token-ttl-seconds", ttl.to_string())];
                Response { headers, ..Response::text(200, token) }
            }
            None => Response::text(400, ""),
        },
        ("GET", path) => {
            let Some(path) = path.strip_prefix("latest/meta-data/") else { return Response::text(404, "") };
            if !is_good(region, instance, now, request.header("x-aws-ec2-metadata-token")) {
                return Response::text(401, "");
            }
            // A key of a tag may be written with escapes in a path.
            let path = form_urlencoded::parse(format!("={}", path.replace('+', "%2B")).as_bytes())
                .next()
                .map_or_else(String::new, |(_, path)| path.into_owned());
            region
                .metadata(now, instance, &path)
                .map_or_else(|| Response::text(404, ""), |text| Response::text(200, text))
        }
        _ => Response::text(405, ""),
    }
}

fn ttl(request: &Request<'_>) -> Option<u64> {
    let asked = request.header("x-aws-ec2-metadata-token-ttl-seconds")?.parse().ok()?;
    Some(asked).filter(|s| (1..=MOST_TTL_S).contains(s))
}

/// A token says until when it is good, and for whom by a hash: none has to be remembered.
fn token(region: &Region, instance: &str, until: Millis) -> String {
    let proof = draw(region.options.seed, Draw::Id, name(&[instance]), until.0);
    format!("token-{}-{proof:016x}", until.0)
}

fn is_good(region: &Region, instance: &str, now: Millis, token_said: Option<&str>) -> bool {
    let until = |said: &str| said.strip_prefix("token-")?.split_once('-')?.0.parse().ok().map(Millis);
    token_said
        .is_some_and(|said| until(said).is_some_and(|until| now < until && said == token(region, instance, until)))
}
