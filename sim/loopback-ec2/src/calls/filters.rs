//! Filters and pages of describe calls. An unknown filter is refused.

use forebay_catalog::matches_glob;

use crate::fault::Ec2Fault;
use crate::params::Params;
use crate::xml::Xml;

/// The filters of a call. All of them must match, each with any of its values.
pub(super) struct Filters<'a>(Vec<(&'a str, Vec<&'a str>)>);

impl<'a> Filters<'a> {
    /// Parses the filters. One that is not `known` is refused.
    pub(super) fn read(params: &'a Params, known: impl Fn(&str) -> bool) -> Result<Filters<'a>, Ec2Fault> {
        let mut filters = Vec::new();
        for prefix in params.members("Filter") {
            let name = params.text(&format!("{prefix}Name")).ok_or_else(|| Ec2Fault::missing("Filter.Name"))?;
            if !known(name) {
                let message = format!("The filter '{name}' is invalid");
                return Err(Ec2Fault::new(400, "InvalidParameterValue", message));
            }
            filters.push((name, params.list(&format!("{prefix}Value"))));
        }
        Ok(Filters(filters))
    }

    /// Whether an object matches, by its values for each filter. In a filter, `*` is any text and `?` one character.
    pub(super) fn take<'v>(&self, values: impl Fn(&str) -> Vec<&'v str>) -> bool {
        self.0.iter().all(|(name, wanted)| {
            let has = values(name);
            wanted.iter().any(|pattern| has.iter().any(|value| matches_glob(pattern, value)))
        })
    }
}

/// The start and size of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// The last object of the previous page, in the numbering of the call. 0: the first page.
    pub after: u64,
    pub most: usize,
}

impl Page {
    /// Parses `MaxResults` within `least..=most`, and `NextToken`.
    pub(super) fn read(params: &Params, least: u32, most: u32) -> Result<Page, Ec2Fault> {
        let wanted = params.number("MaxResults")?.unwrap_or(most);
        if !(least..=most).contains(&wanted) {
            let message = format!(
                "Value ( {wanted} ) for parameter maxResults is invalid. Expecting a value between {least} and {most}."
            );
            return Err(Ec2Fault::new(400, "InvalidParameterValue", message));
        }
        let after = match params.text("NextToken") {
            None => 0,
            Some(token) => token
                .strip_prefix("after-")
                .and_then(|n| n.parse().ok())
                .ok_or_else(|| Ec2Fault::new(400, "InvalidNextToken", format!("The token '{token}' is invalid")))?,
        };
        Ok(Page { after, most: wanted as usize })
    }

    /// The response with a page of a constant list, and the token of the next page.
    pub(super) fn of<T>(self, tag: &str, all: impl Iterator<Item = T>, each: impl FnMut(&mut Xml, T)) -> Xml {
        let mut left = all.skip(usize::try_from(self.after).unwrap_or(usize::MAX));
        let rows: Vec<T> = left.by_ref().take(self.most).collect();
        let next = left.next().map(|_| Page::token(self.after.saturating_add(self.most as u64)));
        Xml::of(|xml| {
            xml.list(tag, rows, each);
            xml.maybe("nextToken", next);
        })
    }

    pub(super) fn token(after: u64) -> String {
        format!("after-{after}")
    }
}
