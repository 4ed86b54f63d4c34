//! One request body, read once and paired once: the input of a plan.
//!
//! [`parse`] scans the bytes, [`Parsed::pair`] applies the pairing rules, [`plan`](fn@super::plan) decides, and
//! [`Plan::splice`](super::Plan::splice) writes. None of them waits or stores anything.

use super::{
    BodyCall, DisputedShape, LearnedRules, RemoteCalls, RemoteReferences, RepairPolicy,
    body_calls::{CallIndex, is_open},
    id_strength::is_strong,
    malformed_calls::select_malformed_calls,
    proven_rules::without_unproven,
    refusal_constraints::{RefusalConstraints, RefusalReading},
    remote_calls,
    thinking_marks::{self, ThinkingHash},
};
use crate::{
    conversation::{
        CallRowId, Conversation, Finding, Outline, PartId, PartKind, Role, findings,
        pairing::{Pairing, first_speaker, has_text_beside_calls, pair_history},
        rules::{PairingRules, WordsPlace},
    },
    wire::{NestedRequest, Refusal, Unreadable, Wire, json::validate},
    work,
};

/// Reads a body: one history, or the histories of a batch.
///
/// A body without findings need not be JSON in bytes that the scan skips: see [`Wire::read`].
pub fn parse(body: &[u8], wire: Wire) -> Result<Parsed<'_>, Unreadable> {
    work::count_parse();
    let conversation = wire.read(body)?;
    let mut parsed = Parsed {
        body,
        wire,
        histories: Vec::with_capacity(1),
        is_batch: false,
        unread: None,
    };
    let entries = match conversation.array {
        // A body with a history of its own is no batch, whatever else it contains.
        Some(_) => Vec::new(),
        None => wire.format.nested_requests(body)?,
    };
    if entries.is_empty() {
        parsed.histories.push(ParsedHistory {
            conversation,
            path: String::new(),
            offset: 0,
        });
        return Ok(parsed);
    }
    parsed.is_batch = true;
    for NestedRequest { span, path } in entries {
        work::count(1);
        match wire.read(span.of(body)) {
            Ok(conversation) => parsed.histories.push(ParsedHistory {
                conversation,
                path,
                offset: span.start,
            }),
            // An unreadable entry must not stop the repair of the others, so it stays as it came.
            Err(reason) => drop(parsed.unread.get_or_insert(reason)),
        }
    }
    Ok(parsed)
}

/// A body as it was read.
#[derive(Clone, Debug)]
pub struct Parsed<'b> {
    body: &'b [u8],
    wire: Wire,
    histories: Vec<ParsedHistory<'b>>,
    /// `true` if the body contains several requests, each with its own history.
    is_batch: bool,
    /// Reason that an entry of a batch could not be read. `None` if all could.
    unread: Option<Unreadable>,
}

/// One history of a body.
#[derive(Clone, Debug)]
struct ParsedHistory<'b> {
    conversation: Conversation<'b>,
    /// Path of the batch entry in the body: empty, or `requests[3].params.`.
    path: String,
    /// Offset of the history's bytes in the body.
    offset: usize,
}

/// Inputs of the pairing besides the body.
#[derive(Clone, Copy, Debug)]
pub struct PairingContext<'o> {
    /// The policy. Only `hygiene`, `malformed_calls` and `shapes` matter here.
    pub policy: &'o RepairPolicy,
    /// Rules that refusals of this upstream have taught.
    pub learned: LearnedRules,
    /// Remote calls of each history, in the order of [`Parsed::remote_references`]. May be shorter.
    pub remote: &'o [RemoteCalls],
    /// Thinking that the provider has refused as foreign. It is removed wherever it is.
    pub refused_thinking: &'o [ThinkingHash],
    /// `true` if demands without evidence hold too: see [`REPAIR_RULES`](super::REPAIR_RULES).
    pub applies_unproven: bool,
}

impl<'o> PairingContext<'o> {
    /// Returns a context without learned rules and without knowledge of remote calls.
    pub const fn new(policy: &'o RepairPolicy) -> Self {
        Self {
            policy,
            learned: LearnedRules::NONE,
            remote: &[],
            refused_thinking: &[],
            applies_unproven: false,
        }
    }
}

impl<'b> Parsed<'b> {
    /// Returns facts about the body besides pairing. A batch has an empty outline.
    pub fn outline(&self) -> Outline {
        match self.only_conversation() {
            Some(conversation) => Outline::of(conversation),
            None => Outline::default(),
        }
    }

