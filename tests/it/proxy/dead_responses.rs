//! A `previous_response_id` that the provider has lost: left out if the body contains everything it stood for.
//!
//! The strict provider judges: it knows which responses it can continue, and which reasoning it made.

use antiphon::{
    repair::{Mode, OnForeignThinking},
    wire::{ContinuedBody, Wire},
};
use serde_json::{Value, json};

use crate::{
    proxy::{
        refusal_resends::{notes, second_repairs},
        strict_provider::post,
    },
    support::{
        app::{App, Builder, before, gzipped, post_with},
        growth::is_linear,
        judge::{ServerMemory, ServerRules},
        provider::{Provider, Reply},
        still::{Answer, World, json as reply},
        wire::Message,
    },
};

pub(crate) const PATH: &str = "/openai/v1/responses";
pub(crate) const DROPPED: (u16, &str, &str) = (200, "2", "dropped=1");

/// A provider that has memory, and the proxy before it.
struct Stage {
    provider: Provider,
    app: App,
    streams: bool,
}

impl Stage {
    async fn new(streams: bool) -> Self {
        Self::with(streams, |_| {}).await
    }

    async fn with(streams: bool, change: impl FnOnce(&mut Builder)) -> Self {
        let rules = ServerRules {
            made_here: true,
            ..ServerRules::default()
        };
        let provider = Provider::ruled(&[Wire::OPENAI_RESPONSES], rules).await;
        let app = before(provider.address()).with(change).start().await;
        Self { provider, app, streams }
    }

    fn lose_responses(&self) {
        self.provider.remember(ServerMemory::forget_responses);
    }

    async fn ask_as(&self, key: &str, body: &Value) -> Message {
        let head = format!("Bearer {key}");
        let fields = [("authorization", head.as_str()), ("prompt-cache", "x")];
        self.app
            .ask(post_with(PATH, &fields, body.to_string().as_bytes()))
            .await
    }

    async fn ask(&self, body: &Value) -> Message {
        self.ask_as("sk-one", body).await
    }

    /// Returns a body that continues from `previous`. `None` begins a conversation.
    fn body(&self, previous: Option<&str>, input: &[Value]) -> Value {
        let mut body = json!({"model": "m"});
        if let Some(previous) = previous {
            body["previous_response_id"] = previous.into();
        }
        body["stream"] = self.streams.into();
        body["store"] = true.into();
        body["input"] = input.into();
        body
    }

    /// Returns the last body upstream.
    fn sent(&self) -> String {
        String::from_utf8(self.provider.last().body.to_vec()).unwrap()
    }

    /// Begins a conversation with a tool loop. Returns its items, the last id, and the refusal of that id.
    async fn begin(&self) -> (Vec<Value>, String) {
        let mut items = vec![user("go")];
        self.provider.reply(Reply::call("call_1", "f", json!({"a": [1, "x"]})));
        let (output, first) = self.turn(None, &items).await;
        items.extend(output);
        items.push(json!({"type": "function_call_output", "call_id": "call_1", "output": "done"}));
        let (output, second) = self.turn(Some(&first), &items[items.len() - 1..]).await;
        items.extend(output);
        items.push(user("on"));
        (items, second)
    }

    /// Sends one request that the provider accepts at once. Returns what its client sends back, and the id.
    async fn turn(&self, previous: Option<&str>, input: &[Value]) -> (Vec<Value>, String) {
        let answer = self.ask(&self.body(previous, input)).await;
        assert_eq!(notes(&answer), (200, "1", "none"), "{}", answer.text());
        answered(&answer, self.streams)
    }
}

/// Returns the status and the number of sends.
fn outcome(answer: &Answer) -> (u16, String) {
    (
        answer.status(),
        answer.header("x-antiphon-attempts").unwrap().to_owned(),
    )
}

pub(crate) fn user(words: &str) -> Value {
    json!({"role": "user", "content": words})
}

/// Returns the items of an answer as a client sends them back, and the id of the response.
fn answered(answer: &Message, streams: bool) -> (Vec<Value>, String) {
    let response = if streams {
        let text = answer.text();
        let last = text.lines().rfind(|line| line.starts_with("data: {")).unwrap();
        serde_json::from_str::<Value>(&last[6..]).unwrap()["response"].clone()
    } else {
        answer.json()
    };
    let items = response["output"].as_array().unwrap().iter().map(sent_back);
    (items.collect(), response["id"].as_str().unwrap().to_owned())
}

