//! `[timeouts]` and `[rotation]` in the file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OnOrganisationChangeName;

/// `[timeouts]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// DNS and TCP, the company's proxy included.
    pub connect: String,
    /// The TLS handshake behind it.
    pub tls: String,
    /// Silence of the provider while it takes the request.
    pub send: String,
    /// From the request sent to the head of the answer, where the head comes when the model is done.
    pub headers: String,
    /// As `headers`, of streams whose head comes at once: Messages and Responses.
    pub stream_headers: String,
    /// From the head to the first event that says something, where heartbeats were seen.
    pub first_event: String,
    /// No byte at all of an answer's body, where its stream has shown no heartbeat.
    pub idle: String,
    /// No byte at all, where the stream has shown a heartbeat.
    pub heartbeat_idle: String,
    /// Nothing but heartbeats.
    pub progress: String,
    /// As `progress`, while reasoning is open.
    pub reasoning: String,
    /// As `progress`, while a tool runs at the provider.
    pub server_tool: String,
    /// As `progress`, while the provider compacts the history.
    pub compaction: String,
    /// The whole exchange.
    pub total: String,
    /// How long an answer may be held back before its first event, while another attempt could still be made.
    pub gate: String,
    /// How long a request may wait for a profile that rests.
    pub queue: String,
    /// How long a client may take nothing of its answer.
    pub client_stall: String,
    /// How long an idle connection is kept for the next request.
    pub pool_idle: String,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: "5s".into(),
            tls: "5s".into(),
            send: "30s".into(),
            headers: "600s".into(),
            stream_headers: "60s".into(),
            first_event: "120s".into(),
            idle: "240s".into(),
            heartbeat_idle: "90s".into(),
            progress: "240s".into(),
            reasoning: "600s".into(),
            server_tool: "900s".into(),
            compaction: "900s".into(),
            total: "3600s".into(),
            gate: "10s".into(),
            queue: "30s".into(),
            client_stall: "120s".into(),
            pool_idle: "25s".into(),
        }
    }
}

/// `[rotation]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Rotation {
    /// How long a lane waits for its own profile while that rests, rather than move to another.
    pub wait: String,
    /// What to do where only a profile of another organisation is left.
    pub on_organisation_change: OnOrganisationChangeName,
}

impl Default for Rotation {
    fn default() -> Self {
        Self {
            wait: "10s".into(),
            on_organisation_change: OnOrganisationChangeName::Surface,
        }
    }
}
