//! Settings from file, variables and flags, and every configuration problem.

use std::{collections::BTreeMap, io, path::Path, sync::LazyLock, time::Duration};

use antiphon::{
    auth::{Credential, Profile, Secret},
    config::{
        ConfigChanges, ConfigError, CurrentFile, Flags, LedgerPlace, LoadedConfig, VARIABLES, build_config, file_schema,
    },
    keys::{
        credential_source::CredentialSource,
        credential_source::CredentialSources,
        credential_source::{AwsScope, CommandLine, ContainerEndpoint, ContainerToken, SecretFile, SecretPart},
    },
    policy::{ExchangeTimeouts, OnOrganisationChange, RotationSettings},
    provider::ProviderKind,
    repair::{Applicability, Mode, Tier},
    telemetry::LogFormat,
};
use serde_json::Value;

use crate::support::tls::{Authority, Certified};

const EXAMPLE: &str = include_str!("../../../config.example.toml");
/// The example of the version before, some of whose keys are old ones now.
const OLD_EXAMPLE: &str = include_str!("old_keys.toml");

fn with(file: Option<&str>, flags: &Flags, variables: &[(&str, &str)]) -> Result<LoadedConfig, ConfigError> {
    let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
    build_config(
        file.map(|text| ("antiphon.toml", text)),
        flags,
        &|name| variables.get(name).map(ToString::to_string),
        &secret_file,
    )
}

/// The CA and the certificate that are in the files of the example.
static TLS_FILES: LazyLock<(Authority, Certified)> = LazyLock::new(|| {
    let authority = Authority::new("example");
    let own = authority.issue_for_listener();
    (authority, own)
});

/// Reads a fake secret file: each path under `/run/secrets` contains its own name.
fn secret_file(path: &Path) -> io::Result<String> {
    let (authority, own) = &*TLS_FILES;
    match path.to_str().unwrap_or_default() {
        "/etc/antiphon/tls/fullchain.pem" => return Ok(own.pem.clone()),
        "/etc/antiphon/tls/privkey.pem" => return Ok(own.key.serialize_pem()),
        "/etc/antiphon/tls/clients.pem" => return Ok(authority.pem.clone()),
        "/etc/antiphon/rules.toml" => return Ok(String::new()),
        _ => {}
    }
    let name = path.strip_prefix("/run/secrets").map_err(|_| io::ErrorKind::NotFound)?;
    match name.to_str().unwrap_or_default() {
        "empty" => Ok("\n".to_owned()),
        "lines" => Ok("one\ntwo\n".to_owned()),
        name => Ok(format!("{name}\r\n")),
    }
}

fn file(text: &str) -> LoadedConfig {
    with(Some(text), &Flags::default(), &[]).unwrap_or_else(|error| panic!("{error}"))
}

fn defaults() -> LoadedConfig {
    with(None, &Flags::default(), &[]).unwrap()
}

/// Checks the problems of a file. Each row is `line key: part of the message … (part of the hint)`.
fn problems(text: &str, expected: &[(usize, &str, &str, &str)]) {
    let error = with(Some(text), &Flags::default(), &[]).expect_err(text);
    let found: Vec<String> = error
        .problems
        .iter()
        .map(|p| format!("{:?} {} {:?}", p.line_number(), p, p.hint))
        .collect();
    assert_eq!(error.problems.len(), expected.len(), "{text}\n{found:#?}");
    for (problem, (line, key, message, hint)) in error.problems.iter().zip(expected) {
        let context = format!("{text}\n{problem}");
        assert_eq!(problem.line_number(), (*line > 0).then_some(*line), "{context}");
        assert_eq!(problem.key, *key, "{context}");
        assert!(
            problem.message.contains(message),
            "message lacks {message:?}: {context}"
        );
        let said = problem.hint.as_deref().unwrap_or_default();
        assert!(
            said.contains(hint) && hint.is_empty() == said.is_empty(),
            "hint should say {hint:?}: {context}"
        );
    }
}

const TLS: &str = "[server.tls]\ncertificate = \"/etc/antiphon/tls/fullchain.pem\"\n\
    key = \"/etc/antiphon/tls/privkey.pem\"\n";
const CLIENT_CA: &str = "client_ca = \"/etc/antiphon/tls/clients.pem\"\n";

