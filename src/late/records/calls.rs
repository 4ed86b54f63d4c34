//! The records of late results, and their bytes in the ledger: calls with their results, parked and refused results.
//!
//! The first byte is the format version, the second the kind of record. A record is read as a whole: an unknown,
//! truncated or too long one decodes to `None`.

use std::time::Duration;

use bytes::Bytes;

use super::{
    RecordedCallState,
    bytes::{RecordReader, RecordWriter},
    call_names::call_index,
    retention::{RETENTION_GRACE, retained_until},
};
use crate::{
    auth::{Owner, PrincipalHash},
    ledger::{Index, Moment, Record, RecordKey, RecordKind, RecordName},
    repair::Tier,
    session::SessionStrength,
    table::RecordValue,
};

/// The format version of calls. Version 1 had every content in its record, and nothing of a call after it. Version 2 had
/// nothing of intents and of carry-over, version 3 nothing of the requests that contain a result.
const CALL_VERSION: u8 = 4;
/// The format version of calls whose result is only restored. It differs from the one before by nothing else, so that
/// earlier processes read every other call.
const RESTORED_CALL_VERSION: u8 = 5;
/// The format version of parked and refused results. Version 1 had every content in its record.
const VERSION: u8 = 2;
/// The format version of parked results that are only restored, likewise.
const RESTORED_VERSION: u8 = 3;
const CALL: u8 = 1;
const PARKED: u8 = 2;
const EVIDENCE: u8 = 3;

/// The longest content, in bytes, that is stored in the record of its call. Lists read these records.
pub const INLINE_BYTES_MAX: usize = 1024;

/// The content of a stored result.
#[derive(Clone, PartialEq, Eq)]
pub enum StoredContent {
    /// The content itself. Invariant: one valid JSON value.
    Inline(String),
    /// The length, in bytes, of a content in a record of its own.
    Apart(u64),
}

impl StoredContent {
    /// Returns the length of the content in bytes.
    pub const fn byte_len(&self) -> u64 {
        match self {
            Self::Inline(content) => content.len() as u64,
            Self::Apart(length) => *length,
        }
    }

    /// Moves a long content out. The rest goes into the record of the call, the content into a record of its own.
    pub fn split_long(&mut self) -> Option<String> {
        if self.byte_len() > INLINE_BYTES_MAX as u64 {
            self.split_any()
        } else {
            None
        }
    }

    /// Moves a content of any length out.
    pub fn split_any(&mut self) -> Option<String> {
        let apart = Self::Apart(self.byte_len());
        match std::mem::replace(self, apart) {
            Self::Inline(content) => Some(content),
            Self::Apart(_) => None,
        }
    }

    /// Appends the content, or its length, to a record.
    pub(in crate::late) fn write_to(&self, to: &mut RecordWriter) {
        match self {
            Self::Inline(content) => {
                to.write_flag(false);
                to.write_text(content.as_bytes());
            }
            Self::Apart(length) => {
                to.write_flag(true);
                to.write_number(*length);
            }
        }
    }

    /// Reads what [`StoredContent::write_to`] has written.
    pub(in crate::late) fn read_from(from: &mut RecordReader<'_>) -> Option<Self> {
        Some(if from.read_flag()? {
            Self::Apart(from.read_number()?)
        } else {
            Self::Inline(from.read_utf8()?)
        })
    }
}

impl std::fmt::Debug for StoredContent {
    // The content belongs to a conversation, so it never reaches a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StoredContent({} bytes)", self.byte_len())
    }
}

/// A result as a service posted it.
#[derive(Clone, PartialEq, Eq)]
pub struct PostedResult {
    /// The content.
    pub content: StoredContent,
    /// `true` if the tool reported an error.
    pub failed: bool,
    /// The hash of the content and of `failed`. Two posts are the same result if their digests are equal.
    pub digest: [u8; 32],
    /// The time of the post.
    pub posted_at: Moment,
    /// The name of the service that posted it.
    pub service: String,
    /// `true` if the call's turn was still the last of its lane.
    pub attached: bool,
    /// `true` if the result is restored in the place of its call, and never appended. Refused results do not have it.
    pub only_if_missing: bool,
}

impl PostedResult {
    /// Creates a result, not attached to a turn yet.
    pub fn new(content: String, failed: bool, service: &str, posted_at: Moment) -> Self {
        Self {
            digest: Self::digest_of(&content, failed),
            content: StoredContent::Inline(content),
            failed,
            posted_at,
            service: service.to_owned(),
            attached: false,
            only_if_missing: false,
        }
    }

