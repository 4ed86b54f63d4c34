//! `[principals]`, `[ledger]` and `[services.NAME]` in the file. The secrets of services never get this far.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ClientToken;

/// `[principals]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Principals {
    /// How callers are told.
    pub mode: PrincipalsMode,
    /// The request header in which somebody that you trust names the user within a caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_header: Option<String>,
    /// Whether the user that a body names is believed.
    pub trust_body_user: bool,
}

/// How callers are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PrincipalsMode {
    /// Each credential is a caller of its own.
    #[default]
    #[serde(rename = "each")]
    Each,
    /// There is one caller, whatever is presented.
    #[serde(rename = "single")]
    Single,
}

/// `[ledger]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ledger {
    /// Where calls and late results are kept.
    pub store: StoreName,
    /// The file of the store; by default where the system keeps such data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How long a call waits for its result, and a result for its owner.
    pub ttl: String,
    /// How long nothing may come of a call before its turn counts as left.
    pub detach_after: String,
    /// Where results are kept that were only seen in requests.
    pub keep_seen: KeepSeenName,
    /// Bytes of everything that is kept.
    pub bytes_max: String,
    /// Bytes of what is kept for one caller.
    pub principal_bytes_max: String,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            store: StoreName::Sqlite,
            path: None,
            ttl: "7d".into(),
            detach_after: "5m".into(),
            keep_seen: KeepSeenName::Memory,
            bytes_max: "1GiB".into(),
            principal_bytes_max: "256MiB".into(),
        }
    }
}

/// Where calls and late results are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StoreName {
    /// In a file of its own.
    #[serde(rename = "sqlite")]
    Sqlite,
    /// In memory: gone with the process.
    #[serde(rename = "memory")]
    Memory,
}

/// Where results are kept that were only seen in requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum KeepSeenName {
    /// In memory.
    #[serde(rename = "memory")]
    Memory,
    /// In the ledger's store.
    #[serde(rename = "disk")]
    Disk,
}

/// `[services.NAME]`: a tool service that may post results of calls. It needs a token, a secret, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Service {
    /// The hash of its token, as `antiphon config token` prints it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<ClientToken>,
    /// The secret of its Standard Webhooks signatures, as `${NAME}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("writeOnly" = true))]
    pub secret: Option<String>,
    /// The client tokens whose calls it answers, by name, or `*`.
    pub principals: Vec<String>,
    /// The tools that it runs, or `*`.
    pub tools: Vec<String>,
}
