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
#![expect(
    clippy::inline_always,
    reason = "all of the walk is compiled for each kind of processor"
)]

use fearless_simd::{Level, Simd, dispatch, prelude::*, u8x32, u8x64};

use crate::{
    wire::{
        Unreadable,
        json::blocks::{BLOCK, block_bytes, byte_mask, escaped_bytes, load_block},
    },
    work,
};

/// Number of bytes that are tried first in a string. Most keys, types and ids end within them.
const PROBE: usize = 32;

/// Checks that `body` is one JSON value: RFC 8259, UTF-8, with white space around it.
pub fn validate(body: &[u8]) -> Result<(), Unreadable> {
    work::count_bytes(body.len());
    // UTF-8 is checked at once, so that the walk may treat all bytes from 0x80 on alike.
    let valid = simdutf8::basic::from_utf8(body).is_ok()
        && dispatch!(Level::new(), simd => Validator::new(simd, body).run()).is_some();
    if valid { Ok(()) } else { Err(Unreadable::NotJson) }
}

/// The walk over the text. Its steps return `None` if the text is not JSON.
struct Validator<'a, S> {
    simd: S,
    body: &'a [u8],
    at: usize,
    /// The open containers.
    open: Nesting,
}

impl<'a, S: Simd> Validator<'a, S> {
    #[inline(always)]
    fn new(simd: S, body: &'a [u8]) -> Self {
        Self {
            simd,
            body,
            at: 0,
            open: Nesting::new(),
        }
    }

    #[inline(always)]
    fn run(mut self) -> Option<()> {
        loop {
            work::count(1);
            match self.next_token()? {
                b'"' => self.skip_string()?,
                b'{' => {
                    if self.peek_token()? != b'}' {
                        self.open.push(true);
                        self.read_key()?;
                        continue;
                    }
                    self.at += 1;
                }
                b'[' => {
                    if self.peek_token()? != b']' {
                        self.open.push(false);
                        continue;
                    }
                    self.at += 1;
                }
                first => self.skip_scalar(first)?,
            }
            if self.end_value()? {
                return Some(());
            }
        }
    }

    /// Passes what is after a value, up to the next one. Returns `true` at the end of the text.
    #[inline(always)]
    fn end_value(&mut self) -> Option<bool> {
        loop {
            work::count(1);
            let Some(in_object) = self.open.innermost_is_object() else {
                return self.peek_token().is_none().then_some(true);
            };
            match self.next_token()? {
                b',' => {
                    if in_object {
                        self.read_key()?;
                    }
                    return Some(false);
                }
                close @ (b'}' | b']') if in_object == (close == b'}') => self.open.pop(),
                _ => return None,
            }
        }
    }

    /// Passes a key and its colon.
    #[inline(always)]
    fn read_key(&mut self) -> Option<()> {
        if self.next_token()? != b'"' {
            return None;
        }
        self.skip_string()?;
        (self.next_token()? == b':').then_some(())
    }

