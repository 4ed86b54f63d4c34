//! The size limit of the metrics page: 2,000 series, for any configuration and any traffic.

use std::time::Duration;

use antiphon::{
    auth::{Caller, Principal},
    policy::ProfileState,
    policy::{CooldownReason, Side, breaker},
    provider::BUILT_IN,
    refusals,
    session::TurnMark,
    session_table::{ClosedCalls, DetachReason, EnteredLane, SettledCall},
    telemetry::{
        BodyLoad, LATE_RESULT_EVENTS, LEDGER_ERRORS, LEDGER_OPS, POST_ANSWERS, Telemetry,
        events::{AskedConversation, ExchangeEnded, ResultPosted, RowOutcome, UnknownRefusal},
    },
    upstream::NetworkCause,
    wire::Format,
};

use crate::telemetry::metrics::ended;

/// Documented limit of series on the page.
const SERIES_MAX: usize = 2000;

/// Names for classes of attempts, as many as there are.
const CLASSES: [&str; 34] = [
    "c00", "c01", "c02", "c03", "c04", "c05", "c06", "c07", "c08", "c09", "c10", "c11", "c12", "c13", "c14", "c15",
    "c16", "c17", "c18", "c19", "c20", "c21", "c22", "c23", "c24", "c25", "c26", "c27", "c28", "c29", "c30", "c31",
    "c32", "c33",
];

fn series(page: &str) -> impl Iterator<Item = &str> {
    page.lines().filter(|line| !line.starts_with('#'))
}

/// Returns the value of a series. `None` if it is not on the page.
fn value(page: &str, labels: &str) -> Option<f64> {
    let line = series(page).find(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name == labels))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

/// Upstreams, and the profiles of each.
struct Fleet {
    upstreams: Vec<String>,
    profiles: Vec<String>,
}

impl Fleet {
    fn of(upstreams: usize, profiles: usize) -> Self {
        let named = |kind: &str, count| (0..count).map(|n| format!("{kind}-{n}")).collect();
        Self {
            upstreams: named("upstream", upstreams),
            profiles: named("profile", profiles),
        }
    }

    fn telemetry(&self) -> Telemetry {
        let telemetry = Telemetry::new(self.upstreams.clone());
        telemetry.set_ledger_usage_source(|| Some([1, 2]));
        telemetry.set_body_load_source(BodyLoad::default);
        telemetry.set_overdue_source(|| 1);
        telemetry
    }

    /// Publishes the gauges as a scrape does. Each profile is in one state, chosen by its number.
    fn publish(&self, telemetry: &Telemetry) {
        for upstream in &self.upstreams {
            for (at, profile) in self.profiles.iter().enumerate() {
                for (of, state) in ProfileState::ALL.into_iter().enumerate() {
                    telemetry.set_profile_state(upstream, profile, state.label(), at % ProfileState::ALL.len() == of);
                }
            }
            for standing in breaker::BreakerState::ALL {
                telemetry.set_breaker_count(upstream, standing.label(), 2);
            }
        }
    }

    /// Records one event of every kind, with every label value.
    fn everything(&self, telemetry: &Telemetry) {
        telemetry.record_certificate_expiry(Duration::from_secs(1));
        for cause in NetworkCause::ALL {
            telemetry.record_network_failure(cause);
        }
        for upstream in &self.upstreams {
            for class in CLASSES {
                telemetry.count_attempt(upstream, class);
            }
            for profile in &self.profiles {
                for reason in CooldownReason::ALL
                    .map(CooldownReason::label)
                    .into_iter()
                    .chain(["other"])
                {
                    telemetry.record_rotation(upstream, profile, reason);
                }
            }
            stick_session(telemetry, upstream);
            exchanges(telemetry, upstream);
        }
        exchanges(telemetry, "nowhere");
        telemetry.record_exchange(&with_every_row());
        for answer in POST_ANSWERS {
            let service = "made up";
            telemetry.record_post(&ResultPosted {
                service,
                answer,
                bytes: 1,
                source: None,
            });
        }
        for event in LATE_RESULT_EVENTS {
            telemetry.record_late_event(event);
        }
        for why in DetachReason::ALL {
            telemetry.record_detached_calls(why, 1);
        }
        for op in LEDGER_OPS {
            for kind in LEDGER_ERRORS {
                telemetry.record_ledger_op(op, Duration::from_micros(90), Some(kind));
            }
        }
        telemetry.record_late_delivery(Duration::from_secs(5), None);
        self.publish(telemetry);
    }
}

/// Records the refusals that make a session stuck.
pub(crate) fn stick_session(telemetry: &Telemetry, upstream: &str) {
    for _ in 0..3 {
        let conversation = AskedConversation {
            caller: Caller::of_account(Principal::NONE),
            lane: None,
            upstream: upstream.into(),
            mark: TurnMark::default(),
        };
        let text = "bad tool".into();
        let refusal = UnknownRefusal {
            conversation,
            text,
            status: 400,
        };
        telemetry.record_unknown_refusal(refusal, &ended());
    }
}

