//! What an answer carried and the client drops is put back: reasoning, thought signatures, containers.
//!
//! The strict provider judges: it refuses a body without the value, and one with a value that it did not make.

use std::sync::Arc;

use antiphon::{ledger::Ledger, provider::ProviderKind, repair::Mode, wire::Wire};
use serde_json::{Value, json};

use crate::{
    proxy::{refusal_resends::second_repairs, strict_provider},
    support::{
        app::{App, Builder, before, post_with},
        judge::ServerRules,
        kept, pool,
        provider::{Provider, Reply, ToolCall},
        wire::Message,
    },
};

/// A kind of server, and the value that it wants back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) kind: ProviderKind,
    pub(crate) wire: &'static str,
    pub(crate) rules: ServerRules,
    pub(crate) path: &'static str,
    model: &'static str,
    /// The value, as the metric calls it.
    what: &'static str,
    /// `true` if the rule is documented, so that no refusal has to teach it.
    at_once: bool,
    /// `true` if the value may reach the disk.
    pub(crate) lasts: bool,
    /// The documented value that stands for a lost one.
    pub(crate) neutral: Option<&'static str>,
}

const CHAT: &str = "/x/v1/chat/completions";
const SIGNED: ServerRules = ServerRules {
    made_here: true,
    ..ServerRules::GEMINI
};

pub(crate) const DEEPSEEK: Server = Server {
    name: "DeepSeek",
    kind: ProviderKind::DeepSeek,
    wire: "openai-chat-deepseek",
    rules: ServerRules::DEEPSEEK,
    path: CHAT,
    model: "deepseek-v4-pro",
    what: "reasoning_content",
    at_once: true,
    lasts: false,
    neutral: Some(""),
};

pub(crate) const KIMI: Server = Server {
    name: "Kimi",
    kind: ProviderKind::Compatible,
    wire: "openai-chat-compatible",
    rules: ServerRules::KIMI,
    model: "kimi-k3",
    at_once: false,
    ..DEEPSEEK
};

pub(crate) const DEEPSEEK_MESSAGES: Server = Server {
    name: "DeepSeek's Messages",
    wire: "anthropic-deepseek",
    path: "/x/v1/messages",
    ..DEEPSEEK
};

/// DeepSeek behind a gateway: only its refusal tells what it wants.
pub(crate) const GATEWAY: Server = Server {
    name: "a gateway to DeepSeek's Messages",
    kind: ProviderKind::Compatible,
    wire: "anthropic-compatible",
    at_once: false,
    ..DEEPSEEK_MESSAGES
};

pub(crate) const GEMINI: Server = Server {
    name: "Gemini",
    kind: ProviderKind::Gemini,
    wire: "gemini",
    rules: SIGNED,
    path: "/x/v1beta/models/gemini-3-pro:generateContent",
    model: "gemini-3-pro",
    what: "thought_signature",
    at_once: true,
    lasts: true,
    neutral: Some("skip_thought_signature_validator"),
};

pub(crate) const GEMINI_CHAT: Server = Server {
    name: "Gemini through Chat Completions",
    wire: "openai-chat-compatible",
    path: CHAT,
    ..GEMINI
};

/// Gemini's rule under a model name that does not show the generation, in the words of Vertex AI.
pub(crate) const VERTEX: Server = Server {
    name: "Gemini at Vertex, by an alias",
    rules: ServerRules {
        made_here: true,
        ..ServerRules::VERTEX
    },
    path: "/x/v1beta/models/gemini-flash-latest:generateContent",
    model: "gemini-flash-latest",
    at_once: false,
    ..GEMINI
};

pub(crate) const CONTAINER: Server = Server {
    name: "Anthropic's containers",
    kind: ProviderKind::Anthropic,
    wire: "anthropic",
    rules: ServerRules {
        container: true,
        ..ServerRules {
            arguments: None,
            ..ServerRules::KIMI
        }
    },
    path: "/x/v1/messages",
    model: "claude-opus-5",
    what: "container",
    at_once: true,
    lasts: true,
    neutral: None,
};

