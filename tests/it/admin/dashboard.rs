//! What the dashboard shows beyond repairs: failures, names, the parts of its event stream, and its cached files.

use std::{io::Read as _, time::Duration};

use antiphon::{
    api::ApiBody,
    api::admin::{AdminService, Readiness},
    auth::{ClientTokens, TokenHash},
    conversation::{Finding, FindingKind},
    repair::{Mode, RepairReport},
    telemetry::events::ExchangeEnded,
};
use futures_util::StreamExt as _;
use http::StatusCode;
use http_body_util::{BodyDataStream, BodyExt as _, Empty};
use serde_json::{Value, json};

use super::api::{answer, get, next_repairs};
use crate::{
    support::{
        app::{self, admin, admin_of, post, post_with},
        provider::Provider,
        still::{self, World},
    },
    telemetry::metrics::{ended, telemetry},
};

const CANARY: &str = "canary-of-content";
/// A model whose name turns the direction of the text around it, and is too long.
const ODD_MODEL: &str = "m\u{202e}odel-with-a-name-that-is-longer-than-forty-characters";

fn world() -> World {
    let world = World::with(|builder| {
        let token = ("team".to_owned(), TokenHash::hash_token(b"sesame"));
        builder.proxy.client_tokens = ClientTokens::new(vec![token]);
    });
    world.otherwise(|_| {
        let usage = json!({"input_tokens": 120, "output_tokens": 7});
        let content = json!([{"type": "tool_use", "id": "toolu_1", "name": "render", "input": {"secret": CANARY}}]);
        let whole = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": content,
            "stop_reason": "tool_use", "usage": usage});
        still::json(200, &whole.to_string())
    });
    world
}

async fn ask(world: &World, model: &str) {
    let fields = [
        ("x-api-key", "sk-one"),
        ("x-antiphon-client-token", "sesame"),
        ("x-antiphon-session", "nightly"),
        ("user-agent", "claude-cli/1.0.83 (external, cli)"),
    ];
    let body = json!({"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": CANARY}]});
    let asked = post_with("/anthropic/v1/messages", &fields, body.to_string().as_bytes());
    world.ask(asked).await;
    world.settle().await;
}

