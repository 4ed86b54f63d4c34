//! Problems of a configuration as values, and their text for operators.

use std::{fmt, ops::Range};

/// Bytes of the longest line that is shown.
const LINE_BYTES_MAX: usize = 4096;

/// One problem of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Key with its tables (`server.listen`), variable or flag. Empty for the file as a whole.
    pub key: String,
    /// Message that names the fault and the expected value.
    pub message: String,
    /// Advice on the fix.
    pub hint: Option<Box<str>>,
    /// Place in the file, if the value comes from the file.
    pub place: Option<FilePlace>,
    /// The file, if it is another one than the configuration.
    pub file: Option<Box<str>>,
}

impl ConfigProblem {
    /// Creates a problem without a hint and without a place.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            message: message.into(),
            ..Self::default()
        }
    }

    /// Creates a problem with one value, before its key and place are known.
    pub(super) fn of_value(message: impl Into<String>) -> Self {
        Self::new("", message)
    }

    /// Removes the value that the message repeats, since it may be a secret.
    pub(super) fn without_value(self) -> Self {
        // The hint goes too: it may repeat the value or name the word that is nearest to it.
        Self::of_value(self.message.split("; found").next().unwrap_or_default())
    }

    /// Adds a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into().into());
        self
    }

    /// Sets the place.
    #[must_use]
    pub fn with_place(mut self, place: Option<FilePlace>) -> Self {
        self.place = place;
        self
    }

    /// Removes the text of its line, which may contain a secret.
    #[must_use]
    pub fn without_line_text(mut self) -> Self {
        self.place = self.place.map(FilePlace::without_text);
        self
    }

    /// Returns its line in the file, counted from 1.
    pub fn line_number(&self) -> Option<usize> {
        self.place.as_ref().map(|place| place.line)
    }
}

/// Range within one line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePlace {
    /// Line, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// Width in characters, at least 1.
    pub width: usize,
    /// Text of the whole line. Empty if it must not be shown.
    pub text: Box<str>,
}

impl FilePlace {
    /// Finds the place of a byte range of `source`. Only the first line of the range counts.
    pub fn from_span(source: &str, span: &Range<usize>) -> Self {
        // A range that is not on character boundaries gives a rough place instead of a panic.
        let before = source.get(..span.start).unwrap_or(source);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let rest = source.get(line_start..).unwrap_or_default();
        let text = rest.lines().next().unwrap_or_default();
        let column = before.get(line_start..).unwrap_or_default().chars().count();
        let spanned = source.get(span.clone()).unwrap_or_default();
        let wanted = spanned.lines().next().unwrap_or_default().chars().count();
        // The carets must not reach beyond the end of the line.
        let room = text.chars().count().saturating_sub(column);
        Self {
            line: memchr::memchr_iter(b'\n', before.as_bytes()).count() + 1,
            column: column + 1,
            width: wanted.min(room).max(1),
            // One that no screen shows is of no use, and there may be a place for each value on it.
            text: if text.len() > LINE_BYTES_MAX {
                Box::default()
            } else {
                text.into()
            },
        }
    }

    /// Removes the text of its line.
    pub(super) fn without_text(mut self) -> Self {
        self.text = Box::default();
        self
    }

    /// Cuts the line after the range. Removes all text if a value precedes the range on its line.
    pub(super) fn cut_to_range(mut self) -> Self {
        let text: String = self.text.chars().take(self.column - 1 + self.width).collect();
        // An equals sign in front means an inline table, whose earlier values may be secrets.
        let before: String = text.chars().take(self.column - 1).collect();
        self.text = if before.contains('=') {
            Box::default()
        } else {
            text.into()
        };
        self
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}: ")?;
        }
        if let Some(place) = &self.place {
            write!(f, "line {}, column {}: ", place.line, place.column)?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        if let Some(place) = self.place.as_ref().filter(|place| !place.text.is_empty()) {
            let gutter = place.line.to_string().len();
            // A tab stays a tab, so that the carets are below the right characters.
            let indent = place
                .text
                .chars()
                .take(place.column - 1)
                .map(|c| if c == '\t' { '\t' } else { ' ' });
            let indent: String = indent.collect();
            write!(
                f,
                "\n{:gutter$} |\n{} | {}\n{:gutter$} | {indent}",
                "", place.line, place.text, ""
            )?;
            write!(f, "{}", "^".repeat(place.width))?;
        }
        Ok(())
    }
}

/// Error with every problem of a configuration: first those of the file by line, then those without a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Name of the file that was read, if there was one.
    pub file: Option<String>,
    /// Problems, at least one.
    pub problems: Vec<ConfigProblem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.problems.len();
        write!(f, "{count} configuration problem{}", if count == 1 { "" } else { "s" })?;
        if let Some(file) = &self.file {
            write!(f, " in {file}")?;
        }
        for problem in &self.problems {
            write!(f, "\n\n{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// Returns the word of `known` that a typing mistake may have turned into `word`.
pub(super) fn nearest_word<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    // All known words are in lower case with underscores, so these two mistakes cost no distance.
    let word = word.to_lowercase().replace('-', "_");
    // One mistake in three letters, but never more than three: beyond that a suggestion is a guess.
    let allowed = (word.chars().count() / 3).clamp(1, 3);
    let scored = known.into_iter().map(|known| (edit_distance(&word, known), known));
    scored
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// Counts the insertions, removals, replacements and swaps of neighbours between two words (edit distance).
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for (i, from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, to) in b.iter().enumerate() {
            let replaced = rows[i][j] + usize::from(from != to);
            let mut best = replaced.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i - 1] == *to && b[j - 1] == *from {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows.last().and_then(|row| row.last()).copied().unwrap_or_default()
}
