//! What `forebay doctor` found out about one thing outside. Read-only probes make these.
//!
//! Never: a secret, or a guess: what could not be tried says so.

/// How it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// As it should be.
    Fine,
    /// It works, and somebody should know something.
    Warning,
    /// It does not work.
    Bad,
}

/// One thing that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was tried, such as `kafka 127.0.0.1:9092: topic jobs`.
    pub what: String,
    /// How it is.
    pub outcome: Outcome,
    /// What was seen; for anything but fine also what to do.
    pub said: String,
}

impl Finding {
    /// As it should be.
    #[must_use]
    pub fn fine(what: impl Into<String>, said: impl Into<String>) -> Finding {
        Finding { what: what.into(), outcome: Outcome::Fine, said: said.into() }
    }

    /// It works, but.
    #[must_use]
    pub fn warning(what: impl Into<String>, said: impl Into<String>) -> Finding {
        Finding { what: what.into(), outcome: Outcome::Warning, said: said.into() }
    }

    /// It does not work.
    #[must_use]
    pub fn bad(what: impl Into<String>, said: impl Into<String>) -> Finding {
        Finding { what: what.into(), outcome: Outcome::Bad, said: said.into() }
    }
}