/// File text, then line, key, part of the message and part of the hint of its only problem.
#[rustfmt::skip]
const MISTAKES: &[(&str, usize, &str, &str, &str)] = &[
    ("lisen = 1", 1, "lisen", "unknown key", "known here: client_certificates, client_limits, client_tokens, ledger, log, principals, repair, rotation, server, services"),
    ("sever = {}", 1, "sever", "unknown key", "did you mean `server`?"),
    ("listen = \"127.0.0.1:1\"", 1, "listen", "unknown key", "it belongs under [server]"),
    ("[server]\n\nlisen = \"127.0.0.1:1\"", 3, "server.lisen", "unknown key", "did you mean `listen`?"),
    ("[server]\nadmin-listen = \"127.0.0.1:1\"", 2, "server.admin-listen", "unknown key", "`admin_listen`"),
    ("[server]\nfrobnicate = 1", 2, "server.frobnicate", "unknown key", "known here: admin_listen"),
    ("[upstreams.a]\nurl = \"http://h\"\nkeys = 1", 3, "upstreams.a.keys", "unknown key", "known here: credentials, kind, mode, profiles, url"),
    ("[tools.\"a b\"]\nteir = \"read\"", 2, "tools.\"a b\".teir", "unknown key", "did you mean `tier`?"),
    ("server = 3", 1, "server", "expected a table, found a whole number", ""),
    ("[server]\nlisten = 4747", 2, "server.listen", "expected a string, found a whole number", "quotes"),
    ("[server]\ntrust_mode_header = \"yes\"", 2, "server.trust_mode_header", "expected a boolean, found a string", "without quotes"),
    ("[server]\nconnections_max = \"9\"", 2, "server.connections_max", "expected a whole number, found a string", "without quotes"),
    ("[server]\nconnections_max = 1.5", 2, "server.connections_max", "expected a whole number, found a float", ""),
    ("[server]\nconnections_max = -1", 2, "server.connections_max", "from 0 up", ""),
    ("[server]\nconnections_max = 0", 2, "server.connections_max", "at least 1", ""),
    ("[server]\nconnections_per_address_max = 0", 2, "server.connections_per_address_max", "at least 1", ""),
    ("[server]\ntrusted_proxies = [\"10.0.0.0/8\", \"10.0.0.0/33\"]", 2, "server.trusted_proxies[1]", "expected an address", "10.0.0.0/8"),
    ("[server]\ntrusted_proxies = [\"10.0.0.0/+8\"]", 2, "server.trusted_proxies[0]", "expected digits alone after the slash", "10.0.0.0/8"),
    ("[server]\ntrusted_proxies = [\"::ffff:192.0.2.0/24\"]", 2, "server.trusted_proxies[0]", "expected an IPv4 range such as 192.0.2.0/24", "10.0.0.0/8"),
    ("[server]\nconnections_max = 99999999999999999999", 2, "server.connections_max", "expected a whole number", ""),
    ("[server]\nallow_hosts = \"a\"", 2, "server.allow_hosts", "expected an array of strings, found a string", "brackets"),
    ("[server]\nallow_hosts = [\"a\", 2]", 2, "server.allow_hosts[1]", "expected a string", "quotes"),
    ("[server]\nallow_hosts = [\"http://a\"]", 2, "server.allow_hosts[0]", "expected a host name", "without scheme"),
    ("[server]\nallow_hosts = [\"a:80\"]", 2, "server.allow_hosts[0]", "expected a host name", "port"),
    ("[server]\nallow_hosts = [\"*\"]", 2, "server.allow_hosts[0]", "expected a host name", "name every host"),
    ("[server]\nallow_origins = [\"*\"]", 2, "server.allow_origins[0]", "expected an origin", "name every origin"),
    ("[server]\nallow_origins = [\"a.example\"]", 2, "server.allow_origins[0]", "expected an origin", "scheme, host"),
    ("[server]\nallow_origins = [\"https://a.example/\"]", 2, "server.allow_origins[0]", "expected an origin", "scheme, host"),
    ("[server]\nlisten = \"4747\"", 2, "server.listen", "expected an address with a port", "write \"127.0.0.1:4747\""),
    ("[server]\nlisten = \":4747\"", 2, "server.listen", "expected an address with a port", "write \"127.0.0.1:4747\""),
    ("[server]\nlisten = \"0.0.0.0\"", 2, "server.listen", "expected an address with a port", "\"0.0.0.0:4747\""),
    ("[server]\nlisten = \"::1\"", 2, "server.listen", "expected an address with a port", "\"[::1]:4747\""),
    ("[server]\nlisten = \"example.com:1\"", 2, "server.listen", "expected an address with a port", "write it like"),
    ("[server]\nadmin_listen = \"0.0.0.0:4748\"", 2, "server.admin_listen", "other machines", "write \"127.0.0.1:4748\""),
    ("[server]\nadmin_listen = \"127.0.0.1:4747\"", 2, "server.admin_listen", "the proxy's own address", "another port"),
    ("[server]\nheader_timeout = \"30\"", 2, "server.header_timeout", "expected a duration", "write \"30s\" for seconds"),
    ("[server]\nheader_timeout = \"soon\"", 2, "server.header_timeout", "expected a duration", "write it like"),
    ("[server]\nheader_timeout = \"0s\"", 2, "server.header_timeout", "expected a duration from 1ms to 1day", ""),
    ("[server]\nsecret_poll = \"soon\"", 2, "server.secret_poll", "expected a duration", "write it like"),
    ("[timeouts]\nidle = \"2days\"", 2, "timeouts.idle", "expected a duration from 1ms to 1day", ""),
    ("[timeouts]\nidle = 300", 2, "timeouts.idle", "expected a string", "with its unit"),
    ("[server]\ninspect_bytes_max = \"64 parsecs\"", 2, "server.inspect_bytes_max", "expected a size", "64MiB"),
    ("[server]\ninspect_bytes_max = \"0\"", 2, "server.inspect_bytes_max", "from 1B to 4GiB", ""),
    ("[server]\ninspect_bytes_max = \"5GiB\"", 2, "server.inspect_bytes_max", "from 1B to 4GiB", ""),
    ("[repair]\nmode = \"strikt\"", 2, "repair.mode", "expected one of repair, strict, observe", "did you mean `strict`?"),
    ("[repair]\nmode = \"on\"", 2, "repair.mode", "expected one of repair, strict, observe; found \"on\"", ""),
    ("[repair]\nleast = \"losless\"", 2, "repair.least", "expected one of lossy", "did you mean `lossless`?"),
    ("[repair]\nhygiene = 1", 2, "repair.hygiene", "expected a boolean, found a whole number", ""),
    ("[tools.t]\ntier = \"readonly\"", 2, "tools.t.tier", "expected one of read, revertible, durable, one_way", ""),
    ("[ledger]\nttl = \"1h\"\n[tools.t]\nmax_duration = \"2h\"", 4, "tools.t.max_duration", "\"t\" may take longer than its call is kept, which is 1h", "set ledger.ttl to \"2h\" or more"),
    ("[ledger]\nttl = \"400days\"", 2, "ledger.ttl", "expected a duration from 1ms to 1year", ""),
    ("[ledger]\nstore = \"redis\"", 2, "ledger.store", "expected one of sqlite, memory, postgres", ""),
    ("[ledger]\nstore = \"postgres\"", 0, "ledger.url", "is missing", "ANTIPHON_LEDGER_URL"),
    ("[ledger]\nurl = \"postgres://a@127.0.0.1/b\"", 2, "ledger.url", "has no effect", "set ledger.store = \"postgres\""),
    ("[ledger]\nstore = \"postgres\"\nurl = \"mysql://hunter2@db/b\"", 3, "ledger.url", "expected a URL of PostgreSQL", "postgres://USER"),
    ("[ledger]\nstore = \"postgres\"\nurl = \"postgres://a:hunter2@db/b?sslmode=disable\"", 3, "ledger.url", "plain connections to another machine", "ledger.tls"),
    ("[ledger]\nstore = \"postgres\"\nurl = \"postgres://a:hunter2@db/b?colour=red\"", 3, "ledger.url", "a parameter that is unknown", "libpq"),
    ("[ledger]\nstore = \"postgres\"\nurl = \"postgres://a@127.0.0.1/b\"\nlisten_url = \"b\"", 4, "ledger.listen_url", "expected a URL of PostgreSQL", "postgres://USER"),
    ("[ledger]\ntls = \"none\"", 2, "ledger.tls", "expected one of verify, insecure", ""),
    ("[ledger]\nmigrate = \"never\"", 2, "ledger.migrate", "expected one of auto, manual", ""),
    ("[ledger]\nbytes_max = \"much\"", 2, "ledger.bytes_max", "expected a size", "64MiB"),
    ("[principals]\nmode = \"all\"", 2, "principals.mode", "expected one of each, single", ""),
    ("[principals]\nmode = \"single\"\ntrust_body_user = true", 2, "principals.mode", "there is one caller", "write \"each\""),
    ("[server]\nlisten = \"0.0.0.0:1\"\n[principals]\nmode = \"single\"", 4, "principals.mode", "other machines", "listen on 127.0.0.1"),
    ("[principals]\nuser_header = \"x user\"", 2, "principals.user_header", "expected the name of a header", "x-user"),
    ("[services.s]\nprincipals = [\"*\"]\ntools = [\"*\"]", 1, "services.s", "neither a token nor a secret", "config token"),
    ("[services.s]\ntoken = \"hunter2\"\nprincipals = [\"*\"]\ntools = [\"*\"]", 2, "services.s.token", "expected sha256:", "config token"),
    ("[services.s]\nsecret = \"whsec_hunter2\"\nprincipals = [\"*\"]\ntools = [\"*\"]", 2, "services.s.secret", "expected whsec_ and 24 to 64 bytes", ""),
    ("[services.s]\nsecret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\nprincipals = [\"ann\"]\ntools = [\"*\"]", 3, "services.s.principals[0]", "no client token of this name", "[client_tokens]"),
    ("[services.s]\nsecret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\nprincipals = [\"*\"]", 1, "services.s", "has no tools", "[\"*\"] for all"),
    ("[services.s]\nsecret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\nprincipals = [\"*\"]\ntools = [\"*\", \"a\"]", 4, "services.s.tools", "lists \"*\" together with names", "keep \"*\" alone"),
    ("[services.s]\ndeny = true", 2, "services.s.deny", "only the built-in service \"local\" can be turned off", "remove the section"),
    ("[services.local]\ndeny = true\ntools = [\"*\"]", 2, "services.local.deny", "stands beside other keys", "keep deny alone"),
    ("[services.local]\ndeny = false\nprincipals = [\"*\"]\ntools = [\"*\"]", 1, "services.local", "neither a token nor a secret", "config token"),
    ("[services.S]\nsecret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\nprincipals = [\"*\"]\ntools = [\"*\"]", 1, "services.S", "expected a name of lower-case letters", "write \"s\""),
    ("[log]\nformat = \"xml\"", 2, "log.format", "expected one of auto, json, text", ""),
    ("[log]\nlevel = \"inof\"", 2, "log.level", "expected a log level, found \"inof\"", "directives"),
    ("[log]\nlevel = \"antiphon=loud\"", 2, "log.level", "expected a log level", "directives"),
    ("[log]\nlevel = \"antiphon[request]=debug\"", 2, "log.level", "directives have no spans", "antiphon=debug,warn"),
    ("[traces]\nendpoint = \"collector:4318\"", 2, "traces.endpoint", "expected a URL that begins with http://", "write it like"),
    ("[traces]\nendpoint = \"https://u:p@h\"", 2, "traces.endpoint", "without a user name", "write it like"),
    ("[traces]\nendpoint = \"https://h?key=1\"", 2, "traces.endpoint", "query or fragment", "write it like"),
    ("[traces]\npropagate = \"no\"", 2, "traces.propagate", "expected a boolean, found a string", "without quotes"),
    ("[upstreams.a]\nmode = \"strict\"", 1, "upstreams.a", "has no url", "write url"),
    ("[upstreams.bedrock]", 1, "upstreams.bedrock", "has no url", "write url"),
    ("[upstreams.A]\nurl = \"http://h\"", 1, "upstreams.A", "lower-case", "write \"a\""),
    ("[upstreams.\"a/b\"]\nurl = \"http://h\"", 1, "upstreams.\"a/b\"", "lower-case", ""),
    ("[upstreams.\"..\"]\nurl = \"http://h\"", 1, "upstreams.\"..\"", "lower-case", ""),
    ("[upstreams.v1]\nurl = \"http://h\"", 1, "upstreams.v1", "cannot name an upstream", "another name"),
    ("[upstreams.a]\nurl = \"http://h\"\nkind = \"antropic\"", 3, "upstreams.a.kind", "expected one of", "`anthropic`"),
    ("[upstreams.a]\nurl = \"h.example\"", 2, "upstreams.a.url", "http:// or https://", ""),
    ("[upstreams.a]\nurl = \"ftp://h\"", 2, "upstreams.a.url", "found ftp://", ""),
    ("[upstreams.a]\nurl = \"https://\"", 2, "upstreams.a.url", "expected a host", ""),
    ("[upstreams.a]\nurl = \"https://h:99999\"", 2, "upstreams.a.url", "expected a host", ""),
    ("[upstreams.a]\nurl = \"https://h:\"", 2, "upstreams.a.url", "expected a host", ""),
    ("[upstreams.a]\nurl = \"https://u:p@h\"", 2, "upstreams.a.url", "user name or password", "remove it"),
    ("[upstreams.a]\nurl = \"https://h/v1?key=1\"", 2, "upstreams.a.url", "has a query", "remove"),
    ("[upstreams.a]\nurl = \"https://h/#top\"", 2, "upstreams.a.url", "has a fragment", "remove"),
    ("[upstreams.a]\nurl = \"https://h/../v1\"", 2, "upstreams.a.url", "dot segments", ""),
    ("[upstreams.a]\nurl = \"https://h/a b\"", 2, "upstreams.a.url", "need escaping", ""),
    ("[upstreams.a]\nurl = \"https://h/v1/chat/completions\"", 2, "upstreams.a.url", "one endpoint", "\"https://h/v1\""),
    ("[upstreams.a]\nurl = \"http://localhost:4747/x\"", 2, "upstreams.a.url", "would loop", "provider's address"),
    ("[upstreams.a]\nurl = \"${NOWHERE}\"", 2, "upstreams.a.url", "variable NOWHERE is not set", "${NOWHERE:-default}"),
    ("[upstreams.a]\nurl = \"${}\"", 2, "upstreams.a.url", "names no variable", "write `${NAME}`"),
    ("[upstreams.a]\nurl = \"${OPEN\"", 2, "upstreams.a.url", "without `}`", "$${"),
    ("[server]\nlisten = ", 2, "", "not TOML", ""),
    ("[timeouts]\ngate = \"-1s\"", 2, "timeouts.gate", "expected a duration", "write it like"),
    ("[timeouts]\nclient_stall = \"0s\"", 2, "timeouts.client_stall", "expected a duration from 1ms", ""),
    ("[rotation]\nwait = \"x\"", 2, "rotation.wait", "expected a duration", "write it like"),
    ("[rotation]\non_organisation_change = \"keep\"", 2, "rotation.on_organisation_change", "surface, move", ""),
    ("[client_tokens]\nci = \"sha256:0\"", 2, "client_tokens.ci", "expected sha256: and 64", "antiphon config token"),
    ("[client_limits.ci]\nmax_concurrent = 2", 1, "client_limits.ci", "no client token of this name", "[client_tokens]"),
    ("[client_tokens]\nci = 1", 2, "client_tokens.ci", "expected a string", "quotes"),
    ("[upstreams.xai]\ncredentials = \"profiles\"", 2, "upstreams.xai.credentials", "no profile is given", "[[upstreams"),
    ("[upstreams.xai]\ncredentials = \"own\"", 2, "upstreams.xai.credentials", "expected one of passthrough, profiles", ""),
    ("[upstreams.xai]\nprofiles = \"k\"", 2, "upstreams.xai.profiles", "expected an array of tables", "[[…]]"),
];

