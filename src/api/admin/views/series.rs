//! The counts of the last hour as time series, for charts.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use utoipa::ToSchema;

use crate::telemetry::{
    Telemetry,
    dashboard::{CountName, HISTORY_STEP, HistoryStep, LatencyKind},
};

/// The counts of the last hour, step by step.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api::admin) struct SeriesPage {
    /// The length of a step, in seconds.
    step_seconds: u64,
    /// The start of each step, in seconds since 1970. The last step is still running.
    at: Vec<u64>,
    series: Vec<SeriesView>,
}

/// One count or percentile over time.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Series)]
struct SeriesView {
    name: &'static str,
    label: &'static str,
    /// One value per step: 0 if nothing was counted, null if there is no latency to report.
    values: Vec<Option<u64>>,
}

/// The counts of one step: by name, then by label.
pub(in crate::api::admin) type SeriesPoint = BTreeMap<&'static str, BTreeMap<&'static str, Option<u64>>>;

/// Returns the page of the last hour, from the first step with a count to the current one.
pub(in crate::api::admin) fn series_page(telemetry: &Telemetry) -> SeriesPage {
    let (steps, current) = (
        telemetry.dashboard_feed().history_steps(),
        telemetry.dashboard_feed().current_step(),
    );
    let first = steps.first().map_or(current.at, |step| step.at);
    let steps_since = current.at.saturating_sub(first) / HISTORY_STEP.as_secs();
    // The history omits empty steps, but a chart needs a regular time axis.
    let at: Vec<u64> = (0..=steps_since)
        .map(|step| first + step * HISTORY_STEP.as_secs())
        .collect();
    let by_time: BTreeMap<u64, &HistoryStep> = steps.iter().map(|step| (step.at, step)).collect();
    // Names are collected over the hour, so that every series has a value for each step.
    let names: BTreeSet<CountName> = steps.iter().flat_map(|step| step.counts.keys().copied()).collect();
    let count = |name: CountName| {
        let value = |at: &u64| {
            by_time
                .get(at)
                .map_or(0, |step| step.counts.get(&name).copied().unwrap_or(0))
        };
        SeriesView {
            name: name.0,
            label: name.1,
            values: at.iter().map(|at| Some(value(at))).collect(),
        }
    };
    let share = |(name, kind, share): (&'static str, LatencyKind, f64)| SeriesView {
        name,
        label: "",
        values: at
            .iter()
            .map(|at| by_time.get(at)?.percentile_us(kind, share))
            .collect(),
    };
    let mut series: Vec<SeriesView> = names.into_iter().map(count).collect();
    // Without any step the percentiles would be series of null alone.
    if !steps.is_empty() {
        let percentiles = PERCENTILES.map(share);
        // A latency that nobody had in the last hour needs no series.
        series.extend(
            percentiles
                .into_iter()
                .filter(|it| it.values.iter().any(Option::is_some)),
        );
    }
    SeriesPage {
        step_seconds: HISTORY_STEP.as_secs(),
        at,
        series,
    }
}

/// The percentiles of the latencies, each with its share of exchanges.
const PERCENTILES: [(&str, LatencyKind, f64); 10] = [
    ("overhead_p50_us", LatencyKind::Overhead, 0.5),
    ("overhead_p99_us", LatencyKind::Overhead, 0.99),
    ("overhead_healthy_p50_us", LatencyKind::HealthyOverhead, 0.5),
    ("overhead_healthy_p99_us", LatencyKind::HealthyOverhead, 0.99),
    ("overhead_repaired_p50_us", LatencyKind::RepairedOverhead, 0.5),
    ("overhead_repaired_p99_us", LatencyKind::RepairedOverhead, 0.99),
    ("first_byte_p50_us", LatencyKind::FirstByte, 0.5),
    ("first_byte_p99_us", LatencyKind::FirstByte, 0.99),
    ("duration_p50_us", LatencyKind::WholeAnswer, 0.5),
    ("duration_p99_us", LatencyKind::WholeAnswer, 0.99),
];

/// Returns the counts and percentiles of one step.
pub(in crate::api::admin) fn series_point(step: &HistoryStep) -> SeriesPoint {
    let mut point = SeriesPoint::new();
    for ((name, label), count) in &step.counts {
        point.entry(name).or_default().insert(label, Some(*count));
    }
    for (name, kind, share) in PERCENTILES {
        if let Some(micros) = step.percentile_us(kind, share) {
            point.entry(name).or_default().insert("", Some(micros));
        }
    }
    point
}
