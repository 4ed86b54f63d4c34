//! Logging set-up and the sink of events.

pub mod events;
