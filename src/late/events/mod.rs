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

/// An event of a change, with its key.
type WebhookNotice = (RecordKey, OutgoingRecord);

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

    /// Returns the events of one change, one for each webhook of the caller.
    fn notices(&self, change: LateChange<'_>, now: Moment) -> Vec<WebhookNotice> {
        let of_call = |key: RecordKey, call: &RecordedCall, kind, due_at| {
            Some((key, call.account, kind, EventSubject::Call(key.name), due_at))
        };
        let event = match change {
            LateChange::Opened(key, call) => of_call(key, call, EventKind::Expired, call.deadline),
            LateChange::Settled(key, call) | LateChange::Corrected(key, call) => {
                of_call(key, call, EventKind::Settled, now)
            }
            LateChange::Conflict(key, call) => of_call(key, call, EventKind::Conflict, now),
            LateChange::CancelRequested(key, call) => of_call(key, call, EventKind::Cancel, now),
            LateChange::Claimed(key, intent) => {
                let about = EventSubject::Intent(key.name);
                // True only if the holder disappears.
                let event = (key, intent.account, EventKind::Unknown, about, intent.run.lease_until);
                (intent.tier == Tier::OneWay).then_some(event)
            }
            LateChange::Withdrawn(..)
            | LateChange::Answered(..)
            | LateChange::Heartbeat(_)
            | LateChange::SessionClosed(_) => None,
        };
        let Some((key, account, kind, subject, due_at)) = event else {
            return Vec::new();
        };
        let notice = |webhook: &Webhook| {
            let key = event_key(key.owner(), webhook, (kind, subject), now);
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
        self.webhooks_of(account).map(notice).collect()
    }

    /// Queues the removal of events that a call has no more: it has ended in time.
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
        let notices = match change {
            LateChange::Settled(..)
            | LateChange::Corrected(..)
            | LateChange::CancelRequested(..)
            | LateChange::Claimed(..) => self.notices(change, now),
            // The first two have no commit that could take an event with it: theirs are queued. The others have none.
            LateChange::Opened(..)
            | LateChange::Conflict(..)
            | LateChange::Withdrawn(..)
            | LateChange::Answered(..)
            | LateChange::Heartbeat(_)
            | LateChange::SessionClosed(_) => Vec::new(),
        };
        let step = |(key, message): WebhookNotice| self.parts.messages.insert_step(key, &message, now);
        let steps = notices.into_iter().map(step).collect();
        Box::pin(ready(Ok(JoinedSteps {
            steps,
            ..JoinedSteps::default()
        })))
    }

    fn note(&self, change: LateChange<'_>, now: Moment) {
        for (key, message) in self.notices(change, now) {
            if matches!(change, LateChange::Opened(..) | LateChange::Conflict(..)) {
                self.outbox.queue_change(key, Some(message));
            } else {
                self.outbox.due().schedule(key, time_until(message.due_at, now));
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
