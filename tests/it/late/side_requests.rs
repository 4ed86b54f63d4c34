//! Requests beside a conversation, under its session: titles, topics, probes. They prove nothing about its calls.
//!
//! Each kind is sent in every format and with both session headers, while a tool runs. No cancel is stored, and no
//! result is carried over. Requests that go on with the conversation still count.

use antiphon::{
    auth::WebhookKey,
    clock::{now, unix_time},
    late::{ServiceSettings, ToolSettings},
    repair::Tier,
};
use serde_json::{Value, json};

use crate::support::{
    app::post_with,
    kept::durable,
    late::{last_body, numbered_id, post, send, service, world_over},
    still::{self, World, wait},
};

const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const SYSTEM: &str = "You are an agent. Use the tools.";
const OTHER: &str = "You write titles of at most five words.";
const FILM: &str = "https://e.com/film.mp4";
const HEADERS: [&str; 2] = ["x-antiphon-session", "x-claude-code-session-id"];

/// A format, by the path of its requests.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wire {
    Messages,
    Chat,
    Responses,
    Gemini,
}

const WIRES: [Wire; 4] = [Wire::Messages, Wire::Chat, Wire::Responses, Wire::Gemini];

/// The tools that a request declares.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Tools {
    Declared,
    Empty,
    Absent,
}

