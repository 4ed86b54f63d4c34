//! Pins the requests and answers of the admin API and of `/ledger/v1`, without texts for people.

use antiphon::api::admin::{AdminService, Readiness};
use http::StatusCode;
use serde_json::{Value, json};

use crate::{
    admin::api::{answer, get},
    frozen::{
        golden::{keys, same, same_lines, without_prose},
        stage::without_ages,
    },
    late::api as ledger,
    late::api::{ANN, BEN, OTHER, STRONG, TOOLS, WEAK},
    support::{app::admin, wire::Message},
};

#[tokio::test]
async fn the_admin_api_document_is_pinned() {
    let router = AdminService::new(admin(Readiness::new()));
    let (status, _, text) = answer(&router, get("/admin/v1/openapi.json", &[])).await;
    assert_eq!(status, StatusCode::OK);
    let mut document: Value = serde_json::from_str(&text).unwrap();
    // The version changes with each release.
    document["info"]["version"] = json!("*");
    same("openapi.json", &without_prose(document));
}

#[tokio::test]
async fn the_ledger_api_document_is_pinned() {
    let (_upstream, app) = ledger::world().await;
    let mut document = ledger::get(&app, "openapi.json", &[]).await.json();
    // The version changes with each release.
    document["info"]["version"] = json!("*");
    same("ledger-openapi.json", &without_prose(document));
}

#[tokio::test]
async fn health_answers_are_pinned() {
    let readiness = Readiness::new();
    let router = AdminService::new(admin(readiness.clone()));
    let mut facts = Vec::new();
    for state in ["serving", "draining"] {
        for path in [
            "/livez",
            "/livez?verbose",
            "/readyz",
            "/readyz?verbose",
            "/healthz",
            "/health/liveliness",
            "/health/liveness",
            "/health/readiness",
        ] {
            let (status, head, body) = answer(&router, get(path, &[])).await;
            let kind = head["content-type"].to_str().unwrap();
            facts.push(format!("{state} GET {path}: {} {kind} {body:?}", status.as_u16()));
        }
        readiness.start_drain();
    }
    for path in ["/metrics", "/", "/admin/v1/config"] {
        let (status, head, _) = answer(&router, get(path, &[])).await;
        let kind = head["content-type"].to_str().unwrap();
        facts.push(format!("GET {path}: {} {kind}", status.as_u16()));
    }
    same_lines("health.txt", facts);
}

/// Returns an answer of the ledger without its texts for people and its times.
fn told(answer: &Message) -> String {
    let text = answer.text();
    let value: Value = serde_json::from_str(text).unwrap();
    let mut told = text.to_owned();
    if let Some(message) = value.get("detail") {
        told = told.replace(&message.to_string(), "\"*\"");
    }
    for time in ["posted_at", "deadline", "expires_at"] {
        let name = format!("\"{time}\":");
        if let Some(at) = told.find(&name).map(|at| at + name.len()) {
            let digits = told[at..].chars().take_while(char::is_ascii_digit).count();
            assert!(digits >= 10, "{told}");
            told.replace_range(at..at + digits, "TIME");
        }
    }
    format!("{} {}", answer.status(), without_ages(&told))
}

