//! `/admin/v1/late/results`: what waits, for whom and why, in pages and without content.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};

use antiphon::{
    api::admin::{AdminService, AdminState, Readiness, control::ActiveConfig},
    auth::{ClientTokens, TokenHash},
    late::{LateSettings, ToolSettings},
    ledger::{CommitStep, Ledger, RecordKey, RecordKind},
};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::api::{answer, get};
use crate::{
    ledger::switchable::{SwitchableLedger, durable},
    support::{
        app::{admin_of, post_with},
        late,
        still::{self, Answer, Step, World},
    },
};

const GOOD: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"fine"}],"stop_reason":"end_turn"}"#;
const CANARY: &str = "canary-of-content";
const POISON: &str = "POISON";
const PATH: &str = "/admin/v1/late/results";
/// An id that no call has, as a path contains it. Its odd letter turns the direction of the text around it.
const ODD: &str = "toolu_01%e2%80%aeAbC9dE3fG7hJ2kL4mN6p";

/// A provider that refuses requests with a poisoned result.
fn strict(body: &[u8]) -> Vec<Step> {
    let read: Value = serde_json::from_slice(body).unwrap();
    let messages = read["messages"].as_array().unwrap();
    let poisoned = |message: &Value| message["content"].to_string().contains(POISON);
    let Some(at) = messages.iter().position(poisoned) else {
        return still::json(200, GOOD);
    };
    let words = format!("messages.{at}.content.0.tool_result.content: Input should be a valid string");
    let error = json!({"type": "invalid_request_error", "message": words});
    still::json(400, &json!({"type": "error", "error": error}).to_string())
}

fn world_over(ledger: &Arc<dyn Ledger>) -> World {
    world_with(ledger, |_| {})
}

fn world_with(ledger: &Arc<dyn Ledger>, change: impl FnOnce(&mut LateSettings)) -> World {
    let world = World::with(|builder| {
        builder.ledger = Arc::clone(ledger);
        let token = |name: &str| (name.to_owned(), TokenHash::hash_token(name.as_bytes()));
        builder.proxy.client_tokens = ClientTokens::new(vec![token("ann"), token("ben"), token("cid")]);
        builder.late = LateSettings {
            services: vec![late::service("renderer", None, None)],
            ..LateSettings::default()
        };
        change(&mut builder.late);
    });
    world.otherwise(|message| strict(&message.body));
    world
}

/// Returns the admin listener of a world, which knows the token of `ann` alone.
fn router(world: &World) -> AdminService {
    let state: AdminState = admin_of(&world.shared, Readiness::new());
    let in_force = (*state.control.active_config()).clone();
    state.control.set_active_config(ActiveConfig {
        clients: vec!["ann".to_owned()],
        ..in_force
    });
    AdminService::new(state)
}

async fn ask(world: &World, client: &str, session: &str, log: &[Value]) {
    let fields = [
        ("x-api-key", "sk-one"),
        ("x-antiphon-client-token", client),
        ("x-antiphon-session", session),
    ];
    let body = json!({"model": "m", "max_tokens": 99, "messages": log}).to_string();
    let answer = world
        .ask(post_with("/anthropic/v1/messages", &fields, body.as_bytes()))
        .await;
    world.settle().await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
}

fn id(number: u32) -> String {
    format!("toolu_01AbC9dE3fG7hJ2kL4mN{number:04}")
}

fn says(words: &str) -> Value {
    json!({"role": "user", "content": words})
}

/// The model answers with a call. Returns the conversation so far.
async fn emits(world: &World, client: &str, session: &str, number: u32) -> Vec<Value> {
    // A provider answers the caller first: nothing is recorded for an unverified one.
    ask(world, client, session, &[says("hello")]).await;
    let content = json!([{"type": "tool_use", "id": id(number), "name": "render", "input": {"secret": CANARY}}]);
    let answer =
        json!({"id": "msg_2", "type": "message", "role": "assistant", "content": content, "stop_reason": "tool_use"});
    world.script(still::json(200, &answer.to_string()));
    let mut log = vec![says("go")];
    ask(world, client, session, &log).await;
    log.push(json!({"role": "assistant", "content": content}));
    log
}

