//! Parked results: each waits for its call to be recorded, or for the match with its call to settle.
//!
//! A result without an owner goes to the only call of its id. A second call may be recorded a moment later, so a match
//! with a new call must stay unique for a while.

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{sync::Notify, time::sleep};

use super::{
    Calls, CallsState,
    settling::{Post, PostOutcome, SettleOutcome},
};
use crate::{
    clock,
    late::{
        LateError,
        matching::NamedCall,
        records::{ParkedResult, PostRefusal, PostedResult, call_names},
        service::Service,
        update::{LateUpdate, index_subject},
    },
    ledger::{CommitOutcome, CommitStep, Index, ROWS_MAX, Record, RecordKey, RecordKind},
    table::RecordValue,
    telemetry::dashboard::LateCallLabel,
    writer::Subject,
};

/// The time between two searches for parked results that have expired: 10 minutes.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(10 * 60);

impl Calls {
    /// Stores a result until its call is recorded.
    pub(super) async fn park_result(
        &self,
        named: &NamedCall<'_>,
        posted: PostedResult,
        source: Option<&str>,
    ) -> Result<PostOutcome, LateError> {
        let (parts, service) = (&self.0.parts, named.service.principal);
        let now = clock::unix_time();
        let parked = ParkedResult {
            call_id: named.call_id.to_vec(),
            owner: named.owner,
            session: named.session.map(<[u8]>::to_vec),
            described: named.described.map(|(tool, input)| (tool.to_vec(), input)),
            posted,
        };
        let key = ParkedResult::key(service, call_names::parked_name(&parked));
        parts.record_owners.note(RecordKind::Parked, service);
        let insert = parts.parked.insert_step(key, &parked, now);
        let post = Post {
            source,
            ..Post::of_result(&parked.posted)
        };
        let mut made_at = now;
        if let CommitOutcome::Conflict(existing) = parts.ledger.commit(vec![insert], now).await? {
            let record = existing.into_iter().flatten().next();
            made_at = record.as_ref().map_or(now, |record| record.made_at);
            let earlier = record.and_then(|record| ParkedResult::decode(&record.value));
            // The first result wins, as it does for a recorded call.
            if earlier.is_some_and(|earlier| earlier.posted.digest != parked.posted.digest) {
                let (principal, reason) = (named.service.principal, PostRefusal::Conflict);
                return self.store_refused(principal, named, reason, post).await;
            }
        } else {
            let tool = named.described.map(|(tool, _)| tool);
            let label = LateCallLabel::new(named.call_id, tool).with_source(source);
            self.0.parts.telemetry.record_late_event_of("parked", label);
        }
        self.note_parked(key, &parked);
        // The worker may have recorded the call just before, and then looked for parked results too early.
        let remove = CommitStep::Remove { key, version: 1 };
        let outcome = self
            .settle_named(
                named,
                Post {
                    parked_removal: Some(&remove),
                    ..post
                },
            )
            .await?;
        Ok(match outcome {
            SettleOutcome::Done(post_outcome) => {
                self.0.awaited.remove(&key);
                post_outcome
            }
            SettleOutcome::TooEarly(at) => {
                self.0.match_queue.add(call_names::call_index(named.call_id), at);
                PostOutcome::Parked {
                    until: made_at + self.0.parts.settings.ttl,
                }
            }
            SettleOutcome::NotRecorded => PostOutcome::Parked {
                until: made_at + self.0.parts.settings.ttl,
            },
        })
    }

    /// Notes a parked result in memory, if it names its owner: a request of the owner may show its call.
    fn note_parked(&self, key: RecordKey, parked: &ParkedResult) {
        if let Some(owner) = parked.owner {
            self.0.awaited.add(key, owner, &parked.call_id);
        }
    }

    /// Notes that another replica has stored or removed a parked result.
    pub(in crate::late) async fn note_parked_change(&self, key: RecordKey) -> Result<(), LateError> {
        match self.0.parts.read_record(key, clock::unix_time()).await? {
            Some(record) => {
                if let Some(parked) = ParkedResult::decode(&record.value) {
                    self.note_parked(key, &parked);
                }
            }
            None => self.0.awaited.remove(&key),
        }
        Ok(())
    }
}

/// The settling of the parked results of an index.
struct SettleParked(Index);

impl LateUpdate for SettleParked {
    type Feature = CallsState;

    fn subjects(&self) -> Vec<Subject> {
        vec![index_subject(self.0)]
    }

    fn lost_records(&self) -> (RecordKind, usize) {
        (RecordKind::Parked, 1)
    }

    fn is_repeated(&self) -> bool {
        false
    }

    async fn apply(&self, calls: Arc<CallsState>) -> Result<bool, LateError> {
        let calls = Calls(calls);
        calls.settle_parked(self.0).await.map(|()| false)
    }
}

impl Calls {
    /// Settles the parked results that name a call of this index, as far as their matches have settled.
    pub(super) async fn settle_parked(&self, index: Index) -> Result<(), LateError> {
        // Another process may have parked the first result a moment ago, and would not find the call.
        let (parts, now) = (&self.0.parts, clock::unix_time());
        let is_shared = !parts.ledger.is_exclusive();
        let may_wait = |service: &Service| is_shared || self.may_have_parked(service);
        // Most calls are recorded while no result is parked at all.
        if !parts.services.iter().any(may_wait) {
            return Ok(());
        }
        let records = parts.ledger.find_by_index(RecordKind::Parked, index, ROWS_MAX, now);
        let mut last_error = None;
        for record in records.await? {
            let Some((service, parked)) = self.read_parked(&record) else {
                continue;
            };
            let remove = record.remove_step();
            let post = Post {
                parked_removal: Some(&remove),
                ..Post::of_result(&parked.posted)
            };
            match self.settle_named(&named_call(service, &parked), post).await {
                Ok(SettleOutcome::Done(outcome)) => {
                    self.0.awaited.remove(&record.key);
                    tracing::debug!(?outcome, "a parked result was matched with its call");
                }
                Ok(SettleOutcome::TooEarly(at)) => self.0.match_queue.add(index, at),
                Ok(SettleOutcome::NotRecorded) => {}
                // An error of one result must not delay the others.
                Err(error) => last_error = Some(error),
            }
        }
        last_error.map_or(Ok(()), Err)
    }
}