/// The rest of a profile's table in a new upstream `a`, as in [`MISTAKES`]. Its own first line is 5.
#[rustfmt::skip]
const PROFILE_MISTAKES: &[(&str, usize, &str, &str, &str)] = &[
    ("api_key = \"k\"", 3, "", "has no name", "name = "),
    ("name = \"\"\napi_key = \"k\"", 4, ".name", "expected a name of lower-case", ""),
    ("name = \"A\"\napi_key = \"k\"", 4, ".name", "expected a name of lower-case", "write \"a\""),
    ("name = \"p\"", 3, "", "has no credential", "write one of api_key"),
    ("name = \"p\"\napi_key = \"k\"\nbearer = \"k\"", 3, "", "has several credentials", "write one of"),
    ("name = \"p\"\napi_key = \"k\"\napi_key_file = \"/run/secrets/k\"", 6, ".api_key_file", "api_key and api_key_file are given", "keep one"),
    ("name = \"p\"\napi_key = \"\"", 5, ".api_key", "is empty", ""),
    ("name = \"p\"\napi_key = \"a b\"", 5, ".api_key", "spaces, line breaks", "the secret alone"),
    ("name = \"p\"\napi_key = \"***\"", 5, ".api_key", "left a secret out", "${NAME}"),
    ("name = \"p\"\napi_key = \"${NOWHERE}\"", 5, ".api_key", "variable NOWHERE is not set", "a file"),
    ("name = \"p\"\napi_key = \"${no where}\"", 5, ".api_key", "names no variable", "${NAME}"),
    ("name = \"p\"\napi_key = 1", 5, ".api_key", "expected a string", "quotes"),
    ("name = \"p\"\napi_key_file = \"/nowhere\"", 5, ".api_key_file", "cannot read /nowhere", "readable file"),
    ("name = \"p\"\nbearer_file = \"/run/secrets/empty\"", 5, ".bearer_file", "is empty", ""),
    ("name = \"p\"\nbearer_file = \"/run/secrets/lines\"", 5, ".bearer_file", "line breaks", "the secret alone"),
    ("name = \"p\"\napi_key = \"k\"\nweight = 0", 6, ".weight", "from 1 to 1000", ""),
    ("name = \"p\"\napi_key = \"k\"\nweight = 5000000000", 6, ".weight", "from 1 to 1000", ""),
    ("name = \"p\"\napi_key = \"k\"\norganisation = \"\"", 6, ".organisation", "expected a word", ""),
    ("name = \"p\"\napi_key = \"k\"\nmodels = [\"a*b\"]", 6, ".models[0]", "name of a model", ""),
    ("name = \"p\"\napi_key = \"k\"\nmodels = [\"a\", 1]", 6, ".models[1]", "expected a string", "quotes"),
    ("name = \"p\"\napi_kye = \"k\"\napi_key = \"k\"", 5, ".api_kye", "unknown key", "did you mean `api_key`?"),
    ("name = \"p\"\ntoken_command = []", 5, ".token_command", "names no program", "write the program"),
    ("name = \"p\"\ntoken_command = \"gcloud\"", 5, ".token_command", "expected an array of strings, found a string", "brackets"),
    ("name = \"p\"\ntoken_command = [\"\", \"x\"]", 5, ".token_command[0]", "name of a program", ""),
    ("name = \"p\"\ntoken_command = [\"a\", 1]", 5, ".token_command[1]", "expected a string", "quotes"),
    ("name = \"p\"\ntoken_command = [\"${NOWHERE}\"]", 5, ".token_command[0]", "variable NOWHERE is not set", "${NOWHERE:-default}"),
    ("name = \"p\"\ntoken_command = [\"t\"]\nbearer = \"k\"", 3, "", "has several credentials", "write one of"),
    ("name = \"p\"\ntoken_command = [\"t\"]\ntoken_refresh = \"0s\"", 6, ".token_refresh", "from 1s to 1day", ""),
    ("name = \"p\"\napi_key = \"k\"\ntoken_refresh = \"1m\"", 6, ".token_refresh", "only tokens of a token_command", "write token_command"),
    ("name = \"p\"\naws_credential_process = [\"aws\"]", 3, "", "has no aws_region", "write aws_region"),
    ("name = \"p\"\naws_credential_process = []\naws_region = \"r\"", 5, ".aws_credential_process", "names no program", "write the program"),
    ("name = \"p\"\naws_container_credentials = true\naws_region = \"r\"", 5, ".aws_container_credentials", "neither AWS_CONTAINER", "export-credentials"),
    ("name = \"p\"\naws_container_credentials = true\naws_credential_process = [\"a\"]\naws_region = \"r\"", 3, "", "has several credentials", "write one of"),
    ("name = \"p\"\naws_access_key_id = \"k\"\naws_region = \"us-east-1\"", 3, "", "has no aws_secret_access_key", "in pairs"),
    ("name = \"p\"\naws_access_key_id = \"k\"\naws_secret_access_key = \"k\"", 3, "", "has no aws_region", "write aws_region"),
    ("name = \"p\"\naws_access_key_id = \"k\"\naws_secret_access_key = \"k\"\naws_region = \"us east\"", 7, ".aws_region", "name of a region", ""),
];

#[test]
fn each_mistake_is_reported() {
    for (text, line, key, message, hint) in MISTAKES {
        problems(text, &[(*line, key, message, hint)]);
    }
}

#[test]
fn each_mistake_of_a_profile_is_reported() {
    for (text, line, key, message, hint) in PROFILE_MISTAKES {
        let kind = if text.contains("aws") { "bedrock" } else { "compatible" };
        let text = format!("[upstreams.a]\nurl = \"http://h\"\nkind = \"{kind}\"\n[[upstreams.a.profiles]]\n{text}\n");
        problems(
            &text,
            &[(*line + 1, &format!("upstreams.a.profiles[0]{key}"), message, hint)],
        );
    }
}

#[test]
fn all_mistakes_are_reported_in_file_order() {
    problems(
        "[server]\nlisen = 1\nlisten = \"x\"\nallow_origins = [3, \"*\"]\n\n[repair]\nmode = \"x\"\n\n[upstreams.b]\nkind = 1\n",
        &[
            (2, "server.lisen", "unknown key", "listen"),
            (3, "server.listen", "expected an address", "write it like"),
            (4, "server.allow_origins[0]", "expected a string", "quotes"),
            (4, "server.allow_origins[1]", "expected an origin", "name every"),
            (7, "repair.mode", "expected one of", ""),
            (9, "upstreams.b", "has no url", "write url"),
            (10, "upstreams.b.kind", "expected a string", "quotes"),
        ],
    );
}

#[test]
fn a_repeated_upstream_is_reported_at_its_second_table() {
    let twice = "the same key or table appears twice";
    problems(
        "[upstreams.a]\nurl = \"http://h\"\n[upstreams.a]\nurl = \"http://i\"",
        &[(3, "", twice, "keep one"), (4, "", twice, "keep one")],
    );
}

#[test]
fn a_problem_shows_its_line_with_a_caret() {
    let error = with(Some("[server]\n\tlisten = \"nö\" # x\n"), &Flags::default(), &[]).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("1 configuration problem in antiphon.toml\n\nline 2, column 11: server.listen: "),
        "{text}"
    );
    assert!(
        text.ends_with("\n  |\n2 | \tlisten = \"nö\" # x\n  | \t         ^^^^"),
        "{text}"
    );
}

