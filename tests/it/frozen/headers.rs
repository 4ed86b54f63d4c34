//! Pins header names and values: those that are read, sent to the provider, sent to the client, and added by the proxy.

use std::time::Duration;

use antiphon::{
    auth::{Caller, Credential, Principal, PrincipalKey, Profile, Secret, principal::principal_of_credentials},
    policy::{Class, LimitHints, ProviderErrorInfo, billed_organisation},
    proxy::guess_shape,
    repair::{Mode, parse},
    session::{ClientHeaders, SessionRequest, find_lane, first_text, read_client_hints},
    wire::ErrorShape,
    wire::{Format, Wire},
};
use http::{HeaderMap, HeaderName};

use crate::{
    frozen::golden::{same, same_lines},
    support::{
        app::{before, post_with},
        wire::{Message, Upstream},
    },
};

fn map(fields: &[(&str, &str)]) -> HeaderMap {
    let field = |(name, value): &(&str, &str)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    fields.iter().map(field).collect()
}

const ASK: &str = r#"{"model":"m","messages":[{"role":"user","content":"go"}]}"#;

/// Returns the source of the lane of a request with these headers, and whether an agent has its own lane.
fn lane_facts(fields: &[(&str, &str)]) -> String {
    let outline = parse(ASK.as_bytes(), Wire::ANTHROPIC).unwrap().outline();
    let headers = map(fields);
    let asked = SessionRequest {
        caller: &const { Caller::of_account(Principal::from_bytes([1; 32])) },
        format: Format::Anthropic,
        headers: ClientHeaders::read(&headers),
        body: ASK.as_bytes(),
        outline: &outline,
        first_text: first_text(ASK.as_bytes(), &outline),
        path_model: None,
    };
    let source = find_lane(&asked, |_, _| None).map_or("none", |lane| lane.source.label());
    format!("session={source} agent={}", asked.agent_label().is_some())
}

/// Returns the error shape of a request whose path names no format.
fn shape_fact(headers: &HeaderMap) -> &'static str {
    match guess_shape("/", headers) {
        ErrorShape::Anthropic => "anthropic",
        ErrorShape::OpenAi => "openai",
        ErrorShape::Responses => "responses",
        ErrorShape::Gemini => "gemini",
        ErrorShape::Bedrock => "bedrock",
    }
}

/// Returns the facts in the headers that do not identify the client.
fn marks_facts(headers: &HeaderMap) -> String {
    let marks = read_client_hints(&ClientHeaders::read(headers), "/v1/messages");
    let mut facts = String::new();
    for (name, holds) in [
        ("compaction", marks.is_compaction),
        ("turn_state", marks.has_turn_state),
        ("retries", marks.retries == 2),
        ("patience", marks.client_timeout == Some(Duration::from_secs(600))),
    ] {
        facts.push_str(&if holds { format!(" {name}") } else { String::new() });
    }
    facts
}

/// Request headers, each sent by itself.
const ASKED_WITH: &[(&str, &str)] = &[
    ("anthropic-version", "2023-06-01"),
    ("api-key", "k"),
    ("authorization", "Bearer k"),
    ("conversation_id", "s"),
    ("session-id", "s"),
    ("session_id", "s"),
    ("thread-id", "s"),
    ("x-antiphon-session", "s"),
    ("x-api-key", "k"),
    ("x-claude-code-agent-id", "a"),
    ("x-claude-code-compaction", "auto"),
    ("x-claude-code-compaction", "manual"),
    ("x-claude-code-compaction", "reactive"),
    ("x-claude-code-context-compacted", "true"),
    ("x-claude-code-request-class", "compaction"),
    ("x-claude-code-session-id", "s"),
    ("x-codex-turn-state", "t"),
    ("x-goog-api-key", "k"),
    ("x-openai-subagent", "compact"),
    ("x-openai-subagent", "review"),
    ("x-session-affinity", "s"),
    ("x-session-id", "s"),
    ("x-stainless-read-timeout", "600"),
    ("x-stainless-retry-count", "2"),
    ("x-stainless-timeout", "600"),
];

/// Nine seconds after `NOW`.
const LATER: &str = "2026-12-01T00:00:09Z";
const REJECTED: (&str, &str) = ("anthropic-ratelimit-unified-status", "rejected");

