//! Content codings of request bodies, decoded into memory for inspection, up to a limit.

use std::io::{self, Read};

use flate2::read::{MultiGzDecoder, ZlibDecoder};
use http::{HeaderMap, header::CONTENT_ENCODING};

use crate::wire::Unreadable;

/// Maximum window of a zstd body as a power of two: 8 MiB, as RFC 8878 recommends.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// Plain text that is decoded at once: 256 KiB, which takes a fraction of a millisecond.
const PIECE_BYTES: usize = 256 * 1024;

/// Content coding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentCoding {
    /// No coding.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 1950.
    Deflate,
    /// RFC 8878.
    Zstd,
}

impl ContentCoding {
    /// Returns the coding that the headers name. `None` for a list of codings, or one that the proxy cannot decode.
    pub(super) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(CONTENT_ENCODING).iter();
        let (first, second) = (values.next(), values.next());
        let Some(value) = first else {
            return Some(Self::Identity);
        };
        // Names of codings are case-insensitive (RFC 9110, 8.4.1).
        let name = value.as_bytes().trim_ascii().to_ascii_lowercase();
        match (name.as_slice(), second) {
            (b"" | b"identity", None) => Some(Self::Identity),
            (b"gzip" | b"x-gzip", None) => Some(Self::Gzip),
            (b"deflate", None) => Some(Self::Deflate),
            (b"zstd", None) => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Returns the longest plain text that a body of `len` bytes can have.
    pub(super) const fn longest_plain(self, len: usize) -> usize {
        match self {
            Self::Identity => len,
            // RFC 1951: a match of 258 bytes costs two bits at least.
            Self::Gzip | Self::Deflate => len.saturating_mul(1032),
            // RFC 8878: a block of 128 KiB takes 4 bytes at least.
            Self::Zstd => len.saturating_mul(32 * 1024),
        }
    }

    /// Decodes a body to at most `limit` bytes.
    pub(super) fn decode_body(self, body: &[u8], limit: usize) -> Result<Vec<u8>, Unreadable> {
        let mut decoding = Decoding::begin(self, body, limit)?;
        while decoding.decode_piece()? {}
        decoding.finish()
    }
}

/// A body that is being decoded, piece by piece: one of many megabytes takes longer than its turn on a thread.
pub(super) struct Decoding<'b> {
    decoder: Decoder<'b>,
    body_len: u64,
    plain: Vec<u8>,
    limit: usize,
}

/// A decoder over a body in memory.
enum Decoder<'b> {
    Identity(&'b [u8]),
    /// A gzip file may consist of several members (RFC 1952, 2.2).
    Gzip(MultiGzDecoder<&'b [u8]>),
    Deflate(ZlibDecoder<&'b [u8]>),
    Zstd(zstd::stream::read::Decoder<'static, &'b [u8]>),
}

impl<'b> Decoding<'b> {
    /// Begins to decode a body to at most `limit` bytes.
    pub(super) fn begin(coding: ContentCoding, body: &'b [u8], limit: usize) -> Result<Self, Unreadable> {
        let decoder = match coding {
            ContentCoding::Identity => Decoder::Identity(body),
            ContentCoding::Gzip => Decoder::Gzip(MultiGzDecoder::new(body)),
            ContentCoding::Deflate => Decoder::Deflate(ZlibDecoder::new(body)),
            ContentCoding::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(body);
                let mut decoder = decoder.map_err(|_| Unreadable::Coding)?;
                // The window is memory that `limit` does not bound.
                let is_bounded = decoder.window_log_max(ZSTD_WINDOW_LOG_MAX);
                is_bounded.map_err(|_| Unreadable::Coding)?;
                Decoder::Zstd(decoder)
            }
        };
        Ok(Self {
            decoder,
            body_len: body.len() as u64,
            plain: Vec::new(),
            limit,
        })
    }

    /// Decodes the next 256 KiB. Returns `false` at the end of the body.
    pub(super) fn decode_piece(&mut self) -> Result<bool, Unreadable> {
        // One byte more than the limit shows that the body is too large. A small body may decode to gigabytes.
        let left = self.limit.saturating_add(1).saturating_sub(self.plain.len());
        let piece = left.min(PIECE_BYTES);
        let plain = &mut self.plain;
        let read = match &mut self.decoder {
            Decoder::Identity(body) => read_piece(body, piece, plain),
            Decoder::Gzip(decoder) => read_piece(decoder, piece, plain),
            Decoder::Deflate(decoder) => read_piece(decoder, piece, plain),
            Decoder::Zstd(decoder) => read_piece(decoder, piece, plain),
        };
        match read {
            Ok(_) if self.plain.len() > self.limit => Err(Unreadable::TooLarge),
            Ok(read) => Ok(read == piece),
            // `read_to_end` reports a failed allocation as an error instead of aborting the process.
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => Err(Unreadable::TooLarge),
            Err(_) => Err(Unreadable::Coding),
        }
    }

    /// Returns the plain text, once [`Decoding::decode_piece`] has returned `false`.
    pub(super) fn finish(self) -> Result<Vec<u8>, Unreadable> {
        match self.decoder {
            // Trailing bytes belong to no coding: the provider could read another body than the proxy.
            Decoder::Deflate(decoder) if decoder.total_in() != self.body_len => Err(Unreadable::Coding),
            _ => Ok(self.plain),
        }
    }
}

/// Reads up to `bytes` of a decoder: fewer only at its end.
fn read_piece(decoder: &mut impl Read, bytes: usize, plain: &mut Vec<u8>) -> io::Result<usize> {
    decoder.take(bytes as u64).read_to_end(plain)
}
