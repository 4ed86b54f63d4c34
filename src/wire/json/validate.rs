//! The full parse, which accepts one JSON value just as `serde_json` accepts raw values. It builds nothing.
//!
//! Any depth is accepted, since nothing recurses: an open container is one bit. A lone surrogate and `1e400` pass.
#![cfg_attr(
    not(test),
    expect(
        clippy::arithmetic_side_effects,
        reason = "offsets stay within one block of the body's end, far from the ends of their type"
    )
)]

use wide::u8x16;

use crate::{
    wire::{
        Unreadable,
        json::{
            blocks::{BLOCK, LANE, byte_mask, equal_bytes, escaped_bytes, lane_mask, load_block},
            skip::PROBE_LANES,
        },
    },
    work,
};

/// Checks that `body` is one JSON value: RFC 8259, UTF-8, with white space around it.
pub fn validate(body: &[u8]) -> Result<(), Unreadable> {
    work::count_bytes(body.len());
    // UTF-8 is checked at once, so that the walk may treat all bytes from 0x80 on alike.
    let valid = std::str::from_utf8(body).is_ok()
        && Validator {
            body,
            at: 0,
            open: Nesting::default(),
        }
        .run()
        .is_some();
    if valid { Ok(()) } else { Err(Unreadable::NotJson) }
}

/// The walk over the text. Its steps return `None` if the text is not JSON.
struct Validator<'a> {
    body: &'a [u8],
    at: usize,
    /// The open containers.
    open: Nesting,
}

/// The expected next token.
#[derive(Clone, Copy)]
enum NextToken {
    /// A value.
    Value,
    /// A value or `]`, behind `[`.
    FirstElement,
    /// A key or `}`, behind `{`.
    FirstMember,
    /// A key, behind a comma.
    Member,
    /// A comma, the closing bracket or the end, behind a value.
    AfterValue,
}

