//! Names of all environment variables that the proxy reads.

use std::sync::LazyLock;

use super::file::ConfigFile;

pub(super) const CONFIG: &str = "ANTIPHON_CONFIG";
/// Variable that contains the admin token itself.
pub(super) const ADMIN_TOKEN: &str = "ANTIPHON_ADMIN_TOKEN";
/// Variable with the path of a file that contains the admin token.
pub(super) const ADMIN_TOKEN_FILE: &str = "ANTIPHON_ADMIN_TOKEN_FILE";
/// Variable that contains the URL of the ledger's database.
pub(super) const LEDGER_URL: &str = "ANTIPHON_LEDGER_URL";
/// Variable with the path of a file that contains that URL.
pub(super) const LEDGER_URL_FILE: &str = "ANTIPHON_LEDGER_URL_FILE";
pub(super) const UPSTREAM: &str = "ANTIPHON_UPSTREAM";
pub(super) const LOG: &str = "ANTIPHON_LOG";
pub(super) const RUST_LOG: &str = "RUST_LOG";
pub(super) const AWS_RELATIVE_URI: &str = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
pub(super) const AWS_FULL_URI: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
pub(super) const AWS_TOKEN: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN";
pub(super) const AWS_TOKEN_FILE: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
pub(super) const OTEL_DISABLED: &str = "OTEL_SDK_DISABLED";
pub(super) const OTEL_EXPORTER: &str = "OTEL_TRACES_EXPORTER";
pub(super) const OTEL_TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
pub(super) const OTEL_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
pub(super) const OTEL_TRACES_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL";
pub(super) const OTEL_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
pub(super) const OTEL_TRACES_HEADERS: &str = "OTEL_EXPORTER_OTLP_TRACES_HEADERS";
pub(super) const OTEL_HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
pub(super) const OTEL_TRACES_TIMEOUT: &str = "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT";
pub(super) const OTEL_TIMEOUT: &str = "OTEL_EXPORTER_OTLP_TIMEOUT";
pub(super) const OTEL_SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
pub(super) const OTEL_RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";
pub(super) const OTEL_SAMPLER: &str = "OTEL_TRACES_SAMPLER";
pub(super) const OTEL_SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";

/// Every variable that the proxy reads, with the setting that it gives. Proxy variables are also read in lower case.
pub static VARIABLES: LazyLock<Vec<(&'static str, String)>> = LazyLock::new(|| {
    let rows = ConfigFile::rows().into_iter();
    let of_rows = rows.filter_map(|row| Some((row.variable?, row.key)));
    let others = OTHERS.iter().map(|(name, setting)| (*name, (*setting).to_owned()));
    of_rows.chain(others).collect()
});

/// The variables that no row names, since they give more or less than the text of one key.
const OTHERS: &[(&str, &str)] = &[
    (CONFIG, "path of the configuration file"),
    (ADMIN_TOKEN, "the token whose hash is server.admin_token"),
    (ADMIN_TOKEN_FILE, "path of a file that contains the admin token"),
    (LEDGER_URL, "ledger.url"),
    (LEDGER_URL_FILE, "path of a file that contains ledger.url"),
    (UPSTREAM, "upstreams, as NAME=URL,NAME=URL"),
    (LOG, "log.level"),
    (RUST_LOG, "log.level, unless ANTIPHON_LOG is set"),
    ("HTTPS_PROXY", "proxy towards https upstreams"),
    ("HTTP_PROXY", "proxy towards http upstreams"),
    ("ALL_PROXY", "proxy towards all other upstreams"),
    ("NO_PROXY", "hosts that are reached without a proxy"),
    (
        AWS_RELATIVE_URI,
        "path of aws_container_credentials on the agent of ECS",
    ),
    (AWS_FULL_URI, "URL of aws_container_credentials"),
    (AWS_TOKEN, "authorization token of aws_container_credentials"),
    (AWS_TOKEN_FILE, "path of a file that contains that token"),
    (OTEL_DISABLED, "turns traces off if true"),
    (OTEL_EXPORTER, "turns traces off if none"),
    (OTEL_TRACES_ENDPOINT, "traces.endpoint"),
    (OTEL_ENDPOINT, "traces.endpoint, to which /v1/traces is added"),
    (OTEL_TRACES_PROTOCOL, "protocol of exports, only http/protobuf"),
    (OTEL_PROTOCOL, "protocol of exports, only http/protobuf"),
    (OTEL_TRACES_HEADERS, "headers of exports, as NAME=VALUE,NAME=VALUE"),
    (OTEL_HEADERS, "headers of exports, as NAME=VALUE,NAME=VALUE"),
    (OTEL_TRACES_TIMEOUT, "timeout of an export, in milliseconds"),
    (OTEL_TIMEOUT, "timeout of an export, in milliseconds"),
    (OTEL_SERVICE_NAME, "service name in traces"),
    (OTEL_RESOURCE, "resource attributes in traces, as NAME=VALUE,NAME=VALUE"),
    (OTEL_SAMPLER, "sampler of traces"),
    (OTEL_SAMPLER_ARG, "share of sampled traces, from 0 to 1"),
];