pub(crate) const SERVERS: [Server; 8] = [
    DEEPSEEK,
    KIMI,
    DEEPSEEK_MESSAGES,
    GATEWAY,
    GEMINI,
    GEMINI_CHAT,
    VERTEX,
    CONTAINER,
];

impl Server {
    fn is_gemini(self) -> bool {
        self.wire == "gemini"
    }

    fn is_messages(self) -> bool {
        self.wire.starts_with("anthropic")
    }

    fn wants_container(self) -> bool {
        self.what == "container"
    }

    pub(crate) async fn provider(self) -> Provider {
        let wire: Wire = self.wire.parse().unwrap();
        let rules = if self.wants_container() {
            ServerRules {
                container: true,
                ..ServerRules::default()
            }
        } else {
            self.rules
        };
        Provider::ruled(&[wire], rules).await
    }

    /// Returns a user message.
    pub(crate) fn user(self, words: &str) -> Value {
        if self.is_gemini() {
            return json!({"role": "user", "parts": [{"text": words}]});
        }
        json!({"role": "user", "content": words})
    }

    /// Returns the message with a call, as a client writes it that drops everything else.
    pub(crate) fn call(self, id: &str, input: &Value) -> Value {
        if self.is_gemini() {
            return json!({"role": "model", "parts": [{"functionCall": {"id": id, "name": "f", "args": input}}]});
        }
        if self.is_messages() && !self.wants_container() {
            return json!({"role": "assistant", "content": [
                {"type": "tool_use", "id": id, "name": "f", "input": input}]});
        }
        if self.wants_container() {
            let code = json!({"type": "server_tool_use", "id": format!("srv{id}"), "name": "code_execution",
                "input": {"code": "f()"}});
            let caller = json!({"type": "code_execution_20260120", "tool_id": format!("srv{id}")});
            let call = json!({"type": "tool_use", "id": id, "name": "f", "input": input, "caller": caller});
            return json!({"role": "assistant", "content": [code, call]});
        }
        let function = json!({"name": "f", "arguments": input.to_string()});
        json!({"role": "assistant", "content": null,
            "tool_calls": [{"id": id, "type": "function", "function": function}]})
    }

    /// Returns the message with the result of a call.
    pub(crate) fn result(self, id: &str) -> Value {
        if self.is_gemini() {
            let response = json!({"id": id, "name": "f", "response": {"output": "done"}});
            return json!({"role": "user", "parts": [{"functionResponse": response}]});
        }
        if self.is_messages() {
            return json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "done"}]});
        }
        json!({"role": "tool", "tool_call_id": id, "content": "done"})
    }

    /// Returns a message of the model with words only.
    pub(crate) fn text(self, words: &str) -> Value {
        if self.is_gemini() {
            return json!({"role": "model", "parts": [{"text": words}]});
        }
        json!({"role": "assistant", "content": words})
    }

    /// Returns a body with this history.
    pub(crate) fn body(self, history: &[Value], streams: bool) -> String {
        if self.is_gemini() {
            return json!({"contents": history}).to_string();
        }
        json!({"model": self.model, "max_tokens": 99, "stream": streams, "messages": history}).to_string()
    }

    /// Returns the reply with a call.
    pub(crate) fn reply(self, id: &str, input: &Value) -> Reply {
        if self.wants_container() {
            let call = ToolCall {
                id: id.to_owned(),
                name: "f".to_owned(),
                input: input.clone(),
            };
            return Reply::ProgramCalls(format!("container_{id}"), vec![call]);
        }
        Reply::call(id, "f", input.clone())
    }

    /// Returns the name of the list of messages.
    pub(crate) fn history_key(self) -> &'static str {
        if self.is_gemini() { "contents" } else { "messages" }
    }

    /// Returns the place of the value in a message with a call.
    pub(crate) fn value_pointer(self) -> &'static str {
        match (self.is_gemini(), self.what) {
            (true, _) => "/parts/0/thoughtSignature",
            (_, "thought_signature") => "/tool_calls/0/extra_content/google/thought_signature",
            _ if self.is_messages() => "/content/0/thinking",
            _ => "/reasoning_content",
        }
    }

    /// Returns the place of the value in an answer.
    pub(crate) fn answer_pointer(self) -> &'static str {
        match (self.is_gemini(), self.what) {
            (true, _) => "/candidates/0/content/parts/0/thoughtSignature",
            (_, "thought_signature") => "/choices/0/message/tool_calls/0/extra_content/google/thought_signature",
            _ if self.is_messages() => "/content/0/thinking",
            _ => "/choices/0/message/reasoning_content",
        }
    }

    /// Writes the value into a message, as a client does that keeps it.
    pub(crate) fn keep_value(self, message: &mut Value, value: &str) {
        match (self.is_gemini(), self.what) {
            (true, _) => message["parts"][0]["thoughtSignature"] = value.into(),
            (_, "thought_signature") => {
                message["tool_calls"][0]["extra_content"] = json!({"google": {"thought_signature": value}});
            }
            _ if self.is_messages() => {
                let block = json!({"type": "thinking", "thinking": value, "signature": "s"});
                message["content"].as_array_mut().unwrap().insert(0, block);
            }
            _ => message["reasoning_content"] = value.into(),
        }
    }

    /// Returns the values in a body, in order.
    pub(crate) fn values(self, body: &str) -> Vec<String> {
        let body: Value = serde_json::from_str(body).unwrap();
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        if self.wants_container() {
            return text(body.get("container")).into_iter().collect();
        }
        let messages = body[self.history_key()].as_array().unwrap().iter();
        messages
            .filter_map(|message| text(message.pointer(self.value_pointer())))
            .collect()
    }
}

