//! The events that other rooms report, one struct each. They never contain content, secrets or query strings.

mod exchange;
mod handshake;
mod mends;
mod refusal;
mod trace;

pub use exchange::{AnswerSummary, ExchangeEnded};
pub use handshake::HandshakeFault;
pub use mends::MadeMend;
pub use refusal::{AskedConversation, RowOutcome, RowRefusal, UnknownRefusal};
pub(super) use trace::TraceTarget;
pub use trace::{ExchangeTrace, ModelRequest};

/// A result that a tool service posted.
#[derive(Clone, Copy, Debug)]
pub struct ResultPosted<'e> {
    /// The name of the service.
    pub service: &'e str,
    /// The proxy's answer: one of [`POST_ANSWERS`](super::POST_ANSWERS).
    pub answer: &'static str,
    /// Bytes of the content.
    pub bytes: usize,
    /// The program whose result it is; `None` if the service does not say.
    pub source: Option<&'e str>,
}