    /// Returns the digest of a result.
    fn digest_of(content: &str, failed: bool) -> [u8; 32] {
        let mut hash = blake3::Hasher::new();
        // One byte of fixed length goes first, so that flag and content cannot run into each other.
        hash.update(&[u8::from(failed)]);
        hash.update(content.as_bytes());
        hash.finalize().into()
    }

    /// Appends the result to a record.
    fn write_to(&self, to: &mut RecordWriter) {
        self.content.write_to(to);
        to.write_flag(self.failed);
        to.write_bytes(&self.digest);
        to.write_moment(self.posted_at);
        to.write_text(self.service.as_bytes());
        to.write_flag(self.attached);
    }

    /// Reads the result from a record.
    fn read_from(from: &mut RecordReader<'_>) -> Option<Self> {
        // Version 1 had no flag: its contents were all in the record.
        let has_flag = from.version() > 1;
        Some(Self {
            content: if has_flag {
                StoredContent::read_from(from)?
            } else {
                StoredContent::Inline(from.read_utf8()?)
            },
            failed: from.read_flag()?,
            digest: from.read_bytes()?,
            posted_at: from.read_moment()?,
            service: from.read_utf8()?,
            attached: from.read_flag()?,
            only_if_missing: false,
        })
    }
}

impl std::fmt::Debug for PostedResult {
    // The content belongs to a conversation, so it never reaches a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PostedResult({:?}, failed {})", self.content, self.failed)
    }
}

/// A recorded call. Its ledger key contains the principal that owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of a call")]
pub struct RecordedCall {
    /// The account of its principal, without the user: services are configured by account.
    pub account: PrincipalHash,
    /// The lane in which an exchange saw the call.
    pub lane: Option<[u8; 32]>,
    /// The hash of the session name. `None` if the client named no session.
    pub session: Option<[u8; 32]>,
    /// The session name, for its owner to read. `None` in records of version 1.
    pub session_label: Option<Box<str>>,
    /// The reliability of the session id.
    pub strength: SessionStrength,
    /// The call id, exactly as the exchange saw it.
    pub id: Vec<u8>,
    /// The name of the tool.
    pub tool: Vec<u8>,
    /// The hash of the canonical input. `None` if it was not known yet.
    pub input: Option<[u8; 32]>,
    /// The reversibility of the tool's effect.
    pub tier: Tier,
    /// The time of the recording.
    pub opened_at: Moment,
    /// The time of the last heartbeat, or of the recording.
    pub heartbeat_at: Moment,
    /// The time until which the tool may run.
    pub deadline: Moment,
    /// The time from which no result is accepted, unless the effect cannot be undone.
    pub expires_at: Moment,
    /// The state.
    pub state: RecordedCallState,
    /// The first result that was posted, or its correction.
    pub posted: Option<PostedResult>,
    /// `true` if an answer emitted the call, `false` if a request showed it.
    pub is_emitted: bool,
    /// `true` if another session has a different call of the same id, tool and input.
    pub has_twin: bool,
    /// `true` if a provider refused the result, so that no request gets it until it is corrected.
    pub is_withheld: bool,
    /// `true` if a request contains the result, so that it cannot be corrected unless it is withheld.
    pub is_in_request: bool,
    /// The digest of the input by which its intent is named. `None` if the input was not known yet.
    pub intent_input: Option<[u8; 32]>,
    /// The name of the intent that a service has claimed for the call.
    pub intent: Option<RecordName>,
    /// The hash of the upstream and the client program of its conversation. `None` if the result is not carried over.
    pub origin: Option<[u8; 32]>,
}

/// A recorded call, and the name of its record.
pub type NamedCallRecord = (RecordName, RecordedCall);

impl RecordedCall {
    /// Returns `true` if the result waits for its conversation. That of a read, or one that its service wants only in the
    /// place of its call, is restored if a request shows its call, but it is never pushed.
    pub(in crate::late) fn is_pushed(&self) -> bool {
        self.state == RecordedCallState::Settled && self.may_be_pushed()
    }

    /// Returns `true` if the result is appended where its call has another answer.
    pub(in crate::late) fn may_be_pushed(&self) -> bool {
        self.tier != Tier::Read && !self.is_only_restored()
    }

    /// Returns `true` if the service wants the result only in the place of its call.
    pub(in crate::late) fn is_only_restored(&self) -> bool {
        self.posted.as_ref().is_some_and(|posted| posted.only_if_missing)
    }
}