impl Validator<'_> {
    fn run(mut self) -> Option<()> {
        let mut next = NextToken::Value;
        loop {
            work::count(1);
            self.skip_space();
            next = match (next, self.peek()) {
                (NextToken::FirstElement, Some(b']')) | (NextToken::FirstMember, Some(b'}')) => self.close_container(),
                (NextToken::Value | NextToken::FirstElement, Some(first)) => self.begin_value(first)?,
                (NextToken::FirstMember | NextToken::Member, Some(b'"')) => self.read_key()?,
                (NextToken::AfterValue, Some(b',')) => {
                    let in_object = self.open.innermost_is_object()?;
                    self.at += 1;
                    if in_object { NextToken::Member } else { NextToken::Value }
                }
                (NextToken::AfterValue, Some(close @ (b'}' | b']')))
                    if self.open.innermost_is_object() == Some(close == b'}') =>
                {
                    self.close_container()
                }
                (NextToken::AfterValue, None) => return self.open.innermost_is_object().is_none().then_some(()),
                _ => return None,
            };
        }
    }

    fn begin_value(&mut self, first: u8) -> Option<NextToken> {
        self.at += 1;
        match first {
            b'{' => {
                self.open.push(true);
                return Some(NextToken::FirstMember);
            }
            b'[' => {
                self.open.push(false);
                return Some(NextToken::FirstElement);
            }
            b'"' => self.skip_string()?,
            b't' => self.skip_word(b"rue")?,
            b'f' => self.skip_word(b"alse")?,
            b'n' => self.skip_word(b"ull")?,
            b'-' => {
                let first = self.peek()?;
                self.at += 1;
                self.skip_number(first)?;
            }
            _ => self.skip_number(first)?,
        }
        Some(NextToken::AfterValue)
    }

    fn read_key(&mut self) -> Option<NextToken> {
        self.at += 1;
        self.skip_string()?;
        self.skip_space();
        self.skip_word(b":")?;
        Some(NextToken::Value)
    }

    fn close_container(&mut self) -> NextToken {
        self.at += 1;
        self.open.pop();
        NextToken::AfterValue
    }

    /// Passes the rest of a number whose first digit is passed.
    fn skip_number(&mut self, first: u8) -> Option<()> {
        match first {
            // No digit may follow a leading zero: it is left, and does not fit as the next token.
            b'0' => {}
            b'1'..=b'9' => drop(self.skip_digits()),
            _ => return None,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.skip_digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.skip_digits()?;
        }
        Some(())
    }

    /// Passes digits. `None` if there is not one.
    fn skip_digits(&mut self) -> Option<()> {
        let rest = self.body.get(self.at..)?;
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        work::count(count);
        self.at += count;
        (count > 0).then_some(())
    }

    fn skip_word(&mut self, word: &[u8]) -> Option<()> {
        let found = self.body.get(self.at..)?.starts_with(word);
        self.at += word.len();
        found.then_some(())
    }

    /// Passes the rest of a string whose first quote is passed.
    fn skip_string(&mut self) -> Option<()> {
        // Most strings end within a few lanes, without an escape.
        for _ in 0..PROBE_LANES {
            work::count(1);
            let Some(lane) = self.body.get(self.at..).and_then(<[u8]>::first_chunk::<LANE>) else {
                break;
            };
            let bytes = u8x16::new(*lane);
            let stops = (equal_bytes(bytes, b'"') | equal_bytes(bytes, b'\\') | control_mask(bytes)).to_bitmask();
            if stops != 0 {
                let stop = stops.trailing_zeros() as usize;
                if lane.get(stop) == Some(&b'"') {
                    self.at += stop + 1;
                    return Some(());
                }
                break;
            }
            self.at += LANE;
        }
        let mut tail = [b' '; BLOCK];
        let mut carry = 0;
        while self.at < self.body.len() {
            work::count(1);
            let block = load_block(self.body, self.at, &mut tail);
            let backslashes = byte_mask(block, b'\\');
            let quotes = byte_mask(block, b'"');
            let escaped = escaped_bytes(backslashes, &mut carry);
            let ends = quotes & !escaped;
            // All bytes before the quote that ends the string, or the whole block.
            let inside = (ends & ends.wrapping_neg()).wrapping_sub(1);
            if lane_mask(block, control_mask) & inside != 0 {
                return None;
            }
            let escaped = escaped & inside;
            if escaped != 0 {
                // Nearly all escapes are `\"`, `\\`, `\n` and `\t`. The others are checked one by one.
                let common = quotes
                    | backslashes
                    | lane_mask(block, |bytes| equal_bytes(bytes, b'n') | equal_bytes(bytes, b't'));
                self.check_escapes(escaped & !common)?;
            }
            if ends != 0 {
                self.at += ends.trailing_zeros() as usize + 1;
                return Some(());
            }
            self.at += BLOCK;
        }
        None
    }

    /// Checks the rarer escaped bytes of the current block.
    fn check_escapes(&self, mut escaped: u64) -> Option<()> {
        while escaped != 0 {
            work::count(1);
            let at = self.at + escaped.trailing_zeros() as usize;
            match self.body.get(at)? {
                b'/' | b'b' | b'f' | b'r' => {}
                // The digits may lie in the next block, and are taken from the body.
                b'u' => {
                    let digits = self.body.get(at + 1..at + 5)?;
                    digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
                }
                _ => return None,
            }
            escaped &= escaped - 1;
        }
        Some(())
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.body.get(self.at) {
            work::count(1);
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }
}

/// Marks the control characters, which a string must not contain unescaped.
fn control_mask(bytes: u8x16) -> u8x16 {
    bytes.min(u8x16::splat(0x1F)).simd_eq(bytes)
}

/// The open containers, one bit each, which is set for an object. The lowest bit is the innermost one.
#[derive(Default)]
struct Nesting {
    /// Outer containers, 64 an entry.
    outer: Vec<u64>,
    /// The innermost containers, up to 64.
    bits: u64,
    depth: usize,
}

impl Nesting {
    fn push(&mut self, object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.outer.push(self.bits);
        }
        self.bits = (self.bits << 1) | u64::from(object);
        self.depth += 1;
    }

    fn pop(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.bits >>= 1;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.bits = self.outer.pop().unwrap_or_default();
        }
    }

    /// Returns `true` if the innermost container is an object. `None` if nothing is open.
    fn innermost_is_object(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.bits & 1 == 1)
    }
}
