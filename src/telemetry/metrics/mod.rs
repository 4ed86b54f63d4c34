//! Every metric. A metric is one row of a table: name, help, buckets, labels, and the handle that records it.
//!
//! | file | table |
//! |---|---|
//! | `exchanges` | exchanges: outcome, duration, overhead |
//! | `repairs` | findings in request bodies, and repair actions |
//! | `answers` | providers' answers: streams, tool calls, tokens |
//! | `upstreams` | attempts, profiles, breakers, response times |
//! | `sessions` | conversations and clients' tool calls |
//! | `ledger` | the ledger and late results |
//! | `bodies` | the budgets of request bodies |
//! | `spans` | the trace export |
//! | `instance` | version, configuration, refused connections and handshakes, the page itself |
//! | `process` | CPU time, memory and files of the process |
//!
//! `text_format` converts the page for tools that do not read OpenMetrics.
//!
//! Labels come from closed lists and from the configuration. The only text of a request that becomes a label is the
//! name of a tool. [`page`] bounds the number of series over all tables.

mod answers;
mod bodies;
mod exchanges;
mod family;
mod instance;
mod label_sets;
mod ledger;
mod page;
mod process;
mod repairs;
mod sessions;
mod sourced;
mod spans;
mod text_format;
mod upstreams;

use std::collections::BTreeSet;

use prometheus_client::encoding::text;

pub use bodies::BodyLoad;
pub use ledger::{CLAIM_ANSWERS, LATE_RESULT_EVENTS, LEDGER_ERRORS, LEDGER_OPS, POST_ANSWERS};
pub use text_format::MetricsFormat;

use super::events::ExchangeEnded;
use answers::AnswerMetrics;
use bodies::BodyMetrics;
use exchanges::{ExchangeMetrics, UpstreamNames};
use instance::InstanceMetrics;
use ledger::LedgerMetrics;
use page::MetricsPage;
use process::ProcessPage;
use repairs::RepairMetrics;
use sessions::SessionMetrics;
use spans::SpanMetrics;
use upstreams::UpstreamMetrics;

/// All tables, and the page that they are on.
#[derive(Debug)]
pub(super) struct Metrics {
    page: MetricsPage,
    process: ProcessPage,
    upstream_names: UpstreamNames,
    pub(super) exchanges: ExchangeMetrics,
    pub(super) repairs: RepairMetrics,
    pub(super) answers: AnswerMetrics,
    pub(super) upstreams: UpstreamMetrics,
    pub(super) sessions: SessionMetrics,
    pub(super) ledger: LedgerMetrics,
    pub(super) bodies: BodyMetrics,
    pub(super) spans: SpanMetrics,
    pub(super) instance: InstanceMetrics,
}

impl Metrics {
    /// Creates every metric, at zero. `upstreams` are the configured names.
    pub(super) fn new(upstreams: BTreeSet<String>) -> Self {
        let mut page = MetricsPage::new();
        let first_names = upstreams.clone();
        let metrics = Self {
            exchanges: ExchangeMetrics::register(&mut page),
            repairs: RepairMetrics::register(&mut page),
            answers: AnswerMetrics::register(&mut page),
            upstreams: UpstreamMetrics::register(&mut page),
            sessions: SessionMetrics::register(&mut page),
            ledger: LedgerMetrics::register(&mut page),
            bodies: BodyMetrics::register(&mut page),
            spans: SpanMetrics::register(&mut page),
            instance: InstanceMetrics::register(&mut page),
            process: ProcessPage::new(),
            upstream_names: UpstreamNames::new(upstreams),
            page,
        };
        metrics.upstreams.show_upstreams(first_names.iter());
        // The process only starts if its configuration was loaded.
        metrics.instance.record_reload(true);
        metrics
    }

    /// Replaces the configured names of upstreams.
    pub(super) fn set_upstreams(&self, names: BTreeSet<String>) {
        self.upstreams.show_upstreams(names.iter());
        self.upstream_names.replace_names(names);
    }

    /// Counts an exchange that ended in all tables.
    pub(super) fn record_exchange(&self, event: &ExchangeEnded) {
        self.exchanges.record_end(event, &self.upstream_names);
        self.repairs.record_exchange(event);
        self.answers.record_exchange(event);
        self.upstreams.record_exchange(event);
    }

    /// Returns the upper bound of the number of series on the page.
    pub(super) const fn series_max(&self) -> usize {
        self.page.series_max() + ProcessPage::SERIES_MAX
    }

    /// Returns the page in a format. It is empty if it cannot be written.
    pub(super) fn encode_as(&self, format: MetricsFormat) -> String {
        let page = self.encode();
        match format {
            MetricsFormat::OpenMetrics => page,
            MetricsFormat::Text => text_format::to_text_format(&page),
        }
    }

    /// Returns the page as OpenMetrics text.
    fn encode(&self) -> String {
        let mut page = String::new();
        let written = self
            .page
            .write(&mut page)
            .and_then(|()| self.process.write(&mut page))
            .and_then(|()| text::encode_eof(&mut page));
        match written {
            Ok(()) => page,
            Err(error) => {
                // Half a page would hide series.
                tracing::error!(%error, "failed to encode the metrics page");
                String::new()
            }
        }
    }
}
