//! Names of calls across requests, made from the parts of a call that clients preserve.

use crate::{conversation::Text, digest::HashTexts as _, work};

/// The parts of a call from which its [`CallKey`] is made.
#[derive(Clone, Debug)]
pub struct CallIdentity<'a> {
    /// The decoded id.
    pub id: &'a [u8],
    /// The decoded name of the tool.
    pub tool: Text<'a>,
    /// Hash of the canonical input or arguments.
    pub input_hash: [u8; 32],
    /// Number of calls of this id before it.
    pub occurrence: usize,
    /// Its place among ids of the body with the same letters and digits.
    pub spelling: IdSpelling,
    /// Hash of the message before the call's own. `None` unless the id is reusable.
    pub before: Option<[u8; 32]>,
    /// Hash of the call's ordinal in its turn and of the previous turn's calls. `None` if the call has an id.
    pub place: Option<[u8; 32]>,
}

/// Place of an id among the ids of a body with the same letters and digits. Only the exact id tells such calls apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdSpelling {
    /// The only one.
    #[default]
    Alone,
    /// The first of several.
    First,
    /// A later one.
    Again,
}

/// The name of a call among the calls of its caller, as a hash.
///
/// It covers the letters and digits of the id, the tool, the canonical input, and the number of calls of the id before
/// it. A call without an id adds its place, and a reusable id adds the message before it. An id adds itself if an
/// earlier id of the body has the same letters and digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallKey([u8; 32]);

impl CallKey {
    /// Returns the key of a call in a body.
    pub fn of(call: &CallIdentity<'_>) -> Self {
        let mut hash = blake3::Hasher::new();
        let occurrence = (call.occurrence as u64).to_le_bytes();
        for part in [&id_letters(call.id)[..], &call.tool, &call.input_hash, &occurrence] {
            hash.add_text(part);
        }
        if let Some(place) = &call.place {
            hash.add_text(place);
        }
        // Counters such as `call_0` restart with each run, so the message before tells the runs apart.
        if let Some(before) = &call.before {
            hash.add_text(before);
        }
        // Only later spellings add themselves, so the first has the same key whatever follows it.
        if call.spelling == IdSpelling::Again {
            hash.add_text(call.id);
        }
        Self(hash.finalize().into())
    }

    /// Returns the key within a conversation.
    #[must_use]
    pub fn within_conversation(&self, conversation: &[u8; 32]) -> Self {
        Self(blake3::keyed_hash(conversation, &self.0).into())
    }

    /// Returns the hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Returns the letters and digits of an id. Some clients strip the characters between them (openclaw 2026.9.6).
pub fn id_letters(id: &[u8]) -> Vec<u8> {
    work::count(id.len());
    // Each byte is written, and only letters and digits move the end: there is no branch, nor a check for room.
    let (mut letters, mut end) = (id.to_vec(), 0_usize);
    for byte in id {
        if let Some(slot) = letters.get_mut(end) {
            *slot = *byte;
        }
        end = end.saturating_add(usize::from(byte.is_ascii_alphanumeric()));
    }
    letters.truncate(end);
    letters
}

/// Returns the hash that distinguishes calls with a reusable id: of the input and of the message before the turn's.
pub fn call_context_hash(input_hash: &[u8; 32], before: &[u8; 32]) -> [u8; 32] {
    blake3::keyed_hash(input_hash, before).into()
}
