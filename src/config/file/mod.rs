//! What may be written in the configuration file: every key, its default and its meaning. Values are still text here.
//!
//! The one list of keys: the JSON Schema, the reader's "did you mean", `config print` and the defaults all come from it.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, generate::SchemaSettings, transform::RecursiveTransform};
use serde::{Deserialize, Serialize};
use serde_json::Value;

mod late;
mod profile;
mod timeouts;
mod words;

pub use late::{KeepSeenName, Ledger, Principals, PrincipalsMode, Service, StoreName};
pub use profile::{ClientToken, Profile};
pub use timeouts::{Rotation, Timeouts};
pub use words::{
    CredentialsName, KindName, LateName, LeastName, LogFormatName, ModeName, OnBindingErrorName,
    OnOrganisationChangeName, TierName,
};

/// Configuration of Antiphon: one TOML file, in which every key may be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct File {
    /// Where to listen, who may call, and how much at once.
    pub server: Server,
    /// Clocks of an exchange, each from its start event to its stop event.
    pub timeouts: Timeouts,
    /// How requests move between the profiles of an upstream.
    pub rotation: Rotation,
    /// What is done about breaches of the pairing rules.
    pub repair: Repair,
    /// Log lines on stderr.
    pub log: Log,
    /// Traces of OpenTelemetry, sent to a collector. Never content.
    pub traces: Traces,
    /// Provider endpoints by name. The name is the path prefix: `http://127.0.0.1:4747/NAME`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub upstreams: BTreeMap<String, Upstream>,
    /// What is known of tools, by their name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, Tool>,
    /// Who may use the profiles, by name: the hash of each client's token, as `antiphon config token` prints it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub client_tokens: BTreeMap<String, ClientToken>,
    /// How callers are told.
    pub principals: Principals,
    /// What outlives a conversation: calls, and results that came late.
    pub ledger: Ledger,
    /// Tool services that may post results of calls, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<String, Service>,
}

/// `[server]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// Address and port of the proxy.
    pub listen: String,
    /// Address and port of the dashboard, health, metrics and administration; loopback, unless there is a token.
    pub admin_listen: String,
    /// The hash of the token that is asked for there, as `antiphon config token` prints it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_token: Option<ClientToken>,
    /// Origins of web pages that may call the proxy, exactly as browsers send them: `https://app.example.com`.
    pub allow_origins: Vec<String>,
    /// Host names, besides loopback, under which the proxy may be called; no port.
    pub allow_hosts: Vec<String>,
    /// Whether the request header `x-antiphon-mode` may also make a route less strict.
    pub trust_mode_header: bool,
    /// Client connections at once; more wait in the kernel's queue.
    pub connections_max: usize,
    /// Time for a client to send its request's head.
    pub header_timeout: String,
    /// Silence of a client in the middle of its request's body.
    pub upload_idle_timeout: String,
    /// Time for running exchanges to finish after SIGTERM.
    pub drain_timeout: String,
    /// Request bodies above this size are forwarded without being read.
    pub inspect_bytes_max: String,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:4747".into(),
            admin_listen: "127.0.0.1:4748".into(),
            admin_token: None,
            allow_origins: Vec::new(),
            allow_hosts: Vec::new(),
            trust_mode_header: false,
            connections_max: 10_000,
            header_timeout: "30s".into(),
            upload_idle_timeout: "30s".into(),
            drain_timeout: "30s".into(),
            inspect_bytes_max: "64MiB".into(),
        }
    }
}

/// `[repair]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Repair {
    /// What routes do about findings, unless their upstream says otherwise.
    pub mode: ModeName,
    /// The least safe class of action that is still applied.
    pub least: LeastName,
    /// Whether field values that the provider rejects are mended too.
    pub hygiene: bool,
    /// What to do about thinking that Anthropic has bound to another beginning of the conversation.
    pub on_binding_error: OnBindingErrorName,
    /// What to do about a real result that stands elsewhere in the body, where its call was answered by a placeholder before.
    pub late: LateName,
}

impl Default for Repair {
    fn default() -> Self {
        Self {
            mode: ModeName::Repair,
            least: LeastName::Lossy,
            hygiene: true,
            on_binding_error: OnBindingErrorName::DropBlock,
            late: LateName::Keep,
        }
    }
}

/// `[log]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// How a line looks.
    pub format: LogFormatName,
    /// Level, or directives as `RUST_LOG` takes them: `info`, `antiphon=debug,warn`.
    pub level: String,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            format: LogFormatName::Auto,
            level: "info".into(),
        }
    }
}

/// `[traces]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Traces {
    /// The collector's URL for OTLP over HTTP: `http://127.0.0.1:4318`; without a path, `/v1/traces` is asked there. By
    /// default no traces are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Whether requests go up with a span of ours as their parent, in place of the client's.
    pub propagate: bool,
}

/// `[upstreams.NAME]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Upstream {
    /// `http` or `https`, host, optional port, optional path. May be left out for a built-in name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Whose API it speaks; by default told from the name, then from the host, then `compatible`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<KindName>,
    /// What its routes do about findings; by default `repair.mode`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<ModeName>,
    /// Whose credential goes up; by default `profiles` where there are any, else `passthrough`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<CredentialsName>,
    /// Credentials of yours, one of which goes up in place of the client's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<Profile>,
}

/// `[tools."NAME"]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tool {
    /// How far its effect can be taken back: picks the words that stand in for a result that never came.
    pub tier: TierName,
    /// How long it may take: its calls and sessions are remembered that long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_duration: Option<String>,
}

/// The JSON Schema of the file, for editors; all in one piece, without references.
pub fn schema() -> Schema {
    SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true)
        .with_transform(RecursiveTransform(without_null))
        .into_generator()
        .into_root_schema_for::<File>()
}

/// TOML has no null: a key that may be left out has the schema of its value.
fn without_null(schema: &mut Schema) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(mut choices)) = schema.remove("anyOf") {
        choices.retain(|choice| choice.get("type").is_none_or(|name| name != "null"));
        match choices.pop() {
            Some(Value::Object(only)) if choices.is_empty() => {
                for (key, value) in only {
                    if !(key == "description" && schema.get("description").is_some()) {
                        schema.insert(key, value);
                    }
                }
            }
            Some(last) => {
                choices.push(last);
                schema.insert("anyOf".into(), Value::Array(choices));
            }
            None => {}
        }
    }
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
}
