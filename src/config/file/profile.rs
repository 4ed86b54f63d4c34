//! `[[upstreams.NAME.profiles]]` and `[client_tokens]` in the file. Secrets never get this far.
//!
//! The reader keeps the value of a key with `writeOnly` apart, and leaves here what may be shown in its place: the
//! reference `${NAME}` that it was written as, or `***`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One of your credentials at an upstream: exactly one of an API key, a bearer token, or the keys of AWS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// Its label in logs, metrics and headers; the only one of its upstream.
    pub name: String,
    /// An API key, as `${NAME}`: sent in the header that the provider wants it in.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("writeOnly" = true))]
    pub api_key: Option<String>,
    /// A file that holds the API key; like all such files read once, at the start, without its last line break.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<String>,
    /// A token, as `${NAME}`: sent as `Authorization: Bearer`, and never refreshed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("writeOnly" = true))]
    pub bearer: Option<String>,
    /// A file that holds the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bearer_file: Option<String>,
    /// Which key of AWS signs: of upstreams of the kind `bedrock` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("writeOnly" = true))]
    pub aws_access_key_id: Option<String>,
    /// A file that holds the id of the key of AWS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_access_key_id_file: Option<String>,
    /// The key of AWS itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("writeOnly" = true))]
    pub aws_secret_access_key: Option<String>,
    /// A file that holds the key of AWS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_secret_access_key_file: Option<String>,
    /// What goes with temporary keys of AWS.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("writeOnly" = true))]
    pub aws_session_token: Option<String>,
    /// A file that holds the session token of AWS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_session_token_file: Option<String>,
    /// The region of AWS; by default told from the host of the upstream's URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_region: Option<String>,
    /// Its share of the requests, beside the others of its upstream: from 1 to 1000.
    pub weight: u64,
    /// Whose account it is; by default learned from answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organisation: Option<String>,
    /// Models that it may be used for, by name or by beginning (`claude-*`); none named: all.
    pub models: Vec<String>,
}

impl Default for Profile {
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

/// The hash of a client's token: `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ClientToken(pub String);