/// Returns an item in another spelling, without what the provider only reports.
pub(crate) fn sent_back(item: &Value) -> Value {
    let mut item = item.clone();
    let members = item.as_object_mut().unwrap();
    members.remove("id");
    members.remove("status");
    for part in item["content"].as_array_mut().into_iter().flatten() {
        part.as_object_mut().unwrap().remove("annotations");
    }
    if let Some(arguments) = item["arguments"].as_str() {
        let value: Value = serde_json::from_str(arguments).unwrap();
        item["arguments"] = serde_json::to_string_pretty(&value).unwrap().into();
    }
    item
}

/// Asserts that the client got the provider's own refusal, after one send.
fn assert_handed_on(answer: &Message, id: &str) {
    assert_eq!(notes(answer), (400, "1", "none"), "{}", answer.text());
    let error = &answer.json()["error"];
    let words = format!("Previous response with id '{id}' not found.");
    assert_eq!(
        (&error["message"], &error["code"]),
        (&json!(words), &json!("previous_response_not_found"))
    );
}

#[tokio::test]
async fn a_dead_id_goes_if_the_body_begins_with_all_of_its_items() {
    for streams in [false, true] {
        let stage = Stage::new(streams).await;
        let (mut items, id) = stage.begin().await;
        stage.lose_responses();
        let body = stage.body(Some(&id), &items);
        let (status, refused) = post(&stage.provider, "/v1/responses", &body.to_string()).await;
        assert!(
            status == 400 && refused.contains("previous_response_not_found"),
            "{refused}"
        );

        let answer = stage.ask(&body).await;
        assert_eq!(notes(&answer), DROPPED, "{}", answer.text());
        assert_eq!(second_repairs(&stage.app, "dead_response"), "1");
        let text = body.to_string();
        let member = format!("\"previous_response_id\":\"{id}\",");
        let wanted = text.replacen(&member, "", 1);
        let without = stage.body(None, &items).to_string();
        assert_eq!(wanted, without, "as the client would have sent it without the id");
        assert_eq!(stage.sent(), wanted, "the same bytes, without the member");
        let before = stage.sent();

        // The client goes on with the dead id: its requests go without it at once, after the same bytes.
        let (output, next) = answered(&answer, streams);
        items.extend(output);
        items.push(user("more"));
        let answer = stage.ask(&stage.body(Some(&id), &items)).await;
        assert_eq!(notes(&answer), (200, "1", "dropped=1"));
        assert!(
            stage.sent().starts_with(before.strip_suffix("]}").unwrap()),
            "{}",
            stage.sent()
        );
        assert!(!stage.sent().contains("previous_response_id"));
        // The answer after the removal has a chain of its own.
        let known = items[..items.len() - 1].to_vec();
        stage.lose_responses();
        let body = stage.body(Some(&next), &[known, vec![user("other")]].concat());
        assert_eq!(notes(&stage.ask(&body).await), DROPPED);
        assert_eq!(second_repairs(&stage.app, "dead_response"), "2");
    }
}

/// Some clients send the whole history with every request, beside an id that is alive for a while.
#[tokio::test]
async fn a_history_that_repeats_what_the_id_stands_for_counts_once() {
    let stage = Stage::new(false).await;
    let mut items = vec![user("go")];
    let (output, first) = stage.turn(None, &items).await;
    items.extend(output);
    items.push(user("on"));
    let (output, second) = stage.turn(Some(&first), &items).await;
    items.extend(output);
    items.push(user("more"));
    stage.lose_responses();
    assert_eq!(notes(&stage.ask(&stage.body(Some(&second), &items)).await), DROPPED);
}

/// A client that keeps the history itself hardly ever names an id, and its items are not hashed before it does.
#[tokio::test]
async fn a_history_with_answers_counts_once_its_client_has_continued_from_a_response() {
    let stage = Stage::new(false).await;
    for is_known in [false, true] {
        let mut items = vec![user("go"), json!({"role": "assistant", "content": "so"}), user("on")];
        let (output, first) = stage.turn(None, &items).await;
        items.extend(output);
        items.push(user("more"));
        stage.lose_responses();
        let answer = stage.ask(&stage.body(Some(&first), &items)).await;
        if is_known {
            assert_eq!(notes(&answer), DROPPED, "{}", answer.text());
        } else {
            assert_handed_on(&answer, &first);
        }
    }
}