/// One message of a history.
#[derive(Clone, Debug)]
enum Turn {
    User(&'static str),
    Model(&'static str),
}

use Tools::{Absent, Declared, Empty};
use Turn::{Model, User};

/// A request: its name, instructions, tools and history.
type Kind = (&'static str, Option<&'static str>, Tools, &'static [Turn]);

const FIRST: &str = "render the film";

/// Requests beside a conversation that began with [`FIRST`].
const BESIDE: &[Kind] = &[
    (
        "a title",
        Some(OTHER),
        Absent,
        &[User("Generate a title:"), User(FIRST)],
    ),
    ("a title of the same words", Some(OTHER), Absent, &[User(FIRST)]),
    (
        "a topic",
        Some(OTHER),
        Absent,
        &[User(FIRST), User("Is this a new topic?")],
    ),
    ("a probe", None, Absent, &[User("quota")]),
    ("other instructions", Some(OTHER), Declared, &[User(FIRST)]),
    (
        "other instructions, two messages",
        Some(OTHER),
        Declared,
        &[User(FIRST), User("sum it up")],
    ),
    (
        "no tools",
        Some(SYSTEM),
        Absent,
        &[User(FIRST), User("a title, please")],
    ),
    (
        "an empty list of tools",
        Some(SYSTEM),
        Empty,
        &[User(FIRST), User("a title, please")],
    ),
    (
        "none of the history",
        Some(SYSTEM),
        Declared,
        &[User("what is the time?")],
    ),
    (
        "none of the history, two messages",
        Some(SYSTEM),
        Declared,
        &[User("warm up"), User("please")],
    ),
    (
        "none of the history, and longer",
        Some(SYSTEM),
        Declared,
        &[
            User("hi"),
            Model("yes?"),
            User("the time?"),
            Model("noon"),
            User("thanks"),
        ],
    ),
    (
        "a longer history without tools",
        Some(SYSTEM),
        Absent,
        &[User(FIRST), Model("yes?"), User("a"), Model("b"), User("title?")],
    ),
    ("the same request", Some(SYSTEM), Declared, &[User(FIRST)]),
];

/// Requests that go on with it, and lack its call.
const GOES_ON: &[Kind] = &[
    (
        "another answer",
        Some(SYSTEM),
        Declared,
        &[User(FIRST), Model("which one?"), User("none")],
    ),
    ("more words", Some(SYSTEM), Declared, &[User(FIRST), User("no, wait")]),
    (
        "instructions with the time",
        Some("It is noon."),
        Declared,
        &[User(FIRST), Model("which one?"), User("none")],
    ),
];

fn path(wire: Wire) -> &'static str {
    match wire {
        Wire::Messages => "/anthropic/v1/messages",
        Wire::Chat => "/openai/v1/chat/completions",
        Wire::Responses => "/openai/v1/responses",
        Wire::Gemini => "/gemini/v1beta/models/m:generateContent",
    }
}

/// Returns the tools of a request, as the format writes them.
fn tools(wire: Wire, tools: Tools) -> Value {
    let schema = json!({"type": "object"});
    match (tools, wire) {
        (Empty, Wire::Gemini) => json!([{"functionDeclarations": []}]),
        (Empty | Absent, _) => json!([]),
        (Declared, Wire::Messages) => json!([{"name": "hold", "input_schema": schema}]),
        (Declared, Wire::Chat) => json!([{"type": "function", "function": {"name": "hold", "parameters": schema}}]),
        (Declared, Wire::Responses) => json!([{"type": "function", "name": "hold", "parameters": schema}]),
        (Declared, Wire::Gemini) => json!([{"functionDeclarations": [{"name": "hold"}]}]),
    }
}

fn message(wire: Wire, turn: &Turn) -> Value {
    let (role, text) = match turn {
        User(text) => ("user", text),
        Model(text) => (if wire == Wire::Gemini { "model" } else { "assistant" }, text),
    };
    match wire {
        Wire::Gemini => json!({"role": role, "parts": [{"text": text}]}),
        _ => json!({"role": role, "content": text}),
    }
}

/// Returns a body, with `more` messages after its history.
fn body(wire: Wire, (_, system, declared, turns): &Kind, more: &[Value]) -> Value {
    let mut log: Vec<Value> = turns
        .iter()
        .map(|turn| message(wire, turn))
        .chain(more.iter().cloned())
        .collect();
    let mut body = match wire {
        Wire::Messages => json!({"model": "m", "max_tokens": 99, "messages": log}),
        Wire::Chat => {
            let instructions = system.iter().map(|system| json!({"role": "system", "content": system}));
            log = instructions.chain(log).collect();
            json!({"model": "m", "messages": log})
        }
        Wire::Responses => json!({"model": "m", "input": log}),
        Wire::Gemini => json!({"contents": log}),
    };
    match (wire, system) {
        (Wire::Messages, Some(system)) => body["system"] = json!(system),
        (Wire::Responses, Some(system)) => body["instructions"] = json!(system),
        (Wire::Gemini, Some(system)) => body["systemInstruction"] = json!({"parts": [{"text": system}]}),
        _ => {}
    }
    if *declared != Absent {
        body["tools"] = tools(wire, *declared);
    }
    body
}

/// Returns an answer of the model: a call if it has an id, else words.
fn answer(wire: Wire, id: Option<&str>) -> String {
    let answer = match (wire, id) {
        (Wire::Messages, Some(id)) => json!({"id": "msg_1", "type": "message", "role": "assistant",
            "content": [{"type": "tool_use", "id": id, "name": "hold", "input": {}}], "stop_reason": "tool_use"}),
        (Wire::Messages, None) => json!({"id": "msg_2", "type": "message", "role": "assistant",
            "content": [{"type": "text", "text": "fine"}], "stop_reason": "end_turn"}),
        (Wire::Chat, Some(id)) => json!({"id": "chatcmpl-1", "object": "chat.completion", "choices": [{"index": 0,
            "message": {"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function",
                "function": {"name": "hold", "arguments": "{}"}}]}, "finish_reason": "tool_calls"}]}),
        (Wire::Chat, None) => json!({"id": "chatcmpl-2", "object": "chat.completion", "choices": [{"index": 0,
            "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}]}),
        (Wire::Responses, Some(id)) => json!({"id": "resp_1", "object": "response", "status": "completed",
            "output": [{"type": "function_call", "id": "fc_1", "call_id": id, "name": "hold", "arguments": "{}",
                "status": "completed"}]}),
        (Wire::Responses, None) => json!({"id": "resp_2", "object": "response", "status": "completed", "output": []}),
        (Wire::Gemini, Some(id)) => json!({"candidates": [{"content": {"role": "model",
            "parts": [{"functionCall": {"id": id, "name": "hold", "args": {}}}]}, "finishReason": "STOP"}]}),
        (Wire::Gemini, None) => json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "fine"}]},
            "finishReason": "STOP"}]}),
    };
    answer.to_string()
}

