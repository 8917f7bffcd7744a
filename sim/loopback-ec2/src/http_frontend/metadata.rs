//! The instance metadata service, version 2, for each instance below `/i-ID`. Without a token from `/latest/api/token`, nothing is readable.

use forebay_kernel::units::{Span, Timestamp};
use forebay_sim::world::hash::{Draw, draw, name};

use super::{HttpRequest, HttpResponse};
use crate::region::Region;

/// The longest lifetime of a token.
const MAX_TTL_S: u64 = 21_600;

pub(super) fn respond(region: &mut Region, now: Timestamp, request: &HttpRequest<'_>, path: &str) -> HttpResponse {
    let Some((instance, path)) = path.strip_prefix('/').and_then(|p| p.split_once('/')) else {
        return HttpResponse::text(404, "");
    };
    let reachable = region.instance(instance).is_some_and(|row| row.terminated_at.is_none());
    match (request.method, path) {
        _ if !reachable => HttpResponse::text(404, ""),
        ("PUT", "latest/api/token") => match ttl(request) {
            Some(ttl) => {
                let token = token(region, instance, now + Span::secs(ttl));
                let headers = vec![("x-aws-ec2-metadata-token-ttl-seconds", ttl.to_string())];
                HttpResponse { headers, ..HttpResponse::text(200, token) }
            }
            None => HttpResponse::text(400, ""),
        },
        ("GET", path) => {
            let Some(path) = path.strip_prefix("latest/meta-data/") else { return HttpResponse::text(404, "") };
            if !is_valid(region, instance, now, request.header("x-aws-ec2-metadata-token")) {
                return HttpResponse::text(401, "");
            }
            // The key of a tag may be percent-encoded in the path.
            let path = form_urlencoded::parse(format!("={}", path.replace('+', "%2B")).as_bytes())
                .next()
                .map_or_else(String::new, |(_, path)| path.into_owned());
            region
                .metadata(now, instance, &path)
                .map_or_else(|| HttpResponse::text(404, ""), |text| HttpResponse::text(200, text))
        }
        _ => HttpResponse::text(405, ""),
    }
}

fn ttl(request: &HttpRequest<'_>) -> Option<u64> {
    let seconds = request.header("x-aws-ec2-metadata-token-ttl-seconds")?.parse().ok()?;
    Some(seconds).filter(|s| (1..=MAX_TTL_S).contains(s))
}

/// A token contains its end and a hash of the instance, so that no token has to be stored.
fn token(region: &Region, instance: &str, until: Timestamp) -> String {
    let proof = draw(region.options.seed, Draw::Id, name(&[instance]), until.0);
    format!("token-{}-{proof:016x}", until.0)
}

fn is_valid(region: &Region, instance: &str, now: Timestamp, presented: Option<&str>) -> bool {
    let until = |text: &str| text.strip_prefix("token-")?.split_once('-')?.0.parse().ok().map(Timestamp);
    presented.is_some_and(|text| until(text).is_some_and(|until| now < until && text == token(region, instance, until)))
}