#[tokio::test]
async fn a_body_without_every_item_gets_the_refusal() {
    let stage = Stage::new(false).await;
    let (items, id) = stage.begin().await;
    stage.lose_responses();
    assert!(items.len() >= 6, "{items:?}");
    for missing in 0..items.len() - 1 {
        let mut rest = items.clone();
        let item = rest.remove(missing);
        let body = stage.body(Some(&id), &rest);
        let answer = stage.ask(&body).await;
        if item["type"] == "function_call_output" {
            // A call of this body without its result gets a placeholder first, which is no reason to remove the id.
            assert_eq!(notes(&answer), (400, "1", "placeholder=1"), "{}", answer.text());
            assert!(stage.sent().contains(&id));
            continue;
        }
        assert_handed_on(&answer, &id);
        assert_eq!(stage.sent(), body.to_string(), "without {item}");
    }
    // Changed words, another order, and items that the provider alone has.
    let mut changed = items.clone();
    changed[0]["content"] = "gone".into();
    let mut swapped = items.clone();
    swapped.swap(0, 1);
    let mut referring = items.clone();
    referring.insert(0, json!({"type": "item_reference", "id": "msg_1"}));
    for input in [changed, swapped, referring, Vec::new(), vec![user("on")]] {
        assert_handed_on(&stage.ask(&stage.body(Some(&id), &input)).await, &id);
    }
    let mut body = stage.body(Some(&id), &[]);
    body["input"] = "on".into();
    assert_handed_on(&stage.ask(&body).await, &id);
    // All of them are there: the refusals before have cost nothing.
    assert_eq!(notes(&stage.ask(&stage.body(Some(&id), &items)).await), DROPPED);
    // Once the id is known as dead, a body that lacks an item is still handed on.
    assert_handed_on(&stage.ask(&stage.body(Some(&id), &items[1..])).await, &id);
}

/// Two providers with the same counters give two callers the same ids.
#[tokio::test]
async fn two_callers_with_equal_ids_never_share_a_chain() {
    let stage = Stage::new(false).await;
    let (items, id) = stage.begin().await;
    stage.lose_responses();
    // The other caller sends the first one's body, with every item.
    let body = stage.body(Some(&id), &items);
    assert_handed_on(&stage.ask_as("sk-two", &body).await, &id);
    assert_eq!(notes(&stage.ask(&body).await), DROPPED);
    // What the first caller's resend has proven is nothing for the other either.
    assert_handed_on(&stage.ask_as("sk-two", &body).await, &id);
    let nobody = stage.app.ask(post_with(PATH, &[], body.to_string().as_bytes())).await;
    assert_handed_on(&nobody, &id);
}

#[tokio::test]
async fn after_a_restart_nothing_is_known() {
    let stage = Stage::new(false).await;
    let (items, id) = stage.begin().await;
    let body = stage.body(Some(&id), &items);
    // The chain of an unknown parent is not known either.
    let app = before(stage.provider.address()).start().await;
    let fields = [("authorization", "Bearer sk-one")];
    let answer = app.ask(post_with(PATH, &fields, body.to_string().as_bytes())).await;
    let (output, next) = answered(&answer, false);
    stage.lose_responses();
    assert_handed_on(
        &app.ask(post_with(PATH, &fields, body.to_string().as_bytes())).await,
        &id,
    );
    let more = [items, output, vec![user("more")]].concat();
    let body = stage.body(Some(&next), &more);
    assert_handed_on(
        &app.ask(post_with(PATH, &fields, body.to_string().as_bytes())).await,
        &next,
    );
}

/// The account has changed: neither the response nor the reasoning is its own.
#[tokio::test]
async fn a_dead_id_and_foreign_reasoning_go_in_three_sends() {
    let stage = Stage::new(false).await;
    let (mut items, id) = stage.begin().await;
    stage.provider.remember(|memory| {
        memory.forget_responses();
        memory.forget_seals();
    });
    let answer = stage.ask(&stage.body(Some(&id), &items)).await;
    assert_eq!(notes(&answer), (200, "3", "dropped=3"), "{}", answer.text());
    let before = stage.sent();
    assert!(!before.contains("gAAAA") && !before.contains(&id), "{before}");
    // Both removals are remembered.
    items.extend(answered(&answer, false).0);
    items.push(user("more"));
    let answer = stage.ask(&stage.body(Some(&id), &items)).await;
    assert_eq!(notes(&answer), (200, "1", "dropped=3"), "{}", answer.text());
    assert!(stage.sent().starts_with(before.strip_suffix("]}").unwrap()));
}