    /// Returns the only history, or `None` for a batch.
    pub(super) fn only_conversation(&self) -> Option<&Conversation<'b>> {
        let first = self.histories.first().filter(|_| !self.is_batch)?;
        Some(&first.conversation)
    }

    /// Returns the id of the first call, which all requests of one conversation share. `None` for a batch, without a
    /// call, or if the id may be another conversation's too.
    pub fn first_call_id(&self) -> Option<&[u8]> {
        first_call_id(self.only_conversation()?)
    }

    /// Returns each history's references into provider-side state. Empty for formats without remote calls.
    pub fn remote_references(&self) -> Vec<RemoteReferences> {
        let histories = self.histories.iter();
        histories
            .map(|history| remote_calls::remote_references(&history.conversation))
            .collect()
    }

    /// Returns the hashes of all signed thinking, in document order.
    pub fn thinking_hashes(&self) -> Vec<ThinkingHash> {
        let histories = self.histories.iter();
        histories
            .flat_map(|history| thinking_marks::thinking_hashes(&history.conversation, self.wire.format))
            .collect()
    }

    /// Returns the reason for which an entry of a batch could not be read. `None` if all could.
    pub const fn unread_entry(&self) -> Option<Unreadable> {
        self.unread
    }

    /// Applies the pairing rules.
    #[must_use]
    pub fn pair(self, context: PairingContext<'_>) -> Paired<'b> {
        self.pair_as_refused(context, None)
    }

    /// Applies the pairing rules as a provider's refusal demands.
    #[must_use]
    pub fn pair_refused(
        self,
        context: PairingContext<'_>,
        refusal: &'b Refusal,
        reading: RefusalReading,
    ) -> Paired<'b> {
        self.pair_as_refused(context, Some(reading.constraints(refusal)))
    }

    /// Returns `true` if the proxy's own edits caused the refusal. The original then has a pair for each named id, or
    /// contains none of them.
    pub fn is_blameless(&self, refusal: &Refusal) -> bool {
        let constraints = RefusalReading::StrictestRules.constraints(refusal);
        self.only_conversation()
            .is_some_and(|whole| constraints.is_balanced(whole) || constraints.names_only_inserted(whole))
    }

    fn pair_as_refused(self, context: PairingContext<'_>, constraints: Option<RefusalConstraints<'b>>) -> Paired<'b> {
        // The list is empty if no remote call is known, so a missing entry counts as none.
        let mut remote = context.remote.iter().cloned();
        let pair = |history| {
            PairedHistory::new(
                history,
                self.wire,
                &context,
                remote.next().unwrap_or_default(),
                constraints,
            )
        };
        Paired {
            body: self.body,
            wire: self.wire,
            histories: self.histories.into_iter().map(pair).collect(),
            is_batch: self.is_batch,
            unread: self.unread,
        }
    }
}

/// A body with its calls and results paired.
#[derive(Debug)]
pub struct Paired<'b> {
    pub(super) body: &'b [u8],
    pub(super) wire: Wire,
    pub(super) histories: Vec<PairedHistory<'b>>,
    pub(super) is_batch: bool,
    pub(super) unread: Option<Unreadable>,
}

/// One history with its pairing.
#[derive(Debug)]
pub(super) struct PairedHistory<'b> {
    pub(super) conversation: Conversation<'b>,
    pub(super) rules: PairingRules,
    pub(super) pairing: Pairing,
    /// Calls that need a result, in document order.
    pub(super) open: Vec<BodyCall>,
    pub(super) remote: RemoteCalls,
    /// Thinking that is marked as foreign because the provider has refused it before.
    refused_thinking: Vec<PartId>,
    pub(super) constraints: Option<RefusalConstraints<'b>>,
    /// Breaches of the rules, in document order, by their place in this history.
    pub(super) findings: Vec<Finding>,
    /// `Err` if the bytes are no JSON. Checked only if there are findings, which invalid JSON may have caused.
    pub(super) json: Result<(), Unreadable>,
    pub(super) path: String,
    pub(super) offset: usize,
    /// Name of the conversation, in which calls with reusable ids are unique. `None` if it is not known for certain.
    conversation_name: Option<[u8; 32]>,
}

impl<'b> PairedHistory<'b> {
    fn new(
        history: ParsedHistory<'b>,
        wire: Wire,
        context: &PairingContext<'_>,
        remote: RemoteCalls,
        constraints: Option<RefusalConstraints<'b>>,
    ) -> Self {
        let ParsedHistory {
            mut conversation,
            path,
            offset,
        } = history;
        let mut rules = permitted_rules(wire, context);
        if let Some(constraints) = constraints {
            rules = constraints.strictest_rules(rules, context.policy);
            // A refusal overrides the rules, so its parts must be marked before pairing.
            constraints.reclassify_parts(&mut conversation);
        }
        // Before the pairing, whose judgements depend on the thinking that stays.
        let refused_thinking =
            thinking_marks::mark_foreign(&mut conversation, wire, context.policy, context.refused_thinking);
        remote_calls::mark_answered_results(&mut conversation, &remote);
        let mut pairing = pair_history(&conversation, rules);
        if let Some(constraints) = constraints {
            constraints.add_findings(&conversation, &mut pairing);
        }
        select_malformed_calls(&conversation, &mut pairing, wire.format, rules, context.policy);
        // Only open calls are hashed here. Answered ones are described on demand.
        let open = describe_rows(&conversation, &pairing, |row| is_open(&pairing.calls[row], &pairing));
        let findings = findings(&pairing, &conversation);
        let json = check_json(&findings, conversation.body);
        Self {
            conversation,
            rules,
            pairing,
            open,
            remote,
            refused_thinking,
            constraints,
            findings,
            json,
            path,
            offset,
            conversation_name: None,
        }
    }