#[test]
fn a_url_with_a_password_is_not_repeated() {
    let text = "[upstreams.a]\nurl = \"https://user:hunter2@h.example\"";
    let error = with(Some(text), &Flags::default(), &[]).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    let flags = Flags {
        upstreams: vec!["a=https://user:hunter2@h".into(), "https://user:hunter2@h".into()],
        ..Flags::default()
    };
    let error = with(None, &flags, &[("ANTIPHON_UPSTREAM", "https://hunter2")]).unwrap_err();
    assert_eq!(error.problems.len(), 3, "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
}

#[test]
fn a_problem_names_the_source_of_the_value() {
    let flags = Flags {
        given: [("--listen", "x".into())].into(),
        upstreams: vec!["a=h".into(), "nothing".into(), "b=http://h".into(), "b=http://i".into()],
        ..Flags::default()
    };
    let variables = [
        ("ANTIPHON_ADMIN_LISTEN", "y"),
        ("ANTIPHON_LOG", "loud"),
        ("ANTIPHON_LOG_FORMAT", "xml"),
    ];
    let error = with(Some("[server]\nlisten = \"z\""), &flags, &variables).unwrap_err();
    let mut keys: Vec<&str> = error.problems.iter().map(|problem| problem.key.as_str()).collect();
    keys.sort_unstable();
    let expected = [
        "--listen",
        "--upstream",
        "--upstream",
        "--upstream",
        "ANTIPHON_ADMIN_LISTEN",
        "ANTIPHON_LOG",
        "ANTIPHON_LOG_FORMAT",
    ];
    assert_eq!(keys, expected, "{error}");
}

/// A variable with a wrong value, and parts of the message and the hint of its only problem.
const WRONG_VARIABLES: [(&str, &str, &str, &str); 8] = [
    (
        "ANTIPHON_ALLOW_HOSTS",
        "antiphon,http://b",
        "expected a host name",
        "without scheme",
    ),
    ("ANTIPHON_ALLOW_HOSTS", "*", "expected a host name", "name every host"),
    (
        "ANTIPHON_ALLOW_ORIGINS",
        "a.example",
        "expected an origin",
        "scheme, host",
    ),
    ("ANTIPHON_DRAIN_TIMEOUT", "soon", "expected a duration", "write it like"),
    (
        "ANTIPHON_MODE",
        "strikt",
        "expected one of repair, strict, observe",
        "did you mean `strict`?",
    ),
    (
        "ANTIPHON_LEDGER_STORE",
        "ram",
        "expected one of sqlite, memory, postgres; found \"ram\"",
        "",
    ),
    ("ANTIPHON_LEDGER_BYTES_MAX", "9 parsecs", "expected a size", "64MiB"),
    ("ANTIPHON_LISTEN", "4747", "expected an address", "127.0.0.1:4747"),
];

#[test]
fn a_wrong_variable_is_named_with_its_remedy() {
    // The file's own values of the keys are good, and have lines.
    let text = "[server]\nallow_hosts = [\"a\", \"b\"]\ndrain_timeout = \"1s\"\n[ledger]\nstore = \"memory\"";
    for (name, value, message, hint) in WRONG_VARIABLES {
        let error = with(Some(text), &Flags::default(), &[(name, value)]).expect_err(name);
        let [problem] = &error.problems[..] else {
            panic!("{name}: {error}");
        };
        assert_eq!((problem.key.as_str(), problem.line_number()), (name, None), "{error}");
        assert!(problem.message.contains(message), "{error}");
        let said = problem.hint.as_deref().unwrap_or_default();
        assert!(
            said.contains(hint) && said.is_empty() == hint.is_empty(),
            "{name}: {said}"
        );
    }
}

#[test]
fn a_container_needs_no_file() {
    let text = "[server]\nallow_hosts = [\"file\"]\n[repair]\nmode = \"strict\"\n[ledger]\npath = \"/file\"";
    let variables = [
        ("ANTIPHON_ALLOW_HOSTS", " antiphon, Proxy.internal ,,"),
        ("ANTIPHON_ALLOW_ORIGINS", "https://App.example.com"),
        ("ANTIPHON_DRAIN_TIMEOUT", "8s"),
        ("ANTIPHON_MODE", "observe"),
        ("ANTIPHON_LEDGER_STORE", "memory"),
        ("ANTIPHON_LEDGER_PATH", "/state/l.db"),
        ("ANTIPHON_LEDGER_BYTES_MAX", "10MiB"),
    ];
    for file in [None, Some(text)] {
        let loaded = with(file, &Flags::default(), &variables).unwrap();
        let config = &loaded.config;
        assert_eq!(config.proxy.allow_hosts, ["antiphon", "proxy.internal"]);
        assert_eq!(config.proxy.allow_origins, ["https://app.example.com"]);
        assert_eq!(config.server.drain_timeout, Duration::from_secs(8));
        assert!(config.upstreams.iter().all(|upstream| upstream.mode == Mode::Observe));
        let ledger = &config.ledger;
        assert_eq!(
            (&ledger.place, ledger.settings.bytes_max),
            (&LedgerPlace::Memory, 10 << 20)
        );
        // `config print` shows what the variables have set.
        let printed = loaded.to_toml().unwrap();
        assert!(
            printed.contains("store = \"memory\"") && printed.contains("antiphon"),
            "{printed}"
        );
    }
}

#[test]
fn flags_override_variables_which_override_the_file() {
    let text = "[server]\nlisten = \"127.0.0.1:2\"\n[log]\nlevel = \"error\"\nformat = \"text\"\n[upstreams.openai]\nurl = \"http://file\"";
    let variables = [
        ("ANTIPHON_LISTEN", "127.0.0.1:3"),
        ("ANTIPHON_LOG", "warn"),
        ("ANTIPHON_LOG_FORMAT", "json"),
        ("ANTIPHON_UPSTREAM", "openai=http://variable, xai=http://other"),
    ];
    let flags = Flags {
        given: [("--listen", "127.0.0.1:4".into()), ("--log-format", "auto".into())].into(),
        upstreams: vec!["openai=http://flag".into()],
        verbosity: 1,
        ..Flags::default()
    };
    let seen = |loaded: LoadedConfig| {
        let openai = loaded
            .config
            .upstreams
            .iter()
            .find(|upstream| upstream.name == "openai")
            .unwrap()
            .authority
            .to_string();
        let config = loaded.config;
        (config.server.listen.port(), config.log.level, config.log.format, openai)
    };
    let none = Flags::default();
    assert_eq!(
        seen(defaults()),
        (4747, "info".into(), LogFormat::Auto, "api.openai.com".into())
    );
    assert_eq!(seen(file(text)), (2, "error".into(), LogFormat::Text, "file".into()));
    let by_variable = with(Some(text), &none, &variables).unwrap();
    assert_eq!(
        seen(by_variable.clone()),
        (3, "warn".into(), LogFormat::Json, "variable".into())
    );
    assert_eq!(
        seen(with(Some(text), &flags, &variables).unwrap()),
        (4, "debug".into(), LogFormat::Auto, "flag".into())
    );
    let xai = by_variable
        .config
        .upstreams
        .iter()
        .find(|upstream| upstream.name == "xai")
        .unwrap();
    assert_eq!(xai.authority.as_str(), "other");
}

#[test]
fn empty_variables_and_foreign_rust_log_values_are_ignored() {
    let level = |variables: &[(&str, &str)]| with(None, &Flags::default(), variables).unwrap().config.log.level;
    assert_eq!(level(&[("ANTIPHON_LOG", "")]), "info");
    assert_eq!(level(&[("RUST_LOG", "debug")]), "debug");
    assert_eq!(level(&[("RUST_LOG", "debug"), ("ANTIPHON_LOG", "warn")]), "warn");
    assert_eq!(level(&[("RUST_LOG", "some_crate")]), "info");
}

#[test]
fn proxy_variables_are_found_in_both_cases() {
    let variables = [
        ("https_proxy", "http://a"),
        ("HTTPS_PROXY", "http://b"),
        ("NO_PROXY", "localhost"),
    ];
    let proxies = with(None, &Flags::default(), &variables)
        .unwrap()
        .config
        .upstream
        .proxies;
    assert_eq!(proxies.https.as_deref(), Some("http://a"));
    assert_eq!(proxies.no.as_deref(), Some("localhost"));
    assert_eq!((proxies.http, proxies.all), (None, None));
}

#[test]
#[expect(clippy::too_many_lines, reason = "one line a key")]
fn every_key_reaches_its_setting() {
    let config = file(
        r#"
        [server]
        listen = "localhost:1"
        admin_listen = "[::1]:2"
        allow_origins = ["https://App.Example.com"]
        allow_hosts = ["Proxy.internal"]
        trust_mode_header = true
        connections_max = 0x10
        header_timeout = "1s"
        drain_timeout = "0s"
        inspect_bytes_max = "1 kB"
        [timeouts]
        connect = "1s"
        headers = "1m 4s"
        idle = "7ms"
        progress = "9s"
        reasoning = "10s"
        server_tool = "11s"
        total = "13s"
        gate = "0s"
        client_stall = "16s"
        [rotation]
        wait = "18s"
        on_organisation_change = "move"
        [repair]
        mode = "observe"
        least = "salvage"
        hygiene = false
        [upstreams.gemini]
        mode = "strict"
        [upstreams.house]
        url = "HTTP://llm.house:8080/v1/"
        kind = "mistral"
        [tools."read_file"]
        tier = "read"
        [tools.pay]
        [log]
        format = "json"
        level = "antiphon=debug,warn"
        [traces]
        endpoint = "https://collector.example:4318"
        propagate = true
        "#,
    )
    .config;
    let traces = config.traces.unwrap();
    assert_eq!(traces.endpoint, "https://collector.example:4318/v1/traces");
    assert!(traces.propagates);
    assert_eq!(
        (
            config.server.listen.to_string().as_str(),
            config.admin_listen.to_string().as_str()
        ),
        ("127.0.0.1:1", "[::1]:2")
    );
    assert_eq!(config.server.connections_max, 16);
    assert_eq!(
        (config.server.header_timeout, config.server.drain_timeout),
        (Duration::from_secs(1), Duration::ZERO)
    );
    assert_eq!(config.proxy.allow_origins, ["https://app.example.com"]);
    assert_eq!(config.proxy.allow_hosts, ["proxy.internal"]);
    assert_eq!(config.proxy.upload_idle_timeout, Duration::from_secs(1));
    assert_eq!(
        (config.proxy.trust_mode_header, config.proxy.inspect_bytes_max),
        (true, 1000)
    );
    let seconds = Duration::from_secs;
    let clocks = ExchangeTimeouts {
        connect: seconds(1),
        tls: seconds(1),
        send: seconds(30),
        headers: seconds(64),
        stream_headers: seconds(60),
        first_event: seconds(9),
        idle: Duration::from_millis(7),
        heartbeat_idle: Duration::from_millis(7),
        progress: seconds(9),
        reasoning: seconds(10),
        server_tool: seconds(11),
        compaction: seconds(11),
        total: seconds(13),
        gate: Duration::ZERO,
        queue: seconds(30),
    };
    assert_eq!(config.proxy.timeouts, clocks);
    let upstream = &config.upstream;
    assert_eq!(
        (upstream.connect_timeout, upstream.tls_timeout, upstream.send_timeout),
        (clocks.connect, clocks.tls, clocks.send)
    );
    assert_eq!(
        (config.server.client_stall, upstream.pool_idle_timeout),
        (seconds(16), seconds(25))
    );
    let rotation = RotationSettings {
        wait: seconds(18),
        on_organisation_change: OnOrganisationChange::Move,
    };
    assert_eq!(config.proxy.rotation, rotation);
    assert_eq!(
        (config.proxy.policy.least_safe, config.proxy.policy.hygiene),
        (Applicability::Salvage, false)
    );
    assert_eq!(
        config.proxy.policy.tiers,
        [("pay".to_owned(), Tier::OneWay), ("read_file".to_owned(), Tier::Read)].into()
    );
    assert_eq!(
        (config.log.format, config.log.level.as_str()),
        (LogFormat::Json, "antiphon=debug,warn")
    );
    let find = |name: &str| config.upstreams.iter().find(|upstream| upstream.name == name).unwrap();
    assert_eq!(
        (find("gemini").mode, find("openai").mode),
        (Mode::Strict, Mode::Observe)
    );
    let house = find("house");
    assert_eq!(
        (
            house.scheme.as_str(),
            house.authority.as_str(),
            house.base_path.as_str()
        ),
        ("http", "llm.house:8080", "/v1")
    );
    assert_eq!((house.kind, house.mode), (ProviderKind::Mistral, Mode::Observe));
}

#[test]
fn variables_expand_in_values_but_not_in_keys() {
    let text = "[upstreams.a]\nurl = \"https://${HOST}:${PORT:-8443}/$${x}\"\n[repair]\nmode = \"${MODE:-observe}\"";
    let loaded = with(Some(text), &Flags::default(), &[("HOST", "h")]);
    assert_eq!(loaded.unwrap().config.upstreams.last().unwrap().base_path, "/${x}");
    let text = text.replace("/$${x}", "");
    let loaded = with(Some(&text), &Flags::default(), &[("HOST", "h\"\nmode = \"strict")]);
    assert!(loaded.is_err(), "a value cannot become TOML");
    let loaded = with(Some(&text), &Flags::default(), &[("HOST", "h")]).unwrap();
    let upstream = loaded.config.upstreams.last().unwrap();
    assert_eq!((upstream.authority.as_str(), upstream.mode), ("h:8443", Mode::Observe));
}

#[test]
fn timeouts_default_to_those_of_the_policy() {
    let config = defaults().config;
    assert_eq!(config.proxy.timeouts, ExchangeTimeouts::default());
    assert_eq!(config.proxy.rotation, RotationSettings::default());
    assert_eq!(config.server.client_stall, Duration::from_secs(120));
}

const PROFILES: &str = r#"
[[upstreams.anthropic.profiles]]
name = "first"
api_key = "${FIRST}"
weight = 1000
organisation = "org-1"
models = ["claude-*"]
[[upstreams.anthropic.profiles]]
name = "second"
bearer_file = "/run/secrets/canary-file"
[upstreams.bedrock]
url = "https://bedrock-runtime.eu-central-1.amazonaws.com"
[[upstreams.bedrock.profiles]]
name = "first"
aws_access_key_id = "canary-id"
aws_secret_access_key_file = "/run/secrets/canary-key"
aws_session_token = "${FIRST}"
[upstreams.mantle]
url = "https://llm.example"
kind = "bedrock"
credentials = "profiles"
profiles = [{ name = "p", aws_access_key_id = "canary-x", aws_secret_access_key = "canary-y", aws_region = "r-1" }]
[client_tokens]
ci = "sha256:d3c037b9d7d9dfb130eec88d77c88858f5d900b0bc0e01af7b74363caafa0bae"
"#;

const FIRST: &[(&str, &str)] = &[("FIRST", "canary-first")];

#[test]
fn profiles_get_their_secrets_from_variables_and_files() {
    let config = with(Some(PROFILES), &Flags::default(), FIRST).unwrap().config;
    let of = |upstream: &str| -> &[Profile] { &config.profiles[upstream] };
    let [first, second] = of("anthropic") else {
        panic!("{config:?}")
    };
    assert!(matches!(&first.credential, Credential::Key(key) if key.reveal() == "canary-first"));
    assert_eq!(
        (first.label.as_str(), first.weight, first.organisation.as_deref()),
        ("first", 1000, Some("org-1"))
    );
    assert_eq!(first.models, ["claude-*"]);
    assert!(matches!(&second.credential, Credential::Bearer(token) if token.reveal() == "canary-file"));
    assert_eq!((second.weight, second.models.is_empty()), (1, true));
    let aws = |upstream: &str| match &of(upstream)[0].credential {
        Credential::Aws(keys) => keys,
        other => panic!("{other:?}"),
    };
    let keys = aws("bedrock");
    assert_eq!(
        (keys.region.as_str(), keys.service.as_str()),
        ("eu-central-1", "bedrock")
    );
    assert_eq!(
        (keys.access_key_id.reveal(), keys.secret_access_key.reveal()),
        ("canary-id", "canary-key")
    );
    assert_eq!(keys.session_token.as_ref().map(Secret::reveal), Some("canary-first"));
    assert_eq!(
        (aws("mantle").region.as_str(), aws("mantle").session_token.is_none()),
        ("r-1", true)
    );
    assert_eq!(config.profiles.len(), 3);
    assert_eq!(config.proxy.client_tokens.find_name(b"antiphon_0"), Some("ci"));
    assert_eq!(
        config.literal_secrets,
        [
            "upstreams.bedrock.profiles[0].aws_access_key_id",
            "upstreams.mantle.profiles[0].aws_access_key_id",
            "upstreams.mantle.profiles[0].aws_secret_access_key"
        ]
    );
}

#[test]
fn a_secret_is_printed_as_its_reference_or_not_at_all() {
    let loaded = with(Some(PROFILES), &Flags::default(), FIRST).unwrap();
    let printed = loaded.to_toml().unwrap();
    assert!(
        !format!("{loaded:?}")
            .replace("canary-file", "")
            .replace("/canary-key", "")
            .contains("canary")
    );
    assert!(
        !printed
            .replace("/canary-file", "")
            .replace("/canary-key", "")
            .contains("canary"),
        "{printed}"
    );
    assert_eq!(printed.matches("\"${FIRST}\"").count(), 2, "{printed}");
    assert_eq!(printed.matches("\"***\"").count(), 3, "{printed}");
    assert!(printed.contains("credentials = \"profiles\"") && printed.contains("credentials = \"passthrough\""));
    // The unprintable secret is refused. Without it, the printed file gives the same settings.
    let error = with(Some(&printed), &Flags::default(), FIRST).unwrap_err();
    assert!(
        error
            .problems
            .iter()
            .all(|problem| problem.message.contains("left a secret out")),
        "{error}"
    );
    assert_eq!(error.problems.len(), 3);
    let full = PROFILES
        .replace("canary-id", "${FIRST}")
        .replace("canary-x", "${FIRST}")
        .replace("canary-y", "${FIRST}");
    let loaded = with(Some(&full), &Flags::default(), FIRST).unwrap();
    let printed = loaded.to_toml().unwrap();
    let again = with(Some(&printed), &Flags::default(), FIRST).unwrap();
    assert_eq!(again.config.profiles, loaded.config.profiles);
    assert_eq!(format!("{:?}", again.config), format!("{:?}", loaded.config));
    assert_eq!(again.to_toml().unwrap(), printed);
}

const SOURCES: &str = r#"
[server]
secret_poll = "5s"
[[upstreams.vertex.profiles]]
name = "cloud"
token_command = ["gcloud", "--account=${FIRST}", "$${x}", ""]
[[upstreams.vertex.profiles]]
name = "other"
token_command = ["vault"]
token_refresh = "10m"
[[upstreams.vertex.profiles]]
name = "file"
bearer_file = "/run/secrets/canary-file"
[[upstreams.vertex.profiles]]
name = "fixed"
bearer = "${FIRST}"
[upstreams.vertex]
url = "https://aiplatform.googleapis.com"
[upstreams.bedrock]
url = "https://bedrock-runtime.eu-central-1.amazonaws.com"
[[upstreams.bedrock.profiles]]
name = "process"
aws_credential_process = ["aws", "${FIRST}"]
aws_region = "us-east-1"
[[upstreams.bedrock.profiles]]
name = "container"
aws_container_credentials = true
[[upstreams.bedrock.profiles]]
name = "files"
aws_access_key_id = "${FIRST}"
aws_secret_access_key_file = "/run/secrets/canary-key"
aws_session_token_file = "/run/secrets/canary-session"
"#;

/// Variables of a container on EKS.
const CONTAINER: &[(&str, &str)] = &[
    (
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "http://169.254.170.23/v1/canary-uri",
    ),
    ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "canary-token"),
    ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/var/run/token"),
    ("FIRST", "canary-first"),
];

