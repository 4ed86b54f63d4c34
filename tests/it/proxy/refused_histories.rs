//! Histories that a server refuses for the form of a call or the place of text: refused directly, repaired after the
//! server's own words, and repaired at once from then on.

use antiphon::{
    provider::ProviderKind,
    wire::{Dialect, Format, Wire},
};
use serde_json::{Value, json};

use crate::{
    proxy::{
        refusal_resends::{answer, notes, refused, second_repairs},
        refused_ids::app_as,
    },
    support::{
        app::{App, Builder, before, post_with},
        judge::{self, ArgumentReader, BridgeWords, NameReader, ServerRules},
        pool,
        provider::Provider,
        wire::Upstream,
    },
};

/// One kind of server, and a history that it refuses.
pub(crate) struct Story {
    pub(crate) name: &'static str,
    pub(crate) wire: Wire,
    pub(crate) rules: ServerRules,
    /// Messages, items or contents.
    pub(crate) history: Value,
    /// The repair, as the header names it.
    pub(crate) repair: &'static str,
}

const CUT_OFF: &str = "{\"command\": \"cd /x && git";

fn wire(name: &str) -> Wire {
    name.parse().expect("a wire")
}

pub(crate) fn chat(name: &str, arguments: &Value) -> Value {
    json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": null, "tool_calls":
            [{"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "error"},
        {"role": "user", "content": "again"},
    ])
}

fn responses(arguments: &str) -> Value {
    json!([
        {"role": "user", "content": "go"},
        {"type": "function_call", "call_id": "call_1", "name": "bash", "arguments": arguments},
        {"type": "function_call_output", "call_id": "call_1", "output": "error"},
        {"role": "user", "content": "again"},
    ])
}

pub(crate) fn messages(blocks: &[Value], results: &[Value]) -> Value {
    json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": results},
    ])
}

pub(crate) fn call(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "bash", "input": {}})
}

pub(crate) fn result(id: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": "ok"})
}

pub(crate) fn text(words: &str) -> Value {
    json!({"type": "text", "text": words})
}

pub(crate) fn stories() -> Vec<Story> {
    let compatible = wire("openai-chat-compatible");
    let arguments = |name, reader, arguments: Value| Story {
        name,
        wire: compatible,
        rules: ServerRules::reading(reader),
        history: chat("bash", &arguments),
        repair: "fixed=1",
    };
    let mut stories = vec![
        arguments("cut off, Qwen", ArgumentReader::Qwen, json!(CUT_OFF)),
        arguments("cut off, vLLM", ArgumentReader::Vllm, json!(CUT_OFF)),
        arguments("two objects, vLLM", ArgumentReader::Vllm, json!("{\"a\":1}{\"b\":2}")),
        arguments("cut off, SGLang", ArgumentReader::Sglang, json!(CUT_OFF)),
        arguments("a list, SGLang", ArgumentReader::Sglang, json!("[1]")),
        arguments("cut off, llama.cpp", ArgumentReader::LlamaCpp, json!(CUT_OFF)),
        arguments("cut off, NEAR", ArgumentReader::NearAi, json!(CUT_OFF)),
        arguments("empty, NEAR", ArgumentReader::NearAi, json!("")),
        arguments("a list, codegraff", ArgumentReader::Codegraff, json!("[1]")),
        arguments("cut off, MiniMax", ArgumentReader::MiniMax, json!(CUT_OFF)),
    ];
    stories.extend(other_stories());
    stories
}

