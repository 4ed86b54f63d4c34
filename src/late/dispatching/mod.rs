//! The messages of the outbox on their way: which are due, what each says, and what its answer means.

pub mod webhooks;

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use super::{
    LateError,
    cancels::{CancelReply, Cancels, PreparedCancel},
    events::{Events, JudgedEvent},
    outbox::{self, DueMessage, Outbox, pause_after},
    parts::LateParts,
    records::{EventKind, EventSubject, OutgoingRecord, Purpose, RecordedCall, message_id},
};
use crate::{
    auth::WebhookKey,
    clock,
    ledger::{Moment, Record, RecordKey, retry_conflicts},
    table::{RecordValue, Stored},
};

/// The pause after the ledger failed.
const LEDGER_PAUSE: Duration = Duration::from_secs(5);
/// The time for which a message belongs to the process that sends it, in a shared ledger. After that another one sends it.
const SEND_LEASE: Duration = Duration::from_secs(60);
/// The pause between two looks for messages that other processes have stored, and may not have sent.
const LOOK_PAUSE: Duration = Duration::from_secs(30);
/// The time after which a message that is due and was not tried counts as overdue.
const OVERDUE_AFTER: Duration = Duration::from_secs(30);
/// The longest wait for a message: calls may become silent.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The sender's side of the outbox. It does not keep the store alive.
#[derive(Clone)]
pub struct Dispatcher(Weak<Dispatching>);

/// The features whose messages are sent.
pub(super) struct Dispatching {
    parts: Arc<LateParts>,
    outbox: Outbox,
    cancels: Cancels,
    events: Events,
}

/// A message that is ready to be sent.
#[derive(Clone)]
pub struct PreparedMessage {
    key: RecordKey,
    made_at: Moment,
    /// The URL, from the configuration.
    pub url: String,
    /// `webhook-id`, which is the same for every try.
    pub id: String,
    /// `webhook-timestamp`: seconds since 1970.
    pub timestamp: String,
    /// `webhook-signature`: one signature for each key.
    pub signatures: String,
    /// The body as JSON.
    pub body: String,
    /// `true` if the body of a success says more than its status.
    pub reads_answer: bool,
}

impl fmt::Debug for PreparedMessage {
    // The body may contain a result, so it never reaches a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PreparedMessage({})", self.id)
    }
}

/// The end of one try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// The receiver answered with a success, and this body.
    Accepted(Vec<u8>),
    /// The receiver did not answer, or refused the message.
    Failed,
}

impl Dispatching {
    pub(super) fn new(parts: &Arc<LateParts>, outbox: &Outbox, cancels: &Cancels, events: Events) -> Arc<Self> {
        Arc::new(Self {
            parts: Arc::clone(parts),
            outbox: outbox.clone(),
            cancels: cancels.clone(),
            events,
        })
    }

    /// Returns the dispatcher of these messages.
    pub(super) fn dispatcher(self: &Arc<Self>) -> Dispatcher {
        Dispatcher(Arc::downgrade(self))
    }
}

impl Dispatcher {
    /// Waits for a message that is due and has a place at its receiver, and prepares it. It keeps the place until
    /// [`finish`](Self::finish) or [`postpone`](Self::postpone). Returns `None` once the store is dropped.
    pub async fn next_message(&self) -> Option<PreparedMessage> {
        loop {
            let sending = self.0.upgrade()?;
            if sending.outbox.due().wants_reload()
                && let Err(error) = sending.load().await
            {
                tracing::warn!(%error, "failed to read the messages to be sent: trying again in 5 seconds");
                sending.outbox.due().reload_after(LEDGER_PAUSE);
            }
            let next_silence = sending.cancels.note_silence();
            if let Some(due) = sending.outbox.due().take_due() {
                if let Some(prepared) = sending.prepare_due(due).await {
                    return Some(prepared);
                }
                continue;
            }
            let outbox = sending.outbox.clone();
            // Dropped while waiting: the sender must not keep the store alive.
            drop(sending);
            let first = [outbox.due().first_due(), next_silence].into_iter().flatten().min();
            let until = first.unwrap_or_else(far).min(far());
            tokio::select! {
                () = sleep_until(until) => {}
                () = outbox.due().changed() => {}
            }
        }
    }

    /// Notes that the try of a message begins: it is not overdue any more.
    pub fn note_try(&self, message: &PreparedMessage) {
        if let Some(sending) = self.0.upgrade() {
            sending.outbox.due().forget_untried(&message.key);
        }
    }