/// Returns the sources of [`SOURCES`]: upstream, profile and source.
fn wanted_sources() -> Vec<(&'static str, &'static str, CredentialSource)> {
    let command = |words: &[&str]| CommandLine {
        program: words[0].to_owned(),
        arguments: words[1..].iter().map(ToString::to_string).collect(),
    };
    let token = |words: &[&str], minutes: u64| CredentialSource::Token {
        command: command(words),
        refresh: Duration::from_secs(60 * minutes),
    };
    let scope = |region: &str| AwsScope {
        region: region.to_owned(),
        service: "bedrock".to_owned(),
    };
    let file = |(name, part): &(&str, SecretPart)| SecretFile {
        path: Path::new("/run/secrets").join(name),
        part: *part,
    };
    let files = |files: &[(&str, SecretPart)]| CredentialSource::Files {
        files: files.iter().map(file).collect(),
        poll: Duration::from_secs(5),
    };
    let process = CredentialSource::AwsProcess {
        command: command(&["aws", "canary-first"]),
        scope: scope("us-east-1"),
    };
    let container = CredentialSource::AwsContainer {
        endpoint: ContainerEndpoint {
            uri: "http://169.254.170.23/v1/canary-uri".parse().unwrap(),
            token: Some(ContainerToken::File("/var/run/token".into())),
        },
        scope: scope("eu-central-1"),
    };
    let keys = [
        ("canary-key", SecretPart::AwsSecretKey),
        ("canary-session", SecretPart::AwsSessionToken),
    ];
    vec![
        (
            "vertex",
            "cloud",
            token(&["gcloud", "--account=canary-first", "${x}", ""], 45),
        ),
        ("vertex", "other", token(&["vault"], 10)),
        ("vertex", "file", files(&[("canary-file", SecretPart::Whole)])),
        ("bedrock", "process", process),
        ("bedrock", "container", container),
        ("bedrock", "files", files(&keys)),
    ]
}

