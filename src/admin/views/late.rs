//! Calls that nobody waits for any more, and what became of results that came late.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::date;
use crate::{
    late::Late,
    telemetry::{Telemetry, dashboard::LateResultChange},
};

/// Detached calls and late results, since the start.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::admin) struct LatePage {
    /// Calls that nobody is known to wait for any more, by why.
    detached: BTreeMap<&'static str, u64>,
    /// Posted results, by what became of them.
    events: BTreeMap<&'static str, u64>,
    /// Posted results that wait for their owners, as far as those were seen since the start.
    outstanding: usize,
    /// What last became of posted results, the newest first.
    recent: Vec<LateRow>,
}

/// What became of a posted result.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::admin) struct LateRow {
    /// When, RFC 3339.
    at: String,
    event: &'static str,
    /// Since it was posted, where it was delivered.
    age_seconds: Option<f64>,
}

/// The page of late results.
pub(in crate::admin) fn late(telemetry: &Telemetry, late: &Late) -> LatePage {
    LatePage {
        detached: telemetry.detached_calls().into_iter().collect(),
        events: telemetry.late_result_counts().into_iter().collect(),
        outstanding: late.waiting_in_all(),
        recent: telemetry.dashboard().late_results().into_iter().map(row).collect(),
    }
}

/// One row of it.
pub(in crate::admin) fn row(news: LateResultChange) -> LateRow {
    LateRow {
        at: date(news.at),
        event: news.event,
        age_seconds: news.age.map(|age| age.as_secs_f64()),
    }
}
