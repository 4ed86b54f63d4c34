//! The scanner against its oracle: the same spans, roles, kinds and ids, on every case and on random documents.

use std::fs;

use antiphon::wire::{Format, Wire};

use crate::{
    cases,
    support::{bodies, oracle},
};

/// Documents per run; `CASES=` takes another number.
fn documents() -> u64 {
    std::env::var("CASES")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(40_000)
}

/// Compares both readings; tells how many parts both have seen, if both have read the body.
fn compare(body: &[u8], format: Format, name: &str) -> Option<usize> {
    let wire = if format == Format::Anthropic {
        Wire::ANTHROPIC
    } else {
        Wire::OPENAI_CHAT
    };
    let wanted = oracle::read(body, format);
    let read = wire.read(body);
    match (wanted, read) {
        (Some(wanted), Ok(read)) => {
            let told = oracle::told(&read);
            assert_eq!(told, wanted, "{name}: {}", String::from_utf8_lossy(body));
            Some(told.iter().map(|(.., parts)| parts.len()).sum())
        }
        (Some(_), Err(why)) => panic!(
            "{name}: the oracle reads it, the scanner says {why}: {}",
            String::from_utf8_lossy(body)
        ),
        // What is no JSON may be read all the same: the full parse before an edit refuses it.
        (None, Ok(_)) if antiphon::wire::json::validate(body).is_err() => None,
        (None, Ok(_)) => panic!(
            "{name}: the oracle refuses it, the scanner reads it: {}",
            String::from_utf8_lossy(body)
        ),
        (None, Err(_)) => None,
    }
}

#[test]
fn every_case_is_read_as_the_oracle_reads_it() {
    for (_, folder) in cases::folders() {
        for file in ["request.json", "repaired.json"] {
            let Ok(body) = fs::read(folder.join(file)) else {
                continue;
            };
            for format in Format::ALL {
                compare(&body, format, &folder.display().to_string());
            }
        }
    }
}

#[test]
fn generated_bodies_are_read_as_the_oracle_reads_them() {
    for seed in 0..documents() / 16 {
        let (_, wire) = Wire::NAMES[usize::try_from(seed).unwrap() % Wire::NAMES.len()];
        let (healthy, mangled) = (bodies::healthy(seed, wire), bodies::mangle(seed, wire).0);
        for body in [healthy.bytes(), mangled.bytes()] {
            for format in Format::ALL {
                compare(&body, format, &format!("SEED={seed} {wire}"));
            }
        }
    }
}

#[test]
fn random_documents_are_read_as_the_oracle_reads_them() {
    let (mut read, mut parts) = (0, 0);
    for seed in 0..documents() {
        let body = Document::new(seed).body();
        for format in Format::ALL {
            let seen = compare(body.as_bytes(), format, &format!("SEED={seed}"));
            read += u64::from(seen.is_some());
            parts += seen.unwrap_or_default();
        }
    }
    println!("{read} of {} readings have {parts} parts", 2 * documents());
    assert!(
        read > documents() / 2 && parts > 1000,
        "too little was read to tell anything"
    );
}

/// The full parse says what `serde_json` says of raw values.
fn same_verdict(body: &[u8], name: &str) -> bool {
    let wanted = serde_json::from_slice::<&serde_json::value::RawValue>(body).is_ok();
    let told = antiphon::wire::json::validate(body).is_ok();
    assert_eq!(told, wanted, "{name}: {}", String::from_utf8_lossy(body));
    wanted
}

#[test]
fn the_full_parse_refuses_what_serde_json_refuses() {
    let rows: &[&[u8]] = &[
        b"",
        b" ",
        b"{",
        b"}",
        b"[",
        b"]",
        b"{}",
        b"[]",
        b" {} ",
        b"{}{}",
        b"[,]",
        b"[1,]",
        b"[1 2]",
        b"{\"a\"}",
        b"{\"a\":}",
        b"{\"a\":1,}",
        b"{,}",
        b"{\"a\" 1}",
        b"{1:2}",
        b"[}",
        b"{]",
        b"[1}",
        b"{\"a\":1]",
        b"[[]",
        b"nul",
        b"null",
        b"nulll",
        b"true",
        b"tru",
        b"false",
        b"falsee",
        b"0",
        b"00",
        b"01",
        b"-0",
        b"-",
        b"-a",
        b"+1",
        b"1.",
        b".1",
        b"1.5",
        b"1e5",
        b"1E+5",
        b"1e",
        b"1e+",
        b"1.e5",
        b"1e400",
        b"-1.5e-7",
        b"NaN",
        b"Infinity",
        b"\"",
        b"\"a\"",
        b"\"\\\"",
        b"\"\\\"\"",
        b"\"\\x\"",
        b"\"\\u12\"",
        b"\"\\u12g4\"",
        b"\"\\ud83d\"",
        b"\"\\u0000\"",
        b"\"\n\"",
        b"\"\x1f\"",
        b"\"\x7f\"",
        b"\"\xff\"",
        b"\"\xc3\xa9\"",
        b"\"\xed\xa0\x80\"",
        b"\xef\xbb\xbf{}",
        b"{}\x00",
        b"\x0b{}",
        b"[\"a\",\"b\"]x",
        b"'a'",
        b"{\"a\":1}//",
    ];
    let accepted = rows.iter().filter(|row| same_verdict(row, "row")).count();
    assert!((15..rows.len()).contains(&accepted), "{accepted} rows accepted");
    for row in rows {
        // The same behind text of every length, so that each falls on every place of a block.
        for length in 0..140 {
            let mut body = format!("[\"{}\\\\\",", "x".repeat(length)).into_bytes();
            body.extend_from_slice(row);
            body.push(b']');
            same_verdict(&body, "row in a list");
        }
    }
    for depth in [1, 63, 64, 65, 127, 128, 129, 100_000] {
        let mut body = "[{\"a\":".repeat(depth) + "1" + &"}]".repeat(depth);
        assert!(same_verdict(body.as_bytes(), "deep"));
        body.pop();
        assert!(!same_verdict(body.as_bytes(), "deep and cut"));
    }
}

#[test]
fn the_full_parse_agrees_with_serde_json_on_damaged_documents() {
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..documents() / 2 {
        let mut document = Document::new(seed);
        let mut body = Document::new(seed).body().into_bytes();
        for _ in 0..document.next(3) {
            let at = document.next(body.len());
            match document.next(4) {
                0 => body.truncate(at),
                1 => body[at] = b"\"\\{}[],:0x\n\x01 \xe9"[document.next(14)],
                2 => drop(body.remove(at)),
                _ => body.insert(at, b"\"\\{}[],:0-\t\x1f u"[document.next(14)]),
            }
            if body.is_empty() {
                break;
            }
        }
        if same_verdict(&body, &format!("SEED={seed}")) {
            accepted += 1
        } else {
            refused += 1
        }
    }
    assert!(
        accepted > documents() / 20 && refused > documents() / 20,
        "{accepted} accepted, {refused} refused"
    );
}

/// Random JSON around the keys that the readers look for: any type in any place, keys twice, escapes everywhere.
struct Document {
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
    fn new(seed: u64) -> Self {
        Self {
            state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x1234_5678,
            text: String::new(),
        }
    }

    fn next(&mut self, bound: usize) -> usize {
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

    fn body(mut self) -> String {
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
                    self.value(2)
                } else {
                    self.messages()
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
                self.value(1)
            } else {
                self.object(3)
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
        self.text.push_str(&format!("\"{key}\""));
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
                self.text.push_str(&format!("\"{word}\""));
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