/// A provider and the proxies before it, on one ledger.
pub(crate) struct Stage {
    pub(crate) server: Server,
    pub(crate) provider: Provider,
    ledger: Arc<dyn Ledger>,
    keeps_seen: bool,
    pub(crate) app: App,
}

/// The outcome of one request.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: u16,
    pub(crate) sends: String,
    pub(crate) repair: String,
    /// The body of the last send.
    pub(crate) up: String,
    pub(crate) text: String,
}

impl Outcome {
    pub(crate) fn notes(&self) -> (u16, &str, &str) {
        (self.status, &self.sends, &self.repair)
    }
}

impl Stage {
    pub(crate) async fn new(server: Server) -> Self {
        Self::with(server, kept::durable(), false, |_| {}).await
    }

    pub(crate) async fn with(
        server: Server,
        ledger: Arc<dyn Ledger>,
        keeps_seen: bool,
        change: impl FnOnce(&mut Builder),
    ) -> Self {
        let provider = server.provider().await;
        let app = start(server, &provider, &ledger, keeps_seen, change).await;
        Self {
            server,
            provider,
            ledger,
            keeps_seen,
            app,
        }
    }

    /// Stops the process in order and starts another one on the same ledger.
    pub(crate) async fn restart(&mut self) {
        self.restart_as(|_| {}).await;
    }

    pub(crate) async fn restart_as(&mut self, change: impl FnOnce(&mut Builder)) {
        let next = start(self.server, &self.provider, &self.ledger, self.keeps_seen, change).await;
        std::mem::replace(&mut self.app, next).running.drain().await;
    }

    pub(crate) async fn send(&self, key: &str, body: &str) -> Outcome {
        let head = format!("Bearer {key}");
        let fields = [
            ("authorization", head.as_str()),
            ("x-api-key", key),
            ("x-goog-api-key", key),
        ];
        let answer: Message = self
            .app
            .ask(post_with(self.server.path, &fields, body.as_bytes()))
            .await;
        let note = |name| answer.header(name).unwrap_or("-").to_owned();
        Outcome {
            status: answer.status(),
            sends: note("x-antiphon-attempts"),
            repair: note("x-antiphon-repair"),
            up: String::from_utf8(self.provider.last().body.to_vec()).unwrap(),
            text: answer.text().to_owned(),
        }
    }

    /// Has the model call a tool, and returns the history with the result, without what the answer carried.
    pub(crate) async fn work(&self, key: &str, history: &[Value], id: &str, streams: bool) -> Vec<Value> {
        let input = json!({"of": id});
        self.provider.reply(self.server.reply(id, &input));
        let sent = self.send(key, &self.server.body(history, streams)).await;
        assert_eq!(sent.status, 200, "{}: {sent:#?}", self.server.name);
        let mut next = history.to_vec();
        next.extend([self.server.call(id, &input), self.server.result(id)]);
        next
    }