    /// Takes the pairing back.
    fn into_parsed(mut self) -> ParsedHistory<'b> {
        thinking_marks::unmark_foreign(&mut self.conversation, &self.refused_thinking);
        remote_calls::unmark_answered_results(&mut self.conversation);
        ParsedHistory {
            conversation: self.conversation,
            path: self.path,
            offset: self.offset,
        }
    }

    /// Describes the calls in rows that `wanted` accepts, in document order.
    fn describe_calls(&self, wanted: impl Fn(CallRowId) -> bool) -> Vec<BodyCall> {
        let mut calls = describe_rows(&self.conversation, &self.pairing, wanted);
        if let Some(name) = &self.conversation_name {
            for call in &mut calls {
                call.name_within(name);
            }
        }
        calls
    }

    /// Returns findings with their places in the whole body.
    pub(super) fn place_findings(&self, findings: Vec<Finding>) -> Vec<Finding> {
        if self.path.is_empty() {
            return findings;
        }
        work::count(findings.len());
        findings.into_iter().map(|finding| finding.within(&self.path)).collect()
    }

    /// Describes the calls with a result in its place.
    pub(super) fn answered_calls(&self) -> Vec<BodyCall> {
        let in_place = |row: CallRowId| {
            let result = self.pairing.calls[row].result;
            result.is_some_and(|row| self.pairing.results[row].in_place)
        };
        self.describe_calls(in_place)
    }
}

/// Describes the calls in rows that `wanted` accepts, in document order.
fn describe_rows(
    conversation: &Conversation<'_>,
    pairing: &Pairing,
    wanted: impl Fn(CallRowId) -> bool,
) -> Vec<BodyCall> {
    let mut rows = CallRowId::all(0..pairing.calls.len())
        .filter(|row| wanted(*row))
        .peekable();
    // Healthy histories have no open call, so nothing is hashed for them.
    if rows.peek().is_none() {
        return Vec::new();
    }
    let mut index = CallIndex::new(conversation, pairing);
    rows.map(|row| index.describe_call(row)).collect()
}