/// The message of the model that contains a call, as the client sends it back.
fn called(wire: Wire, id: &str) -> Value {
    let whole: Value = serde_json::from_str(&answer(wire, Some(id))).unwrap();
    match wire {
        Wire::Messages => json!({"role": "assistant", "content": whole["content"]}),
        Wire::Chat => whole["choices"][0]["message"].clone(),
        Wire::Responses => whole["output"][0].clone(),
        Wire::Gemini => whole["candidates"][0]["content"].clone(),
    }
}

/// A world of one person whose tool `hold` can be undone, and whose results are carried over.
fn world(carries_over: bool) -> World {
    let ledger = durable();
    let world = world_over(&ledger, |builder| {
        let hold = ToolSettings {
            tier: if carries_over { Tier::Durable } else { Tier::Revertible },
            cancel_url: (!carries_over).then(|| "http://127.0.0.1:9/cancel".to_owned()),
            carries_over,
            ..ToolSettings::default()
        };
        builder.late.tools = [("hold".to_owned(), hold)].into();
        builder.late.services = vec![ServiceSettings {
            key: Some(WebhookKey::parse(SECRET).unwrap()),
            ..service("tools", None, None)
        }];
        builder.late.principals.is_single = true;
        builder.proxy.principals.is_single = true;
    });
    world.otherwise(|request| {
        let wire = WIRES.into_iter().find(|wire| {
            let end = path(*wire).split_once('/').unwrap().1.split_once('/').unwrap().1;
            request.head.contains(end)
        });
        still::json(200, &answer(wire.unwrap(), None))
    });
    world
}

/// A conversation whose tool runs: its world, format, session header, session and call.
struct Scene<'w> {
    world: &'w World,
    wire: Wire,
    header: &'static str,
    session: String,
    id: String,
}

const BEGINNING: Kind = ("the first request", Some(SYSTEM), Declared, &[User(FIRST)]);

impl Scene<'_> {
    async fn sends(&self, session: &str, body: &Value) {
        let answer = send(self.world, path(self.wire), &[(self.header, session)], body).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }

    /// The conversation begins, and its tool runs. With `beside`, that request comes before the answer.
    async fn begins(&self, beside: Option<&Kind>) {
        let call = still::json(200, &answer(self.wire, Some(&self.id)));
        let pause = wait(if beside.is_some() { 5 } else { 0 });
        self.world.script([pause].into_iter().chain(call));
        let fields = [("x-api-key", "sk-one"), (self.header, &*self.session)];
        let first = body(self.wire, &BEGINNING, &[]).to_string();
        let mut client = self.world.client();
        client.send(post_with(path(self.wire), &fields, first.as_bytes())).await;
        self.world.settle().await;
        if let Some(kind) = beside {
            self.sends(&self.session, &body(self.wire, kind, &[])).await;
        }
        assert_eq!(client.answer().await.status(), 200);
        self.world.settle().await;
    }

    /// Returns the number of cancels that are stored.
    async fn cancels(&self) -> usize {
        let page = self.world.shared.late.outbox().list(None, 1_000, unix_time()).await;
        page.unwrap().rows.len()
    }

    /// The client closes the session.
    async fn closes(&self) {
        let close = format!("/ledger/v1/sessions/{}/close", self.session);
        let closed = self
            .world
            .ask(post_with(&close, &[("x-api-key", "sk-one")], b"{}"))
            .await;
        assert_eq!(closed.status(), 200, "{}", closed.text());
        self.world.settle().await;
    }

    /// Returns the open calls of all lanes.
    fn open_calls(&self) -> usize {
        self.world.shared.sessions.lane_totals(now()).open_calls
    }

    /// A new conversation begins. Returns `true` if it gets the result of another one.
    async fn carries(&self) -> bool {
        self.sends(&format!("{} after", self.session), &body(self.wire, &BEGINNING, &[]))
            .await;
        last_body(self.world).contains(FILM)
    }
}

