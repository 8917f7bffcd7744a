//! The server as those commands ask it that go on until they are ended: through lost connections, with pauses that grow up to a bound.
//!
//! ```text
//! answer -> as it is         final no (400, 401, 403, 404 ...) -> the command ends
//! none, or "later", or a fault of the server -> said once on stderr -> a pause -> the command asks again from where it was
//! ```
//!
//! Never: goes on after an answer that is final, or where nobody has ever answered: a wrong address is no lost connection.

use super::Output;
use super::outcome::Failure;
use crate::api::client::ClientError;
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use std::time::Duration;

/// The longest first pause: a restart of the server is often over by then.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// No pause of our own is longer: whoever watches sees the server within half a minute of its return.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A server that says when to ask again is followed so far.
const LONGEST_ASKED: Duration = Duration::from_secs(60);

/// Pauses that double up to the longest, without an end. The upper half of each is drawn, so that those who lost one server do not return to it
/// together: backon's jitter adds up to the delay itself.
fn pauses() -> ExponentialBackoff {
    let builder = ExponentialBuilder::new().with_min_delay(FIRST_PAUSE / 2).with_max_delay(LONGEST_PAUSE / 2);
    builder.with_jitter().without_max_times().build()
}

/// What is known of the connection to a server that is asked again and again.
pub(super) struct Connection {
    out: Output,
    pauses: ExponentialBackoff,
    answered: bool,
    /// What was said last of its loss. `None`: it is there.
    lost: Option<String>,
}

impl Connection {
    pub(super) fn new(out: Output) -> Connection {
        Connection { out, pauses: pauses(), answered: false, lost: None }
    }

    /// Something came from the server, whatever became of the rest of its answer.
    pub(super) fn heard(&mut self) {
        self.answered = true;
        if self.lost.take().is_some() {
            self.pauses = pauses();
            eprintln!("{}", self.out.err.faint("connected again"));
        }
    }

    /// An answer. `None`: the connection was lost, that was said, and the pause is over: ask again.
    ///
    /// # Errors
    /// The server's no is final, or it has never answered.
    pub(super) fn answer<T>(&mut self, answer: Result<T, ClientError>) -> Result<Option<T>, Failure> {
        let error = match answer {
            Ok(found) => {
                self.heard();
                return Ok(Some(found));
            }
            Err(error) if !self.answered || is_final(&error) => return Err(error.into()),
            Err(error) => error,
        };
        let text = lost(&error);
        if self.lost.as_ref() != Some(&text) {
            eprintln!("{}", self.out.err.warn(&text));
            self.lost = Some(text);
        }
        // The pauses have no end.
        let own = self.pauses.next().unwrap_or(LONGEST_PAUSE);
        std::thread::sleep(error.retry_after().map_or(own, |asked| asked.min(LONGEST_ASKED).max(own)));
        Ok(None)
    }
}

/// Whether the same question gets the same no: it is wrong, or not allowed. A server that is busy, starting or broken may be another one soon.
fn is_final(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused { status, .. } if *status < 500 && *status != 408 && *status != 429)
}

/// That there is no answer any more, for whoever watches.
fn lost(error: &ClientError) -> String {
    let bound = LONGEST_PAUSE.as_secs();
    match error {
        ClientError::Unreachable { server, why } => {
            format!(
                "the connection to {server} is lost ({why}); trying again, at least every {bound} s; Ctrl-C ends it"
            )
        }
        ClientError::Refused { .. } => format!("{error}; trying again, at least every {bound} s; Ctrl-C ends it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::error::ErrorBody;
    use crate::cli::outcome::Exit;
    use crate::show::Paint;

    fn refused(status: u16) -> ClientError {
        let body = ErrorBody { code: "Code".into(), message: "no".into(), remedy: "mend it".into() };
        ClientError::Refused { status, retry_after: None, body }
    }

    fn gone() -> ClientError {
        ClientError::Unreachable { server: "http://f:1".into(), why: "refused".into() }
    }

    fn connection() -> Connection {
        Connection::new(Output { paint: Paint::PLAIN, err: Paint::PLAIN })
    }

    #[test]
    fn only_what_may_pass_is_asked_again() {
        for status in [400, 401, 403, 404, 409, 410, 422] {
            assert!(is_final(&refused(status)), "{status}");
        }
        for status in [408, 429, 500, 502, 503, 504] {
            assert!(!is_final(&refused(status)), "{status}");
        }
        assert!(!is_final(&gone()));
    }

    #[test]
    fn who_was_never_answered_has_a_wrong_address() {
        let exit = |answer: Result<Option<()>, Failure>| answer.map_err(|failure| failure.exit).unwrap_err();
        assert_eq!(exit(connection().answer(Err(gone()))), Exit::Outside);
        let mut heard = connection();
        assert!(matches!(heard.answer(Ok(1)), Ok(Some(1))));
        assert_eq!(exit(heard.answer(Err(refused(403)))), Exit::BadInput, "a final no ends it");
    }

    #[test]
    fn a_loss_is_said_with_its_cause_and_pauses_are_bounded() {
        let said = lost(&gone());
        assert!(said.starts_with("the connection to http://f:1 is lost (refused); trying again"), "{said}");
        for (nth, pause) in pauses().take(40).enumerate() {
            let step = (1_000_u128 << nth.min(10)).min(30_000);
            assert!((step / 2..=step).contains(&pause.as_millis()), "pause {nth} is {pause:?}");
        }
    }
}
