//! Reads what EC2 offers: the shapes of instance types, and the current spot prices.
//!
//! ```text
//! DescribeInstanceTypes    -> instance_shapes: type -> vCPUs, memory, GPUs (or the part of one)
//! DescribeSpotPriceHistory -> spot_prices: (type, zone) -> micro-dollars per hour
//! ```
//!
//! Names are sent as filters, not as ids: the response leaves out a name that the region does not have, while an unknown id would make the
//! whole call fail. A failure on any page is a failure of the whole lookup, so that no partial result is used.

mod instance_types;
mod spot_prices;

pub use instance_types::{InstanceGpus, InstanceShape, instance_shapes};
pub use spot_prices::{SpotMarket, micro_dollars, spot_prices};

use crate::error_class::Ec2Error;
use std::collections::BTreeSet;

/// The most values of one filter (EC2 User Guide, "List and filter using the CLI and API").
const MAX_FILTER_VALUES: usize = 200;

/// The most pages of one lookup. Every type in every zone takes a tenth of it.
const MAX_PAGES: usize = 100;

/// Why a lookup failed. The result of an earlier lookup stays valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// EC2 refused a call, or there was no usable response.
    #[error(transparent)]
    Refused(#[from] Ec2Error),
    /// The pages do not end.
    #[error("more than {MAX_PAGES} pages")]
    Endless,
}

/// The position in the pages of one lookup.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    read: usize,
    next_token: Option<String>,
}

impl Pages {
    /// The token of the next page. `None`: the first page.
    pub fn next_token(&self) -> Option<String> {
        self.next_token.clone()
    }

    /// Counts a page that was read, with its token of the next one. Returns whether there is a next page.
    pub fn advance(&mut self, next_token: Option<&str>) -> Result<bool, LookupError> {
        self.next_token = next_token.filter(|token| !token.is_empty()).map(str::to_owned);
        self.read += 1;
        let more = self.next_token.is_some();
        if more && self.read == MAX_PAGES { Err(LookupError::Endless) } else { Ok(more) }
    }
}

/// Splits names into filters. Names that a filter would take as patterns are left out.
fn filter_values(names: &BTreeSet<String>) -> Vec<Vec<String>> {
    let plain = |name: &&String| !name.is_empty() && !name.contains(['*', '?', '\\']);
    let names: Vec<String> = names.iter().filter(plain).cloned().collect();
    names.chunks(MAX_FILTER_VALUES).map(<[String]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_left_out() {
        let names = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<String>>();
        assert_eq!(filter_values(&names(&["g5.xlarge", "g5.*", "", "p?.2xlarge"])), [["g5.xlarge"]]);
        assert!(filter_values(&names(&["*"])).is_empty(), "no filter would match everything");
        let many: BTreeSet<String> = (0..450).map(|n| format!("t{n}.large")).collect();
        assert_eq!(filter_values(&many).iter().map(Vec::len).collect::<Vec<_>>(), [200, 200, 50]);
    }
}
