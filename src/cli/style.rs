//! Colours of output on terminals.

use std::io::{self, IsTerminal as _};

use crate::config::process_environment;

/// Colours and other styles, by their codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextStyle {
    /// Headings.
    Bold,
    /// Less important text.
    Dim,
    /// Faults, and what a diff removes.
    Red,
    /// Good ends, and what a diff adds.
    Green,
    /// Places.
    Cyan,
}

impl TextStyle {
    const fn code(self) -> &'static str {
        match self {
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Red => "31",
            Self::Green => "32",
            Self::Cyan => "36",
        }
    }
}

/// Paints texts, or leaves them as they are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Painter {
    is_terminal: bool,
    has_colours: bool,
}

impl Painter {
    /// Creates a painter for standard output: with colours on a terminal, unless `NO_COLOR` is set.
    pub(super) fn of_stdout() -> Self {
        let is_terminal = io::stdout().is_terminal();
        let is_plain =
            process_environment("NO_COLOR").is_some() || process_environment("TERM").as_deref() == Some("dumb");
        Self {
            is_terminal,
            has_colours: is_terminal && !is_plain,
        }
    }

    /// Returns `true` if a person reads the output.
    pub(super) const fn is_for_people(self) -> bool {
        self.is_terminal
    }

    /// Returns the text in a style.
    pub(super) fn paint(self, style: TextStyle, text: &str) -> String {
        if self.has_colours {
            format!("\x1b[{}m{text}\x1b[0m", style.code())
        } else {
            text.to_owned()
        }
    }
}
