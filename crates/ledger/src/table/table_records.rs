//! The records of one table in the ledger: whose they are, who writes and reads them, and how long they last.

use tokio::time::Instant;

use super::{KnownPrincipals, StoredRow, TableParts, TablePolicy, VerifiedCallers};
use crate::{
    clock,
    ledger::{Moment, RecordKey, RecordName, RecordState, Unread},
    principal::Principal,
};

/// The records of one table.
pub(super) struct TableRecords {
    pub(super) parts: TableParts,
    pub(super) policy: TablePolicy,
    /// The callers whose rows are stored and read. `None` in their own table, which takes any principal.
    pub(super) callers: Option<VerifiedCallers>,
}

impl TableRecords {
    pub(super) fn new(parts: &TableParts, callers: Option<VerifiedCallers>, policy: TablePolicy) -> Self {
        debug_assert!(
            policy.kind.is_announced() || !matches!(policy.principals, KnownPrincipals::Announced(_)),
            "no process is told of changes of this kind"
        );
        Self {
            parts: parts.clone(),
            policy,
            callers,
        }
    }

    pub(super) const fn key(&self, principal: Principal, name: RecordName) -> RecordKey {
        RecordKey::new(self.policy.kind, principal, name)
    }

    /// Returns what is known of a principal's rows without a read.
    pub(super) fn state_of(&self, principal: Principal) -> RecordState {
        let kind = self.policy.kind;
        match &self.policy.principals {
            KnownPrincipals::Announced(owners) => owners.state_of(kind, principal),
            KnownPrincipals::Unannounced(owners) if self.parts.ledger.is_exclusive() => {
                owners.state_of(kind, principal)
            }
            KnownPrincipals::Any | KnownPrincipals::Unannounced(_) => RecordState::Unknown,
        }
    }

    pub(super) fn note_principal(&self, principal: Principal) {
        if let KnownPrincipals::Announced(owners) | KnownPrincipals::Unannounced(owners) = &self.policy.principals {
            owners.note(self.policy.kind, principal);
        }
    }

    /// Returns `true` if rows of this principal may be stored.
    pub(super) fn is_writer(&self, principal: Principal) -> bool {
        let is_allowed = match &self.callers {
            Some(callers) => callers.is_verified_in_memory(principal),
            None => principal != Principal::NONE,
        };
        is_allowed && (!self.policy.needs_lasting_ledger || self.parts.ledger.survives_restart())
    }

    /// Counts a write. Returns `false` if the principal may write no more today.
    pub(super) fn counts_write(&self, principal: Principal) -> bool {
        let daily = self.policy.daily.as_ref();
        daily.is_none_or(|daily| daily.count_one(principal))
    }

    /// Returns the end of the lifetime of a record that is written now.
    pub(super) fn expires_at(&self, row: &impl StoredRow) -> Moment {
        let ttl = self.policy.record_ttl;
        clock::unix_time() + row.lifetime().map_or(ttl, |lifetime| lifetime.min(ttl))
    }

    /// Reads from the ledger. `None` if the principal can have no records there.
    pub(super) async fn ask<T>(
        &self,
        principal: Principal,
        read: impl Future<Output = Result<T, Unread>>,
        deadline: Instant,
    ) -> Result<Option<T>, Unread> {
        if principal == Principal::NONE || self.policy.needs_lasting_ledger && !self.parts.ledger.survives_restart() {
            return Ok(None);
        }
        let asked = async {
            // Only verified callers have records.
            if let Some(callers) = &self.callers
                && !callers.verify(principal, deadline).await?
            {
                return Ok(None);
            }
            read.await.map(Some)
        };
        let found = asked.await;
        // A caller that cannot be verified is counted by the table that wanted to know it.
        if found.is_err() && self.callers.is_some() {
            self.parts.counter.count_missed_read();
        }
        found
    }
}