    pub(crate) fn counted(&self, what: &str, source: &str) -> String {
        let line = format!("antiphon_continued_total{{what=\"{what}\",source=\"{source}\"}} ");
        let page = self.app.telemetry.encode_metrics();
        let found = page.lines().find_map(|known| known.strip_prefix(&line));
        found.expect("the counter").to_owned()
    }

    /// Refuses a body in the provider's own words.
    pub(crate) async fn refuses(&self, body: &str) -> bool {
        self.provider.restart_cache();
        let path = self.server.path.strip_prefix("/x").unwrap();
        strict_provider::post(&self.provider, path, body).await.0 == 400
    }
}

async fn start(
    server: Server,
    provider: &Provider,
    ledger: &Arc<dyn Ledger>,
    keeps_seen: bool,
    change: impl FnOnce(&mut Builder),
) -> App {
    let own = |builder: &mut Builder| {
        builder.upstreams.truncate(1);
        builder.upstreams[0].name.replace_range(.., "x");
        builder.upstreams[0].kind = server.kind;
        builder.ledger = Arc::clone(ledger);
        builder.keeps_seen = keeps_seen;
        change(builder);
    };
    before(provider.address()).with(own).start().await
}

/// A call id as the server makes them. The last one tells nothing by itself.
const IDS: [&str; 3] = ["call_00_aB3dE5fG7hJ9", "call_00_zY8xW6vU4tS2", "functions.f:2"];

#[tokio::test]
async fn what_a_client_drops_is_put_back() {
    for server in SERVERS {
        for streams in [false, true] {
            let stage = Stage::new(server).await;
            let history = stage.work("one", &[server.user("go")], IDS[0], streams).await;
            let body = server.body(&history, streams);
            assert!(stage.refuses(&body).await, "{}", server.name);
            // Refused directly, and accepted through the proxy.
            let sends = if server.at_once { "1" } else { "2" };
            let first = stage.send("one", &body).await;
            assert_eq!(
                first.notes(),
                (200, sends, "continued=1"),
                "{}: {first:#?}",
                server.name
            );
            let values = server.values(&first.up);
            let [value] = values.as_slice() else {
                panic!("{first:#?}")
            };
            match server.what {
                "reasoning_content" => assert_eq!(value, "thought 1"),
                "container" => assert_eq!(value, "container_call_00_aB3dE5fG7hJ9"),
                _ => assert!(value.starts_with("CiQB"), "{value}"),
            }
            assert_eq!(stage.counted(server.what, "noted"), "1");
            assert_eq!(
                second_repairs(&stage.app, "continuity"),
                if server.at_once { "0" } else { "1" }
            );
            // The same bytes again, and at once: what a refusal taught is known.
            stage.provider.restart_cache();
            let again = stage.send("one", &body).await;
            assert_eq!(again.notes(), (200, "1", "continued=1"), "{}: {again:#?}", server.name);
            assert_eq!(again.up, first.up, "{}", server.name);
        }
    }
}

/// Returns the messages of a body, without the bracket after them.
fn prefix(server: Server, body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap();
    let list = body[server.history_key()].to_string();
    list.strip_suffix(']').unwrap().to_owned()
}