    /// Returns the number of messages that have been due for 30 seconds and were not tried. What waits for its receiver
    /// does not count while tries to that receiver begin or end.
    pub fn overdue(&self) -> u64 {
        let since = clock::now().checked_sub(OVERDUE_AFTER);
        let overdue = self
            .0
            .upgrade()
            .zip(since)
            .map_or(0, |(sending, since)| sending.outbox.due().overdue(since));
        u64::try_from(overdue).unwrap_or(u64::MAX)
    }

    /// Notes the end of a try.
    pub async fn finish(&self, message: &PreparedMessage, outcome: SendOutcome) {
        let Some(sending) = self.0.upgrade() else {
            return;
        };
        if let Err(error) = sending.finish(message, outcome).await {
            tracing::warn!(%error, "failed to note the answer to a message: it is sent again in 5 seconds");
            sending.outbox.due().schedule(message.key, LEDGER_PAUSE);
        }
        sending.outbox.due().free_place(&message.key);
    }

    /// Sends a message later, which does not count as a try.
    pub fn postpone(&self, message: &PreparedMessage, pause: Duration) {
        if let Some(sending) = self.0.upgrade() {
            sending.outbox.due().schedule(message.key, pause);
            sending.outbox.due().free_place(&message.key);
        }
    }

    /// Schedules the messages that an earlier process has left. Tries again while the ledger is away.
    pub async fn load(&self) {
        loop {
            let Some(sending) = self.0.upgrade() else {
                return;
            };
            match sending.load_all().await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(%error, "failed to read the messages to be sent: trying again in 5 seconds");
                }
            }
            drop(sending);
            tokio::time::sleep(LEDGER_PAUSE).await;
        }
    }
}

fn far() -> Instant {
    clock::now() + WAIT_MAX
}

impl Dispatching {
    /// Reads what an earlier process has left: its messages, and the calls whose silence counts.
    async fn load_all(&self) -> Result<(), LateError> {
        self.load().await?;
        self.cancels.watch_recorded().await?;
        self.cancels.end_recovery();
        Ok(())
    }

    /// Schedules the messages that wait.
    async fn load(&self) -> Result<(), LateError> {
        let now = clock::unix_time();
        if !self.parts.ledger.is_exclusive() {
            self.outbox.due().look_after(LOOK_PAUSE);
        }
        for (key, message) in self.outbox.waiting_messages().await? {
            if self.outbox.due().contains(&key) {
                continue;
            }
            let wait = outbox::time_until(message.due_at, now);
            // The clients of a conversation need time to come back after a restart.
            let wait = self
                .cancels
                .watch_again(&key, &message)
                .await?
                .map_or(wait, |grace| wait.max(grace));
            self.outbox.due().schedule(key, wait);
        }
        Ok(())
    }