/// Returns the stories about names and about the place of text.
fn other_stories() -> Vec<Story> {
    let compatible = wire("openai-chat-compatible");
    let mut stories = Vec::new();
    stories.push(Story {
        name: "cut off, behind Responses",
        wire: wire("openai-responses-compatible"),
        rules: ServerRules::reading(ArgumentReader::NearAi),
        history: responses(CUT_OFF),
        repair: "fixed=1",
    });
    stories.push(Story {
        name: "a name, OpenAI",
        wire: wire("openai-chat"),
        rules: ServerRules {
            names: Some(NameReader::OpenAi),
            ..ServerRules::default()
        },
        history: chat("mcp.read", &json!("{}")),
        repair: "fixed=1",
    });
    for (name, words) in [
        ("bridge, vLLM", BridgeWords::Plain),
        ("bridge, with a code", BridgeWords::Code3230),
    ] {
        stories.push(Story {
            name,
            wire: compatible,
            rules: ServerRules {
                bridge: Some(words),
                ..ServerRules::default()
            },
            history: chat("bash", &json!("{}")),
            repair: "rearranged=1",
        });
    }
    for (name, of) in [
        ("text after a call, Anthropic", "anthropic"),
        ("text after a call, Bedrock", "anthropic-bedrock"),
    ] {
        stories.push(Story {
            name,
            wire: wire(of),
            rules: ServerRules {
                calls_last: true,
                ..ServerRules::default()
            },
            history: messages(
                &[text("a"), call("toolu_1"), text("b"), call("toolu_2")],
                &[result("toolu_1"), result("toolu_2")],
            ),
            repair: "rearranged=1",
        });
    }
    stories.push(Story {
        name: "text beside a result, under another name",
        wire: wire("anthropic-compatible"),
        rules: ServerRules {
            only_results: true,
            ..ServerRules::default()
        },
        history: messages(&[call("toolu_1")], &[result("toolu_1"), text("hurry")]),
        repair: "rearranged=1",
    });
    stories
}

/// Returns the stories about results. No key switches their repairs off.
fn result_stories() -> Vec<Story> {
    let output = |members: Value| {
        let mut item = json!({"type": "custom_tool_call_output", "call_id": "call_1"});
        item.as_object_mut()
            .unwrap()
            .extend(members.as_object().unwrap().clone());
        item
    };
    vec![Story {
        name: "a further output, a gateway",
        wire: wire("openai-responses-compatible"),
        rules: ServerRules {
            one_output: true,
            ..ServerRules::default()
        },
        history: json!([
            {"role": "user", "content": "go"},
            {"type": "custom_tool_call", "call_id": "call_1", "name": "exec", "input": "notify('half')"},
            output(json!({"output": "done"})),
            output(json!({"name": "exec", "output": "half"})),
            {"role": "user", "content": "again"},
        ]),
        repair: "quoted=1",
    }]
}

pub(crate) fn kind(wire: Wire) -> ProviderKind {
    match (wire.dialect, wire.format) {
        (Dialect::Bedrock, _) => ProviderKind::Bedrock,
        (Dialect::Standard, Format::Anthropic) => ProviderKind::Anthropic,
        (Dialect::Standard, Format::Gemini) => ProviderKind::Gemini,
        (Dialect::Standard, _) => ProviderKind::OpenAi,
        _ => ProviderKind::Compatible,
    }
}

pub(crate) fn path(format: Format) -> &'static str {
    match format {
        Format::Anthropic => "/x/v1/messages",
        Format::OpenAiChat => "/x/v1/chat/completions",
        Format::OpenAiResponses => "/x/v1/responses",
        Format::Gemini => "/x/v1beta/models/gemini-3-pro:generateContent",
    }
}

/// Returns a request of `model` with this history, and `more` at its end.
pub(crate) fn request(format: Format, model: &str, history: &Value, more: &[Value]) -> Value {
    let list: Vec<Value> = history.as_array().unwrap().iter().chain(more).cloned().collect();
    match format {
        Format::OpenAiResponses => json!({"model": model, "input": list}),
        Format::Gemini => json!({"contents": list}),
        Format::Anthropic => json!({"model": model, "max_tokens": 9, "messages": list}),
        Format::OpenAiChat => json!({"model": model, "messages": list}),
    }
}

