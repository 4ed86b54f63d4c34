//! Calls of a body with everything that later requests need to recognise them.

use std::{collections::HashMap, fmt};

use crate::{
    conversation::{
        CallDetails, CallRowId, Conversation, PartId, PartKind, TurnId, WithoutResult,
        pairing::{CallRow, Pairing, id_of},
        turns::Turn,
    },
    digest::HashTexts as _,
    repair::{
        call_key::{CallIdentity, CallKey, IdSpelling, call_context_hash, id_letters},
        canonical::{input_hash, message_hash},
        id_strength::is_strong,
        same_result,
    },
    splice::Span,
    wire::json::Json,
    work,
};

/// One call of a body.
#[derive(Clone, PartialEq, Eq)]
pub struct BodyCall {
    /// Its row in the pairing of its history.
    pub(super) row: CallRowId,
    /// Its name among the caller's calls. If its id is reusable, the name includes the conversation once that is known.
    pub key: CallKey,
    /// The decoded id.
    pub id: Vec<u8>,
    /// The decoded name of the tool.
    pub tool: Vec<u8>,
    /// Hash of its canonical input.
    pub input_hash: [u8; 32],
    /// Hash of its input and of the message before its own. `None` unless its id is reusable.
    pub context_hash: Option<[u8; 32]>,
    /// Number of calls of this id before it.
    pub occurrence: usize,
    /// Its place among ids of the body with the same letters and digits.
    pub spelling: IdSpelling,
    /// `true` if the key is unique among all calls of its caller.
    pub is_unique: bool,
    /// Number of assistant turns after it.
    pub turns_after: usize,
    /// `true` if an assistant turn with thinking follows it.
    pub has_thinking_after: bool,
    /// `true` if its result lies after an assistant turn with thinking that was generated without the result.
    pub crosses_thinking: bool,
    /// Its result in the body.
    pub in_body: BodyResult,
    /// The result in its place. `None` unless `in_body` is [`BodyResult::InPlace`].
    pub result: Option<ResultContent>,
}

impl BodyCall {
    /// Makes the key of a call with a reusable id unique to a conversation.
    pub(super) fn name_within(&mut self, conversation: &[u8; 32]) {
        if !self.is_unique {
            self.key = self.key.within_conversation(conversation);
            self.is_unique = true;
        }
    }
}

impl fmt::Debug for BodyCall {
    // Ids and inputs are the client's content, which never reaches a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BodyCall({:?}, {:?})", self.key, self.in_body)
    }
}

/// The result of a call in its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyResult {
    /// A result in its place.
    InPlace {
        /// `true` if its text only reports that the client lost the result.
        is_lost: bool,
    },
    /// A result in another place.
    Elsewhere,
    /// No result.
    Nothing,
}

/// The content of a result. Spans point into the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultContent {
    /// The content, as JSON.
    pub content: Span,
    /// `true` if the tool reported an error.
    pub failed: bool,
}

/// Returns the id of a call, or its tool if it has no id.
fn call_name<'c>(conversation: &'c Conversation<'_>, part: PartId) -> &'c [u8] {
    match conversation.part(part).map(|part| &part.kind) {
        Some(PartKind::Call(call)) => call.call_name(),
        _ => b"",
    }
}

/// Returns `true` if the plan must find a result for this call.
pub(super) fn is_open(call: &CallRow, pairing: &Pairing) -> bool {
    match call.result {
        Some(row) => pairing.results.get(row.index()).is_some_and(|row| !row.in_place),
        None => call.without_result == WithoutResult::Refused,
    }
}

/// Facts about calls that need a pass over the whole history.
pub(super) struct CallIndex<'c> {
    conversation: &'c Conversation<'c>,
    pairing: &'c Pairing,
    /// By letters and digits: the first id with them, and `true` if another id has them too.
    spelled: HashMap<Vec<u8>, (&'c [u8], bool)>,
    /// For each call: the number of calls of its id before it.
    occurrences: Vec<usize>,
    /// For each turn: the number of turns with thinking up to and including it.
    thinking: Vec<usize>,
    /// Hashes of messages before calls with reusable ids. Filled on demand.
    messages: HashMap<usize, [u8; 32]>,
    /// For turns with calls without ids: the hash of the previous turn's calls. Filled on demand.
    previous_calls: HashMap<TurnId, [u8; 32]>,
}

impl<'c> CallIndex<'c> {
    /// Walks the whole history.
    pub(super) fn new(conversation: &'c Conversation<'c>, pairing: &'c Pairing) -> Self {
        let call_count = pairing.calls.len();
        work::count(call_count.saturating_add(pairing.turns.len()));
        let mut seen: HashMap<&[u8], usize> = HashMap::with_capacity(call_count);
        let count = |call: &CallRow| {
            let count = seen.entry(call_name(conversation, call.part)).or_default();
            *count += 1;
            *count - 1
        };
        let mut thinking = 0;
        let upto = pairing.turns.iter().map(|turn| {
            thinking += usize::from(turn.thinking);
            thinking
        });
        let mut spelled: HashMap<Vec<u8>, (&[u8], bool)> = HashMap::with_capacity(call_count);
        for call in &pairing.calls {
            let id = id_of(conversation, call.part);
            let (first, twin) = spelled.entry(id_letters(id)).or_insert((id, false));
            // `X_1` and `X1` have the same letters and digits, and both may be calls of this body.
            *twin |= *first != id;
        }
        Self {
            conversation,
            pairing,
            spelled,
            thinking: upto.collect(),
            occurrences: pairing.calls.iter().map(count).collect(),
            messages: HashMap::new(),
            previous_calls: HashMap::new(),
        }
    }

