//! Checks of the labels that bills can be asked by.
//!
//! Never: asks whether any job has them.

use super::Check;
use crate::fault::shown;

/// Labels at most: each is kept with every job.
const MOST_LABELS: usize = 8;

/// The longest name of a label, as events may have it.
const LONGEST: usize = 63;

impl Check<'_> {
    pub(super) fn billing(&mut self) {
        let Some(labels) = self.written.billing.as_ref().and_then(|billing| billing.labels.as_ref()) else { return };
        let path = ["billing", "labels"];
        if labels.len() > MOST_LABELS {
            let what = format!("{} labels are more than the {MOST_LABELS} that bills can be asked by", labels.len());
            self.at(&path, what, "leave out those that nobody asks bills by");
        }
        for (at, label) in labels.iter().enumerate() {
            if label.is_empty() || label.len() > LONGEST {
                let what = format!("`{}` cannot be a label that bills are asked by", shown(label));
                self.at(&path, what, "name a label of jobs with 1 to 63 bytes, such as `team`");
            } else if labels[..at].contains(label) {
                self.at(&path, format!("`{}` is there twice", shown(label)), "leave one of them out");
            }
        }
    }
}
