//! Metrics of the budgets of request bodies.

use prometheus_client::registry::Unit;

use super::{page::metric_table, sourced::SourcedGauges};

metric_table! {
    /// Metrics of the budgets of request bodies.
    BodyMetrics(page) {
        load: SourcedGauges<4> = SourcedGauges::register(page, [
            ("body_memory", "Bytes of request bodies in memory", Some(Unit::Bytes)),
            ("body_memory_max", "Bytes that request bodies may have in memory", Some(Unit::Bytes)),
            ("bodies_waiting_for_memory", "Request bodies that wait for memory", None),
            (
                "bodies_waiting_for_work",
                "Large or badly broken request bodies that wait to be read, repaired or searched",
                None,
            ),
        ]);
    }
}

/// Use of the budgets of request bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyLoad {
    /// Bytes of all bodies in memory.
    pub bytes: u64,
    /// Limit of these bytes.
    pub bytes_max: u64,
    /// Bodies that wait for memory.
    pub waiting_for_memory: usize,
    /// Bodies that wait for a place in heavy work.
    pub waiting_for_work: usize,
}

impl BodyMetrics {
    /// Sets the function that returns the present use of the budgets. Later calls have no effect.
    pub(in crate::telemetry) fn set_load_source(&self, source: impl Fn() -> BodyLoad + Send + Sync + 'static) {
        let count = |waiting: usize| u64::try_from(waiting).unwrap_or(u64::MAX);
        self.load.set_source(Box::new(move || {
            let load = source();
            let waiting = [load.waiting_for_memory, load.waiting_for_work].map(count);
            Some([load.bytes, load.bytes_max, waiting[0], waiting[1]])
        }));
    }
}