async fn page(router: &AdminService, path: &str) -> Value {
    let (status, _, text) = answer(router, get(path, &[])).await;
    assert_eq!(status, StatusCode::OK, "{path}: {text}");
    assert!(!text.contains(CANARY) && !text.contains('\u{202e}'), "{text}");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn failures_and_traffic_are_shown_with_their_names() {
    let world = world();
    let router = AdminService::new(admin_of(&world.shared, Readiness::new()));
    ask_three_times(&world).await;
    check_failures(&router).await;
    check_usage(&router).await;
}

/// Gets a good answer, a failure that the provider causes, and one that the client causes.
async fn ask_three_times(world: &World) {
    let error = |words: &str| json!({"type": "error", "error": {"type": words, "message": CANARY}}).to_string();
    ask(world, "good").await;
    world.script(still::json(402, &error("billing_error")));
    ask(world, ODD_MODEL).await;
    world.script(still::json(400, &error("invalid_request_error")));
    ask(world, "bad").await;
}

async fn check_failures(router: &AdminService) {
    let failures = page(router, "/admin/v1/failures").await;
    assert_eq!(failures["kept"], 2, "{failures}");
    let rows: Vec<Value> = failures["failures"].as_array().unwrap().clone();
    let told = |row: &Value| {
        let names = ["status", "side", "code", "client", "token", "upstream"];
        names.map(|name| row[name].clone())
    };
    let client = json!("claude-cli/1.0.83");
    assert_eq!(
        [told(&rows[0]), told(&rows[1])],
        [
            [
                json!(400),
                json!("client"),
                json!("request"),
                client.clone(),
                json!("team"),
                json!("anthropic")
            ],
            [
                json!(402),
                json!("provider"),
                json!("billing"),
                client.clone(),
                json!("team"),
                json!("anthropic")
            ],
        ]
    );
    let model = rows[1]["model"].as_str().unwrap();
    assert!(
        model.chars().count() <= 40 && model.starts_with("m\\u{202e}"),
        "{model}"
    );
    let (_, _, one) = answer(router, get("/admin/v1/failures?limit=1", &[])).await;
    assert_eq!(
        serde_json::from_str::<Value>(&one).unwrap()["failures"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

async fn check_usage(router: &AdminService) {
    let usage = page(router, "/admin/v1/usage").await;
    let row = |name: &str, requests: u64, failures: u64, input: u64, output: u64| {
        json!({"name": name, "requests": requests, "failures": failures, "repaired": 0,
            "input_tokens": input, "output_tokens": output})
    };
    assert_eq!(usage["clients"], json!([row("claude-cli", 3, 1, 120, 7)]));
    assert_eq!(usage["tokens"], json!([row("team", 3, 1, 120, 7)]));
    let of_good = usage["models"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["name"] == "good");
    assert_eq!(of_good.unwrap(), &row("good", 1, 0, 120, 7));

    let series = page(router, "/admin/v1/series").await;
    let names: Vec<&str> = series["series"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    for wanted in [
        "tokens",
        "first_byte_p50_us",
        "duration_p99_us",
        "overhead_healthy_p50_us",
    ] {
        assert!(names.contains(&wanted), "{wanted}: {names:?}");
    }
    assert!(
        !names.contains(&"overhead_repaired_p50_us"),
        "nothing was repaired: {names:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn lanes_are_found_by_their_names() {
    let world = world();
    let router = AdminService::new(admin_of(&world.shared, Readiness::new()));
    ask(&world, "sonnet").await;
    let all = page(&router, "/admin/v1/sessions").await;
    let lane = &all["latest"][0];
    let hash = lane["lane"].as_str().unwrap();
    assert_eq!(
        (&lane["client"], &lane["token"], &lane["model"], &lane["upstream"]),
        (
            &json!("claude-cli/1.0.83"),
            &json!("team"),
            &json!("sonnet"),
            &json!("anthropic")
        )
    );
    for (query, found) in [
        ("text=SONN", 1),
        ("text=claude", 1),
        ("text=team", 1),
        ("text=anthropic", 1),
        ("text=render", 1),
        (&format!("text={hash}"), 1),
        ("text=gpt", 0),
        (&format!("text={CANARY}"), 0),
        ("busy=true", 1),
        ("busy=false", 0),
        ("text=sonnet&busy=true", 1),
    ] {
        let (_, _, text) = answer(&router, get(&format!("/admin/v1/sessions?{query}"), &[])).await;
        let page: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&page["found"], &page["lanes"]),
            (&json!(found), &json!(1)),
            "{query}: {text}"
        );
        assert_eq!(page["latest"].as_array().unwrap().len(), found, "{query}");
    }
    let long = format!("/admin/v1/sessions?text={}", "x".repeat(201));
    assert_eq!(answer(&router, get(&long, &[])).await.0, StatusCode::BAD_REQUEST);
}

#[test]
fn failures_of_clients_do_not_hide_those_of_others() {
    let telemetry = telemetry();
    for n in 0..1000 {
        let mut event = ended();
        event.request_id = n.to_string();
        event.side = Some(if n == 0 { "provider" } else { "client" });
        telemetry.record_exchange(&event);
    }
    let (kept, failures) = telemetry.dashboard_feed().latest_failures(usize::MAX);
    assert_eq!((kept, failures.len()), (251, 251));
    let others: Vec<&str> = failures
        .iter()
        .filter(|it| it.side != "client")
        .map(|it| it.id.as_str())
        .collect();
    assert_eq!(others, ["0"]);
}

/// Returns the names of the events of a stream in the next seconds.
async fn next_events(stream: &mut BodyDataStream<ApiBody>, seconds: u64) -> Vec<(String, Value)> {
    let mut text = String::new();
    let end = tokio::time::sleep(Duration::from_secs(seconds));
    tokio::pin!(end);
    loop {
        tokio::select! {
            biased;
            chunk = stream.next() => text.push_str(std::str::from_utf8(&chunk.unwrap().unwrap()).unwrap()),
            () = &mut end => break,
        }
    }
    let read = |block: &str| {
        let name = block.lines().find_map(|line| line.strip_prefix("event: "))?;
        let data = block.lines().find_map(|line| line.strip_prefix("data: "))?;
        Some((name.to_owned(), serde_json::from_str(data).unwrap()))
    };
    text.split("\n\n").filter_map(read).collect()
}

#[tokio::test(start_paused = true)]
async fn the_stream_sends_each_part_once_and_again_when_it_changes() {
    let world = world();
    let router = AdminService::new(admin_of(&world.shared, Readiness::new()));
    let request = http::Request::builder()
        .uri("/admin/v1/events")
        .header("host", "127.0.0.1:4748")
        .body(Empty::<bytes::Bytes>::new())
        .unwrap();
    let mut stream = router.answer_request(request).await.into_body().into_data_stream();
    let parts = |events: &[(String, Value)]| -> Vec<String> {
        let names = events.iter().map(|(name, _)| name.clone());
        names.filter(|name| name != "tick").collect()
    };
    let first = next_events(&mut stream, 3).await;
    assert_eq!(
        parts(&first),
        ["status", "profiles", "late", "usage", "stuck-sessions", "sessions"]
    );
    for (name, data) in &first {
        if name != "tick" && name != "sessions" {
            let same = page(&router, &format!("/admin/v1/{name}")).await;
            let members = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
            assert_eq!(members(data), members(&same), "{name}");
        }
    }
    // Uptime and ages are no change.
    let quiet = next_events(&mut stream, 20).await;
    assert_eq!(parts(&quiet), Vec::<String>::new());
    assert!(quiet.len() >= 19, "{quiet:?}");

    ask(&world, "sonnet").await;
    let changed = next_events(&mut stream, 5).await;
    assert_eq!(parts(&changed), ["usage", "sessions"]);
    let (_, sessions) = changed.iter().find(|(name, _)| name == "sessions").unwrap();
    assert_eq!(
        (&sessions["open_calls"], &sessions["changed"][0]["model"]),
        (&json!(1), &json!("sonnet")),
        "{sessions}"
    );
    // A call that is open for longer is no change either.
    assert_eq!(parts(&next_events(&mut stream, 20).await), Vec::<String>::new());

    world.script(still::json(
        402,
        r#"{"type":"error","error":{"type":"billing_error","message":"pay"}}"#,
    ));
    ask(&world, "sonnet").await;
    let failed = next_events(&mut stream, 5).await;
    assert_eq!(parts(&failed)[0], "failure");
}

#[tokio::test]
async fn files_are_packed_and_kept_by_their_content() {
    let router = AdminService::new(admin(Readiness::new()));
    let (_, head, index) = answer(&router, get("/", &[])).await;
    assert_eq!(head["cache-control"], "no-cache");
    let known = [("if-none-match", head["etag"].to_str().unwrap())];
    let (status, same, empty) = answer(&router, get("/", &known)).await;
    assert_eq!(
        (status, empty.as_str(), &same["etag"]),
        (StatusCode::NOT_MODIFIED, "", &head["etag"])
    );

    let (_, rest) = index.split_once("src=\"/assets/").unwrap();
    let version = rest.split('/').next().unwrap();
    assert_eq!(version.len(), 16, "{version}");
    assert!(!index.contains("\"/assets/style.css\""), "every file has its version");
    let plain = |path: String| {
        let router = router.clone();
        async move { answer(&router, get(&path, &[])).await }
    };
    let (_, head, script) = plain(format!("/assets/{version}/main.js")).await;
    assert_eq!(head["cache-control"], "public, max-age=31536000, immutable");
    assert!(head.get("content-encoding").is_none());
    // The page of another version still works, and is not kept.
    for path in ["/assets/0123456789abcdef/main.js", "/assets/main.js"] {
        let (status, head, text) = plain(path.to_owned()).await;
        assert_eq!((status, &text), (StatusCode::OK, &script), "{path}");
        assert_eq!(head["cache-control"], "no-cache", "{path}");
    }
    assert_eq!(
        plain(format!("/assets/{version}/../main.js")).await.0,
        StatusCode::NOT_FOUND
    );
    let (status, head, _) = plain(format!("/assets/{version}/nothing.js")).await;
    assert_eq!(
        (status, &head["cache-control"]),
        (StatusCode::NOT_FOUND, &"no-store".parse().unwrap())
    );

    let request = http::Request::builder()
        .uri(format!("/assets/{version}/main.js"))
        .header("host", "127.0.0.1:4748")
        .header("accept-encoding", "gzip, br")
        .body(Empty::<bytes::Bytes>::new())
        .unwrap();
    let packed = router.answer_request(request).await;
    assert_eq!(
        (&packed.headers()["content-encoding"], &packed.headers()["vary"]),
        (&"gzip".parse().unwrap(), &"accept-encoding".parse().unwrap())
    );
    let bytes = packed.into_body().collect().await.unwrap().to_bytes();
    let mut unpacked = String::new();
    flate2::read::GzDecoder::new(&bytes[..])
        .read_to_string(&mut unpacked)
        .unwrap();
    assert!(bytes.len() * 2 < unpacked.len());
    assert_eq!(unpacked, script);
}

/// A result far after its call: the sketch of the received body shows the call too.
#[tokio::test]
async fn a_sketch_shows_the_call_that_a_finding_is_about() {
    let turn = |role: &str, content: Value| json!({"role": role, "content": content});
    let messages = json!([
        turn("user", json!("go")),
        turn(
            "assistant",
            json!([{"type": "tool_use", "id": "toolu_01A", "name": "run", "input": {}}])
        ),
        turn("user", json!("well?")),
        turn("assistant", json!("soon")),
        turn("user", json!("well?")),
        turn("assistant", json!("soon")),
        turn(
            "user",
            json!([{"type": "tool_result", "tool_use_id": "toolu_01A", "content": "done"}])
        ),
    ]);
    let body = json!({"model": "m", "max_tokens": 9, "messages": messages}).to_string();
    let provider = Provider::start().await;
    for mode in [Mode::Repair, Mode::Observe, Mode::Strict] {
        let (shared, app) = app::before(provider.address()).mode(mode).start_shared().await;
        let router = AdminService::new(admin_of(&shared, Readiness::new()));
        let mut news = shared.telemetry.dashboard_feed().subscribe();
        app.ask(post("/anthropic/v1/messages", &body)).await;
        let page = next_repairs(&router, &mut news).await;
        let repair = &page["repairs"][0];
        let shown = repair["before"]["shown"].as_array().unwrap();
        let call = shown
            .iter()
            .find(|message| message["index"] == 1)
            .map(|message| &message["blocks"][0]);
        assert_eq!(call.unwrap()["type"], "call", "{mode:?}: {repair}");
    }
}

/// A client chooses the ids of its calls. Hundreds of entries are kept, so an id of megabytes must not be kept whole.
#[test]
fn a_kept_finding_has_a_short_printable_id() {
    let telemetry = telemetry();
    let finding = Finding {
        kind: FindingKind::Unanswered,
        message: 3,
        part: None,
        id: format!("toolu\u{202e}\u{1b}[31m{}", "x".repeat(4 * 1024 * 1024)),
        within: String::new(),
        detail: None,
    };
    telemetry.record_exchange(&ExchangeEnded {
        report: Some(RepairReport {
            findings: vec![finding; 2],
            ..RepairReport::default()
        }),
        ..ended()
    });
    let entries = telemetry.dashboard_feed().latest_repairs(1);
    assert_eq!(entries[0].findings.len(), 2);
    for finding in &entries[0].findings {
        assert_eq!(finding.id.chars().count(), 80);
        assert!(finding.id.starts_with("toolu\\u{202e}\\u{1b}[31mx"), "{}", finding.id);
    }
}

/// Letters that turn the text around them are escaped in a sketch too, and the tool is still found by the id.
#[tokio::test]
async fn a_sketch_has_printable_ids_and_tools() {
    let call = json!({"type": "tool_use", "id": "toolu_\u{202e}01A", "name": "r\u{2066}un", "input": {}});
    let tools = json!([{"name": "r\u{2066}un", "input_schema": {"type": "object"}}]);
    let messages = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": "well?"},
    ]);
    let body = json!({"model": "m", "max_tokens": 9, "tools": tools, "messages": messages}).to_string();
    let provider = Provider::start().await;
    let (shared, app) = app::before(provider.address()).mode(Mode::Observe).start_shared().await;
    let router = AdminService::new(admin_of(&shared, Readiness::new()));
    let mut news = shared.telemetry.dashboard_feed().subscribe();
    app.ask(post("/anthropic/v1/messages", &body)).await;
    let page = next_repairs(&router, &mut news).await;
    let repair = &page["repairs"][0];
    let block = &repair["before"]["shown"][1]["blocks"][0];
    let shown = (&json!("toolu_\\u{202e}01A"), &json!("r\\u{2066}un"));
    assert_eq!((&block["id"], &block["tool"]), shown, "{repair}");
    let finding = &repair["findings"][0];
    assert_eq!((&finding["call_id"], &finding["tool"]), shown, "{repair}");
}
