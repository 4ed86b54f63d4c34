//! Content codings of request bodies, decoded into memory for inspection, up to a limit.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use http::{HeaderMap, header::CONTENT_ENCODING};

use crate::wire::Unreadable;

/// Maximum window of a zstd body as a power of two: 8 MiB, as RFC 8878 recommends.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

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
    pub(super) fn decode_body(self, body: &Bytes, limit: usize) -> Result<Vec<u8>, Unreadable> {
        match self {
            Self::Identity => Ok(body.to_vec()),
            // A gzip file may consist of several members (RFC 1952, 2.2).
            Self::Gzip => read_limited(MultiGzDecoder::new(body.as_ref()), limit),
            Self::Deflate => {
                let mut decoder = ZlibDecoder::new(body.as_ref());
                let plain = read_limited(&mut decoder, limit)?;
                // Trailing bytes belong to no coding: the provider could read another body than the proxy.
                if decoder.total_in() == body.len() as u64 {
                    Ok(plain)
                } else {
                    Err(Unreadable::Coding)
                }
            }
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::new(body.as_ref()).map_err(|_| Unreadable::Coding)?;
                // The window is memory that `limit` does not bound.
                decoder
                    .window_log_max(ZSTD_WINDOW_LOG_MAX)
                    .map_err(|_| Unreadable::Coding)?;
                read_limited(decoder, limit)
            }
        }
    }
}

/// Reads a decoder to its end, or to just beyond `limit` bytes.
fn read_limited(decoder: impl Read, limit: usize) -> Result<Vec<u8>, Unreadable> {
    let mut plain = Vec::new();
    // One byte more than the limit shows that the body is too large. A small body may decode to gigabytes.
    let read = decoder.take((limit as u64).saturating_add(1)).read_to_end(&mut plain);
    match read {
        Ok(_) if plain.len() > limit => Err(Unreadable::TooLarge),
        Ok(_) => Ok(plain),
        // `read_to_end` reports a failed allocation as an error instead of aborting the process.
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => Err(Unreadable::TooLarge),
        Err(_) => Err(Unreadable::Coding),
    }
}
