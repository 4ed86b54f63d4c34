//! Rows of the configuration file: every key with its type, its default and its meaning.
//!
//! These rows are the only list of keys. The JSON Schema, the reader's "did you mean", `config print`, the defaults and
//! the bounds of values are derived from them. Operators read these doc comments in the schema. A key that is `None` is
//! left out of every output, since TOML has no null.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, generate::SchemaSettings, transform::RecursiveTransform};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::values::{
    Address, BodyMemoryMax, ClientAddresses, CollectorUrl, HashedToken, HostName, InputPointer, IntentWindow,
    LogDirectives, MessageUrl, Origin, Retention, Size, Timeout, UpstreamAddress, Wait, check_number,
};
use crate::{
    labels::labelled_enum,
    late::IntentUse,
    provider::ProviderKind,
    proxy::OnBindingError,
    repair::{Applicability, Mode, OnLate, Tier},
    telemetry::LogFormat,
};

#[macro_use]
pub mod section;
mod late;
mod profile;
mod rules;
mod timeouts;
pub mod values;
mod word;
pub mod written;

pub use late::{
    KeepSeenName, LedgerSection, MigrateName, PrincipalsMode, PrincipalsSection, ServiceSection, StoreName,
    WebhookSection,
};
pub use profile::{
    CertificateNameList, ClientLimitsSection, ClientTokenEntry, ClientTokenSection, CommandWord, ProfileSection,
};
pub use rules::{RuleExampleSection, RuleRepairSection, RuleSection, RulesFile};
pub use section::{FileValue, Overrides, Row, join_key, split_list};
pub use timeouts::{RotationSection, TimeoutsSection};
pub use word::{Word, unknown_word};
pub use written::{Meaning, Written};

section! {
    /// Configuration of Antiphon: one TOML file in which every key is optional.
    #[schemars(rename = "File")]
    ConfigFile {
        /// Listeners, access and limits.
        pub server: ServerSection = ServerSection::default();
        /// Timeouts of an exchange.
        pub timeouts: TimeoutsSection = TimeoutsSection::default();
        /// Rules for moving requests between the profiles of an upstream.
        pub rotation: RotationSection = RotationSection::default();
        /// Handling of breaches of the pairing rules.
        pub repair: RepairSection = RepairSection::default();
        /// Log lines on stderr.
        pub log: LogSection = LogSection::default();
        /// OpenTelemetry traces, sent to a collector. They never contain content.
        pub traces: TracesSection = TracesSection::default(), needs(restart);
        /// Provider endpoints by name. The name is the path prefix: `http://127.0.0.1:4747/NAME`.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub upstreams: BTreeMap<String, UpstreamSection> = BTreeMap::new();
        /// Properties of tools by tool name.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub tools: BTreeMap<String, ToolSection> = BTreeMap::new(), needs(restart);
        /// Clients that may use the profiles: a name for each, and the hash that `antiphon config token NAME` prints.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub client_tokens: BTreeMap<String, ClientTokenEntry> = BTreeMap::new();
        /// Client certificates that identify a client: its name, and the DNS names, URIs or email addresses of its
        /// certificates. The name may be that of a client token too.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub client_certificates: BTreeMap<String, CertificateNameList> = BTreeMap::new();
        /// Limits of client tokens, by the name of the token.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub client_limits: BTreeMap<String, ClientLimitsSection> = BTreeMap::new();
        /// Identification of callers.
        pub principals: PrincipalsSection = PrincipalsSection::default(), needs(restart);
        /// Store of pinned results, calls and late results.
        pub ledger: LedgerSection = LedgerSection::default(), needs(restart);
        /// Tool services that may post results of calls, by service name.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub services: BTreeMap<String, ServiceSection> = BTreeMap::new(), needs(restart);
        /// Receivers of events, by name.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub webhooks: BTreeMap<String, WebhookSection> = BTreeMap::new(), needs(restart);
    }
}

