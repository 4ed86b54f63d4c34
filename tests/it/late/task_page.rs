//! The task page with the real binary: who opens it, what it lists, and what its links may do.

use std::process::Command;

use antiphon::{
    auth::{Caller, Principal, TokenHash},
    late::{CallQuery, LateSettings, ObservedCall, TaskCursor, TaskId},
    session::{LaneId, SessionStrength},
};
use serde_json::{Value, json};

use super::stories::settles;
use crate::support::{
    app::{get_with, post_with, request_with},
    binary::{Install, Process},
    kept::durable,
    late::{running, service},
    provider::{Provider, Reply, ToolCall},
    state,
    wire::Message,
};

const SERVICE: &[(&str, &str)] = &[("authorization", "Bearer token of tools")];
const RENDER: &str = "toolu_01AaBb9dE3fG7hJ2";
const MAIL: &str = "toolu_01CcDd8eF4gH6jK3";
const HOLD: &str = "toolu_01EeFf7gG5hJ5kL4";

struct Stage {
    provider: Provider,
    install: Install,
    process: Option<Process>,
}

impl Stage {
    async fn start(settings: &str) -> Self {
        let provider = Provider::start().await;
        let install = Install::new(&Self::config(&provider, settings));
        let process = Some(install.start().await);
        Self {
            provider,
            install,
            process,
        }
    }

    fn config(provider: &Provider, settings: &str) -> String {
        let hash = |token: &str| TokenHash::hash_token(token.as_bytes());
        format!(
            "[upstreams.anthropic]\nurl = \"{}\"\n[ledger]\n{settings}\n\
             [client_tokens]\nann = {{ token = \"{}\", personal = true }}\nben = {{ token = \"{}\", personal = true }}\n\
             team = \"{}\"\n\
             [services.tools]\ntoken = \"{}\"\nprincipals = [\"*\"]\ntools = [\"*\"]\n\
             [tools.render]\ntier = \"durable\"\n[tools.mail]\ntier = \"one_way\"\n\
             [tools.hold]\ntier = \"revertible\"\n",
            provider.url(),
            hash("ann"),
            hash("ben"),
            hash("team"),
            hash("token of tools"),
        )
    }

    fn process(&self) -> &Process {
        self.process.as_ref().unwrap()
    }

    /// The model calls a tool. Returns the owner.
    async fn calls(&self, who: &str, id: &str, tool: &str) -> String {
        let body = json!({"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "go"}]}).to_string();
        let fields = [
            ("x-api-key", "sk-one"),
            ("x-antiphon-client-token", who),
            ("x-antiphon-session", "my chat"),
        ];
        let send = async || {
            self.process()
                .ask(post_with("/anthropic/v1/messages", &fields, body.as_bytes()))
                .await
        };
        self.provider.reply(Reply::Text("hello".to_owned()));
        let owner = send().await.header("x-antiphon-owner").unwrap().to_owned();
        self.provider
            .reply(Reply::Calls(vec![ToolCall::new(id, tool, json!({"a": 1}))]));
        assert_eq!(send().await.status(), 200);
        owner
    }

    async fn asks(&self, method: &str, path: &str, fields: &[(&str, &str)], body: &str) -> Message {
        let path = format!("/ledger/v1/{path}");
        self.process()
            .ask(request_with(method, &path, fields, body.as_bytes()))
            .await
    }

    async fn makes_link(&self, who: &str) -> Message {
        let fields = [("x-api-key", "sk-one"), ("x-antiphon-client-token", who)];
        self.asks("POST", "tasks/links", &fields, "{}").await
    }

    /// Lists every page of a link's tasks.
    async fn lists(&self, secret: &str) -> Vec<Value> {
        let (mut tasks, mut after) = (Vec::new(), String::new());
        loop {
            let path = format!("tasks/list{after}");
            let page = self.asks("GET", &path, &[("authorization", secret)], "").await;
            assert_eq!(page.status(), 200, "{}", page.text());
            tasks.extend(page.json()["tasks"].as_array().unwrap().clone());
            match page.json()["next"].as_str() {
                Some(next) => after = format!("?after={next}"),
                None => return tasks,
            }
        }
    }

    /// Runs `antiphon tasks`. Returns its exit code and its output.
    fn tasks(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
        let output = state::apart(&mut command)
            .env_remove("ANTIPHON_ADMIN_TOKEN")
            .arg("tasks")
            .args(arguments)
            .args(["--url", &format!("http://{}", self.process().admin)])
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }
}

fn bearer(made: &Value) -> String {
    let (page, secret) = made["url"].as_str().unwrap().split_once('#').unwrap();
    assert!(page.ends_with("/ledger/v1/tasks"));
    format!("Bearer {secret}")
}

fn state_of<'t>(tasks: &'t [Value], tool: &str) -> &'t str {
    let task = tasks.iter().find(|task| task["tool"] == tool);
    task.map_or("absent", |task| task["state"].as_str().unwrap())
}

