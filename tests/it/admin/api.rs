//! `/admin/v1` and the dashboard page: access, documented answers and repairs without content.

use crate::support::{
    app::{self, admin, admin_of, post, serve_admin},
    provider::Provider,
};
use antiphon::{
    api::admin::{AdminService, AdminState, Readiness},
    auth::TokenHash,
    repair::Mode,
    telemetry::dashboard::DashboardUpdate,
};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::broadcast,
};

const CANARY: &str = "canary-of-content";
const BEARER: (&str, &str) = ("authorization", "Bearer the token");
const HOSTILE: &str = "<img src=x onerror=alert(1)>";

/// A request to the admin router without a socket.
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) fields: &'a [(&'a str, &'a str)],
    pub(crate) body: &'a str,
}

pub(crate) fn get<'a>(path: &'a str, fields: &'a [(&'a str, &'a str)]) -> Ask<'a> {
    Ask {
        method: Method::GET,
        path,
        fields,
        body: "",
    }
}

pub(crate) async fn answer(router: &AdminService, ask: Ask<'_>) -> (StatusCode, HeaderMap, String) {
    let mut request = Request::builder().method(ask.method).uri(ask.path);
    for (name, value) in ask.fields {
        request = request.header(*name, *value);
    }
    if !ask.fields.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "127.0.0.1:4748");
    }
    let request = request
        .body(Full::new(bytes::Bytes::from(ask.body.to_owned())))
        .unwrap();
    let answer = router.answer_request(request).await;
    let (head, body) = answer.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (head.status, head.headers, String::from_utf8(bytes.to_vec()).unwrap())
}

pub(crate) fn with_token() -> AdminState {
    AdminState {
        token: Some(TokenHash::hash_token(b"the token")),
        ..admin(Readiness::new())
    }
}

/// Returns each documented method and path except the endless event stream, with sample path parameters.
fn documented_requests(document: &Value) -> Vec<(Method, String)> {
    let mut asked = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let path = path
                .replace("{id}", "x")
                .replace("{upstream}", "x")
                .replace("{profile}", "x");
            asked.push((method.to_uppercase().parse().unwrap(), path));
        }
    }
    asked.retain(|(_, path)| !path.ends_with("/events"));
    asked
}