/// Answer headers, each with the headers it is read together with.
#[rustfmt::skip]
const ANSWERED_WITH: &[&[(&str, &str)]] = &[
    &[("retry-after", "7")],
    &[("retry-after-ms", "7")],
    &[("x-ms-retry-after-ms", "7")],
    &[("x-should-retry", "true")],
    &[("x-should-retry", "false")],
    &[("anthropic-ratelimit-requests-remaining", "0"), ("anthropic-ratelimit-requests-reset", LATER)],
    &[("anthropic-ratelimit-tokens-remaining", "0"), ("anthropic-ratelimit-tokens-reset", LATER)],
    &[("anthropic-ratelimit-input-tokens-remaining", "0"), ("anthropic-ratelimit-input-tokens-reset", LATER)],
    &[("anthropic-ratelimit-output-tokens-remaining", "0"), ("anthropic-ratelimit-output-tokens-reset", LATER)],
    &[("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "9s")],
    &[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "9s")],
    &[("x-ratelimit-remaining-project-tokens", "0"), ("x-ratelimit-reset-project-tokens", "9s")],
    &[REJECTED, ("anthropic-ratelimit-unified-reset", "1796083209")],
    &[REJECTED, ("anthropic-ratelimit-unified-5h-status", "rejected"), ("anthropic-ratelimit-unified-5h-reset", "1796083209")],
    &[REJECTED, ("anthropic-ratelimit-unified-reset", "1796083209"), ("anthropic-ratelimit-unified-representative-claim", "seven_day_opus")],
    &[("x-codex-primary-used-percent", "100"), ("x-codex-primary-reset-at", "1796083209")],
    &[("x-codex-secondary-used-percent", "100"), ("x-codex-secondary-reset-at", "1796083209")],
    &[("anthropic-organization-id", "o")],
    &[("openai-organization", "o")],
];

/// 2026-12-01T00:00:00Z.
const NOW: Duration = Duration::from_secs(1_796_083_200);

#[test]
fn headers_that_are_read_are_pinned() {
    let mut facts = Vec::new();
    for field in ASKED_WITH {
        let headers = map(&[*field]);
        let (name, value) = field;
        let key = PrincipalKey::new([1; 32]);
        let is_credential = principal_of_credentials(&key, &headers, None) != Principal::NONE;
        let (lane, caller) = (lane_facts(&[*field]), is_credential);
        let (shape, marks) = (shape_fact(&headers), marks_facts(&headers));
        facts.push(format!(
            "request {name}: {value} -> {lane} caller={caller} shape={shape}{marks}"
        ));
    }
    facts.push(format!(
        "request session-id + thread-id -> {}",
        lane_facts(&[("session-id", "s"), ("thread-id", "t")])
    ));
    for fields in ANSWERED_WITH {
        let headers = map(fields);
        let names: Vec<String> = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let (hints, named) = (
            LimitHints::read(&headers, &ProviderErrorInfo::default(), Class::RateLimit, NOW),
            billed_organisation(&headers),
        );
        let LimitHints {
            cooldown: rest,
            retry_delay: delay,
            every_model,
            should_retry,
            ..
        } = hints;
        facts.push(format!(
            "answer {} -> rest={rest:?} delay={delay:?} every_model={every_model} should_retry={should_retry:?} organisation={named:?}",
            names.join(", ")
        ));
    }
    same_lines("headers-read.txt", facts);
}

/// Headers of a request beside those that every request has.
const CARRIED: &[(&str, &str)] = &[
    ("Accept-Encoding", "gzip"),
    ("Anthropic-Beta", "one"),
    ("Anthropic-Version", "2023-06-01"),
    ("Api-Key", "k"),
    ("Authorization", "Bearer k"),
    ("Chatgpt-Account-Id", "a"),
    ("Connection", "keep-alive, X-Named"),
    ("Cookie", "a=b"),
    ("Keep-Alive", "timeout=5"),
    ("Ocp-Apim-Subscription-Key", "k"),
    ("OpenAI-Organization", "o"),
    ("OpenAI-Project", "p"),
    ("Proxy-Authorization", "Basic x"),
    ("Proxy-Connection", "keep-alive"),
    ("TE", "trailers"),
    ("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ("User-Agent", "u"),
    ("Via", "1.1 v"),
    ("X-Amz-Date", "d"),
    ("X-Antiphon-Anything", "x"),
    ("X-Antiphon-Session", "s"),
    ("X-Api-Key", "k"),
    ("X-Forwarded-For", "1.2.3.4"),
    ("X-Goog-Api-Key", "k"),
    ("X-Goog-User-Project", "p"),
    ("X-Named", "x"),
    ("X-Other", "x"),
    ("X-Stainless-Retry-Count", "0"),
    ("content_length", "9"),
    ("transfer_encoding", "x"),
];

/// Returns each header of a head, without the parts that differ from run to run.
fn fields(message: &Message) -> Vec<String> {
    let stable = |line: &str| {
        let (name, value) = line.split_once(':').unwrap();
        let value = match name.to_ascii_lowercase().as_str() {
            "host" => "HOST",
            "date" => "DATE",
            "x-antiphon-request-id" => "UUID",
            _ => value.trim(),
        };
        format!("{name}: {value}")
    };
    let mut fields: Vec<String> = message.head.lines().skip(1).map(stable).collect();
    fields.sort();
    fields
}

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: keep-alive, x-named\r\n\
    Keep-Alive: timeout=5\r\nX-Named: x\r\nSet-Cookie: a=b\r\nRequest-Id: r\r\nX-Antiphon-Repair: forged\r\n\
    Proxy-Authenticate: Basic\r\nX-Request-Id: q\r\nAnthropic-Ratelimit-Requests-Remaining: 9\r\nUpgrade: h2c\r\n\r\n{}";

#[tokio::test]
async fn relayed_removed_and_added_headers_are_pinned() {
    let mut facts = String::new();
    for (name, path, has_profile) in [
        ("inspected", "/anthropic/v1/messages", false),
        ("not inspected", "/anthropic/v1/models?key=k&api_key=k&alt=sse", false),
        (
            "profile of anthropic",
            "/anthropic/v1/messages?key=k&access_token=k&beta=true",
            true,
        ),
        (
            "profile of openai",
            "/openai/v1/chat/completions?subscription-key=k&oauth_token=k",
            true,
        ),
        (
            "profile of gemini",
            "/gemini/v1beta/models/m:generateContent?key=k&api-key=k&X-Amz-Date=d&alt=sse",
            true,
        ),
    ] {
        let upstream = Upstream::answering(ANSWER).await;
        let profile = Profile {
            label: "p".to_owned(),
            credential: Credential::Key(Secret::new("PROFILE".to_owned())),
            weight: 1,
            organisation: None,
            models: Vec::new(),
            max_concurrent: None,
        };
        let profiled = |builder: &mut crate::support::app::Builder| {
            for upstream in builder.upstreams.iter().filter(|_| has_profile) {
                builder.profiles.insert(upstream.name.clone(), vec![profile.clone()]);
            }
        };
        let app = before(upstream.address).with(profiled).start().await;
        let answer = app.ask(post_with(path, CARRIED, ASK.as_bytes())).await;
        let request = upstream.request();
        facts.push_str(&format!("{name} -> {}\n", request.line()));
        for field in fields(&request) {
            facts.push_str(&format!("{name} -> {field}\n"));
        }
        facts.push_str(&format!("{name} <- {}\n", answer.line()));
        for field in fields(&answer) {
            facts.push_str(&format!("{name} <- {field}\n"));
        }
    }
    same("headers-relayed.txt", &facts);
}

/// A history with one call without a result.
const OPEN: &str = r#"{"model":"m","messages":[{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"f","input":{}}]},{"role":"user","content":"on"}]}"#;
/// A body with two keys of the history.
const TWICE: &str = r#"{"messages":[],"messages":[]}"#;
const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
const NO_KEY: &[u8] = b"HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\ncontent-length: 70\r\n\r\n{\"type\":\"error\",\"error\":{\"type\":\"authentication_error\",\"message\":\"x\"}}";
const REFUSED: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: 112\r\n\r\n\
    {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"messages.1: `tool_use` ids must be unique\"}}   ";

#[tokio::test]
async fn repair_headers_of_answers_are_pinned() {
    let mut facts = String::new();
    let message = "/anthropic/v1/messages";
    #[rustfmt::skip]
    let rows = [
        ("healthy", Mode::Repair, message, None, ASK, &[OK][..], ""),
        ("repaired", Mode::Repair, message, None, OPEN, &[OK][..], ""),
        ("unreadable", Mode::Repair, message, None, TWICE, &[OK][..], ""),
        ("observed", Mode::Observe, message, None, OPEN, &[OK][..], ""),
        ("strict", Mode::Strict, message, None, OPEN, &[OK][..], ""),
        ("asked for strict", Mode::Repair, message, Some("strict"), OPEN, &[OK][..], ""),
        ("asked for observe", Mode::Repair, message, Some("observe"), OPEN, &[OK][..], ""),
        ("asked for nothing known", Mode::Repair, message, Some("loose"), OPEN, &[OK][..], ""),
        ("not inspected", Mode::Repair, "/anthropic/v1/models", None, ASK, &[OK][..], ""),
        ("no route", Mode::Repair, "/nowhere", None, ASK, &[OK][..], ""),
        ("ledger without services", Mode::Repair, "/ledger/v1/lookup", None, ASK, &[OK][..], ""),
        ("profile", Mode::Repair, message, None, ASK, &[OK][..], "ab"),
        ("profile that moved", Mode::Repair, message, None, ASK, &[NO_KEY, OK][..], "ab"),
        ("profiles that rest", Mode::Repair, message, None, ASK, &[NO_KEY][..], "ab"),
        ("refused", Mode::Repair, message, None, OPEN, &[REFUSED][..], ""),
    ];
    for (name, mode, path, field, body, answers, profiles) in rows {
        let upstream = Upstream::answering_each(answers.iter().map(|answer| answer.to_vec())).await;
        let profiled = |builder: &mut crate::support::app::Builder| {
            if !profiles.is_empty() {
                let profiles = crate::support::pool::strangers(profiles);
                builder.profiles.insert("anthropic".to_owned(), profiles);
            }
        };
        let app = before(upstream.address).mode(mode).with(profiled).start().await;
        let sent: Vec<(&str, &str)> = field.map(|mode| ("x-antiphon-mode", mode)).into_iter().collect();
        let answer = app.ask(post_with(path, &sent, body.as_bytes())).await;
        facts.push_str(&format!("{name}: {}\n", answer.line()));
        for field in fields(&answer)
            .iter()
            .filter(|field| !field.starts_with("content-length"))
        {
            facts.push_str(&format!("{name}: {field}\n"));
        }
    }
    same("headers-answered.txt", &facts);
}
