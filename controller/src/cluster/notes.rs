//! What Kubernetes says of jobs, in its own words: what a pod waits for, why a gang was not taken, which worker nobody can prove dead.
//!
//! Never: more than [`MOST_JOBS`] jobs or [`MOST_NOTES`] notes of one; a note that has ended.

use forebay_kernel::ids::JobId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Jobs with notes at most; the oldest jobs go first.
const MOST_JOBS: usize = 10_000;
/// Notes of one job at most: a gang's workers mostly wait for the same.
const MOST_NOTES: usize = 16;

/// Notes by job. It is cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ClusterNotes(Arc<Mutex<BTreeMap<JobId, BTreeMap<String, String>>>>);

impl ClusterNotes {
    /// Notes something of a job under a subject, such as `worker 3`, in place of what was noted of it before.
    pub fn set(&self, job: JobId, subject: &str, words: String) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST_JOBS && !all.contains_key(&job) {
            all.pop_first();
        }
        let notes = all.entry(job).or_default();
        if notes.len() < MOST_NOTES || notes.contains_key(subject) {
            notes.insert(subject.to_owned(), words);
        }
    }

    /// It does not hold any more.
    pub fn clear(&self, job: JobId, subject: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(notes) = all.get_mut(&job) {
            notes.remove(subject);
            if notes.is_empty() {
                all.remove(&job);
            }
        }
    }

    /// What was in the way of a job is not any more.
    pub fn forget(&self, job: JobId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&job);
    }

    /// The notes of a job: `SUBJECT: WORDS` each.
    #[must_use]
    pub fn of(&self, job: JobId) -> Vec<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&job).into_iter().flatten().map(|(subject, words)| format!("{subject}: {words}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_bounded_and_end() {
        let notes = ClusterNotes::default();
        for worker in 0..40 {
            notes.set(JobId(1), &format!("worker {worker}"), "ImagePullBackOff".to_owned());
        }
        assert_eq!(notes.of(JobId(1)).len(), MOST_NOTES);
        notes.set(JobId(1), "worker 0", "ErrImagePull".to_owned());
        assert!(notes.of(JobId(1)).contains(&"worker 0: ErrImagePull".to_owned()));
        notes.clear(JobId(1), "worker 0");
        assert_eq!(notes.of(JobId(1)).len(), MOST_NOTES - 1);
        notes.forget(JobId(1));
        assert_eq!(notes.of(JobId(1)), Vec::<String>::new());
        for job in 0..=MOST_JOBS as u64 {
            notes.set(JobId(job), "start", "no".to_owned());
        }
        assert_eq!((notes.of(JobId(0)).len(), notes.of(JobId(1)).len()), (0, 1));
    }
}
