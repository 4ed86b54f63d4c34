//! What is known of a call beyond the body: frozen answers and the ledger's results (rows 2 and 4 of the order in
//! which a call takes its answer).

use std::fmt;

use crate::{conversation::Text, repair::words::Placeholder};

/// A call as it stands in the body, for those who remember calls.
#[derive(Clone, Debug)]
pub struct CallSight<'a> {
    /// The decoded id.
    pub id: &'a [u8],
    /// The decoded name of the tool.
    pub tool: Text<'a>,
    /// The raw input or arguments.
    pub input: &'a [u8],
    /// How many calls of this id stand before it.
    pub occurrence: usize,
    /// Whether its letters and digits are those of another id of the body.
    pub spelling: Spelling,
    /// Of a call whose id may come again: a hash of what the message in front of its own says.
    pub before: Option<[u8; 32]>,
    /// Of a call without an id: a hash of its place in its turn, and of the calls of the turn before.
    pub place: Option<[u8; 32]>,
    /// How many turns of the assistant stand behind it.
    pub turns_behind: usize,
    /// Whether a turn of the assistant with thinking stands behind it.
    pub thought_behind: bool,
    /// Whether its result stands in this body, behind a later turn of the assistant with thinking that never saw it.
    pub crossing: bool,
}

/// Whether another id of a body has the letters and digits of this one: then only the very id tells the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spelling {
    /// None has.
    #[default]
    Alone,
    /// One behind it has.
    First,
    /// One in front of it has.
    Again,
}

/// The answer that a call was given in an earlier request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frozen {
    /// A placeholder.
    Placeholder(Placeholder),
    /// A real result.
    Result(RealResult),
}

/// A real result that is not in the body, without `cache_control`.
#[derive(Clone, PartialEq, Eq)]
pub enum RealResult {
    /// What the tool said, whoever brought it. Invariant: one valid JSON value.
    Content {
        /// The content as JSON.
        content: String,
        /// Whether the tool reported an error.
        failed: bool,
    },
    /// As it stood in a history of the same format: the same bytes are put in again. Invariant: a JSON object.
    Block(String),
}

impl RealResult {
    /// Its length in bytes.
    pub const fn len(&self) -> usize {
        match self {
            Self::Content { content: text, .. } | Self::Block(text) => text.len(),
        }
    }

    /// Whether it says nothing: no result does.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for RealResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content { content, failed } => write!(f, "Content({} bytes, failed: {failed})", content.len()),
            Self::Block(block) => write!(f, "Block({} bytes)", block.len()),
        }
    }
}

/// Who remembers calls. Asked once for each call that has no answer in its place; never blocks.
/// A wrong answer puts one caller's result into another's history: an implementation answers for one caller only.
pub trait Answers {
    /// A body is mended from its beginning: what was told before is void.
    fn begins(&self) {}

    /// Row 2: the answer that this call was given before. It must be the same for as long as the call is sent.
    fn frozen(&self, call: &CallSight<'_>) -> Option<Frozen>;

    /// Row 4: the real result of this call, if it came.
    fn settled(&self, call: &CallSight<'_>) -> Option<RealResult>;

    /// Whether any call is to have another answer than the client has put into its place: [`Answers::insisted`] is asked.
    fn insists(&self) -> bool {
        false
    }

    /// The placeholder that a call keeps although the client has put a result into its place: thinking is bound to it.
    fn insisted(&self, _: &CallSight<'_>) -> Option<Placeholder> {
        None
    }

    /// Told what a call is answered by that was not frozen before: rows 3, 4 and 5.
    fn answered(&self, _: &CallSight<'_>, _: Frozen) {}

    /// Whether calls are known that a provider holds: [`Answers::due`] and [`Answers::is_spent`] are asked.
    fn knows_held(&self) -> bool {
        false
    }

    /// The calls that a body which goes on from `origin` must answer first: ids, in the order of their placeholders.
    fn due(&self, _origin: &[u8]) -> Vec<String> {
        Vec::new()
    }

    /// Whether the call of this id has its answer already, for a body that goes on from `origin`.
    fn is_spent(&self, _id: &[u8], _origin: Option<&[u8]>) -> bool {
        false
    }

    /// Told which calls that the provider holds are answered by placeholders, at the provider's word.
    fn answered_held(&self, _ids: &[String], _origin: Option<&[u8]>) {}
}

/// Nobody remembers: rows 1, 3 and 5 alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAnswers;

impl Answers for NoAnswers {
    fn frozen(&self, _: &CallSight<'_>) -> Option<Frozen> {
        None
    }

    fn settled(&self, _: &CallSight<'_>) -> Option<RealResult> {
        None
    }
}
