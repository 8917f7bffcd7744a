//! What outside shows that a journal gave out. A folder that was replaced by an older copy of itself, mark included, is whole as seen from inside:
//! only what carries its ids tells that it had gone on.
//!
//! ```text
//! Witness --ask(journal)--> purchases seen outside -> those that the journal has not made yet -> Shortfall, or nothing
//! ```
//!
//! Never: judges ids of another journal or incarnation, or keeps a start waiting for a witness that does not answer.

use crate::journal::{FILE, Shortfall};
use forebay_kernel::storage::JournalId;
use std::path::Path;
use std::sync::Arc;

/// How many bearers of ids are named.
const MOST_NAMED: usize = 5;

/// Something outside that carries a purchase of a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GivenOut {
    /// Who carries it, such as `instance i-0123`.
    pub bearer: String,
    /// The purchase's number.
    pub purchase: u64,
}

/// Asks for all that carries ids of a journal, of this incarnation alone.
pub type AskWitness = Arc<dyn Fn(JournalId) -> Result<Vec<GivenOut>, String> + Send + Sync>;

/// Something outside that keeps what a journal gave out.
#[derive(Clone)]
pub struct Witness {
    /// Its name, such as `ec2:research`.
    pub name: String,
    /// The way to ask it.
    pub ask: AskWitness,
}

impl std::fmt::Debug for Witness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Witness").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What a witness shows to be missing in a journal whose next purchase has this number. Nothing where it does not answer: what it has is looked at once
/// more when it does.
pub(crate) fn shortfall(witness: &Witness, folder: &Path, journal: JournalId, next: u64) -> Option<Shortfall> {
    let name = &witness.name;
    let seen = (witness.ask)(journal)
        .inspect_err(|why| {
            tracing::warn!("{name}: it cannot be told whether this journal has gone on elsewhere: {why}")
        })
        .ok()?;
    let later: Vec<&GivenOut> = seen.iter().filter(|given| given.purchase >= next).collect();
    let latest = later.iter().map(|given| given.purchase).max()?;
    let named: Vec<&str> = later.iter().take(MOST_NAMED).map(|given| given.bearer.as_str()).collect();
    let more =
        if later.len() > named.len() { format!(" and {} more", later.len() - named.len()) } else { String::new() };
    let what = format!(
        "{name} has {}{more}, up to purchase {latest}, and the next of this journal would be {next}: the folder is an older copy of itself",
        named.join(", ")
    );
    Some(Shortfall { file: folder.join(FILE), what, missing: latest - next + 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(seen: Result<Vec<GivenOut>, String>) -> Option<Shortfall> {
        let ask = Arc::new(move |_: JournalId| seen.clone());
        shortfall(&Witness { name: "ec2:test".to_owned(), ask }, Path::new("data"), JournalId::default(), 5)
    }

    fn given(purchases: impl IntoIterator<Item = u64>) -> Vec<GivenOut> {
        let one = |purchase| GivenOut { bearer: format!("instance i-{purchase}"), purchase };
        purchases.into_iter().map(one).collect()
    }

    #[test]
    fn what_the_journal_gave_out_shows_nothing_and_what_it_will_give_out_shows_how_much_is_missing() {
        assert_eq!(says(Ok(given([4, 0]))), None);
        assert_eq!(says(Ok(Vec::new())), None);
        assert_eq!(says(Err("no route".to_owned())), None);
        assert_eq!(says(Ok(given([5]))).map(|found| found.missing), Some(1));
        let found = says(Ok(given([5, 9, 2]))).expect("it is missing");
        assert_eq!(found.missing, 5);
        assert_eq!(
            found.what,
            "ec2:test has instance i-5, instance i-9, up to purchase 9, and the next of this journal would be 5: the folder is an older copy \
             of itself"
        );
        let many = says(Ok(given(5..13))).expect("it is missing");
        assert!(many.what.contains("instance i-9 and 3 more, up to purchase 12"), "{}", many.what);
    }
}
