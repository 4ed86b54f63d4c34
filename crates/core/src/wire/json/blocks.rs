//! Blocks of 64 bytes as bitmasks with one bit a byte. Skipping and validating share them.
#![expect(clippy::inline_always, reason = "a call per block costs more than the block")]

use fearless_simd::{Simd, prelude::*, u8x64};

/// Number of bytes in a block.
pub(super) const BLOCK: usize = 64;

/// Returns the 64 bytes at `at`, with blanks after the end of the body.
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

/// Loads a block into registers.
#[inline(always)]
pub(super) fn block_bytes<S: Simd>(simd: S, block: &[u8; BLOCK]) -> u8x64<S> {
    u8x64::load_array_ref(simd, block)
}

/// Returns the mask of the bytes that equal `byte`.
#[inline(always)]
pub(super) fn byte_mask<S: Simd>(bytes: u8x64<S>, byte: u8) -> u64 {
    bytes.simd_eq(byte).to_bitmask()
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
