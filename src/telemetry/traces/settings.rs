//! The settings of traces: the collector, the sampling, and the name of the service.

use std::{collections::BTreeMap, fmt, time::Duration};

use http::Uri;

/// The settings of traces. Without settings, traces are off.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSettings {
    /// The full URL that spans are posted to.
    pub endpoint: Uri,
    /// The headers of each export. They may contain a credential.
    pub headers: ExportHeaders,
    /// The timeout of one export, retries included.
    pub timeout: Duration,
    /// The longest time that spans wait to be sent as one batch.
    pub batch_delay: Duration,
    /// The choice of traces to export.
    pub sampling: TraceSampling,
    /// The attributes of the service, such as `service.name`.
    pub resource: BTreeMap<String, String>,
    /// `true` if requests are sent upstream with the proxy's span as their parent, in place of the client's.
    pub propagates: bool,
}

impl TraceSettings {
    /// Creates settings that export to `endpoint`, with the defaults of OpenTelemetry's specification.
    pub fn for_endpoint(endpoint: Uri) -> Self {
        Self {
            endpoint,
            headers: ExportHeaders::default(),
            timeout: Duration::from_secs(10),
            batch_delay: Duration::from_secs(5),
            sampling: TraceSampling::default(),
            resource: BTreeMap::from([("service.name".to_owned(), "antiphon".to_owned())]),
            propagates: false,
        }
    }
}

/// The headers of exports by name, percent-encoded. `Debug` hides the values.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ExportHeaders(pub BTreeMap<String, String>);

impl fmt::Debug for ExportHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The choice of traces to export.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceSampling {
    /// `true` if a request with a parent span follows the sampling decision of that parent.
    pub follows_parent: bool,
    /// The share of all other traces, from 0 to 1.
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
