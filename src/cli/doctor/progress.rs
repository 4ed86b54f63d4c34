//! A bar on a terminal while a large file is read.

use std::io::{self, IsTerminal as _, Read, Seek, SeekFrom, Stderr, Write};

use crate::sessions::SkipHoles;

/// Files above this size are read with a bar, in bytes.
const BAR_BYTES_MIN: u64 = 64 * 1024 * 1024;
/// Characters of a whole bar.
const BAR_CHARS: usize = 25;

/// A reader that draws how much of its file has passed. A seek to the beginning starts another pass.
pub(super) struct ProgressReader<R, W: Write = Stderr> {
    input: R,
    bytes: u64,
    bar: Option<ProgressBar<W>>,
}

/// The bar of one file.
struct ProgressBar<W: Write> {
    out: W,
    /// Words for the step, which stand before the bar.
    step: &'static str,
    pass: u32,
    /// Bytes of this pass.
    read: u64,
    /// The last percent that was drawn.
    drawn: u64,
}

impl<R> ProgressReader<R> {
    /// Creates a reader of a file of `bytes` for a step, such as `reading`. It draws on a terminal, if the file is large.
    pub(super) fn new(input: R, bytes: u64, step: &'static str) -> Self {
        let has_bar = bytes > BAR_BYTES_MIN && io::stderr().is_terminal();
        Self {
            input,
            bytes,
            bar: has_bar.then(|| ProgressBar::new(io::stderr(), step)),
        }
    }
}

impl<W: Write> ProgressBar<W> {
    fn new(out: W, step: &'static str) -> Self {
        Self {
            out,
            step,
            pass: 1,
            read: 0,
            drawn: 0,
        }
    }

    /// Adds bytes that have passed, of a file of `all`.
    fn add(&mut self, read: u64, all: u64) {
        self.read = self.read.saturating_add(read);
        let percent = self.read.saturating_mul(100).checked_div(all).unwrap_or(100).min(100);
        if percent > self.drawn {
            self.drawn = percent;
            let filled = usize::try_from(percent / 4).unwrap_or_default().min(BAR_CHARS);
            let pass = if self.pass > 1 {
                format!(", pass {}", self.pass)
            } else {
                String::new()
            };
            let bar = format!(
                "\r{}{pass} [{}{}] {percent} %\x1b[K",
                self.step,
                "#".repeat(filled),
                " ".repeat(BAR_CHARS.saturating_sub(filled))
            );
            // A closed standard error is no reason to stop.
            drop(self.out.write_all(bar.as_bytes()));
        }
    }

    fn begin_pass(&mut self) {
        if self.drawn > 0 {
            self.pass = self.pass.saturating_add(1);
        }
        (self.read, self.drawn) = (0, 0);
    }
}

impl<R: Read, W: Write> Read for ProgressReader<R, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        if let Some(bar) = &mut self.bar {
            bar.add(u64::try_from(read).unwrap_or(u64::MAX), self.bytes);
        }
        Ok(read)
    }
}

impl<R: SkipHoles, W: Write> SkipHoles for ProgressReader<R, W> {
    fn skip_hole(&mut self) -> io::Result<u64> {
        let passed = self.input.skip_hole()?;
        if let Some(bar) = &mut self.bar {
            bar.add(passed, self.bytes);
        }
        Ok(passed)
    }
}

impl<R: Seek, W: Write> Seek for ProgressReader<R, W> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        if let (SeekFrom::Start(0), Some(bar)) = (to, &mut self.bar) {
            bar.begin_pass();
        }
        self.input.seek(to)
    }
}

impl<W: Write> Drop for ProgressBar<W> {
    fn drop(&mut self) {
        // The line that follows must not begin behind the bar.
        drop(self.out.write_all(b"\r\x1b[K"));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn each_pass_is_drawn_from_its_begin_and_the_line_is_left_empty() {
        let mut out = Vec::new();
        let mut reader = ProgressReader {
            input: Cursor::new([0; 400]),
            bytes: 400,
            bar: Some(ProgressBar::new(&mut out, "planning")),
        };
        let mut part = [0; 200];
        // The end is looked at before the first pass.
        reader.seek(SeekFrom::End(-1)).unwrap();
        reader.read_exact(&mut [0]).unwrap();
        for _ in 0..2 {
            reader.rewind().unwrap();
            reader.read_exact(&mut part).unwrap();
            reader.seek(SeekFrom::Start(100)).unwrap();
            reader.read_exact(&mut part).unwrap();
            reader.read_exact(&mut part[..9]).unwrap();
        }
        drop(reader);
        let text = String::from_utf8(out).unwrap();
        let drawn: Vec<&str> = text.split('\r').collect();
        let half = format!("[{}{}] 50 %\x1b[K", "#".repeat(12), " ".repeat(13));
        let whole = format!("[{}] 100 %\x1b[K", "#".repeat(25));
        assert_eq!(
            drawn,
            [
                "",
                &format!("planning {half}"),
                &format!("planning {whole}"),
                &format!("planning, pass 2 {half}"),
                &format!("planning, pass 2 {whole}"),
                "\x1b[K"
            ]
        );
    }

    #[test]
    fn small_files_have_no_bar() {
        assert!(ProgressReader::new(io::empty(), BAR_BYTES_MIN, "reading").bar.is_none());
    }
}
