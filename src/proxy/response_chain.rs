//! The chain of one exchange in Responses: the items that its answer will stand for, and the removal of a dead id.
//!
//! The cost for a healthy request: one scan of its body for the top-level members, and one parse and hash of the items in
//! `input`, once the provider has accepted it. Nothing is done before the send. For a large body both are heavy work. A
//! caller that has never continued from a response pays the hash only for inputs that begin a conversation: up to 64 KiB,
//! and without an item of the model.

use std::{fmt, sync::LazyLock};

use bytes::Bytes;
use memchr::memmem::Finder;

use super::catch_core_panic::catch_core_panic;
use crate::{
    auth::Caller,
    conversation::Finding,
    recall::{RecallStore, UnjoinedChain},
    repair::{Action, RepairReport},
    wire::{
        ContinuedBody, ItemChain, UnjoinedItems,
        json::Json,
        remove_previous_id,
        watch::{Facts, TEXT_BYTES_MAX},
    },
};

/// Bytes of items that are hashed for a caller that has never continued from a response.
///
/// A conversation begins with a short input, and most callers never need its chain.
const FIRST_INPUT_MAX: usize = 64 * 1024;
/// Items of a request that wait for the chain of its parent, at most.
const UNJOINED_ITEMS_MAX: usize = 512;
/// Searcher for the member that asks the provider not to store its answer.
static STORE_KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"store\""));
/// The stop reason of a response that a request may continue from.
const COMPLETED: &str = "completed";

/// A request whose answer gets an id.
#[derive(Clone)]
pub(super) struct ChainRequest {
    pub(super) recall: RecallStore,
    pub(super) caller: Caller,
    /// The client's body, decoded. Its own items count, and not those that the proxy inserts.
    pub(super) body: Bytes,
    /// The dead id that the sent body lacks. `None` if nothing was removed.
    pub(super) removed_id: Option<String>,
}

/// The chain of an accepted request, to which the items of its answer are added.
#[derive(Debug)]
pub(super) struct ChainNote {
    recall: RecallStore,
    caller: Caller,
    start: ChainStart,
}

/// The beginning of a chain.
#[derive(Debug)]
enum ChainStart {
    /// Every item up to the answer.
    Joined(ItemChain),
    /// The items after a response whose chain is not in memory. Another process may have stored it.
    Unjoined { parent: String, request: UnjoinedItems },
    /// The items after a response of which nobody knows the items.
    Lost,
}

/// The body without the dead id that it continued from.
#[derive(Clone)]
pub(super) struct WithoutDeadId {
    pub(super) id: String,
    pub(super) body: Bytes,
}

// A body is content, which never reaches a log.
impl fmt::Debug for ChainRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChainRequest({} bytes)", self.body.len())
    }
}

impl fmt::Debug for WithoutDeadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WithoutDeadId({} bytes)", self.body.len())
    }
}

impl ChainRequest {
    /// Adds the removal of a dead id to a report.
    pub(super) fn add_to_report(&self, report: &mut RepairReport) {
        if let Some(id) = &self.removed_id {
            let removals = report.actions.entry(Action::Drop).or_default();
            *removals = removals.saturating_add(1);
            report.findings.insert(0, Finding::dead_response(id.clone()));
        }
    }

    /// Hashes the items of a request that a provider has accepted. `None` if its chain cannot be known.
    pub(super) fn begin_chain(self) -> Option<ChainNote> {
        let Self {
            recall, caller, body, ..
        } = self;
        let chains = recall.response_chains();
        let start = catch_core_panic(|| {
            let read = ContinuedBody::read(&body)?;
            let previous = read.previous_id();
            if previous.is_some() {
                chains.note_continuing(caller);
            } else if !chains.is_continuing(caller) && (read.input_len() > FIRST_INPUT_MAX || read.has_answers()) {
                return None;
            }
            // Before the look-up: a chain that is read meanwhile is found.
            let is_known = previous.is_some_and(|id| chains.is_known(caller, id));
            let parent = previous.map(|id| (id, chains.find_chain(caller, id)));
            // Without the parent's chain the items wait for it.
            if let Some((id, None)) = parent {
                if is_known {
                    return Some(ChainStart::Lost);
                }
                return Some(ChainStart::Unjoined {
                    parent: id.to_owned(),
                    request: read.unjoined_items(UNJOINED_ITEMS_MAX)?,
                });
            }
            read.chain(parent.and_then(|(_, chain)| chain)).map(ChainStart::Joined)
        })?;
        Some(ChainNote { recall, caller, start })
    }

    /// Returns `true` unless the request asks the provider not to store its answer.
    pub(super) fn stores_answer(&self) -> bool {
        // Most bodies do not contain the word, and then nothing is read.
        STORE_KEY.find(&self.body).is_none()
            || catch_core_panic(|| {
                let json = Json::new(&self.body);
                Some(json.bytes(json.member(json.root_span().ok()?, "store")?) != b"false")
            })
            .unwrap_or(true)
    }

    /// Returns the id of the response that the client's body continues from.
    pub(super) fn previous_id(&self) -> Option<String> {
        catch_core_panic(|| Some(ContinuedBody::read(&self.body)?.previous_id()?.to_owned()))
    }

    /// Removes the id from `body`, if the client's body begins with every item of the response with that id.
    ///
    /// `body` may contain more than the client's, but the same id. `None` if an item is missing or not known.
    pub(super) fn remove_dead_id(&self, body: &Bytes) -> Option<WithoutDeadId> {
        catch_core_panic(|| {
            let read = ContinuedBody::read(&self.body)?;
            let id = read.previous_id()?;
            // Its conversations are worth watching from now on, even if this response was not.
            if self.caller.is_authenticated() {
                self.recall.response_chains().note_continuing(self.caller);
            }
            let chain = self.recall.response_chains().find_chain(self.caller, id)?;
            if !read.begins_with(chain) {
                return None;
            }
            Some(WithoutDeadId {
                id: id.to_owned(),
                body: remove_previous_id(body).ok()?,
            })
        })
    }
}

impl ChainNote {
    /// Stores the chain of a complete answer under its id, at once or when that of its parent is read.
    pub(super) fn store_chain(self, facts: &Facts) {
        let id = facts.answer_id.as_deref();
        // Of a longer id only the beginning is known, which another response may share.
        let Some(id) = id.filter(|id| id.len() < TEXT_BYTES_MAX && facts.stop.as_deref() == Some(COMPLETED)) else {
            return;
        };
        let Some(items) = facts.items.in_order() else { return };
        let chains = self.recall.response_chains();
        match self.start {
            ChainStart::Lost => chains.note_lost(self.caller, id),
            ChainStart::Joined(mut chain) => {
                for item in items {
                    chain.push_item(item);
                }
                chains.note_chain(self.caller, id, chain);
            }
            ChainStart::Unjoined { parent, request } => chains.join_later(UnjoinedChain {
                caller: self.caller,
                parent,
                id: id.to_owned(),
                request,
                answer: items.into_iter().collect(),
            }),
        }
    }
}