section! {
    /// `[server]`: listeners, access and limits.
    ServerSection {
        /// Address and port of the proxy.
        pub listen: Written<Address> = "127.0.0.1:4747".into(), needs(restart), given("ANTIPHON_LISTEN", "--listen");
        /// Address and port of the dashboard, health, metrics and administration. Other than loopback requires a token.
        pub admin_listen: Written<Address> = "127.0.0.1:4748".into(),
            needs(restart), given("ANTIPHON_ADMIN_LISTEN", "--admin-listen");
        /// Hash of the admin token, as `antiphon config token NAME` prints it. Health and the page itself need no token.
        pub admin_token: Option<Written<HashedToken>> = None, needs(restart);
        /// Origins of web pages that may call the proxy, as browsers send them: `https://app.example.com`.
        pub allow_origins: Vec<Written<Origin>> = Vec::new(), given("ANTIPHON_ALLOW_ORIGINS");
        /// Host names without port, besides loopback, under which clients may call the proxy.
        pub allow_hosts: Vec<Written<HostName>> = Vec::new(), given("ANTIPHON_ALLOW_HOSTS");
        /// Allows the request header `x-antiphon-mode` to make a route less strict, not only stricter.
        pub trust_mode_header: bool = false;
        /// Maximum number of open client connections. More of them wait in the kernel's queue.
        pub connections_max: usize = 10_000, check(|most| check_number(*most, 1.., "at least 1", None)), needs(restart);
        /// Maximum number of open connections of one client address (IPv6: of a /64 network). More are closed at once.
        /// Loopback and `trusted_proxies` have no such limit. Default: a quarter of `connections_max`.
        pub connections_per_address_max: Option<usize> = None,
            check(|most| check_number(*most, 1.., "at least 1", None)), needs(restart);
        /// Addresses and ranges of proxies that many clients share, such as "10.0.0.0/8".
        pub trusted_proxies: Vec<Written<ClientAddresses>> = Vec::new(), needs(restart);
        /// Timeout for a client to send the head of its request, and for its silence in the middle of the body.
        pub header_timeout: Written<Timeout> = "30s".into(), needs(restart);
        /// Time after SIGTERM in which new connections are still accepted, while `/readyz` fails already.
        pub drain_delay: Written<Wait> = "0s".into(), needs(restart);
        /// Time for running exchanges to finish, after SIGTERM and `drain_delay`. The proxy then cuts the rest.
        pub drain_timeout: Written<Wait> = "30s".into(), needs(restart), given("ANTIPHON_DRAIN_TIMEOUT");
        /// Interval at which the files of profiles' keys are read again for changes. `0s` turns it off.
        pub secret_poll: Written<Wait> = "10s".into();
        /// Size above which request bodies are forwarded without being inspected.
        pub inspect_bytes_max: Written<Size> = "64MiB".into();
        /// Memory that all request bodies together may use: a size of at least 2.2 times `inspect_bytes_max`, or `auto`
        /// for a quarter of what the machine or container has. Further bodies wait for up to 5 s, then get 503.
        pub body_memory_max: Written<BodyMemoryMax> = "auto".into(), needs(restart);
        // Old key.
        /// Timeout for silence of a client in the middle of its request body.
        pub upload_idle_timeout: Option<Written<Timeout>> = None,
            old("remove it, or set server.header_timeout, which is also this timeout");
        /// TLS of the listeners. Default: plain HTTP.
        pub tls: Option<TlsSection> = None, needs(restart);
    }
}

section! {
    /// `[server.tls]`: TLS of the listeners.
    TlsSection {
        /// File with the certificate, followed by those of the CAs between it and a root. PEM. Read again when it changes.
        pub certificate: Option<String> = None;
        /// File with the private key of the certificate, without a password. PEM. Read again when it changes.
        pub key: Option<String> = None;
        /// File with the CAs of client certificates. PEM. Default: clients are asked for none.
        pub client_ca: Option<String> = None;
        /// Refuses clients without a certificate of `client_ca`. Otherwise they may use client tokens.
        pub require_client_certificate: bool = false;
        /// Also uses TLS for the admin listener, which asks for no client certificate.
        pub admin: bool = true;
    }
}