/// A conversation of several calls with a restart in the middle. Each body begins with the one before it.
#[tokio::test]
async fn what_was_put_back_stays_through_a_restart() {
    for (server, keeps_seen) in [
        (DEEPSEEK, true),
        (KIMI, true),
        (DEEPSEEK_MESSAGES, true),
        (GEMINI, false),
        (GEMINI_CHAT, false),
        (VERTEX, false),
    ] {
        let mut stage = Stage::with(server, kept::durable(), keeps_seen, |_| {}).await;
        let mut history = vec![server.user("go")];
        let mut sent = String::new();
        for (index, id) in IDS.iter().enumerate() {
            history = stage.work("one", &history, id, index == 1).await;
            let now = stage.send("one", &server.body(&history, false)).await;
            let continued = format!("continued={}", index + 1);
            assert_eq!(
                (now.status, &*now.repair),
                (200, &*continued),
                "{}: {now:#?}",
                server.name
            );
            assert!(
                prefix(server, &now.up).starts_with(&sent),
                "{}\n{sent}\n{}",
                server.name,
                now.up
            );
            assert_eq!(server.values(&now.up).len(), index + 1);
            sent = prefix(server, &now.up);
            if index == 1 {
                stage.restart().await;
                stage.provider.restart_cache();
            }
        }
        // The next turn: what was put back stays, although no provider asks for signatures of earlier turns.
        history.extend([server.text("done"), server.user("more")]);
        for _ in 0..2 {
            let now = stage.send("one", &server.body(&history, false)).await;
            assert_eq!(now.notes(), (200, "1", "continued=3"), "{}: {now:#?}", server.name);
            assert!(
                prefix(server, &now.up).starts_with(&sent),
                "{}\n{sent}\n{}",
                server.name,
                now.up
            );
            stage.restart().await;
        }
    }
}

/// Reasoning is content: without `keep_seen = "disk"` a restart loses it, and the neutral value takes its place.
#[tokio::test]
async fn lost_reasoning_becomes_the_neutral_value_on_the_refusal() {
    for server in [DEEPSEEK, KIMI, DEEPSEEK_MESSAGES, GATEWAY, GEMINI, GEMINI_CHAT, VERTEX] {
        let mut stage = Stage::new(server).await;
        let history = stage.work("one", &[server.user("go")], IDS[0], false).await;
        // Another process with another ledger, or a conversation that began without the proxy.
        if server.lasts {
            stage.ledger = kept::durable();
        }
        stage.restart().await;
        stage.provider.restart_cache();
        let body = server.body(&history, false);
        let first = stage.send("one", &body).await;
        assert_eq!(first.notes(), (200, "2", "continued=1"), "{}: {first:#?}", server.name);
        assert_eq!(server.values(&first.up), [server.neutral.unwrap()]);
        assert_eq!(stage.counted(server.what, "neutral"), "1");
        assert_eq!(second_repairs(&stage.app, "continuity"), "1");
        // The neutral value is pinned like any other, here and on disk.
        for _ in 0..2 {
            stage.provider.restart_cache();
            let again = stage.send("one", &body).await;
            assert_eq!(again.notes(), (200, "1", "continued=1"), "{}: {again:#?}", server.name);
            assert_eq!(again.up, first.up, "{}", server.name);
            stage.restart().await;
        }
        // A call that is made now has its own value.
        let more = stage.work("one", &history, IDS[1], false).await;
        stage.provider.restart_cache();
        let more = stage.send("one", &server.body(&more, false)).await;
        assert_eq!(
            (more.status, &*more.repair),
            (200, "continued=2"),
            "{}: {more:#?}",
            server.name
        );
        assert_eq!(server.values(&more.up)[0], server.neutral.unwrap());
        assert_ne!(server.values(&more.up)[1], server.neutral.unwrap());
    }
}

/// Nothing stands for a lost container: the provider's refusal is the client's.
#[tokio::test]
async fn a_lost_container_is_refused_in_the_providers_words() {
    let mut stage = Stage::new(CONTAINER).await;
    let history = stage.work("one", &[CONTAINER.user("go")], IDS[0], false).await;
    stage.ledger = kept::durable();
    stage.restart().await;
    let sent = stage.send("one", &CONTAINER.body(&history, false)).await;
    assert_eq!(sent.notes(), (400, "1", "none"), "{sent:#?}");
    assert!(sent.text.contains("container_id is required"), "{}", sent.text);
}

