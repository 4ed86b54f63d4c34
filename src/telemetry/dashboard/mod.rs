//! The feed of the dashboard: the last repairs with the structure of their bodies, late results, stuck sessions, taught
//! rules, the counts of the last hour, and updates as they happen. The admin API reads it.

mod entries;
mod feed;
mod history;
mod structure;
mod stuck_sessions;
mod taught_rules;
mod usage;

pub use entries::{DashboardUpdate, ExchangeNames, FailureEntry, LateCallLabel, LateResultChange, RepairEntry};
pub use feed::DashboardFeed;
pub use history::{CountName, HISTORY_STEP, HistoryStep, LatencyKind};
pub use structure::{BlockStructure, BodyStructure, MessageStructure, StructureChange, StructureJob};
pub use stuck_sessions::StuckSession;
pub use taught_rules::TaughtRule;
pub use usage::{USAGE_WINDOW, UsageCounts, UsageKind};
