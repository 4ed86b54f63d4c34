//! Attached and detached calls of a lane, and the metrics of their ends.

use std::time::Duration;

use antiphon::{
    auth::{Caller, Principal},
    conversation::{Outline, OutlineCall, OutlineResult},
    session::{ClientHeaders, Lane, SessionRequest, find_lane},
    session_table::{
        AnswerEnd, CallLimits, CallView, ClosedCalls, DetachReason, EnteredLane, LEFT_CALLS_MAX, OPEN_CALLS_MAX,
        SessionSettings, SessionTable, SettledCall,
    },
    telemetry::Telemetry,
    wire::{
        Format,
        watch::{EmittedCalls, Framing, Watcher},
    },
};
use http::HeaderMap;
use tokio::time::Instant;

use super::sessions::{asked as request_of, note_request, view};

const ONE: Caller = Caller::of_account(Principal::from_bytes([1; 32]));

fn second(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn called(name: &str) -> Lane {
    let mut headers = HeaderMap::new();
    headers.insert("x-antiphon-session", name.parse().unwrap());
    let asked = SessionRequest {
        caller: &ONE,
        format: Format::Anthropic,
        headers: ClientHeaders::read(&headers),
        body: b"",
        outline: &Outline::default(),
        first_text: None,
        path_model: None,
    };
    find_lane(&asked, |_, _| None).unwrap()
}

fn calls(list: &[(&str, &str)]) -> EmittedCalls {
    let mut watcher = Watcher::new(Some(Format::Anthropic), Framing::Events);
    for (id, name) in list {
        let block = format!(r#"{{"type":"tool_use","id":"{id}","name":"{name}"}}"#);
        let start = format!("data: {{\"type\":\"content_block_start\",\"content_block\":{block}}}\n\n");
        watcher.push(start.as_bytes());
    }
    watcher.facts().calls.clone()
}

/// Builds the outline of a request: message count, calls of its last turn, and the results after it. `!` marks a lost
/// result.
fn asked_call(id: &str) -> OutlineCall {
    OutlineCall {
        id: id.as_bytes().into(),
        ..OutlineCall::default()
    }
}

fn shows(messages: usize, asked: &[&str], answers: &[&str]) -> Outline {
    let answer = |id: &&str| OutlineResult {
        id: id.trim_start_matches('!').as_bytes().into(),
        name: Box::default(),
        lost: id.starts_with('!'),
        ..OutlineResult::default()
    };
    Outline {
        messages,
        last_calls: asked.iter().map(|id| asked_call(id)).collect(),
        last_results: answers.iter().map(answer).collect(),
        ..Outline::default()
    }
}

/// A session table with one lane, and a start time.
struct Scene {
    table: SessionTable,
    lane: Lane,
    began: Instant,
}

impl Scene {
    /// Creates a lane with three messages, answered with one call of `Bash`.
    fn new(came: AnswerEnd) -> Self {
        let limits = CallLimits {
            tools: [(Box::from("Bash"), second(90))].into(),
            ..CallLimits::default()
        };
        let settings = SessionSettings {
            calls: limits,
            ..SessionSettings::default()
        };
        let scene = Self {
            table: SessionTable::new(settings),
            lane: called("s"),
            began: antiphon::clock::now(),
        };
        scene.asked(0, &shows(3, &[], &[]));
        let dropped = scene.answered(0, came, &[("toolu_1", "Bash")]);
        assert_eq!(dropped, usize::from(came == AnswerEnd::ClientLeft));
        scene
    }

    fn at(&self, seconds: u64) -> Instant {
        self.began + second(seconds)
    }

    fn answered(&self, at: u64, came: AnswerEnd, list: &[(&str, &str)]) -> usize {
        self.table
            .note_answer(&ONE, request_of(self.lane, 3), &calls(list), came, None, self.at(at))
    }

    fn asked(&self, at: u64, outline: &Outline) -> ClosedCalls {
        note_request(&self.table, self.lane.id, outline, self.at(at))
    }

    /// Returns the only open call.
    fn open_call(&self, at: u64) -> Option<CallView> {
        view(&self.table, self.lane.id, self.at(at))?.calls.pop()
    }
}

fn settled(open: u64, attached: bool) -> Vec<SettledCall> {
    vec![SettledCall {
        tool: "Bash".into(),
        open_for: second(open),
        attached,
        is_overrun: open > 90,
    }]
}

#[test]
fn a_call_is_attached_until_it_is_settled() {
    let scene = Scene::new(AnswerEnd::Complete);
    let call = scene.open_call(7).unwrap();
    assert_eq!((call.age, &*call.tool), (second(7), "Bash"));
    assert_eq!(call.max_duration, Some(second(90)));
    assert!(call.attached && !call.tentative);
    assert_eq!(view(&scene.table, called("t").id, scene.at(7)), None, "another lane");
    let closed = scene.asked(8, &shows(5, &["toolu_1"], &["toolu_1"]));
    assert_eq!((closed.settled, closed.detached), (settled(8, true), vec![]));
    assert_eq!(scene.open_call(8), None);
    // A repeated request settles nothing.
    assert_eq!(
        scene.asked(9, &shows(5, &["toolu_1"], &["toolu_1"])),
        ClosedCalls::default()
    );
}

#[test]
fn an_ambiguous_stripped_id_matches_no_call() {
    let scene = Scene::new(AnswerEnd::Complete);
    scene.answered(1, AnswerEnd::Complete, &[("toolu-1", "Read")]);
    let both = ["toolu_1", "toolu-1"];
    assert_eq!(scene.asked(2, &shows(5, &both, &[])).abandoned, 2);
    assert_eq!(scene.asked(3, &shows(5, &both, &["toolu1"])).settled, []);
    let read = scene.asked(4, &shows(5, &both, &["toolu-1"])).settled;
    assert_eq!(read.iter().map(|call| &*call.tool).collect::<Vec<&str>>(), ["Read"]);
}

#[test]
fn a_lane_that_continues_detaches_its_call() {
    let scene = Scene::new(AnswerEnd::Complete);
    let closed = scene.asked(5, &shows(5, &["toolu_1"], &[]));
    assert_eq!((closed.abandoned, closed.detached), (1, vec![DetachReason::WentOn]));
    assert_eq!(scene.open_call(6), None);
    // The result comes late.
    let late = scene.asked(30, &shows(5, &["toolu_1"], &["toolu_1"]));
    assert_eq!((late.settled, late.abandoned), (settled(30, false), 0));
    let again = scene.asked(31, &shows(5, &["toolu_1"], &["toolu_1"]));
    assert_eq!(again, ClosedCalls::default());
}

#[test]
fn a_lost_text_does_not_settle_a_call() {
    let scene = Scene::new(AnswerEnd::Complete);
    let request = shows(5, &["toolu_1"], &["!toolu_1"]);
    let closed = scene.asked(5, &request);
    assert_eq!((closed.placeholder, closed.abandoned, closed.settled.len()), (1, 0, 0));
    assert_eq!(closed.detached, [DetachReason::WentOn]);
    assert_eq!(scene.asked(6, &request), ClosedCalls::default(), "sent again");
    let late = scene.asked(20, &shows(5, &["toolu_1"], &["toolu_1"]));
    assert_eq!(late.settled, settled(20, false));
    // If one request contains both, the real result counts.
    let scene = Scene::new(AnswerEnd::Complete);
    let closed = scene.asked(5, &shows(5, &["toolu_1"], &["!toolu_1", "toolu_1"]));
    assert_eq!((closed.placeholder, closed.settled), (0, settled(5, true)));
}

#[test]
fn a_silent_lane_detaches_its_calls() {
    let result = shows(5, &["toolu_1"], &["toolu_1"]);
    for (at, detached) in [(299, vec![]), (300, vec![DetachReason::Silent])] {
        let closed = Scene::new(AnswerEnd::Complete).asked(at, &result);
        assert_eq!(
            (closed.settled, closed.detached),
            (settled(at, detached.is_empty()), detached)
        );
    }
    // Any request of the lane counts as activity, even a side request.
    for (at, attached) in [(499, true), (500, false)] {
        let scene = Scene::new(AnswerEnd::Complete);
        assert_eq!(scene.asked(200, &shows(1, &[], &[])), ClosedCalls::default());
        assert_eq!(scene.asked(at, &result).settled, settled(at, attached));
    }
}

#[test]
fn a_lane_is_closed_once() {
    let scene = Scene::new(AnswerEnd::Complete);
    let close = |at| scene.table.close_lane(scene.lane.id, scene.at(at));
    assert_eq!((close(1), close(2)), (1, 0));
    assert!(!scene.open_call(3).unwrap().attached);
    let closed = scene.asked(4, &shows(5, &["toolu_1"], &["toolu_1"]));
    assert_eq!((closed.settled, closed.detached), (settled(4, false), vec![]));
    let unknown = called("nobody").id;
    assert_eq!(scene.table.close_lane(unknown, scene.at(5)), 0);
    assert_eq!(
        scene.table.lane_totals(scene.at(5)).lanes,
        1,
        "nothing is remembered of it"
    );
}

#[test]
fn a_call_of_an_unfinished_stream_is_tentative() {
    for came in [AnswerEnd::Broken, AnswerEnd::ClientLeft] {
        let scene = Scene::new(came);
        let call = scene.open_call(1).unwrap();
        assert_eq!(
            (call.attached, call.tentative),
            (came == AnswerEnd::Broken, true),
            "{came:?}"
        );
        // The lane continues without the call, so the client never saw it. It is left out of all ratios.
        let closed = scene.asked(2, &shows(3, &[], &[]));
        let abandoned = ClosedCalls {
            abandoned: 1,
            ..ClosedCalls::default()
        };
        assert_eq!(closed, abandoned, "{came:?}");
        let late = scene.asked(3, &shows(5, &[], &["toolu_1"]));
        assert_eq!(late, ClosedCalls::default(), "{came:?}");
        // A result shows that the client did receive the call.
        let scene = Scene::new(came);
        let closed = scene.asked(2, &shows(5, &["toolu_1"], &["toolu_1"]));
        assert_eq!(closed.settled, settled(2, true), "{came:?}");
        // The call in the history shows it too.
        let scene = Scene::new(came);
        let closed = scene.asked(2, &shows(5, &["toolu_1"], &[]));
        assert_eq!(closed.detached, [DetachReason::WentOn], "{came:?}");
        let late = scene.asked(3, &shows(5, &["toolu_1"], &["toolu_1"]));
        assert_eq!(late.settled, settled(3, false), "{came:?}");
    }
}

#[test]
fn detached_calls_are_bounded_and_counted() {
    let scene = Scene::new(AnswerEnd::Complete);
    let names: Vec<String> = (0..OPEN_CALLS_MAX).map(|n| format!("toolu_x{n}")).collect();
    let list: Vec<(&str, &str)> = names.iter().map(|id| (id.as_str(), "t")).collect();
    for at in 1..5 {
        scene.answered(at, AnswerEnd::Complete, &list);
        scene.asked(at, &shows(9, &[], &[]));
    }
    let ids: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(scene.asked(6, &shows(9, &[], &ids)).settled.len(), LEFT_CALLS_MAX);
    // Detached calls count towards a lane's size.
    let settings = SessionSettings {
        entries_max: 1000,
        bytes_max: 64 * 1024,
        ..SessionSettings::default()
    };
    let (table, now) = (SessionTable::new(settings), antiphon::clock::now());
    let long = "t".repeat(120);
    let long: Vec<(&str, &str)> = names
        .iter()
        .take(LEFT_CALLS_MAX)
        .map(|id| (id.as_str(), long.as_str()))
        .collect();
    for n in 0..20 {
        let lane = called(&n.to_string());
        table.note_answer(&ONE, request_of(lane, 3), &calls(&long), AnswerEnd::Complete, None, now);
        note_request(&table, lane.id, &shows(9, &[], &[]), now);
    }
    assert!(table.lane_totals(now).lanes <= 4, "{:?}", table.lane_totals(now));
}

fn has(page: &str, line: &str) {
    assert!(page.lines().any(|known| known == line), "no line {line:?} in\n{page}");
}

#[test]
fn call_ends_are_counted() {
    let call = |tool: &str, open, attached| SettledCall {
        tool: tool.into(),
        open_for: second(open),
        attached,
        is_overrun: false,
    };
    let telemetry = Telemetry::default();
    let closed = ClosedCalls {
        settled: vec![call("Bash", 10, true), call("Bash", 11, true), call("Bash", 600, false)],
        placeholder: 2,
        abandoned: 3,
        detached: vec![DetachReason::WentOn, DetachReason::Silent, DetachReason::WentOn],
    };
    telemetry.record_lane_request(&EnteredLane {
        closed,
        forks: 1,
        ..EnteredLane::default()
    });
    telemetry.record_detached_calls(DetachReason::StreamDropped, 4);
    let page = telemetry.encode_metrics();
    for line in [
        "antiphon_tool_calls_closed_total{how=\"settled\"} 3",
        "antiphon_tool_calls_closed_total{how=\"placeholder\"} 2",
        "antiphon_tool_calls_closed_total{how=\"abandoned\"} 3",
        "antiphon_settles_total{attached=\"yes\"} 2",
        "antiphon_settles_total{attached=\"no\"} 1",
        "antiphon_long_calls_total{detached=\"no\"} 1",
        "antiphon_long_calls_total{detached=\"yes\"} 1",
        "antiphon_calls_detached_total{why=\"went_on\"} 2",
        "antiphon_calls_detached_total{why=\"silent\"} 1",
        "antiphon_calls_detached_total{why=\"stream_dropped\"} 4",
        "antiphon_calls_detached_total{why=\"closed\"} 0",
        "antiphon_tool_round_trip_seconds_sum{tool=\"Bash\"} 621.0",
        "antiphon_tool_round_trip_seconds_count{tool=\"Bash\"} 3",
        "antiphon_session_forks_total 1",
    ] {
        has(&page, line);
    }
}

#[test]
fn tool_names_in_labels_are_bounded() {
    let telemetry = Telemetry::default();
    let settle = |tool: String| {
        let settled = SettledCall {
            tool: tool.into(),
            open_for: second(1),
            attached: true,
            is_overrun: false,
        };
        let closed = ClosedCalls {
            settled: vec![settled],
            ..ClosedCalls::default()
        };
        telemetry.record_lane_request(&EnteredLane {
            closed,
            ..EnteredLane::default()
        });
    };
    for odd in ["", "a b", "a\nb", "na\u{ef}ve"] {
        settle(odd.to_owned());
    }
    settle("x".repeat(65));
    for n in 0..60 {
        settle(format!("tool_{n}"));
    }
    settle("tool_0".to_owned());
    let page = telemetry.encode_metrics();
    has(&page, "antiphon_tool_round_trip_seconds_count{tool=\"other\"} 40");
    has(&page, "antiphon_tool_round_trip_seconds_count{tool=\"tool_0\"} 2");
    has(&page, "antiphon_tool_round_trip_seconds_count{tool=\"tool_24\"} 1");
    assert_eq!(page.matches("antiphon_tool_round_trip_seconds_count{").count(), 26);
}
