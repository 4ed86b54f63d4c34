//! Finds the end of a JSON string or container without looking at what is in it: 64 bytes at a time, as bitmasks.
//!
//! Validates nothing, never recurses and never allocates. Quotes that a backslash escapes are told apart by the parity
//! of the run of backslashes before them; a block that lies in a string and holds no quote is left at once.

use wide::u8x16;

/// Bytes of a block: one bit each in a `u64`.
const BLOCK: usize = 64;
/// Bytes looked at first in a string: keys, types and ids end here.
const PROBE: usize = 16;

/// The end of the string whose first byte behind the quote is at `from`: the offset behind the closing quote, and
/// whether a backslash stands in it.
#[inline]
pub(super) fn string(body: &[u8], from: usize) -> Option<(usize, bool)> {
    if let Some(probe) = body.get(from..).and_then(<[u8]>::first_chunk::<PROBE>) {
        let bytes = u8x16::new(*probe);
        let quotes = equal(bytes, b'"').to_bitmask();
        if quotes != 0 {
            let end = quotes.trailing_zeros();
            let escapes = equal(bytes, b'\\').to_bitmask();
            if escapes == 0 || end < escapes.trailing_zeros() {
                return Some((from + end as usize + 1, false));
            }
        }
    }
    long_string(body, from)
}

fn long_string(body: &[u8], from: usize) -> Option<(usize, bool)> {
    let mut tail = [b' '; BLOCK];
    let (mut at, mut carry, mut escaped) = (from, 0, false);
    while at < body.len() {
        let block = block(body, at, &mut tail);
        let quotes = mask(block, b'"');
        let escapes = mask(block, b'\\');
        let ends = if escapes == 0 && carry == 0 {
            quotes
        } else {
            // A quote before the first backslash ends the string, whatever follows.
            if carry == 0 && quotes.trailing_zeros() < escapes.trailing_zeros() {
                return Some((at + quotes.trailing_zeros() as usize + 1, escaped));
            }
            escaped = true;
            quotes & !escaped_bytes(escapes, &mut carry)
        };
        if ends != 0 {
            return Some((at + ends.trailing_zeros() as usize + 1, escaped));
        }
        at += BLOCK;
    }
    None
}

/// The end of the object or array whose first byte behind the bracket is at `from`: the offset behind its last bracket.
/// Brackets and braces count alike: a container that mixes them is not JSON, and the full parse before an edit says so.
pub(super) fn container(body: &[u8], from: usize) -> Option<usize> {
    let mut tail = [b' '; BLOCK];
    // `inside` is all ones while a string is open at the border of two blocks.
    let (mut at, mut carry, mut inside, mut depth) = (from, 0, 0_u64, 1_u64);
    while at < body.len() {
        let block = block(body, at, &mut tail);
        let escapes = mask(block, b'\\');
        let quotes = mask(block, b'"') & !escaped_bytes(escapes, &mut carry);
        if quotes == 0 && inside != 0 {
            at += BLOCK;
            continue;
        }
        let strings = up_to_each(quotes) ^ inside;
        inside = if strings >> (BLOCK - 1) == 0 { 0 } else { u64::MAX };
        let opened = braces(block, b'{') & !strings;
        let closed = braces(block, b'}') & !strings;
        let count = u64::from(closed.count_ones());
        if depth > count {
            depth += u64::from(opened.count_ones());
            depth -= count;
        } else if let Some(end) = last_bracket(opened, closed, &mut depth) {
            return Some(at + end);
        }
        at += BLOCK;
    }
    None
}

/// Where in a block the depth reaches 0, as the offset behind that bracket; else the depth behind the block.
fn last_bracket(opened: u64, mut closed: u64, depth: &mut u64) -> Option<usize> {
    let before = *depth;
    let mut done = 0;
    while closed != 0 {
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

/// The 64 bytes at `at`, with blanks behind the end of the body.
#[inline(always)]
fn block<'b>(body: &'b [u8], at: usize, tail: &'b mut [u8; BLOCK]) -> &'b [u8; BLOCK] {
    let rest = body.get(at..).unwrap_or_default();
    if let Some(block) = rest.first_chunk() {
        return block;
    }
    tail.fill(b' ');
    for (slot, byte) in tail.iter_mut().zip(rest) {
        *slot = *byte;
    }
    tail
}

/// The bytes of a block that are `byte`.
#[inline(always)]
fn mask(block: &[u8; BLOCK], byte: u8) -> u64 {
    lanes(block, |bytes| equal(bytes, byte))
}

/// The bytes of a block that are the brace `byte`, or the bracket of the same side: they differ in one bit.
#[inline(always)]
fn braces(block: &[u8; BLOCK], byte: u8) -> u64 {
    lanes(block, |bytes| equal(bytes | u8x16::splat(0x20), byte))
}

#[inline(always)]
fn lanes(block: &[u8; BLOCK], test: impl Fn(u8x16) -> u8x16) -> u64 {
    let (lanes, _) = block.as_chunks::<16>();
    let mut bits = 0;
    for (index, lane) in lanes.iter().enumerate() {
        bits |= u64::from(test(u8x16::new(*lane)).to_bitmask()) << (16 * index);
    }
    bits
}

#[inline(always)]
fn equal(bytes: u8x16, byte: u8) -> u8x16 {
    bytes.simd_eq(u8x16::splat(byte))
}

/// The bytes that a backslash escapes. `carry` is 1 where a run of backslashes at the end of the block before escapes
/// the first byte of this one.
#[inline(always)]
fn escaped_bytes(backslashes: u64, carry: &mut u64) -> u64 {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    if backslashes == 0 {
        return std::mem::take(carry);
    }
    let backslashes = backslashes & !*carry;
    let follows = (backslashes << 1) | *carry;
    // A run that begins at an odd place is lengthened by the sum, so that its end falls on the other parity.
    let (runs, over) = (backslashes & !EVEN & !follows).overflowing_add(backslashes);
    *carry = u64::from(over);
    (EVEN ^ (runs << 1)) & follows
}

/// For each bit whether an odd number of bits stands at or below it: from the opening quote up to the closing one.
#[inline(always)]
fn up_to_each(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte by byte, as a reader would.
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
            // Backslashes stand in strings only: elsewhere the text is no JSON, and the full parse says so.
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
            assert_eq!(container(&body, 0), slow_container(&body, 0), "{}", shown());
            let from = next(body.len() + 1);
            assert_eq!(string(&body, from), slow_string(&body, from), "{}", shown());
        }
    }
}