impl RecordValue for RecordedCall {
    const KIND: RecordKind = RecordKind::Call;

    fn encode(&self) -> Bytes {
        // The order of the fields is the file format: `decode` reads them in the same order.
        let version = if self.is_only_restored() {
            RESTORED_CALL_VERSION
        } else {
            CALL_VERSION
        };
        let mut to = RecordWriter::new(version, CALL);
        to.write_bytes(&self.account);
        to.write_optional_hash(self.lane.as_ref());
        to.write_optional_hash(self.session.as_ref());
        to.write_flag(self.strength == SessionStrength::Strong);
        to.write_text(&self.id);
        to.write_text(&self.tool);
        to.write_optional_hash(self.input.as_ref());
        to.write_position(&TIERS, self.tier);
        for moment in [self.opened_at, self.heartbeat_at, self.deadline, self.expires_at] {
            to.write_moment(moment);
        }
        to.write_position(&RecordedCallState::ALL, self.state);
        to.write_flag(self.posted.is_some());
        if let Some(posted) = &self.posted {
            posted.write_to(&mut to);
        }
        for flag in [self.is_emitted, self.has_twin, self.is_withheld] {
            to.write_flag(flag);
        }
        to.write_flag(self.session_label.is_some());
        if let Some(label) = &self.session_label {
            to.write_text(label.as_bytes());
        }
        to.write_optional_hash(self.intent_input.as_ref());
        to.write_optional_hash(self.intent.as_ref());
        to.write_optional_hash(self.origin.as_ref());
        to.write_flag(self.is_in_request);
        to.into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = RecordReader::new(bytes, RESTORED_CALL_VERSION, CALL)?;
        let is_current = from.version() > 1;
        let mut call = Self {
            account: from.read_bytes()?,
            lane: from.read_optional_hash()?,
            session: from.read_optional_hash()?,
            session_label: None,
            strength: if from.read_flag()? {
                SessionStrength::Strong
            } else {
                SessionStrength::Weak
            },
            id: from.read_text()?.to_vec(),
            tool: from.read_text()?.to_vec(),
            input: from.read_optional_hash()?,
            tier: from.read_position(&TIERS)?,
            opened_at: from.read_moment()?,
            heartbeat_at: from.read_moment()?,
            deadline: from.read_moment()?,
            expires_at: from.read_moment()?,
            state: from.read_position(&RecordedCallState::ALL)?,
            posted: if from.read_flag()? {
                Some(PostedResult::read_from(&mut from)?)
            } else {
                None
            },
            is_emitted: is_current && from.read_flag()?,
            has_twin: is_current && from.read_flag()?,
            is_withheld: is_current && from.read_flag()?,
            is_in_request: false,
            intent_input: None,
            intent: None,
            origin: None,
        };
        if is_current && from.read_flag()? {
            call.session_label = Some(from.read_utf8()?.into());
        }
        if from.version() > 2 {
            call.intent_input = from.read_optional_hash()?;
            call.intent = from.read_optional_hash()?;
            call.origin = from.read_optional_hash()?;
        }
        call.is_in_request = from.version() > 3 && from.read_flag()?;
        if from.version() == RESTORED_CALL_VERSION {
            call.posted.as_mut()?.only_if_missing = true;
        }
        // Trailing bytes mean damage: a record is read as a whole or not at all.
        from.expect_end()?;
        Some(call)
    }

    fn index(&self, _key: &RecordKey) -> Option<Index> {
        Some(call_index(&self.id))
    }

    fn expires_at(&self, _now: Moment, ttl: Duration) -> Moment {
        retained_until(self, ttl)
    }

    fn replaced_until(&self, record: &Record, ttl: Duration) -> Moment {
        record.expires_at.max(retained_until(self, ttl))
    }
}

/// A call of a request body whose posted result is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallQuery {
    /// The call id.
    pub id: Vec<u8>,
    /// The name of the tool.
    pub tool: Vec<u8>,
    /// The hash of the canonical input.
    pub input_hash: [u8; 32],
    /// The hash of the session id. `None` if the client named no session.
    pub session: Option<[u8; 32]>,
}

/// The tiers. Ledger files contain these positions, so a position is never reused.
pub const TIERS: [Tier; 4] = [Tier::Read, Tier::Revertible, Tier::Durable, Tier::OneWay];

