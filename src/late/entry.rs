//! What a call, a posted result, a parked one and evidence are, and their bytes in the ledger.
//!
//! The first byte is the version of the form, the second what it is. What is unknown, cut short or too long is none:
//! a record is read whole or not at all.

use bytes::Bytes;

use super::bytes::{Reader, Writer};
use crate::{auth::Owner, ledger::Moment, repair::Tier, session::PrincipalHash, session::Strength};

/// The version of the form.
const VERSION: u8 = 1;
const CALL: u8 = 1;
const PARKED: u8 = 2;
const EVIDENCE: u8 = 3;

/// Where a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It waits for its result.
    Open,
    /// A service has posted its result, and its owner does not have it yet.
    Settled,
    /// Its owner has a result: the posted one, or one that the client brought.
    Delivered,
    /// Its owner said so.
    Acked,
    /// The conversation went on without it.
    Abandoned,
    /// Nothing came while it was kept.
    Expired,
    /// It was taken back, and the tool has confirmed that.
    Cancelled,
}

impl State {
    /// Every state. Their places stand in files: they are never given to another.
    pub const ALL: [Self; 7] = [
        Self::Open,
        Self::Settled,
        Self::Delivered,
        Self::Acked,
        Self::Abandoned,
        Self::Expired,
        Self::Cancelled,
    ];

    /// The name for people and services.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Settled => "settled",
            Self::Delivered => "delivered",
            Self::Acked => "acked",
            Self::Abandoned => "abandoned",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A result as a service has posted it.
#[derive(Clone, PartialEq, Eq)]
pub struct Posted {
    /// The content. Invariant: one valid JSON value.
    pub content: String,
    /// Whether the tool reported an error.
    pub failed: bool,
    /// A hash of both.
    pub digest: [u8; 32],
    /// When it came.
    pub posted_at: Moment,
    /// The name of the service.
    pub service: String,
    /// Whether the call's turn was still the last of its lane.
    pub attached: bool,
}

impl Posted {
    /// A result that comes now.
    pub fn new(content: String, failed: bool, service: &str, posted_at: Moment) -> Self {
        let mut hash = blake3::Hasher::new();
        hash.update(&[u8::from(failed)]);
        hash.update(content.as_bytes());
        Self {
            digest: hash.finalize().into(),
            content,
            failed,
            posted_at,
            service: service.to_owned(),
            attached: false,
        }
    }

    fn write(&self, to: &mut Writer) {
        to.text(self.content.as_bytes());
        to.flag(self.failed);
        to.hash(&self.digest);
        to.moment(self.posted_at);
        to.text(self.service.as_bytes());
        to.flag(self.attached);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            content: from.words()?,
            failed: from.flag()?,
            digest: from.hash()?,
            posted_at: from.moment()?,
            service: from.words()?,
            attached: from.flag()?,
        })
    }
}

impl std::fmt::Debug for Posted {
    // Never the content.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Posted({} bytes, failed {})", self.content.len(), self.failed)
    }
}

/// A recorded call. Whose it is stands in its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its principal without the user within: what services are configured for.
    pub account: PrincipalHash,
    /// The lane in which it was seen.
    pub lane: Option<[u8; 32]>,
    /// A hash of its session's name, where a client named it.
    pub session: Option<[u8; 32]>,
    /// How far the session is to be trusted.
    pub strength: Strength,
    /// The id, exactly as it was seen.
    pub id: Vec<u8>,
    /// The tool.
    pub tool: Vec<u8>,
    /// The hash of its canonical input.
    pub input: Option<[u8; 32]>,
    /// How far its effect can be taken back.
    pub tier: Tier,
    /// When it was recorded.
    pub opened_at: Moment,
    /// When its service was last heard of.
    pub heard_at: Moment,
    /// Until when its tool may take.
    pub deadline: Moment,
    /// From when on no result is taken.
    pub expires_at: Moment,
    /// Where it stands.
    pub state: State,
    /// Its result. The first that was posted; it never changes.
    pub posted: Option<Posted>,
}

