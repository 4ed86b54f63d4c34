//! Names of all environment variables that the proxy reads, with the setting of each.

pub(super) const CONFIG: &str = "ANTIPHON_CONFIG";
pub(super) const LISTEN: &str = "ANTIPHON_LISTEN";
pub(super) const ADMIN_LISTEN: &str = "ANTIPHON_ADMIN_LISTEN";
/// Variable that contains the admin token itself.
pub(super) const ADMIN_TOKEN: &str = "ANTIPHON_ADMIN_TOKEN";
/// Variable with the path of a file that contains the admin token.
pub(super) const ADMIN_TOKEN_FILE: &str = "ANTIPHON_ADMIN_TOKEN_FILE";
pub(super) const ALLOW_HOSTS: &str = "ANTIPHON_ALLOW_HOSTS";
pub(super) const ALLOW_ORIGINS: &str = "ANTIPHON_ALLOW_ORIGINS";
pub(super) const DRAIN_TIMEOUT: &str = "ANTIPHON_DRAIN_TIMEOUT";
pub(super) const MODE: &str = "ANTIPHON_MODE";
pub(super) const LEDGER_STORE: &str = "ANTIPHON_LEDGER_STORE";
pub(super) const LEDGER_PATH: &str = "ANTIPHON_LEDGER_PATH";
pub(super) const LEDGER_BYTES_MAX: &str = "ANTIPHON_LEDGER_BYTES_MAX";
/// Variable that contains the URL of the ledger's database.
pub(super) const LEDGER_URL: &str = "ANTIPHON_LEDGER_URL";
/// Variable with the path of a file that contains that URL.
pub(super) const LEDGER_URL_FILE: &str = "ANTIPHON_LEDGER_URL_FILE";
pub(super) const UPSTREAM: &str = "ANTIPHON_UPSTREAM";
pub(super) const LOG: &str = "ANTIPHON_LOG";
pub(super) const LOG_FORMAT: &str = "ANTIPHON_LOG_FORMAT";
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
pub const VARIABLES: &[(&str, &str)] = &[
    (CONFIG, "path of the configuration file"),
    (LISTEN, "server.listen"),
    (ADMIN_LISTEN, "server.admin_listen"),
    (ADMIN_TOKEN, "the token whose hash is server.admin_token"),
    (ADMIN_TOKEN_FILE, "path of a file that contains the admin token"),
    (ALLOW_HOSTS, "server.allow_hosts, as NAME,NAME"),
    (ALLOW_ORIGINS, "server.allow_origins, as ORIGIN,ORIGIN"),
    (DRAIN_TIMEOUT, "server.drain_timeout"),
    (MODE, "repair.mode"),
    (LEDGER_STORE, "ledger.store"),
    (LEDGER_PATH, "ledger.path"),
    (LEDGER_BYTES_MAX, "ledger.bytes_max"),
    (LEDGER_URL, "ledger.url"),
    (LEDGER_URL_FILE, "path of a file that contains ledger.url"),
    (UPSTREAM, "upstreams, as NAME=URL,NAME=URL"),
    (LOG, "log.level"),
    (LOG_FORMAT, "log.format"),
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
