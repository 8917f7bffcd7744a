//! `journal:`, `statuses:` and `rejected:` in `forebay.yaml`: how long what is over is kept.
//!
//! Never: the identities of finished jobs, which are kept for ever at some 50 bytes each.

use crate::driver::Retention;
use crate::segments::SegmentRetention;
use forebay_kernel::units::{Mib, Span};
use forebay_quantity::{Memory, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How long the journal keeps what is over.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JournalConfig {
    /// Finished jobs stay in `forebay jobs --all` and `forebay why` for so long. A job that is sent again is known for ever. Default: 30d.
    pub keep_finished: Option<Time>,
    /// Texts of policies that are not in force any more. Default: 30d.
    pub keep_policies: Option<Time>,
}

/// How long a log of lines is kept. What a sink has not sent yet stays.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LogConfig {
    /// Lines are kept for so long, and for as long as their segment, of a day at most, has younger ones. Default: 7d of statuses, 30d of
    /// rejected events.
    pub keep: Option<Time>,
    /// The oldest segments go beyond so much. Default: 4GiB of statuses, 1GiB of rejected events.
    pub at_most: Option<Memory>,
}

impl LogConfig {
    fn over(self, default: SegmentRetention) -> SegmentRetention {
        SegmentRetention {
            age_ms: self.keep.map_or(default.age_ms, |Time(span)| span.0),
            bytes: self.at_most.map_or(default.bytes, |Memory(mib)| mib.0.saturating_mul(1 << 20)),
        }
    }

    /// Writes down what is not given.
    fn fill(&mut self, default: SegmentRetention) {
        self.keep.get_or_insert(Time(Span(default.age_ms)));
        self.at_most.get_or_insert(Memory(Mib(default.bytes >> 20)));
    }
}

impl super::Config {
    /// How long what is over is kept, defaults filled in.
    #[must_use]
    pub fn retention(&self) -> Retention {
        let mut retention = Retention::default();
        let JournalConfig { keep_finished, keep_policies } = self.journal.unwrap_or_default();
        retention.journal.finished = keep_finished.map_or(retention.journal.finished, |Time(span)| span);
        retention.journal.policies = keep_policies.map_or(retention.journal.policies, |Time(span)| span);
        retention.statuses = self.statuses.unwrap_or_default().over(retention.statuses);
        retention.rejected = self.rejected.unwrap_or_default().over(retention.rejected);
        retention
    }

    /// Writes down how long what is over is kept where that is not given.
    pub(super) fn fill_retention(&mut self) {
        let Retention { journal: kept, statuses, rejected } = Retention::default();
        let journal = self.journal.get_or_insert_default();
        journal.keep_finished.get_or_insert(Time(kept.finished));
        journal.keep_policies.get_or_insert(Time(kept.policies));
        self.statuses.get_or_insert_default().fill(statuses);
        self.rejected.get_or_insert_default().fill(rejected);
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use std::path::Path;

    #[test]
    fn what_is_written_goes_before_the_defaults() {
        let text =
            "apiVersion: forebay/v1\nkind: Config\njournal: {keepFinished: 90d}\nstatuses: {keep: 2d, atMost: 1GiB}\n";
        let retention = Config::parse(Path::new("f.yaml"), text).expect("reads").retention();
        assert_eq!(retention.journal.finished.0, 90 * 86_400_000);
        assert_eq!((retention.statuses.age_ms, retention.statuses.bytes), (2 * 86_400_000, 1 << 30));
        assert_eq!(retention.rejected, crate::intake::rejected::RETENTION);
        assert_eq!(Config::default().retention(), crate::driver::Retention::default());
    }

    #[test]
    fn a_size_beyond_all_bytes_is_no_small_one() {
        let text = "apiVersion: forebay/v1\nkind: Config\nstatuses: {atMost: 16777216TiB}\n";
        let retention = Config::parse(Path::new("f.yaml"), text).expect("reads").retention();
        assert_eq!(retention.statuses.bytes, u64::MAX);
    }
}
