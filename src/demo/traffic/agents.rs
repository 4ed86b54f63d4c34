//! The clients of the example traffic.

use std::io;

use serde_json::{Value, json};

use super::history::{HistoryEntry, write_body};
use crate::{
    demo::{
        client::{Answer, Ask},
        setup::{BINDING, CLIENTS, COMPANY, OFFLINE, TRIAL_MODEL},
        stage::Stage,
    },
    provider::next_turn_path,
    wire::Format,
};

/// A client with its session and its place at the proxy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agent {
    /// The session that the client names.
    pub(super) session: &'static str,
    /// Value of the header `user-agent`.
    pub(super) product: &'static str,
    pub(super) upstream: &'static str,
    pub(super) format: Format,
    pub(super) model: &'static str,
    /// Name of the client token that it sends. Empty without one.
    pub(super) client: &'static str,
    /// The client's own key for the provider.
    pub(super) key: &'static str,
}

const CLAUDE: Agent = Agent {
    session: "refactor-auth",
    product: "claude-cli/2.1.40 (external, cli)",
    upstream: "anthropic",
    format: Format::Anthropic,
    model: "claude-opus-4-7",
    client: "",
    key: "demo-live-1",
};
pub(super) const COMPANY_AGENT: Agent = Agent {
    session: "fix-flaky-test",
    upstream: COMPANY,
    model: "claude-sonnet-4-6",
    client: CLIENTS[0],
    ..CLAUDE
};
pub(super) const NIGHTLY: Agent = Agent {
    session: "nightly-report",
    product: "Anthropic/Python 0.75.0",
    client: CLIENTS[2],
    ..COMPANY_AGENT
};
pub(super) const CODEX: Agent = Agent {
    session: "port-to-arm",
    product: "codex_cli_rs/0.63.0 (Debian 13; x86_64)",
    upstream: "openai",
    format: Format::OpenAiResponses,
    model: "gpt-5.5",
    client: "",
    key: "demo-live-2",
};
pub(super) const OPENCODE: Agent = Agent {
    session: "write-docs",
    product: "opencode/1.2.10 ai-sdk/openai",
    format: Format::OpenAiChat,
    model: "gpt-5.5-mini",
    client: CLIENTS[1],
    key: "demo-live-3",
    ..CODEX
};
pub(super) const GEMINI: Agent = Agent {
    session: "triage-issues",
    product: "GeminiCLI/0.21.0 (linux; x64)",
    upstream: "gemini",
    format: Format::Gemini,
    model: "gemini-3.5-pro",
    client: "",
    key: "demo-live-4",
};
pub(super) const DEEPSEEK: Agent = Agent {
    session: "clean-up-data",
    upstream: "deepseek",
    model: "deepseek-v4",
    ..OPENCODE
};
/// DeepSeek's server for clients of Anthropic.
pub(super) const DEEPSEEK_MESSAGES: Agent = Agent {
    session: "compare-models",
    upstream: "deepseek",
    model: "deepseek-v4",
    ..CLAUDE
};
pub(super) const MISTRAL: Agent = Agent {
    session: "translate-texts",
    upstream: "mistral",
    model: "mistral-large-3",
    ..OPENCODE
};
pub(super) const THINKING: Agent = Agent {
    session: "prove-lemma",
    upstream: BINDING,
    model: "claude-opus-5",
    ..CLAUDE
};
pub(super) const TRIAL: Agent = Agent {
    model: TRIAL_MODEL,
    ..COMPANY_AGENT
};
pub(super) const UNREACHABLE: Agent = Agent {
    session: "local-model",
    upstream: OFFLINE,
    model: "qwen-4-coder",
    ..OPENCODE
};

/// Every client with a healthy conversation.
pub(super) const AGENTS: [&Agent; STEADY] = [&CLAUDE, &CODEX, &COMPANY_AGENT, &OPENCODE, &GEMINI, &NIGHTLY, &DEEPSEEK];
/// Number of clients with a healthy conversation.
pub(super) const STEADY: usize = 7;

impl Agent {
    /// Sends a history. `mode` is the strictness that the client asks for.
    pub(super) async fn send(
        &self,
        stage: &Stage,
        number: usize,
        history: &[HistoryEntry],
        mode: Option<&str>,
    ) -> io::Result<Answer> {
        let body = self.body(number, history).to_string();
        self.send_body(stage, self.session, &body, mode).await
    }

    /// Returns the body of a request.
    pub(super) fn body(&self, number: usize, history: &[HistoryEntry]) -> Value {
        let mut body = write_body(self.format, self.model, number, history);
        if self.upstream == "deepseek" {
            // Without thinking, since this server wants its thinking of earlier turns back.
            body["thinking"] = json!({"type": "disabled"});
        }
        body
    }

    /// Sends a body in a session.
    pub(super) async fn send_body(
        &self,
        stage: &Stage,
        session: &str,
        body: &str,
        mode: Option<&str>,
    ) -> io::Result<Answer> {
        let headers = self.headers(stage, session);
        let mut headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        headers.extend(mode.map(|mode| ("x-antiphon-mode", mode)));
        Ask::post(stage.proxy_at, &self.path(), &headers, body).send().await
    }

    /// Returns the path of its requests at the proxy.
    pub(super) fn path(&self) -> String {
        format!("/{}{}", self.upstream, next_turn_path(self.format, self.model))
    }

    /// Returns the headers of its requests.
    pub(super) fn headers(&self, stage: &Stage, session: &str) -> Vec<(&'static str, String)> {
        let key = match self.format {
            Format::Anthropic => ("x-api-key", self.key.to_owned()),
            Format::Gemini => ("x-goog-api-key", self.key.to_owned()),
            Format::OpenAiChat | Format::OpenAiResponses => ("authorization", format!("Bearer {}", self.key)),
        };
        let mut headers = vec![
            key,
            ("user-agent", self.product.to_owned()),
            ("x-antiphon-session", session.to_owned()),
        ];
        if !self.client.is_empty() {
            let token = stage.tokens.of_client(self.client).to_owned();
            headers.push(("x-antiphon-client-token", token));
        }
        headers
    }
}
