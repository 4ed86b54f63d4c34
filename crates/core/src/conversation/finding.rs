//! Findings: breaches of the pairing rules, as values, listed from a pairing in document order.

use crate::{
    conversation::{
        Conversation, FlawKind, PartId, PartKind, WithoutResult,
        pairing::{MisplacedWords, Pairing, ResultRole, ResultRow, first_speaker, id_of},
        turns::TurnUnit,
    },
    work,
};

/// Detail of a finding about a result that names its tool and no call.
pub const STANDALONE: &str = "standalone";

/// The kinds of breach. Their names are stable: metric labels, `check` output, strict answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FindingKind {
    /// A client call without a required result.
    Unanswered,
    /// A result outside its place: later, earlier, after text, or inside an assistant message.
    Misplaced,
    /// A result whose call is not in this body, or that several open calls could own.
    Orphan,
    /// A second result for one call.
    Duplicate,
    /// One id on two calls of one turn, or of one body if the rules require that.
    DuplicateCall,
    /// A result without an id.
    NoId,
    /// An id that the provider rejects.
    BadId,
    /// A server call without a result in a closed turn, or a server result without a call.
    ServerHalf,
    /// An open call that cannot be answered for the client, because its result is a screenshot.
    Unanswerable,
    /// A history that begins with an assistant turn although the format requires the user first.
    Headless,
    /// Text after a call, or beside results, where the provider accepts none.
    MisplacedWords,
    /// A call whose input or name the provider rejects.
    MalformedCall,
    /// Hygiene: a field whose value the provider rejects.
    Field,
    /// Reasoning, a signature or a container that an answer carried, and that the client has dropped.
    LostContinuity,
    /// Thinking with a signature that cannot be the provider's, or without one.
    ForeignThinking,
    /// A response that the body continues from, that its provider has lost, and whose items the body contains.
    DeadResponse,
}

impl FindingKind {
    /// Every kind, in the order of the documentation.
    pub const ALL: [Self; 16] = [
        Self::Unanswered,
        Self::Misplaced,
        Self::Orphan,
        Self::Duplicate,
        Self::DuplicateCall,
        Self::NoId,
        Self::BadId,
        Self::ServerHalf,
        Self::Unanswerable,
        Self::Headless,
        Self::MisplacedWords,
        Self::MalformedCall,
        Self::Field,
        Self::LostContinuity,
        Self::ForeignThinking,
        Self::DeadResponse,
    ];

    /// Returns `true` if a message shows the breach by itself. Some details of `Field` need several messages.
    pub const fn is_of_one_message(self) -> bool {
        match self {
            Self::MalformedCall | Self::Field | Self::ForeignThinking => true,
            Self::Unanswered
            | Self::Misplaced
            | Self::Orphan
            | Self::Duplicate
            | Self::DuplicateCall
            | Self::NoId
            | Self::BadId
            | Self::ServerHalf
            | Self::Unanswerable
            | Self::Headless
            | Self::MisplacedWords
            | Self::LostContinuity
            | Self::DeadResponse => false,
        }
    }

    /// Returns the stable name: lower case, underscores.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Unanswered => "unanswered",
            Self::Misplaced => "misplaced",
            Self::Orphan => "orphan",
            Self::Duplicate => "duplicate",
            Self::DuplicateCall => "duplicate_call",
            Self::NoId => "no_id",
            Self::BadId => "bad_id",
            Self::ServerHalf => "server_half",
            Self::Unanswerable => "unanswerable",
            Self::Headless => "headless",
            Self::MisplacedWords => "misplaced_words",
            Self::MalformedCall => "malformed_call",
            Self::Field => "field",
            Self::LostContinuity => "lost_continuity",
            Self::ForeignThinking => "foreign_thinking",
            Self::DeadResponse => "dead_response",
        }
    }

    /// Returns one sentence for a human, without ids.
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Unanswered => "the tool call has no result where one is due",
            Self::Misplaced => "the result of the tool call is not where the provider expects it",
            Self::Orphan => "the tool result answers no open call of this history",
            Self::Duplicate => "the tool call is answered already; this is a further result",
            Self::DuplicateCall => "two tool calls of one turn have the same id",
            Self::NoId => "the tool result names no call",
            Self::BadId => "the provider rejects this tool call id",
            Self::ServerHalf => "a server tool call without its result, or a result without its call",
            Self::Unanswerable => "the tool call has no result, and nobody can give one in the client's place",
            Self::Headless => "the history begins with an assistant message",
            Self::MisplacedWords => {
                "text is where this provider accepts none: after a tool call, or beside tool results"
            }
            Self::MalformedCall => "the provider rejects the input or the name of this tool call",
            Self::Field => "the provider rejects the value of this field",
            Self::LostContinuity => "the provider wants back what its answer carried with this call, and it is missing",
            Self::ForeignThinking => "the signature of this thinking cannot be the provider's own",
            Self::DeadResponse => {
                "the provider no longer has the response that the request continues from, \
                 and the history contains all of its items"
            }
        }
    }
}

