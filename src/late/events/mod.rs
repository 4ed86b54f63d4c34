//! Events for the webhooks of callers: which there are, for whom, and what each says.
//!
//! An event is stored with the change that it is about, or before the time at which it may become true. When it is due it
//! is judged once more, so that a receiver never learns of what has not happened.

mod messages;

pub(super) use messages::JudgedEvent;

use std::{future::ready, sync::Arc};

use super::{
    changes::{ChangeParticipant, JoinedSteps, Joining, LateChange},
    outbox::{Outbox, time_until},
    parts::LateParts,
    records::{EventKind, EventSubject, OutgoingRecord, Purpose, RecordedCall},
    webhook::{GIVE_UP, Webhook},
};
use crate::{
    auth::{Principal, PrincipalHash},
    digest::digest_of,
    ledger::{Moment, RecordKey},
    repair::Tier,
    table::RecordValue,
};

/// The events of changes. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Events {
    parts: Arc<LateParts>,
    outbox: Outbox,
}

/// The event of a change.
#[derive(Clone, Copy, Debug)]
struct NewEvent {
    /// The key of the record that it is about.
    about: RecordKey,
    account: PrincipalHash,
    what: (EventKind, EventSubject),
    due_at: Moment,
    storing: EventStoring,
}

/// The way in which an event is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventStoring {
    /// In the commit of its change.
    InCommit,
    /// By the background writer: its change has no commit of its own.
    Queued,
}

/// A message of an event, with its key.
type EventMessage = (RecordKey, OutgoingRecord);

impl NewEvent {
    /// Returns the event of a change. `None` if it has none.
    fn of_change(change: LateChange<'_>, now: Moment) -> Option<Self> {
        use EventStoring::{InCommit, Queued};
        let of_call = |key: RecordKey, call: &RecordedCall, kind, due_at, storing| {
            Some(Self {
                about: key,
                account: call.account,
                what: (kind, EventSubject::Call(key.name)),
                due_at,
                storing,
            })
        };
        match change {
            LateChange::Opened(key, call) => of_call(key, call, EventKind::Expired, call.deadline, Queued),
            LateChange::Settled(key, call) | LateChange::Corrected(key, call) => {
                of_call(key, call, EventKind::Settled, now, InCommit)
            }
            LateChange::Conflict(key, call) => of_call(key, call, EventKind::Conflict, now, Queued),
            LateChange::CancelRequested(key, call) => of_call(key, call, EventKind::Cancel, now, InCommit),
            LateChange::Claimed(key, intent) => (intent.tier == Tier::OneWay).then_some(Self {
                about: key,
                account: intent.account,
                // True only if the holder disappears.
                what: (EventKind::Unknown, EventSubject::Intent(key.name)),
                due_at: intent.run.lease_until,
                storing: InCommit,
            }),
            LateChange::Withdrawn(..)
            | LateChange::Answered(..)
            | LateChange::Heartbeat(_)
            | LateChange::SessionClosed(_) => None,
        }
    }
}

impl Events {
    /// Creates the events, whose messages go into `outbox`.
    pub(super) fn new(parts: &Arc<LateParts>, outbox: &Outbox) -> Self {
        Self {
            parts: Arc::clone(parts),
            outbox: outbox.clone(),
        }
    }

    /// Returns the webhooks that get the events of an account.
    fn webhooks_of(&self, account: PrincipalHash) -> impl Iterator<Item = &Webhook> {
        let account = Principal::from_bytes(account);
        self.parts
            .webhooks
            .iter()
            .filter(move |webhook| webhook.reaches(account))
    }

    /// Returns the messages of an event, one for each webhook of the caller.
    fn messages_of(&self, event: &NewEvent, now: Moment) -> Vec<EventMessage> {
        let (kind, subject) = event.what;
        let message = |webhook: &Webhook| {
            let key = event_key(event.about.owner(), webhook, event.what, now);
            let message = OutgoingRecord {
                purpose: Purpose::Event {
                    webhook: webhook.name.clone(),
                    kind,
                    subject,
                },
                made_at: now,
                due_at: event.due_at,
                give_up_at: event.due_at.saturating_add(GIVE_UP),
                tries: 0,
                is_dead: false,
            };
            (key, message)
        };
        self.webhooks_of(event.account).map(message).collect()
    }

    /// Queues the removal of events that a call no longer has: it has ended in time.
    fn forget_deadline(&self, call_key: RecordKey, call: &RecordedCall) {
        for webhook in self.webhooks_of(call.account) {
            let event = (EventKind::Expired, EventSubject::Call(call_key.name));
            let key = event_key(call_key.owner(), webhook, event, Moment::ZERO);
            self.outbox.queue_change(key, None);
        }
    }
}

impl ChangeParticipant for Events {
    fn join<'j>(&'j self, change: LateChange<'j>, now: Moment) -> Joining<'j> {
        let event = NewEvent::of_change(change, now).filter(|event| event.storing == EventStoring::InCommit);
        let messages = event.map(|event| self.messages_of(&event, now)).unwrap_or_default();
        let step = |(key, message): EventMessage| self.parts.messages.insert_step(key, &message, now);
        let steps = messages.into_iter().map(step).collect();
        Box::pin(ready(Ok(JoinedSteps {
            steps,
            ..JoinedSteps::default()
        })))
    }

    fn note(&self, change: LateChange<'_>, now: Moment) {
        if let Some(event) = NewEvent::of_change(change, now) {
            for (key, message) in self.messages_of(&event, now) {
                match event.storing {
                    EventStoring::InCommit => self.outbox.due().schedule(key, time_until(message.due_at, now)),
                    EventStoring::Queued => self.outbox.queue_change(key, Some(message)),
                }
            }
        }
        if let LateChange::Settled(key, call) | LateChange::Corrected(key, call) | LateChange::Answered(key, call) =
            change
        {
            self.forget_deadline(key, call);
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
