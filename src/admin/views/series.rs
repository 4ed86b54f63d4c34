//! The last hour, as columns: what charts draw.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use utoipa::ToSchema;

use crate::telemetry::{
    Telemetry,
    dashboard::{CountName, HISTORY_STEP, HistoryStep},
};

/// Counts of the last hour, step by step.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::admin) struct SeriesPage {
    step_seconds: u64,
    /// When each step began, in seconds since 1970; the last one runs. Steps without anything are zero.
    at: Vec<u64>,
    series: Vec<Series>,
}

/// One count over time.
#[derive(Debug, Serialize, ToSchema)]
struct Series {
    name: &'static str,
    label: &'static str,
    /// One a step; null where there is nothing to tell.
    values: Vec<Option<u64>>,
}

/// The counts of one step: by name, then by label.
pub(in crate::admin) type Point = BTreeMap<&'static str, BTreeMap<&'static str, Option<u64>>>;

/// The page of the last hour: from the first step that anything happened in to the running one.
pub(in crate::admin) fn series(telemetry: &Telemetry) -> SeriesPage {
    let (steps, running) = (telemetry.dashboard().history(), telemetry.dashboard().current_step());
    let first = steps.first().map_or(running.at, |step| step.at);
    let steps_since = running.at.saturating_sub(first) / HISTORY_STEP.as_secs();
    let at: Vec<u64> = (0..=steps_since)
        .map(|step| first + step * HISTORY_STEP.as_secs())
        .collect();
    let by_time: BTreeMap<u64, &HistoryStep> = steps.iter().map(|step| (step.at, step)).collect();
    let names: BTreeSet<CountName> = steps.iter().flat_map(|step| step.counts.keys().copied()).collect();
    let count = |name: CountName| {
        let value = |at: &u64| {
            by_time
                .get(at)
                .map_or(0, |step| step.counts.get(&name).copied().unwrap_or(0))
        };
        Series {
            name: name.0,
            label: name.1,
            values: at.iter().map(|at| Some(value(at))).collect(),
        }
    };
    let share = |(name, share): (&'static str, f64)| Series {
        name,
        label: "",
        values: at.iter().map(|at| by_time.get(at)?.overhead_us(share)).collect(),
    };
    let mut series: Vec<Series> = names.into_iter().map(count).collect();
    if !steps.is_empty() {
        series.extend(SHARES.map(share));
    }
    SeriesPage {
        step_seconds: HISTORY_STEP.as_secs(),
        at,
        series,
    }
}

const SHARES: [(&str, f64); 2] = [("overhead_p50_us", 0.5), ("overhead_p99_us", 0.99)];

/// One step by itself.
pub(in crate::admin) fn point(step: &HistoryStep) -> Point {
    let mut point = Point::new();
    for ((name, label), count) in &step.counts {
        point.entry(name).or_default().insert(label, Some(*count));
    }
    for (name, share) in SHARES {
        if let Some(micros) = step.overhead_us(share) {
            point.entry(name).or_default().insert("", Some(micros));
        }
    }
    point
}
