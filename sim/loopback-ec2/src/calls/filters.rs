//! What describes have in common: filters and pages.
//!
//! Never: a filter that is not known and counts as matched.

use crate::params::Params;
use crate::refusal::Refusal;

/// The filters of one call: all must match, each by any of its values.
pub(super) struct Filters<'a>(Vec<(&'a str, Vec<&'a str>)>);

impl<'a> Filters<'a> {
    /// Reads them; one that `known` does not take is refused.
    pub(super) fn read(params: &'a Params, known: impl Fn(&str) -> bool) -> Result<Filters<'a>, Refusal> {
        let mut filters = Vec::new();
        for prefix in params.members("Filter") {
            let name = params.text(&format!("{prefix}Name")).ok_or_else(|| Refusal::missing("Filter.Name"))?;
            if !known(name) {
                let message = format!("The filter '{name}' is invalid");
                return Err(Refusal::new(400, "InvalidParameterValue", message));
            }
            filters.push((name, params.list(&format!("{prefix}Value"))));
        }
        Ok(Filters(filters))
    }

    /// Whether something matches, by the values that it has under a filter's name.
    pub(super) fn take<'v>(&self, values: impl Fn(&str) -> Vec<&'v str>) -> bool {
        self.0.iter().all(|(name, wanted)| {
            let has = values(name);
            wanted.iter().any(|pattern| has.iter().any(|value| glob(pattern.as_bytes(), value.as_bytes())))
        })
    }
}

/// `*` is any text, `?` one character, as EC2's filters have it.
fn glob(pattern: &[u8], value: &[u8]) -> bool {
    let (mut p, mut v) = (0, 0);
    // Where the last star is, and how much of the value it has taken so far.
    let mut star: Option<(usize, usize)> = None;
    while v < value.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, v));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == value[v] => {
                p += 1;
                v += 1;
            }
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                p = at + 1;
                v = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// Where a page starts and how much it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// What was shown last, in the describe's own numbering; 0 at the start.
    pub after: u64,
    pub most: usize,
}

impl Page {
    /// `MaxResults` within `least..=most`, and `NextToken`.
    pub(super) fn read(params: &Params, least: u32, most: u32) -> Result<Page, Refusal> {
        let wanted = params.number("MaxResults")?.unwrap_or(most);
        if !(least..=most).contains(&wanted) {
            let message = format!(
                "Value ( {wanted} ) for parameter maxResults is invalid. Expecting a value between {least} and {most}."
            );
            return Err(Refusal::new(400, "InvalidParameterValue", message));
        }
        let after = match params.text("NextToken") {
            None => 0,
            Some(token) => token
                .strip_prefix("after-")
                .and_then(|n| n.parse().ok())
                .ok_or_else(|| Refusal::new(400, "InvalidNextToken", format!("The token '{token}' is invalid")))?,
        };
        Ok(Page { after, most: wanted as usize })
    }

    /// The page of a list that does not change, and the token of the next.
    pub(super) fn of<T>(self, all: Vec<T>) -> (Vec<T>, Option<String>) {
        let from = usize::try_from(self.after).unwrap_or(usize::MAX);
        let end = from.saturating_add(self.most);
        let next = (all.len() > end).then(|| Page::token(end as u64));
        (all.into_iter().skip(from).take(self.most).collect(), next)
    }

    pub(super) fn token(after: u64) -> String {
        format!("after-{after}")
    }
}

#[cfg(test)]
mod tests {
    use super::glob;

    #[test]
    fn patterns() {
        let cases = [
            ("g5.*", "g5.xlarge", true),
            ("g5.*", "g6.xlarge", false),
            ("*.48xlarge", "p5.48xlarge", true),
            ("p?.48*", "p5.48xlarge", true),
            ("p?.48*", "p5en.48xlarge", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "xxaxxbxx", false),
            ("", "", true),
            ("", "x", false),
            ("*", "", true),
        ];
        for (pattern, value, expected) in cases {
            assert_eq!(glob(pattern.as_bytes(), value.as_bytes()), expected, "{pattern} {value}");
        }
    }
}
