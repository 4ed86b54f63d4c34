//! The chain of a history: its calls in order, each known by the letters and digits of its id. Where two chains part,
//! two loops have gone on from one history.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use crate::conversation::{Conversation, PartKind};

/// Prefixes of a chain that are kept: those that end at its last calls.
pub const TAIL_MAX: usize = 64;

/// Letters and digits at the end of an id that are looked at: ids of one conversation differ there.
const LETTERS: usize = 16;
/// Keys of the hash: any odd numbers, the same in every process.
const KEYS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93];

/// The calls of a history, as hashes of what comes up to each of the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallChain {
    /// How many calls the history has.
    count: usize,
    /// A hash of all calls up to each of the last [`TAIL_MAX`], in order.
    tail: Box<[u64]>,
}

impl CallChain {
    /// The chain of what was read. None where calls live at the provider: what is there is no beginning.
    pub fn of(conversation: &Conversation<'_>) -> Self {
        if conversation.may_have_remote_calls && conversation.compaction.is_none() {
            return Self::default();
        }
        let calls = conversation.parts.iter().filter_map(|part| match &part.kind {
            PartKind::Call(call) => Some(call.call_name()),
            _ => None,
        });
        Self::of_ids(calls)
    }

    /// The chain of calls that are named so.
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
        if count > TAIL_MAX {
            ring.rotate_left(count % TAIL_MAX);
        }
        let tail = ring.get(..count.min(TAIL_MAX)).unwrap_or_default().into();
        Self { count, tail }
    }

    /// How many calls the history has.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Whether there is no call.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes that it takes beside itself.
    pub fn heap_bytes(&self) -> usize {
        size_of_val::<[u64]>(&self.tail)
    }

    /// Whether the history of `other` has all calls of this one first. A chain that has grown by more than
    /// [`TAIL_MAX`] calls is not known again.
    pub fn is_prefix_of(&self, other: &Self) -> bool {
        self.tail.last().is_some() && self.tail.last() == other.prefix_hash(self.count)
    }

    /// Whether both begin with the same call at least, as far as is known.
    pub fn shares_first_call(&self, other: &Self) -> bool {
        let least = self.count.min(other.count);
        // Where two prefixes of one length agree, all shorter ones do.
        let first = self.first_known().max(other.first_known());
        (1..=least).contains(&first) && self.prefix_hash(first) == other.prefix_hash(first)
    }

    /// The length of the shortest prefix that is known.
    const fn first_known(&self) -> usize {
        self.count.saturating_sub(self.tail.len()).saturating_add(1)
    }

    /// The hash of the first `count` calls.
    fn prefix_hash(&self, count: usize) -> Option<&u64> {
        self.tail.get(count.checked_sub(self.first_known())?)
    }
}

fn mix_call(hash: u64, [high, low]: [u64; 2]) -> u64 {
    let [one, two] = KEYS;
    let mixed = (hash ^ low).wrapping_mul(one).rotate_left(29) ^ high;
    let mixed = mixed.wrapping_add(two).wrapping_mul(two);
    mixed ^ (mixed >> 32)
}

/// The last letters and digits of an id, the last in the lowest byte: clients strip what stands between them.
fn last_letters(id: &[u8]) -> [u64; 2] {
    let last = id.last_chunk::<LETTERS>();
    // Without a branch a letter: most ids end in nothing else.
    let plain = last.filter(|last| last.iter().fold(true, |all, letter| all & is_letter(*letter)));
    if let Some(plain) = plain {
        return split_halves(u128::from_be_bytes(*plain));
    }
    // What is no letter is written too, and then written over.
    let mut found = [0_u8; LETTERS];
    let mut at = LETTERS;
    for letter in id.iter().rev() {
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
    // Both are always asked, so that many bytes are asked at once.
    ((byte | 0x20).wrapping_sub(b'a') < 26) | (byte.wrapping_sub(b'0') < 10)
}

const fn split_halves(found: u128) -> [u64; 2] {
    #[expect(clippy::cast_possible_truncation, reason = "each takes its half")]
    [(found >> 64) as u64, found as u64]
}