async fn ask(app: &App, secret: &str, format: Format, body: &Value) -> (u16, String, String) {
    let bearer = format!("Bearer {secret}");
    let head = [("Authorization", bearer.as_str()), ("x-api-key", secret)];
    let answer = app
        .ask(post_with(path(format), &head, body.to_string().as_bytes()))
        .await;
    let (status, sends, repair) = notes(&answer);
    (status, sends.to_owned(), repair.to_owned())
}

/// Returns what follows the history in the next request.
pub(crate) fn goes_on() -> [Value; 2] {
    [
        json!({"role": "assistant", "content": "hm"}),
        json!({"role": "user", "content": "on"}),
    ]
}

#[tokio::test]
async fn a_refused_history_passes_and_stays_the_same() {
    for story in stories().into_iter().chain(result_stories()) {
        let (name, format) = (story.name, story.wire.format);
        let (server, dialect) = judge::reading(story.wire);
        let body = request(format, "m", &story.history, &[]);
        judge::judge_with(server, dialect, &story.rules, &judge::ServerMemory::default(), &body)
            .expect_err("the server refuses it directly");
        let provider = Provider::ruled(&[story.wire], story.rules).await;
        let app = app_as(provider.address(), kind(story.wire)).await;
        let once = ("2".to_owned(), story.repair.to_owned());
        let (status, sends, repair) = ask(&app, "sk-a", format, &body).await;
        assert_eq!((status, (sends, repair)), (200, once.clone()), "{name}");
        assert_eq!(second_repairs(&app, "pairing"), "1", "{name}");
        let mended = provider.last().body;

        // From now on in the first send, with the same bytes before the new messages.
        let longer = request(format, "m", &story.history, &goes_on());
        let (status, sends, _) = ask(&app, "sk-a", format, &longer).await;
        assert_eq!((status, sends.as_str()), (200, "1"), "{name}");
        let next = provider.last().body;
        let shared = mended.iter().zip(&next).take_while(|(one, other)| one == other).count();
        let end = String::from_utf8_lossy(&mended[shared..]).into_owned();
        assert!(end.len() <= 2, "{name}: {end:?} of the first body is not in the second");

        // What one caller or model taught is not believed for another.
        let (status, sends, _) = ask(&app, "sk-b", format, &body).await;
        assert_eq!((status, sends.as_str()), (200, "2"), "{name}, another caller");
        if format != Format::Gemini {
            let other = request(format, "m2", &story.history, &[]);
            let (status, sends, _) = ask(&app, "sk-a", format, &other).await;
            assert_eq!((status, sends.as_str()), (200, "2"), "{name}, another model");
        }

        // Forgotten with the process: one more send, and the same bytes.
        let again = app_as(provider.address(), kind(story.wire)).await;
        let (status, sends, _) = ask(&again, "sk-a", format, &longer).await;
        assert_eq!((status, sends.as_str()), (200, "2"), "{name}, after a restart");
        assert_eq!(provider.last().body, next, "{name}, after a restart");
    }
}

/// The control: servers that accept these histories get them unchanged.
#[tokio::test]
async fn a_server_that_accepts_the_history_gets_it_unchanged() {
    for story in stories().into_iter().chain(result_stories()) {
        let format = story.wire.format;
        let provider = Provider::reading(&[story.wire]).await;
        let app = app_as(provider.address(), kind(story.wire)).await;
        let body = request(format, "m", &story.history, &[]).to_string();
        let answer = app.ask(post_with(path(format), &[], body.as_bytes())).await;
        assert_eq!(notes(&answer), (200, "1", "none"), "{}: {}", story.name, answer.text());
        assert_eq!(provider.last().body, body.as_bytes(), "{}", story.name);
    }
}

