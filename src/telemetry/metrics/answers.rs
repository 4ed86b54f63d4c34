//! Metrics of providers' answers: their content in counts, and the ends of their streams.

use prometheus_client::metrics::{counter::Counter, gauge::Gauge};

use super::{family::CounterFamily, label_sets::LabelSpace, page::metric_table};
use crate::{
    policy::Side,
    telemetry::events::{AnswerSummary, ExchangeEnded},
    wire::{Format, watch::stop_labels},
};

/// Directions of tokens, as seen by the model.
const TOKEN_DIRECTIONS: [&str; 2] = ["input", "output"];

metric_table! {
    /// Metrics of answers.
    AnswerMetrics(page) {
        streams_active: Gauge = page.gauge("streams_active", "Streamed answers that the proxy is relaying to clients");
        calls_emitted: CounterFamily<1> = page.counters(
            "calls_emitted",
            "Tool calls in answers that the client must answer",
            LabelSpace::closed([("format", &Format::ALL.map(Format::label))]),
        );
        server_tools: CounterFamily<1> = page.counters(
            "server_tools",
            "Tool calls in answers that the provider runs itself",
            LabelSpace::closed([("format", &Format::ALL.map(Format::label))]),
        );
        stream_ends: CounterFamily<2> = page.counters(
            "stream_ends",
            "Streamed answers by stop reason: error for an error event, none if the last event is missing",
            // Only the pairs that exist: each format has its own stop reasons.
            LabelSpace::listed(["format", "stop"], stops_of_formats()),
        );
        stream_stalls: CounterFamily<1> = page.counters(
            "stream_stalls",
            "Answers that stalled until a timeout of the proxy ended them, by the side that caused the stall",
            LabelSpace::closed([("side", &Side::ALL.map(Side::label))]),
        );
        tokens: CounterFamily<2> = page.counters(
            "tokens",
            "Tokens that answers reported; input includes cached tokens",
            LabelSpace::closed([("format", &Format::ALL.map(Format::label)), ("direction", &TOKEN_DIRECTIONS)]),
        );
        watcher_blind: Counter = page.counter(
            "watcher_blind",
            "Answers that the watcher could not read: compressed, or with a damaged frame; what it did not read is not counted",
        );
        watcher_truncated: Counter = page.counter(
            "watcher_truncated",
            "Events in answers that were too long for the watcher to read completely",
        );
    }
}

impl AnswerMetrics {
    /// Counts the content of an exchange's answer, and its stall if there was one.
    pub(super) fn record_exchange(&self, event: &ExchangeEnded) {
        if let Some(answer) = &event.answer_summary {
            self.record_answer(answer);
        }
        if event.is_stalled {
            self.stream_stalls.count([event.stall_side()]);
        }
    }

    fn record_answer(&self, answer: &AnswerSummary) {
        let format = answer.format.label();
        // Most answers contain neither, so the lookup of the label set is skipped.
        for (counters, count) in [
            (&self.calls_emitted, answer.calls),
            (&self.server_tools, answer.server_tools),
        ] {
            if count > 0 {
                counters.add([format], count);
            }
        }
        if answer.is_stream {
            self.stream_ends.count([format, answer.stop]);
        }
        let [input, output] = TOKEN_DIRECTIONS;
        self.tokens.add([format, input], answer.input_tokens);
        self.tokens.add([format, output], answer.output_tokens);
        self.watcher_truncated.inc_by(answer.truncated);
    }
}

/// Returns each format with each of its stop reasons.
fn stops_of_formats() -> Vec<[&'static str; 2]> {
    let stops = |format: Format| stop_labels(format).map(move |stop| [format.label(), stop]);
    Format::ALL.into_iter().flat_map(stops).collect()
}