/// Every format with every session header, each with a scene in a world of its own.
async fn each_scene(carries_over: bool, mut play: impl AsyncFnMut(Scene<'_>)) {
    let mut number = 0;
    for wire in WIRES {
        for header in HEADERS {
            number += 1;
            let world = world(carries_over);
            let scene = Scene {
                world: &world,
                wire,
                header,
                session: format!("s{number}"),
                id: numbered_id(number),
            };
            // The caller is verified, so that its calls are recorded.
            scene.sends("before", &body(wire, &BEGINNING, &[])).await;
            play(scene).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_beside_a_conversation_cancels_nothing() {
    let mut wrong = Vec::new();
    for kind in BESIDE {
        for is_before_the_answer in [false, true] {
            each_scene(false, async |scene| {
                scene.begins(Some(kind).filter(|_| is_before_the_answer)).await;
                for _ in 0..2 {
                    scene.sends(&scene.session, &body(scene.wire, kind, &[])).await;
                }
                let seen = (scene.cancels().await, scene.open_calls());
                if seen != (0, 1) {
                    wrong.push((kind.0, is_before_the_answer, scene.wire, scene.header, seen));
                }
            })
            .await;
        }
    }
    assert!(wrong.is_empty(), "cancels and open calls: {wrong:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_beside_a_conversation_carries_no_result_elsewhere() {
    let mut wrong = Vec::new();
    for kind in BESIDE {
        each_scene(true, async |scene| {
            scene.begins(None).await;
            scene.sends(&scene.session, &body(scene.wire, kind, &[])).await;
            assert_eq!(post(scene.world, &scene.id, &json!(FILM)).await.status(), 200);
            if scene.carries().await {
                wrong.push((kind.0, scene.wire, scene.header));
            }
        })
        .await;
    }
    assert!(wrong.is_empty(), "carried over: {wrong:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_goes_on_without_the_call_still_counts() {
    for kind in GOES_ON {
        for beside in [None, Some(&BESIDE[0]), Some(&BESIDE[6])] {
            each_scene(false, async |scene| {
                let name = (kind.0, scene.wire, scene.header, beside.map(|kind| kind.0));
                scene.begins(beside).await;
                scene.sends(&scene.session, &body(scene.wire, kind, &[])).await;
                assert_eq!((scene.cancels().await, scene.open_calls()), (1, 0), "{name:?}");
                // The next turn lacks the call, too: it is no sign of life.
                let more = [Model("fine"), User("and now?")].map(|turn| message(scene.wire, &turn));
                scene.sends(&scene.session, &body(scene.wire, kind, &more)).await;
                assert_eq!(scene.cancels().await, 1, "{name:?}");
            })
            .await;
        }
        each_scene(true, async |scene| {
            scene.begins(None).await;
            scene.sends(&scene.session, &body(scene.wire, kind, &[])).await;
            assert_eq!(post(scene.world, &scene.id, &json!(FILM)).await.status(), 200);
            assert!(scene.carries().await, "{} {:?}", kind.0, scene.wire);
        })
        .await;
    }
}

/// A later turn of a conversation is edited: the history goes on from there, and lacks the call.
#[tokio::test(start_paused = true)]
async fn an_edited_turn_counts_once_the_history_goes_on_from_it() {
    each_scene(false, async |scene| {
        let turn = |turns: &'static [Turn]| body(scene.wire, &("", Some(SYSTEM), Declared, turns), &[]);
        scene
            .world
            .script(still::json(200, &answer(scene.wire, Some(&scene.id))));
        scene
            .sends(&scene.session, &turn(&[User(FIRST), Model("yes?"), User("go")]))
            .await;
        assert_eq!(scene.open_calls(), 1);
        scene
            .sends(&scene.session, &turn(&[User(FIRST), Model("yes?"), User("not now")]))
            .await;
        assert_eq!(scene.cancels().await, 0, "it may be the same turn once more");
        let edited = turn(&[
            User(FIRST),
            Model("yes?"),
            User("not now"),
            Model("fine"),
            User("hello"),
        ]);
        scene.sends(&scene.session, &edited).await;
        assert_eq!((scene.cancels().await, scene.open_calls()), (1, 0), "{:?}", scene.wire);
    })
    .await;
}

/// The history was compacted: its calls are closed, and no service is asked to undo them.
#[tokio::test(start_paused = true)]
async fn a_compacted_conversation_closes_its_calls_and_cancels_nothing() {
    each_scene(false, async |scene| {
        scene.begins(None).await;
        let history = [called(scene.wire, &scene.id), message(scene.wire, &User("sum it up"))];
        let compact = body(scene.wire, &BEGINNING, &history);
        let fields = [(scene.header, &*scene.session), ("x-claude-code-compaction", "manual")];
        assert_eq!(
            send(scene.world, path(scene.wire), &fields, &compact).await.status(),
            200
        );
        // A title request in between changes nothing.
        scene.sends(&scene.session, &body(scene.wire, &BESIDE[0], &[])).await;
        let summary: &[Turn] = &[User("This is the summary."), User("go on")];
        let next: &[Turn] = &[
            User("This is the summary."),
            User("go on"),
            Model("yes?"),
            User("and now?"),
        ];
        for turns in [summary, next] {
            scene
                .sends(
                    &scene.session,
                    &body(scene.wire, &("", Some(SYSTEM), Declared, turns), &[]),
                )
                .await;
            assert_eq!((scene.cancels().await, scene.open_calls()), (0, 0), "{:?}", scene.wire);
        }
    })
    .await;
}

/// A request that names the answer before it has no history of its own, and goes on with that of the answer.
#[tokio::test(start_paused = true)]
async fn a_request_that_continues_by_id_goes_on() {
    each_scene(false, async |scene| {
        if scene.wire != Wire::Responses {
            return;
        }
        scene.begins(None).await;
        for (declared, cancels) in [(Absent, 0), (Declared, 1)] {
            let mut next = body(scene.wire, &("", Some(SYSTEM), declared, &[User("no, wait")]), &[]);
            next["previous_response_id"] = json!("resp_1");
            scene.sends(&scene.session, &next).await;
            assert_eq!(scene.cancels().await, cancels, "{declared:?}");
        }
    })
    .await;
}

/// A cancel is revoked by a request that goes on with the conversation of its call, and by no other.
#[tokio::test(start_paused = true)]
async fn a_request_beside_a_conversation_revokes_no_cancel() {
    let mut wrong = Vec::new();
    for kind in BESIDE {
        each_scene(false, async |scene| {
            scene.begins(None).await;
            scene.closes().await;
            assert_eq!(scene.cancels().await, 1);
            for _ in 0..2 {
                scene.sends(&scene.session, &body(scene.wire, kind, &[])).await;
            }
            let beside = scene.cancels().await;
            let back = [
                called(scene.wire, &scene.id),
                message(scene.wire, &User("still there?")),
            ];
            scene.sends(&scene.session, &body(scene.wire, &BEGINNING, &back)).await;
            let seen = (beside, scene.cancels().await);
            if seen != (1, 0) {
                wrong.push((kind.0, scene.wire, scene.header, seen));
            }
        })
        .await;
    }
    assert!(
        wrong.is_empty(),
        "cancels behind the request, and once the conversation is back: {wrong:#?}"
    );
}

/// Returns the choices of tools that force one or forbid all, or leave the choice to the model.
fn choices(wire: Wire, is_free: bool) -> Vec<Value> {
    let gemini = |config: Value| json!({"functionCallingConfig": config});
    let named = json!({"type": "function", "name": "hold"});
    match (wire, is_free) {
        (Wire::Messages, false) => vec![
            json!({"type": "tool", "name": "hold"}),
            json!({"type": "any", "disable_parallel_tool_use": true}),
            json!({"type": "none"}),
        ],
        (Wire::Messages, true) => vec![
            json!({"type": "auto"}),
            json!({"disable_parallel_tool_use": true, "type": "auto"}),
        ],
        (Wire::Chat, false) => vec![
            json!("required"),
            json!("none"),
            json!({"type": "function", "function": {"name": "hold"}}),
            json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}),
        ],
        (Wire::Responses, false) => vec![
            json!("required"),
            json!("none"),
            named.clone(),
            json!({"type": "allowed_tools", "mode": "required", "tools": [named]}),
        ],
        (Wire::Chat, true) => vec![
            json!("auto"),
            json!(null),
            json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named]}}),
        ],
        (Wire::Responses, true) => vec![
            json!("auto"),
            json!({"type": "allowed_tools", "mode": "auto", "tools": [named]}),
        ],
        (Wire::Gemini, false) => vec![
            gemini(json!({"mode": "ANY", "allowedFunctionNames": ["hold"]})),
            gemini(json!({"mode": "NONE"})),
        ],
        (Wire::Gemini, true) => vec![
            gemini(json!({"mode": "AUTO"})),
            gemini(json!({"mode": "VALIDATED", "allowedFunctionNames": ["hold"]})),
            json!({"retrievalConfig": {"languageCode": "en"}}),
        ],
    }
}

