//! What EC2 says of what it sells: the shapes of instance types, and what spot costs now.
//!
//! ```text
//! DescribeInstanceTypes    -> shapes: type -> vCPUs, memory, GPUs (or the part of one)
//! DescribeSpotPriceHistory -> prices: (type, zone) -> micro-dollars an hour
//! ```
//!
//! Names are asked for by filters and not as ids: one that a region does not have is then absent, where an id that is not known would
//! refuse the whole call.
//!
//! Never: half an answer. What was throttled, failed or lost on any page is not known, and then nothing changes.

mod prices;
mod shapes;

pub use prices::{micro_dollars, prices};
pub use shapes::{Gpus, Shape, shapes};

use crate::call::Answer;
use crate::trouble::Refusal;
use std::collections::BTreeSet;

/// Values of one filter at most (EC2 User Guide, "List and filter using the CLI and API").
const VALUES: usize = 200;

/// Pages of one question at most: every type in every zone is a tenth of it.
const PAGES: usize = 100;

/// Why it is not known. Whatever was known before still holds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// EC2 said no.
    #[error(transparent)]
    Refused(Refusal),
    /// No answer that can be understood.
    #[error("no answer: {0}")]
    Lost(String),
    /// It goes on and on.
    #[error("more than {PAGES} pages")]
    Endless,
}

impl From<Answer> for Unknown {
    fn from(no: Answer) -> Unknown {
        match no {
            Answer::Refused(refusal) => Unknown::Refused(refusal),
            Answer::Lost(why) => Unknown::Lost(why),
            other => Unknown::Lost(format!("{other:?} is no answer to it")),
        }
    }
}

/// The pages of one question.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    read: usize,
    from: Option<String>,
}

impl Pages {
    /// Where the next page begins; `None`: at the beginning.
    pub fn from(&self) -> Option<String> {
        self.from.clone()
    }

    /// A page was read, and this is where it says that the next one begins. False: it was the last.
    pub fn turn(&mut self, next: Option<&str>) -> Result<bool, Unknown> {
        self.from = next.filter(|token| !token.is_empty()).map(str::to_owned);
        self.read += 1;
        if self.from.is_some() && self.read == PAGES { Err(Unknown::Endless) } else { Ok(self.from.is_some()) }
    }
}

/// Names in parts of as many as one filter takes. What a filter would read as a pattern is no name.
fn parts(names: &BTreeSet<String>) -> Vec<Vec<String>> {
    let plain = |name: &&String| !name.is_empty() && !name.contains(['*', '?', '\\']);
    let names: Vec<String> = names.iter().filter(plain).cloned().collect();
    names.chunks(VALUES).map(<[String]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_no_name() {
        let names = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<String>>();
        assert_eq!(parts(&names(&["g5.xlarge", "g5.*", "", "p?.2xlarge"])), [["g5.xlarge"]]);
        assert!(parts(&names(&["*"])).is_empty(), "no filter at all would be everything");
        let many: BTreeSet<String> = (0..450).map(|n| format!("t{n}.large")).collect();
        assert_eq!(parts(&many).iter().map(Vec::len).collect::<Vec<_>>(), [200, 200, 50]);
    }
}
