//! Why a checkpoint does not count: it is not as it says it is, or nobody can say.
//!
//! Never: one taken for the other. A refusal is a fact about what is there; unknown is none.

/// Why a checkpoint does not count, or not yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// It is not there, or not what it says.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Nobody can say: ask again later.
    #[error(transparent)]
    Unknown(#[from] Unknown),
}

/// The store did not answer, or not so that anything is known: outage, throttling, no permission, no credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Unknown {
    /// What, where, and what to do.
    pub why: String,
}

impl Unknown {
    pub(crate) fn new(why: impl Into<String>) -> Unknown {
        Unknown { why: why.into() }
    }
}

/// It is not there, or not what it says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nothing can be looked at there.
    #[error("`{uri}`: {why}")]
    Address {
        /// As the job gives it, cut and escaped.
        uri: String,
        /// Why, and what to write.
        why: String,
    },
    /// The bucket is not there.
    #[error("s3://{bucket}: there is no such bucket; make it, or mend the job's `checkpoint.uri`")]
    NoBucket {
        /// Which.
        bucket: String,
    },
    /// No name of a manifest.
    #[error(
        "`{manifest}` is no manifest's name; write `manifests/ATTEMPT-SEQUENCE.json` with ten digits each, below the job's `checkpoint.uri`"
    )]
    Unnamed {
        /// As it was reported, cut and escaped.
        manifest: String,
    },
    /// No manifest.
    #[error(
        "{place}: there is no manifest of attempt {attempt} or one before it; write the manifest last, then report"
    )]
    NoManifest {
        /// Where.
        place: String,
        /// The run's.
        attempt: u32,
    },
    /// The manifest that was named is not there.
    #[error("{place}: the manifest is not there; write it before it is reported")]
    NotThere {
        /// The manifest.
        place: String,
    },
    /// It cannot be read as a manifest.
    #[error("{place}: {why}")]
    Unreadable {
        /// The manifest.
        place: String,
        /// What is wrong, and what to write.
        why: String,
    },
    /// Another job's.
    #[error(
        "{place}: it is of `{job}`, not of {wanted}; give each job an address of its own, and write FOREBAY_JOB as `job`"
    )]
    Job {
        /// The manifest.
        place: String,
        /// As it says, cut and escaped.
        job: String,
        /// Who reports.
        wanted: String,
    },
    /// A later attempt's, or one that its name does not say.
    #[error("{place}: it is of attempt {attempt} and sequence {sequence}; {why}")]
    Attempt {
        /// The manifest.
        place: String,
        /// As it says.
        attempt: u32,
        /// As it says.
        sequence: u64,
        /// What does not agree, and what to write.
        why: String,
    },
    /// A file's name leads elsewhere.
    #[error(
        "{place}: file `{key}`: {why}; name files from the job's `checkpoint.uri` on, without `.`, `..` and empty parts"
    )]
    Key {
        /// The manifest.
        place: String,
        /// As it says, cut and escaped.
        key: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A file is not there.
    #[error("{place}: {why}; write files first and the manifest last, and keep them while the manifest is there")]
    Missing {
        /// The file.
        place: String,
        /// What is there instead.
        why: &'static str,
    },
    /// A file has another size.
    #[error(
        "{place}: it has {found} bytes, not {stated}; write the manifest after its files, and files under new names"
    )]
    Size {
        /// The file.
        place: String,
        /// What is there.
        found: u64,
        /// What the manifest says.
        stated: u64,
    },
    /// A file has another checksum.
    #[error(
        "{place}: its SHA-256 is {found}, not {stated}; write the manifest after its files, and files under new names"
    )]
    Checksum {
        /// The file.
        place: String,
        /// What is there.
        found: String,
        /// What the manifest says.
        stated: String,
    },
    /// Nobody can tell whether the file is whole.
    #[error("{place}: {why}")]
    Unverifiable {
        /// The file.
        place: String,
        /// Why, and what to do.
        why: String,
    },
}

impl Refusal {
    /// Whether it says only that nothing has been saved so far.
    #[must_use]
    pub fn is_nothing_yet(&self) -> bool {
        matches!(self, Refusal::NoManifest { .. })
    }
}
