//! Bodies and texts that the invariant puts together.

use crate::{
    digest::digest_of,
    splice::Piece,
    wire::{Format, json},
    work,
};

/// The text of messages that stand for others.
const STAND_IN: &str = ".";

/// Writes a message of the user with a text that stands for any other.
pub(super) fn user_text(format: Format) -> String {
    text_of(&[], format.write_text_message(true, STAND_IN))
}

/// Writes a body with these messages alone.
pub(super) fn body_of<'m>(format: Format, messages: impl IntoIterator<Item = &'m [u8]>) -> Vec<u8> {
    let mut body = format!("{{{}:[", json::quote_string(format.history_key())).into_bytes();
    for (index, message) in messages.into_iter().enumerate() {
        work::count_bytes(message.len());
        body.extend_from_slice(if index == 0 { b"" } else { b"," });
        body.extend_from_slice(message);
    }
    body.extend_from_slice(b"]}");
    body
}

/// Joins pieces over `body` into one text.
pub(super) fn text_of(body: &[u8], pieces: Vec<Piece>) -> String {
    work::count(pieces.len());
    let text = |piece: Piece| match piece {
        Piece::Original(span) => String::from_utf8_lossy(span.of(body)).into_owned(),
        Piece::Constant(text) => text.to_owned(),
        Piece::Made(text) => text,
    };
    pieces.into_iter().map(text).collect()
}

/// Returns 64 bits of the hash of a list of texts.
pub(super) fn short_hash(texts: &[&[u8]]) -> u64 {
    let hash = digest_of(texts.iter().copied());
    hash.iter().take(8).fold(0, |bits, byte| (bits << 8) | u64::from(*byte))
}