/// A result that was posted before its call was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedResult {
    /// The call id that the service named.
    pub call_id: Vec<u8>,
    /// The owner that the service named.
    pub owner: Option<Owner>,
    /// The session that the service named.
    pub session: Option<Vec<u8>>,
    /// The tool and the hash of the input that the service named.
    pub described: Option<(Vec<u8>, [u8; 32])>,
    /// The posted result.
    pub posted: PostedResult,
}

impl RecordValue for ParkedResult {
    const KIND: RecordKind = RecordKind::Parked;

    fn encode(&self) -> Bytes {
        let version = if self.posted.only_if_missing {
            RESTORED_VERSION
        } else {
            VERSION
        };
        let mut to = RecordWriter::new(version, PARKED);
        to.write_text(&self.call_id);
        to.write_flag(self.owner.is_some());
        if let Some(owner) = self.owner {
            to.write_bytes(owner.as_bytes());
        }
        self.posted.write_to(&mut to);
        to.write_flag(self.session.is_some());
        if let Some(session) = &self.session {
            to.write_text(session);
        }
        to.write_flag(self.described.is_some());
        if let Some((tool, input)) = &self.described {
            to.write_text(tool);
            to.write_bytes(input);
        }
        to.into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = RecordReader::new(bytes, RESTORED_VERSION, PARKED)?;
        let is_current = from.version() > 1;
        let mut parked = Self {
            call_id: from.read_text()?.to_vec(),
            owner: if from.read_flag()? {
                Some(Owner::new(from.read_bytes()?))
            } else {
                None
            },
            session: None,
            described: None,
            posted: PostedResult::read_from(&mut from)?,
        };
        if is_current && from.read_flag()? {
            parked.session = Some(from.read_text()?.to_vec());
        }
        if is_current && from.read_flag()? {
            parked.described = Some((from.read_text()?.to_vec(), from.read_bytes()?));
        }
        parked.posted.only_if_missing = from.version() == RESTORED_VERSION;
        from.expect_end()?;
        Some(parked)
    }

    fn index(&self, _key: &RecordKey) -> Option<Index> {
        Some(call_index(&self.call_id))
    }

    fn expires_at(&self, now: Moment, ttl: Duration) -> Moment {
        // Longer than it waits, so that its expiry is noticed.
        now + ttl + RETENTION_GRACE
    }
}

/// The reason for which a posted result was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PostRefusal {
    /// The call already has a different result.
    Conflict,
    /// The id does not identify one call.
    Ambiguous,
    /// The result came too late.
    Expired,
    /// The call was undone.
    Cancelled,
    /// The result was parked, and no call has claimed it in time.
    Unclaimed,
}

impl PostRefusal {
    /// Every reason. Ledger files contain these positions, so a position is never reused.
    pub const ALL: [Self; 5] = [
        Self::Conflict,
        Self::Ambiguous,
        Self::Expired,
        Self::Cancelled,
        Self::Unclaimed,
    ];

    /// Returns the name, which is a metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Ambiguous => "ambiguous",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Unclaimed => "unclaimed",
        }
    }
}

/// A refused result. It is stored for operators, and no conversation ever gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedResult {
    /// The call id that the service named.
    pub call_id: Vec<u8>,
    /// The reason.
    pub reason: PostRefusal,
    /// The posted result.
    pub posted: PostedResult,
}

impl RefusedResult {
    /// Returns the length of the content in bytes. `None` if only its digest is stored.
    pub fn content_len(&self) -> Option<u64> {
        let StoredContent::Inline(content) = &self.posted.content else {
            return Some(self.posted.content.byte_len());
        };
        let is_whole = PostedResult::digest_of(content, self.posted.failed) == self.posted.digest;
        is_whole.then_some(content.len() as u64)
    }
}

impl RecordValue for RefusedResult {
    const KIND: RecordKind = RecordKind::RefusedResult;

    fn encode(&self) -> Bytes {
        let mut to = RecordWriter::new(VERSION, EVIDENCE);
        to.write_text(&self.call_id);
        to.write_position(&PostRefusal::ALL, self.reason);
        self.posted.write_to(&mut to);
        to.into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = RecordReader::new(bytes, VERSION, EVIDENCE)?;
        let evidence = Self {
            call_id: from.read_text()?.to_vec(),
            reason: from.read_position(&PostRefusal::ALL)?,
            posted: PostedResult::read_from(&mut from)?,
        };
        from.expect_end()?;
        Some(evidence)
    }

    fn expires_at(&self, now: Moment, ttl: Duration) -> Moment {
        now + ttl + RETENTION_GRACE
    }
}
