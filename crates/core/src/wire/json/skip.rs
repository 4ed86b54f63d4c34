//! Finds the end of a JSON string or container, 64 bytes at a time as bitmasks, without parsing the content.
//!
//! It validates nothing, never recurses and never allocates. The parity of the backslashes before a quote tells whether
//! the quote is escaped. A block inside a string without a quote is skipped at once.
#![cfg_attr(
    not(test),
    expect(
        clippy::arithmetic_side_effects,
        reason = "offsets stay within one block of the body's end, far from the ends of their type"
    )
)]
#![expect(clippy::inline_always, reason = "a call per block costs more than the block")]

use fearless_simd::{Level, Simd, dispatch, prelude::*, u8x16, u8x64};

use crate::{
    wire::json::blocks::{BLOCK, block_bytes, byte_mask, escaped_bytes, load_block},
    work,
};

/// Number of probes that are tried first in a string. Most keys, types and ids end within them.
const PROBES: usize = 3;
/// Number of bytes in a probe. Any processor has registers of this size, so it is inlined.
const PROBE: usize = 16;

/// Returns the offset after the closing quote of a string, and `true` if the string contains a backslash.
///
/// `from` is the offset after the opening quote. `None` if the string does not end.
#[inline]
pub(super) fn string_end_and_escape(body: &[u8], from: usize) -> Option<(usize, bool)> {
    if let Some(end) = short_string_end(body, from) {
        return Some((end, false));
    }
    let end = long_string_end(body, from, 0)?;
    let inside = body.get(from..end).unwrap_or_default();
    work::count_bytes(inside.len());
    Some((end, memchr::memchr(b'\\', inside).is_some()))
}

/// Returns the offset after the closing quote of a string, as [`string_end_and_escape`] does.
#[inline]
pub(super) fn string_end(body: &[u8], from: usize) -> Option<usize> {
    short_string_end(body, from).or_else(|| long_string_end(body, from, 0))
}

/// Returns the end of a string within the first probes. `None` if it is longer or has a backslash before its end.
#[inline]
fn short_string_end(body: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    for _ in 0..PROBES {
        work::count(1);
        let probe = body.get(at..)?.first_chunk::<PROBE>()?;
        let stops = dispatch!(Level::baseline(), simd => {
            let bytes = u8x16::load_array_ref(simd, probe);
            (bytes.simd_eq(b'"') | bytes.simd_eq(b'\\')).to_bitmask()
        });
        if stops != 0 {
            let stop = at + stops.trailing_zeros() as usize;
            return (body.get(stop) == Some(&b'"')).then_some(stop + 1);
        }
        at += PROBE;
    }
    None
}

/// Returns the end of a string that continues at `from`. `carry` is that of [`escaped_bytes`].
fn long_string_end(body: &[u8], from: usize, carry: u64) -> Option<usize> {
    dispatch!(Level::new(), simd => long_string_end_with(simd, body, from, carry))
}

#[inline(always)]
fn long_string_end_with<S: Simd>(simd: S, body: &[u8], from: usize, mut carry: u64) -> Option<usize> {
    let mut tail = [b' '; BLOCK];
    let mut at = from;
    while at < body.len() {
        work::count(1);
        let block = block_bytes(simd, load_block(body, at, &mut tail));
        let quotes = byte_mask(block, b'"');
        let backslashes = byte_mask(block, b'\\');
        // Without a quote, backslashes matter only if a run of them reaches the end of the block.
        if quotes == 0 && backslashes >> (BLOCK - 1) == 0 {
            carry = 0;
        } else {
            let ends = quotes & !escaped_bytes(backslashes, &mut carry);
            if ends != 0 {
                return Some(at + ends.trailing_zeros() as usize + 1);
            }
        }
        at += BLOCK;
    }
    None
}

/// Returns the offset after the last bracket of an object or array. `from` is the offset after its first bracket.
///
/// `None` also for an earlier backslash outside of strings, which is not JSON. Brackets and braces count alike: a
/// container that mixes them is not JSON either, and the full parse before an edit detects it.
pub(super) fn container_end(body: &[u8], from: usize) -> Option<usize> {
    dispatch!(Level::new(), simd => container_end_with(simd, body, from))
}

#[inline(always)]
fn container_end_with<S: Simd>(simd: S, body: &[u8], from: usize) -> Option<usize> {
    let mut tail = [b' '; BLOCK];
    // No block begins inside a string: a string that crosses the end of a block is skipped to its own end.
    let (mut at, mut depth) = (from, 1_u64);
    while at < body.len() {
        work::count(1);
        let block = block_bytes(simd, load_block(body, at, &mut tail));
        let mut carry = 0;
        let backslashes = byte_mask(block, b'\\');
        let quotes = byte_mask(block, b'"') & !escaped_bytes(backslashes, &mut carry);
        let (opening, closing) = (brace_mask(block, b'{'), brace_mask(block, b'}'));
        let ends_in_string = if opening | closing | backslashes == 0 {
            quotes.count_ones() % 2 == 1
        } else {
            let strings = prefix_parity(quotes);
            let stray = backslashes & !strings;
            // The bytes below the first stray backslash, or all.
            let sound = (stray & stray.wrapping_neg()).wrapping_sub(1) & !strings;
            let (opened, closed) = (opening & sound, closing & sound);
            // Without a closing bracket the container cannot end in this block.
            if closed == 0 {
                depth += u64::from(opened.count_ones());
            } else if let Some(end) = last_bracket(opened, closed, &mut depth) {
                return Some(at + end);
            }
            // It hides the quote after it, which a reader byte by byte sees.
            if stray != 0 {
                return None;
            }
            strings >> (BLOCK - 1) != 0
        };
        at += BLOCK;
        if ends_in_string {
            at = long_string_end_with(simd, body, at, carry)?;
        }
    }
    None
}

