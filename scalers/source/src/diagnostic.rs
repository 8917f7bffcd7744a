//! Results of the read-only checks behind `forebay doctor` and `forebay check`.
//!
//! A diagnostic never contains a secret. What could not be tried is reported as not tried, not guessed.

/// How serious a [`Diagnostic`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The check passed.
    Ok,
    /// It works, but an operator should know about it.
    Warning,
    /// It does not work.
    Error,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// What was checked, such as `kafka 127.0.0.1:9092: topic jobs`.
    pub subject: String,
    /// How serious the result is.
    pub severity: Severity,
    /// What was found; for a warning or an error it ends with what to do.
    pub message: String,
}

impl Diagnostic {
    /// A check that passed.
    #[must_use]
    pub fn ok(subject: impl Into<String>, message: impl Into<String>) -> Diagnostic {
        Diagnostic { subject: subject.into(), severity: Severity::Ok, message: message.into() }
    }

    /// Something that works and that an operator should know about.
    #[must_use]
    pub fn warning(subject: impl Into<String>, message: impl Into<String>) -> Diagnostic {
        Diagnostic { subject: subject.into(), severity: Severity::Warning, message: message.into() }
    }

    /// Something that does not work.
    #[must_use]
    pub fn error(subject: impl Into<String>, message: impl Into<String>) -> Diagnostic {
        Diagnostic { subject: subject.into(), severity: Severity::Error, message: message.into() }
    }
}
