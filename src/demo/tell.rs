//! Output of the stories: plain lines in aligned columns, wrapped, in colour if the terminal supports it.

use std::io::{self, Write};

use crate::printable::printable_line;

/// Columns of a line.
const WIDTH: usize = 100;
/// Columns before the text of a story.
const MARGIN: usize = 3;
/// Columns of the side: `without:` or `with:`.
const SIDE: usize = 10;
/// Columns before the text of an outcome: margin, side, status.
const INDENT: usize = MARGIN + SIDE + 5;

const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "31";
const GREEN: &str = "32";

/// The writer of the stories. It flushes each line.
pub(super) struct Tell {
    out: Box<dyn Write + Send>,
    has_colours: bool,
}

impl Tell {
    /// Creates a writer to `out`.
    pub(super) fn to_writer(out: Box<dyn Write + Send>, has_colours: bool) -> Self {
        Self { out, has_colours }
    }

    /// Writes the title of a story, the thread that reported it, and the situation.
    pub(super) fn open_story(&mut self, title: &str, reported: &str, situation: &str) -> io::Result<()> {
        let reported = format!("({reported})");
        let fits = title.chars().count() + 1 + reported.chars().count() <= WIDTH;
        let gap = if fits {
            " ".to_owned()
        } else {
            format!("\n{:MARGIN$}", "")
        };
        let (title, reported) = (self.paint(BOLD, title), self.paint(DIM, &reported));
        self.write_line(&format!("\n{title}{gap}{reported}"))?;
        let lines = wrap_words(situation, WIDTH - MARGIN);
        lines.iter().try_for_each(|line| self.write_line(&format!("   {line}")))
    }

    /// Writes the outcome without Antiphon. `status` is empty if there is none.
    pub(super) fn without(&mut self, status: &str, words: &str) -> io::Result<()> {
        self.write_outcome(RED, "without:", status, words)
    }

    /// Writes the outcome with Antiphon.
    pub(super) fn with(&mut self, status: &str, words: &str) -> io::Result<()> {
        self.write_outcome(GREEN, "with:", status, words)
    }

    /// Writes more about the last outcome.
    pub(super) fn add_detail(&mut self, words: &str) -> io::Result<()> {
        for line in wrap_words(words, WIDTH - INDENT) {
            let line = self.paint(DIM, &line);
            self.write_line(&format!("{:INDENT$}{line}", ""))?;
        }
        Ok(())
    }

    /// Writes the lines of a diff.
    pub(super) fn show_diff(&mut self, lines: &[String]) -> io::Result<()> {
        // The line numbers of a body mean nothing, so the marks of a hunk have none.
        for line in lines.iter().filter(|line| !line.starts_with("@@")) {
            let (mark, text) = line.split_at_checked(1).unwrap_or((" ", line));
            let colour = match mark {
                "+" => GREEN,
                "-" => RED,
                _ => DIM,
            };
            let depth = text.len() - text.trim_start().len();
            for (at, row) in wrap_words(text, WIDTH - MARGIN - depth - 6).iter().enumerate() {
                let mark = if at == 0 { mark } else { " " };
                let more = if at == 0 { 0 } else { 4 };
                let row = self.paint(colour, &format!("{mark} {:1$}{row}", "", depth + more));
                self.write_line(&format!("{:MARGIN$}{row}", ""))?;
            }
        }
        Ok(())
    }

    fn write_outcome(&mut self, colour: &str, side: &str, status: &str, words: &str) -> io::Result<()> {
        for (at, line) in wrap_words(words, WIDTH - INDENT).iter().enumerate() {
            let head = if at == 0 {
                format!("{side:<SIDE$}{status:<5}")
            } else {
                " ".repeat(INDENT - MARGIN)
            };
            let head = self.paint(colour, &head);
            self.write_line(&format!("{:MARGIN$}{head}{line}", ""))?;
        }
        Ok(())
    }

    /// Writes a line as it is.
    pub(super) fn write_line(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.out, "{}", line.trim_end())?;
        self.out.flush()
    }

    /// Writes a highlighted line.
    pub(super) fn highlight_line(&mut self, line: &str) -> io::Result<()> {
        let line = self.paint(BOLD, line);
        self.write_line(&line)
    }

    /// Writes a line in green if `is_good`, else in red.
    pub(super) fn judge_line(&mut self, is_good: bool, line: &str) -> io::Result<()> {
        let line = self.paint(if is_good { GREEN } else { RED }, line);
        self.write_line(&line)
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        if self.has_colours && !text.trim().is_empty() {
            format!("\u{1b}[{colour}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Returns lines of at most `width` letters, broken at blanks, and in longer words after a comma. Control characters,
/// which could move the cursor, are escaped.
fn wrap_words(text: &str, width: usize) -> Vec<String> {
    let plain = printable_line(text);
    let mut lines = vec![String::new()];
    for word in plain.split_whitespace().flat_map(|word| split_word(word, width)) {
        let used = lines.last().map_or(0, |line| line.chars().count());
        if used > 0 && used + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

/// Splits a word that is longer than `width` letters, after the last comma that fits.
fn split_word(word: &str, width: usize) -> Vec<&str> {
    let (mut parts, mut rest) = (Vec::new(), word);
    while let Some((end, _)) = rest.char_indices().nth(width.max(1)) {
        let fitting = rest.get(..end).unwrap_or(rest);
        let cut = fitting.rfind(',').map_or(end, |comma| comma + 1);
        let (part, left) = rest.split_at(cut);
        parts.push(part);
        rest = left;
    }
    parts.push(rest);
    parts
}
