//! `/ledger/v1` over a socket: access rights, and no knowledge of other callers' calls.

use std::time::Duration;

use antiphon::{
    auth::{Caller, ClientTokens, Principal, TokenHash, WebhookKey, principal::principal_of_credentials},
    late::{LateSettings, ObservedCall, PostTerms, ServiceSettings, matching::NamedCall},
    session::{LaneId, SessionStrength},
};
use http::HeaderMap;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{
    app::{App, before, post_with},
    late::service,
    wire::{Client, Message, Upstream},
};

pub(crate) const STRONG: &str = "toolu_01A09q90qw90lq917835lq9";
pub(crate) const OTHER: &str = "toolu_01B19r80rw80mr826744mr8";
pub(crate) const WEAK: &str = "call_0";
pub(crate) const ANN: &[(&str, &str)] = &[("x-antiphon-client-token", "ann")];
pub(crate) const BEN: &[(&str, &str)] = &[("x-antiphon-client-token", "ben")];
pub(crate) const TOOLS: &[(&str, &str)] = &[("authorization", "Bearer token of tools")];
const ANNS: &[(&str, &str)] = &[("authorization", "Bearer token of anns")];
pub(crate) const KEY: &[u8; 32] = b"0123456789abcdef0123456789abcdef";

fn settings() -> LateSettings {
    let signed = ServiceSettings {
        token: None,
        key: Some(WebhookKey::parse(&format!("whsec_{}", base64(KEY))).unwrap()),
        ..service("signed", None, None)
    };
    LateSettings {
        // `parking` has the tests of the settling time.
        settling: Duration::ZERO,
        services: vec![
            service("tools", None, None),
            service("anns", Some(&["ann"]), Some(&["bash"])),
            signed,
        ],
        ..LateSettings::default()
    }
}

/// Starts an app whose callers `ann` and `ben` are verified.
pub(crate) async fn world() -> (Upstream, App) {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address)
        .with(|builder| {
            let token = |name: &str| (name.to_owned(), TokenHash::hash_token(name.as_bytes()));
            builder.proxy.client_tokens = ClientTokens::new(vec![token("ann"), token("ben"), token("new")]);
            builder.late = settings();
        })
        .start()
        .await;
    for who in [ANN, BEN] {
        let answer = app.ask(post_with("/anthropic/v1/messages", who, b"{}")).await;
        assert_eq!(answer.status(), 200);
        assert!(
            answer.header("x-antiphon-owner").is_some_and(|owner| owner.len() == 32),
            "{}",
            answer.head
        );
        assert!(answer.header("x-antiphon-pending-results").is_none());
    }
    (upstream, app)
}

fn principal(app: &App, name: &str) -> Principal {
    Principal::of_token(app.late.principal_key(), name)
}

pub(crate) fn owner(app: &App, name: &str) -> String {
    app.late.owner_of(Caller::of_account(principal(app, name))).to_string()
}

pub(crate) async fn record(app: &App, name: &str, id: &str) {
    let call = ObservedCall {
        lane: Some(LaneId::main_lanes(&Caller::of_account(principal(app, name)), "s")[0]),
        session: None,
        session_label: None,
        strength: SessionStrength::Strong,
        id: id.as_bytes().to_vec(),
        tool: b"bash".to_vec(),
        input: Some([1; 32]),
        intent_input: None,
        origin: None,
        is_emitted: true,
    };
    app.late
        .calls()
        .record_calls(Caller::of_account(principal(app, name)), [call]);
    app.late.flush_updates().await;
}

pub(crate) async fn ask(app: &App, path: &str, fields: &[(&str, &str)], body: &str) -> Message {
    app.ask(post_with(&format!("/ledger/v1/{path}"), fields, body.as_bytes()))
        .await
}

fn getting(path: &str, fields: &[(&str, &str)]) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let fields = fields.concat();
    format!("GET /ledger/v1/{path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")
}

