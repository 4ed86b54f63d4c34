//! Stuck sessions: a provider refuses a history again and again in words that the proxy does not know.

use antiphon::{
    api::admin::{AdminService, Readiness},
    repair::Mode,
};
use futures_util::StreamExt as _;
use http::StatusCode;
use http_body_util::{BodyExt as _, Empty};
use serde_json::{Value, json};

use crate::{
    admin::api::{answer, get},
    support::{
        app::{admin_of, before, gzipped, post_with},
        collector::Collector,
        pool::{self, MESSAGES, fine, strangers},
        seed,
        still::{Step, World, error, head, json, say, sse},
        wire::Upstream,
    },
    telemetry::{metrics::Lines, traces},
};

const CHAT: &str = "/openai/v1/chat/completions";
const UNKNOWN: &str = "messages.3.content.0.image.source: the Fnord of block 'b7' exceeds 5 MB maximum";
const MASKED: &str = "messages.<n>.content.<n>.image.source: the <word>' exceeds <n> MB maximum";

/// Returns an error of Anthropic.
fn refusal(message: &str) -> Vec<Step> {
    let body = json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
    json(400, &body.to_string())
}

/// Returns a body of a session with tools.
fn turn(number: usize) -> String {
    let tools = json!([{"name": "bash", "input_schema": {"type": "object"}}]);
    let messages = json!([{"role": "user", "content": format!("question {number}")}]);
    json!({"model": "m", "max_tokens": 16, "tools": tools, "messages": messages}).to_string()
}

/// Sends a body of a session and returns the status.
async fn send(world: &World, (key, session): (&str, &str), path: &str, body: &str) -> u16 {
    let fields = [
        ("x-api-key", key),
        ("x-antiphon-session", session),
        ("user-agent", "claude-cli/1.0 (x)"),
    ];
    let status = world.ask(post_with(path, &fields, body.as_bytes())).await.status();
    world.settle().await;
    status
}

/// Sends the first turn of a session several times.
async fn send_times(world: &World, whose: (&str, &str), times: usize) {
    for _ in 0..times {
        send(world, whose, MESSAGES, &turn(0)).await;
    }
}

fn router(world: &World) -> AdminService {
    AdminService::new(admin_of(&world.shared, Readiness::new()))
}

/// Returns the page of stuck sessions.
async fn listed(world: &World) -> Value {
    let (status, _, text) = answer(&router(world), get("/admin/v1/stuck-sessions", &[])).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    serde_json::from_str(&text).unwrap()
}

async fn stuck_count(world: &World) -> u64 {
    listed(world).await["stuck"].as_u64().unwrap()
}

/// Returns the value of the metric for an upstream.
fn counted(world: &World, upstream: &str) -> String {
    let page = world.shared.telemetry.encode_metrics();
    let series = format!("antiphon_stuck_sessions_total{{upstream=\"{upstream}\"}} ");
    let value = page.lines().find_map(|line| line.strip_prefix(&series));
    value.unwrap_or_else(|| panic!("no {series} in {page}")).to_owned()
}

/// Returns the lines about stuck sessions.
fn warnings(lines: &Lines) -> Vec<Value> {
    let text = lines.text();
    let parsed = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let is_it = |line: &Value| {
        line["message"]
            .as_str()
            .is_some_and(|text| text.starts_with("a session is stuck"))
    };
    parsed.filter(is_it).collect()
}