    /// Prepares a message that is due. Returns `None` if it is not to be sent any more, or not yet.
    async fn prepare_due(&self, due: DueMessage) -> Option<PreparedMessage> {
        let outbox = self.outbox.due();
        let mut has_place = due.has_place;
        let prepared = match self.read_due(due, &mut has_place).await {
            Ok(Some(found)) => self.prepare(found.record, found.value).await,
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        match &prepared {
            Ok(Some(message)) => outbox.add_bytes(&due.key, message.body.len()),
            Ok(None) => outbox.forget_untried(&due.key),
            // It stays untried, and is overdue one day.
            Err(error) => {
                tracing::warn!(%error, "failed to prepare a message: trying again in 5 seconds");
                outbox.schedule(due.key, LEDGER_PAUSE);
            }
        }
        let prepared = prepared.ok().flatten();
        if has_place && prepared.is_none() {
            outbox.free_place(&due.key);
        }
        prepared
    }

    /// Reads a message that is due, and gives it a place at its receiver. Returns `None` if it is gone, or if it waits for a
    /// place. Nothing is claimed until there is one: another process may have a free one.
    async fn read_due(
        &self,
        due: DueMessage,
        has_place: &mut bool,
    ) -> Result<Option<Stored<OutgoingRecord>>, LateError> {
        let (outbox, now) = (self.outbox.due(), clock::unix_time());
        let Some(found) = self.read_message(due.key, now).await? else {
            return Ok(None);
        };
        if !*has_place && let Some(url) = self.receiver_url(&found, now).await? {
            *has_place = outbox.take_place(due.key, &url);
            if !*has_place {
                return Ok(None);
            }
        }
        Ok(Some(found))
    }

    /// Returns the URL of a message's receiver. `None` if the message is not sent, or the configuration has no receiver for it.
    async fn receiver_url(
        &self,
        Stored { record, value }: &Stored<OutgoingRecord>,
        now: Moment,
    ) -> Result<Option<String>, LateError> {
        match &value.purpose {
            Purpose::Event { webhook: name, .. } => {
                let webhook = self.parts.webhooks.iter().find(|webhook| webhook.name == *name);
                Ok(webhook.map(|webhook| webhook.url.clone()))
            }
            Purpose::Cancel { call, .. } => {
                let call = self.parts.calls.read(RecordedCall::key(record.key.owner(), *call), now);
                let tool = call.await?.map(|call| call.value.tool);
                Ok(tool.and_then(|tool| self.parts.settings.tool_settings(&tool).cancel_url.clone()))
            }
        }
    }

    /// Prepares a message. Returns `None` if it is not to be sent any more, or not yet.
    async fn prepare(&self, record: Record, message: OutgoingRecord) -> Result<Option<PreparedMessage>, LateError> {
        let (key, now) = (record.key, clock::unix_time());
        let Some((record, claimed)) = self.claim_message(record, &message, now).await? else {
            return Ok(None);
        };
        if message.give_up_at <= now && message.tries > 0 {
            self.give_up(&record, &message, now).await?;
            return Ok(None);
        }
        let receiver = match &message.purpose {
            // The claimed message: what is written back must not end the claim.
            Purpose::Cancel { .. } => self.prepare_cancel(&record, &claimed, now).await?,
            Purpose::Event { webhook, kind, subject } => {
                let event = (*kind, *subject, message.made_at);
                self.prepare_event(&record, &message, (webhook.as_str(), event), now)
                    .await?
            }
        };
        let Some(Addressed { url, keys, body }) = receiver else {
            return Ok(None);
        };
        let id = message_id(&key, message.made_at);
        // The receiver compares it with its own clock.
        let timestamp = clock::system_time().as_secs().to_string();
        let signatures: Vec<String> = keys
            .iter()
            .map(|key| key.sign(&id, &timestamp, body.as_bytes()))
            .collect();
        Ok(Some(PreparedMessage {
            key,
            made_at: message.made_at,
            reads_answer: matches!(message.purpose, Purpose::Cancel { .. }),
            url,
            id,
            timestamp,
            signatures: signatures.join(" "),
            body,
        }))
    }

    /// Claims a message of a shared ledger for this process, by its next time. Returns the record and the message as they are
    /// now, or `None` if another process has claimed it: it is looked at again when that claim has ended.
    async fn claim_message(
        &self,
        record: Record,
        message: &OutgoingRecord,
        now: Moment,
    ) -> Result<Option<(Record, OutgoingRecord)>, LateError> {
        if self.parts.ledger.is_exclusive() {
            return Ok(Some((record, message.clone())));
        }
        if message.due_at > now {
            self.outbox
                .due()
                .schedule(record.key, outbox::time_until(message.due_at, now));
            return Ok(None);
        }
        let claimed = OutgoingRecord {
            due_at: now.saturating_add(SEND_LEASE),
            ..message.clone()
        };
        if !self.parts.messages.replace(&record, &claimed, now).await? {
            self.outbox.due().schedule(record.key, SEND_LEASE);
            return Ok(None);
        }
        let record = Record {
            value: claimed.encode(),
            version: record.version.saturating_add(1),
            ..record
        };
        Ok(Some((record, claimed)))
    }
}

/// The body of a message, its receiver, and the keys that sign it.
struct Addressed {
    url: String,
    keys: Vec<WebhookKey>,
    body: String,
}

impl Dispatching {
    /// Prepares a cancel. It is signed with the key of every service that answers for the tool.
    async fn prepare_cancel(
        &self,
        record: &Record,
        message: &OutgoingRecord,
        now: Moment,
    ) -> Result<Option<Addressed>, LateError> {
        let Some(PreparedCancel { tool, account, body }) = self.cancels.prepare(record, message, now).await? else {
            return Ok(None);
        };
        let url = self.parts.settings.tool_settings(&tool).cancel_url.clone();
        let services = self.parts.services.iter();
        let services = services.filter(|service| service.may_answer(account, &tool));
        let keys: Vec<WebhookKey> = services.filter_map(|service| service.key.clone()).collect();
        if let (Some(url), false) = (url, keys.is_empty()) {
            return Ok(Some(Addressed { url, keys, body }));
        }
        tracing::warn!(
            "a cancel cannot be sent: the configuration has no cancel_url or no secret for its tool any more"
        );
        self.give_up(record, message, now).await?;
        Ok(None)
    }