async fn posts(world: &World, path_id: &str, content: &str) -> Answer {
    let service = [("authorization", "Bearer token of renderer")];
    let path = format!("/ledger/v1/calls/{path_id}/result");
    let body = json!({"content": content}).to_string();
    world.ask(post_with(&path, &service, body.as_bytes())).await
}

/// Returns a page, and checks that it has no content.
async fn page(router: &AdminService, query: &str) -> Value {
    let (status, _, text) = answer(router, get(&format!("{PATH}{query}"), &[])).await;
    assert_eq!(status, StatusCode::OK, "{query}: {text}");
    assert!(!text.contains(CANARY), "{text}");
    serde_json::from_str(&text).unwrap()
}

fn members(row: &Value, names: [&str; 6]) -> [Value; 6] {
    names.map(|name| row[name].clone())
}

/// A world with one call or result of each kind.
async fn filled(ledger: &Arc<dyn Ledger>) -> World {
    let world = world_over(ledger);
    emits(&world, "ann", "s1", 1).await;
    assert_eq!(posts(&world, &id(1), CANARY).await.status(), 200);
    let mut log = emits(&world, "ann", "s2", 2).await;
    log.push(says("hurry"));
    ask(&world, "ann", "s2", &log).await;
    assert_eq!(posts(&world, &id(2), CANARY).await.status(), 200);
    let mut log = emits(&world, "ann", "s4", 4).await;
    assert_eq!(posts(&world, &id(4), POISON).await.status(), 200);
    log.push(says("is it done?"));
    ask(&world, "ann", "s4", &log).await;
    assert_eq!(posts(&world, &id(9), CANARY).await.status(), 202);
    assert_eq!(posts(&world, ODD, CANARY).await.status(), 202);
    assert_eq!(posts(&world, &id(1), "another").await.status(), 409);
    // The last, because with a second caller a result without an owner must wait.
    emits(&world, "ben", "s3", 3).await;
    world
}