    /// Describes the call at `row`.
    pub(super) fn describe_call(&mut self, row: CallRowId) -> BodyCall {
        let place = self.place_hash(row);
        let identity = self.call_identity(row, place);
        let key = CallKey::of(&identity);
        // Even with its context the call may occur in another conversation of the caller, under the same key.
        let is_reusable = identity.before.is_some() || identity.place.is_some();
        let CallIdentity {
            id,
            tool,
            input_hash,
            occurrence,
            spelling,
            before,
            ..
        } = identity;
        let pairing = self.pairing;
        let turn = pairing.calls[row].turn;
        let result = pairing.calls[row]
            .result
            .and_then(|row| pairing.results.get(row.index()));
        // A result elsewhere is moved by the plan, so its content does not count yet.
        let in_place = result.filter(|row| row.in_place);
        let is_after_thinking =
            |other: TurnId| other > turn && self.thinking[other.index()] > self.thinking[turn.index()];
        BodyCall {
            row,
            key,
            id: id.to_vec(),
            tool: tool.to_vec(),
            input_hash,
            context_hash: before.map(|before| call_context_hash(&input_hash, &before)),
            occurrence,
            spelling,
            is_unique: !is_reusable,
            turns_after: pairing.turns.len().saturating_sub(turn.index() + 1),
            has_thinking_after: self
                .thinking
                .last()
                .is_some_and(|all| *all > self.thinking[turn.index()]),
            crosses_thinking: result.and_then(|row| row.turn).is_some_and(is_after_thinking),
            in_body: match result {
                Some(row) if row.in_place => BodyResult::InPlace {
                    is_lost: self.conversation.is_lost_result(row.part),
                },
                Some(_) => BodyResult::Elsewhere,
                None => BodyResult::Nothing,
            },
            result: in_place.and_then(|row| self.result_content(row.part)),
        }
    }

    fn call_identity(&mut self, row: CallRowId, place: Option<[u8; 32]>) -> CallIdentity<'c> {
        let (conversation, part) = (self.conversation, self.pairing.calls[row].part);
        let json = Json::new(conversation.body);
        let CallDetails { name: tool, input, .. } = conversation.call_details(part);
        let id = id_of(conversation, part);
        let tool = tool.map(|span| json.decode_string(span)).unwrap_or_default();
        CallIdentity {
            id,
            // Only a reusable id needs its context, and hashing a message is costly.
            before: (!is_strong(id, &tool)).then(|| self.message_before(part)),
            tool,
            input_hash: input_hash(input.map_or(b"", |span| json.bytes(span))),
            occurrence: self.occurrences[row.index()],
            spelling: match self.spelled.get(&id_letters(id)) {
                // The first spelling must keep its key whatever follows, or a longer body would rename its calls.
                Some((first, _)) if *first != id => IdSpelling::Again,
                Some((_, true)) => IdSpelling::First,
                _ => IdSpelling::Alone,
            },
            place,
        }
    }

    fn result_content(&self, part: PartId) -> Option<ResultContent> {
        let json = Json::new(self.conversation.body);
        let inside = same_result::result_object(json, self.conversation.part(part)?.span);
        let content = same_result::content_span(json, inside)?;
        let failed = json.member(inside, "is_error");
        Some(ResultContent {
            content,
            failed: failed.is_some_and(|failed| json.bytes(failed) == b"true"),
        })
    }

    /// Returns the hash of the message before the one that contains a part.
    fn message_before(&mut self, part: PartId) -> [u8; 32] {
        let conversation = self.conversation;
        let Some(before) = conversation.parts[part].message.checked_sub(1) else {
            return [0; 32];
        };
        // Parallel calls share the message before them, which is hashed once.
        let hash = || message_hash(conversation.messages[before].span.of(conversation.body));
        *self.messages.entry(before).or_insert_with(hash)
    }

    /// Returns the hash of the place of a call without an id: its ordinal in its turn, and the previous turn's calls.
    /// `None` if it has an id.
    fn place_hash(&mut self, row: CallRowId) -> Option<[u8; 32]> {
        let call = &self.pairing.calls[row];
        let PartKind::Call(found) = &self.conversation.parts[call.part].kind else {
            return None;
        };
        if !found.id.is_empty() {
            return None;
        }
        let own = &self.pairing.turns[call.turn].calls;
        let mut hash = blake3::Hasher::new();
        // Parallel calls of Gemini may be equal in name and input, so only the ordinal tells them apart.
        hash.add_text(&(row.index().saturating_sub(own.start) as u64).to_le_bytes());
        hash.add_text(&self.previous_calls_hash(call.turn));
        Some(hash.finalize().into())
    }

    /// Returns the hash of the calls in the last turn with calls before `turn`.
    fn previous_calls_hash(&mut self, turn: TurnId) -> [u8; 32] {
        if let Some(known) = self.previous_calls.get(&turn) {
            return *known;
        }
        let mut hash = blake3::Hasher::new();
        let turns = self.pairing.turns.get(..turn.index()).unwrap_or_default();
        let has_calls = |turn: &&Turn| {
            work::count(1);
            !turn.calls.is_empty()
        };
        if let Some(before) = turns.iter().rev().find(has_calls) {
            for earlier in CallRowId::all(before.calls.clone()) {
                // Without their places, since those would need the calls before them, and so the whole history.
                let identity = self.call_identity(earlier, None);
                hash.add_text(CallKey::of(&identity).as_bytes());
            }
        }
        let hash = hash.finalize().into();
        self.previous_calls.insert(turn, hash);
        hash
    }
}
