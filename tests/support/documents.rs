//! Random JSON documents for the scanner, seeded: any type at any place, repeated keys, escapes everywhere.

use std::fmt::Write as _;

/// A random JSON document around the keys that the readers look for.
pub struct Document {
    state: u64,
    text: String,
}

const KEYS: &[&str] = &[
    "role",
    "content",
    "type",
    "id",
    "tool_use_id",
    "tool_calls",
    "tool_call_id",
    "function",
    "name",
    "input",
    "arguments",
    "text",
    "is_error",
    "caller",
    "thread",
    "x",
    "cont\\u0065nt",
    "\\u0074ype",
    "r\\u006fle",
    "",
    "a\\\"b",
    "\\ud83d",
];
const WORDS: &[&str] = &[
    "user",
    "assistant",
    "tool",
    "system",
    "tool_use",
    "tool_result",
    "server_tool_use",
    "web_search_tool_result",
    "thinking",
    "compaction",
    "text",
    "continue",
    "call_1",
    "toolu_\\u0030",
    "\\\\",
    "\\\\\\\"",
    "{\\\"a\\\":[",
    "}]",
    "é",
    "\\ud83e\\udd9c",
    "\\udc00",
    "",
];

impl Document {
    /// Returns the generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self {
            state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x1234_5678,
            text: String::new(),
        }
    }

    /// Returns a number below `bound`.
    pub fn next(&mut self, bound: usize) -> usize {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).unwrap()
    }

    /// Writes one of several texts.
    fn one_of(&mut self, texts: &[&str]) {
        let chosen = texts[self.next(texts.len())];
        self.text.push_str(chosen);
    }

    /// Returns the document.
    pub fn body(mut self) -> String {
        self.space();
        self.open("{");
        let count = 1 + self.next(4);
        let history = self.next(count);
        for index in 0..count {
            self.comma(index);
            if index == history {
                let key = ["\"messages\"", "\"m\\u0065ssages\""][usize::from(self.next(9) == 0)];
                self.text.push_str(key);
                self.colon();
                if self.next(30) == 0 {
                    self.value(2);
                } else {
                    self.messages();
                }
            } else {
                self.member(3);
            }
        }
        self.open("}");
        if self.next(40) == 0 {
            self.one_of(&["x", "{}", ","]);
        }
        self.text
    }

    fn messages(&mut self) {
        self.open("[");
        for index in 0..self.next(5) {
            self.comma(index);
            if self.next(60) == 0 {
                self.value(1);
            } else {
                self.object(3);
            }
        }
        self.open("]");
    }

    fn object(&mut self, depth: usize) {
        self.open("{");
        for index in 0..self.next(6) {
            self.comma(index);
            self.member(depth);
        }
        self.open("}");
    }

    fn member(&mut self, depth: usize) {
        let key = KEYS[self.next(KEYS.len())];
        write!(self.text, "\"{key}\"").unwrap();
        self.colon();
        self.value(depth);
    }

    fn value(&mut self, depth: usize) {
        match self.next(if depth == 0 { 6 } else { 10 }) {
            0 => self.one_of(&["null", "true", "false"]),
            1 => self.one_of(&["0", "-1.5e7", "1e400", "123456789012345678901234567890"]),
            2..=5 => {
                let mut word = WORDS[self.next(WORDS.len())].to_owned();
                if self.next(12) == 0 {
                    word = word.repeat(1 + self.next(40));
                }
                write!(self.text, "\"{word}\"").unwrap();
            }
            6 | 7 => self.object(depth - 1),
            _ => {
                self.open("[");
                for index in 0..self.next(4) {
                    self.comma(index);
                    self.value(depth - 1);
                }
                self.open("]");
            }
        }
    }

    fn comma(&mut self, index: usize) {
        if index > 0 {
            self.space();
            self.text.push(',');
            self.space();
        }
    }

    fn colon(&mut self) {
        self.space();
        self.text.push(':');
        self.space();
    }

    fn open(&mut self, bracket: &str) {
        self.space();
        self.text.push_str(bracket);
        self.space();
    }

    fn space(&mut self) {
        if self.next(4) == 0 {
            self.one_of(&[" ", "\n", "\r\n\t", "  "]);
        }
    }
}
