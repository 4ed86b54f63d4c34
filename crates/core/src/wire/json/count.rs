//! Counts of one byte in a text.

use fearless_simd::{Level, Simd, dispatch, i8x64, prelude::*};

use super::blocks::{BLOCK, block_bytes};
use crate::work;

/// Blocks whose counts fit into the signed byte of each place.
const BLOCKS_A_SUM: usize = i8::MAX as usize;

/// Returns the number of times that `byte` occurs in a text.
pub fn count_byte(text: &[u8], byte: u8) -> usize {
    work::count_bytes(text.len());
    dispatch!(Level::new(), simd => count_byte_with(simd, text, byte))
}

#[expect(clippy::inline_always, reason = "it is compiled for each kind of processor")]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "no place counts more than the blocks of one sum"
)]
#[inline(always)]
fn count_byte_with<S: Simd>(simd: S, text: &[u8], byte: u8) -> usize {
    let (blocks, rest) = text.as_chunks::<BLOCK>();
    let mut count: usize = rest.iter().map(|found| usize::from(*found == byte)).sum();
    for blocks in blocks.chunks(BLOCKS_A_SUM) {
        let mut sums = i8x64::splat(simd, 0);
        for block in blocks {
            // A byte that is equal is -1 in the mask.
            sums -= block_bytes(simd, block).simd_eq(byte).to_vector();
        }
        let sums = sums.as_slice().iter().map(|sum| usize::from(sum.unsigned_abs()));
        count = count.saturating_add(sums.sum());
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_a_slow_reader() {
        for length in (0..200).chain([64 * 127, 64 * 127 + 1, 64 * 400 + 3]) {
            let all = vec![b'{'; length];
            assert_eq!(count_byte(&all, b'{'), length);
            assert_eq!(count_byte(&all, b'}'), 0);
            let mixed: Vec<u8> = (0..length).map(|at| if at % 3 == 0 { b'{' } else { b'x' }).collect();
            assert_eq!(count_byte(&mixed, b'{'), length.div_ceil(3), "{length}");
        }
    }
}