async fn document(router: &AdminService) -> Value {
    let (status, _, text) = answer(router, get("/admin/v1/openapi.json", &[])).await;
    assert_eq!(status, StatusCode::OK);
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn every_documented_path_exists_and_returns_a_documented_status() {
    let router = AdminService::new(admin(Readiness::new()));
    let document = document(&router).await;
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let asked = documented_requests(&document);
    assert!(asked.len() > 10, "{asked:?}");
    for (method, path) in &asked {
        let ask = Ask {
            method: method.clone(),
            path,
            fields: &[],
            body: "",
        };
        let (status, head, text) = answer(&router, ask).await;
        let template = path
            .replace("repairs/x", "repairs/{id}")
            .replace("x/x", "{upstream}/{profile}");
        let known = &document["paths"][template][method.as_str().to_lowercase()]["responses"];
        assert!(known.get(status.as_str()).is_some(), "{method} {path}: {status} {text}");
        if status.is_client_error() {
            assert_eq!(head["content-type"], "application/problem+json", "{path}");
            let problem: Value = serde_json::from_str(&text).unwrap();
            assert!(problem["code"].is_string() && problem["detail"].is_string());
        }
    }
}

#[tokio::test]
async fn every_path_except_health_and_the_page_requires_the_token() {
    let router = AdminService::new(with_token());
    // Wrong tokens are limited in number, so each path has a listener of its own.
    let unknown = [("authorization", "Bearer another")];
    let (_, _, text) = answer(&router, get("/admin/v1/openapi.json", &[BEARER])).await;
    let mut guarded: Vec<String> = documented_requests(&serde_json::from_str(&text).unwrap())
        .into_iter()
        .filter(|(method, _)| method == Method::GET)
        .map(|(_, path)| path)
        // The document has health checks too.
        .filter(|path| path.starts_with("/admin/"))
        .collect();
    guarded.extend(["/metrics", "/admin/v1/events", "/admin/v1/openapi.json"].map(ToOwned::to_owned));
    for path in &guarded {
        let router = AdminService::new(with_token());
        for fields in [&[][..], &unknown[..], &[("authorization", "Basic dGhlIHRva2Vu")]] {
            let (status, head, text) = answer(&router, get(path, fields)).await;
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{path} {fields:?}");
            assert_eq!(head["www-authenticate"], "Bearer");
            assert!(text.contains("\"unauthorized\"") && !text.contains("another"), "{text}");
        }
        if !path.ends_with("/events") {
            assert_ne!(
                answer(&router, get(path, &[BEARER])).await.0,
                StatusCode::UNAUTHORIZED,
                "{path}"
            );
        }
    }
    for path in [
        "/",
        "/assets/main.js",
        "/livez",
        "/readyz",
        "/healthz",
        "/health/liveliness",
        "/health/readiness",
    ] {
        assert_eq!(answer(&router, get(path, &[])).await.0, StatusCode::OK, "{path}");
    }
}

/// Accepts literal addresses and configured host names when a token is set, and refuses foreign hosts and origins.
#[tokio::test]
async fn foreign_hosts_and_origins_are_refused_on_every_address() {
    let rows = [
        ("10.0.0.7:4748", None, true),
        ("[fd00::1]:4748", None, true),
        ("admin.example", Some("https://admin.example"), true),
        ("10.0.0.7:4748", Some("http://10.0.0.7:4748"), true),
        ("127.0.0.1:4748", Some("http://localhost:4748"), false),
        ("evil.example", None, false),
        ("10.0.0.7.evil.example", None, false),
        ("10.0.0.7:4748", Some("http://evil.example"), false),
        ("10.0.0.7:4748", Some("null"), false),
        ("admin.example", Some("https://admin.example.evil.example"), false),
    ];
    let router = AdminService::new(with_token());
    for (host, origin, is_answered) in rows {
        let mut fields = vec![("host", host)];
        fields.extend(origin.map(|origin| ("origin", origin)));
        let (status, ..) = answer(&router, get("/livez", &fields)).await;
        let wanted = if is_answered {
            StatusCode::OK
        } else {
            StatusCode::FORBIDDEN
        };
        assert_eq!(status, wanted, "{host} {origin:?}");
    }
}

#[tokio::test]
async fn every_answer_has_strict_browser_headers() {
    let router = AdminService::new(admin(Readiness::new()));
    for path in [
        "/",
        "/assets/main.js",
        "/assets/style.css",
        "/assets/nothing.js",
        "/admin/v1/status",
        "/nothing",
        "/livez",
    ] {
        let (status, head, text) = answer(&router, get(path, &[])).await;
        let policy = head["content-security-policy"].to_str().unwrap();
        assert!(
            policy.starts_with("default-src 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(head["x-content-type-options"], "nosniff");
        // The page's files contain no data: a browser may keep them.
        let is_file = status == StatusCode::OK && (path == "/" || path.starts_with("/assets/"));
        assert_eq!(
            head["cache-control"],
            if is_file { "no-cache" } else { "no-store" },
            "{path}"
        );
        assert_eq!(head["x-frame-options"], "DENY");
        assert_eq!(status == StatusCode::NOT_FOUND, path.contains("nothing"), "{text}");
    }
    let (_, head, text) = answer(&router, get("/", &[])).await;
    assert_eq!(head["content-type"], "text/html; charset=utf-8");
    for (start, name) in text.match_indices("/assets/") {
        let rest = &text[start + name.len()..];
        let path = format!("/assets/{}", rest.split('"').next().unwrap());
        assert_eq!(answer(&router, get(&path, &[])).await.0, StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn bad_requests_get_an_error_that_names_the_fault() {
    let router = AdminService::new(admin(Readiness::new()));
    let put = |body| Ask {
        method: Method::PUT,
        path: "/admin/v1/log-level",
        fields: &[("content-type", "application/json")],
        body,
    };
    let rows = [
        (get("/admin/v1/repairs?limit=0", &[]), 400, "limit"),
        (get("/admin/v1/repairs?limit=501", &[]), 400, "limit"),
        (get("/admin/v1/repairs?limit=many", &[]), 400, "limit"),
        (get("/admin/v1/sessions?after=-1", &[]), 400, "after"),
        (get("/admin/v1/sessions?after=99999999999999999999", &[]), 400, "after"),
        (get("/admin/v1/repairs/unknown", &[]), 404, "no such request"),
        (put("{}"), 400, "level"),
        (put("{\"level\":1}"), 400, "level"),
        (put("{\"level\":\"info\",\"more\":1}"), 400, "more"),
        (put("nonsense"), 400, "JSON"),
        (put("{\"level\":\"loud\"}"), 422, "expected a log level"),
        (put("{\"level\":\"warn\"}"), 200, "warn"),
        (get("/admin/v1/log-level", &[]), 200, "warn"),
    ];
    for (ask, wanted, word) in rows {
        let told = format!("{} {} {}", ask.method, ask.path, ask.body);
        let (status, _, text) = answer(&router, ask).await;
        assert_eq!(status.as_u16(), wanted, "{told}: {text}");
        assert!(text.contains(word), "{told}: {text}");
    }
    let delete = Ask {
        method: Method::DELETE,
        ..get("/admin/v1/status", &[])
    };
    assert_eq!(answer(&router, delete).await.0, StatusCode::METHOD_NOT_ALLOWED);
}

/// Returns a Messages body with an unanswered call deep in the history. The tool has a hostile name.
fn broken() -> String {
    let mut messages = vec![];
    for turn in 0..40 {
        messages.push(json!({"role": "user", "content": format!("{CANARY} {turn}")}));
        messages.push(json!({"role": "assistant", "content": [{"type": "text", "text": CANARY}]}));
    }
    messages[21] = json!({"role": "assistant", "content": [
        {"type": "text", "text": CANARY},
        {"type": "tool_use", "id": "toolu_01A", "name": HOSTILE, "input": {"secret": CANARY}}]});
    // A declared name stays as it is. Any other would be replaced by a legal one.
    let tools = json!([{"name": HOSTILE, "input_schema": {"type": "object"}}]);
    json!({"model": "m", "max_tokens": 9, "tools": tools, "messages": messages}).to_string()
}

/// Waits for the news of a repair and returns the page of recent repairs.
pub(crate) async fn next_repairs(router: &AdminService, news: &mut broadcast::Receiver<DashboardUpdate>) -> Value {
    while !matches!(news.recv().await.unwrap(), DashboardUpdate::Repair(_)) {}
    let (_, _, text) = answer(router, get("/admin/v1/repairs", &[])).await;
    assert!(!text.contains(CANARY), "{text}");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn repairs_are_shown_without_content() {
    let provider = Provider::start().await;
    for (mode, outcome) in [
        (Mode::Repair, "repaired"),
        (Mode::Strict, "rejected"),
        (Mode::Observe, "observed"),
    ] {
        let builder = app::before(provider.address()).mode(mode);
        let (shared, app) = builder.start_shared().await;
        let router = AdminService::new(admin_of(&shared, Readiness::new()));
        let mut news = shared.telemetry.dashboard_feed().subscribe();
        let answered = app.ask(post("/anthropic/v1/messages", &broken())).await;
        let page = next_repairs(&router, &mut news).await;
        let repair = &page["repairs"][0];
        assert_eq!(repair["outcome"], outcome, "{repair}");
        assert_eq!(repair["status"].as_u64().unwrap(), u64::from(answered.status()));
        assert_eq!(repair["id"], answered.header("x-antiphon-request-id").unwrap());
        let finding = &repair["findings"][0];
        assert_eq!(
            (
                &finding["kind"],
                &finding["message"],
                &finding["call_id"],
                &finding["tool"]
            ),
            (&json!("unanswered"), &json!(21), &json!("toolu_01A"), &json!(HOSTILE))
        );
        let before = &repair["before"];
        assert_eq!((&before["messages"], &repair["messages"]), (&json!(80), &json!(80)));
        let shown: Vec<u64> = before["shown"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["index"].as_u64().unwrap())
            .collect();
        assert_eq!(shown, [20, 21, 22]);
        if mode == Mode::Repair {
            assert_eq!(repair["actions"][0]["action"], "placeholder");
            let placed = &repair["after"]["shown"][1]["blocks"][0];
            assert_eq!(
                *placed,
                json!({"type": "result", "id": "toolu_01A", "tool": HOSTILE, "new": true, "gone": false}),
                "{repair}"
            );
        } else {
            assert_eq!((&repair["after"], &repair["actions"]), (&Value::Null, &json!([])));
        }
        let path = format!("/admin/v1/repairs/{}", repair["id"].as_str().unwrap());
        let (_, _, one) = answer(&router, get(&path, &[])).await;
        assert_eq!(serde_json::from_str::<Value>(&one).unwrap(), *repair);
        let (_, _, series) = answer(&router, get("/admin/v1/series", &[])).await;
        let series: Value = serde_json::from_str(&series).unwrap();
        let of = |name: &str| -> u64 {
            let rows = series["series"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|row| row["name"] == name);
            rows.flat_map(|row| row["values"].as_array().unwrap())
                .filter_map(Value::as_u64)
                .sum()
        };
        assert_eq!((of("requests"), of("findings")), (1, 1), "{series}");
        assert_eq!(of("repairs"), u64::from(mode == Mode::Repair));
        assert_eq!(of("rejections"), u64::from(mode == Mode::Strict));
    }
}

/// Reads the stream up to the next event with this name.
async fn event(stream: &mut (impl AsyncReadExt + Unpin), buffer: &mut String, name: &str) -> Value {
    loop {
        while let Some((block, rest)) = buffer.split_once("\n\n") {
            let (block, rest) = (block.to_owned(), rest.to_owned());
            *buffer = rest;
            if let Some((_, data)) = block.split_once(&format!("event: {name}\n")) {
                let data = data.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
                return serde_json::from_str(data).unwrap();
            }
        }
        let mut bytes = [0; 4096];
        let length = stream.read(&mut bytes).await.unwrap();
        assert!(length > 0, "the stream ended: {buffer}");
        buffer.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
    }
}

#[tokio::test]
async fn event_streams_are_immediate_and_limited_in_number() {
    let provider = Provider::start().await;
    let (shared, app) = app::before(provider.address()).start_shared().await;
    let router = AdminService::new(admin_of(&shared, Readiness::new()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let told = async {
        let mut streams = Vec::new();
        for _ in 0..33 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = "GET /admin/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut start = [0; 12];
            stream.read_exact(&mut start).await.unwrap();
            streams.push((stream, String::from_utf8(start.to_vec()).unwrap()));
        }
        let statuses: Vec<&str> = streams.iter().map(|(_, start)| &start[9..]).collect();
        assert!(
            statuses[..32].iter().all(|status| *status == "200") && statuses[32] == "503",
            "{statuses:?}"
        );
        let (mut stream, mut buffer) = streams.swap_remove(0);
        drop(streams);
        let tick = event(&mut stream, &mut buffer, "tick").await;
        assert_eq!(
            (&tick["streams_active"], &tick["point"]),
            (&json!(0), &json!({})),
            "{tick}"
        );
        let answered = app.ask(post("/anthropic/v1/messages", &broken())).await;
        let repair = event(&mut stream, &mut buffer, "repair").await;
        assert_eq!(repair["id"], answered.header("x-antiphon-request-id").unwrap());
        assert_eq!(
            (&repair["sketched"], &repair["findings"][0]["tool"]),
            (&json!(true), &json!(HOSTILE))
        );
        assert!(!repair.to_string().contains(CANARY), "{repair}");
        let tick = event(&mut stream, &mut buffer, "tick").await;
        // The point may already have been closed when the tick was sent.
        let repairs = [&tick["point"]["repairs"], &tick["last"]["repairs"]];
        assert!(repairs.contains(&&json!({"placeholder": 1})), "{tick}");
    };
    tokio::select! {
        () = serve_admin(listener, router) => panic!("the server ended"),
        () = told => {}
    }
}