#[tokio::test(start_paused = true)]
async fn the_third_refusal_lists_a_session_and_warns_once() {
    let (lines, _listening) = Lines::listen();
    let world = World::new();
    world.otherwise(|_| refusal(UNKNOWN));
    assert_eq!(counted(&world, "anthropic"), "0");
    send_times(&world, ("sk-one", "s1"), 2).await;
    assert_eq!((stuck_count(&world).await, warnings(&lines).len()), (0, 0));
    // The history grows, and the place in the text changes with it.
    send(&world, ("sk-one", "s1"), MESSAGES, &turn(1)).await;
    world.otherwise(|_| refusal(&UNKNOWN.replace(".3.", ".17.")));
    send_times(&world, ("sk-one", "s1"), 2).await;
    let page = listed(&world).await;
    let sessions = page["sessions"].as_array().unwrap();
    assert_eq!((&page["stuck"], sessions.len()), (&json!(1), 1), "{page}");
    let told = [
        "refusal", "refusals", "status", "upstream", "model", "client", "token", "format",
    ];
    let wanted = json!([MASKED, 5, 400, "anthropic", "m", "claude-cli/1.0", null, "anthropic"]);
    assert_eq!(json!(told.map(|name| &sessions[0][name])), wanted, "{page}");
    let warned = warnings(&lines);
    assert_eq!(warned.len(), 1, "{warned:?}");
    let line = &warned[0];
    assert_eq!(
        (&line["level"], &line["refusal"]),
        (&json!("WARN"), &json!(MASKED)),
        "{line}"
    );
    assert_eq!(
        (&line["upstream"], &line["lane"]),
        (&json!("anthropic"), &sessions[0]["lane"]),
        "{line}"
    );
    assert_eq!(
        (counted(&world, "anthropic"), counted(&world, "openai")),
        ("1".into(), "0".into())
    );
}

/// The text is known, but no repair meets it: the session stays stuck until somebody mends the tool.
#[tokio::test(start_paused = true)]
async fn a_rejected_tool_makes_a_session_stuck() {
    let world = World::new();
    world.otherwise(|_| refusal("tools.0.custom.input_schema: JSON schema is invalid"));
    send_times(&world, ("sk-one", "s1"), 3).await;
    assert_eq!(stuck_count(&world).await, 1);
}

