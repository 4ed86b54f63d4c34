//! Names of calls across requests, made from the parts of a call that clients preserve.

use memchr::memmem;

use crate::{conversation::Text, digest::HashTexts as _};

/// Shortest run of letters and digits that counts as random.
const CHANCE_MIN: usize = 9;
/// Longest tool name in bytes with which an id can be strong.
const TOOL_BYTES_MAX: usize = 512;

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
    // One allocation. A filtered iterator does not know its length, so `collect` would grow step by step.
    let mut letters = Vec::with_capacity(id.len());
    letters.extend(id.iter().copied().filter(u8::is_ascii_alphanumeric));
    letters
}

/// Returns `true` if an id names one call among all calls of a caller, because part of it looks random.
///
/// `call_0`, `functions.read:3` and `read_1763800000000_2` are reused. The ids of the providers, of vLLM and of Mistral
/// are not. Random text mixes letters and digits, which counters and tool names rarely do.
pub fn is_strong(id: &[u8], tool: &[u8]) -> bool {
    // Each piece of the id is searched in the name, so its length bounds the work. No provider accepts longer names.
    if tool.len() > TOOL_BYTES_MAX {
        return false;
    }
    let own = |piece: &&[u8]| memmem::find(tool, piece).is_none();
    let looks_like_chance = |piece: &&[u8]| {
        let changes = piece.windows(2).filter(|pair| match pair {
            [one, other] => one.is_ascii_digit() != other.is_ascii_digit(),
            _ => false,
        });
        piece.len() >= CHANCE_MIN && changes.count() >= 2
    };
    id.split(|byte| !byte.is_ascii_alphanumeric())
        // A tool name may look random by itself, so a piece that occurs in it proves nothing.
        .filter(looks_like_chance)
        .any(|piece| own(&piece))
}

/// Returns the hash that distinguishes calls with a reusable id: of the input and of the message before the turn's.
pub fn call_context_hash(input_hash: &[u8; 32], before: &[u8; 32]) -> [u8; 32] {
    blake3::keyed_hash(input_hash, before).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_made_of_chance_are_strong() {
        for id in [
            "toolu_01A09q90qw90lq917835lq9",
            "toolu01A09q90qw90lq917835lq9",
            "call_FthC9qRpsL5kBpwwyw6c7j4k",
            "chatcmpl-tool-5f2a9d0c7e1b4a6f8c3d2e1f0a9b8c7d",
            "D681PevK3",
            "tooluse_kZJMlvQmRJ6eAyJE5GIl7Q1",
        ] {
            assert!(is_strong(id.as_bytes(), b"bash"), "{id}");
        }
        for (id, tool) in [
            ("call_0", "bash"),
            ("call0", "bash"),
            ("functions.read2all:3", "read2all"),
            ("functionsgetweather0", "get_weather"),
            ("run_shell_command_1763800000000_2", "run_shell_command"),
            ("toolcall17", "bash"),
            ("", "bash"),
            ("1763800000000", ""),
        ] {
            assert!(!is_strong(id.as_bytes(), tool.as_bytes()), "{id}");
        }
        let strong = b"toolu_01A09q90qw90lq917835lq9";
        assert!(is_strong(strong, &[b'x'; TOOL_BYTES_MAX]));
        assert!(!is_strong(strong, &[b'x'; TOOL_BYTES_MAX + 1]));
    }
}
