//! Places that a mend fits, and the choice among them.

use crate::splice::Edit;

/// The hash of a block that a provider has refused. The same block has the same hash wherever it stands.
pub type BlockHash = [u8; 32];

/// A place that a mend fits, with the change there.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// The index of its message.
    pub(super) message: usize,
    /// The list of blocks and the index in it. `None` if the candidate is the message, or a member of it.
    pub(super) block: Option<BlockPlace>,
    /// The role or the type of the object that changes. Empty if it has none.
    pub(super) class: Box<str>,
    /// The hash of the block or item. `None` for what is no block.
    pub(super) hash: Option<BlockHash>,
    /// The id or name by which a refusal may name it. Empty if it has none.
    pub(super) id: Box<str>,
    pub(super) change: MendChange,
}

/// The place of a block: the index of its list in [`MendBody::lists`](super::body::MendBody::lists), and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockPlace {
    pub(super) list: usize,
    pub(super) at: usize,
}

/// The change at a candidate.
#[derive(Clone, Debug)]
pub(super) enum MendChange {
    /// The block goes, or the message if the candidate is one. What is empty then gets a constant text.
    Remove,
    /// These edits, inside the object.
    Edit(Vec<Edit>),
}

impl Candidate {
    /// Returns the candidate that is a whole message, or a member of it.
    pub(super) fn of_message(message: usize, class: &str, change: MendChange) -> Self {
        Self {
            message,
            block: None,
            class: class.into(),
            hash: None,
            id: Box::default(),
            change,
        }
    }

    /// Returns the candidate that is a block.
    pub(super) fn of_block(message: usize, block: BlockPlace, class: &str, change: MendChange) -> Self {
        Self {
            block: Some(block),
            ..Self::of_message(message, class, change)
        }
    }
}