section! {
    /// `[repair]`: handling of breaches of the pairing rules.
    RepairSection {
        /// Reaction of routes to findings, unless their upstream sets `mode`.
        pub mode: Word<Mode> = Word(Mode::Repair), given("ANTIPHON_MODE");
        /// Least safe class of action that the proxy still applies.
        pub least: Word<Applicability> = Word(Applicability::Lossy);
        /// Also repairs field values that the provider rejects, not only the pairing of calls and results.
        pub hygiene: bool = true;
        /// Also moves text out of places where the provider accepts none, and opens histories without a user's message.
        pub shapes: bool = true;
        /// Also repairs calls whose input or name the provider rejects.
        pub malformed_calls: bool = true;
        /// Puts back what an answer carried and the client has dropped: reasoning, thought signatures, containers.
        pub continuity: bool = true;
        /// Reaction if Anthropic rejects thinking as bound to another beginning of the conversation.
        pub on_binding_error: Word<OnBindingError> = Word(OnBindingError::DropBlock);
        /// Removes thinking of another provider or account from finished turns, if the provider refuses it.
        pub foreign_thinking: bool = true;
        /// Handling of a real result elsewhere in the body if its call was already answered by a placeholder.
        pub late: Word<OnLate> = Word(OnLate::Keep);
        /// Also meets what servers demand beyond the rules of their format, once they have refused a body because of it.
        pub mends: bool = true;
        /// Leaves out a top-level parameter that the server does not know, as one of these mends.
        pub drop_parameter: bool = true;
        /// Leaves out a token of `anthropic-beta` that the server does not know, as one of these mends.
        pub drop_beta: bool = true;
        /// Switches thinking off while a tool loop is open whose thinking the client has lost, as one of these mends.
        pub thinking_off: bool = true;
        /// Lowers `max_tokens` to what the prompt leaves for it, as one of these mends.
        pub lower_max_tokens: bool = true;
        /// Lets a constant message of the user follow a last message of the assistant, as one of these mends.
        pub end_with_user: bool = true;
        /// Appends the sentence of the format's author to errors of other vendors' servers, so that clients can act on them.
        pub explain: bool = true;
        /// File with rows of one's own for refusals that no built-in row reads. Only its owner may be able to write it.
        pub rules_file: Option<String> = None;
        /// Rows of one's own, as in `rules_file`.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        #[schemars(length(max = 200))]
        pub rules: Vec<RuleSection> = Vec::new();
    }
}

section! {
    /// `[log]`: log lines on stderr.
    LogSection {
        /// Format of a line.
        pub format: Word<LogFormat> = Word(LogFormat::Auto),
            needs(restart), given("ANTIPHON_LOG_FORMAT", "--log-format");
        /// Level, or levels of single modules as in `RUST_LOG`: `info`, `antiphon=debug,warn`.
        pub level: Written<LogDirectives> = "info".into();
    }
}

section! {
    /// `[traces]`: OpenTelemetry traces. They never contain content.
    TracesSection {
        /// URL of the collector for OTLP over HTTP: `http://127.0.0.1:4318`. Without a path, `/v1/traces` is added.
        /// Default: no traces are sent.
        pub endpoint: Option<Written<CollectorUrl>> = None;
        /// Sends `traceparent` upstream with the proxy's span as parent, instead of the client's.
        pub propagate: bool = false;
    }
}