#[test]
fn credentials_that_change_have_sources() {
    let config = with(Some(SOURCES), &Flags::default(), CONTAINER).unwrap().config;
    let mut wanted = CredentialSources::new();
    for (upstream, profile, source) in wanted_sources() {
        wanted
            .entry(upstream.to_owned())
            .or_default()
            .insert(profile.to_owned(), source);
    }
    assert!(config.credential_sources == wanted, "{:?}", config.credential_sources);
    let still = with(Some(&SOURCES.replace("5s", "0s")), &Flags::default(), CONTAINER).unwrap();
    assert!(!still.config.credential_sources["vertex"].contains_key("file"));
}

#[test]
fn the_words_of_a_command_are_printed_as_they_were_written() {
    let loaded = with(Some(SOURCES), &Flags::default(), CONTAINER).unwrap();
    let printed = loaded.to_toml().unwrap();
    let shown = format!("{loaded:?}{printed}").replace("/run/secrets/canary-", "");
    assert!(!shown.contains("canary"), "{shown}");
    assert!(printed.contains(r#""--account=${FIRST}", "$${x}""#), "{printed}");
    let again = with(Some(&printed), &Flags::default(), CONTAINER).unwrap();
    assert_eq!(again.config.credential_sources, loaded.config.credential_sources);
    assert_eq!(again.to_toml().unwrap(), printed);
}

#[test]
fn no_mistake_reveals_a_secret() {
    let head = "[upstreams.a]\nurl = \"http://h\"\n";
    let table = "[[upstreams.a.profiles]]\nname = \"p\"\n";
    let rows = [
        format!("{head}api_key = \"canary\""),
        format!("{head}credentials = \"canary\""),
        format!("{head}profiles = \"canary\""),
        format!("{head}profiles = [\"canary\"]"),
        format!("{head}profiles = [{{ name = \"p\", api_key = \"canary\", wieght = 1 }}]"),
        format!("{head}{table}api_kye = \"canary\""),
        format!("{head}{table}api_key = \"canary canary\""),
        format!("{head}{table}api_key = [\"canary\"]"),
        format!("{head}{table}api_key = canary"),
        format!("{head}{table}api_key = \"canary"),
        format!("{head}{table}api_key = \"${{canary \""),
        format!("{head}{table}api_key = \"${{canary canary}}\""),
        format!("{head}{table}api_key = \"canary-${{NOWHERE}}\""),
        format!("{head}{table}api_key = \"canary\"\nbearer = \"canary\""),
        format!("{head}{table}token_command = \"canary\""),
        format!("{head}{table}token_command = [\"canary\", 1]"),
        format!("{head}{table}token_command = [\"canary\"]\napi_key = \"canary\""),
        format!("{head}{table}api_key_file = \"canary0123456789012345678901234567890\""),
        "upstreams = { a = { url = \"http://h\", mode = 1, profiles = [{ api_key = \"canary\" }] } }".to_owned(),
        "api_key = \"canary\"".to_owned(),
        "[client_tokens]\nci = \"antiphon_canary\"".to_owned(),
        "client_tokens = { ci = \"canary\", A = \"sha256:0\" }".to_owned(),
    ];
    for row in rows {
        let error = with(Some(&row), &Flags::default(), &[]).expect_err(&row);
        let seen = format!("{error} {error:?}");
        assert!(!seen.contains("canary"), "{row}\n{seen}");
        assert!(
            error.problems.iter().all(|problem| problem.line_number().is_some()),
            "{row}\n{seen}"
        );
    }
}

#[test]
fn problems_of_profiles_that_need_more_than_one_line() {
    let at = |kind: &str, profiles: &str| format!("[upstreams.a]\nurl = \"http://h\"\n{kind}\n{profiles}");
    let one = "[[upstreams.a.profiles]]\nname = \"p\"\napi_key = \"k\"\n";
    problems(
        &at("credentials = \"passthrough\"", one),
        &[(3, "upstreams.a.credentials", "passed through", "write \"profiles\"")],
    );
    problems(
        &at("", &format!("{one}{one}")),
        &[(8, "upstreams.a.profiles[1].name", "two profiles", "choose another")],
    );
    let aws = "[[upstreams.a.profiles]]\nname = \"p\"\naws_access_key_id = \"k\"\naws_secret_access_key = \"k\"\naws_region = \"r\"\n";
    problems(
        &at("kind = \"anthropic\"", aws),
        &[(
            4,
            "upstreams.a.profiles[0]",
            "only for upstreams of kind bedrock",
            "kind = \"bedrock\"",
        )],
    );
    let hash = "sha256:d3c037b9d7d9dfb130eec88d77c88858f5d900b0bc0e01af7b74363caafa0bae";
    problems(
        &format!("[client_tokens]\na = \"{hash}\"\nb = \"{hash}\""),
        &[(3, "client_tokens.b", "is also the token of \"a\"", "separate token")],
    );
}

#[test]
fn limits_of_client_tokens_are_configured() {
    let tokens = "[client_tokens]\nci = \"sha256:d3c037b9d7d9dfb130eec88d77c88858f5d900b0bc0e01af7b74363caafa0bae\"\n";
    let limits = "[client_limits.ci]\nupstreams = [\"openai\", \"work\"]\nmax_concurrent = 2\nretry_percent = 100\n";
    let work = "[upstreams.work]\nurl = \"https://llm.example\"\n";
    let config = file(&format!("{tokens}{limits}{work}")).config;
    let ci = config.proxy.client_tokens.find_limits("ci").unwrap();
    assert_eq!(ci.upstreams, ["openai", "work"]);
    assert_eq!((ci.max_concurrent, ci.retry_percent), (Some(2), Some(100)));
    assert!(ci.allows_upstream("work") && !ci.allows_upstream("anthropic"));
    let wrong = "[client_limits.ci]\nupstreams = [\"openai\", \"wrok\", 1]\nmax_concurrent = 0\nretry_percent = 101\n";
    problems(
        &format!("{tokens}{wrong}{work}"),
        &[
            (
                4,
                "client_limits.ci.upstreams[1]",
                "no upstream \"wrok\"",
                "[upstreams.wrok]",
            ),
            (4, "client_limits.ci.upstreams[2]", "expected a string", "quotes"),
            (5, "client_limits.ci.max_concurrent", "at least 1", "remove the token"),
            (6, "client_limits.ci.retry_percent", "from 0 to 100", ""),
        ],
    );
}

#[test]
fn a_reload_names_profiles_whose_secret_alone_has_changed() {
    let loaded = |secret: &str| with(Some(PROFILES), &Flags::default(), &[("FIRST", secret)]).unwrap();
    let of = |old: &LoadedConfig, new: &LoadedConfig| ConfigChanges::compare_configs(old, new).unwrap();
    let (old, new) = (loaded("canary-first"), loaded("canary-second"));
    assert_eq!(of(&old, &loaded("canary-first")), ConfigChanges::default());
    let changed = ["upstreams.anthropic.profiles.first", "upstreams.bedrock.profiles.first"];
    assert_eq!(of(&old, &new).reloadable, changed);
    assert!(of(&old, &new).needs_restart.is_empty());
}

#[test]
fn profiles_are_served_to_other_machines_only_with_client_tokens() {
    let profile = "[[upstreams.openai.profiles]]\nname = \"p\"\napi_key = \"k\"\n";
    let tokens = "[client_tokens]\nci = \"sha256:d3c037b9d7d9dfb130eec88d77c88858f5d900b0bc0e01af7b74363caafa0bae\"\n";
    for (listen, open) in [
        ("127.0.0.1:1", false),
        ("[::1]:1", false),
        ("0.0.0.0:1", true),
        ("10.0.0.1:1", true),
    ] {
        let server = format!("[server]\nlisten = \"{listen}\"\n");
        if open {
            let expected = (2, "server.listen", "from other machines", "antiphon config token NAME");
            problems(&format!("{server}{profile}"), &[expected]);
        } else {
            drop(file(&format!("{server}{profile}")));
        }
        drop(file(&format!("{server}{profile}{tokens}")));
        drop(file(&server));
        // With client certificates, too: a list of them, or a CA that every client needs.
        let certificates = "[client_certificates]\nci = [\"ci.example.org\"]\n";
        drop(file(&format!("{server}{TLS}{CLIENT_CA}{profile}{certificates}")));
        drop(file(&format!(
            "{server}{TLS}{CLIENT_CA}require_client_certificate = true\n{profile}"
        )));
        if open {
            let expected = (2, "server.listen", "from other machines", "antiphon config token NAME");
            problems(&format!("{server}{TLS}{CLIENT_CA}{profile}"), &[expected]);
        }
    }
    let flags = Flags {
        given: [("--listen", "0.0.0.0:1".into())].into(),
        ..Flags::default()
    };
    let error = with(Some(profile), &flags, &[]).unwrap_err();
    assert_eq!(error.problems[0].key, "--listen");
}

#[test]
fn the_printed_configuration_loads_to_the_same_settings() {
    let text = "[upstreams.\"my.llm\"]\nurl = \"http://h/$${v1}\"\n[tools.\"a b\"]\ntier = \"durable\"\n[repair]\nmode = \"strict\"";
    for loaded in [defaults(), file(text)] {
        let printed = loaded.to_toml().unwrap();
        let again = file(&printed);
        assert_eq!(format!("{:?}", again.config), format!("{:?}", loaded.config));
        assert_eq!(again.to_toml().unwrap(), printed);
    }
}

#[test]
fn the_example_contains_the_defaults() {
    assert_eq!(
        format!("{:?}", file(EXAMPLE).config),
        format!("{:?}", defaults().config)
    );
}

/// Returns an example with every key set, also those that are commented out.
fn with_every_key(example: &str) -> String {
    let live = example.lines().map(|line| {
        let inside = line.strip_prefix('#').unwrap_or_default();
        let is_toml = inside.starts_with('[') || inside.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
        if is_toml { inside } else { line }
    });
    let live = live.collect::<Vec<_>>().join("\n");
    live.replace("store = \"sqlite\"", "store = \"postgres\"")
}

/// Loads an example with every key set, and the variables that it names.
fn load_every_key(live: &str) -> LoadedConfig {
    let variables = [
        "TEAM_A_KEY",
        "TOKEN",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
    ];
    let mut variables = variables.map(|name| (name, "value")).to_vec();
    let url = "postgres://antiphon@127.0.0.1/antiphon";
    variables.extend(["LEDGER_URL", "LEDGER_LISTEN_URL"].map(|name| (name, url)));
    variables.push(("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials/1"));
    variables.extend(["RUNNER_SECRET", "CRM_SECRET"].map(|name| (name, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")));
    with(Some(live), &Flags::default(), &variables).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn old_keys_are_read_with_a_warning_that_names_what_takes_their_place() {
    let live = with_every_key(OLD_EXAMPLE);
    let loaded = load_every_key(&live);
    let keys: Vec<&str> = loaded.config.old_keys.iter().map(|(key, _)| key.as_str()).collect();
    let gone = [
        "server.upload_idle_timeout",
        "timeouts.tls",
        "timeouts.send",
        "timeouts.stream_headers",
        "timeouts.first_event",
        "timeouts.heartbeat_idle",
        "timeouts.compaction",
        "timeouts.queue",
        "timeouts.pool_idle",
        "ledger.session_idle",
    ];
    assert_eq!(keys, gone);
    // What is printed keeps them, and means the same.
    let printed = loaded.to_toml().unwrap();
    assert!(printed.contains("session_idle = \"24h\""), "{printed}");
    // Each still has its effect, and the new one has it too.
    let old = file(
        "[server]\nupload_idle_timeout = \"2s\"\n[timeouts]\ntls = \"2s\"\nsend = \"3s\"\nstream_headers = \"5s\"\n\
         first_event = \"6s\"\nheartbeat_idle = \"8s\"\ncompaction = \"12s\"\nqueue = \"0s\"\npool_idle = \"17s\"\n\
         [ledger]\nsession_idle = \"2h\"\n[tools.t]\nmax_duration = \"3h\"",
    )
    .config;
    let seconds = Duration::from_secs;
    let clocks = ExchangeTimeouts {
        tls: seconds(2),
        send: seconds(3),
        stream_headers: seconds(5),
        first_event: seconds(6),
        heartbeat_idle: seconds(8),
        compaction: seconds(12),
        queue: Duration::ZERO,
        ..ExchangeTimeouts::default()
    };
    assert_eq!(old.proxy.timeouts, clocks);
    assert_eq!(
        (old.proxy.upload_idle_timeout, old.upstream.pool_idle_timeout),
        (seconds(2), seconds(17))
    );
    assert_eq!(old.late.session_idle, seconds(3 * 60 * 60));
    problems(
        "[timeouts]\ntls = \"soon\"",
        &[(2, "timeouts.tls", "expected a duration", "write it like")],
    );
    // No hint leads to an old key.
    let hint = "known here: client_stall, connect, gate, headers";
    problems("[timeouts]\nque = \"1s\"", &[(2, "timeouts.que", "unknown key", hint)]);
}

#[test]
fn times_without_a_key_follow_those_with_one() {
    let config = file(
        "[timeouts]\nheaders = \"30m\"\nprogress = \"10m\"\n[rotation]\nwait = \"1m\"\n\
         [ledger]\nttl = \"30days\"\n[tools.t]\nmax_duration = \"3days\"\n[tools.u]",
    )
    .config;
    let clocks = &config.proxy.timeouts;
    assert_eq!(
        [clocks.stream_headers, clocks.first_event, clocks.queue],
        [180, 300, 60].map(Duration::from_secs)
    );
    assert_eq!(config.late.session_idle, Duration::from_secs(3 * 24 * 60 * 60));
}

#[test]
fn the_example_contains_every_key_and_valid_commented_tables() {
    let live = with_every_key(EXAMPLE);
    let loaded = load_every_key(&live);
    assert!(loaded.config.literal_secrets.is_empty() && loaded.config.old_keys.is_empty());
    let table: toml::Table = live.parse().unwrap();
    let mut missing = Vec::new();
    collect_missing_keys(file_schema().as_value(), &toml::Value::Table(table), "", &mut missing);
    assert!(missing.is_empty(), "{missing:?}");
}

/// Collects the schema keys that the file does not contain.
fn collect_missing_keys(schema: &Value, value: &toml::Value, path: &str, missing: &mut Vec<String>) {
    for (key, schema) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let path = format!("{path}.{key}");
        match value.get(key) {
            Some(value) => collect_missing_keys(schema, value, &path, missing),
            None => missing.push(path),
        }
    }
    // In an array of tables, each key must appear in at least one item.
    if let (Some(item), Some(items)) = (schema.get("items"), value.as_array()) {
        let items = items.iter().filter_map(toml::Value::as_table).flatten();
        let whole: toml::Table = items.map(|(key, value)| (key.clone(), value.clone())).collect();
        collect_missing_keys(item, &toml::Value::Table(whole), path, missing);
    }
    // In a table with free names, each key must appear in at least one entry.
    if let (Some(free), Some(entries)) = (
        schema.get("additionalProperties").filter(|free| free.is_object()),
        value.as_table(),
    ) {
        let mut whole = toml::Table::new();
        for (key, value) in entries.values().filter_map(toml::Value::as_table).flatten() {
            match (whole.get_mut(key).and_then(toml::Value::as_array_mut), value.as_array()) {
                (Some(known), Some(more)) => known.extend(more.iter().cloned()),
                _ => drop(whole.insert(key.clone(), value.clone())),
            }
        }
        collect_missing_keys(free, &toml::Value::Table(whole), path, missing);
    }
}

#[test]
fn the_schema_is_closed_documented_and_without_null() {
    fn walk(schema: &Value, path: &str, leaves: &mut Vec<String>) {
        assert!(schema.get("$ref").is_none(), "{path}: {schema}");
        assert!(schema.get("description").is_some(), "{path} has no description");
        if let Some(forms) = schema.get("anyOf").and_then(Value::as_array) {
            for form in forms {
                walk(form, path, leaves);
            }
            return;
        }
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            assert_eq!(
                schema.get("additionalProperties"),
                Some(&Value::Bool(false)),
                "{path} takes unknown keys"
            );
            for (key, schema) in properties {
                walk(schema, &format!("{path}.{key}"), leaves);
            }
        } else if let Some(free) = schema.get("additionalProperties") {
            walk(free, &format!("{path}.*"), leaves);
        } else if let Some(items) = schema.get("items").filter(|items| items.get("properties").is_some()) {
            walk(items, &format!("{path}[]"), leaves);
        } else {
            assert!(
                schema.get("type").is_some_and(Value::is_string) || schema.get("oneOf").is_some(),
                "{path}: {schema}"
            );
            leaves.push(path.to_owned());
        }
    }
    let schema = file_schema();
    let mut leaves = Vec::new();
    walk(schema.as_value(), "", &mut leaves);
    assert!(!schema.as_value().to_string().contains("null"));
    assert_eq!(
        leaves.len(),
        (15 + 5) + 9 + 2 + (16 + 16) + 2 + 3 + (4 + 20) + 2 + 3 + 1 + 8 + 18 + (1 + 5) + 4 + 3,
        "{leaves:?}"
    );
}

#[test]
fn only_listed_variables_are_read() {
    let asked = std::cell::RefCell::new(std::collections::BTreeSet::new());
    let lookup = |name: &str| {
        asked.borrow_mut().insert(name.to_owned());
        None
    };
    drop(antiphon::config::load_config(
        &Flags::default(),
        &lookup,
        &CurrentFile::default(),
    ));
    let listed: std::collections::BTreeSet<String> = VARIABLES.iter().map(|(name, _)| (*name).to_owned()).collect();
    let asked: std::collections::BTreeSet<String> = asked.into_inner().iter().map(|name| name.to_uppercase()).collect();
    assert_eq!(asked, listed);
}

#[test]
fn late_results_are_configured() {
    let config = file(
        r#"
        [principals]
        user_header = "X-User"
        trust_body_user = true
        [ledger]
        store = "memory"
        path = "/tmp/l"
        ttl = "3d"
        detach_after = "1m"
        keep_seen = "disk"
        bytes_max = "10MiB"
        principal_bytes_max = "1MiB"
        [client_tokens]
        ci = "sha256:d3c037b9d7d9dfb130eec88d77c88858f5d900b0bc0e01af7b74363caafa0bae"
        [services.runner]
        token = "sha256:8d969eef6ecad3c29a3a629280e686cf0c3f5d5a86aff3ca12020c923adc6c92"
        secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
        principals = ["ci"]
        tools = ["deploy"]
        [services.any]
        token = "sha256:8d969eef6ecad3c29a3a629280e686cf0c3f5d5a86aff3ca12020c923adc6c93"
        principals = ["*"]
        tools = ["*"]
        [tools.deploy]
        tier = "durable"
        max_duration = "2h"
        "#,
    )
    .config;
    let names = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect());
    assert_eq!(config.proxy.principals.user_header.as_ref().unwrap(), "x-user");
    assert!(config.proxy.principals.trust_body_user && !config.proxy.principals.is_single);
    assert_eq!(config.late.principals, config.proxy.principals);
    assert_eq!(config.late.ttl, Duration::from_secs(3 * 24 * 60 * 60));
    assert_eq!(config.late.detach_after, Duration::from_secs(60));
    let [any, runner] = &config.late.services[..] else {
        panic!("{:?}", config.late.services);
    };
    assert_eq!((&any.name[..], &any.principals, &any.tools), ("any", &None, &None));
    assert!(any.key.is_none() && runner.key.is_some() && runner.token.is_some());
    assert_eq!(
        (&runner.principals, &runner.tools),
        (&names(&["ci"]), &names(&["deploy"]))
    );
    let deploy = &config.late.tools["deploy"];
    assert_eq!(
        (deploy.tier, deploy.max_duration),
        (Tier::Durable, Some(Duration::from_secs(7200)))
    );
    assert_eq!(config.proxy.policy.tiers["deploy"], Tier::Durable);
    let ledger = &config.ledger;
    assert!(ledger.place == LedgerPlace::Memory && ledger.keeps_seen);
    assert_eq!(
        (ledger.settings.bytes_max, ledger.settings.principal_bytes_max),
        (10 << 20, 1 << 20)
    );
    assert!(!format!("{config:?}").contains("MfKQ9"), "a secret is shown");
    let late = defaults().config.late;
    assert!(late.services.is_empty() && late.ttl == Duration::from_secs(7 * 24 * 60 * 60));
}

#[test]
fn problems_of_tls_name_the_file_and_its_fault() {
    let no_certificate = TLS.replace("certificate = \"/etc/antiphon/tls/fullchain.pem\"\n", "");
    let no_key = TLS.replace("key = \"/etc/antiphon/tls/privkey.pem\"\n", "");
    problems(&no_certificate, &[(1, "server.tls", "has no certificate", "as PEM")]);
    problems(&no_key, &[(1, "server.tls", "has no key", "as PEM")]);
    let swapped = TLS.replace("privkey", "fullchain");
    problems(
        &swapped,
        &[(
            3,
            "server.tls.key",
            "fullchain.pem: contains no private key",
            "-----BEGIN",
        )],
    );
    let missing = TLS.replace("fullchain", "gone");
    problems(
        &missing,
        &[(2, "server.tls.certificate", "gone.pem: cannot read the file", "")],
    );
    let foreign = TLS.replace("fullchain", "clients");
    problems(
        &foreign,
        &[(
            3,
            "server.tls.key",
            "does not belong to the first certificate of /etc/",
            "",
        )],
    );
    let empty = TLS.replace("/etc/antiphon/tls/privkey.pem", "");
    problems(&empty, &[(3, "server.tls.key", "expected the path of a file", "")]);
    let plain_ca = format!("{TLS}client_ca = \"/run/secrets/word\"\n");
    problems(
        &plain_ca,
        &[(4, "server.tls.client_ca", "word: contains no certificate", "-----BEGIN")],
    );
}

#[test]
fn problems_of_client_certificates_name_the_missing_ca_and_the_wrong_name() {
    let no_ca = format!("{TLS}require_client_certificate = true\n");
    problems(
        &no_ca,
        &[(
            4,
            "server.tls.require_client_certificate",
            "no CA",
            "set server.tls.client_ca",
        )],
    );
    let unasked = format!("{TLS}[client_certificates]\nci = [\"ci.example.org\"]\n");
    problems(
        &unasked,
        &[(
            4,
            "client_certificates",
            "no client is asked",
            "set server.tls.client_ca",
        )],
    );
    let listed = |lines: &str| format!("{TLS}{CLIENT_CA}[client_certificates]\n{lines}");
    let twice = listed("ci = [\"ci.example.org\"]\ndev = [\"a\", \"CI.example.org\"]\n");
    problems(
        &twice,
        &[(
            7,
            "client_certificates.dev[1]",
            "is also a certificate of \"ci\"",
            "at one client",
        )],
    );
    let wrong = listed("ci = [\"\"]\nCI = [\"a\"]\n");
    let name = (7, "client_certificates.CI", "expected a name", "write \"ci\"");
    problems(
        &wrong,
        &[(6, "client_certificates.ci[0]", "expected a DNS name", ""), name],
    );
    drop(file(&listed(
        "ci = [\"ci.example.org\"]\n[client_limits.ci]\nmax_concurrent = 1\n",
    )));
}

#[test]
fn tls_needs_a_restart_and_lists_of_certificates_do_not() {
    let (plain, tls) = (file(""), file(TLS));
    let listed = |name: &str| file(&format!("{TLS}{CLIENT_CA}[client_certificates]\nci = [\"{name}\"]\n"));
    let changes = ConfigChanges::compare_configs(&plain, &tls).unwrap();
    assert!(changes.reloadable.is_empty(), "{changes:?}");
    assert!(
        changes.needs_restart.contains(&"server.tls.key".to_owned()),
        "{changes:?}"
    );
    let changes = ConfigChanges::compare_configs(&listed("a"), &listed("b")).unwrap();
    assert_eq!(changes.reloadable, ["client_certificates.ci"]);
    assert!(changes.needs_restart.is_empty());
}