pub(crate) async fn get(app: &App, path: &str, fields: &[(&str, &str)]) -> Message {
    app.ask(getting(path, fields)).await
}

/// Returns a client whose subscription to the event feed is active.
pub(crate) async fn listening(app: &App, fields: &[(&str, &str)]) -> Client {
    let mut client = app.client().await;
    client.send(getting("feed", fields)).await;
    client.until(": listening\n\n").await;
    client
}

pub(crate) async fn post(app: &App, id: &str, service: &[(&str, &str)], body: &Value) -> Message {
    ask(app, &format!("calls/{id}/result"), service, &body.to_string()).await
}

#[track_caller]
fn is(answer: &Message, status: u16, code: &str) {
    assert_eq!(answer.status(), status, "{} {}", answer.head, answer.text());
    let body = answer.json();
    let said = body
        .pointer("/code")
        .or_else(|| body.get("state"))
        .and_then(Value::as_str);
    assert_eq!(said, Some(code), "{}", answer.text());
}

async fn lookup(app: &App, who: &[(&str, &str)], id: &str) -> Message {
    ask(app, "lookup", who, &json!({ "call_ids": [id] }).to_string()).await
}

#[tokio::test]
async fn a_result_is_posted_looked_up_and_acknowledged() {
    let (_upstream, app) = world().await;
    record(&app, "ann", STRONG).await;
    let body = r#"{"is_error":true, "content": [{"type":"text","text":"\u0041 1.0"}] }"#;
    let path = format!("calls/{STRONG}/result");
    let first = ask(&app, &path, TOOLS, body).await;
    is(&first, 200, "settled");
    assert_eq!(first.json()["first"], true);
    let again = ask(&app, &path, TOOLS, body).await;
    assert_eq!((again.status(), &again.json()["first"]), (200, &json!(false)));
    is(
        &post(&app, STRONG, TOOLS, &json!({ "content": "another" })).await,
        409,
        "conflict",
    );

    // The content is returned byte for byte.
    let found = lookup(&app, ANN, STRONG).await;
    assert!(
        found
            .text()
            .contains(r#""content":[{"type":"text","text":"\u0041 1.0"}]"#),
        "{}",
        found.text()
    );
    let found = found.json();
    assert_eq!(found["results"][0]["is_error"], true);
    assert_eq!(found["results"][0]["call_id"], STRONG);
    let waiting = get(&app, "outstanding", ANN).await.json();
    assert_eq!(waiting["outstanding"].as_array().unwrap().len(), 1);
    let answer = app.ask(post_with("/anthropic/v1/messages", ANN, b"{}")).await;
    assert_eq!(answer.header("x-antiphon-pending-results"), Some("1"));
    assert_eq!(answer.header("x-antiphon-owner"), Some(&owner(&app, "ann")[..]));

    let delivery = waiting["outstanding"][0]["delivery"].as_str().unwrap().to_owned();
    let path = format!("deliveries/{delivery}/ack");
    is(&ask(&app, &path, BEN, "").await, 404, "not_found");
    is(&ask(&app, &path, ANN, "").await, 200, "acked");
    is(&ask(&app, &path, ANN, "").await, 200, "acked");
    assert_eq!(
        get(&app, "outstanding", ANN).await.text(),
        r#"{"outstanding":[],"next":null}"#
    );
    let answer = app.ask(post_with("/anthropic/v1/messages", ANN, b"{}")).await;
    assert_eq!(answer.header("x-antiphon-pending-results"), None);

    let page = app.telemetry.encode_metrics();
    for line in [
        "antiphon_ledger_posts_total{answer=\"settled\"} 1",
        "antiphon_ledger_posts_total{answer=\"repeated\"} 1",
        "antiphon_ledger_posts_total{answer=\"conflict\"} 1",
        "antiphon_late_results_total{event=\"attached\"} 1",
        "antiphon_late_results_total{event=\"acked\"} 1",
    ] {
        assert!(page.contains(line), "no {line} in\n{page}");
    }
}

#[tokio::test]
async fn other_callers_calls_look_absent() {
    let (_upstream, app) = world().await;
    record(&app, "ann", STRONG).await;
    is(
        &post(&app, STRONG, TOOLS, &json!({ "content": "ann's" })).await,
        200,
        "settled",
    );
    let delivery = get(&app, "outstanding", ANN).await.json()["outstanding"][0]["delivery"].clone();
    let ack = |id: &str| format!("deliveries/{id}/ack");
    let session: &[(&str, &str)] = &[BEN[0], ("x-antiphon-session", "s1")];
    for ben in [BEN, session] {
        let (hers, nobodys) = (lookup(&app, ben, STRONG).await, lookup(&app, ben, OTHER).await);
        assert_eq!((hers.status(), &hers.body), (nobodys.status(), &nobodys.body));
        assert_eq!(hers.text(), r#"{"results":[]}"#);
        let hers = ask(&app, &ack(delivery.as_str().unwrap()), ben, "").await;
        let nobodys = ask(&app, &ack(&"0".repeat(64)), ben, "").await;
        assert_eq!((hers.status(), &hers.body), (nobodys.status(), &nobodys.body));
        let closed = ask(&app, "sessions/s1/close", ben, "").await;
        let nothing = ask(&app, "sessions/nothing/close", ben, "").await;
        assert_eq!((closed.status(), &closed.body), (nothing.status(), &nothing.body));
        assert_eq!(
            get(&app, "outstanding", ben).await.text(),
            r#"{"outstanding":[],"next":null}"#
        );
    }
    assert_eq!(lookup(&app, ANN, STRONG).await.json()["results"][0]["content"], "ann's");
}

#[tokio::test]
async fn the_same_id_of_two_callers_needs_an_owner() {
    let (_upstream, app) = world().await;
    for id in [STRONG, OTHER] {
        for who in ["ann", "ben"] {
            record(&app, who, id).await;
        }
        is(
            &post(&app, id, TOOLS, &json!({ "content": "whose" })).await,
            409,
            "ambiguous_call",
        );
        for who in [ANN, BEN] {
            assert_eq!(lookup(&app, who, id).await.text(), r#"{"results":[]}"#);
        }
        let named = |name: &str| json!({ "content": format!("for {name}"), "owner": owner(&app, name) });
        is(&post(&app, id, TOOLS, &named("ben")).await, 200, "settled");
        assert_eq!(lookup(&app, ANN, id).await.text(), r#"{"results":[]}"#);
        assert_eq!(lookup(&app, BEN, id).await.json()["results"][0]["content"], "for ben");
        // The `anns` service answers only for ann, so her call is the only match.
        is(
            &post(&app, id, ANNS, &json!({ "content": "for ann" })).await,
            200,
            "settled",
        );
        assert_eq!(lookup(&app, ANN, id).await.json()["results"][0]["content"], "for ann");
    }
}

#[tokio::test]
async fn an_early_result_is_parked_until_its_call_is_recorded() {
    let (_upstream, app) = world().await;
    is(
        &post(&app, STRONG, TOOLS, &json!({ "content": 1 })).await,
        202,
        "parked",
    );
    is(
        &post(&app, STRONG, TOOLS, &json!({ "content": 1 })).await,
        202,
        "parked",
    );
    is(
        &post(&app, STRONG, TOOLS, &json!({ "content": 2 })).await,
        409,
        "conflict",
    );
    is(
        &post(&app, WEAK, TOOLS, &json!({ "content": 1 })).await,
        404,
        "not_found",
    );
    let bens = json!({ "content": 3, "owner": owner(&app, "ben") });
    is(&post(&app, OTHER, TOOLS, &bens).await, 202, "parked");
    for id in [STRONG, OTHER] {
        record(&app, "ann", id).await;
    }
    assert_eq!(lookup(&app, ANN, STRONG).await.json()["results"][0]["content"], 1);
    assert_eq!(lookup(&app, ANN, OTHER).await.text(), r#"{"results":[]}"#);
    record(&app, "ben", OTHER).await;
    assert_eq!(lookup(&app, BEN, OTHER).await.json()["results"][0]["content"], 3);
}

#[tokio::test]
async fn unauthenticated_services_get_404() {
    let (_upstream, app) = world().await;
    record(&app, "ann", STRONG).await;
    let body = json!({ "content": 1 }).to_string();
    let result = format!("calls/{STRONG}/result");
    let heartbeat = format!("calls/{STRONG}/heartbeat");
    let nothing = ask(&app, "nothing", TOOLS, "").await;
    is(&nothing, 404, "not_found");
    let strangers: &[&[(&str, &str)]] = &[
        &[],
        ANN,
        &[("authorization", "Bearer wrong")],
        &[("authorization", "token of tools")],
        &[
            ("authorization", "Bearer token of tools"),
            ("authorization", "Bearer token of tools"),
        ],
        &[("x-api-key", "token of tools")],
        &[
            ("webhook-id", "a"),
            ("webhook-timestamp", "1"),
            ("webhook-signature", "v1,AAAA"),
        ],
    ];
    for stranger in strangers {
        for path in [&result, &heartbeat] {
            let answer = ask(&app, path, stranger, &body).await;
            assert_eq!((answer.status(), &answer.body), (404, &nothing.body), "{stranger:?}");
        }
    }
    for (path, fields) in [
        ("calls/x/cancel", TOOLS),
        ("calls//result", TOOLS),
        ("calls", TOOLS),
        ("lookup/x", ANN),
        ("", ANN),
    ] {
        is(&ask(&app, path, fields, "{}").await, 404, "not_found");
    }
    is(&get(&app, &result, TOOLS).await, 405, "wrong_method");
}

#[tokio::test]
async fn unverified_callers_get_404() {
    let (_upstream, app) = world().await;
    let nothing = ask(&app, "nothing", TOOLS, "").await;
    let readers: &[&[(&str, &str)]] = &[
        &[],
        TOOLS,
        &[("x-antiphon-client-token", "new")],
        &[("x-antiphon-client-token", "wrong")],
        &[("x-api-key", "never answered")],
        &[("authorization", "AWS4-HMAC-SHA256 Credential=a"), ANN[0]],
    ];
    for reader in readers {
        for path in [
            "lookup",
            "sessions/s/close",
            &format!("deliveries/{}/ack", "0".repeat(64)),
        ] {
            let answer = ask(&app, path, reader, r#"{"call_ids":["a"]}"#).await;
            assert_eq!(
                (answer.status(), &answer.body),
                (404, &nothing.body),
                "{reader:?} {path}"
            );
        }
        for path in ["outstanding", "feed"] {
            let answer = get(&app, path, reader).await;
            assert_eq!(
                (answer.status(), &answer.body),
                (404, &nothing.body),
                "{reader:?} {path}"
            );
        }
    }
    // A caller without a client token is identified by its own credential.
    let mut fields = HeaderMap::new();
    fields.insert("x-api-key", "known".parse().unwrap());
    let own = principal_of_credentials(app.late.principal_key(), &fields, None);
    app.late.callers().mark_verified(Caller::of_account(own));
    assert_eq!(
        get(&app, "outstanding", &[("authorization", "Bearer known")])
            .await
            .status(),
        200
    );
    // A client token identifies the caller in any credential header.
    assert_eq!(get(&app, "outstanding", &[("x-api-key", "ann")]).await.status(), 200);
}

#[tokio::test]
async fn malformed_bodies_are_refused() {
    let (_upstream, app) = world().await;
    record(&app, "ann", STRONG).await;
    let path = format!("calls/{STRONG}/result");
    for body in [
        "",
        "{}",
        "[]",
        "{\"content\":}",
        r#"{"content":1"#,
        r#"{"content":1,"is_error":"no"}"#,
        r#"{"content":1,"owner":"x"}"#,
        r#"{"content":1,"owner":7}"#,
        r#"{"content":1,"call_id":"another"}"#,
    ] {
        is(&ask(&app, &path, TOOLS, body).await, 422, "malformed");
    }
    for body in [
        "",
        "{}",
        r#"{"call_ids":[]}"#,
        r#"{"call_ids":[1]}"#,
        r#"{"call_ids":"a"}"#,
    ] {
        is(&ask(&app, "lookup", ANN, body).await, 422, "malformed");
    }
    let many = json!({ "call_ids": vec!["a"; 257] }).to_string();
    is(&ask(&app, "lookup", ANN, &many).await, 422, "malformed");
    let large = format!("{{\"call_ids\":[\"{}\"]}}", "a".repeat(70_000));
    is(&ask(&app, "lookup", ANN, &large).await, 413, "too_large");
    let foreign = "GET /ledger/v1/outstanding HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    assert_eq!(app.ask(foreign).await.status(), 403);
    let dotted = "GET /ledger/v1/../v1/outstanding HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(app.ask(dotted).await.status(), 400);
}

/// Returns a list nested this many levels deep.
fn deep(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

#[tokio::test]
async fn too_deep_content_is_refused_with_the_limit_and_the_offset() {
    let (_upstream, app) = world().await;
    record(&app, "ann", STRONG).await;
    let path = format!("calls/{STRONG}/result");
    let posted = |content: &str| format!(r#"{{"content": {content}}}"#);
    let strings = format!(r#"["{}",{}]"#, "[".repeat(70), deep(64));
    for (content, at) in [(deep(100_000), 64), (deep(65), 64), (strings, 137)] {
        let answer = ask(&app, &path, TOOLS, &posted(&content)).await;
        is(&answer, 422, "malformed");
        let message = format!("content is nested more than 64 levels deep, from its byte {at} on");
        assert_eq!(answer.json()["detail"], message.as_str());
    }
    // Parked content has the same limit. Brackets inside a string do not count.
    let parked = ask(&app, &format!("calls/{OTHER}/result"), TOOLS, &posted(&deep(65))).await;
    is(&parked, 422, "malformed");
    let string = format!("\"{}\"", "[".repeat(1000));
    is(
        &ask(&app, &format!("calls/{OTHER}/result"), TOOLS, &posted(&string)).await,
        202,
        "parked",
    );
    is(&ask(&app, &path, TOOLS, &posted(&deep(64))).await, 200, "settled");
}

/// Old records may contain deeper content than the limit allows. It is returned as text, so the response stays
/// readable.
#[tokio::test]
async fn deep_content_of_old_records_is_returned_as_text() {
    let (_upstream, app) = world().await;
    for (id, content) in [(STRONG, deep(100_000)), (OTHER, r#"{ "a": 1 }"#.to_owned())] {
        record(&app, "ann", id).await;
        let named = NamedCall {
            service: &app.late.services()[0],
            call_id: id.as_bytes(),
            owner: None,
            session: None,
            described: None,
        };
        app.late
            .calls()
            .post_result(&named, content, false, PostTerms::default())
            .await
            .unwrap();
    }
    let ids = json!({ "call_ids": [STRONG, OTHER] }).to_string();
    let found = ask(&app, "lookup", ANN, &ids).await;
    assert!(
        found.text().contains(r#""content":{ "a": 1 }"#),
        "what is not deep stays as it was posted"
    );
    assert_eq!(found.json()["results"][0]["content"], deep(100_000));
}

#[tokio::test]
async fn a_heartbeat_keeps_a_call_open() {
    let (_upstream, app) = world().await;
    let path = format!("calls/{STRONG}/heartbeat");
    is(&ask(&app, &path, TOOLS, "").await, 404, "not_found");
    record(&app, "ann", STRONG).await;
    is(&ask(&app, &path, TOOLS, "").await, 200, "open");
    record(&app, "ben", STRONG).await;
    is(&ask(&app, &path, TOOLS, "").await, 409, "ambiguous_call");
    is(&ask(&app, &path, ANNS, "{}").await, 200, "open");
    is(
        &post(&app, STRONG, ANNS, &json!({ "content": 1 })).await,
        200,
        "settled",
    );
    is(&ask(&app, &path, ANNS, "").await, 409, "conflict");
}

/// Such ids were taken for counters, and their results refused.
#[tokio::test]
async fn an_id_of_a_known_maker_is_no_counter() {
    let (_upstream, app) = world().await;
    for id in [
        "toolu_01fIPaxlEpOOxAeJDOjoAmSm",
        "call_RDqEAMQmERNyOqLUycsThOAw",
        "UHCGqxbXp",
    ] {
        let answer = post(&app, id, TOOLS, &json!({ "content": 1 })).await;
        is(&answer, 202, "parked");
    }
    for id in [
        "turn1tool2call3",
        "call_20261122T120000Z",
        "call_000000000000000000000012",
    ] {
        let answer = post(&app, id, TOOLS, &json!({ "content": 1 })).await;
        assert_eq!(answer.status(), 404, "{id}");
    }
}

#[tokio::test]
async fn a_closed_session_or_a_long_time_detaches() {
    let (_upstream, app) = world().await;
    let ann = principal(&app, "ann");
    let call = |id: &str| ObservedCall {
        lane: None,
        session: Some(antiphon::session::session_hash(ann, b"s1")),
        session_label: None,
        strength: SessionStrength::Strong,
        id: id.as_bytes().to_vec(),
        tool: b"bash".to_vec(),
        input: None,
        intent_input: None,
        origin: None,
        is_emitted: false,
    };
    app.late.calls().record_calls(Caller::of_account(ann), [call(STRONG)]);
    app.late.flush_updates().await;
    is(&ask(&app, "sessions/s1/close", BEN, "").await, 200, "closed");
    is(&ask(&app, "sessions/s1/close", ANN, "").await, 200, "closed");
    is(
        &post(&app, STRONG, TOOLS, &json!({ "content": 1 })).await,
        200,
        "settled",
    );
    app.late.calls().record_calls(Caller::of_account(ann), [call(OTHER)]);
    app.late.flush_updates().await;
    is(
        &post(&app, OTHER, TOOLS, &json!({ "content": 1 })).await,
        200,
        "settled",
    );
    let page = app.telemetry.encode_metrics();
    for event in ["attached", "detached"] {
        assert!(
            page.contains(&format!("antiphon_late_results_total{{event=\"{event}\"}} 1")),
            "{event}"
        );
    }
}

#[tokio::test]
async fn the_feed_limit_is_per_owner() {
    let (_upstream, app) = world().await;
    record(&app, "ann", STRONG).await;
    record(&app, "ben", OTHER).await;
    let mut open = Vec::new();
    for _ in 0..16 {
        open.push(listening(&app, ANN).await);
    }
    assert_eq!(get(&app, "feed", ANN).await.status(), 503);
    listening(&app, BEN).await;
}

#[tokio::test]
async fn the_feed_sends_only_the_owners_events() {
    let (_upstream, app) = world().await;
    record(&app, "ann", STRONG).await;
    record(&app, "ben", OTHER).await;
    let mut ann = listening(&app, ANN).await;
    is(
        &post(&app, OTHER, TOOLS, &json!({ "content": 1 })).await,
        200,
        "settled",
    );
    is(
        &post(&app, STRONG, TOOLS, &json!({ "content": "secret" })).await,
        200,
        "settled",
    );
    let heard = String::from_utf8(ann.until("\n\n").await).unwrap();
    assert!(heard.contains("event: settled") && heard.contains(STRONG), "{heard}");
    assert!(!heard.contains(OTHER) && !heard.contains("secret"), "{heard}");
    // The drain ends the stream.
    let drained = tokio::time::timeout(Duration::from_secs(5), app.running.drain()).await;
    assert!(drained.is_ok());
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut group = [0; 4];
        group[1..=chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes(group);
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

pub(crate) fn signature(key: &[u8; 32], id: &str, timestamp: u64, body: &str) -> String {
    let pad = |with: u8| {
        let mut block = [with; 64];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        block
    };
    let inner = Sha256::new()
        .chain_update(pad(0x36))
        .chain_update(format!("{id}.{timestamp}.{body}"))
        .finalize();
    let mac = Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize();
    format!("v1,{}", base64(&mac))
}

async fn signed(app: &App, call: &str, id: &str, timestamp: u64, signatures: &str, body: &str) -> Message {
    let timestamp = timestamp.to_string();
    let fields = [
        ("webhook-id", id),
        ("webhook-timestamp", &timestamp),
        ("webhook-signature", signatures),
    ];
    ask(app, &format!("calls/{call}/result"), &fields, body).await
}

#[tokio::test]
async fn a_signed_result_is_accepted_once_and_only_for_its_call() {
    let (_upstream, app) = world().await;
    record(&app, "ann", STRONG).await;
    record(&app, "ann", OTHER).await;
    let now = antiphon::clock::unix_time().as_secs();
    let body = json!({ "call_id": STRONG, "content": "signed" }).to_string();
    let wrong = signature(&[7; 32], "m1", now, &body);
    is(&signed(&app, STRONG, "m1", now, &wrong, &body).await, 404, "not_found");
    for stale in [now - 400, now + 400] {
        let stale_one = signature(KEY, "m1", stale, &body);
        is(
            &signed(&app, STRONG, "m1", stale, &stale_one, &body).await,
            404,
            "not_found",
        );
    }
    let right = signature(KEY, "m1", now, &body);
    is(&signed(&app, STRONG, "m2", now, &right, &body).await, 404, "not_found");
    // The signature does not cover the path, so the body must name the call.
    is(&signed(&app, OTHER, "m1", now, &right, &body).await, 422, "malformed");
    let bare = json!({ "content": "signed" }).to_string();
    is(
        &signed(&app, STRONG, "m0", now, &signature(KEY, "m0", now, &bare), &bare).await,
        422,
        "malformed",
    );
    let both = format!("{wrong} {right}");
    is(&signed(&app, STRONG, "m1", now, &both, &body).await, 200, "settled");
    let replayed = signed(&app, STRONG, "m1", now, &right, &body).await;
    assert_eq!((replayed.status(), &replayed.json()["first"]), (200, &json!(false)));
    let other = json!({ "call_id": STRONG, "content": "other" }).to_string();
    is(
        &signed(&app, STRONG, "m1", now, &signature(KEY, "m1", now, &other), &other).await,
        409,
        "replayed",
    );
    is(
        &signed(&app, STRONG, "m3", now, &signature(KEY, "m3", now, &other), &other).await,
        409,
        "conflict",
    );
    assert_eq!(
        lookup(&app, ANN, STRONG).await.json()["results"][0]["content"],
        "signed"
    );
    assert_eq!(lookup(&app, ANN, OTHER).await.text(), r#"{"results":[]}"#);
}

#[tokio::test]
async fn without_services_every_path_is_404() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).start().await;
    let key: &[(&str, &str)] = &[("x-api-key", "k")];
    let answer = app.ask(post_with("/anthropic/v1/messages", key, b"{}")).await;
    assert_eq!((answer.status(), answer.header("x-antiphon-owner")), (200, None));
    is(&get(&app, "outstanding", key).await, 404, "not_found");
}