#[tokio::test]
async fn the_ledger_api_is_pinned() {
    let (_upstream, app) = ledger::world().await;
    ledger::record(&app, "ann", STRONG).await;
    ledger::record(&app, "ann", WEAK).await;
    ledger::record(&app, "ben", OTHER).await;
    let owner = ledger::owner(&app, "ann");
    let mut feed = ledger::listening(&app, ANN).await;
    let mut facts = format!("owner of ann: {owner}\n");
    let result = format!("calls/{STRONG}/result");
    let posted = json!({"owner": owner, "call_id": STRONG, "content": "done", "is_error": true}).to_string();
    #[rustfmt::skip]
    let rows = [
        ("heartbeat", format!("calls/{STRONG}/heartbeat"), TOOLS, String::new()),
        ("result", result.clone(), TOOLS, posted.clone()),
        ("result again", result.clone(), TOOLS, posted),
        ("another result", result.clone(), TOOLS, json!({"content": "else"}).to_string()),
        ("heartbeat of a settled call", format!("calls/{STRONG}/heartbeat"), TOOLS, String::new()),
        ("result without content", result.clone(), TOOLS, "{}".to_owned()),
        ("result of nobody", result, &[][..], "{}".to_owned()),
        ("result of a counter", format!("calls/{WEAK}/result"), TOOLS, json!({"content": 1}).to_string()),
        ("result of no call", "calls/call_7/result".to_owned(), TOOLS, json!({"content": 1}).to_string()),
        ("result before its call", "calls/toolu_01C9xx2r7k4/result".to_owned(), TOOLS, json!({"content": 1}).to_string()),
        ("lookup", "lookup".to_owned(), ANN, json!({"call_ids": [STRONG, OTHER, "x"]}).to_string()),
        ("lookup of another", "lookup".to_owned(), BEN, json!({"call_ids": [STRONG]}).to_string()),
        ("lookup of nothing", "lookup".to_owned(), ANN, "{}".to_owned()),
        ("lookup of nobody", "lookup".to_owned(), &[][..], "{}".to_owned()),
        ("no acknowledgement", "deliveries/00/ack".to_owned(), ANN, String::new()),
        ("close", "sessions/s/close".to_owned(), ANN, String::new()),
        ("unknown", "nothing".to_owned(), ANN, String::new()),
    ];
    for (name, path, who, body) in rows {
        let answer = ledger::ask(&app, &path, who, &body).await;
        facts.push_str(&format!("{name}: POST {path} {body} -> {}\n", told(&answer)));
    }
    let outstanding = ledger::get(&app, "outstanding", ANN).await;
    facts.push_str(&format!("outstanding: GET outstanding -> {}\n", told(&outstanding)));
    let fields = ["content-type", "cache-control", "x-content-type-options"];
    for field in fields {
        facts.push_str(&format!(
            "outstanding: {field}: {}\n",
            outstanding.header(field).unwrap()
        ));
    }
    let delivery = outstanding.json()["outstanding"][0]["delivery"]
        .as_str()
        .unwrap()
        .to_owned();
    let acked = ledger::ask(&app, &format!("deliveries/{delivery}/ack"), ANN, "").await;
    facts.push_str(&format!(
        "acknowledgement: POST deliveries/DELIVERY/ack -> {}\n",
        told(&acked)
    ));
    let empty = ledger::get(&app, "outstanding", ANN).await;
    facts.push_str(&format!("nothing outstanding: GET outstanding -> {}\n", told(&empty)));
    // The chunk size precedes the event.
    feed.until("\r\n").await;
    feed.until("\r\n").await;
    let event = String::from_utf8(feed.until("}\n\n").await).unwrap();
    facts.push_str(&format!("feed: GET feed -> {event:?}\n"));
    same("ledger-api.txt", &facts);
}

/// Checks the keys of real admin pages against the document that describes them.
#[tokio::test]
async fn admin_pages_have_the_documented_keys() {
    let router = AdminService::new(admin(Readiness::new()));
    let (_, _, text) = answer(&router, get("/admin/v1/openapi.json", &[])).await;
    let document: Value = serde_json::from_str(&text).unwrap();
    for (path, schema) in [
        ("/admin/v1/status", "Status"),
        ("/admin/v1/series", "SeriesPage"),
        ("/admin/v1/repairs", "RepairsPage"),
        ("/admin/v1/failures", "FailuresPage"),
        ("/admin/v1/stuck-sessions", "StuckSessionsPage"),
        ("/admin/v1/usage", "Usage"),
        ("/admin/v1/sessions", "SessionsPage"),
        ("/admin/v1/profiles", "ProfilesPage"),
        ("/admin/v1/late", "LatePage"),
        ("/admin/v1/late/results", "LateResultsPage"),
        ("/admin/v1/log-level", "LogLevel"),
    ] {
        let (_, _, text) = answer(&router, get(path, &[])).await;
        let page: Value = serde_json::from_str(&text).unwrap();
        let known = &document["components"]["schemas"][schema]["properties"];
        for key in page.as_object().unwrap().keys() {
            assert!(known.get(key).is_some(), "{path} has {key}: {:?}", keys("", known));
        }
    }
}