impl<'b> Paired<'b> {
    /// Returns the body as it was parsed, to pair it by other rules. Marks that a refusal's constraints have made stay.
    #[must_use]
    pub fn into_parsed(self) -> Parsed<'b> {
        Parsed {
            body: self.body,
            wire: self.wire,
            histories: self.histories.into_iter().map(PairedHistory::into_parsed).collect(),
            is_batch: self.is_batch,
            unread: self.unread,
        }
    }

    /// Returns the only history, or `None` for a batch.
    pub(super) fn only_conversation(&self) -> Option<&Conversation<'b>> {
        self.only_history().map(|history| &history.conversation)
    }

    fn only_history(&self) -> Option<&PairedHistory<'b>> {
        self.histories.first().filter(|_| !self.is_batch)
    }

    /// Makes calls with reusable ids unique within this conversation. With `None` they are not unique.
    pub fn set_conversation(&mut self, conversation: Option<[u8; 32]>) {
        for history in &mut self.histories {
            history.conversation_name = conversation;
            if let Some(name) = &conversation {
                for call in &mut history.open {
                    call.name_within(name);
                }
            }
        }
    }

    /// Returns facts about the body besides pairing. A batch has an empty outline.
    pub fn outline(&self) -> Outline {
        self.only_conversation().map(Outline::of).unwrap_or_default()
    }

    /// Returns the first block of signed thinking, as raw JSON.
    pub fn first_thinking(&self) -> Option<&'b [u8]> {
        let conversation = self.only_conversation()?;
        Some(conversation.first_thinking()?.of(conversation.body))
    }

    /// Fails if the body has findings and is no JSON. Such findings may be wrong.
    pub fn check_json(&self) -> Result<(), Unreadable> {
        self.findings().map(drop)
    }

    /// Returns the calls without a result in its place, in document order.
    pub fn open_calls(&self) -> impl Iterator<Item = &BodyCall> {
        self.histories.iter().flat_map(|history| &history.open)
    }

    /// Describes the calls with a result in its place.
    pub fn answered_calls(&self) -> Vec<BodyCall> {
        self.histories.iter().flat_map(PairedHistory::answered_calls).collect()
    }

    /// Returns `true` if the only history has a turn of the assistant.
    pub fn has_assistant_turn(&self) -> bool {
        let messages = self.only_conversation().map(|conversation| &conversation.messages);
        messages.is_some_and(|messages| messages.iter().any(|message| message.role == Role::Assistant))
    }

    /// Returns `true` if the only history contains a compaction by the provider.
    pub fn has_compaction(&self) -> bool {
        self.only_conversation()
            .is_some_and(|conversation| conversation.compaction.is_some())
    }

    /// Describes every call of the only history. Empty for a batch.
    pub fn all_calls(&self) -> Vec<BodyCall> {
        let whole = self.only_history();
        whole.map_or_else(Vec::new, |history| history.describe_calls(|_| true))
    }

    /// Returns `true` if only results may follow the last turn, because a tool runs at the provider.
    pub fn takes_only_results(&self) -> bool {
        let last = self.only_history().and_then(|history| history.pairing.turns.last());
        last.is_some_and(|turn| turn.only_results)
    }

    /// Returns the same as [`Parsed::first_call_id`].
    pub fn first_call_id(&self) -> Option<&[u8]> {
        first_call_id(self.only_conversation()?)
    }

    /// Returns `true` if the only history has this shape, and its dialect accepts it.
    pub fn has_shape(&self, shape: DisputedShape) -> bool {
        let Some(PairedHistory {
            conversation, pairing, ..
        }) = self.only_history()
        else {
            return false;
        };
        match shape {
            DisputedShape::TextBesideCalls => has_text_beside_calls(conversation, pairing),
            DisputedShape::AssistantFirst => {
                let first = first_speaker(&pairing.units);
                !self.wire.pairing_rules().user_first && first.is_some_and(|unit| unit.role == Role::Assistant)
            }
        }
    }

    /// Returns the number of messages of the only history. 0 for a batch.
    pub fn message_count(&self) -> usize {
        self.only_conversation()
            .map_or(0, |conversation| conversation.messages.len())
    }

    /// Returns the index of the message that contains the byte `at` of the only history. `None` if there is none.
    pub fn message_at(&self, at: usize) -> Option<usize> {
        let messages = &self.only_conversation()?.messages;
        // Messages are in document order, and do not overlap.
        let index = messages.partition_point(|message| message.span.end <= at);
        messages
            .get(index)
            .is_some_and(|message| message.span.start <= at)
            .then_some(index)
    }

    /// Returns every breach of the rules, in document order.
    pub fn findings(&self) -> Result<Vec<Finding>, Unreadable> {
        let mut all = Vec::new();
        for history in &self.histories {
            // Findings in invalid JSON may be wrong.
            match history.json {
                Ok(()) => {
                    work::count(history.findings.len());
                    all.extend(history.place_findings(history.findings.clone()));
                }
                Err(_) if self.is_batch => {}
                Err(reason) => return Err(reason),
            }
        }
        if self.is_batch {
            // Each entry is JSON, but the bytes between entries are not checked yet.
            check_json(&all, self.body)?;
        }
        Ok(all)
    }
}

/// Returns the id of the first call, unless another conversation may have it too.
fn first_call_id<'c>(conversation: &'c Conversation<'_>) -> Option<&'c [u8]> {
    work::count(conversation.parts.len());
    let mut parts = conversation.parts.iter();
    let id = parts.find_map(|part| match &part.kind {
        PartKind::Call(call) => Some(&*call.id),
        _ => None,
    })?;
    // Counters such as `call_0` are used again in every conversation.
    is_strong(id, b"").then_some(id)
}

/// Returns the rules by which [`check`](fn@super::check) judges a history, with the default policy.
pub(crate) fn checked_rules(wire: Wire) -> PairingRules {
    permitted_rules(wire, &PairingContext::new(&RepairPolicy::default()))
}

/// Returns the rules of the dialect and what was learned beyond them, as far as the policy permits.
fn permitted_rules(wire: Wire, context: &PairingContext<'_>) -> PairingRules {
    let rules = wire.pairing_rules();
    let rules = if context.applies_unproven {
        rules
    } else {
        without_unproven(rules, wire)
    };
    let rules = context.learned.permitted(context.policy).tighten(rules);
    let keeps_shape = context.policy.shapes || rules.words == WordsPlace::NotAfterResults;
    PairingRules {
        words: if keeps_shape { rules.words } else { WordsPlace::Anywhere },
        ..rules
    }
}

/// Validates `body` if there are findings.
fn check_json(findings: &[Finding], body: &[u8]) -> Result<(), Unreadable> {
    if findings.is_empty() { Ok(()) } else { validate(body) }
}
