//! Links to the task page: each opens the tasks of one person for an hour at most. Only a hash of its secret is stored.

use std::{fmt, time::Duration};

use crate::{
    auth::{Caller, Principal},
    clock,
    digest::digest_of,
    late::{
        LateError, LateStore,
        record_bytes::{RecordReader, RecordWriter},
    },
    ledger::{CommitOutcome, CommitStep, Moment, ROWS_MAX, Record, RecordKey, RecordKind, RecordName},
    upstream::random_bytes,
};

/// The longest lifetime of a link: one hour.
pub const LINK_TTL_MAX: Duration = Duration::from_secs(60 * 60);
/// The most links of one person. A further one replaces the oldest.
const LINKS_OF_ONE_MAX: usize = 32;
/// The most links of all people.
const LINKS_MAX: usize = 4 * ROWS_MAX;
/// The format version of a link's record.
const VERSION: u8 = 1;
const LINK: u8 = 7;
/// The letters before the digits of a secret.
const PREFIX: &str = "task_";

/// The secret of a link: `task_` and 64 hex digits.
#[derive(Clone, PartialEq, Eq)]
pub struct TaskSecret([u8; 32]);

impl TaskSecret {
    /// Reads a secret. Returns `None` if the text is none.
    pub fn parse(text: &str) -> Option<Self> {
        let hash = blake3::Hash::from_hex(text.strip_prefix(PREFIX)?).ok()?;
        Some(Self(*hash.as_bytes()))
    }

    /// Returns the secret as text, for its only answer.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}", blake3::Hash::from_bytes(self.0).to_hex())
    }

    fn link(&self) -> RecordName {
        digest_of([&b"task link"[..], &self.0])
    }
}

impl fmt::Debug for TaskSecret {
    // It opens a page without any other credential, so it never reaches a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskSecret")
    }
}

/// A link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskLink {
    /// The person whose tasks it opens.
    pub owner: Caller,
    /// `true` if its holder may report the outcome of a call that nobody knows. Only an operator makes such links.
    pub may_resolve: bool,
    /// The time from which it opens nothing.
    pub expires_at: Moment,
}

/// A new link, with its secret.
#[derive(Clone, Debug)]
pub struct MadeLink {
    /// The id by which it is revoked.
    pub link: RecordName,
    /// The secret.
    pub secret: TaskSecret,
}

impl TaskLink {
    fn encode(&self, made_at: Moment) -> bytes::Bytes {
        let mut to = RecordWriter::new(VERSION, LINK);
        to.write_bytes(self.owner.principal().as_bytes());
        to.write_bytes(self.owner.account().as_bytes());
        to.write_flag(self.may_resolve);
        to.write_moment(made_at);
        to.into_bytes()
    }

    /// Decodes a link and the time at which it was made.
    fn decode(record: &Record) -> Option<(Self, Moment)> {
        let mut from = RecordReader::new(&record.value, VERSION, LINK)?;
        let principal = Principal::from_bytes(from.read_bytes()?);
        let account = Principal::from_bytes(from.read_bytes()?);
        let link = Self {
            owner: Caller::of_user(principal, account),
            may_resolve: from.read_flag()?,
            expires_at: record.expires_at,
        };
        let made_at = from.read_moment()?;
        from.expect_end()?;
        Some((link, made_at))
    }
}

fn link_key(late: &LateStore, link: RecordName) -> RecordKey {
    // Not under its owner: a secret tells whose it is only by its record.
    RecordKey::new(RecordKind::TaskLink, Principal::of_task_links(&late.0.principals), link)
}

/// Makes a link. See [`Tasks::make_link`](super::Tasks::make_link).
pub(super) async fn make(late: &LateStore, link: TaskLink) -> Result<Option<MadeLink>, LateError> {
    let secret = TaskSecret(random_bytes()?);
    let (name, now) = (secret.link(), clock::unix_time());
    let (mut count, mut own) = (0, Vec::new());
    let (folder, mut after) = (*Principal::of_task_links(&late.0.principals).as_bytes(), 0);
    loop {
        let page = late
            .0
            .ledger
            .list_after(RecordKind::TaskLink, folder, after, ROWS_MAX, now)
            .await?;
        let Some((last, _)) = page.last() else { break };
        after = *last;
        count += page.len();
        let of_owner = |record: &Record| TaskLink::decode(record).is_some_and(|(known, _)| known.owner == link.owner);
        own.extend(page.into_iter().map(|(_, record)| record).filter(of_owner));
    }
    if count >= LINKS_MAX {
        return Ok(None);
    }
    let mut steps = vec![CommitStep::insert_record(
        link_key(late, name),
        link.encode(now),
        link.expires_at,
    )];
    // Listed in the order of their making.
    let surplus = (own.len() + 1).saturating_sub(LINKS_OF_ONE_MAX);
    steps.extend(own.iter().take(surplus).map(|record| CommitStep::Remove {
        key: record.key,
        version: record.version,
    }));
    match late.0.ledger.commit(steps, now).await? {
        CommitOutcome::Done => Ok(Some(MadeLink { link: name, secret })),
        // The oldest link was revoked meanwhile.
        CommitOutcome::Conflict(_) => Err(LateError::Busy),
    }
}

/// Revokes a link. See [`Tasks::revoke_link`](super::Tasks::revoke_link).
pub(super) async fn revoke(late: &LateStore, caller: Option<Caller>, link: RecordName) -> Result<bool, LateError> {
    let now = clock::unix_time();
    let Some((record, known)) = read(late, link, now).await? else {
        return Ok(false);
    };
    if caller.is_some_and(|caller| caller.principal() != known.owner.principal()) {
        return Ok(false);
    }
    let step = CommitStep::Remove {
        key: record.key,
        version: record.version,
    };
    Ok(late.0.ledger.commit(vec![step], now).await? == CommitOutcome::Done)
}

/// Finds a link. See [`Tasks::find_link`](super::Tasks::find_link).
pub(super) async fn find(late: &LateStore, secret: &TaskSecret) -> Result<Option<TaskLink>, LateError> {
    let found = read(late, secret.link(), clock::unix_time()).await?;
    Ok(found.map(|(_, link)| link))
}

async fn read(late: &LateStore, link: RecordName, now: Moment) -> Result<Option<(Record, TaskLink)>, LateError> {
    let record = late.0.ledger.read(vec![link_key(late, link)], now).await?;
    let record = record.into_iter().flatten().next();
    Ok(record.and_then(|record| {
        let (link, _) = TaskLink::decode(&record)?;
        Some((record, link))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_as_it_was_written_and_never_printed() {
        let secret = TaskSecret([7; 32]);
        assert_eq!(TaskSecret::parse(&secret.reveal()), Some(secret.clone()));
        assert!(!format!("{secret:?}").contains("07"));
        for text in ["", "task_", "sk-ant-1", &secret.reveal()[5..], &secret.reveal()[..60]] {
            assert_eq!(TaskSecret::parse(text), None, "{text}");
        }
    }
}
