//! Why a checkpoint does not count. A refusal is a fact about what is stored. If the store did not respond, nothing is known.

/// Why a checkpoint does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// It does not exist, or differs from what its manifest states.
    #[error(transparent)]
    Refused(#[from] CheckpointRefusal),
    /// The store did not respond; try again later.
    #[error(transparent)]
    Unavailable(#[from] StoreUnavailable),
}

/// The store gave no usable response, because of an outage, throttling, a missing permission or missing credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct StoreUnavailable {
    /// What failed and where, and what to do.
    pub why: String,
}

impl StoreUnavailable {
    pub(crate) fn new(why: impl Into<String>) -> StoreUnavailable {
        StoreUnavailable { why: why.into() }
    }
}

/// A checkpoint that does not exist, or differs from what its manifest states.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointRefusal {
    /// The address is not valid, or not one that the controller reads.
    #[error("`{uri}`: {why}")]
    Address {
        /// The URI as the job gives it, shortened and escaped.
        uri: String,
        /// What is wrong, and what to write.
        why: String,
    },
    /// The bucket does not exist.
    #[error("s3://{bucket}: there is no such bucket; create it, or correct the job's `checkpoint.uri`")]
    NoBucket {
        /// The name of the bucket.
        bucket: String,
    },
    /// The report names something that is not a manifest.
    #[error(
        "`{manifest}` is not the name of a manifest; write `manifests/ATTEMPT-SEQUENCE.json` with ten digits each, below the job's `checkpoint.uri`"
    )]
    Unnamed {
        /// The name as reported, shortened and escaped.
        manifest: String,
    },
    /// There is no manifest of the run or an earlier one.
    #[error(
        "{location}: there is no manifest of attempt {attempt} or one before it; write the manifest last, then report"
    )]
    NoManifest {
        /// The address.
        location: String,
        /// The attempt that reports.
        attempt: u32,
    },
    /// The manifest that the report names does not exist.
    #[error("{location}: the manifest is not there; write it before it is reported")]
    NotThere {
        /// The manifest.
        location: String,
    },
    /// The manifest cannot be parsed.
    #[error("{location}: {why}")]
    Unreadable {
        /// The manifest.
        location: String,
        /// What is wrong, and what to write.
        why: String,
    },
    /// The manifest belongs to another job.
    #[error(
        "{location}: it is of `{job}`, not of {wanted}; give each job an address of its own, and write FOREBAY_JOB as `job`"
    )]
    Job {
        /// The manifest.
        location: String,
        /// The job in the manifest, shortened and escaped.
        job: String,
        /// The job that reports.
        wanted: String,
    },
    /// The manifest is of a later attempt, or does not agree with its name.
    #[error("{location}: it is of attempt {attempt} and sequence {sequence}; {why}")]
    Attempt {
        /// The manifest.
        location: String,
        /// The attempt in the manifest.
        attempt: u32,
        /// The sequence in the manifest.
        sequence: u64,
        /// What does not agree, and what to write.
        why: String,
    },
    /// A key leads out of the address.
    #[error(
        "{location}: file `{key}`: {why}; name files from the job's `checkpoint.uri` on, without `.`, `..` and empty parts"
    )]
    Key {
        /// The manifest.
        location: String,
        /// The key as written, shortened and escaped.
        key: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A file does not exist.
    #[error("{location}: {why}; write files first and the manifest last, and keep them while the manifest is there")]
    Missing {
        /// The file.
        location: String,
        /// What was found instead.
        why: &'static str,
    },
    /// A file has another size.
    #[error(
        "{location}: it has {found} bytes, not {stated}; write the manifest after its files, and files under new names"
    )]
    Size {
        /// The file.
        location: String,
        /// The size in the store, in bytes.
        found: u64,
        /// The size in the manifest, in bytes.
        stated: u64,
    },
    /// A file has another checksum.
    #[error(
        "{location}: its SHA-256 is {found}, not {stated}; write the manifest after its files, and files under new names"
    )]
    Checksum {
        /// The file.
        location: String,
        /// The checksum in the store.
        found: String,
        /// The checksum in the manifest.
        stated: String,
    },
    /// Neither the store nor the manifest has a checksum to compare.
    #[error("{location}: {why}")]
    Unverifiable {
        /// The file.
        location: String,
        /// What is missing, and what to do.
        why: String,
    },
}

impl CheckpointRefusal {
    /// Whether it only means that nothing has been saved so far.
    #[must_use]
    pub fn is_nothing_yet(&self) -> bool {
        matches!(self, CheckpointRefusal::NoManifest { .. })
    }
}