/// A provider that refuses the body without the id in the same words gets no third send.
#[tokio::test]
async fn a_refusal_of_the_body_without_the_id_is_final() {
    let stage = Stage::new(false).await;
    let (items, id) = stage.begin().await;
    let refusal = json!({"error": {"message": format!("Previous response with id '{id}' not found."),
        "code": "previous_response_not_found"}});
    for _ in 0..3 {
        stage.provider.reply(Reply::Status(400, refusal.clone()));
    }
    let answer = stage.ask(&stage.body(Some(&id), &items)).await;
    assert_eq!(
        (answer.status(), answer.header("x-antiphon-attempts")),
        (400, Some("2"))
    );
}

/// A server that counts its responses from one again after a restart.
#[tokio::test(start_paused = true)]
async fn an_id_that_two_responses_had_stands_for_neither() {
    let refusal = r#"{"error":{"message":"Response with id 'resp_1' not found.","code":404}}"#;
    // The caller that gets the same id for another conversation.
    for other in ["nobody", "sk-one", "sk-two"] {
        let world = World::new();
        world.otherwise(move |request| {
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            if body["previous_response_id"].is_string() {
                return reply(404, refusal);
            }
            let words = body["input"][0]["content"].as_str().unwrap();
            let item = json!({"type": "message", "role": "assistant", "content": words});
            let answer = json!({"id": "resp_1", "object": "response", "status": "completed", "output": [item]});
            reply(200, &answer.to_string())
        });
        let ask_as = async |key: &str, previous: Option<&str>, input: Value| {
            let body = json!({"model": "m", "previous_response_id": previous, "input": input}).to_string();
            let head = format!("Bearer {key}");
            let sent = post_with(PATH, &[("authorization", head.as_str())], body.as_bytes());
            outcome(&world.ask(sent).await)
        };
        let ask = async |previous: Option<&str>, input: Value| ask_as("sk-one", previous, input).await;
        let history = |words: &str| json!([user(words), {"role": "assistant", "content": words}, user("on")]);
        assert_eq!(ask(None, json!([user("a")])).await, (200, "1".to_owned()));
        // The same conversation once more, as after a lost connection, changes nothing.
        assert_eq!(ask(None, json!([user("a")])).await, (200, "1".to_owned()));
        if other != "nobody" {
            assert_eq!(ask_as(other, None, json!([user("b")])).await, (200, "1".to_owned()));
        }
        let wanted = if other == "sk-one" { (404, "1") } else { (200, "2") };
        assert_eq!(
            ask(Some("resp_1"), history("a")).await,
            (wanted.0, wanted.1.to_owned()),
            "{other}"
        );
        if other == "sk-two" {
            assert_eq!(ask_as(other, Some("resp_1"), history("a")).await, (404, "1".to_owned()));
            assert_eq!(ask_as(other, Some("resp_1"), history("b")).await, (200, "2".to_owned()));
        }
    }
}

