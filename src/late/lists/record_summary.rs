//! Summaries of stored records for `antiphon store`: call, tool, session and state, never content.

use crate::{
    late::records::{IntentRecord, OutgoingRecord, ParkedResult, RecordedCall, RefusedResult, delivery_value},
    ledger::{Record, RecordKey, RecordKind},
    printable::printable_name,
    table::RecordValue,
};

/// The readable parts of a record, escaped and shortened. A part is `None` if the record does not have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordSummary {
    /// The state of the call or of the result.
    pub state: Option<&'static str>,
    /// The call id.
    pub call_id: Option<String>,
    /// The tool.
    pub tool: Option<String>,
    /// The name of the session.
    pub session: Option<String>,
    /// The service that posted the result.
    pub service: Option<String>,
    /// `true` if the record belongs to a service, and to no caller yet.
    pub is_of_service: bool,
}

/// Returns the key of the recorded call that a record belongs to. `None` if it belongs to none.
pub fn call_of_record(record: &Record) -> Option<RecordKey> {
    // These records have the name of their call, and contain nothing that identifies it.
    matches!(record.key.kind, RecordKind::Delivery | RecordKind::ResultContent)
        .then_some(record.key.with_kind(RecordKind::Call))
}

/// Summarizes a record. `call` is the one of [`call_of_record`].
pub fn summarize_record(record: &Record, call: Option<&Record>) -> RecordSummary {
    match record.key.kind {
        RecordKind::Call => summarize_call(record),
        RecordKind::Delivery => RecordSummary {
            state: Some(if record.value == delivery_value::RECEIVED {
                "received"
            } else {
                "waiting"
            }),
            ..call.map(summarize_call).unwrap_or_default()
        },
        RecordKind::ResultContent => RecordSummary {
            state: None,
            ..call.map(summarize_call).unwrap_or_default()
        },
        RecordKind::Parked => summarize_parked(record),
        RecordKind::RefusedResult => summarize_refused(record),
        RecordKind::Intent => summarize_intent(record),
        RecordKind::Outgoing => summarize_message(record),
        _ => RecordSummary::default(),
    }
}

fn summarize_intent(record: &Record) -> RecordSummary {
    let intent = IntentRecord::decode(&record.value);
    intent.map_or_else(RecordSummary::default, |intent| RecordSummary {
        state: Some(intent.state.label()),
        tool: Some(printable_name(&intent.tool)),
        service: Some(intent.run.service).filter(|name| !name.is_empty()),
        ..RecordSummary::default()
    })
}

fn summarize_message(record: &Record) -> RecordSummary {
    let message = OutgoingRecord::decode(&record.value);
    message.map_or_else(RecordSummary::default, |message| RecordSummary {
        state: Some(if message.is_dead { "given_up" } else { "waiting" }),
        ..RecordSummary::default()
    })
}

fn summarize_call(record: &Record) -> RecordSummary {
    let Some(call) = RecordedCall::decode(&record.value) else {
        return RecordSummary::default();
    };
    RecordSummary {
        state: Some(if call.is_withheld {
            "withheld"
        } else {
            call.state.label()
        }),
        call_id: Some(printable_name(&call.id)),
        tool: Some(printable_name(&call.tool)),
        session: call.session_label.map(|label| printable_name(label.as_bytes())),
        service: call.posted.map(|posted| posted.service),
        is_of_service: false,
    }
}

fn summarize_parked(record: &Record) -> RecordSummary {
    let Some(parked) = ParkedResult::decode(&record.value) else {
        return RecordSummary::default();
    };
    RecordSummary {
        state: Some("parked"),
        call_id: Some(printable_name(&parked.call_id)),
        tool: parked.described.map(|(tool, _)| printable_name(&tool)),
        session: parked.session.as_deref().map(printable_name),
        service: Some(parked.posted.service),
        is_of_service: true,
    }
}

fn summarize_refused(record: &Record) -> RecordSummary {
    let Some(refused) = RefusedResult::decode(&record.value) else {
        return RecordSummary::default();
    };
    RecordSummary {
        state: Some(refused.reason.label()),
        call_id: Some(printable_name(&refused.call_id)),
        service: Some(refused.posted.service),
        ..RecordSummary::default()
    }
}
