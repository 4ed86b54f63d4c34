//! The first fault of a JSON text and its place, as Python's decoder finds it.
//!
//! It follows `json/decoder.py` and `json/scanner.py` of `CPython` 3.12. vLLM relays these words to the client.

/// Deepest nesting before Python gives up.
const DEPTH_MAX: usize = 500;

/// The kind of value that a text contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopValue {
    /// An object.
    Object,
    /// An array, a string, a number or a literal.
    Other,
}

/// The first fault of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JsonFault {
    /// Python's words before the place.
    pub(super) words: &'static str,
    /// Index of the character, from 0.
    pub(super) at: usize,
}

impl JsonFault {
    /// Returns line and column of a character, both from 1.
    pub(super) fn line_and_column(text: &[char], at: usize) -> (usize, usize) {
        let before = &text[..at.min(text.len())];
        let line = before.iter().filter(|letter| **letter == '\n').count() + 1;
        let column = before.iter().rev().take_while(|letter| **letter != '\n').count() + 1;
        (line, column)
    }

    /// Returns a place as both Python's decoder and orjson write it.
    pub(super) fn place(text: &[char], at: usize) -> String {
        let (line, column) = Self::line_and_column(text, at);
        format!("line {line} column {column} (char {at})")
    }
}

/// Reads a whole text. Returns its kind, or its first fault.
pub(super) fn read_json(text: &[char]) -> Result<TopValue, JsonFault> {
    let mut reader = Reader { text, at: 0 };
    reader.skip_space();
    let top = if reader.peek() == Some('{') {
        TopValue::Object
    } else {
        TopValue::Other
    };
    reader.value(0)?;
    reader.skip_space();
    if reader.at < text.len() {
        return Err(reader.fault("Extra data"));
    }
    Ok(top)
}

/// A position in a text.
struct Reader<'a> {
    text: &'a [char],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn fault(&self, words: &'static str) -> JsonFault {
        JsonFault { words, at: self.at }
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t' | '\n' | '\r')) {
            self.at += 1;
        }
    }

    /// Skips a word if it comes next.
    fn skip_word(&mut self, word: &str) -> bool {
        let found = word
            .chars()
            .enumerate()
            .all(|(index, letter)| self.text.get(self.at + index) == Some(&letter));
        if found {
            self.at += word.chars().count();
        }
        found
    }

    fn value(&mut self, depth: usize) -> Result<(), JsonFault> {
        if depth > DEPTH_MAX {
            return Err(self.fault("maximum recursion depth exceeded"));
        }
        match self.peek() {
            Some('"') => self.string(),
            Some('{') => self.object(depth),
            Some('[') => self.array(depth),
            _ => {
                let literal = ["null", "true", "false", "NaN", "Infinity", "-Infinity"];
                if literal.iter().any(|word| self.skip_word(word)) || self.number() {
                    return Ok(());
                }
                Err(self.fault("Expecting value"))
            }
        }
    }

    fn digits(&mut self) -> bool {
        let start = self.at;
        while self.peek().is_some_and(|letter| letter.is_ascii_digit()) {
            self.at += 1;
        }
        self.at > start
    }

    /// Skips a number. A fraction or exponent without digits stays behind it, as with Python's pattern.
    fn number(&mut self) -> bool {
        let start = self.at;
        self.skip_word("-");
        if !self.skip_word("0") && !self.digits() {
            self.at = start;
            return false;
        }
        let whole = self.at;
        if !(self.skip_word(".") && self.digits()) {
            self.at = whole;
        }
        let mantissa = self.at;
        if matches!(self.peek(), Some('e' | 'E')) {
            self.at += 1;
            if !self.skip_word("+") {
                self.skip_word("-");
            }
            if !self.digits() {
                self.at = mantissa;
            }
        }
        true
    }

    fn string(&mut self) -> Result<(), JsonFault> {
        let open = self.at;
        let unterminated = JsonFault {
            words: "Unterminated string starting at",
            at: open,
        };
        self.at += 1;
        loop {
            match self.peek() {
                None => return Err(unterminated),
                Some('"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some('\\') => self.escape(unterminated.clone())?,
                Some(letter) if letter < ' ' => return Err(self.fault("Invalid control character at")),
                Some(_) => self.at += 1,
            }
        }
    }

    fn escape(&mut self, unterminated: JsonFault) -> Result<(), JsonFault> {
        match self.text.get(self.at + 1) {
            None => Err(unterminated),
            Some('u') => {
                let digits = self.text.get(self.at + 2..self.at + 6);
                if !digits.is_some_and(|four| four.iter().all(char::is_ascii_hexdigit)) {
                    self.at += 1;
                    return Err(self.fault("Invalid \\uXXXX escape"));
                }
                self.at += 6;
                Ok(())
            }
            Some('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => {
                self.at += 2;
                Ok(())
            }
            Some(_) => Err(self.fault("Invalid \\escape")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<(), JsonFault> {
        self.at += 1;
        self.skip_space();
        if self.skip_word("}") {
            return Ok(());
        }
        loop {
            if self.peek() != Some('"') {
                return Err(self.fault("Expecting property name enclosed in double quotes"));
            }
            self.string()?;
            self.skip_space();
            if !self.skip_word(":") {
                return Err(self.fault("Expecting ':' delimiter"));
            }
            self.skip_space();
            self.value(depth + 1)?;
            self.skip_space();
            if self.skip_word("}") {
                return Ok(());
            }
            if !self.skip_word(",") {
                return Err(self.fault("Expecting ',' delimiter"));
            }
            self.skip_space();
        }
    }

    fn array(&mut self, depth: usize) -> Result<(), JsonFault> {
        self.at += 1;
        self.skip_space();
        if self.skip_word("]") {
            return Ok(());
        }
        loop {
            self.value(depth + 1)?;
            self.skip_space();
            if self.skip_word("]") {
                return Ok(());
            }
            if !self.skip_word(",") {
                return Err(self.fault("Expecting ',' delimiter"));
            }
            self.skip_space();
        }
    }
}