/// Without its key each class stays as it was: the refusal reaches the client.
#[tokio::test]
async fn each_class_can_be_switched_off() {
    for story in stories() {
        let format = story.wire.format;
        let provider = Provider::ruled(&[story.wire], story.rules).await;
        let settings = |builder: &mut Builder| {
            builder.upstreams.truncate(1);
            builder.upstreams[0].name.replace_range(.., "x");
            builder.upstreams[0].kind = kind(story.wire);
            builder.proxy.policy.shapes = false;
            builder.proxy.policy.malformed_calls = false;
        };
        let app = before(provider.address()).with(settings).start().await;
        let body = request(format, "m", &story.history, &[]);
        let (status, sends, repair) = ask(&app, "sk-a", format, &body).await;
        assert!(status >= 400, "{}", story.name);
        assert_eq!((sends.as_str(), repair.as_str()), ("1", "none"), "{}", story.name);
    }
}

/// Only an accepted resend teaches a rule: the words of a refusal may be the client's own, echoed.
#[tokio::test]
async fn a_refused_resend_teaches_nothing() {
    let refused = || refused("Assistant tool call function.arguments must be valid JSON.");
    let accepted = answer(200, "application/json", "{}");
    let upstream = Upstream::answering_each([refused(), refused(), accepted]).await;
    let app = app_as(upstream.address, ProviderKind::Compatible).await;
    let body = request(Format::OpenAiChat, "m", &chat("bash", &json!(CUT_OFF)), &[]);
    let (status, sends, _) = ask(&app, "sk-a", Format::OpenAiChat, &body).await;
    assert_eq!((status, sends.as_str()), (400, "2"));
    let (status, sends, repair) = ask(&app, "sk-a", Format::OpenAiChat, &body).await;
    assert_eq!((status, sends.as_str(), repair.as_str()), (200, "1", "none"));
    assert_eq!(upstream.requests()[2].text(), body.to_string());
}

/// The repair of a refused pair stays in a resend that another refusal causes.
#[tokio::test]
async fn a_repaired_pair_stays_repaired_through_a_second_refusal() {
    const IDS: [&str; 2] = ["toolu_01A09q90qw90lq917835lq9", "toolu_01B19q90qw90lq917835lq9"];
    let pair = format!(
        "messages.3: `tool_use` ids were found without `tool_result` blocks immediately after: {}",
        IDS[1]
    );
    let foreign = "messages.1.content.0: Invalid `signature` in `thinking` block";
    let accepted = answer(200, "application/json", "{}");
    let upstream = Upstream::answering_each([refused(&pair), refused(foreign), accepted]).await;
    let app = app_as(upstream.address, ProviderKind::Anthropic).await;
    let thinking = json!({"type": "thinking", "thinking": "t", "signature": "EqQBother"});
    let history = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [thinking, text("hm")]},
        {"role": "user", "content": "on"},
        {"role": "assistant", "content": IDS.map(call)},
        {"role": "user", "content": [result(IDS[0])]},
        {"role": "user", "content": [result(IDS[1])]},
        {"role": "assistant", "content": [text("done")]},
        {"role": "user", "content": "and now?"},
    ]);
    let body = request(Format::Anthropic, "m", &history, &[]);
    let (status, sends, _) = ask(&app, "sk-a", Format::Anthropic, &body).await;
    assert_eq!((status, sends.as_str()), (200, "3"));
    let sent: Vec<Value> = upstream.requests()[1..]
        .iter()
        .map(|sent| serde_json::from_slice(&sent.body).unwrap())
        .collect();
    let [second, third] = sent.as_slice() else {
        panic!("{sent:#?}")
    };
    let mut without = second.clone();
    without["messages"][1]["content"].as_array_mut().unwrap().remove(0);
    assert_ne!(second, &body, "the pair is repaired");
    assert_eq!(third, &without);
}