/// Records every way in which an exchange with `upstream` can end.
fn exchanges(telemetry: &Telemetry, upstream: &str) {
    for format in Format::ALL.map(Some).into_iter().chain([None]) {
        for status in [0, 101, 200, 302, 404, 500] {
            for side in Side::ALL.map(Side::label).map(Some).into_iter().chain([None]) {
                telemetry.record_exchange(&ExchangeEnded {
                    upstream: Some(upstream.to_owned()),
                    format,
                    status,
                    side,
                    is_rejected: true,
                    is_stalled: true,
                    ..ended()
                });
            }
        }
    }
}

/// Returns an exchange with a refusal of every row and outcome, and of rows that no table has.
fn with_every_row() -> ExchangeEnded {
    let own = (0..100).map(|n| format!("made-up-{n}"));
    let built_in = refusals::table().rows().iter().map(|row| row.name.clone());
    let mut event = ended();
    for row in built_in.chain(own) {
        for outcome in RowOutcome::ALL {
            event.record_row(&row, outcome);
        }
    }
    event
}

/// Records events with names that are not configured.
fn hostile(telemetry: &Telemetry) {
    for n in 0..3000 {
        telemetry.record_exchange(&ExchangeEnded {
            upstream: Some(format!("made-up-{n}")),
            path: format!("/made-up-{n}/v1/messages"),
            method: "OTHER",
            ..ended()
        });
        let settled = |tool: String| SettledCall {
            is_overrun: true,
            tool: tool.into(),
            attached: n % 2 == 0,
            open_for: Duration::from_secs(n),
        };
        let names = [format!("made-up-{n}"), "\"\n} 1\n".repeat(9), "é".into(), String::new()];
        let closed = ClosedCalls {
            settled: names.map(settled).into(),
            ..ClosedCalls::default()
        };
        telemetry.record_lane_request(&EnteredLane {
            closed,
            ..EnteredLane::default()
        });
    }
}

#[test]
fn the_page_never_exceeds_the_limit() {
    for (upstreams, profiles) in [(0, 0), (BUILT_IN.len(), 8), (60, 8), (1000, 1), (3, 900)] {
        let fleet = Fleet::of(upstreams, profiles);
        let telemetry = fleet.telemetry();
        assert!(telemetry.series_max() <= SERIES_MAX, "{}", telemetry.series_max());
        let seen = |when: &str| {
            let page = telemetry.encode_metrics();
            let count = series(&page).count();
            assert!(
                count <= telemetry.series_max(),
                "{upstreams} x {profiles}, {when}: {count} series, {} at most",
                telemetry.series_max()
            );
            count
        };
        let start = seen("at the start");
        fleet.publish(&telemetry);
        seen("published");
        hostile(&telemetry);
        let hostile = seen("after hostile traffic");
        assert!(hostile > start, "the names of tools are not on the page");
        fleet.everything(&telemetry);
        seen("after everything");
    }
}

#[test]
fn built_in_upstreams_with_eight_profiles_each_are_not_folded() {
    let fleet = Fleet::of(BUILT_IN.len(), 8);
    let telemetry = fleet.telemetry();
    fleet.publish(&telemetry);
    for upstream in &fleet.upstreams {
        telemetry.count_attempt(upstream, "ok");
        telemetry.record_rotation(upstream, "profile-0", "rate_limit");
        stick_session(&telemetry, upstream);
    }
    let page = telemetry.encode_metrics();
    assert_eq!(value(&page, "antiphon_series_folded_total"), Some(0.0));
    assert!(!page.contains("upstream=\"other\""), "{page}");
}

#[test]
fn series_beyond_the_limit_are_counted_as_other() {
    let fleet = Fleet::of(60, 8);
    let telemetry = fleet.telemetry();
    // A second publish must not add to the gauges.
    fleet.publish(&telemetry);
    fleet.publish(&telemetry);
    for upstream in &fleet.upstreams {
        for _ in 0..2 {
            for class in CLASSES {
                telemetry.count_attempt(upstream, class);
            }
        }
        exchanges(&telemetry, upstream);
    }
    let page = telemetry.encode_metrics();
    let sum = |name: &str, label: &str| -> f64 {
        series(&page)
            .filter(|line| line.starts_with(name) && line.contains(label))
            .map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap())
            .sum()
    };
    // Of eight profiles, three are ready, three cool down, and two are disabled.
    for (state, each) in [("ready", 3.0), ("cooling", 3.0), ("disabled", 2.0)] {
        let label = format!("state=\"{state}\"");
        assert!(
            (sum("antiphon_profile_state", &label) - 60.0 * each).abs() < 0.5,
            "{state}"
        );
        let labels = format!("antiphon_profile_state{{upstream=\"other\",profile=\"other\",{label}}}");
        assert!(value(&page, &labels).is_some_and(|others| others > 0.0), "{state}");
    }
    assert!((sum("antiphon_breakers", "state=\"open\"") - 120.0).abs() < 0.5);
    for class in CLASSES {
        assert!((sum("antiphon_attempts_total", class) - 120.0).abs() < 0.5, "{class}");
    }
    // No ended exchange is lost, and its outcome is still known.
    let all = 60.0 * 5.0 * 6.0 * 7.0;
    assert!((sum("antiphon_requests_total", "") - all).abs() < 0.5);
    assert!((sum("antiphon_requests_total", "outcome=\"network\"") - all / 7.0).abs() < 0.5);
    assert!(value(&page, "antiphon_series_folded_total").is_some_and(|folded| folded > 1000.0));
}