section! {
    /// `[upstreams.NAME]`: a provider endpoint.
    UpstreamSection {
        /// URL with scheme `http` or `https`, host, optional port and optional path. Optional for a built-in name.
        pub url: Option<Written<UpstreamAddress>> = None;
        /// Provider whose API it speaks. Default: derived from the name, then from the host, else `compatible`.
        pub kind: Option<Word<ProviderKind>> = None;
        /// Reaction of its routes to findings. Default: `repair.mode`.
        pub mode: Option<Word<Mode>> = None;
        /// Credential to send upstream. Default: `profiles` if there are any, else `passthrough`.
        pub credentials: Option<Word<CredentialsName>> = None;
        /// Your own credentials. The proxy sends one of them instead of the client's.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub profiles: Vec<ProfileSection> = Vec::new();
    }
}

labelled_enum! {
    /// Credential that the proxy sends upstream.
    pub enum CredentialsName {
        /// The client's own credential, unchanged.
        Passthrough = "passthrough",
        /// The credential of one of your profiles.
        Profiles = "profiles",
    }
}

section! {
    /// `[tools."NAME"]`: properties of a tool.
    ToolSection {
        /// Degree to which its effect can be undone. It selects the placeholder text for a missing result.
        pub tier: Word<Tier> = Word::default();
        /// Longest time that a call of the tool takes, at most `ledger.ttl`. An unused session is remembered as long.
        pub max_duration: Option<Written<Retention>> = None;
        /// The answers that clients give to its calls are not final, such as "job started": the calls go on waiting.
        pub provisional: bool = false;
        /// Calls that get the result of an earlier call with the same input, within `window`. The proxy marks it as
        /// such.
        pub intent: Word<IntentUse> = Word::default();
        /// Time after a result in which another call with the same input does not run the tool again. Default: 0s for
        /// `read`, 10 minutes for `revertible`, 1 hour for `durable`, 24 hours for `one_way`.
        pub window: Option<Written<IntentWindow>> = None;
        /// Values of the input that make no difference, as JSON pointers, such as `/request_id`.
        pub ignore_input: Vec<Written<InputPointer>> = Vec::new();
        /// Results of conversations that were left go into the next one of the same user, once.
        pub carry_over: bool = false;
        /// URL of its service that undoes a call, for the tier `revertible`. https, or http on this machine.
        pub cancel_url: Option<Written<MessageUrl>> = None;
    }
}

impl ConfigFile {
    /// Returns the rows of all keys outside of tables with free names.
    pub fn rows() -> Vec<Row> {
        let mut rows = Vec::new();
        Self::collect_rows("", &mut rows);
        rows
    }
}

/// Returns the JSON Schema of the file, for editors. All subschemas are inlined. It has no old keys.
pub fn file_schema() -> Schema {
    let mut schema = reader_schema();
    for row in ConfigFile::rows().into_iter().filter(|row| row.old.is_some()) {
        let (tables, old) = row.key.rsplit_once('.').unwrap_or(("", &row.key));
        let path = format!("/properties/{}/properties", tables.replace('.', "/properties/"));
        if let Some(Value::Object(keys)) = schema.pointer_mut(&path) {
            // Keeps the order of the others.
            keys.retain(|key, _| key != old);
        }
    }
    schema
}

/// Returns the schema with the old keys too.
pub fn reader_schema() -> Schema {
    SchemaSettings::draft2020_12()
        // The reader walks the schema beside the file and does not follow references.
        .with(|settings| settings.inline_subschemas = true)
        .with_transform(RecursiveTransform(without_null))
        .into_generator()
        .into_root_schema_for::<ConfigFile>()
}

/// Returns the schema of a file of rows.
pub fn rules_schema() -> Schema {
    SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true)
        .with_transform(RecursiveTransform(without_null))
        .into_generator()
        .into_root_schema_for::<RulesFile>()
}

/// Replaces "value or null" by the schema of the value, since TOML has no null.
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
                    // The description of the key is more specific than that of its type.
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
    // An optional key without a default has no default in TOML either, nor in the default of its section.
    match schema.get_mut("default") {
        Some(Value::Null) => drop(schema.remove("default")),
        Some(Value::Object(section)) => section.retain(|_, value| !value.is_null()),
        _ => {}
    }
}