/// The body before all repairs contains the thinking that the provider has refused, so it is not tried again.
#[tokio::test]
async fn refused_thinking_never_returns_in_a_fallback() {
    const ID: &str = "toolu_01A09q90qw90lq917835lq9";
    let foreign = "messages.1.content.0: Invalid `signature` in `thinking` block";
    let blameless = format!("messages.3.content.0: unexpected `tool_use_id` found in `tool_result` blocks: {ID}");
    let accepted = answer(200, "application/json", "{}");
    let upstream = Upstream::answering_each([refused(foreign), refused(&blameless), accepted]).await;
    let app = app_as(upstream.address, ProviderKind::Anthropic).await;
    let thinking = json!({"type": "thinking", "thinking": "t", "signature": "EqQBother"});
    let history = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [thinking, call(ID)]},
        {"role": "user", "content": [result(ID)]},
        {"role": "assistant", "content": [text("done")]},
        {"role": "user", "content": "and now?"},
    ]);
    let body = request(Format::Anthropic, "m", &history, &[]);
    let (status, _, _) = ask(&app, "sk-a", Format::Anthropic, &body).await;
    let sent: Vec<String> = upstream.requests().iter().map(|sent| sent.text().to_owned()).collect();
    assert!(
        sent[1..].iter().all(|body| !body.contains("EqQBother")),
        "{status}: {sent:#?}"
    );
}

/// An error in the first event of a stream is no acceptance, whatever its status.
#[tokio::test]
async fn a_stream_that_begins_with_an_error_teaches_nothing() {
    let refused = refused("Assistant tool call function.arguments must be valid JSON.");
    let event = "data: {\"error\":{\"message\":\"no\",\"type\":\"invalid_request_error\",\"code\":null}}\n\n";
    let failed = answer(200, "text/event-stream", event);
    let accepted = answer(200, "application/json", "{}");
    let upstream = Upstream::answering_each([refused, failed, accepted]).await;
    let pooled = |builder: &mut Builder| {
        builder.upstreams.truncate(1);
        builder.upstreams[0].name.replace_range(.., "x");
        builder.upstreams[0].kind = ProviderKind::Compatible;
        builder
            .profiles
            .insert("x".to_owned(), vec![pool::profile("a", None, 1)]);
    };
    let app = before(upstream.address).with(pooled).start().await;
    let mut body = request(Format::OpenAiChat, "m", &chat("bash", &json!(CUT_OFF)), &[]);
    body["stream"] = json!(true);
    let (_, sends, _) = ask(&app, "sk-a", Format::OpenAiChat, &body).await;
    assert_eq!(sends, "2");
    let (status, sends, repair) = ask(&app, "sk-a", Format::OpenAiChat, &body).await;
    assert_eq!((status, sends.as_str(), repair.as_str()), (200, "1", "none"));
    assert_eq!(upstream.requests()[2].text(), body.to_string());
}

/// A token count may accept what the model refuses, so an accepted one teaches nothing.
#[tokio::test]
async fn an_accepted_token_count_teaches_nothing() {
    let rule = refused(
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_01A09q90qw90lq917835lq9",
    );
    let accepted = answer(200, "application/json", "{}");
    let upstream = Upstream::answering_each([rule, accepted.clone(), accepted]).await;
    let app = app_as(upstream.address, ProviderKind::Anthropic).await;
    let id = "toolu_01A09q90qw90lq917835lq9";
    let body = request(
        Format::Anthropic,
        "m",
        &messages(&[call(id), text("behind")], &[result(id)]),
        &[],
    );
    let head = [("x-api-key", "sk-a")];
    let count = post_with("/x/v1/messages/count_tokens", &head, body.to_string().as_bytes());
    assert_eq!(notes(&app.ask(count).await), (200, "2", "rearranged=1"));
    let (status, sends, repair) = ask(&app, "sk-a", Format::Anthropic, &body).await;
    assert_eq!((status, sends.as_str(), repair.as_str()), (200, "1", "none"));
}

