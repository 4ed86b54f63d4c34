//! Events for the webhooks of callers: which there are, for whom, and what each says.
//!
//! An event is stored with the change that it is about, or before the time at which it may become true. When it is due it
//! is judged once more, so that a receiver never learns of what has not happened.

mod messages;

pub(super) use messages::{JudgedEvent, judge};

use super::{
    LateStore, outbox,
    records::{EventKind, EventSubject, OutgoingRecord, Purpose},
    webhook::{GIVE_UP, Webhook},
};
use crate::{
    auth::Principal,
    digest::digest_of,
    ledger::{CommitStep, Moment, RecordKey, RecordName},
    table::RecordValue,
};

/// Events that are stored in one commit with their change, and scheduled after it.
#[derive(Debug, Default)]
pub(super) struct Notices(Vec<(RecordKey, OutgoingRecord)>);

impl Notices {
    /// Returns the events of one change, one for each webhook of the caller. They are due at `due_at`.
    pub(super) fn of_change(
        late: &LateStore,
        (principal, account): (Principal, Principal),
        kind: EventKind,
        subject: EventSubject,
        (due_at, now): (Moment, Moment),
    ) -> Self {
        let webhooks = late.0.parts.webhooks.iter().filter(|webhook| webhook.reaches(account));
        let notice = |webhook: &Webhook| {
            let key = event_key(principal, webhook, (kind, subject), now);
            let message = OutgoingRecord {
                purpose: Purpose::Event {
                    webhook: webhook.name.clone(),
                    kind,
                    subject,
                },
                made_at: now,
                due_at,
                give_up_at: due_at.saturating_add(GIVE_UP),
                tries: 0,
                is_dead: false,
            };
            (key, message)
        };
        Self(webhooks.map(notice).collect())
    }

    /// Queues the removal of events that a call has no more: it has ended in time.
    pub(super) fn forget_deadline(late: &LateStore, (principal, account): (Principal, Principal), call: RecordName) {
        for webhook in late.0.parts.webhooks.iter().filter(|webhook| webhook.reaches(account)) {
            let event = (EventKind::Expired, EventSubject::Call(call));
            let key = event_key(principal, webhook, event, Moment::ZERO);
            late.0.outbox.queue_change(key, None);
        }
    }

    /// Returns the steps that store the events.
    pub(super) fn steps<'n>(&'n self, late: &'n LateStore) -> impl Iterator<Item = CommitStep> + 'n {
        self.0
            .iter()
            .map(move |(key, message)| late.0.parts.messages.insert_step(*key, message, message.made_at))
    }

    /// Schedules the events, once they are stored.
    pub(super) fn schedule(&self, late: &LateStore, now: Moment) {
        for (key, message) in &self.0 {
            late.0
                .outbox
                .due()
                .schedule(*key, outbox::time_until(message.due_at, now));
        }
    }

    /// Queues the events for the background writer.
    pub(super) fn queue(self, late: &LateStore) {
        for (key, message) in self.0 {
            late.0.outbox.queue_change(key, Some(message));
        }
    }
}

/// Returns the key of an event. A call has one deadline, and any number of other events.
fn event_key(
    principal: Principal,
    webhook: &Webhook,
    (kind, subject): (EventKind, EventSubject),
    made_at: Moment,
) -> RecordKey {
    let made_at = if kind == EventKind::Expired {
        Moment::ZERO
    } else {
        made_at
    };
    let parts = [
        &b"event"[..],
        webhook.name.as_bytes(),
        kind.label().as_bytes(),
        subject.name(),
        &made_at.as_nanos().to_le_bytes(),
    ];
    OutgoingRecord::key(principal, digest_of(parts))
}