#[test]
fn long_histories_and_long_chains_cost_linear_work() {
    let item = |number: usize| format!(r#"{{"role":"user","content":"{number}"}}"#);
    let body = |previous: &str, items: &[String]| format!(r#"{{{previous}"input":[{}]}}"#, items.join(","));
    let chain = |body: &str, parent| ContinuedBody::read(body.as_bytes()).unwrap().chain(parent).unwrap();
    // 10^5 items in one body.
    let input = |count: usize| {
        let items: Vec<String> = (0..count).map(item).collect();
        body("", &items)
    };
    is_linear("items", 3125, input, |body| {
        let whole = chain(body, None);
        assert!(ContinuedBody::read(body.as_bytes()).unwrap().begins_with(whole));
    });
    // 10^4 requests, each of which continues from the one before, stand for the same items as one body.
    let next = |number: usize| body(r#""previous_response_id":"r","#, &[item(number)]);
    let links = |count: usize| (1..count).map(next).collect::<Vec<_>>();
    is_linear("links", 313, links, |links| {
        let first = chain(&body("", &[item(0)]), None);
        let last = links.iter().fold(first, |parent, body| chain(body, Some(parent)));
        let all = input(links.len() + 1);
        assert!(ContinuedBody::read(all.as_bytes()).unwrap().begins_with(last));
    });
}

/// State besides the id: a conversation, a template, a background answer.
#[tokio::test]
async fn items_that_only_the_provider_has_make_no_chain() {
    for (member, value) in [("conversation", json!("conv_1")), ("prompt", json!({"id": "pmpt_1"}))] {
        let stage = Stage::new(false).await;
        let items = vec![user("go")];
        let mut body = stage.body(None, &items);
        body[member] = value;
        let answer = stage.ask(&body).await;
        assert_eq!(answer.status(), 200, "{member}: {}", answer.text());
        let (output, id) = answered(&answer, false);
        stage.lose_responses();
        let input = [items, output, vec![user("on")]].concat();
        assert_handed_on(&stage.ask(&stage.body(Some(&id), &input)).await, &id);
    }
}

/// Whatever the key or the mode forbids stays the client's own matter.
#[tokio::test]
async fn modes_and_the_key_decide() {
    let off = Stage::with(false, |builder| {
        builder.proxy.policy.foreign_thinking = OnForeignThinking::Ignore;
    })
    .await;
    let (items, id) = off.begin().await;
    off.lose_responses();
    assert_handed_on(&off.ask(&off.body(Some(&id), &items)).await, &id);

    let stage = Stage::new(false).await;
    let (items, id) = stage.begin().await;
    stage.lose_responses();
    let body = stage.body(Some(&id), &items);
    let as_mode = |mode: Mode| {
        let body = body.to_string();
        let fields = [("authorization", "Bearer sk-one"), ("x-antiphon-mode", mode.label())];
        post_with(PATH, &fields, body.as_bytes())
    };
    // Nothing is known of the id, so there is nothing to name.
    let strict = stage.app.ask(as_mode(Mode::Strict)).await;
    assert_eq!(strict.json()["error"]["code"], "previous_response_not_found");
    assert_eq!(notes(&stage.ask(&body).await), DROPPED);
    let strict = stage.app.ask(as_mode(Mode::Strict)).await;
    assert_eq!(
        (strict.status(), strict.header("x-antiphon-repair")),
        (400, Some("rejected"))
    );
    assert!(strict.text().contains("dead_response"), "{}", strict.text());
}

#[tokio::test]
async fn an_observed_body_is_counted_and_left_as_it_is() {
    let stage = Stage::with(false, |builder| builder.proxy.trust_mode_header = true).await;
    let (items, id) = stage.begin().await;
    stage.lose_responses();
    let body = stage.body(Some(&id), &items).to_string();
    assert_eq!(notes(&stage.ask(&serde_json::from_str(&body).unwrap()).await), DROPPED);
    let fields = [("authorization", "Bearer sk-one"), ("x-antiphon-mode", "observe")];
    let answer = stage.app.ask(post_with(PATH, &fields, body.as_bytes())).await;
    assert_eq!(notes(&answer), (400, "1", "observed"), "{}", answer.text());
    assert_eq!(stage.sent(), body);
    let page = stage.app.telemetry.encode_metrics();
    let line = "antiphon_findings_total{kind=\"dead_response\",format=\"openai_responses\"} 2";
    assert!(page.contains(line), "{page}");
}

#[tokio::test]
async fn a_compressed_body_goes_without_the_id_too() {
    let stage = Stage::new(false).await;
    let (items, id) = stage.begin().await;
    stage.lose_responses();
    let body = stage.body(Some(&id), &items).to_string();
    let fields = [("authorization", "Bearer sk-one"), ("content-encoding", "gzip")];
    for wanted in [DROPPED, (200, "1", "dropped=1")] {
        let answer = stage.app.ask(post_with(PATH, &fields, &gzipped(&body))).await;
        assert_eq!(notes(&answer), wanted, "{}", answer.text());
        let last = stage.provider.last();
        assert!(!last.headers.contains_key("content-encoding"));
        assert!(!stage.sent().contains("previous_response_id") && stage.sent().contains("call_1"));
    }
}