/// A history with two faults: both rules are learned from one exchange, of three sends.
#[tokio::test]
async fn two_refusals_of_one_request_teach_both_rules() {
    let (compatible, format) = (wire("openai-chat-compatible"), Format::OpenAiChat);
    let rules = ServerRules {
        bridge: Some(BridgeWords::Plain),
        ..ServerRules::reading(ArgumentReader::NearAi)
    };
    let provider = Provider::ruled(&[compatible], rules).await;
    let app = app_as(provider.address(), ProviderKind::Compatible).await;
    let body = request(format, "m", &chat("bash", &json!(CUT_OFF)), &[]);
    let (status, sends, repair) = ask(&app, "sk-a", format, &body).await;
    assert_eq!(
        (status, sends.as_str(), repair.as_str()),
        (200, "3", "fixed=1, rearranged=1")
    );
    let mended = provider.last().body;
    let (status, sends, _) = ask(&app, "sk-a", format, &body).await;
    assert_eq!((status, sends.as_str()), (200, "1"));
    assert_eq!(provider.last().body, mended, "the same bytes at once");
}

/// A conversation that the provider has accepted keeps its shape: its prefix may be cached.
#[tokio::test]
async fn an_accepted_conversation_keeps_its_shape() {
    // Such an id belongs to one conversation, unlike a counter.
    const OLDER: &str = "toolu_01A09q90qw90lq917835lq9";
    const NEWER: &str = "toolu_01B19q90qw90lq917835lq9";
    let (accepted, format) = (answer(200, "application/json", "{}"), Format::Anthropic);
    let rule = refused(
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_01B19q90qw90lq917835lq9",
    );
    let answers = [
        accepted.clone(),
        rule.clone(),
        accepted.clone(),
        accepted.clone(),
        rule,
        accepted.clone(),
        accepted,
    ];
    let upstream = Upstream::answering_each(answers).await;
    let app = app_as(upstream.address, ProviderKind::Anthropic).await;
    let conversation = |id: &str, more: &[Value]| {
        let history = messages(&[call(id), text("behind")], &[result(id)]);
        request(format, "m", &history, more)
    };
    let (status, sends, repair) = ask(&app, "sk-a", format, &conversation(OLDER, &[])).await;
    assert_eq!(
        (status, sends.as_str(), repair.as_str()),
        (200, "1", "none"),
        "accepted as it is"
    );
    let (status, sends, repair) = ask(&app, "sk-a", format, &conversation(NEWER, &[])).await;
    assert_eq!(
        (status, sends.as_str(), repair.as_str()),
        (200, "2", "rearranged=1"),
        "taught by another"
    );
    let older = conversation(OLDER, &goes_on());
    let (status, sends, repair) = ask(&app, "sk-a", format, &older).await;
    assert_eq!(
        (status, sends.as_str(), repair.as_str()),
        (200, "1", "none"),
        "the older one keeps its prefix"
    );
    assert_eq!(upstream.requests()[3].text(), older.to_string());
    // Once this conversation is refused too, its shape is repaired at once.
    let (status, sends, repair) = ask(&app, "sk-a", format, &older).await;
    assert_eq!((status, sends.as_str(), repair.as_str()), (200, "2", "rearranged=1"));
    let (status, sends, repair) = ask(&app, "sk-a", format, &older).await;
    assert_eq!((status, sends.as_str(), repair.as_str()), (200, "1", "rearranged=1"));
}

/// Gemini's Interactions share the path and the key `input` with Responses. Their bodies are sent as they came.
#[tokio::test]
async fn a_body_of_interactions_is_never_repaired() {
    let upstream = Upstream::answering_each([answer(200, "application/json", "{}")]).await;
    let app = app_as(upstream.address, ProviderKind::Compatible).await;
    let body = r#"{"model":"gemini-3.5-flash","store":false,"input":[
        {"type":"user_input","content":[{"type":"text","text":"go"}]},
        {"type":"function_call","id":"c1","name":"f","arguments":{"a":1}},
        {"type":"user_input","content":[{"type":"text","text":"hurry"}]}]}"#;
    let head = [("Authorization", "Bearer sk-a")];
    let answer = app.ask(post_with("/x/v1/responses", &head, body.as_bytes())).await;
    assert_eq!(notes(&answer), (200, "1", "unreadable"));
    assert_eq!(upstream.requests()[0].text(), body);
}
