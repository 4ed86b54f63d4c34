//! Traces: two spans for each exchange, built when it has ended and exported in the background. Never content.

mod export;
mod names;
mod parent;
mod settings;
mod spans;
mod tracer;

pub use export::TraceExporter;
pub use names::NAMES as TRACE_NAMES;
pub use parent::TRACEPARENT;
pub use settings::{ExportHeaders, TraceSampling, TraceSettings};
pub(super) use tracer::Tracer;