    /// Passes the rest of a number or a word whose first byte is passed.
    #[inline(always)]
    fn skip_scalar(&mut self, first: u8) -> Option<()> {
        match first {
            b't' => self.skip_word(b"rue"),
            b'f' => self.skip_word(b"alse"),
            b'n' => self.skip_word(b"ull"),
            b'-' => {
                let first = self.peek()?;
                self.at += 1;
                self.skip_number(first)
            }
            _ => self.skip_number(first),
        }
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

    #[inline(always)]
    fn skip_word(&mut self, word: &[u8]) -> Option<()> {
        let found = self.body.get(self.at..)?.starts_with(word);
        self.at += word.len();
        found.then_some(())
    }

    /// Passes the rest of a string whose first quote is passed.
    #[inline(always)]
    fn skip_string(&mut self) -> Option<()> {
        work::count(1);
        if let Some(probe) = self.body.get(self.at..).and_then(<[u8]>::first_chunk::<PROBE>) {
            let bytes = u8x32::load_array_ref(self.simd, probe);
            let stops = (bytes.simd_eq(b'"') | bytes.simd_eq(b'\\') | bytes.simd_lt(b' ')).to_bitmask();
            let stop = stops.trailing_zeros() as usize;
            if probe.get(stop) == Some(&b'"') {
                self.at += stop + 1;
                return Some(());
            }
        }
        self.skip_long_string()
    }

    /// Passes the rest of a string, block by block.
    #[inline(always)]
    fn skip_long_string(&mut self) -> Option<()> {
        let mut tail = [b' '; BLOCK];
        let mut carry = 0;
        while self.at < self.body.len() {
            work::count(1);
            let block = block_bytes(self.simd, load_block(self.body, self.at, &mut tail));
            let backslashes = byte_mask(block, b'\\');
            let quotes = byte_mask(block, b'"');
            let escaped = escaped_bytes(backslashes, &mut carry);
            let ends = quotes & !escaped;
            // All bytes before the quote that ends the string, or the whole block.
            let inside = (ends & ends.wrapping_neg()).wrapping_sub(1);
            if control_characters(block) & inside != 0 {
                return None;
            }
            let escaped = escaped & inside;
            if escaped != 0 {
                // Nearly all escapes are `\"`, `\\`, `\n` and `\t`. The others are checked one by one.
                let letters = (block.simd_eq(b'n') | block.simd_eq(b't')).to_bitmask();
                let rare = escaped & !(quotes | backslashes | letters);
                if rare != 0 {
                    check_escapes(self.body, self.at, rare)?;
                }
            }
            if ends != 0 {
                self.at += ends.trailing_zeros() as usize + 1;
                return Some(());
            }
            self.at += BLOCK;
        }
        None
    }

    /// Passes white space and the byte after it, which is returned. `None` at the end.
    #[inline(always)]
    fn next_token(&mut self) -> Option<u8> {
        let token = self.peek_token()?;
        self.at += 1;
        Some(token)
    }

    /// Passes white space. Returns the byte after it, `None` at the end.
    #[inline(always)]
    fn peek_token(&mut self) -> Option<u8> {
        loop {
            let byte = self.peek()?;
            // One test decides about nearly all bytes.
            if byte > b' ' || !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            work::count(1);
            self.at += 1;
        }
    }

    #[inline(always)]
    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }
}

/// Checks the rarer escaped bytes of the block at `start`.
fn check_escapes(body: &[u8], start: usize, mut escaped: u64) -> Option<()> {
    while escaped != 0 {
        work::count(1);
        let at = start + escaped.trailing_zeros() as usize;
        match body.get(at)? {
            b'/' | b'b' | b'f' | b'r' => {}
            // The digits may lie in the next block, and are taken from the body.
            b'u' => {
                let digits = body.get(at + 1..at + 5)?;
                digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
            }
            _ => return None,
        }
        escaped &= escaped - 1;
    }
    Some(())
}

/// Marks the control characters, which a string must not contain unescaped.
#[inline(always)]
fn control_characters<S: Simd>(block: u8x64<S>) -> u64 {
    block.simd_lt(b' ').to_bitmask()
}

/// The open containers, one bit each, which is set for an object. The lowest bit is the innermost one.
#[derive(Debug)]
pub(crate) struct Nesting {
    /// The innermost containers, below a bit that is always set. Nothing but that bit if no container is open.
    bits: u64,
    /// The containers around them, 63 an entry.
    outer: Vec<u64>,
}

/// The bit above the innermost containers.
const TOP: u64 = 1;

impl Nesting {
    /// Creates it without an open container.
    pub(crate) const fn new() -> Self {
        Self {
            bits: TOP,
            outer: Vec::new(),
        }
    }

    /// Opens an object, or an array.
    #[inline(always)]
    pub(crate) fn push(&mut self, object: bool) {
        if self.bits >> (u64::BITS - 1) != 0 {
            self.outer.push(self.bits);
            self.bits = TOP;
        }
        self.bits = (self.bits << 1) | u64::from(object);
    }

    /// Closes the innermost container.
    #[inline(always)]
    pub(crate) fn pop(&mut self) {
        self.bits >>= 1;
        if self.bits == TOP {
            self.bits = self.outer.pop().unwrap_or(TOP);
        }
    }

    /// Returns `true` if the innermost container is an object. `None` if nothing is open.
    #[inline(always)]
    pub(crate) const fn innermost_is_object(&self) -> Option<bool> {
        if self.bits == TOP {
            return None;
        }
        Some(self.bits & 1 == 1)
    }
}