#[tokio::test]
async fn the_page_is_off_unless_it_is_turned_on() {
    let stage = Stage::start("").await;
    stage.calls("ann", RENDER, "render").await;
    for path in ["tasks", "tasks/page.js", "tasks/list"] {
        assert_eq!(stage.asks("GET", path, &[], "").await.status(), 404, "{path}");
    }
    assert_eq!(stage.makes_link("ann").await.status(), 404);
    let (code, text) = stage.tasks(&["link", "--client", "ann"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("ledger.task_page"), "{text}");
}

/// R13: a person sees what runs and is done, and acknowledges it; the link opens nothing else, and nobody else's.
#[tokio::test]
async fn a_link_opens_the_tasks_of_one_person() {
    let mut stage = Stage::start("task_page = true").await;
    stage.calls("ann", RENDER, "render").await;
    stage.calls("ann", HOLD, "hold").await;
    let page = stage.asks("GET", "tasks", &[], "").await;
    assert_eq!((page.status(), page.header("cache-control")), (200, Some("no-store")));
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("frame-ancestors 'none'") && policy.contains("default-src 'none'"));
    assert_eq!(page.header("set-cookie"), None);

    let made = stage.makes_link("ann").await;
    assert_eq!(made.status(), 201, "{}", made.text());
    let made = made.json();
    let link = bearer(&made);
    let tasks = stage.lists(&link).await;
    assert_eq!(
        (state_of(&tasks, "render"), state_of(&tasks, "hold")),
        ("running", "running")
    );
    assert!(
        tasks
            .iter()
            .all(|task| task["session"] == "my chat" && task["can_resolve"] == false)
    );

    settles(stage.process(), RENDER, &json!("frame <7>")).await;
    // A link outlives the process.
    stage.process.take().unwrap().kill();
    stage.process = Some(stage.install.start().await);
    let tasks = stage.lists(&link).await;
    let done = tasks.iter().find(|task| task["tool"] == "render").unwrap();
    assert_eq!((&done["state"], &done["result"]), (&json!("done"), &json!("frame <7>")));
    let ack = format!("tasks/{}/ack", done["task"].as_str().unwrap());
    let acked = stage.asks("POST", &ack, &[("authorization", &link)], "{}").await;
    assert_eq!(acked.status(), 200, "{}", acked.text());
    assert_eq!(state_of(&stage.lists(&link).await, "render"), "absent");

    // Another person's link, and other credentials.
    stage.calls("ben", MAIL, "mail").await;
    let of_ben = bearer(&stage.makes_link("ben").await.json());
    assert_eq!(state_of(&stage.lists(&of_ben).await, "hold"), "absent");
    let foreign = stage.asks("POST", &ack, &[("authorization", &of_ben)], "{}").await;
    assert_eq!(foreign.status(), 404, "{}", foreign.text());
    let provider_key: &[(&str, &str)] = &[("x-api-key", "sk-one"), ("x-antiphon-client-token", "ann")];
    for fields in [&[][..], provider_key, SERVICE, &[("authorization", "Bearer task_00")]] {
        assert_eq!(
            stage.asks("GET", "tasks/list", fields, "").await.status(),
            404,
            "{fields:?}"
        );
    }
    for path in ["outstanding", "me"] {
        let answer = stage.asks("GET", path, &[("authorization", &link)], "").await;
        assert_eq!(answer.status(), 404, "{path}");
    }
    stage.calls("team", "toolu_01GgHh6hJ3kL3mN5", "render").await;
    let several = stage.makes_link("team").await;
    assert_eq!(
        (several.status(), &several.json()["code"]),
        (403, &json!("several_people"))
    );

    // Only its owner revokes a link.
    let revoke = format!("tasks/links/{}", made["link"].as_str().unwrap());
    let of_ben = [("x-api-key", "sk-one"), ("x-antiphon-client-token", "ben")];
    assert_eq!(stage.asks("DELETE", &revoke, &of_ben, "").await.status(), 404);
    assert_eq!(stage.asks("DELETE", &revoke, provider_key, "").await.status(), 200);
    assert_eq!(
        stage
            .asks("GET", "tasks/list", &[("authorization", &link)], "")
            .await
            .status(),
        404
    );
    let log = stage.process.take().unwrap().stop_with_log().await.join("\n");
    assert!(!log.contains("task_") && !log.contains("frame"), "{log}");
}

