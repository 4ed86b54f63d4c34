//! `[[upstreams.NAME.profiles]]` and `[client_tokens]` of the file. Secrets never reach these types.
//!
//! The reader stores the value of a key with `writeOnly` elsewhere. Here it leaves text that may be shown: the
//! reference `${NAME}` as it was written, or `***`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One of your credentials at an upstream: an API key, a bearer token or AWS keys, exactly one of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProfileSection {
    /// Label in logs, metrics and headers. Unique within its upstream.
    pub name: String,
    /// API key, written as `${NAME}`. The proxy sends it in the header that the provider expects.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("writeOnly" = true))]
    pub api_key: Option<String>,
    /// File that contains only the API key. It is read when the configuration is loaded, without its last line break.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<String>,
    /// Token, written as `${NAME}`. The proxy sends it as `Authorization: Bearer` and never refreshes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("writeOnly" = true))]
    pub bearer: Option<String>,
    /// File that contains only the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bearer_file: Option<String>,
    /// ID of the AWS key that signs requests, written as `${NAME}`. Only for upstreams of kind `bedrock`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("writeOnly" = true))]
    pub aws_access_key_id: Option<String>,
    /// File that contains only the ID of the AWS key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_access_key_id_file: Option<String>,
    /// Secret AWS key, written as `${NAME}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("writeOnly" = true))]
    pub aws_secret_access_key: Option<String>,
    /// File that contains only the secret AWS key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_secret_access_key_file: Option<String>,
    /// Session token of temporary AWS keys, written as `${NAME}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("writeOnly" = true))]
    pub aws_session_token: Option<String>,
    /// File that contains only the AWS session token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_session_token_file: Option<String>,
    /// AWS region. Default: derived from the host of the upstream's URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_region: Option<String>,
    /// Share of requests relative to the other profiles of its upstream, from 1 to 1000.
    pub weight: u64,
    /// Organisation that owns the account. Default: learned from the provider's answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organisation: Option<String>,
    /// Models that it may be used for, by name or prefix (`claude-*`). Empty: all models.
    pub models: Vec<String>,
}

impl Default for ProfileSection {
    fn default() -> Self {
        Self {
            name: String::new(),
            api_key: None,
            api_key_file: None,
            bearer: None,
            bearer_file: None,
            aws_access_key_id: None,
            aws_access_key_id_file: None,
            aws_secret_access_key: None,
            aws_secret_access_key_file: None,
            aws_session_token: None,
            aws_session_token_file: None,
            aws_region: None,
            weight: 1,
            organisation: None,
            models: Vec::new(),
        }
    }
}

/// Hash of a client's token: `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct TokenHashText(pub String);