    /// Prepares an event, if it is true.
    async fn prepare_event(
        &self,
        record: &Record,
        message: &OutgoingRecord,
        (name, event): (&str, (EventKind, EventSubject, Moment)),
        now: Moment,
    ) -> Result<Option<Addressed>, LateError> {
        let Some(webhook) = self.parts.webhooks.iter().find(|webhook| webhook.name == name) else {
            tracing::warn!(
                webhook = name,
                "an event cannot be sent: the configuration has no such webhook any more"
            );
            self.give_up(record, message, now).await?;
            return Ok(None);
        };
        let principal = record.key.owner();
        match self.events.judge(principal, webhook, event, now).await? {
            JudgedEvent::True(body) => Ok(Some(Addressed {
                url: webhook.url.clone(),
                keys: vec![webhook.key.clone()],
                body,
            })),
            JudgedEvent::Later(due_at) => {
                let later = OutgoingRecord {
                    due_at,
                    give_up_at: message.give_up_at.saturating_add(due_at.saturating_sub(message.due_at)),
                    ..message.clone()
                };
                self.parts.messages.replace(record, &later, now).await?;
                self.outbox.due().schedule(record.key, outbox::time_until(due_at, now));
                Ok(None)
            }
            JudgedEvent::Untrue => {
                self.parts.ledger.commit(vec![record.remove_step()], now).await?;
                Ok(None)
            }
        }
    }

    async fn finish(&self, sent: &PreparedMessage, outcome: SendOutcome) -> Result<(), LateError> {
        retry_conflicts(|| async {
            let now = clock::unix_time();
            let Some(Stored { record, value: message }) = self.read_message(sent.key, now).await? else {
                return Ok(Some(()));
            };
            // A newer message has taken its place, and is scheduled by itself.
            if message.made_at != sent.made_at {
                return Ok(Some(()));
            }
            let is_done = match (&outcome, &message.purpose) {
                (SendOutcome::Failed, _) => self.note_failure(&record, &message, now).await?,
                (SendOutcome::Accepted(answer), Purpose::Cancel { call, .. }) => {
                    self.cancels
                        .note_reply(&record, *call, CancelReply::read(answer), now)
                        .await?
                }
                (SendOutcome::Accepted(_), Purpose::Event { .. }) => {
                    let steps = vec![record.remove_step()];
                    self.parts.commit(steps, now).await?
                }
            };
            Ok(is_done.then_some(()))
        })
        .await
    }

    /// Schedules the next try of a message, or gives it up. Returns `false` if another writer was first.
    async fn note_failure(&self, record: &Record, message: &OutgoingRecord, now: Moment) -> Result<bool, LateError> {
        let tries = message.tries.saturating_add(1);
        let pause = pause_after(tries);
        let later = OutgoingRecord {
            due_at: now.saturating_add(pause),
            tries,
            ..message.clone()
        };
        if later.due_at >= message.give_up_at {
            let is_done = self.give_up(record, &later, now).await?;
            if is_done {
                self.parts.telemetry.record_late_event("send_failed");
            }
            return Ok(is_done);
        }
        let is_done = self.parts.messages.replace(record, &later, now).await?;
        if is_done {
            self.parts.telemetry.record_late_event("send_failed");
            self.outbox.due().schedule(record.key, pause);
        }
        Ok(is_done)
    }

    /// Marks a message as given up. It stays for operators.
    async fn give_up(&self, record: &Record, message: &OutgoingRecord, now: Moment) -> Result<bool, LateError> {
        let dead = OutgoingRecord {
            is_dead: true,
            ..message.clone()
        };
        let is_done = self.parts.messages.replace(record, &dead, now).await?;
        if is_done {
            self.parts.telemetry.record_late_event("send_given_up");
            tracing::warn!(
                tries = message.tries,
                "a message was given up: `antiphon webhooks ls` lists it"
            );
        }
        Ok(is_done)
    }

    async fn read_message(&self, key: RecordKey, now: Moment) -> Result<Option<Stored<OutgoingRecord>>, LateError> {
        let found = self.parts.messages.read(key, now).await?;
        Ok(found.filter(|found| !found.value.is_dead))
    }
}