/// R13: a person with a link of the operator reports an unknown outcome. An API key makes no such link.
#[tokio::test]
async fn a_link_of_the_operator_resolves_unknown_outcomes() {
    let stage = Stage::start("task_page = true").await;
    let owner = stage.calls("ann", MAIL, "mail").await;
    let reader = [("x-api-key", "sk-one"), ("x-antiphon-client-token", "ann")];
    assert_eq!(stage.asks("GET", "outstanding", &reader, "").await.status(), 200);
    let claim = json!({"call_id": MAIL, "owner": owner, "lease": "1s"}).to_string();
    let claimed = loop {
        let answer = stage.asks("POST", "intents", SERVICE, &claim).await;
        if answer.status() != 404 {
            break answer;
        }
    };
    assert_eq!(claimed.status(), 201, "{}", claimed.text());
    let own = bearer(&stage.makes_link("ann").await.json());
    let intent = loop {
        let tasks = stage.lists(&own).await;
        if state_of(&tasks, "mail") == "unknown" {
            assert_eq!(tasks.len(), 1, "{tasks:?}");
            break tasks[0]["task"].as_str().unwrap().to_owned();
        }
    };
    let (path, outcome) = (
        format!("tasks/{intent}/resolve"),
        json!({"outcome": "not_run"}).to_string(),
    );
    let refused = stage.asks("POST", &path, &[("authorization", &own)], &outcome).await;
    assert_eq!(
        (refused.status(), &refused.json()["code"]),
        (403, &json!("read_only_link"))
    );

    for wrong in [
        &["link"][..],
        &["link", "--client", "nobody"],
        &["link", "--client", "team"],
    ] {
        assert_eq!(stage.tasks(wrong).0, Some(1), "{wrong:?}");
    }
    let (code, text) = stage.tasks(&["link", "--client", "ann", "--minutes", "5"]);
    assert_eq!(code, Some(0), "{text}");
    let url = json!({"url": text.lines().next().unwrap()});
    let link = bearer(&url);
    assert!(stage.lists(&link).await[0]["can_resolve"] == true);
    let of_ben = stage.tasks(&["link", "--client", "ben"]).1;
    let of_ben = bearer(&json!({"url": of_ben.lines().next().unwrap()}));
    let foreign = stage.asks("POST", &path, &[("authorization", &of_ben)], &outcome).await;
    assert_eq!(foreign.status(), 404, "{}", foreign.text());
    let resolved = stage.asks("POST", &path, &[("authorization", &link)], &outcome).await;
    assert_eq!(
        (resolved.status(), resolved.json()),
        (200, json!({"state": "cancelled"}))
    );
    let again = stage.asks("POST", "intents", SERVICE, &claim).await;
    assert_eq!(again.status(), 201, "{}", again.text());
    let id = text.split_whitespace().next_back().unwrap();
    assert_eq!(stage.tasks(&["revoke", id]).0, Some(0));
    let gone = stage
        .process()
        .ask(get_with("/ledger/v1/tasks/list", &[("authorization", &link)]))
        .await;
    assert_eq!(gone.status(), 404);
}

