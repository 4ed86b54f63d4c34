//! Links to the task page: each opens the tasks of one person for an hour at most. Only a hash of its secret is stored.

use std::{fmt, time::Duration};

use super::UserTasks;
use crate::{
    auth::{Caller, Principal},
    clock,
    digest::digest_of,
    late::{
        LateError,
        records::bytes::{RecordReader, RecordWriter},
    },
    ledger::{CommitStep, Moment, ROWS_MAX, Record, RecordKey, RecordKind, RecordName, retry_conflicts},
    upstream::random_bytes,
};

/// The longest lifetime of a link: one hour.
pub const LINK_TTL_MAX: Duration = Duration::from_secs(60 * 60);
/// The most links of one person, of either kind. A further one replaces the oldest of its kind.
const LINKS_OF_ONE_MAX: usize = 32;
/// The most links that the people of one account have made themselves: it may invent people.
const LINKS_OF_ACCOUNT_MAX: usize = ROWS_MAX;
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

    /// Returns the secret as text, for the one answer that contains it.
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

impl UserTasks {
    fn link_key(&self, link: RecordName) -> RecordKey {
        // Not under its owner: a secret tells whose it is only by its record.
        RecordKey::new(RecordKind::TaskLink, Principal::of_task_links(&self.0.principals), link)
    }

    /// Makes a link to the caller's tasks. It is stored on return. `None` if there are too many links.
    pub async fn make_link(&self, link: TaskLink) -> Result<Option<MadeLink>, LateError> {
        let secret = TaskSecret(random_bytes()?);
        let name = secret.link();
        let is_made: Result<bool, LateError> = retry_conflicts(|| async {
            let now = clock::unix_time();
            let links = self.read_links(now).await?;
            let of_kind = links.iter().filter(|(_, known)| known.may_resolve == link.may_resolve);
            let own: Vec<&Record> = of_kind
                .clone()
                .filter(|(_, known)| known.owner == link.owner)
                .map(|(record, _)| record)
                .collect();
            let of_account = of_kind.filter(|(_, known)| known.owner.account() == link.owner.account());
            let surplus = (own.len() + 1).saturating_sub(LINKS_OF_ONE_MAX);
            let has_room = links.len() - surplus < LINKS_MAX
                && (link.may_resolve || of_account.count() - surplus < LINKS_OF_ACCOUNT_MAX);
            if !has_room {
                return Ok(Some(false));
            }
            let made = CommitStep::insert_record(self.link_key(name), link.encode(now), link.expires_at);
            // Listed in the order of their making.
            let replaced = own.iter().take(surplus).map(|record| record.remove_step());
            let steps = [made].into_iter().chain(replaced).collect();
            // On a conflict another writer has removed one of these links.
            let is_done = self.0.commit(steps, now).await?;
            Ok(is_done.then_some(true))
        })
        .await;
        Ok(is_made?.then_some(MadeLink { link: name, secret }))
    }

    /// Reads all links, in the order of their making.
    async fn read_links(&self, now: Moment) -> Result<Vec<(Record, TaskLink)>, LateError> {
        let (folder, mut after) = (*Principal::of_task_links(&self.0.principals).as_bytes(), 0);
        let mut links = Vec::new();
        loop {
            let list = self
                .0
                .ledger
                .list_after(RecordKind::TaskLink, folder, after, ROWS_MAX, now);
            let page = list.await?;
            let Some((last, _)) = page.last() else {
                return Ok(links);
            };
            after = *last;
            links.extend(page.into_iter().filter_map(|(_, record)| {
                let (link, _) = TaskLink::decode(&record)?;
                Some((record, link))
            }));
        }
    }

    /// Revokes a link of the caller, or any if `caller` is `None`. Returns `false` if there is no such link.
    pub async fn revoke_link(&self, caller: Option<Caller>, link: RecordName) -> Result<bool, LateError> {
        let now = clock::unix_time();
        let Some((record, known)) = self.read_link(link, now).await? else {
            return Ok(false);
        };
        if caller.is_some_and(|caller| caller.principal() != known.owner.principal()) {
            return Ok(false);
        }
        Ok(self.0.commit(vec![record.remove_step()], now).await?)
    }

    /// Returns the link with this secret. `None` if it is unknown, expired or revoked.
    pub async fn find_link(&self, secret: &TaskSecret) -> Result<Option<TaskLink>, LateError> {
        let found = self.read_link(secret.link(), clock::unix_time()).await?;
        // The configuration may have changed since the link was made.
        let is_one_person = |owner: Caller| self.0.is_strong_user(owner.principal(), owner.account());
        Ok(found.map(|(_, link)| link).filter(|link| is_one_person(link.owner)))
    }

    async fn read_link(&self, link: RecordName, now: Moment) -> Result<Option<(Record, TaskLink)>, LateError> {
        let record = self.0.read_record(self.link_key(link), now).await?;
        Ok(record.and_then(|record| {
            let (link, _) = TaskLink::decode(&record)?;
            Some((record, link))
        }))
    }
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
