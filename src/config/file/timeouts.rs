//! `[timeouts]` and `[rotation]` of the file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OnOrganisationChangeName;

/// `[timeouts]`: timeouts of an exchange.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TimeoutsSection {
    /// Timeout for DNS and TCP, including a forward proxy.
    pub connect: String,
    /// Timeout for the TLS handshake that follows.
    pub tls: String,
    /// Timeout while the provider accepts no further bytes of the request.
    pub send: String,
    /// Timeout from the sent request to the response head, if the head comes when the model is done.
    pub headers: String,
    /// Same as `headers`, for streams whose head comes at once: Messages and Responses.
    pub stream_headers: String,
    /// Timeout from the response head to the first content event, on a stream that has sent heartbeats.
    pub first_event: String,
    /// Timeout without any byte of a response body, on a stream that has sent no heartbeat.
    pub idle: String,
    /// Timeout without any byte, on a stream that has sent a heartbeat.
    pub heartbeat_idle: String,
    /// Timeout while only heartbeats arrive.
    pub progress: String,
    /// Same as `progress`, while the model reasons.
    pub reasoning: String,
    /// Same as `progress`, while a tool runs at the provider.
    pub server_tool: String,
    /// Same as `progress`, while the provider compacts the history.
    pub compaction: String,
    /// Timeout for the whole exchange.
    pub total: String,
    /// Time that a stream is held back before its first event, if a retry is still possible. `0s` turns it off.
    pub gate: String,
    /// Time that a request may wait for a profile in cooldown. `0s` turns waiting off.
    pub queue: String,
    /// Timeout while a client reads nothing of its response.
    pub client_stall: String,
    /// Time that an idle connection to a provider stays open for reuse.
    pub pool_idle: String,
}

impl Default for TimeoutsSection {
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

/// `[rotation]`: rules for moving requests between the profiles of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RotationSection {
    /// Longest cooldown of its own profile that a lane waits for, instead of moving to another profile.
    pub wait: String,
    /// Reaction if only a profile of another organisation is left.
    pub on_organisation_change: OnOrganisationChangeName,
}

impl Default for RotationSection {
    fn default() -> Self {
        Self {
            wait: "10s".into(),
            on_organisation_change: OnOrganisationChangeName::Surface,
        }
    }
}