/// Clients get titles by a tool that the model must call. Such a request begins no conversation, and the next turn does.
#[tokio::test(start_paused = true)]
async fn a_request_that_forces_a_tool_gets_no_result_of_another_conversation() {
    let field = |wire| {
        if wire == Wire::Gemini {
            "toolConfig"
        } else {
            "tool_choice"
        }
    };
    for number in 0..3 {
        each_scene(true, async |scene| {
            scene.begins(None).await;
            scene.closes().await;
            assert_eq!(post(scene.world, &scene.id, &json!(FILM)).await.status(), 200);
            let hello: Kind = ("", Some(SYSTEM), Declared, &[User("hello")]);
            for choice in choices(scene.wire, false) {
                let mut forced = body(scene.wire, &hello, &[]);
                forced[field(scene.wire)] = choice.clone();
                scene.sends("another", &forced).await;
                assert!(!last_body(scene.world).contains(FILM), "{:?} {choice}", scene.wire);
            }
            let free = choices(scene.wire, true).into_iter().cycle().nth(number).unwrap();
            let mut turn = body(scene.wire, &hello, &[]);
            turn[field(scene.wire)] = free.clone();
            scene.sends("another", &turn).await;
            assert!(last_body(scene.world).contains(FILM), "{:?} {free}", scene.wire);
        })
        .await;
    }
}

