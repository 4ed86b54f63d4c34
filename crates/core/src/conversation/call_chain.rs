//! The calls of a history in order, as hashes. Histories that share a prefix of calls belong to one conversation.
//!
//! If two such chains diverge, two agent loops have continued from one history.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use crate::{
    conversation::{Conversation, PartKind},
    work,
};

/// Number of prefix hashes that a chain stores: those that end at its last calls.
pub const TAIL_MAX: usize = 64;

/// Number of letters and digits at the end of an id that are hashed. Ids of one conversation differ there.
const LETTERS: usize = 16;
/// Keys of the hash: arbitrary odd numbers, the same in every process.
const KEYS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93];

/// The calls of a history, as a hash of each of its last prefixes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallChain {
    /// Number of calls in the history.
    count: usize,
    /// Hashes of the prefixes that end at the last [`TAIL_MAX`] calls, in order.
    tail: Box<[u64]>,
}

impl CallChain {
    /// Returns the chain of a conversation. It is empty if calls may exist only at the provider, since the body then
    /// lacks the beginning.
    pub fn of(conversation: &Conversation<'_>) -> Self {
        if conversation.may_have_remote_calls && conversation.compaction.is_none() {
            return Self::default();
        }
        work::count(conversation.parts.len());
        let calls = conversation.parts.iter().filter_map(|part| match &part.kind {
            PartKind::Call(call) => Some(call.call_name()),
            _ => None,
        });
        Self::of_ids(calls)
    }

    /// Returns the chain of calls with these ids.
    pub fn of_ids<'i>(ids: impl IntoIterator<Item = &'i [u8]>) -> Self {
        let mut ring = [0_u64; TAIL_MAX];
        let (mut count, mut hash) = (0_usize, 0_u64);
        for id in ids {
            hash = mix_call(hash, last_letters(id));
            if let Some(slot) = ring.get_mut(count % TAIL_MAX) {
                *slot = hash;
            }
            count = count.saturating_add(1);
        }
        // The ring wraps around, so its oldest hash must come first.
        if count > TAIL_MAX {
            ring.rotate_left(count % TAIL_MAX);
        }
        let tail = ring.get(..count.min(TAIL_MAX)).unwrap_or_default().into();
        Self { count, tail }
    }

    /// Returns the number of calls.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Returns `true` if there is no call.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns its heap size in bytes.
    pub fn heap_bytes(&self) -> usize {
        size_of_val::<[u64]>(&self.tail)
    }

    /// Returns `true` if the history of `other` begins with all calls of this one. A chain that has grown by more than
    /// [`TAIL_MAX`] calls is not recognised.
    pub fn is_prefix_of(&self, other: &Self) -> bool {
        self.tail.last().is_some() && self.tail.last() == other.prefix_hash(self.count)
    }

    /// Returns `true` if both chains share at least their first call, as far as their hashes reach.
    pub fn shares_first_call(&self, other: &Self) -> bool {
        let least = self.count.min(other.count);
        // If two prefixes of one length are equal, all shorter ones are.
        let first = self.first_known().max(other.first_known());
        (1..=least).contains(&first) && self.prefix_hash(first) == other.prefix_hash(first)
    }

    /// Returns the length of the shortest prefix whose hash is stored.
    const fn first_known(&self) -> usize {
        self.count.saturating_sub(self.tail.len()).saturating_add(1)
    }

    /// Returns the hash of the first `count` calls. `None` if it is not stored.
    fn prefix_hash(&self, count: usize) -> Option<&u64> {
        self.tail.get(count.checked_sub(self.first_known())?)
    }
}

/// Adds a call to the hash of the calls before it.
fn mix_call(hash: u64, [high, low]: [u64; 2]) -> u64 {
    let [one, two] = KEYS;
    let mixed = (hash ^ low).wrapping_mul(one).rotate_left(29) ^ high;
    let mixed = mixed.wrapping_add(two).wrapping_mul(two);
    mixed ^ (mixed >> 32)
}

/// Returns the last letters and digits of an id, the last in the lowest byte. Clients strip the characters between
/// them.
fn last_letters(id: &[u8]) -> [u64; 2] {
    let last = id.last_chunk::<LETTERS>();
    // Avoids a branch per letter: most ids end in letters and digits alone.
    let plain = last.filter(|last| last.iter().fold(true, |all, letter| all & is_letter(*letter)));
    if let Some(plain) = plain {
        return split_halves(u128::from_be_bytes(*plain));
    }
    // Separators are written too and then overwritten, which avoids a branch.
    let mut found = [0_u8; LETTERS];
    let mut at = LETTERS;
    for letter in id.iter().rev() {
        work::count(1);
        let Some(slot) = found.get_mut(at.wrapping_sub(1)) else {
            break;
        };
        *slot = *letter;
        at = at.wrapping_sub(usize::from(is_letter(*letter)));
    }
    if let Some(slot) = found.get_mut(at.wrapping_sub(1)) {
        *slot = 0;
    }
    split_halves(u128::from_be_bytes(found))
}

const fn is_letter(byte: u8) -> bool {
    // Evaluates both conditions, so that the compiler can test many bytes at once.
    ((byte | 0x20).wrapping_sub(b'a') < 26) | (byte.wrapping_sub(b'0') < 10)
}

const fn split_halves(found: u128) -> [u64; 2] {
    #[expect(clippy::cast_possible_truncation, reason = "each takes its half")]
    [(found >> 64) as u64, found as u64]
}
