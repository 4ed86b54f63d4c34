//! Content codings of request bodies, decoded into memory for inspection under a limit. Never forwards what it decodes.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use http::{HeaderMap, header::CONTENT_ENCODING};

use crate::wire::Unreadable;

/// Largest window of a zstd body, as RFC 8878 recommends: 8 MiB.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// How a body is coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// Not at all.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 1950.
    Deflate,
    /// RFC 8878.
    Zstd,
}

impl Coding {
    /// The coding that the headers name; none for lists and for codings that we do not decode.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(CONTENT_ENCODING).iter();
        let (first, second) = (values.next(), values.next());
        let Some(value) = first else {
            return Some(Self::Identity);
        };
        let name = value.as_bytes().trim_ascii().to_ascii_lowercase();
        match (name.as_slice(), second) {
            (b"" | b"identity", None) => Some(Self::Identity),
            (b"gzip" | b"x-gzip", None) => Some(Self::Gzip),
            (b"deflate", None) => Some(Self::Deflate),
            (b"zstd", None) => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The plain bytes, at most `limit` of them. Identity gives the same handle.
    pub(super) fn decode(self, body: &Bytes, limit: usize) -> Result<Bytes, Unreadable> {
        match self {
            Self::Identity => Ok(body.clone()),
            Self::Gzip => read(MultiGzDecoder::new(body.as_ref()), limit),
            Self::Deflate => {
                let mut decoder = ZlibDecoder::new(body.as_ref());
                let plain = read(&mut decoder, limit)?;
                // Bytes behind the stream are not part of any coding.
                if decoder.total_in() == body.len() as u64 {
                    Ok(plain)
                } else {
                    Err(Unreadable::Coding)
                }
            }
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::new(body.as_ref()).map_err(|_| Unreadable::Coding)?;
                decoder
                    .window_log_max(ZSTD_WINDOW_LOG_MAX)
                    .map_err(|_| Unreadable::Coding)?;
                read(decoder, limit)
            }
        }
    }
}

fn read(decoder: impl Read, limit: usize) -> Result<Bytes, Unreadable> {
    let mut plain = Vec::new();
    let read = decoder.take((limit as u64).saturating_add(1)).read_to_end(&mut plain);
    match read {
        Ok(_) if plain.len() > limit => Err(Unreadable::TooLarge),
        Ok(_) => Ok(Bytes::from(plain)),
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => Err(Unreadable::TooLarge),
        Err(_) => Err(Unreadable::Coding),
    }
}