#[tokio::test(start_paused = true)]
pub(crate) async fn each_list_has_the_call_its_caller_and_the_reason() {
    let world = filled(&durable()).await;
    let router = router(&world);
    let names = ["call_id", "tool", "caller_name", "session", "service", "reason"];
    let row = |number: u32, rest: [&str; 5]| {
        let [tool, caller, session, service, reason] =
            rest.map(|text| if text.is_empty() { Value::Null } else { json!(text) });
        [json!(id(number)), tool, caller, session, service, reason]
    };
    let rows = [
        (
            "?state=waiting",
            vec![
                row(1, ["render", "ann", "s1", "renderer", "no_request"]),
                row(2, ["render", "ann", "s2", "renderer", "no_user_message"]),
                row(4, ["render", "ann", "s4", "renderer", "withheld"]),
            ],
        ),
        ("?state=running", vec![row(3, ["render", "", "s3", "", "running"])]),
        (
            "?state=withheld",
            vec![row(4, ["render", "ann", "s4", "renderer", "withheld"])],
        ),
        ("?state=evidence", vec![row(1, ["", "ann", "", "renderer", "conflict"])]),
    ];
    for (query, wanted) in rows {
        let page = page(&router, query).await;
        let found: Vec<[Value; 6]> = page["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| members(row, names))
            .collect();
        assert_eq!(found, wanted, "{query}");
        assert_eq!(page["next"], Value::Null, "{query}");
    }
    let parked = page(&router, "?state=parked").await;
    assert_eq!(
        members(&parked["results"][0], names),
        row(9, ["", "", "", "renderer", "no_call"])
    );
    assert_eq!(
        parked["results"][1]["call_id"],
        json!("toolu_01\\u{202e}AbC9dE3fG7hJ2kL4mN6p")
    );
    let waiting = page(&router, "").await;
    let row = &waiting["results"][0];
    // The content is a JSON string, so it has two quotes more.
    assert_eq!(
        (&row["bytes"], &row["state"]),
        (&json!(CANARY.len() + 2), &json!("waiting"))
    );
    assert_eq!(waiting["results"][2]["state"], json!("withheld"));
    assert!(row["caller"].as_str().is_some_and(|caller| caller.len() == 8), "{row}");
    assert!(row["explanation"].as_str().unwrap().contains("no request"), "{row}");
    assert!(row["until"].as_str().unwrap().starts_with("20"), "{row}");
}

/// Returns the reason of the only row of a list.
async fn reason(world: &World, state: &str) -> String {
    let page = page(&router(world), &format!("?state={state}")).await;
    assert_eq!(page["results"].as_array().unwrap().len(), 1, "{page}");
    page["results"][0]["reason"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_reason_tells_what_the_wait_depends_on() {
    let ledger = durable();
    let at_once = ToolSettings {
        max_duration: Some(Duration::ZERO),
        ..ToolSettings::default()
    };
    let world = world_with(&ledger, |late| late.tools = [("render".to_owned(), at_once)].into());
    emits(&world, "ann", "s1", 1).await;
    assert_eq!(reason(&world, "running").await, "overdue");
    // With a second caller, the owner of a result for a new call cannot be told yet.
    emits(&world, "ben", "s2", 2).await;
    assert_eq!(posts(&world, &id(1), CANARY).await.status(), 202);
    assert_eq!(reason(&world, "parked").await, "unsettled_match");
    drop(world);
    let another = world_with(&ledger, |late| {
        late.services = vec![late::service("another", None, None)];
    });
    assert_eq!(reason(&another, "parked").await, "no_service");

    // A ledger in memory appends nothing.
    let world = world_over(&late::memory());
    let mut log = emits(&world, "ann", "s1", 1).await;
    log.push(says("hurry"));
    ask(&world, "ann", "s1", &log).await;
    assert_eq!(posts(&world, &id(1), CANARY).await.status(), 200);
    assert_eq!(reason(&world, "waiting").await, "never_appended");

    let world = world_over(&durable());
    let mut log = emits(&world, "ann", "s1", 1).await;
    assert_eq!(posts(&world, &id(1), CANARY).await.status(), 200);
    log.push(says("is it done?"));
    world.script(still::json(401, "{}"));
    let body = json!({"model": "m", "max_tokens": 99, "messages": log}).to_string();
    let fields = [
        ("x-api-key", "sk-one"),
        ("x-antiphon-client-token", "ann"),
        ("x-antiphon-session", "s1"),
    ];
    let refused = world
        .ask(post_with("/anthropic/v1/messages", &fields, body.as_bytes()))
        .await;
    assert_eq!(refused.status(), 401);
    assert_eq!(reason(&world, "waiting").await, "in_request");
}

#[tokio::test(start_paused = true)]
async fn recent_events_name_their_calls() {
    let world = filled(&durable()).await;
    let router = router(&world);
    let (_, _, late) = answer(&router, get("/admin/v1/late", &[])).await;
    let late: Value = serde_json::from_str(&late).unwrap();
    assert_eq!(
        (
            &late["recent"][0]["event"],
            &late["recent"][0]["call_id"],
            &late["services"]
        ),
        (&json!("conflict"), &json!(id(1)), &json!(1)),
        "{late}"
    );
    let withheld = late["recent"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["event"] == "withheld");
    assert_eq!(withheld.unwrap()["tool"], json!("render"));
}

#[tokio::test(start_paused = true)]
async fn pages_contain_each_result_of_each_caller_once() {
    let world = world_over(&durable());
    for number in 0..7 {
        let client = ["ann", "ben", "cid"][number as usize % 3];
        emits(&world, client, "s1", number).await;
        let owner = world
            .ask(format!(
                "GET /ledger/v1/me HTTP/1.1\r\nHost: localhost\r\nx-antiphon-client-token: {client}\r\n\r\n"
            ))
            .await
            .json()["owner"]
            .clone();
        let service = [("authorization", "Bearer token of renderer")];
        let body = json!({"content": CANARY, "owner": owner}).to_string();
        let path = format!("/ledger/v1/calls/{}/result", id(number));
        let posted = world.ask(post_with(&path, &service, body.as_bytes())).await;
        assert_eq!(posted.status(), 200, "{}", posted.text());
    }
    let router = router(&world);
    let all = page(&router, "?limit=500").await;
    let ids = |page: &Value| -> Vec<String> {
        let rows = page["results"].as_array().unwrap().iter();
        rows.map(|row| row["call_id"].as_str().unwrap().to_owned()).collect()
    };
    let whole = ids(&all);
    assert_eq!(whole.iter().collect::<BTreeSet<_>>().len(), 7, "{all}");
    for limit in [1, 2, 3, 7] {
        let (mut paged, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = page(&router, &format!("?limit={limit}{cursor}")).await;
            assert!(page["results"].as_array().unwrap().len() <= limit);
            paged.extend(ids(&page));
            let Some(next) = page["next"].as_str() else { break };
            cursor = format!("&after={next}");
        }
        assert_eq!(paged, whole, "limit {limit}");
    }
    // The cursor of a row is one of a page, too.
    let third = all["results"][2]["cursor"].as_str().unwrap();
    assert_eq!(ids(&page(&router, &format!("?after={third}")).await), whole[3..]);
}

/// A page reads a bounded number of records, and goes on after them.
#[tokio::test(start_paused = true)]
async fn a_page_ends_before_it_has_read_everything() {
    let ledger = durable();
    let world = world_over(&ledger);
    emits(&world, "ann", "s1", 1).await;
    // Deliveries that their caller has received take room in the ledger, and belong into no list.
    let principal = ledger.list_principals(RecordKind::Call, None, 1).await.unwrap()[0];
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    for some in 0..6_u8 {
        let received = (0..1000_u16).map(|number| {
            let mut name = [some; 32];
            name[..2].copy_from_slice(&number.to_be_bytes());
            let kind = RecordKind::Delivery;
            CommitStep::insert_record(
                RecordKey { kind, principal, name },
                bytes::Bytes::from_static(&[1, 5]),
                now + Duration::from_secs(9999),
            )
        });
        ledger.commit(received.collect(), now).await.unwrap();
    }
    assert_eq!(posts(&world, &id(1), CANARY).await.status(), 200);
    let router = router(&world);
    let first = page(&router, "").await;
    assert_eq!(first["results"], json!([]));
    let next = first["next"].as_str().unwrap();
    let second = page(&router, &format!("?after={next}")).await;
    assert_eq!(second["results"][0]["call_id"], json!(id(1)), "{second}");
    assert_eq!(second["next"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_is_slow_or_fails_gets_503_in_time() {
    let ledger = SwitchableLedger::new();
    let shared: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(&ledger);
    let world = world_over(&shared);
    let router = router(&world);
    assert_eq!(page(&router, "").await["results"], json!([]));
    for (stalls, fails, words) in [(true, false, "within 3 s"), (false, true, "the ledger failed")] {
        ledger.stalls.store(stalls, Ordering::Relaxed);
        ledger.fails.store(fails, Ordering::Relaxed);
        let began = Instant::now();
        let (status, _, text) = answer(&router, get(PATH, &[])).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
        assert!(text.contains("ledger_unavailable") && text.contains(words), "{text}");
        assert!(began.elapsed() <= Duration::from_secs(4), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_bad_query_names_its_fault() {
    let world = world_over(&durable());
    let router = router(&world);
    for (query, word) in [
        ("?state=lost", "waiting"),
        ("?limit=0", "limit"),
        ("?after=1", "after"),
        ("?after=-1", "after"),
        (&format!("?after={}-+1", "0".repeat(64)), "after"),
        (&format!("?after={}-{}", "0".repeat(64), "1".repeat(20)), "after"),
    ] {
        let (status, _, text) = answer(&router, get(&format!("{PATH}{query}"), &[])).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{query}: {text}");
        assert!(text.contains(word), "{query}: {text}");
    }
    let last = format!("?after={}-{}", "f".repeat(64), "9".repeat(19));
    assert_eq!(page(&router, &last).await, json!({"results": [], "next": null}));
}
