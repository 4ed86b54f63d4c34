//! The framer of Amazon's binary event streams (`application/vnd.amazon.eventstream`), in which Bedrock streams.
//!
//! A frame begins with its length, the length of its headers, and a checksum of both. Headers, payload and a checksum
//! of the whole follow. Numbers are big-endian (Amazon Transcribe, "Event stream encoding", 2026-11). No checksum is
//! tested: an answer is relayed as it comes, and its client tests them.

use std::ops::Range;

use crate::work;

/// Bytes of both lengths.
const LENGTHS_BYTES: usize = 8;
/// Bytes of a frame beside its headers and its payload: both lengths and both checksums.
const FIXED_BYTES: u64 = 16;
/// Bytes of the longest headers.
const HEADERS_BYTES_MAX: u64 = 128 * 1024;
/// Bytes of the longest frame. Amazon's SDKs allow a payload of 24 MiB.
const FRAME_BYTES_MAX: u64 = 24 * 1024 * 1024 + HEADERS_BYTES_MAX + FIXED_BYTES;

/// The framer of one stream of Amazon's frames.
#[derive(Clone, Debug, Default)]
pub struct AmazonFramer {
    /// Bytes pushed so far.
    at: u64,
    /// Offset at which the open frame began.
    frame_start: u64,
    /// Offset at which the open frame ends. `None` until both of its lengths have come.
    frame_end: Option<u64>,
    /// Both lengths of the open frame, as far as received.
    lengths: [u8; LENGTHS_BYTES],
    /// Set once a length was impossible.
    is_lost: bool,
}

impl AmazonFramer {
    /// Reads the next bytes, and calls `each` with the range of every frame that ends in them.
    ///
    /// Ranges are offsets from the beginning of the stream. After an impossible length no frame is found any more.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(Range<u64>)) {
        let mut rest = bytes;
        while !rest.is_empty() && !self.is_lost {
            work::count(1);
            let Some(end) = self.frame_end else {
                self.read_lengths(&mut rest);
                continue;
            };
            let left = usize::try_from(end.saturating_sub(self.at)).unwrap_or(usize::MAX);
            self.pass_bytes(left.min(rest.len()), &mut rest);
            if self.at == end {
                each(self.frame_start..end);
                (self.frame_start, self.frame_end) = (end, None);
            }
        }
    }

    /// Returns the number of bytes pushed so far, up to an impossible length.
    pub const fn pushed_bytes(&self) -> u64 {
        self.at
    }

    /// Returns the offset in the stream at which the open frame began.
    pub const fn frame_start(&self) -> u64 {
        self.frame_start
    }

    /// Returns `true` once a length was impossible, so that no later frame can be found.
    pub const fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Reads bytes of the lengths, and checks each length as soon as all of it has come.
    fn read_lengths(&mut self, rest: &mut &[u8]) {
        let known = usize::try_from(self.at.saturating_sub(self.frame_start)).unwrap_or(LENGTHS_BYTES);
        let unknown = self.lengths.get_mut(known..).unwrap_or_default();
        let taken = unknown.len().min(rest.len());
        for (slot, byte) in unknown.iter_mut().zip(*rest) {
            *slot = *byte;
        }
        self.pass_bytes(taken, rest);
        let known = known.saturating_add(taken);
        let [total, headers] = frame_lengths(self.lengths);
        // A wrong first length is known before the second one has come.
        let is_total_wrong = known >= 4 && !(FIXED_BYTES..=FRAME_BYTES_MAX).contains(&total);
        let headers_max = total.saturating_sub(FIXED_BYTES).min(HEADERS_BYTES_MAX);
        self.is_lost = is_total_wrong || (known == LENGTHS_BYTES && headers > headers_max);
        if known == LENGTHS_BYTES {
            self.frame_end = Some(self.frame_start.saturating_add(total));
        }
    }

    fn pass_bytes(&mut self, count: usize, rest: &mut &[u8]) {
        self.at = self.at.saturating_add(count as u64);
        *rest = rest.get(count..).unwrap_or_default();
    }
}

/// Splits the first bytes of a frame into its length and the length of its headers.
pub(super) fn frame_lengths(lengths: [u8; LENGTHS_BYTES]) -> [u64; 2] {
    let both = u64::from_be_bytes(lengths);
    [both >> 32, both & u64::from(u32::MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a frame with this many bytes of headers and of payload, all of them zero.
    fn frame(headers: u64, payload: u64) -> Vec<u8> {
        let total = FIXED_BYTES + headers + payload;
        let mut frame = lengths(total, headers);
        frame.resize(total.try_into().unwrap(), 0);
        frame
    }

    fn lengths(total: u64, headers: u64) -> Vec<u8> {
        (total << 32 | headers).to_be_bytes().to_vec()
    }

    /// Returns the end of each frame, and `true` after an impossible length.
    fn framed(chunks: &[&[u8]]) -> (Vec<u64>, bool) {
        let mut framer = AmazonFramer::default();
        let mut ends = Vec::new();
        for chunk in chunks {
            framer.push(chunk, |frame| {
                assert_eq!(frame.start, ends.last().copied().unwrap_or_default());
                ends.push(frame.end);
            });
        }
        (ends, framer.is_lost())
    }

    #[test]
    fn every_cut_gives_the_same_frames() {
        let (whole, empty) = (frame(3, 5), frame(0, 0));
        for (bytes, ends, lost) in [
            (Vec::new(), &[][..], false),
            ([&*whole, &empty, &whole].concat(), &[24, 40, 64], false),
            ([&*whole, &whole[..23]].concat(), &[24], false),
            ([&*whole, &[0; 4], &whole].concat(), &[24], true),
            ([&*empty, &lengths(15, 0)[..4]].concat(), &[16], true),
            ([&*empty, &lengths(16, 1), &whole].concat(), &[16], true),
            (lengths(FRAME_BYTES_MAX, HEADERS_BYTES_MAX), &[], false),
            (lengths(FRAME_BYTES_MAX + 1, 0), &[], true),
            (lengths(FRAME_BYTES_MAX, HEADERS_BYTES_MAX + 1), &[], true),
            (b"data: {}\n\ndata: {}\n\n".to_vec(), &[], true),
        ] {
            for cut in 0..=bytes.len() {
                for second in cut..=bytes.len() {
                    let chunks = [&bytes[..cut], &bytes[cut..second], &bytes[second..]];
                    assert_eq!(
                        framed(&chunks),
                        (ends.to_vec(), lost),
                        "{bytes:?} cut at {cut}, {second}"
                    );
                }
            }
        }
    }
}
