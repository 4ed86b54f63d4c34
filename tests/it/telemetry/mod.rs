//! Metrics, log lines and traces.

pub(crate) mod log_lines;
pub(crate) mod metrics;
pub(crate) mod metrics_bound;
pub(crate) mod metrics_page;
pub(crate) mod trace_export;
pub(crate) mod trace_settings;
pub(crate) mod traces;