/// Tasks after many answered calls are found, each once, and the last page has no cursor.
#[tokio::test]
async fn a_list_of_many_calls_has_every_task_once() {
    let settings = LateSettings {
        services: vec![service("tools", None, None)],
        ..LateSettings::default()
    };
    let late = running(&durable(), settings);
    let caller = Caller::of_account(Principal::of_token(late.principal_key(), "ann"));
    late.callers().mark_verified(caller);
    late.flush_updates().await;
    for number in 0..700 {
        let id = format!("call_{number}");
        let call = ObservedCall {
            lane: Some(LaneId::main_lanes(&caller, &id)[0]),
            session: None,
            session_label: None,
            strength: SessionStrength::Strong,
            id: id.clone().into_bytes(),
            tool: b"render".to_vec(),
            input: Some([1; 32]),
            intent_input: None,
            origin: None,
            is_emitted: true,
        };
        late.calls().record_calls(caller, [call]);
        // Only the last calls run. The others have their answer.
        if number < 600 {
            let lane = Some(LaneId::main_lanes(&caller, &id)[0]);
            let answered = CallQuery {
                id: id.into_bytes(),
                tool: b"render".to_vec(),
                input_hash: [1; 32],
                session: None,
            };
            late.calls().note_client_result(caller, lane, answered, None);
        }
    }
    late.flush_updates().await;
    let (mut found, mut after) = (Vec::new(), Some(TaskCursor::Intents(0)));
    let mut pages = 0;
    while let Some(cursor) = after {
        let page = late.tasks().list(caller, cursor).await.unwrap();
        found.extend(page.rows.into_iter().map(|task| task.id));
        (after, pages) = (page.next, pages + 1);
    }
    let TaskId::Call(_) = found[0] else { panic!("{found:?}") };
    let names: std::collections::BTreeSet<String> = found.iter().map(|id| format!("{id:?}")).collect();
    assert_eq!((found.len(), names.len(), pages), (100, 100, 2));
}

/// An agent with the person's key can neither replace the operator's link nor keep one beyond the configuration.
#[tokio::test]
async fn links_of_a_key_leave_those_of_an_operator_and_end_with_the_configuration() {
    let mut stage = Stage::start("task_page = true").await;
    stage.calls("ann", RENDER, "render").await;
    let (code, text) = stage.tasks(&["link", "--client", "ann"]);
    assert_eq!(code, Some(0), "{text}");
    let secret = text.lines().find_map(|line| line.split_once('#')).unwrap().1;
    let of_operator = format!("Bearer {secret}");
    let mut own = Vec::new();
    for _ in 0..34 {
        let made = stage.makes_link("ann").await;
        assert_eq!(made.status(), 201, "{}", made.text());
        own.push(bearer(&made.json()));
    }
    let opens = async |stage: &Stage, secret: &str| {
        let fields = [("authorization", secret)];
        let list = stage.asks("GET", "tasks/list", &fields, "");
        list.await.status()
    };
    for (at, secret) in own.iter().enumerate() {
        assert_eq!(opens(&stage, secret).await, if at < 2 { 404 } else { 200 }, "link {at}");
    }
    assert_eq!(opens(&stage, &of_operator).await, 200);

    let shared = Stage::config(&stage.provider, "task_page = true").replace(", personal = true", "");
    stage.install.write(&shared);
    stage.process.take().unwrap().stop().await;
    stage.process = Some(stage.install.start().await);
    assert_eq!(opens(&stage, &of_operator).await, 404);
    assert_eq!(opens(&stage, &own[33]).await, 404);
}
