//! The kinds of records.

/// The kind of a record. The numbers are stored in files, so a number is never reused for another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum RecordKind {
    /// A verified caller: a provider has answered this principal with success.
    Principal = 1,
    /// A recorded tool call, with its posted result once there is one.
    Call = 2,
    /// The pinned result of a call.
    PinnedResult = 3,
    /// Late-result text that was appended to a message and stays there.
    AppendedText = 4,
    /// A posted result that its owner has not received yet.
    Delivery = 5,
    /// A result that was posted before its call was recorded.
    Parked = 6,
    /// A posted result that was refused.
    RefusedResult = 7,
    /// A result that a client brought in a request.
    ClientResult = 8,
    /// A value that an answer carried and that the provider wants back: a signature, a container, or reasoning.
    Continuity = 9,
    /// A block of thinking that a provider has accepted, or refused as foreign.
    Thinking = 10,
    /// The content of a posted result that is too long for the record of its call.
    ResultContent = 11,
    /// The calls that stood in the history of a lane when its client or provider compacted it.
    CompactedCalls = 12,
    /// The profile that owns an object at a provider.
    ObjectOwner = 13,
    /// The claim, the state and the result of an intent.
    Intent = 14,
    /// A message to a tool service or a webhook.
    Outgoing = 15,
    /// The last request of a lane with calls that can be cancelled.
    LaneSign = 16,
    /// The last read of a caller's feed or list of results.
    Reader = 17,
    /// The new conversation that takes a result of one that was left.
    Reservation = 18,
    /// A link to the task page of one person.
    TaskLink = 19,
    /// The cooldown of a key that a provider's answer has begun or ended.
    SharedCooldown = 20,
    /// A fact that was learned about a caller, mostly from a refusal and the success after it.
    LearnedFact = 21,
    /// The shape in which a provider has accepted a conversation, of those that some servers refuse.
    DisputedShape = 22,
    /// The items that a response stands for: their number and a hash.
    ResponseChain = 23,
}

impl RecordKind {
    /// Returns `true` if a ledger announces the changes of such records: caches of other processes depend on them.
    pub const fn is_announced(self) -> bool {
        matches!(
            self,
            Self::AppendedText
                | Self::Delivery
                | Self::Parked
                | Self::CompactedCalls
                | Self::ObjectOwner
                | Self::Outgoing
                | Self::SharedCooldown
                | Self::Continuity
                | Self::Thinking
                | Self::LearnedFact
        )
    }

    /// Every kind.
    pub const ALL: [Self; 23] = [
        Self::Principal,
        Self::Call,
        Self::PinnedResult,
        Self::AppendedText,
        Self::Delivery,
        Self::Parked,
        Self::RefusedResult,
        Self::ClientResult,
        Self::Continuity,
        Self::Thinking,
        Self::ResultContent,
        Self::CompactedCalls,
        Self::ObjectOwner,
        Self::Intent,
        Self::Outgoing,
        Self::LaneSign,
        Self::Reader,
        Self::Reservation,
        Self::TaskLink,
        Self::SharedCooldown,
        Self::LearnedFact,
        Self::DisputedShape,
        Self::ResponseChain,
    ];

    /// The label of every kind, in the order of [`ALL`](Self::ALL).
    pub const LABELS: [&str; Self::ALL.len()] = {
        let mut labels = [""; Self::ALL.len()];
        let mut at = 0;
        while at < labels.len() {
            labels[at] = Self::ALL[at].label();
            at += 1;
        }
        labels
    };

    /// Returns the name that logs and `antiphon store` show.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Principal => "principal",
            Self::Call => "call",
            Self::PinnedResult => "frozen",
            Self::AppendedText => "anchor",
            Self::Delivery => "delivery",
            Self::Parked => "parked",
            Self::RefusedResult => "evidence",
            Self::ClientResult => "seen",
            Self::Continuity => "continuity",
            Self::Thinking => "thinking",
            Self::ResultContent => "content",
            Self::CompactedCalls => "compacted",
            Self::ObjectOwner => "object",
            Self::Intent => "intent",
            Self::Outgoing => "outgoing",
            Self::LaneSign => "lane_sign",
            Self::Reader => "reader",
            Self::Reservation => "reservation",
            Self::TaskLink => "task_link",
            Self::SharedCooldown => "key_rest",
            Self::LearnedFact => "fact",
            Self::DisputedShape => "shape",
            Self::ResponseChain => "chain",
        }
    }
}
