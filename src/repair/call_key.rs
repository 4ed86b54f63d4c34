//! How a call is named across requests: by what clients keep of it, not by bytes that they move about.

use memchr::memmem;

use super::canonical::input_hash;
use crate::{conversation::Text, digest::Digest as _};

/// Letters and digits in a row that chance may have put together.
const CHANCE_MIN: usize = 9;
/// Bytes of a tool's name; with a longer one no id is strong.
const TOOL_BYTES_MAX: usize = 512;

/// The parts of a call that its [`CallKey`] is made from.
#[derive(Clone, Debug)]
pub struct CallIdentity<'a> {
    /// The decoded id.
    pub id: &'a [u8],
    /// The decoded name of the tool.
    pub tool: Text<'a>,
    /// The raw input or arguments.
    pub input: &'a [u8],
    /// Number of calls of this id in front of it.
    pub occurrence: usize,
    /// Other ids of the body with the same letters and digits.
    pub spelling: IdSpelling,
    /// Hash of the message in front of the call's own. `None` unless the id may be used again by another call.
    pub before: Option<[u8; 32]>,
    /// Hash of the call's place in its turn and of the previous calls. `None` if the call has an id.
    pub place: Option<[u8; 32]>,
}

/// Whether another id of a body has the same letters and digits: then only the exact id tells the calls apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdSpelling {
    /// No other id has.
    #[default]
    Alone,
    /// A later id has.
    First,
    /// An earlier id has.
    Again,
}

/// The name of a call within its principal: the letters and digits of its id, its tool, its canonical input, and how many
/// of its id stand before it; without an id also its place; where the id may come again, what stands in front of it; and
/// the very id where another id of its body had the same letters and digits before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallKey([u8; 32]);

impl CallKey {
    /// The name of a call as it stands in a body.
    pub fn of(call: &CallIdentity<'_>) -> Self {
        let mut hash = blake3::Hasher::new();
        let occurrence = (call.occurrence as u64).to_le_bytes();
        let input = input_hash(call.input);
        for part in [&id_letters(call.id)[..], &call.tool, &input, &occurrence] {
            hash.add(part);
        }
        if let Some(place) = &call.place {
            hash.add(place);
        }
        if let Some(before) = &call.before {
            hash.add(before);
        }
        // The first of them keeps its name whatever comes behind it.
        if call.spelling == IdSpelling::Again {
            hash.add(call.id);
        }
        Self(hash.finalize().into())
    }

    /// Its name within a conversation, where that is told otherwise than by the call.
    #[must_use]
    pub fn within_conversation(&self, conversation: &[u8; 32]) -> Self {
        Self(blake3::keyed_hash(conversation, &self.0).into())
    }

    /// The hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// The letters and digits of an id: some clients strip what stands between them (openclaw 2026.9.6).
pub fn id_letters(id: &[u8]) -> Vec<u8> {
    id.iter().copied().filter(u8::is_ascii_alphanumeric).collect()
}

/// Whether an id names one call among all of a principal: whether part of it looks like chance.
///
/// `call_0`, `functions.read:3` and `read_1763800000000_2` come again; the ids of the providers, of vLLM and of Mistral
/// do not. Chance mixes letters and digits; what counts, or names the tool, does not.
pub fn is_strong(id: &[u8], tool: &[u8]) -> bool {
    // No provider takes a name of such a length, and each piece of the id is searched in it.
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
        .filter(looks_like_chance)
        .any(|piece| own(&piece))
}

/// What tells a call whose id may come again from others: its input, and the message in front of its turn's.
pub fn call_context_hash(input: &[u8], before: &[u8; 32]) -> [u8; 32] {
    blake3::keyed_hash(&input_hash(input), before).into()
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