/// The value of a call reaches only its caller, its model, and a request that thinks.
#[tokio::test]
async fn a_value_goes_back_only_where_everything_fits() {
    for server in SERVERS {
        let stage = Stage::new(server).await;
        let history = stage.work("one", &[server.user("go")], IDS[0], false).await;
        let body = server.body(&history, false);
        // Another caller with the same call: at most the neutral value, on the refusal.
        stage.provider.restart_cache();
        let other = stage.send("two", &body).await;
        let own: Vec<String> = server.neutral.map(str::to_owned).into_iter().collect();
        assert_eq!(server.values(&other.up), own, "{}: {other:#?}", server.name);
        // Nobody's credential: nothing is stored, and nothing goes back but that.
        let other = stage.app.ask(post_with(server.path, &[], body.as_bytes())).await;
        assert!(other.header("x-antiphon-repair").is_some());
        let up = String::from_utf8(stage.provider.last().body.to_vec()).unwrap();
        assert_eq!(up, body, "{}", server.name);
        // Arguments that the client has changed are no longer those of the answer.
        if !server.wants_container() {
            let mut changed = history.clone();
            changed[1] = server.call(IDS[0], &json!({"of": "another"}));
            stage.provider.restart_cache();
            let sent = stage.send("one", &server.body(&changed, false)).await;
            assert_eq!(server.values(&sent.up), own, "{}: {sent:#?}", server.name);
        }
        let first = stage.send("one", &body).await;
        assert_ne!(server.values(&first.up), own, "{}", server.name);
    }
    // Another model.
    for server in [DEEPSEEK, DEEPSEEK_MESSAGES, GEMINI] {
        let stage = Stage::new(server).await;
        let history = stage.work("one", &[server.user("go")], IDS[0], false).await;
        let other = Server {
            path: "/x/v1beta/models/gemini-3-flash:generateContent",
            ..server
        };
        let other = if server.is_gemini() { other } else { server };
        let body = other.body(&history, false).replace(server.model, "deepseek-v5");
        stage.provider.restart_cache();
        let stage = Stage { server: other, ..stage };
        let sent = stage.send("one", &body).await;
        assert_eq!(sent.notes(), (200, "2", "continued=1"), "{}: {sent:#?}", server.name);
        assert_eq!(server.values(&sent.up), [server.neutral.unwrap()], "{}", server.name);
    }
}

