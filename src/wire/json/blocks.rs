//! Blocks of 64 bytes as bitmasks with one bit a byte. Skipping and validating share them.
#![cfg_attr(
    not(test),
    expect(
        clippy::arithmetic_side_effects,
        reason = "offsets stay within one block of the body's end, far from the ends of their type"
    )
)]
#![expect(clippy::inline_always, reason = "a call per block costs more than the block")]

use wide::u8x16;

/// Number of bytes in a block.
pub(super) const BLOCK: usize = 64;
/// Number of bytes in a lane of a SIMD register.
pub(super) const LANE: usize = 16;

/// Returns the 64 bytes at `at`, with blanks behind the end of the body.
#[inline(always)]
pub(super) fn load_block<'b>(body: &'b [u8], at: usize, tail: &'b mut [u8; BLOCK]) -> &'b [u8; BLOCK] {
    let rest = body.get(at..).unwrap_or_default();
    if let Some(block) = rest.first_chunk() {
        return block;
    }
    // Only the last block is copied. Blanks are neither quotes nor brackets, so they change no mask.
    tail.fill(b' ');
    for (slot, byte) in tail.iter_mut().zip(rest) {
        *slot = *byte;
    }
    tail
}

/// Returns the mask of the bytes that equal `byte`.
#[inline(always)]
pub(super) fn byte_mask(block: &[u8; BLOCK], byte: u8) -> u64 {
    lane_mask(block, |bytes| equal_bytes(bytes, byte))
}

/// Returns the mask of the bytes for which `test` sets all bits.
#[inline(always)]
pub(super) fn lane_mask(block: &[u8; BLOCK], test: impl Fn(u8x16) -> u8x16) -> u64 {
    let (lanes, _) = block.as_chunks::<LANE>();
    let mut bits = 0;
    for (index, lane) in lanes.iter().enumerate() {
        bits |= u64::from(test(u8x16::new(*lane)).to_bitmask()) << (LANE * index);
    }
    bits
}

#[inline(always)]
pub(super) fn equal_bytes(bytes: u8x16, byte: u8) -> u8x16 {
    bytes.simd_eq(u8x16::splat(byte))
}

/// Returns the mask of the bytes that a backslash escapes.
///
/// `carry` is 1 if the backslashes at the end of the previous block escape the first byte of this one.
#[inline(always)]
pub(super) fn escaped_bytes(backslashes: u64, carry: &mut u64) -> u64 {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    // The usual case: then only the carry can escape anything.
    if backslashes == 0 {
        return std::mem::take(carry);
    }
    let backslashes = backslashes & !*carry;
    let follows = (backslashes << 1) | *carry;
    // The sum carries each run that begins at an odd place past its end, which flips the parity of that end.
    let (runs, over) = (backslashes & !EVEN & !follows).overflowing_add(backslashes);
    *carry = u64::from(over);
    (EVEN ^ (runs << 1)) & follows
}