#[tokio::test(start_paused = true)]
async fn callers_sessions_upstreams_and_texts_do_not_add_up() {
    let world = World::new();
    world.otherwise(|_| refusal(UNKNOWN));
    for whose in [("sk-one", "s1"), ("sk-two", "s1"), ("sk-one", "s2")] {
        send_times(&world, whose, 2).await;
    }
    send(&world, ("sk-one", "s1"), CHAT, &turn(0)).await;
    world.otherwise(|_| refusal("messages: the roles must alternate"));
    send_times(&world, ("sk-one", "s1"), 2).await;
    assert_eq!(stuck_count(&world).await, 0);
    world.otherwise(|_| refusal(UNKNOWN));
    for whose in [("sk-one", "s1"), ("sk-two", "s1")] {
        send_times(&world, whose, 1).await;
    }
    let page = listed(&world).await;
    let callers: Vec<&Value> = page["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["caller"])
        .collect();
    assert!(callers.len() == 2 && callers[0] != callers[1], "{page}");
}

/// Status and body of an answer, and `true` if a session is stuck after the third of them.
fn errors() -> Vec<(u16, String, bool)> {
    let typed = |kind: &str, text: &str| json!({"type": "error", "error": {"type": kind, "message": text}}).to_string();
    let coded = |code: &str, text: &str| json!({"error": {"code": code, "message": text}}).to_string();
    let known = "messages.1: tool_use ids were found without tool_result blocks immediately after: toolu_9";
    vec![
        (400, typed("invalid_request_error", UNKNOWN), true),
        (
            422,
            json!({"detail": [{"loc": ["body"], "msg": "Extra inputs are not permitted"}]}).to_string(),
            true,
        ),
        (
            404,
            typed("invalid_request_error", "Item with id 'rs_68af' has expired."),
            true,
        ),
        (
            500,
            typed("server_error", "Error rendering prompt with jinja template: Fnord"),
            true,
        ),
        (
            400,
            json!({"error": {"message": "b'{\"message\": \"the Fnord is not supported\"}'"}}).to_string(),
            true,
        ),
        // Known ones.
        (400, typed("invalid_request_error", known), false),
        (
            500,
            typed("server_error", "Jinja Exception: No user query found in messages."),
            false,
        ),
        // About a key, a limit, an outage, a model, a size or the content.
        (401, typed("authentication_error", "invalid x-api-key"), false),
        (402, typed("billing_error", "Your account has a billing issue."), false),
        (403, typed("permission_error", "the key may not use this model"), false),
        (
            413,
            typed("request_too_large", "Request exceeds the maximum size"),
            false,
        ),
        (
            429,
            typed("rate_limit_error", "the messages of this tool are too many"),
            false,
        ),
        (503, typed("overloaded_error", "the tool is overloaded"), false),
        (529, typed("overloaded_error", "Overloaded"), false),
        (500, typed("api_error", "Internal server error"), false),
        (404, typed("not_found_error", "model: fnord-4"), false),
        (404, json!({"detail": "Not Found"}).to_string(), false),
        (400, coded("model_not_found", "The model `fnord` does not exist"), false),
        (400, coded("context_length_exceeded", "too many tokens"), false),
        (
            400,
            typed("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"),
            false,
        ),
        (400, coded("content_filter", "the content is not allowed"), false),
        // Without words, and too large to be read.
        (400, json!({"error": {"code": 1214}}).to_string(), false),
        (400, String::new(), false),
        (400, typed("invalid_request_error", &"the tool ".repeat(8_000)), false),
    ]
}

#[tokio::test(start_paused = true)]
async fn only_unknown_refusals_of_a_history_count() {
    for with_keys in [false, true] {
        for (status, body, counts) in errors() {
            // With keys a limit puts the only one into cooldown. What the client gets then is no error of the provider.
            let world = if with_keys {
                pool::world(&strangers("a"))
            } else {
                World::new()
            };
            let answer = json(status, &body);
            world.otherwise(move |_| answer.clone());
            send_times(&world, ("sk-one", "s1"), 3).await;
            let shown = &body[..body.len().min(200)];
            assert_eq!(
                stuck_count(&world).await,
                u64::from(counts),
                "{with_keys}: {status} {shown}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_text_that_was_read_for_a_turn_counts() {
    let plain = || {
        error(
            400,
            &[("content-type", "text/plain")],
            "the tool 'Fnord' is not supported",
        )
    };
    let packed = || {
        let body = gzipped(&json!({"message": UNKNOWN}).to_string());
        let length = body.len().to_string();
        let fields = [
            ("content-type", "application/json"),
            ("content-encoding", "gzip"),
            ("content-length", &*length),
        ];
        vec![head(400, &fields), Step::Bytes(body), Step::End]
    };
    let count = "/anthropic/v1/messages/count_tokens";
    let rows: [(Mode, &str, Vec<Step>, u64); 5] = [
        (Mode::Repair, MESSAGES, plain(), 1),
        (Mode::Repair, MESSAGES, packed(), 0),
        (Mode::Repair, count, refusal(UNKNOWN), 0),
        (Mode::Observe, MESSAGES, refusal(UNKNOWN), 0),
        (Mode::Repair, "/openai/v1/embeddings", refusal(UNKNOWN), 0),
    ];
    for (mode, path, steps, wanted) in rows {
        let world = World::with(|builder| builder.upstreams.iter_mut().for_each(|upstream| upstream.mode = mode));
        world.otherwise(move |_| steps.clone());
        for _ in 0..3 {
            send(&world, ("sk-one", "s1"), path, &turn(0)).await;
        }
        assert_eq!(stuck_count(&world).await, wanted, "{mode:?} {path}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_at_the_beginning_of_a_stream_counts_with_keys() {
    let world = pool::world(&strangers("a"));
    let data = json!({"type": "error", "error": {"type": "invalid_request_error", "message": UNKNOWN}});
    let event = format!("event: error\ndata: {data}\n\n");
    world.otherwise(move |_| vec![sse(), say(event.clone()), Step::End]);
    let streamed = turn(0).replacen('{', "{\"stream\":true,", 1);
    for _ in 0..3 {
        assert_eq!(send(&world, ("sk-one", "s1"), MESSAGES, &streamed).await, 400);
    }
    let page = listed(&world).await;
    assert_eq!(
        (&page["stuck"], &page["sessions"][0]["refusal"]),
        (&json!(1), &json!(MASKED)),
        "{page}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_succeeds_ends_it_and_begins_the_count_anew() {
    let world = World::new();
    for (whose, path, body, wanted) in [
        // Neither another caller, session or upstream, nor a count, nor a title beside the conversation.
        (("sk-two", "s1"), MESSAGES, turn(1), 1),
        (("sk-one", "s2"), MESSAGES, turn(1), 1),
        (("sk-one", "s1"), CHAT, turn(1), 1),
        (("sk-one", "s1"), "/anthropic/v1/messages/count_tokens", turn(1), 1),
        (("sk-one", "s1"), MESSAGES, pool::body(1), 1),
        (("sk-one", "s1"), MESSAGES, turn(1), 0),
    ] {
        world.otherwise(|_| refusal(UNKNOWN));
        send_times(&world, ("sk-one", "s1"), 3).await;
        world.otherwise(|_| fine());
        assert_eq!(send(&world, whose, path, &body).await, 200);
        assert_eq!(stuck_count(&world).await, wanted, "{whose:?} {path}");
    }
    world.otherwise(|_| refusal(UNKNOWN));
    send_times(&world, ("sk-one", "s1"), 2).await;
    assert_eq!(stuck_count(&world).await, 0);
    send_times(&world, ("sk-one", "s1"), 1).await;
    assert_eq!(
        (stuck_count(&world).await, counted(&world, "anthropic")),
        (1, "2".into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_has_64_sessions_and_the_page_its_limit() {
    let world = World::new();
    world.otherwise(|_| refusal(UNKNOWN));
    for number in 0..70 {
        send_times(&world, ("sk-one", &format!("s{number}")), 3).await;
    }
    let page = listed(&world).await;
    assert_eq!(
        (&page["stuck"], page["sessions"].as_array().unwrap().len()),
        (&json!(64), 50)
    );
    let sizes = [("limit=1", 1), ("limit=500", 64)];
    for (query, wanted) in sizes {
        let (_, _, text) = answer(&router(&world), get(&format!("/admin/v1/stuck-sessions?{query}"), &[])).await;
        let page: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(page["sessions"].as_array().unwrap().len(), wanted, "{query}");
    }
    let (status, _, _) = answer(&router(&world), get("/admin/v1/stuck-sessions?limit=501", &[])).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(counted(&world, "anthropic"), "70");
}

/// Returns secret words that no list of words has.
fn secret_words(seed: u64) -> Vec<String> {
    let mut state = seed | 1;
    let mut letter = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + u8::try_from((state >> 33) % 26).unwrap())
    };
    (0..12)
        .map(|_| format!("xq{}", (0..7).map(|_| letter()).collect::<String>()))
        .collect()
}

/// Returns what a provider may say that echoes these words, as content type and body.
fn echoes(words: &[String]) -> Vec<(&'static str, String)> {
    let text = words.join(" ");
    let joined = |mark: &str| words.join(mark);
    let history =
        json!([{"role": "user", "content": text}, {"role": "assistant", "content": [{"type": "text", "text": text}]}]);
    let python = history.to_string().replace('"', "'");
    let within = |message: String| json!({"error": {"type": "invalid_request_error", "message": message}}).to_string();
    let upper = text.to_uppercase();
    let numbered: Vec<String> = words
        .iter()
        .enumerate()
        .map(|(at, word)| format!("{word}{at}"))
        .collect();
    let near_known: Vec<String> = words
        .iter()
        .map(|word| format!("tool_{word} {word}_use the{word} {word}'s {word}'tool model.{word}"))
        .collect();
    let raw = within(format!("the messages {text} are not valid"));
    vec![
        ("application/json", within(text.clone())),
        ("application/json", within(format!("Invalid messages: {history}"))),
        ("application/json", within(format!("Error code: 400 - {python}"))),
        ("application/json", within(python.clone())),
        ("application/json", within(format!("b'{{\"message\": \"{text}\"}}'"))),
        ("application/json", within(upper)),
        ("application/json", within(numbered.join(" and the "))),
        ("application/json", within(near_known.join(", "))),
        ("application/json", within(joined("\n"))),
        ("application/json", within(joined("\u{2014}"))),
        ("application/json", within(joined("/"))),
        ("application/json", within(joined("' is not a 'tool' of the '"))),
        (
            "application/json",
            json!({"error": {"message": "Provider returned error", "metadata": {"raw": raw}}}).to_string(),
        ),
        (
            "application/json",
            json!({"detail": [{"loc": ["body", text], "msg": text, "input": history}]}).to_string(),
        ),
        (
            "application/json",
            json!({"error": text, "history": history}).to_string(),
        ),
        ("application/json", python),
        ("application/json", format!("{{\"message\":\"{text}")),
        ("text/plain", text.clone()),
        ("text/plain", format!("the messages must not have {text}")),
        ("text/plain", format!("{history} is not valid")),
    ]
}

/// Returns the beginning of the event stream, with the first event of each part.
async fn feed_text(router: &AdminService) -> String {
    let request = http::Request::builder()
        .uri("/admin/v1/events")
        .header("host", "127.0.0.1:4748");
    let opened = router
        .answer_request(request.body(Empty::<bytes::Bytes>::new()).unwrap())
        .await;
    let mut stream = opened.into_body().into_data_stream();
    let mut text = String::new();
    while !text.contains("event: sessions") {
        text.push_str(std::str::from_utf8(&stream.next().await.unwrap().unwrap()).unwrap());
    }
    text
}

#[tokio::test]
async fn no_word_of_an_echoed_history_is_shown_anywhere() {
    let seed = seed::seed();
    println!("SEED={seed}");
    let words = secret_words(seed);
    let text = words.join(" ");
    let body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": text}]}).to_string();
    for (kind, echo) in echoes(&words) {
        let (lines, _listening) = Lines::listen();
        let answered = traces::json("400 Bad Request", &echo).replace("application/json", kind);
        let (upstream, collector) = (Upstream::answering(answered).await, Collector::start().await);
        let settings = antiphon::telemetry::TraceSettings::for_endpoint(collector.endpoint());
        let (shared, app) = before(upstream.address)
            .with(|builder| builder.traces = Some(settings))
            .start_shared()
            .await;
        for _ in 0..3 {
            let fields = [("x-api-key", "sk-one"), ("x-antiphon-session", "s1")];
            let answer = app.ask(post_with(MESSAGES, &fields, body.as_bytes())).await;
            assert_eq!((answer.status(), answer.text()), (400, echo.as_str()));
        }
        app.telemetry.flush_traces().await;
        let router = AdminService::new(admin_of(&shared, Readiness::new()));
        let mut shown = vec![("log", lines.text()), ("metrics", app.telemetry.encode_metrics())];
        shown.push(("feed", feed_text(&router).await));
        for path in ["stuck-sessions", "failures", "sessions", "usage", "repairs", "status"] {
            shown.push((path, answer(&router, get(&format!("/admin/v1/{path}"), &[])).await.2));
        }
        let exports = collector.exports();
        assert!(!exports.is_empty());
        shown.extend(
            exports
                .iter()
                .map(|export| ("trace", String::from_utf8_lossy(&export.body).into_owned())),
        );
        let list = &shown.iter().find(|(place, _)| *place == "stuck-sessions").unwrap().1;
        assert!(list.contains("\"stuck\":1"), "{echo}: {list}");
        assert!(shown[0].1.contains("a session is stuck"), "{echo}: {}", shown[0].1);
        for (place, text) in &shown {
            let lower = text.to_lowercase();
            let found: Vec<&String> = words.iter().filter(|word| lower.contains(word.as_str())).collect();
            assert!(found.is_empty(), "{place} shows {found:?} of {echo}:\n{text}");
        }
    }
}
