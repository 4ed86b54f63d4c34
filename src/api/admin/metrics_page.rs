//! `/metrics`: the metrics page, in the format that the scraper prefers.

use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ACCEPT, VARY},
};

use super::request::{AdminRequest, AdminResponse};
use crate::{
    api::{ProblemCode, private_response},
    clock,
    telemetry::MetricsFormat,
};

/// Returns the metrics, in the format that `Accept` prefers
///
/// Without a preference for `OpenMetrics` the answer is Prometheus' text format 0.0.4.
#[utoipa::path(get, path = "/metrics", tag = "watch", responses(
    (status = 200, description = "every metric; docs/metrics.md lists them", content(
        (String = "text/plain", example = "# HELP antiphon_lanes Conversations in the session table.\n# TYPE antiphon_lanes gauge\nantiphon_lanes 2\n"),
        (String = "application/openmetrics-text"),
    )),
))]
pub(super) fn show_metrics(request: &AdminRequest) -> AdminResponse {
    let parts = &request.parts;
    // Cooldowns end without an event, so the gauges are refreshed on each scrape.
    parts.control.active_config().profiles.publish_gauges(clock::std_now());
    let totals = parts.sessions.lane_totals(clock::now());
    parts.telemetry.set_session_totals(totals.lanes, totals.open_calls);
    let format = preferred_format(&request.head.headers);
    let page = parts.telemetry.encode_metrics_as(format);
    // An empty page would be a successful scrape, after which every series would end.
    if page.is_empty() {
        return Err(ProblemCode::MetricsFailed.into());
    }
    let mut answer = private_response(StatusCode::OK, format.content_type(), page);
    answer.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    Ok(answer)
}

/// Returns the format that a scraper prefers. Prometheus lists both formats with quality values.
fn preferred_format(headers: &HeaderMap) -> MetricsFormat {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let accept = values.collect::<Vec<_>>().join(",");
    let open = quality_of(&accept, &["application/openmetrics-text", "application/*"]);
    let text = quality_of(&accept, &["text/plain", "text/*", "*/*"]);
    // A scraper that names no format gets text, which every tool reads. So does one that accepts neither.
    if open > 0.0 && open >= text {
        MetricsFormat::OpenMetrics
    } else {
        MetricsFormat::Text
    }
}

/// Returns the quality of the first of `ranges` that an `Accept` header contains; 0 if it contains none.
fn quality_of(accept: &str, ranges: &[&str]) -> f32 {
    let quality = |range: &&str| {
        let items = accept.split(',').filter_map(|item| {
            let mut parts = item.split(';').map(str::trim);
            parts.next().filter(|name| name.eq_ignore_ascii_case(range))?;
            let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
            // RFC 9110: without a weight it is 1. An invalid one is no preference.
            Some(weight.map_or(1.0, |weight| weight.trim().parse().unwrap_or_default()))
        });
        // Prometheus lists one format with several versions.
        items.reduce(f32::max)
    };
    ranges.iter().find_map(quality).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scraper_chooses_the_format() {
        const TEXT: MetricsFormat = MetricsFormat::Text;
        const OPEN: MetricsFormat = MetricsFormat::OpenMetrics;
        let prometheus_2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
            text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
            application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
            text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        let rows: [(&[&str], MetricsFormat); 19] = [
            (&[], TEXT),
            (&[""], TEXT),
            (&["*/*"], TEXT),
            (&["text/plain"], TEXT),
            (&["text/plain; version=0.0.4"], TEXT),
            (
                &["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"],
                TEXT,
            ),
            (&["application/openmetrics-text"], OPEN),
            (&["Application/OpenMetrics-Text; version=1.0.0; charset=utf-8"], OPEN),
            (&["application/openmetrics-text, */*"], OPEN),
            (&[prometheus_2], OPEN),
            (&[prometheus_3], OPEN),
            (&["text/plain;q=0.9, application/openmetrics-text;q=0.8"], TEXT),
            (&["text/plain;q=0.5", "application/openmetrics-text;q=0.8"], OPEN),
            (&["application/openmetrics-text;q=0"], TEXT),
            (&["application/openmetrics-text;q=0, */*"], TEXT),
            (&["application/openmetrics-text;q=loud, text/plain"], TEXT),
            (&["application/*, text/plain;q=0.1"], OPEN),
            (
                &["application/openmetrics-text;q=0.1, application/*, text/*;q=0.5"],
                TEXT,
            ),
            (&["application/json"], TEXT),
        ];
        for (accept, wanted) in rows {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(ACCEPT, HeaderValue::from_static(value));
            }
            assert_eq!(preferred_format(&headers), wanted, "{accept:?}");
        }
    }
}
