//! Sessions and lanes from the headers and bodies of real clients, and the session table.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use antiphon::{
    auth::{Caller, Principal},
    conversation::{Outline, OutlineCall, OutlineResult},
    policy::stream_timeouts::RunningTool,
    repair::parse,
    session::{
        ClientHeaders, Lane, LaneId, SessionId, SessionRequest, SessionSource, SessionStrength, TurnMark, find_lane,
        first_text, session_hash,
    },
    session_table::{
        AnswerEnd, AnsweredRequest, CallLimits, ClosedCalls, DetachReason, LaneNames, LaneRequest, LaneView,
        OPEN_CALLS_MAX, ProfilePin, SessionSettings, SessionTable, SettledCall,
    },
    wire::{
        Format, Wire,
        watch::{EmittedCalls, Framing, Watcher},
    },
};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

use crate::support::bodies::Rng;

const ONE: Caller = Caller::of_account(Principal::from_bytes([1; 32]));
const TWO: Caller = Caller::of_account(Principal::from_bytes([2; 32]));

type Headers<'h> = &'h [(&'static str, &'h str)];

/// A request with its headers and body.
struct Request {
    headers: HeaderMap,
    body: String,
    outline: Outline,
    format: Format,
}

impl Request {
    fn new(wire: Wire, headers: Headers<'_>, body: impl Into<String>) -> Self {
        let body = body.into();
        let outline = parse(body.as_bytes(), wire).map(|parsed| parsed.outline());
        let pair = |(name, value): &(&'static str, &str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            )
        };
        Self {
            headers: headers.iter().map(pair).collect(),
            outline: outline.unwrap_or_default(),
            body,
            format: wire.format,
        }
    }

    fn asked<'r>(&'r self, caller: &'r Caller) -> SessionRequest<'r> {
        SessionRequest {
            caller,
            format: self.format,
            headers: ClientHeaders::read(&self.headers),
            body: self.body.as_bytes(),
            outline: &self.outline,
            first_text: first_text(self.body.as_bytes(), &self.outline),
            path_model: None,
        }
    }

    fn session(&self) -> Option<SessionId> {
        self.asked(&ONE).named_session()
    }

    fn lane(&self) -> Option<Lane> {
        find_lane(&self.asked(&ONE), |_, _| None)
    }
}

fn has_name(session: &SessionId, name: &str) -> bool {
    session.hash(&ONE) == session_hash(ONE.principal(), name.as_bytes())
}

