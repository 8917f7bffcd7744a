//! What outside shows that a journal gave out. A folder that was replaced by an older copy of itself, mark included, is whole as seen from inside:
//! only what carries its ids tells that it had gone on.
//!
//! ```text
//! Witness --ask(journal)--> ids seen outside -> those that the journal has not given out yet -> Shortfall, or nothing
//! ```
//!
//! Never: judges ids of another journal or incarnation, or keeps a start waiting for a witness that does not answer.

use crate::journal::{FILE, Shortfall};
use forebay_kernel::storage::JournalId;
use std::path::Path;
use std::sync::Arc;

/// How many bearers of ids are named.
const MOST_NAMED: usize = 5;

/// An id that a journal gives out, by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum GivenId {
    /// A purchase.
    Purchase(u64),
    /// An effect: the position of its record.
    Effect(u64),
    /// A status.
    Status(u64),
}

/// Something outside that carries an id of a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GivenOut {
    /// Who carries it, such as `instance i-0123`.
    pub bearer: String,
    /// The id.
    pub id: GivenId,
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

/// The first id of each kind that a journal has not given out yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextIds {
    pub purchase: u64,
    pub effect: u64,
    pub status: u64,
}

impl NextIds {
    /// What an id is called, the first that the journal would give out itself, and the number seen.
    fn against(self, id: GivenId) -> (&'static str, u64, u64) {
        match id {
            GivenId::Purchase(seen) => ("purchase", self.purchase, seen),
            GivenId::Effect(seen) => ("position", self.effect, seen),
            GivenId::Status(seen) => ("status", self.status, seen),
        }
    }
}

/// What a witness shows to be missing in a journal. Nothing where it does not answer: what it has is looked at once more when it does.
pub(crate) fn shortfall(witness: &Witness, folder: &Path, journal: JournalId, next: NextIds) -> Option<Shortfall> {
    let seen = (witness.ask)(journal)
        .inspect_err(|why| {
            let name = &witness.name;
            tracing::warn!("{name}: it cannot be told whether this journal has gone on elsewhere: {why}");
        })
        .ok()?;
    let is_later = |given: &&GivenOut| {
        let (_, next, seen) = next.against(given.id);
        seen >= next
    };
    let later: Vec<&GivenOut> = seen.iter().filter(is_later).collect();
    let latest = later.iter().max_by_key(|given| {
        let (_, next, seen) = next.against(given.id);
        seen - next
    })?;
    let (kind, next, seen) = next.against(latest.id);
    let named: Vec<&str> = later.iter().take(MOST_NAMED).map(|given| given.bearer.as_str()).collect();
    let more =
        if later.len() > named.len() { format!(" and {} more", later.len() - named.len()) } else { String::new() };
    let what = format!(
        "{} has {}{more} of {kind} {seen}, and the next of this journal would be {next}: the folder is an older copy of itself",
        witness.name,
        named.join(", ")
    );
    Some(Shortfall { file: folder.join(FILE), what, missing: seen - next + 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXT: NextIds = NextIds { purchase: 5, effect: 100, status: 40 };

    fn says(seen: Result<Vec<GivenOut>, String>) -> Option<Shortfall> {
        let ask = Arc::new(move |_: JournalId| seen.clone());
        shortfall(&Witness { name: "ec2:test".to_owned(), ask }, Path::new("data"), JournalId::default(), NEXT)
    }

    fn given(bearer: &str, id: GivenId) -> GivenOut {
        GivenOut { bearer: bearer.to_owned(), id }
    }

    #[test]
    fn what_the_journal_gave_out_shows_nothing_and_what_it_will_give_out_shows_how_much_is_missing() {
        let known = [GivenId::Purchase(4), GivenId::Effect(99), GivenId::Status(39)];
        assert_eq!(says(Ok(known.map(|id| given("instance i-1", id)).to_vec())), None);
        assert_eq!(says(Ok(Vec::new())), None);
        assert_eq!(says(Err("no route".to_owned())), None);
        let later = [GivenId::Purchase(5), GivenId::Purchase(9), GivenId::Purchase(2)];
        let found = says(Ok(later.iter().enumerate().map(|(n, id)| given(&format!("instance i-{n}"), *id)).collect()));
        let found = found.expect("it is missing");
        assert_eq!(found.missing, 5);
        assert_eq!(
            found.what,
            "ec2:test has instance i-0, instance i-1 of purchase 9, and the next of this journal would be 5: the folder is an older copy \
             of itself"
        );
        for (id, missing) in [(GivenId::Effect(100), 1), (GivenId::Status(140), 101)] {
            assert_eq!(says(Ok(vec![given("it", id)])).map(|found| found.missing), Some(missing));
        }
        let many = (0..8).map(|n| given(&format!("i-{n}"), GivenId::Purchase(5 + n))).collect();
        assert!(says(Ok(many)).expect("missing").what.contains("i-0, i-1, i-2, i-3, i-4 and 3 more of purchase 12"));
    }
}
