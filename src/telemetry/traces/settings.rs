//! Where spans go, which of them, and in whose name.

use std::{collections::BTreeMap, fmt, time::Duration};

use http::Uri;

/// Settings of traces; without any there are none.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSettings {
    /// Where spans are posted to: all of the URL.
    pub endpoint: Uri,
    /// What is sent along, a credential perhaps.
    pub headers: ExportHeaders,
    /// How long one export may take, its retries included.
    pub timeout: Duration,
    /// How long a span waits for others that go along.
    pub delay: Duration,
    /// Which traces are sent.
    pub sampling: TraceSampling,
    /// Who sends: `service.name` and whatever else is said about us.
    pub resource: BTreeMap<String, String>,
    /// Whether requests go up with a span of ours as their parent, in place of the client's own.
    pub propagates: bool,
}

impl TraceSettings {
    /// Spans to `endpoint`, everything else as the specification has it.
    pub fn to(endpoint: Uri) -> Self {
        Self {
            endpoint,
            headers: ExportHeaders::default(),
            timeout: Duration::from_secs(10),
            delay: Duration::from_secs(5),
            sampling: TraceSampling::default(),
            resource: BTreeMap::from([("service.name".to_owned(), "antiphon".to_owned())]),
            propagates: false,
        }
    }
}

/// Headers of exports by name, percent-encoded. Their values are never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ExportHeaders(pub BTreeMap<String, String>);

impl fmt::Debug for ExportHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Which traces are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceSampling {
    /// Whether the request's own trace decides, where it comes with one.
    pub follows_parent: bool,
    /// The share of the others, from 0 to 1.
    pub share: f64,
}

impl Default for TraceSampling {
    fn default() -> Self {
        Self {
            follows_parent: true,
            share: 1.0,
        }
    }
}