/// Settles what a restart has interrupted. Then settles what is due, and expires parked results: every ten minutes, and
/// after `missed` changes of other replicas. Runs until the store is dropped.
pub(in crate::late) async fn settle_and_expire(state: Weak<CallsState>, missed: &Notify) {
    let mut next_expiry = None;
    loop {
        let Some(calls) = state.upgrade().map(Calls) else {
            return;
        };
        if next_expiry.is_none_or(|at| at <= clock::now()) {
            calls.expire_parked().await;
            next_expiry = Some(clock::now() + EXPIRY_INTERVAL);
        }
        let now = clock::unix_time();
        for index in calls.0.match_queue.take_due(now) {
            calls.queue_update(SettleParked(index));
        }
        let queue = Arc::clone(&calls.0.match_queue);
        // Dropped while waiting: this task must not keep the store alive.
        drop(calls);
        let until_due = queue.first_due().map(|at| at.saturating_sub(now));
        let pause = until_due.unwrap_or(EXPIRY_INTERVAL).min(EXPIRY_INTERVAL);
        tokio::select! {
            () = sleep(pause) => {}
            () = queue.changed() => {}
            () = missed.notified() => next_expiry = None,
        }
    }
}

impl Calls {
    /// Expires the parked results of every service that have waited too long. The others are noted in memory, and settled if
    /// their calls are recorded.
    async fn expire_parked(&self) {
        for service in &self.0.parts.services {
            if let Err(error) = self.expire_of_service(service).await {
                tracing::warn!(%error, "failed to expire parked results: trying again in ten minutes");
            }
        }
    }

    /// Returns `true` if results of a service may be parked.
    fn may_have_parked(&self, service: &Service) -> bool {
        let owners = &self.0.parts.record_owners;
        owners.may_have(RecordKind::Parked, service.principal)
    }

    /// Stores the parked results of a service that no call has claimed as refused ones, and settles the others. Then forgets
    /// those that the ledger no longer has.
    async fn expire_of_service(&self, service: &Service) -> Result<(), LateError> {
        // Before the search: what is parked meanwhile must stay.
        let mut unseen = self.0.awaited.records_of(service.principal);
        if self.may_have_parked(service) {
            self.search_parked(service, &mut unseen).await?;
        }
        self.forget_removed(unseen.into_iter().collect()).await
    }

    /// Expires or settles each parked result of a service, and removes its record from `unseen`.
    async fn search_parked(&self, service: &Service, unseen: &mut HashSet<RecordKey>) -> Result<(), LateError> {
        let (principal, mut after) = (*service.principal.as_bytes(), 0);
        loop {
            let now = clock::unix_time();
            let ledger = &self.0.parts.ledger;
            let records = ledger.list_after(RecordKind::Parked, principal, after, ROWS_MAX, now);
            let page = records.await?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            after = *last;
            for (_, record) in &page {
                unseen.remove(&record.key);
                let Some((service, parked)) = self.read_parked(record) else {
                    continue;
                };
                if record.made_at + self.0.parts.settings.ttl <= now {
                    let (named, reason) = (named_call(service, &parked), PostRefusal::Unclaimed);
                    let remove = record.remove_step();
                    let post = Post {
                        parked_removal: Some(&remove),
                        ..Post::of_result(&parked.posted)
                    };
                    self.store_refused(service.principal, &named, reason, post).await?;
                    self.0.awaited.remove(&record.key);
                    continue;
                }
                self.note_parked(record.key, &parked);
                if let Err(error) = self.settle_parked(call_names::call_index(&parked.call_id)).await {
                    // The others must not wait for it.
                    tracing::warn!(%error, "failed to settle a parked result: trying again in ten minutes");
                }
            }
        }
    }

    /// Removes those of the records from memory that the ledger no longer has: other replicas have removed them.
    async fn forget_removed(&self, records: Vec<RecordKey>) -> Result<(), LateError> {
        for chunk in records.chunks(ROWS_MAX) {
            let read = self.0.parts.ledger.read(chunk.to_vec(), clock::unix_time()).await?;
            for (key, _) in chunk.iter().zip(read).filter(|(_, record)| record.is_none()) {
                self.0.awaited.remove(key);
            }
        }
        Ok(())
    }

    /// Decodes a parked result. Returns `None` if its service is no longer configured: the result then expires.
    fn read_parked(&self, record: &Record) -> Option<(&Service, ParkedResult)> {
        let mut services = self.0.parts.services.iter();
        let service = services.find(|service| service.principal == record.key.owner())?;
        Some((service, ParkedResult::decode(&record.value)?))
    }
}

fn named_call<'n>(service: &'n Service, parked: &'n ParkedResult) -> NamedCall<'n> {
    NamedCall {
        service,
        call_id: &parked.call_id,
        owner: parked.owner,
        session: parked.session.as_deref(),
        described: parked.described.as_ref().map(|(tool, input)| (&tool[..], *input)),
    }
}