/// One breach, with its place in the client's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of breach.
    pub kind: FindingKind,
    /// Index of the message in the history, from 0.
    pub message: usize,
    /// Index of the block in the message's content (Anthropic) or of the call in `tool_calls` (chat), from 0.
    /// `None` if the whole message is at fault.
    pub part: Option<usize>,
    /// The call id as text, lossily decoded. Empty if there is none.
    pub id: String,
    /// Path of the history in the body: empty, or `requests[3].params.`.
    pub within: String,
    /// Stable name of the exact fault, for kinds that cover several (`Field`). `None` for the others.
    pub detail: Option<&'static str>,
}

impl Finding {
    /// Returns the finding for a remote call that the body must answer.
    pub fn unanswered_remote_call(id: String) -> Self {
        Self {
            id,
            ..at_message(FindingKind::Unanswered, 0, Some("held_by_the_provider"))
        }
    }

    /// Returns the finding for a response that its provider has lost.
    pub fn dead_response(id: String) -> Self {
        Self {
            id,
            ..at_message(FindingKind::DeadResponse, 0, None)
        }
    }

    /// Returns the finding for an item whose id an earlier item has.
    pub fn repeated_item(message: usize) -> Self {
        at_message(FindingKind::Field, message, Some(FlawKind::RepeatedItemId.code()))
    }

    /// Returns the finding for a call whose id an earlier call of the body has.
    pub fn repeated_call(message: usize, id: String) -> Self {
        Self {
            id,
            ..at_message(FindingKind::DuplicateCall, message, None)
        }
    }

    /// Returns the finding for a lone surrogate in a message, or in one of its parts.
    pub fn lone_surrogate(message: usize, part: Option<usize>) -> Self {
        Self {
            part,
            ..at_message(FindingKind::Field, message, Some("lone_surrogate"))
        }
    }

    /// Places the finding in a history at `path` of a larger body.
    #[must_use]
    pub fn within(self, path: &str) -> Self {
        Self {
            within: format!("{path}{}", self.within),
            ..self
        }
    }
}

/// Lists every breach, in document order.
pub fn findings(pairing: &Pairing, conversation: &Conversation<'_>) -> Vec<Finding> {
    let mut list = FindingList {
        conversation,
        found: Vec::new(),
    };
    if pairing.headless {
        let message = first_speaker(&pairing.units).map_or(0, |unit| unit.message);
        list.found
            .push((PartId::default(), at_message(FindingKind::Headless, message, None)));
    }
    for call in &pairing.calls {
        work::count(1);
        if call.repeats.is_some() {
            list.push_part(FindingKind::DuplicateCall, call.part);
        }
        if call.bad_id {
            list.push_part(FindingKind::BadId, call.part);
        }
        match call.without_result {
            _ if call.result.is_some() => {}
            WithoutResult::Refused => list.push_part(FindingKind::Unanswered, call.part),
            WithoutResult::Unanswerable => list.push_part(FindingKind::Unanswerable, call.part),
            WithoutResult::Legal => {}
        }
    }
    for row in &pairing.results {
        work::count(1);
        if row.nameless {
            list.push_nameless(row.part);
        }
        if let Some(kind) = result_finding(pairing, row) {
            list.push_part(kind, row.part);
        }
    }
    for half in &pairing.server_halves {
        list.push_part(FindingKind::ServerHalf, half.part);
    }
    for words in &pairing.misplaced_words {
        if let Some(unit) = pairing.units.get(words.unit) {
            list.push_words(words, unit);
        }
    }
    for (flaw, _) in &pairing.flaws {
        list.push_flaw(flaw.message, flaw.part, flaw.kind);
    }
    for part in &conversation.foreign_thinking {
        list.push_part(FindingKind::ForeignThinking, *part);
    }
    work::count(list.found.len());
    // The sort is stable: several findings of one part keep the order above.
    list.found.sort_by_key(|(part, finding)| (finding.message, *part));
    list.found.into_iter().map(|(_, finding)| finding).collect()
}

