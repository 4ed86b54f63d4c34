//! Trials of a table with an error: how far each row reads it. They are for people who write rows.

use super::{
    read::LedCopy,
    table::{LedText, RefusalRow, RefusalTable},
};

/// A text at which rows are looked for, with the best match of each row.
#[derive(Clone, Debug)]
pub struct TextTrial<'t> {
    /// The text, without the leads before it.
    pub text: Vec<u8>,
    /// The rows of which the text has at least a byte, in the order of the table.
    pub rows: Vec<RowTrial<'t>>,
}

/// The match of a row with a text.
#[derive(Clone, Copy, Debug)]
pub struct RowTrial<'t> {
    /// The row.
    pub row: &'t RefusalRow,
    /// The way in which it matches.
    pub outcome: TrialOutcome,
}

/// The way in which a row matches a text. The later ones are nearer to a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrialOutcome {
    /// The text differs behind this many bytes.
    Differs {
        /// The bytes that match.
        after: usize,
    },
    /// The text matches, but this is not its end: the row must be the whole message.
    GoesOn {
        /// The bytes that match.
        after: usize,
    },
    /// The text matches, but the row counts with other statuses.
    OtherStatus,
    /// The row reads the text.
    Reads {
        /// The bytes of the row besides its variables. Of several rows the one with the most is read.
        literal_bytes: usize,
    },
}

impl RefusalTable {
    /// Returns how far each row reads an error of this status, for each text in it. `None` for any status.
    pub fn try_rows(&self, status: Option<u16>, body: &[u8]) -> Vec<TextTrial<'_>> {
        let texts = self.texts_of(body).into_iter();
        texts
            .map(|copy| TextTrial {
                rows: self
                    .rows()
                    .iter()
                    .filter_map(|row| self.try_row(row, status, &copy))
                    .collect(),
                text: copy.text,
            })
            .collect()
    }

    /// Returns the match of a row with a text. `None` if not even the first byte matches.
    fn try_row<'t>(&'t self, row: &'t RefusalRow, status: Option<u16>, copy: &LedCopy) -> Option<RowTrial<'t>> {
        let led = LedText {
            text: &copy.text,
            quote: copy.quote,
        };
        let counts = status.is_none_or(|status| row.statuses.contains(&status));
        let outcome = match self.match_row(row, led) {
            Some((literal_bytes, _)) if counts => TrialOutcome::Reads { literal_bytes },
            Some(_) => TrialOutcome::OtherStatus,
            None => {
                let outcomes = row.texts.iter().map(|text| {
                    match text.match_start(led.text, &self.place_names) {
                        // It matches, so that something behind it must be what this row does not read.
                        Some(found) => TrialOutcome::GoesOn {
                            after: led.text.len().saturating_sub(found.rest.len()),
                        },
                        None => TrialOutcome::Differs {
                            after: text.matched_bytes(led.text, &self.place_names),
                        },
                    }
                });
                outcomes.max()?
            }
        };
        let is_any = outcome != TrialOutcome::Differs { after: 0 };
        is_any.then_some(RowTrial { row, outcome })
    }
}