fn messages(members: &str) -> String {
    format!(r#"{{"model":"claude-sonnet-4-5",{members}"messages":[{{"role":"user","content":"go"}}]}}"#)
}

/// Returns a body with this `metadata.user_id`.
fn user_id(id: &str) -> String {
    let id = serde_json::to_string(id).unwrap();
    messages(&format!(r#""metadata":{{"user_id":{id}}},"#))
}

const UUID: &str = "d2e70091-3007-41a3-a916-cb8b0d3098de";

#[test]
fn sessions_in_metadata_are_read_as_clients_write_them() {
    let long = "s".repeat(257);
    let legacy = format!("user_{}_account__session_{UUID}", "5d".repeat(32));
    let long_json = format!(r#"{{"session_id":"{long}"}}"#);
    let rows: &[(&str, Option<&str>)] = &[
        (&legacy, Some(UUID)),
        (r#"{"device_id":"d","session_id":"s1"}"#, Some("s1")),
        (
            r#"{"device_id":"d","account_uuid":"","session_id":"\u00e9"}"#,
            Some("é"),
        ),
        (
            r#"{"device_id":"d","session_id":"s1","parent_session_id":"s0"}"#,
            Some("s1"),
        ),
        ("same-user-across-chats", None),
        ("user_abc_session_0A1B", None),
        ("user_abc_session_0a1b", Some("0a1b")),
        ("user_abc_session_", None),
        (r#"{"device_id":"d","session_id":"s1""#, None),
        (r#"{"device_id":"d","session_id":"s1"} x"#, None),
        (r#"{"device_id":"d","session_id":7}"#, None),
        (r#"{"device_id":"d","session_id":""}"#, None),
        (r#"{"device_id":"d","session_id":"a\u0000b"}"#, None),
        (r#"{"device_id":"d"}"#, None),
        (&long_json, None),
        ("", None),
    ];
    for (id, session) in rows {
        let found = Request::new(Wire::ANTHROPIC, &[], user_id(id)).session();
        assert_eq!(found.is_some(), session.is_some(), "{id}");
        assert!(
            found.is_none_or(|found| has_name(&found, session.unwrap()) && found.source() == SessionSource::UserId),
            "{id}"
        );
    }
    assert_eq!(
        Request::new(Wire::ANTHROPIC, &[], messages(r#""metadata":{"user_id":5},"#)).session(),
        None
    );
    assert_eq!(
        Request::new(Wire::ANTHROPIC, &[], messages(r#""metadata":null,"#)).session(),
        None
    );
}

#[test]
fn the_first_source_with_a_value_counts() {
    let body = r#"{"model":"gpt-5","metadata":{"user_id":"u_session_aa"},"conversation":"conv_1","prompt_cache_key":"key","input":[{"role":"user","content":"go"}]}"#;
    let headers = [
        ("x-antiphon-session", "own"),
        ("x-claude-code-session-id", "claude"),
        ("session-id", "codex"),
        ("session_id", "old"),
        ("thread-id", "thread"),
        ("conversation_id", "oldest"),
        ("x-session-id", "opencode"),
        ("x-session-affinity", "affinity"),
    ];
    let named = |headers: Headers<'_>, name: &str, source: SessionSource| {
        let session = Request::new(Wire::OPENAI_RESPONSES, headers, body).session().unwrap();
        assert!(has_name(&session, name), "{name}");
        assert_eq!(session.source(), source, "{name}");
        assert_eq!(session.strength(), SessionStrength::Strong, "{name}");
    };
    named(&headers, "own", SessionSource::Antiphon);
    named(&headers[1..], "claude", SessionSource::ClaudeCode);
    named(&headers[2..], "aa", SessionSource::UserId);
    let body_less = |headers: Headers<'_>| Request::new(Wire::ANTHROPIC, headers, "").session();
    for (at, (_, name)) in headers.iter().enumerate() {
        let session = body_less(&headers[at..]).unwrap();
        assert!(has_name(&session, name), "{name}");
    }
    assert_eq!(body_less(&[]), None);
    for (text, usable) in [
        ("", false),
        ("  ", false),
        ("a\tb", false),
        (" a ", true),
        ("é", true),
        (&*"x".repeat(256), true),
        (&*"x".repeat(257), false),
    ] {
        assert_eq!(body_less(&[("x-antiphon-session", text)]).is_some(), usable, "{text:?}");
    }
    // A blank header is skipped.
    let blank = body_less(&[("x-antiphon-session", " "), ("session-id", "s")]).unwrap();
    assert!(has_name(&blank, "s"));
}

/// Returns the lane of a client's request, which must come from `source`.
fn checked_lane(name: &str, wire: Wire, headers: Headers<'_>, body: impl Into<String>, source: SessionSource) -> Lane {
    let lane = Request::new(wire, headers, body).lane().unwrap();
    assert_eq!(lane.source, source, "{name}");
    assert_eq!(
        lane.strength == SessionStrength::Weak,
        source == SessionSource::History,
        "{name}"
    );
    lane
}

#[test]
fn anthropic_clients_are_recognized() {
    let claude = format!(
        r#"{{"device_id":"{}","account_uuid":"","session_id":"{UUID}"}}"#,
        "ab".repeat(32)
    );
    let legacy = format!("user_{}_account_{UUID}_session_{UUID}", "ab".repeat(32));
    let (wire, cli) = (Wire::ANTHROPIC, ("x-app", "cli"));
    let with_header = &[("x-claude-code-session-id", UUID), cli];
    let same = [
        checked_lane(
            "claude-code",
            wire,
            with_header,
            user_id(&claude),
            SessionSource::ClaudeCode,
        ),
        checked_lane(
            "claude-code, no header",
            wire,
            &[cli],
            user_id(&claude),
            SessionSource::UserId,
        ),
        checked_lane(
            "claude-code 2.1.42",
            wire,
            &[cli],
            user_id(&legacy),
            SessionSource::UserId,
        ),
    ];
    assert!(
        same.windows(2).all(|pair| pair[0].id == pair[1].id),
        "a session has one lane, whichever of its names is seen"
    );
    let opencode = &[("x-session-id", "ses_1"), ("x-session-affinity", "ses_1")];
    checked_lane("opencode", wire, opencode, messages(""), SessionSource::Header);
    let sdk = &[("x-stainless-lang", "python")];
    checked_lane("an SDK", wire, sdk, messages(""), SessionSource::History);
    checked_lane(
        "an SDK, with a user",
        wire,
        sdk,
        user_id("somebody"),
        SessionSource::History,
    );
    assert_eq!(Request::new(wire, &[], "no json").lane(), None);
}

#[test]
fn other_clients_are_recognized() {
    let cached = |key: &str| {
        format!(r#"{{"model":"gpt-5","prompt_cache_key":"{key}","input":[{{"role":"user","content":"go"}}]}}"#)
    };
    let wire = Wire::OPENAI_RESPONSES;
    let codex = &[("session-id", UUID), ("thread-id", UUID), ("x-client-request-id", UUID)];
    let old_codex = &[("conversation_id", UUID), ("session_id", UUID)];
    let pi = &[("session_id", UUID), ("x-client-request-id", UUID)];
    let same = [
        checked_lane("codex", wire, codex, cached(UUID), SessionSource::Header),
        checked_lane("codex 0.57", wire, old_codex, cached(UUID), SessionSource::Header),
        checked_lane("pi", wire, pi, cached(UUID), SessionSource::Header),
        checked_lane("by the key alone", wire, &[], cached(UUID), SessionSource::CacheKey),
    ];
    assert!(same.windows(2).all(|pair| pair[0].id == pair[1].id));
    let opencode = &[("x-session-affinity", "ses_1")];
    checked_lane("opencode", wire, opencode, cached("ses_1"), SessionSource::Header);
    let copilot = &[("x-initiator", "agent")];
    checked_lane(
        "copilot",
        wire,
        copilot,
        cached(&"0f".repeat(16)),
        SessionSource::CacheKey,
    );
    let chat = r#"{"model":"gpt-5","messages":[{"role":"user","content":"go"}]}"#;
    checked_lane("pi", Wire::OPENAI_CHAT, &[], chat, SessionSource::History);
    let openclaw = &[("traceparent", "00-1-2-01")];
    checked_lane("openclaw", Wire::OPENAI_CHAT, openclaw, chat, SessionSource::History);
    let gemini = r#"{"contents":[{"role":"user","parts":[{"text":"go"}]}]}"#;
    let cli = &[("user-agent", "GeminiCLI-tui/0.61.0")];
    checked_lane("gemini-cli", Wire::GEMINI, cli, gemini, SessionSource::History);
}

#[test]
fn agents_have_lanes_of_their_own() {
    let lane = |headers: Headers<'_>| Request::new(Wire::OPENAI_RESPONSES, headers, "").lane().unwrap().id;
    let main = lane(&[("session-id", "s")]);
    for (same, headers) in [
        (true, &[("session-id", "s"), ("thread-id", "s")]),
        (true, &[("session-id", "s"), ("x-openai-subagent", "compact")]),
        (
            true,
            &[("x-claude-code-session-id", "s"), ("x-claude-code-agent-id", " ")],
        ),
        (false, &[("session-id", "s"), ("thread-id", "t")]),
        (false, &[("session-id", "s"), ("x-openai-subagent", "review")]),
        (
            false,
            &[("session-id", "s"), ("x-claude-code-agent-id", "reviewer@team")],
        ),
        (false, &[("session-id", "s"), ("x-claude-code-agent-id", "main")]),
    ] {
        assert_eq!(lane(headers) == main, same, "{headers:?}");
    }
    let request = Request::new(Wire::OPENAI_RESPONSES, &[("session-id", "s")], "");
    let others = find_lane(&request.asked(&TWO), |_, _| None).unwrap().id;
    assert_ne!(others, main, "a session id says nothing without its principal");
    let other_format = Request::new(Wire::OPENAI_CHAT, &[("session-id", "s")], "")
        .lane()
        .unwrap()
        .id;
    assert_ne!(other_format, main);
}

#[test]
fn session_names_are_never_printed() {
    let request = Request::new(Wire::ANTHROPIC, &[("x-antiphon-session", "my-secret")], "");
    let shown = format!(
        "{:?} {:?} {}",
        request.session(),
        request.lane(),
        request.lane().unwrap().id.short_hash()
    );
    assert!(!shown.contains("my-secret"), "{shown}");
    assert_eq!(request.lane().unwrap().id.short_hash().len(), 12);
}

#[test]
fn a_guessed_lane_stays_while_a_conversation_grows() {
    let lane = |body: &str| Request::new(Wire::ANTHROPIC, &[], body).lane().unwrap().id;
    let first = lane(
        r#"{"model":"claude-sonnet-4-5","system":"s","tools":[],"messages":[{"role":"user","content":[{"type":"text","text":"go","cache_control":{"type":"ephemeral"}}]}]}"#,
    );
    let same = [
        r#"{"model":"claude-sonnet-5","system":"s","tools":[],"messages":[{"role":"user","content":"go"},{"role":"assistant","content":"ok"},{"role":"user","content":"on"}]}"#,
        r#"{"tools":[],"messages":[{"content":[{"text":"go","type":"text"}],"role":"user"}],"system":"s","model":"claude-sonnet-4-5"}"#,
    ];
    let other = [
        r#"{"model":"claude-opus-4-5","system":"s","tools":[],"messages":[{"role":"user","content":"go"}]}"#,
        r#"{"model":"claude-sonnet-4-5","system":"t","tools":[],"messages":[{"role":"user","content":"go"}]}"#,
        r#"{"model":"claude-sonnet-4-5","system":"s","tools":[{}],"messages":[{"role":"user","content":"go"}]}"#,
        r#"{"model":"claude-sonnet-4-5","system":"s","tools":[],"messages":[{"role":"user","content":"stop"}]}"#,
        r#"{"model":"claude-sonnet-4-5","tools":[],"messages":[{"role":"user","content":"go"}]}"#,
    ];
    assert!(same.iter().all(|body| lane(body) == first));
    assert!(other.iter().all(|body| lane(body) != first));
    // The first bytes and the length of each part are enough.
    let long = |tail: &str| lane(&messages(&format!(r#""system":"{}{tail}","#, "x".repeat(2000))));
    assert_eq!(long("a"), long("b"));
    assert_ne!(long("a"), long("bc"));
}

#[test]
fn a_request_continues_the_lane_of_the_answer_it_names() {
    let table = SessionTable::new(SessionSettings::default());
    let first = Request::new(
        Wire::OPENAI_RESPONSES,
        &[],
        r#"{"model":"gpt-5","input":[{"role":"user","content":"go"}]}"#,
    );
    let began = first.lane().unwrap();
    table.note_answer(
        &ONE,
        asked(began, 1),
        &EmittedCalls::default(),
        AnswerEnd::Complete,
        Some("resp_1"),
        now(),
    );
    let next = |id: &str, principal: &Caller| {
        let body = format!(
            r#"{{"model":"gpt-5","previous_response_id":"{id}","prompt_cache_key":"k","input":[{{"role":"user","content":"on"}}]}}"#
        );
        find_lane(
            &Request::new(Wire::OPENAI_RESPONSES, &[], body).asked(principal),
            |caller, id| table.lane_of_answer(caller, id),
        )
        .unwrap()
    };
    let goes_on = next("resp_1", &ONE);
    assert_eq!(
        (goes_on.id, goes_on.source, goes_on.strength),
        (began.id, SessionSource::Answer, SessionStrength::Weak)
    );
    assert_eq!(next("resp_2", &ONE).source, SessionSource::CacheKey);
    assert_eq!(
        next("resp_1", &TWO).source,
        SessionSource::CacheKey,
        "another principal's answer"
    );
    // A first request may be a single string.
    let text = Request::new(Wire::OPENAI_RESPONSES, &[], r#"{"model":"gpt-5","input":"go"}"#);
    assert_eq!(text.lane().unwrap().source, SessionSource::History);
    // Message threads name the message.
    table.note_answer(
        &ONE,
        asked(began, 1),
        &EmittedCalls::default(),
        AnswerEnd::Complete,
        Some("msg_1"),
        now(),
    );
    let body = messages(r#""thread":{"type":"continue","previous_message_id":"msg_1"},"#);
    assert_eq!(
        find_lane(&Request::new(Wire::ANTHROPIC, &[], body).asked(&ONE), |caller, id| {
            table.lane_of_answer(caller, id)
        })
        .unwrap()
        .source,
        SessionSource::Answer
    );
    assert_eq!(table.lane_of_answer(&ONE, ""), None);
}

// ---- The session table.

fn now() -> Instant {
    antiphon::clock::now()
}

/// Notes a request that continues the history of its lane.
pub(super) fn note_request(table: &SessionTable, lane: LaneId, outline: &Outline, now: Instant) -> ClosedCalls {
    table
        .enter_lane(lane, LaneNames::default(), request(outline, true), now)
        .closed
}

/// Returns a request of a lane.
pub(super) fn request(outline: &Outline, may_be_turn: bool) -> LaneRequest<'_> {
    LaneRequest {
        outline,
        mark: TurnMark::of_request(b"", outline, None),
        may_be_turn,
        is_compacted: false,
    }
}

/// Returns a request of a lane that had so many messages, and was answered.
pub(super) fn asked(lane: Lane, messages: usize) -> AnsweredRequest {
    AnsweredRequest {
        lane,
        mark: TurnMark::of_request(b"", &shows(messages, &[], &[]), None),
    }
}

/// Returns a lane as the admin page shows it.
pub(super) fn view(table: &SessionTable, lane: LaneId, now: Instant) -> Option<LaneView> {
    let views = table.lane_views(0, usize::MAX, now);
    views.into_iter().find(|view| view.lane == lane.short_hash())
}

fn has_open_calls(table: &SessionTable, lane: LaneId, now: Instant) -> bool {
    view(table, lane, now).is_some_and(|view| !view.calls.is_empty())
}

fn profile_pin(table: &SessionTable, lane: LaneId, now: Instant) -> Option<ProfilePin> {
    view(table, lane, now)?.pin
}

fn second(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(super) fn strong(principal: &Caller, session: &str) -> Lane {
    let request = Request::new(Wire::ANTHROPIC, &[("x-antiphon-session", session)], "");
    find_lane(&request.asked(principal), |_, _| None).unwrap()
}

pub(super) fn calls(list: &[(&str, &str)]) -> EmittedCalls {
    let mut watcher = Watcher::new(Some(Format::Anthropic), Framing::Events);
    for (id, name) in list {
        let block = format!(r#"{{"type":"tool_use","id":"{id}","name":"{name}"}}"#);
        let start = format!("data: {{\"type\":\"content_block_start\",\"content_block\":{block}}}\n\n");
        watcher.push(start.as_bytes());
    }
    watcher.facts().calls.clone()
}

fn asked_call(id: &str) -> OutlineCall {
    OutlineCall {
        id: id.as_bytes().into(),
        ..OutlineCall::default()
    }
}

pub(super) fn shows(messages: usize, asked: &[&str], answers: &[&str]) -> Outline {
    let ids = |ids: &[&str]| ids.iter().map(|id| asked_call(id)).collect();
    Outline {
        messages,
        last_calls: ids(asked),
        last_results: answers.iter().map(|id| answer(id, "")).collect(),
        ..Outline::default()
    }
}

fn answer(id: &str, name: &str) -> OutlineResult {
    OutlineResult {
        id: id.as_bytes().into(),
        name: name.as_bytes().into(),
        lost: false,
        ..OutlineResult::default()
    }
}

/// Returns the closed calls of a lane that was attached to all of them.
fn settled(tools: &[(&str, u64)], abandoned: usize) -> ClosedCalls {
    let settled = |(tool, open): &(&str, u64)| SettledCall {
        tool: (*tool).into(),
        open_for: second(*open),
        attached: true,
        is_overrun: false,
    };
    ClosedCalls {
        settled: tools.iter().map(settled).collect(),
        abandoned,
        detached: vec![DetachReason::WentOn; abandoned],
        ..ClosedCalls::default()
    }
}

const BASH: (&str, &str) = ("toolu_1", "Bash");
const READ: (&str, &str) = ("toolu_2", "Read");

/// Checks one request: its lane had three messages and was answered with the `emitted` calls. The request closes
/// `closed`, and `left` calls stay open.
fn closes(name: &str, emitted: &[(&str, &str)], request: &Outline, closed: &ClosedCalls, left: usize) {
    let table = SessionTable::new(SessionSettings::default());
    let (lane, began) = (strong(&ONE, "s"), now());
    assert_eq!(
        note_request(&table, lane.id, &shows(3, &[], &[]), began),
        ClosedCalls::default()
    );
    table.note_answer(&ONE, asked(lane, 3), &calls(emitted), AnswerEnd::Complete, None, began);
    assert!(has_open_calls(&table, lane.id, began), "{name}");
    let later = began + second(5);
    assert_eq!(note_request(&table, lane.id, request, later), *closed, "{name}");
    assert_eq!(has_open_calls(&table, lane.id, later), left > 0, "{name}");
    assert_eq!(
        note_request(&table, lane.id, &shows(9, &[], &[]), later).abandoned,
        left,
        "{name}"
    );
}

#[test]
fn a_request_closes_answered_and_abandoned_calls() {
    let both = [BASH, READ];
    let request = shows(5, &["toolu_1", "toolu_2"], &["toolu_2", "toolu_1"]);
    closes(
        "all answered",
        &both,
        &request,
        &settled(&[("Bash", 5), ("Read", 5)], 0),
        0,
    );
    let request = shows(5, &["toolu_1", "toolu_2"], &["toolu_1"]);
    closes("one without", &both, &request, &settled(&[("Bash", 5)], 1), 0);
    let request = shows(1, &[], &["toolu_1"]);
    closes("results alone", &both, &request, &settled(&[("Bash", 5)], 1), 0);
    closes("words instead", &[BASH], &shows(5, &[], &[]), &settled(&[], 1), 0);
    closes("sent again", &[BASH], &shows(3, &[], &[]), &settled(&[], 0), 1);
    closes("cut back", &[BASH], &shows(1, &["toolu_1"], &[]), &settled(&[], 1), 0);
    closes("a title", &[BASH], &shows(2, &[], &[]), &settled(&[], 0), 1);
    closes(
        "of somebody else",
        &both,
        &shows(2, &["x"], &["x"]),
        &settled(&[], 0),
        2,
    );
}

#[test]
fn a_result_settles_by_exact_id_or_by_an_unambiguous_stripped_id() {
    let stripped = shows(5, &["toolu1"], &["toolu1"]);
    closes("stripped", &[BASH], &stripped, &settled(&[("Bash", 5)], 0), 0);
    let alike = [BASH, ("toolu-1", "Read")];
    closes("two calls alike", &alike, &stripped, &settled(&[], 2), 0);
    let exact = [BASH, ("toolu1", "Read")];
    closes("exact first", &exact, &stripped, &settled(&[("Read", 5)], 1), 0);
    let two = shows(5, &["toolu1"], &["toolu1", "toolu-1"]);
    closes("two results alike", &[BASH], &two, &settled(&[], 1), 0);
    let twice = shows(5, &[], &["toolu_1", "toolu_1"]);
    closes("the same twice", &[BASH], &twice, &settled(&[("Bash", 5)], 0), 0);
    let long = format!("toolu_{}", "x".repeat(300));
    let cut = shows(5, &[], &[&long[..128]]);
    closes("a long one", &[(&long, "Bash")], &cut, &settled(&[("Bash", 5)], 0), 0);
}

#[test]
fn calls_without_ids_are_matched_by_tool() {
    let (table, lane, began) = (SessionTable::new(SessionSettings::default()), strong(&ONE, "s"), now());
    note_request(&table, lane.id, &shows(1, &[], &[]), began);
    table.note_answer(
        &ONE,
        asked(lane, 1),
        &calls(&[("", "ls"), ("", "ls"), ("", "cat")]),
        AnswerEnd::Complete,
        None,
        began,
    );
    // gemini-cli makes its own ids.
    let mut outline = shows(3, &[], &[]);
    outline.last_results = vec![answer("ls_1", "ls"), answer("ls_2", "ls")];
    let closed = note_request(&table, lane.id, &outline, began + second(1));
    assert_eq!(closed, settled(&[("ls", 1), ("ls", 1)], 1));
}

#[test]
fn calls_of_another_answer_stay_open() {
    let (table, lane, began) = (SessionTable::new(SessionSettings::default()), strong(&ONE, "s"), now());
    note_request(&table, lane.id, &shows(20, &[], &[]), began);
    table.note_answer(
        &ONE,
        asked(lane, 20),
        &calls(&[("toolu_1", "Task")]),
        AnswerEnd::Complete,
        None,
        began,
    );
    // A subagent without an agent id: a shorter history with its own calls.
    note_request(&table, lane.id, &shows(1, &[], &[]), began);
    table.note_answer(
        &ONE,
        asked(lane, 1),
        &calls(&[("toolu_2", "Read")]),
        AnswerEnd::Complete,
        None,
        began,
    );
    assert_eq!(
        note_request(&table, lane.id, &shows(3, &["toolu_2"], &["toolu_2"]), began),
        settled(&[("Read", 0)], 0)
    );
    assert_eq!(
        note_request(
            &table,
            lane.id,
            &shows(22, &["toolu_1"], &["toolu_1"]),
            began + second(9)
        ),
        settled(&[("Task", 9)], 0)
    );
}

#[test]
fn a_shortened_history_leaves_no_call_open() {
    let (table, lane, began) = (SessionTable::new(SessionSettings::default()), strong(&ONE, "s"), now());
    note_request(&table, lane.id, &shows(200, &[], &[]), began);
    // The client has replaced the history with a summary.
    note_request(&table, lane.id, &shows(3, &[], &[]), began);
    table.note_answer(&ONE, asked(lane, 3), &calls(&[BASH]), AnswerEnd::Complete, None, began);
    let words = note_request(&table, lane.id, &shows(4, &[], &[]), began);
    assert_eq!(words, settled(&[], 1), "more than the request that brought the call");
    table.note_answer(&ONE, asked(lane, 4), &calls(&[READ]), AnswerEnd::Complete, None, began);
    let next = note_request(&table, lane.id, &shows(6, &["toolu_2"], &["toolu_2"]), began);
    assert_eq!(next, settled(&[("Read", 0)], 0));
    assert!(!has_open_calls(&table, lane.id, began));
}

/// A step of a lane after a stall, and whether the stall is shown after it.
type LaneStep<'s> = (&'s str, &'s dyn Fn(&SessionTable, Lane, Instant), bool);

#[test]
fn a_stall_is_shown_until_the_lane_goes_on() {
    let web_search = || RunningTool {
        name: "web_search".to_owned(),
        id: "srvtoolu_1".to_owned(),
        age: second(31),
    };
    let no_calls = EmittedCalls::default();
    let steps: [LaneStep<'_>; 5] = [
        ("nothing", &|_, _, _| {}, true),
        (
            "the next request",
            &|table, lane, at| drop(note_request(table, lane.id, &shows(3, &[], &[]), at)),
            false,
        ),
        (
            "a count of its tokens",
            &|table, lane, at| {
                drop(table.enter_lane(lane.id, LaneNames::default(), request(&shows(1, &[], &[]), false), at));
            },
            true,
        ),
        (
            "a whole answer",
            &|table, lane, at| {
                table.note_answer(&ONE, asked(lane, 1), &no_calls, AnswerEnd::Complete, None, at);
            },
            false,
        ),
        (
            "another broken answer",
            &|table, lane, at| {
                table.note_answer(&ONE, asked(lane, 1), &no_calls, AnswerEnd::Broken, None, at);
            },
            true,
        ),
    ];
    for (what, step, is_shown) in steps {
        let table = SessionTable::new(SessionSettings::default());
        let (lane, began) = (strong(&ONE, "s"), now());
        note_request(&table, lane.id, &shows(1, &[], &[]), began);
        table.note_stall(lane.id, web_search(), began + second(31));
        step(&table, lane, began + second(40));
        let shown = view(&table, lane.id, began + second(41)).unwrap().stalled_tool;
        assert_eq!(shown.is_some(), is_shown, "{what}");
        // A client that gave up sends nothing more: the stall is old news after a while.
        let later = view(&table, lane.id, began + second(31 + 15 * 60))
            .unwrap()
            .stalled_tool;
        assert_eq!(later, None, "{what}");
    }
}

#[test]
fn the_table_is_bounded_and_forgets_silent_lanes() {
    let idle = second(60);
    let settings = SessionSettings {
        entries_max: 8,
        bytes_max: 64 * 1024,
        idle,
        calls: CallLimits::default(),
    };
    let (table, began) = (SessionTable::new(settings.clone()), now());
    for n in 0..200 {
        note_request(&table, strong(&ONE, &n.to_string()).id, &shows(1, &[], &[]), began);
    }
    assert!(table.lane_totals(began).lanes <= 8);
    let heavy: Vec<(String, String)> = (0..600).map(|n| (format!("toolu_{n}"), "t".repeat(120))).collect();
    let heavy: Vec<(&str, &str)> = heavy.iter().map(|(id, tool)| (id.as_str(), tool.as_str())).collect();
    let table = SessionTable::new(SessionSettings {
        entries_max: 1000,
        ..settings.clone()
    });
    for n in 0..20 {
        let lane = strong(&ONE, &n.to_string());
        for _ in 0..3 {
            table.note_answer(&ONE, asked(lane, 1), &calls(&heavy), AnswerEnd::Complete, None, began);
        }
        assert!(
            table
                .lane_views(0, 100, began)
                .iter()
                .all(|lane| lane.calls.len() <= OPEN_CALLS_MAX)
        );
    }
    assert!(table.lane_totals(began).lanes <= 2);
    // Silent lanes are forgotten. Their calls count neither as settled nor as abandoned.
    let table = SessionTable::new(settings);
    let lane = strong(&ONE, "s");
    table.note_answer(
        &ONE,
        asked(lane, 1),
        &calls(&[("toolu_1", "Bash")]),
        AnswerEnd::Complete,
        None,
        began,
    );
    table.set_profile_pin(lane.id, Some(pin("a")), began);
    assert_eq!(profile_pin(&table, lane.id, began + idle), Some(pin("a")));
    let late = began + idle + second(1);
    assert_eq!(
        (
            profile_pin(&table, lane.id, late),
            has_open_calls(&table, lane.id, late)
        ),
        (None, false)
    );
    assert_eq!(
        (table.lane_views(0, 9, late).len(), table.lane_totals(late).lanes),
        (0, 0)
    );
    assert_eq!(
        note_request(&table, lane.id, &shows(9, &[], &[]), late),
        ClosedCalls::default()
    );
}

fn pin(profile: &str) -> ProfilePin {
    ProfilePin {
        upstream: "anthropic".into(),
        profile: profile.into(),
    }
}

/// A plain model of a lane.
#[derive(Default)]
struct LaneModel {
    pin: Option<ProfilePin>,
    /// Id, tool, opening time, answer, and message count of the request before.
    open: Vec<(String, String, u64, u64, usize)>,
    latest: usize,
}

impl LaneModel {
    fn note(&mut self, messages: usize, answers: &[String], at: u64) -> (Vec<(String, u64)>, usize) {
        self.latest = messages;
        let bare = |id: &str| id.replace('_', "");
        let is_here = |id: &str| answers.iter().any(|answer| bare(answer) == bare(id));
        let turns: Vec<u64> = self
            .open
            .iter()
            .filter(|call| is_here(&call.0))
            .map(|call| call.3)
            .collect();
        let (mut settled, mut abandoned) = (Vec::new(), 0);
        self.open.retain(|(id, tool, opened, turn, before)| {
            let answered = is_here(id);
            let dropped = messages > *before || turns.contains(turn);
            if answered {
                settled.push((tool.clone(), at - opened));
            } else if dropped {
                abandoned += 1;
            }
            !(answered || dropped)
        });
        (settled, abandoned)
    }
}

/// Compares pins and open calls of every lane with the model.
fn assert_lanes(table: &SessionTable, model: &BTreeMap<(usize, usize), LaneModel>, time: Instant, seed: u64) {
    for ((principal, session), noted) in model {
        let lane = strong(&[ONE, TWO][*principal], &format!("s{session}")).id;
        assert_eq!(profile_pin(table, lane, time), noted.pin, "seed {seed}");
        assert_eq!(has_open_calls(table, lane, time), !noted.open.is_empty(), "seed {seed}");
    }
}

/// Returns results of the lane's own calls, some without their underscore, and of unknown calls.
fn random_answers(noted: &LaneModel, rng: &mut Rng) -> Vec<String> {
    let mut answers: Vec<String> = noted.open.iter().map(|call| call.0.clone()).collect();
    answers.retain(|_| rng.chance(60));
    answers.push(format!("toolu_{}", rng.below(200) + 100_000));
    for answer in &mut answers {
        if rng.chance(30) {
            *answer = answer.replace('_', "");
        }
    }
    answers
}

#[test]
fn random_lanes_match_the_model() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let table = SessionTable::new(SessionSettings::default());
        let mut model: BTreeMap<(usize, usize), LaneModel> = BTreeMap::new();
        let mut emitted = 0;
        let mut owners: HashMap<String, (usize, usize)> = HashMap::new();
        let (began, mut at) = (now(), 0);
        for _ in 0..120 {
            at += rng.below(5) as u64;
            let time = began + second(at);
            let key = (rng.below(2), rng.below(3));
            let principal = [ONE, TWO][key.0];
            let lane = strong(&principal, &format!("s{}", key.1));
            let noted = model.entry(key).or_default();
            match rng.below(4) {
                0 => {
                    let list: Vec<(String, String)> = (0..rng.below(4))
                        .map(|n| (format!("toolu_{}", emitted * 10 + n), format!("t{}", rng.below(3))))
                        .collect();
                    emitted += 1;
                    let texts: Vec<(&str, &str)> = list.iter().map(|(id, tool)| (id.as_str(), tool.as_str())).collect();
                    let answer = format!("resp_{emitted}");
                    table.note_answer(
                        &principal,
                        asked(lane, noted.latest),
                        &calls(&texts),
                        AnswerEnd::Complete,
                        Some(&answer),
                        time,
                    );
                    owners.insert(answer, key);
                    for (id, tool) in list {
                        noted.open.push((id, tool, at, emitted as u64, noted.latest));
                    }
                }
                1 => {
                    let wanted = rng.chance(80).then(|| pin(["a", "b"][rng.below(2)]));
                    table.set_profile_pin(lane.id, wanted.clone(), time);
                    noted.pin = wanted;
                }
                _ => {
                    let messages = rng.within(1, 12);
                    let answers = random_answers(noted, &mut rng);
                    let texts: Vec<&str> = answers.iter().map(String::as_str).collect();
                    let closed = note_request(&table, lane.id, &shows(messages, &[], &texts), time);
                    let (wanted, abandoned) = noted.note(messages, &answers, at);
                    let wanted: Vec<(&str, u64)> = wanted.iter().map(|(tool, open)| (tool.as_str(), *open)).collect();
                    assert_eq!(closed, settled(&wanted, abandoned), "seed {seed}");
                }
            }
            assert_lanes(&table, &model, time, seed);
            let open: usize = model.values().map(|noted| noted.open.len()).sum();
            assert_eq!(table.lane_totals(time).open_calls, open, "seed {seed}");
        }
        for (answer, (principal, session)) in &owners {
            let keys = [ONE, TWO];
            let lane = table.lane_of_answer(&keys[*principal], answer).unwrap();
            assert_eq!(
                lane.id,
                strong(&keys[*principal], &format!("s{session}")).id,
                "seed {seed}"
            );
            assert_eq!(table.lane_of_answer(&keys[1 - *principal], answer), None, "seed {seed}");
        }
    }
}