/// A request that forces a tool stands beside a conversation in which the model may choose.
#[tokio::test(start_paused = true)]
async fn a_request_that_forces_a_tool_cancels_nothing() {
    let field = |wire| {
        if wire == Wire::Gemini {
            "toolConfig"
        } else {
            "tool_choice"
        }
    };
    for kind in GOES_ON {
        each_scene(false, async |scene| {
            scene.begins(None).await;
            let turn = body(scene.wire, kind, &[]);
            for choice in choices(scene.wire, false) {
                let mut forced = turn.clone();
                forced[field(scene.wire)] = choice.clone();
                scene.sends(&scene.session, &forced).await;
                assert_eq!(scene.cancels().await, 0, "{} {:?} {choice}", kind.0, scene.wire);
            }
            scene.sends(&scene.session, &turn).await;
            assert_eq!(scene.cancels().await, 1, "{} {:?}", kind.0, scene.wire);
        })
        .await;
    }
}

/// An empty list of tools is none: such a request is not the beginning of a conversation.
#[tokio::test(start_paused = true)]
async fn a_request_with_an_empty_list_of_tools_gets_no_result_of_another_conversation() {
    each_scene(true, async |scene| {
        scene.begins(None).await;
        scene.closes().await;
        assert_eq!(post(scene.world, &scene.id, &json!(FILM)).await.status(), 200);
        let empty: Kind = ("", Some(SYSTEM), Empty, &[User("hello")]);
        scene.sends("another", &body(scene.wire, &empty, &[])).await;
        assert!(!last_body(scene.world).contains(FILM), "{:?}", scene.wire);
        assert!(scene.carries().await, "{:?}", scene.wire);
    })
    .await;
}
