//! The fields of an exchange's line that people see, read from its log event.

use std::fmt;

use tracing::{
    Event,
    field::{Field, Visit},
};

/// The fields of an exchange's line for people. A field that the event lacks is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExchangeFields {
    pub(super) request_id: String,
    pub(super) method: String,
    pub(super) path: String,
    pub(super) upstream: String,
    pub(super) model: String,
    pub(super) status: u64,
    pub(super) dur_ms: u64,
    pub(super) side: String,
    pub(super) code: String,
    pub(super) cause: String,
    pub(super) repair: String,
    pub(super) rules: String,
    pub(super) broken_calls: String,
    pub(super) is_history_refused: bool,
}

impl ExchangeFields {
    /// Reads the fields of an event.
    pub(super) fn from_event(event: &Event<'_>) -> Self {
        let mut fields = Self::default();
        event.record(&mut fields);
        fields
    }
}

impl Visit for ExchangeFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        let text = match field.name() {
            "request_id" => &mut self.request_id,
            "method" => &mut self.method,
            "path" => &mut self.path,
            "upstream" => &mut self.upstream,
            "model" => &mut self.model,
            "side" => &mut self.side,
            "code" => &mut self.code,
            "cause" => &mut self.cause,
            "repair" => &mut self.repair,
            "rules" => &mut self.rules,
            "broken_calls" => &mut self.broken_calls,
            _ => return,
        };
        value.clone_into(text);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "status" => self.status = value,
            "dur_ms" => self.dur_ms = value,
            _ => {}
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        if field.name() == "history_refused" {
            self.is_history_refused = value;
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {
        // All fields of the line have one of the types above. The message is the same for every exchange.
    }
}