impl Call {
    /// Its bytes.
    pub fn encode(&self) -> Bytes {
        let mut to = Writer::new(VERSION, CALL);
        to.hash(&self.account);
        to.maybe(self.lane.as_ref());
        to.maybe(self.session.as_ref());
        to.flag(self.strength == Strength::Strong);
        to.text(&self.id);
        to.text(&self.tool);
        to.maybe(self.input.as_ref());
        to.place(&TIERS, self.tier);
        for moment in [self.opened_at, self.heard_at, self.deadline, self.expires_at] {
            to.moment(moment);
        }
        to.place(&State::ALL, self.state);
        to.flag(self.posted.is_some());
        if let Some(posted) = &self.posted {
            posted.write(&mut to);
        }
        to.done()
    }

    /// The call of these bytes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader::new(bytes, VERSION, CALL)?;
        let call = Self {
            account: from.hash()?,
            lane: from.maybe()?,
            session: from.maybe()?,
            strength: if from.flag()? { Strength::Strong } else { Strength::Weak },
            id: from.text()?.to_vec(),
            tool: from.text()?.to_vec(),
            input: from.maybe()?,
            tier: from.place(&TIERS)?,
            opened_at: from.moment()?,
            heard_at: from.moment()?,
            deadline: from.moment()?,
            expires_at: from.moment()?,
            state: from.place(&State::ALL)?,
            posted: if from.flag()? {
                Some(Posted::read(&mut from)?)
            } else {
                None
            },
        };
        from.end()?;
        Some(call)
    }
}

/// The tiers in the order of their numbers in files.
pub const TIERS: [Tier; 4] = [Tier::Read, Tier::Revertible, Tier::Durable, Tier::OneWay];

/// A result that came before its call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parked {
    /// The id that it names.
    pub call_id: Vec<u8>,
    /// The owner that it names.
    pub owner: Option<Owner>,
    /// The result.
    pub posted: Posted,
}

impl Parked {
    /// Its bytes.
    pub fn encode(&self) -> Bytes {
        let mut to = Writer::new(VERSION, PARKED);
        to.text(&self.call_id);
        to.flag(self.owner.is_some());
        if let Some(owner) = self.owner {
            to.bytes(owner.as_bytes());
        }
        self.posted.write(&mut to);
        to.done()
    }

    /// The parked result of these bytes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader::new(bytes, VERSION, PARKED)?;
        let parked = Self {
            call_id: from.text()?.to_vec(),
            owner: if from.flag()? {
                Some(Owner::new(from.bytes()?))
            } else {
                None
            },
            posted: Posted::read(&mut from)?,
        };
        from.end()?;
        Some(parked)
    }
}

/// Why a result was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// The call has another result already.
    Conflict,
    /// Several calls may be meant.
    Ambiguous,
    /// It came too late.
    Expired,
    /// The call was taken back.
    Cancelled,
}

impl Why {
    /// Every reason. Their places stand in files.
    pub const ALL: [Self; 4] = [Self::Conflict, Self::Ambiguous, Self::Expired, Self::Cancelled];

    /// The name for people.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Ambiguous => "ambiguous",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A result that was refused: kept to be looked at by people, given to no conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The id that it names.
    pub call_id: Vec<u8>,
    /// Why it was refused.
    pub why: Why,
    /// The result.
    pub posted: Posted,
}

impl Evidence {
    /// Its bytes.
    pub fn encode(&self) -> Bytes {
        let mut to = Writer::new(VERSION, EVIDENCE);
        to.text(&self.call_id);
        to.place(&Why::ALL, self.why);
        self.posted.write(&mut to);
        to.done()
    }

    /// The evidence of these bytes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader::new(bytes, VERSION, EVIDENCE)?;
        let evidence = Self {
            call_id: from.text()?.to_vec(),
            why: from.place(&Why::ALL)?,
            posted: Posted::read(&mut from)?,
        };
        from.end()?;
        Some(evidence)
    }
}
