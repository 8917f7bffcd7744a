//! When to colour, and the few colours that help: bad, warn, good, faint, strong.
//!
//! Never: the only carrier of a meaning. Without colour every word is still there.

use owo_colors::OwoColorize;
use std::io::IsTerminal;

/// As asked for on the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum ColourChoice {
    /// In a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Whether one stream is coloured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Paint {
    on: bool,
}

impl ColourChoice {
    /// For what goes to stdout.
    #[must_use]
    pub fn stdout(self) -> Paint {
        self.for_stream(std::io::stdout().is_terminal())
    }

    /// For what goes to stderr.
    #[must_use]
    pub fn stderr(self) -> Paint {
        self.for_stream(std::io::stderr().is_terminal())
    }

    fn for_stream(self, terminal: bool) -> Paint {
        // https://no-color.org: set and not empty.
        let refused = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        let on = match self {
            ColourChoice::Always => true,
            ColourChoice::Never => false,
            ColourChoice::Auto => terminal && !refused && !dumb,
        };
        Paint { on }
    }
}

impl Paint {
    /// No colours.
    pub const PLAIN: Paint = Paint { on: false };

    /// Whether there are colours.
    #[must_use]
    pub fn is_on(self) -> bool {
        self.on
    }

    /// Something is wrong.
    #[must_use]
    pub fn bad(self, text: &str) -> String {
        if self.on { text.red().bold().to_string() } else { text.to_owned() }
    }

    /// Something wants a look.
    #[must_use]
    pub fn warn(self, text: &str) -> String {
        if self.on { text.yellow().to_string() } else { text.to_owned() }
    }

    /// Something is well.
    #[must_use]
    pub fn good(self, text: &str) -> String {
        if self.on { text.green().to_string() } else { text.to_owned() }
    }

    /// Not the point.
    #[must_use]
    pub fn faint(self, text: &str) -> String {
        if self.on { text.dimmed().to_string() } else { text.to_owned() }
    }

    /// The point.
    #[must_use]
    pub fn strong(self, text: &str) -> String {
        if self.on { text.bold().to_string() } else { text.to_owned() }
    }
}
