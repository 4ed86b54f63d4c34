//! Output of the stories: plain lines, wrapped, in colour if the terminal supports it.

use std::io::{self, Write};

/// Columns of a line.
const WIDTH: usize = 108;
/// Columns before the text of a verdict.
const INDENT: usize = 19;

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
    pub(super) fn to(out: Box<dyn Write + Send>, has_colours: bool) -> Self {
        Self { out, has_colours }
    }

    /// Writes the title of a story and the thread that reported it.
    pub(super) fn title(&mut self, name: &str, title: &str, reported: &str) -> io::Result<()> {
        self.heading(&format!("{name}  {title}"))?;
        let reported = self.paint(DIM, &format!("reported: {reported}"));
        self.line(&format!("    {reported}"))
    }

    /// Writes what happens.
    pub(super) fn says(&mut self, words: &str) -> io::Result<()> {
        wrapped(words, WIDTH - 4)
            .iter()
            .try_for_each(|line| self.line(&format!("    {line}")))
    }

    /// Writes the outcome without Antiphon.
    pub(super) fn without(&mut self, verdict: &str, words: &str) -> io::Result<()> {
        self.verdict(RED, "without", verdict, words)
    }

    /// Writes the outcome with Antiphon.
    pub(super) fn with(&mut self, verdict: &str, words: &str) -> io::Result<()> {
        self.verdict(GREEN, "with", verdict, words)
    }

    /// Writes more about the last verdict.
    pub(super) fn more(&mut self, words: &str) -> io::Result<()> {
        let indent = " ".repeat(INDENT);
        let lines = wrapped(words, WIDTH - INDENT);
        lines.iter().try_for_each(|line| {
            let line = self.paint(DIM, line);
            self.line(&format!("{indent}{line}"))
        })
    }

    fn verdict(&mut self, colour: &str, who: &str, verdict: &str, words: &str) -> io::Result<()> {
        for (at, line) in wrapped(words, WIDTH - INDENT).iter().enumerate() {
            let head = if at == 0 {
                format!("{who:<7}  {verdict:<4}")
            } else {
                String::new()
            };
            let head = self.paint(colour, &format!("{head:<13}"));
            self.line(&format!("    {head}  {line}"))?;
        }
        Ok(())
    }

    /// Writes a line as it is.
    pub(super) fn line(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.out, "{}", line.trim_end())?;
        self.out.flush()
    }

    /// Writes a highlighted line after an empty one.
    pub(super) fn heading(&mut self, line: &str) -> io::Result<()> {
        self.line("")?;
        self.headline(line)
    }

    /// Writes a highlighted line.
    pub(super) fn headline(&mut self, line: &str) -> io::Result<()> {
        let line = self.paint(BOLD, line);
        self.line(&line)
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        if self.has_colours {
            format!("\u{1b}[{colour}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Lines of at most `width` letters, broken at blanks where there are any. Control characters, which could move the
/// cursor, are shown as blanks.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let plain: String = text
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect();
    let mut lines = vec![String::new()];
    for word in plain.split_whitespace() {
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