/// Only names of the built-in table are labels, and what has no room keeps its outcome.
#[test]
fn refusals_of_further_rows_are_counted_as_other_and_those_of_an_operator_as_own() {
    let telemetry = Telemetry::default();
    let count = |row: &str, outcome: &str| {
        let labels = format!("antiphon_refusal_rows_total{{row=\"{row}\",outcome=\"{outcome}\"}}");
        value(&telemetry.encode_metrics(), &labels)
    };
    let mut event = ended();
    for row in ["developer_not_one_of_roles", "my_row", "your_row"] {
        event.record_row(row, RowOutcome::Vain);
    }
    event.record_row("my_row", RowOutcome::Relayed);
    event.record_row("my_row", RowOutcome::Explained);
    telemetry.record_exchange(&event);
    event.record_accepted();
    telemetry.record_exchange(&event);
    for (row, outcome, times) in [
        ("developer_not_one_of_roles", "vain", Some(1.0)),
        ("developer_not_one_of_roles", "mended", Some(1.0)),
        ("own", "vain", Some(2.0)),
        ("own", "mended", Some(2.0)),
        ("own", "explained", Some(2.0)),
        ("own", "relayed", None),
    ] {
        assert_eq!(count(row, outcome), times, "{row} {outcome}");
    }
    telemetry.record_exchange(&with_every_row());
    assert!(count("other", "limited").is_some_and(|folded| folded > 100.0));
    assert!(!telemetry.encode_metrics().contains("made-up"));
}

#[test]
fn a_reload_is_reported_and_removes_deleted_profiles() {
    let (before, after) = (Fleet::of(60, 8), Fleet::of(1, 1));
    let telemetry = before.telemetry();
    before.publish(&telemetry);
    telemetry.record_reload(false);
    let page = telemetry.encode_metrics();
    assert_eq!(value(&page, "antiphon_config_last_reload_successful"), Some(0.0));
    assert!(page.contains("profile=\"profile-3\""));
    telemetry.record_reload(true);
    after.publish(&telemetry);
    let page = telemetry.encode_metrics();
    assert_eq!(value(&page, "antiphon_config_last_reload_successful"), Some(1.0));
    assert!(
        value(&page, "antiphon_config_last_reload_success_timestamp_seconds").is_some_and(|at| at > 1.7e9),
        "{page}"
    );
    let states: Vec<&str> = series(&page)
        .filter(|line| line.starts_with("antiphon_profile_state"))
        .collect();
    assert_eq!(states.len(), ProfileState::ALL.len(), "{states:?}");
}

#[test]
fn upstreams_added_by_a_reload_get_their_own_labels() {
    let telemetry = Fleet::of(1, 0).telemetry();
    telemetry.set_upstreams(["new"]);
    for name in ["new", "upstream-0"] {
        telemetry.record_exchange(&ExchangeEnded {
            upstream: Some(name.to_owned()),
            ..ended()
        });
    }
    let page = telemetry.encode_metrics();
    for name in ["new", "none"] {
        let labels = format!("{{upstream=\"{name}\",format=\"anthropic\",code_class=\"2xx\",outcome=\"ok\"}}");
        assert_eq!(
            value(&page, &format!("antiphon_requests_total{labels}")),
            Some(1.0),
            "{page}"
        );
    }
}

#[test]
fn an_exchange_is_in_flight_until_it_has_ended() {
    let telemetry = Telemetry::default();
    let inflight = || value(&telemetry.encode_metrics(), "antiphon_inflight_requests").unwrap();
    telemetry.record_exchange_start();
    telemetry.record_exchange_start();
    assert!((inflight() - 2.0).abs() < 0.1);
    telemetry.record_exchange(&ended());
    assert!((inflight() - 1.0).abs() < 0.1);
}

#[cfg(target_os = "linux")]
#[test]
fn process_metrics_match_the_system() {
    let page = Telemetry::default().encode_metrics();
    let of = |name: &str| value(&page, name).unwrap_or_else(|| panic!("{name} is not in {page}"));
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    let began = of("process_start_time_seconds");
    assert!(began <= now + 5.0 && began > now - 86_400.0, "{began}, now {now}");
    assert!(of("process_resident_memory_bytes") > 1e6 && of("process_virtual_memory_bytes") > 1e6);
    assert!(of("process_cpu_seconds_total") >= 0.0);
    assert!(of("process_open_fds") >= 3.0 && of("process_open_fds") <= of("process_max_fds"));
}
