//! Requests, failures, repairs and tokens of the last minutes by name, for the admin API.

use serde::Serialize;
use utoipa::ToSchema;

use crate::telemetry::{
    Telemetry,
    dashboard::{USAGE_WINDOW, UsageCounts, UsageKind},
};

/// Limit of rows of each kind.
const ROWS_MAX: usize = 12;

/// The traffic of the last minutes by name: the names with the most requests, 12 of each kind.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Usage)]
pub(in crate::api::admin) struct UsagePage {
    /// The time for which it is counted, in seconds.
    seconds: u64,
    /// By the model that the request names.
    models: Vec<UsageView>,
    /// By client program, without its version.
    clients: Vec<UsageView>,
    /// By the name of the client token.
    tokens: Vec<UsageView>,
    upstreams: Vec<UsageView>,
}

/// The traffic of one name.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UsageRow)]
struct UsageView {
    /// The name; null for requests without one, and for those with the 65th and further names of a minute.
    name: Option<String>,
    requests: u64,
    /// Failures that no client caused.
    failures: u64,
    repaired: u64,
    input_tokens: u64,
    output_tokens: u64,
}

/// Returns the traffic of the last minutes.
pub(in crate::api::admin) fn usage_page(telemetry: &Telemetry) -> UsagePage {
    let rows = |kind| {
        let names = telemetry.dashboard_feed().usage_of(kind, ROWS_MAX);
        names.into_iter().map(usage_view).collect()
    };
    UsagePage {
        seconds: USAGE_WINDOW.as_secs(),
        models: rows(UsageKind::Model),
        clients: rows(UsageKind::Client),
        tokens: rows(UsageKind::Token),
        upstreams: rows(UsageKind::Upstream),
    }
}

fn usage_view((name, counts): (Box<str>, UsageCounts)) -> UsageView {
    UsageView {
        name: Some(String::from(name)).filter(|name| !name.is_empty()),
        requests: counts.requests,
        failures: counts.failures,
        repaired: counts.repaired,
        input_tokens: counts.input_tokens,
        output_tokens: counts.output_tokens,
    }
}