/// Thinking that the request turns off gets nothing back, at once or on a refusal.
#[tokio::test]
async fn nothing_goes_back_where_thinking_is_off() {
    for (server, switch) in [
        (DEEPSEEK, r#""thinking":{"type":"disabled"}"#),
        (KIMI, r#""thinking":{"type":"disabled"}"#),
        (DEEPSEEK_MESSAGES, r#""thinking":{"type":"disabled"}"#),
        (GATEWAY, r#""thinking":{"type":"disabled"}"#),
        (GEMINI_CHAT, r#""reasoning_effort":"none""#),
        (GEMINI, r#""generationConfig":{"thinkingConfig":{"thinkingBudget":0}}"#),
    ] {
        let stage = Stage::new(server).await;
        let history = stage.work("one", &[server.user("go")], IDS[0], false).await;
        stage.provider.restart_cache();
        let body = server.body(&history, false).replacen('{', &format!("{{{switch},"), 1);
        let sent = stage.send("one", &body).await;
        assert_eq!(
            (&*sent.sends, &*sent.repair, &*sent.up),
            ("1", "none", &*body),
            "{}",
            server.name
        );
    }
}

/// The key turns all of it off. Observe counts what is missing, and strict names it.
#[tokio::test]
async fn the_mode_and_the_key_decide() {
    for server in SERVERS {
        let mut stage = Stage::new(server).await;
        let history = stage.work("one", &[server.user("go")], IDS[0], false).await;
        let body = server.body(&history, false);
        stage.provider.restart_cache();
        stage
            .restart_as(|builder| builder.proxy.policy.continuity = false)
            .await;
        let sent = stage.send("one", &body).await;
        assert_eq!(sent.notes(), (400, "1", "none"), "{}: {sent:#?}", server.name);
        assert_eq!(sent.up, body);

        let all = |mode| {
            move |builder: &mut Builder| {
                builder.upstreams[0].mode = mode;
            }
        };
        let lost = |app: &App| {
            let page = app.telemetry.encode_metrics();
            let lines = page
                .lines()
                .filter(|line| line.starts_with("antiphon_findings_total{kind=\"lost_continuity\""));
            lines.filter(|line| line.ends_with(" 1")).count()
        };
        for (mode, keeps) in [(Mode::Observe, "observed"), (Mode::Strict, "rejected")] {
            let stage = Stage::with(server, kept::durable(), false, all(mode)).await;
            let history = stage.work("one", &[server.user("go")], IDS[0], false).await;
            let body = server.body(&history, false);
            stage.provider.restart_cache();
            let sent = stage.send("one", &body).await;
            // Without a rule there is nothing to name: the server may not miss it.
            if !server.at_once {
                assert_eq!(lost(&stage.app), 0, "{}", server.name);
                continue;
            }
            assert_eq!(sent.status, 400, "{}: {sent:#?}", server.name);
            assert_eq!(
                (&*sent.repair, lost(&stage.app)),
                (keeps, 1),
                "{}: {sent:#?}",
                server.name
            );
            assert_eq!(
                sent.text.contains("lost_continuity"),
                mode == Mode::Strict,
                "{}",
                sent.text
            );
            assert_eq!(sent.up == body, mode == Mode::Observe, "{}", server.name);
        }
    }
}

/// A signature of another organisation is not put back. One of the same organisation is, whichever key serves.
#[tokio::test]
async fn a_signature_stays_in_its_organisation() {
    let server = GEMINI;
    let of = |label: &'static str, organisation: &'static str| {
        move |builder: &mut Builder| {
            let profile = pool::profile(label, Some(organisation), 1);
            builder.profiles.insert("x".to_owned(), vec![profile]);
        }
    };
    let mut stage = Stage::with(server, kept::durable(), false, of("a", "org-x")).await;
    let history = stage.work("one", &[server.user("go")], IDS[0], false).await;
    let body = server.body(&history, false);
    stage.restart_as(of("b", "org-y")).await;
    let other = stage.send("one", &body).await;
    assert_eq!(other.notes(), (200, "2", "continued=1"), "{other:#?}");
    assert_eq!(server.values(&other.up), [server.neutral.unwrap()]);
    stage.restart_as(of("c", "org-x")).await;
    let same = stage.send("one", &body).await;
    assert_eq!(same.notes(), (200, "1", "continued=1"), "{same:#?}");
    assert!(server.values(&same.up)[0].starts_with("CiQB"), "{same:#?}");
}

/// A rotation within one exchange takes the values of the first organisation out again.
#[tokio::test]
async fn a_value_does_not_follow_a_rotation_to_another_organisation() {
    let server = DEEPSEEK;
    let two_organisations = |builder: &mut Builder| {
        let profiles = [("a", "org-x", 1_000_000_000), ("b", "org-y", 1)];
        let profiles = profiles.map(|(label, organisation, weight)| pool::profile(label, Some(organisation), weight));
        builder.profiles.insert("x".to_owned(), profiles.to_vec());
    };
    let stage = Stage::with(server, kept::durable(), false, two_organisations).await;
    let history = stage.work("one", &[server.user("go")], IDS[0], false).await;
    let limit = json!({"error": {"message": "Rate limit reached", "type": "rate_limit_error", "code": "rate_limit"}});
    stage.provider.reply(Reply::Status(429, limit));
    let sent = stage.send("one", &server.body(&history, false)).await;
    // This provider accepts warm turns without their reasoning.
    assert_eq!(sent.notes(), (200, "2", "none"), "{sent:#?}");
    let bodies: Vec<(String, Vec<String>)> = stage.provider.seen()[1..]
        .iter()
        .map(|seen| {
            let key = seen.headers["authorization"].to_str().unwrap();
            let label = key.trim_start_matches("Bearer ").trim_start_matches(pool::CANARY);
            (label.to_owned(), server.values(&String::from_utf8_lossy(&seen.body)))
        })
        .collect();
    let first = vec!["thought 1".to_owned()];
    assert_eq!(bodies, [("a".to_owned(), first), ("b".to_owned(), Vec::new())]);
}

/// An id that occurs twice names no call, and gets at most the neutral value.
#[tokio::test]
async fn a_repeated_id_gets_no_value() {
    let (server, stage) = (KIMI, Stage::new(KIMI).await);
    let history = stage.work("one", &[server.user("go")], "call_0", false).await;
    let history = stage.work("one", &history, "call_0", false).await;
    let sent = stage.send("one", &server.body(&history, false)).await;
    assert_eq!(sent.notes(), (400, "1", "none"), "{sent:#?}");
}
