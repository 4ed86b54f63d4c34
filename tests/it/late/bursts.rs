//! Many messages to receivers at once, with the real binary: results, cancels, and what an earlier process has left.

use antiphon::auth::TokenHash;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::{
    app::post_with,
    binary::{Install, Process},
    late::numbered_id,
    provider::{Provider, Reply, ToolCall},
    receiver::{Answer, Receiver},
    wire::Message,
};

const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const SERVICE: &[(&str, &str)] = &[("authorization", "Bearer token of tools")];
const OWNER: &[(&str, &str)] = &[("x-api-key", "sk-ann")];
/// The messages of a burst.
const BURST: usize = 64;
/// The messages that are on their way to one receiver at once.
const AT_ONCE: usize = 8;

/// The answers of a receiver that has each group of messages end at the same moment. `before` have arrived already.
fn in_groups(before: usize) -> impl Iterator<Item = Answer> {
    (0..BURST).map(move |number| Answer::Behind(before + (number / AT_ONCE + 1) * AT_ONCE))
}

/// A proxy with one webhook, and a tool that can be undone by another receiver.
struct Stage {
    provider: Provider,
    webhook: Receiver,
    undo: Receiver,
    install: Install,
    process: Process,
}

impl Stage {
    async fn start() -> Self {
        let (provider, webhook, undo) = (
            Provider::start().await,
            Receiver::start().await,
            Receiver::start().await,
        );
        let install = Install::new(&format!(
            "[upstreams.anthropic]\nurl = \"{}\"\n[ledger]\ncancel_grace = \"1s\"\n\
             [services.tools]\ntoken = \"{}\"\nsecret = \"{SECRET}\"\nprincipals = [\"*\"]\ntools = [\"*\"]\n\
             [webhooks.all]\nurl = \"{}\"\nsecret = \"{SECRET}\"\nprincipals = [\"*\"]\n\
             [tools.render]\ntier = \"durable\"\n\
             [tools.hold]\ntier = \"revertible\"\nmax_duration = \"10m\"\ncancel_url = \"{}\"\n",
            provider.url(),
            TokenHash::hash_token(b"token of tools"),
            webhook.url(),
            undo.url(),
        ));
        let process = install.start().await;
        Self {
            provider,
            webhook,
            undo,
            install,
            process,
        }
    }

    /// The model calls a tool in a session of its own.
    async fn calls(&self, id: &str, tool: &str) {
        let body = json!({"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "go"}]}).to_string();
        let fields = [("x-api-key", "sk-ann"), ("x-antiphon-session", id)];
        let call = ToolCall::new(id, tool, json!({"scene": 1}));
        for reply in [Reply::Text("hello".to_owned()), Reply::Calls(vec![call])] {
            self.provider.reply(reply);
            let request = post_with("/anthropic/v1/messages", &fields, body.as_bytes());
            let answer = self.process.ask(request).await;
            assert_eq!(answer.status(), 200, "{}", answer.text());
        }
    }

    /// Opens a burst of calls of a tool. Returns their ids.
    async fn opens(&self, tool: &str, first: usize) -> Vec<String> {
        let ids: Vec<String> = (first..first + BURST).map(numbered_id).collect();
        for id in &ids {
            self.calls(id, tool).await;
        }
        ids
    }

    async fn posts(&self, path: &str, fields: &[(&str, &str)], body: &Value) -> Message {
        let path = format!("/ledger/v1/{path}");
        self.process
            .ask(post_with(&path, fields, body.to_string().as_bytes()))
            .await
    }

    /// Settles a call once it is recorded.
    async fn settles(&self, id: &str) {
        let path = format!("calls/{id}/result");
        while self.posts(&path, SERVICE, &json!({"content": "film"})).await.status() != 200 {}
    }
}

/// Every message of a burst is sent, and a cancel to another receiver is not held up by it.
#[tokio::test]
async fn a_burst_of_results_and_a_cancel_beside_it_are_sent() {
    let stage = Stage::start().await;
    stage.calls(&numbered_id(0), "hold").await;
    let ids = stage.opens("render", 1).await;
    stage.webhook.answer(in_groups(0));
    join_all(ids.iter().map(|id| stage.settles(id))).await;
    let path = format!("calls/{}/cancel", numbered_id(0));
    let asked = stage.posts(&path, OWNER, &json!({})).await;
    assert_eq!(asked.status(), 202, "{}", asked.text());
    stage.undo.wait_for(1).await;
    stage.webhook.wait_for(BURST).await;
}

/// What waits when a process starts is sent by it, and a cancel, too.
#[tokio::test]
async fn a_backlog_and_a_cancel_beside_it_are_sent_by_the_next_process() {
    let mut stage = Stage::start().await;
    // The first messages hang, so that all others wait when the process dies.
    stage.webhook.answer(vec![Answer::Hang; AT_ONCE]);
    stage.webhook.answer(in_groups(AT_ONCE));
    stage.calls(&numbered_id(0), "hold").await;
    let ids = stage.opens("render", 1).await;
    join_all(ids.iter().map(|id| stage.settles(id))).await;
    stage.webhook.wait_for(AT_ONCE).await;
    stage.process.kill();
    stage.process = stage.install.start().await;
    let path = format!("calls/{}/cancel", numbered_id(0));
    let asked = stage.posts(&path, OWNER, &json!({})).await;
    assert_eq!(asked.status(), 202, "{}", asked.text());
    stage.undo.wait_for(1).await;
    stage.webhook.wait_for(BURST + AT_ONCE).await;
}

/// Every cancel of a burst is sent.
#[tokio::test]
async fn a_burst_of_cancels_is_sent() {
    let stage = Stage::start().await;
    let ids = stage.opens("hold", 0).await;
    stage.undo.answer(in_groups(0));
    let paths = ids.iter().map(|id| format!("sessions/{id}/close"));
    let closing = paths.map(|path| {
        let stage = &stage;
        async move { stage.posts(&path, OWNER, &json!({})).await }
    });
    for closed in join_all(closing).await {
        assert_eq!(closed.status(), 200, "{}", closed.text());
    }
    stage.undo.wait_for(BURST).await;
}
