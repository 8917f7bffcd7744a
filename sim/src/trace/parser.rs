//! One CSV record out of bytes, as RFC 4180 has it; a carriage return before the line break stays, as a blank.
//! It never allocates beyond the record, and never looks at what the fields mean.

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Start,
    Plain,
    Quoted,
    Closed,
}

/// What was read of one record so far.
#[derive(Default)]
pub(super) struct Parser {
    state: State,
    pub(super) bytes: Vec<u8>,
    pub(super) ends: Vec<usize>,
    pub(super) line_breaks: u64,
    pub(super) stray_quote: bool,
    pub(super) done: bool,
}

impl Parser {
    /// Takes one byte; true when it ended the record.
    pub(super) fn take(&mut self, byte: u8) -> bool {
        if byte == b'\n' {
            self.line_breaks += 1;
        }
        match (self.state, byte) {
            (State::Quoted, b'"') => self.state = State::Closed,
            (State::Quoted, _) => self.bytes.push(byte),
            (State::Closed, b'"') => {
                self.bytes.push(byte);
                self.state = State::Quoted;
            }
            (_, b'\n') => self.done = true,
            (_, b',') => {
                self.ends.push(self.bytes.len());
                self.state = State::Start;
            }
            (State::Start, b'"') => self.state = State::Quoted,
            (State::Closed, b'\r' | b' ' | b'\t') => {}
            (State::Closed, _) => self.stray_quote = true,
            (State::Start | State::Plain, _) => {
                self.bytes.push(byte);
                self.state = State::Plain;
            }
        }
        self.done
    }

    /// A quoted field was opened and not closed.
    pub(super) fn is_open(&self) -> bool {
        self.state == State::Quoted
    }

    /// Nothing but blanks so far.
    pub(super) fn is_blank(&self) -> bool {
        self.ends.is_empty()
            && self.state != State::Quoted
            && self.state != State::Closed
            && self.bytes.trim_ascii().is_empty()
    }
}
