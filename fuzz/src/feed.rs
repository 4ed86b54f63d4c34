//! Choices drawn from bytes: what a fuzzer mutates, it steers.

/// Bytes that are used up by choices; behind their end every choice is the first one.
#[derive(Clone, Debug)]
pub struct Feed<'a> {
    bytes: &'a [u8],
}

impl<'a> Feed<'a> {
    /// Draws from `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Whether the bytes are used up.
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next byte; 0 behind the end.
    pub fn byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((first, rest)) => {
                self.bytes = rest;
                *first
            }
            None => 0,
        }
    }

    /// A number below `bound`, which is from 1 to 256.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound
    }

    /// True once in `times`; false behind the end.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    /// One of `items`.
    pub fn pick<'i, T>(&mut self, items: &'i [T]) -> &'i T {
        &items[self.below(items.len())]
    }

    /// Up to `count` bytes as they are.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(count.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }
}