/// Returns the breach that a result is, by its role and place.
fn result_finding(pairing: &Pairing, row: &ResultRow) -> Option<FindingKind> {
    match row.role {
        ResultRole::Answers(_) => {
            // Even a result in its place must move out of an assistant message or before a system message.
            let inner = pairing.units.get(row.unit).is_some_and(|unit| unit.inner);
            let after_system = row
                .turn
                .and_then(|turn| pairing.turns.get(turn.index()))
                .is_some_and(|turn| !turn.systems.is_empty());
            (!row.in_place || inner || after_system).then_some(FindingKind::Misplaced)
        }
        ResultRole::Repeats(_) | ResultRole::RepeatsResult(_) | ResultRole::RepeatsRemote => {
            Some(FindingKind::Duplicate)
        }
        // A result without an id that matches no call is already reported as `NoId`.
        ResultRole::Orphan if row.nameless => None,
        ResultRole::Orphan | ResultRole::Strays(_) => Some(FindingKind::Orphan),
        ResultRole::AlsoAnswers(_) | ResultRole::NotJudged => None,
    }
}

struct FindingList<'c, 'a> {
    conversation: &'c Conversation<'a>,
    /// Findings with the part by which they are sorted.
    found: Vec<(PartId, Finding)>,
}

impl FindingList<'_, '_> {
    fn push_part(&mut self, kind: FindingKind, part: PartId) {
        let message = self.conversation.part(part).map_or(0, |found| found.message);
        let ordinal = self.part_ordinal(part);
        let id = self.id_text(part);
        self.found.push((
            part,
            Finding {
                kind,
                message,
                part: ordinal,
                id,
                within: String::new(),
                detail: None,
            },
        ));
    }

    /// Adds a result without an id, with the detail [`STANDALONE`] if it names its tool.
    fn push_nameless(&mut self, part: PartId) {
        self.push_part(FindingKind::NoId, part);
        let kind = self.conversation.part(part).map(|found| &found.kind);
        let is_standalone = matches!(kind, Some(PartKind::Result(result)) if result.standalone);
        if is_standalone && let Some((_, finding)) = self.found.last_mut() {
            finding.detail = Some(STANDALONE);
        }
    }

    /// Returns the id of a call or result as text; empty for other parts.
    fn id_text(&self, part: PartId) -> String {
        let id = id_of(self.conversation, part);
        work::count_bytes(id.len());
        String::from_utf8_lossy(id).into_owned()
    }

    /// Returns the index of a part inside its message. `None` if the part is the whole message.
    fn part_ordinal(&self, part: PartId) -> Option<usize> {
        let found = self.conversation.part(part)?;
        let whole = self.conversation.messages.get(found.message)?.span;
        (found.span != whole).then(|| self.conversation.part_ordinal(part))
    }

    /// Adds misplaced text, with the id of the call or result beside it.
    fn push_words(&mut self, words: &MisplacedWords, unit: &TurnUnit) {
        let label = words.place_label(unit.role);
        let mut finding = at_message(FindingKind::MisplacedWords, unit.message, Some(label));
        finding.part = words.part.and_then(|part| self.part_ordinal(part));
        finding.id = self.id_text(words.beside);
        self.found.push((words.part.unwrap_or_default(), finding));
    }

    fn push_flaw(&mut self, message: usize, part: Option<PartId>, kind: FlawKind) {
        let ordinal = part.and_then(|part| self.part_ordinal(part));
        let is_call = kind.is_malformed_call();
        let finding_kind = if is_call {
            FindingKind::MalformedCall
        } else {
            FindingKind::Field
        };
        let mut finding = at_message(finding_kind, message, Some(kind.code()));
        finding.part = ordinal;
        if let Some(part) = part.filter(|_| is_call) {
            finding.id = self.id_text(part);
        }
        // Without a part the finding sorts before the parts of its message.
        self.found.push((part.unwrap_or_default(), finding));
    }
}

fn at_message(kind: FindingKind, message: usize, detail: Option<&'static str>) -> Finding {
    Finding {
        kind,
        message,
        part: None,
        id: String::new(),
        within: String::new(),
        detail,
    }
}
