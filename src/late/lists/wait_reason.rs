//! Reasons for which a call or a result waits, in words for operators.

use crate::late::records::PostRefusal;

/// The reason for which a call or a result is where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitReason {
    /// The call had no answer at the post, and no request has come since.
    NoRequest,
    /// The conversation had gone on before the post, and its user has not written since.
    NoUserMessage,
    /// The state of [`NoUserMessage`](Self::NoUserMessage) with a ledger in memory, so that nothing is appended.
    NeverAppended,
    /// A request contained the result, and no later turn has confirmed it.
    InRequest,
    /// A provider refused the result.
    Withheld,
    /// The tool has not finished.
    Running,
    /// The tool has not finished at its deadline.
    Overdue,
    /// No call of this id is recorded.
    NoCall,
    /// A call of this id is recorded, and a second one may follow.
    UnsettledMatch,
    /// The service that posted the result is not configured any more.
    NoService,
    /// The result was refused.
    Refused(PostRefusal),
}

impl WaitReason {
    /// Returns the stable name, for programs.
    pub const fn label(self) -> &'static str {
        match self {
            Self::NoRequest => "no_request",
            Self::NoUserMessage => "no_user_message",
            Self::NeverAppended => "never_appended",
            Self::InRequest => "in_request",
            Self::Withheld => "withheld",
            Self::Running => "running",
            Self::Overdue => "overdue",
            Self::NoCall => "no_call",
            Self::UnsettledMatch => "unsettled_match",
            Self::NoService => "no_service",
            Self::Refused(refusal) => refusal.label(),
        }
    }

    /// Returns the reason in plain words, with what ends the wait.
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::NoRequest => {
                "no request of this conversation has come since the post; the next one gets the result in its place"
            }
            Self::NoUserMessage => {
                "the conversation had gone on before the post; the next message of its user gets the result, or confirms \
                 that the message before got it"
            }
            Self::NeverAppended => {
                "the conversation had gone on before the post, and a ledger in memory appends nothing; the caller can \
                 read the result under /ledger/v1/outstanding"
            }
            Self::InRequest => {
                "a request contained the result; the next turn of the conversation confirms that its model has read it"
            }
            Self::Withheld => {
                "a provider refused the request that contained the result; no request gets it until its service \
                 corrects it"
            }
            Self::Running => "no service has posted the result yet",
            Self::Overdue => "the deadline of the tool has passed, and no service has posted the result",
            Self::NoCall => "no such call is recorded yet",
            Self::UnsettledMatch => "the owner of the result is not certain yet; this settles by itself within seconds",
            Self::NoService => "the service that posted the result is not configured any more",
            Self::Refused(PostRefusal::Conflict) => "the call has another result already; the first one stays",
            Self::Refused(PostRefusal::Ambiguous) => "the id does not identify one call",
            Self::Refused(PostRefusal::Expired) => "the call had expired before the post",
            Self::Refused(PostRefusal::Cancelled) => "the call had been undone before the post",
            Self::Refused(PostRefusal::Unclaimed) => "the result was parked, and no call claimed it in time",
        }
    }
}
