//! Evidence in a body that is relayed unread: whether a model gave the answer, and the cause of an error.
//!
//! It is collected while the bytes pass, and delays none of them.

use crate::{
    policy::{Observation, ProviderErrorInfo, Verdict, classify},
    provider::ProviderKind,
    refusals::RefusalReader,
    wire::REFUSAL_BYTES_MAX,
};

/// Beginnings of an event stream, after white space. A comment begins with a colon.
const EVENT_STARTS: [&[u8]; 5] = [b":", b"data:", b"event:", b"id:", b"retry:"];
/// Bytes of the longest of [`EVENT_STARTS`].
const OPENING_BYTES_MAX: usize = 6;
/// The byte order mark, which some servers send first.
const BYTE_ORDER_MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// The part of a body that the verdict on its exchange depends on.
#[derive(Debug)]
pub(super) enum BodyEvidence {
    /// Nothing: the head tells everything, or the bytes cannot be read.
    Unneeded,
    /// The first bytes of an answer in a known format.
    Opening(BodyOpening),
    /// An error that nobody has read.
    Error(UnreadError),
}

impl BodyEvidence {
    /// Reads the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        match self {
            Self::Unneeded => {}
            Self::Opening(opening) => opening.push(bytes),
            Self::Error(error) => error.push(bytes),
        }
    }

    /// Returns the verdict on a complete answer that no model gave. `None` if a model may have given it.
    pub(super) fn foreign_verdict(&self) -> Option<Verdict> {
        match self {
            Self::Opening(opening) if !opening.is_answer() => {
                Some(classify(Observation::NoAnswer { is_redirect: false }))
            }
            _ => None,
        }
    }

    /// Returns the verdict on an error by its status and the text so far. `None` if the body is no unread error.
    pub(super) fn error_verdict(&self, kind: ProviderKind) -> Option<Verdict> {
        match self {
            Self::Error(error) => Some(error.verdict(kind)),
            _ => None,
        }
    }
}

/// The first bytes of a body after white space.
#[derive(Debug, Default)]
pub(super) struct BodyOpening(Vec<u8>);

impl BodyOpening {
    fn push(&mut self, bytes: &[u8]) {
        if self.0.len() >= OPENING_BYTES_MAX {
            return;
        }
        let is_blank = |byte: &u8| byte.is_ascii_whitespace() || BYTE_ORDER_MARK.contains(byte);
        let blank = if self.0.is_empty() {
            bytes.iter().take_while(|byte| is_blank(byte)).count()
        } else {
            0
        };
        let room = OPENING_BYTES_MAX.saturating_sub(self.0.len());
        self.0.extend(bytes.iter().skip(blank).take(room));
    }

    /// Returns `true` for JSON and for events. Compatible servers send them under many content types.
    fn is_answer(&self) -> bool {
        self.0.starts_with(b"{")
            || self.0.starts_with(b"[")
            || EVENT_STARTS.iter().any(|start| self.0.starts_with(start))
    }
}

/// The status and the body of an error that is relayed.
#[derive(Debug)]
pub(super) struct UnreadError {
    status: u16,
    /// The type that a header names.
    header_kind: Option<String>,
    /// The rows by which refusals are read.
    refusals: RefusalReader,
    body: Vec<u8>,
}

impl UnreadError {
    /// Begins with an empty body.
    pub(super) const fn new(status: u16, header_kind: Option<String>, refusals: RefusalReader) -> Self {
        Self {
            status,
            header_kind,
            refusals,
            body: Vec::new(),
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        // One byte more than the limit shows that the text is cut off, and then it is not JSON any more.
        let room = REFUSAL_BYTES_MAX.saturating_add(1).saturating_sub(self.body.len());
        self.body.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    fn verdict(&self, kind: ProviderKind) -> Verdict {
        let mut error = ProviderErrorInfo::parse_body(Some(self.status), &self.body, &self.refusals);
        if let Some(named) = &self.header_kind {
            error.kind.clone_from(named);
        }
        classify(Observation::Response {
            kind,
            status: self.status,
            error: &error,
        })
    }
}