/// Returns the offset in a block after the bracket at which the depth reaches 0.
///
/// `None` if the container continues. Then `depth` is the depth after the block.
fn last_bracket(opened: u64, mut closed: u64, depth: &mut u64) -> Option<usize> {
    let before = *depth;
    let count = u64::from(closed.count_ones());
    if before > count {
        // The container is too deep to end in this block.
        *depth = before + u64::from(opened.count_ones()) - count;
        return None;
    }
    // The depth is 0 at the closing bracket up to which all opened brackets are closed.
    let mut done = 0;
    while closed != 0 {
        work::count(1);
        let lowest = closed & closed.wrapping_neg();
        done += 1;
        if before + u64::from((opened & (lowest - 1)).count_ones()) == done {
            return Some(lowest.trailing_zeros() as usize + 1);
        }
        closed &= closed - 1;
    }
    *depth = before + u64::from(opened.count_ones()) - done;
    None
}

/// Returns the mask of the brace `byte` and of the bracket of the same side, which differ in one bit.
#[inline(always)]
fn brace_mask<S: Simd>(block: u8x64<S>, byte: u8) -> u64 {
    byte_mask(block | 0x20, byte)
}

/// Sets each bit with an odd number of set bits at or below it: the bytes from an opening quote up to the closing one.
#[inline(always)]
fn prefix_parity(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds the end of a string byte by byte.
    fn slow_string(body: &[u8], from: usize) -> Option<(usize, bool)> {
        let (mut at, mut escaped) = (from, false);
        while at < body.len() {
            match body[at] {
                b'"' => return Some((at + 1, escaped)),
                b'\\' => {
                    escaped = true;
                    at += 2;
                }
                _ => at += 1,
            }
        }
        None
    }

    fn slow_container(body: &[u8], from: usize) -> Option<usize> {
        let (mut at, mut depth) = (from, 1);
        while at < body.len() {
            match body[at] {
                b'"' => {
                    at = slow_string(body, at + 1)?.0;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            at += 1;
            if depth == 0 {
                return Some(at);
            }
        }
        None
    }

    #[test]
    fn ends_are_where_a_slow_reader_finds_them() {
        let mut state = 0x2545_F491_4F6C_DD1D_u64;
        let mut next = |bound: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % bound as u64).unwrap()
        };
        for round in 0..20_000 {
            // Backslashes occur in strings only: elsewhere the text is not JSON.
            let mut body = Vec::new();
            for _ in 0..next(40) {
                if next(3) == 0 {
                    body.extend((0..next(12)).map(|_| b"{}[]:, 0"[next(8)]));
                    continue;
                }
                body.push(b'"');
                for _ in 0..next(1 + round % 150) {
                    match next(6) {
                        0 => body.extend([b'\\', b"\"\\n/"[next(4)]]),
                        1 => body.push(b"{}[],:"[next(6)]),
                        _ => body.push(b'x'),
                    }
                }
                body.push(b'"');
            }
            body.truncate(body.len() - next(body.len() / 4 + 1));
            let shown = || String::from_utf8_lossy(&body).into_owned();
            assert_eq!(container_end(&body, 0), slow_container(&body, 0), "{}", shown());
            let from = next(body.len() + 1);
            assert_eq!(
                string_end_and_escape(&body, from),
                slow_string(&body, from),
                "{}",
                shown()
            );
        }
    }

    #[test]
    fn no_container_has_a_backslash_outside_of_strings() {
        for fill in [0, 40, 60, 61, 62, 63, 64, 130] {
            let blanks = " ".repeat(fill);
            for inner in [r"\", r#"\"a""#, r#""a"\"#, r#""a\\"\"b""#, r#""a"\,"b""#] {
                let body = format!("{{{blanks}{inner}}}");
                assert_eq!(container_end(body.as_bytes(), 1), None, "{body}");
            }
            let body = format!(r#"{{{blanks}"a\\\"":"\\{blanks}\""}}"#);
            assert_eq!(container_end(body.as_bytes(), 1), Some(body.len()), "{body}");
            // A backslash behind the container is no part of it.
            let body = format!(r#"{{"a":{{{blanks}}}}}"#);
            let followed = format!(r#"{body}\n"}}"#);
            assert_eq!(container_end(followed.as_bytes(), 1), Some(body.len()), "{followed}");
        }
    }
}
