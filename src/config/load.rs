//! Loads a [`Config`] from file, variables and flags, and reports every problem at once.
//!
//! No other file reads the environment.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    path::{Path, PathBuf},
};

use super::{
    Config, LoadedConfig, ReadFile, VariableLookup, admin, clients,
    credentials::ContainerEnvironment,
    current_file::CurrentFile,
    file::{ConfigFile, RepairSection, Written},
    late, ledger,
    lowering::{Lowering, any_loopback_port},
    overlay::{self, Flags},
    problem::{ConfigError, ConfigProblem, FilePlace},
    profiles::{self, LoweredProfiles},
    read, rules,
    secrets::is_private,
    timeouts, tls,
    traces::{self, OtelEnvironment},
    trusted_file, upstreams,
    variables::CONFIG,
};
use crate::{
    proxy::ProxySettings,
    refusals::RefusalReader,
    repair::{OnForeignThinking, RepairPolicy},
    server::budget,
    server::regular_file::{read_regular, read_text},
    server::{ServerSettings, tls::ListenerTls},
    telemetry::LogSettings,
    upstream::ProxyEnvironment,
    wire::MendKind,
};

/// Returns a variable of this process. `None` if it is not set or empty.
pub fn process_environment(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    let value = std::env::var_os(name)?;
    Some(value.to_string_lossy().into_owned()).filter(|value| !value.is_empty())
}

/// Origin of a configuration file that nobody named.
const DEFAULT_PATH: &str = "configuration";

/// Returns the configuration file if nobody named it, and it was found at a default path.
pub fn config_at_default_path(flags: &Flags, variable: &VariableLookup<'_>) -> Option<PathBuf> {
    config_path(flags, variable).and_then(|(path, origin)| (origin == DEFAULT_PATH).then_some(path))
}

/// Returns the path of the configuration file, and the flag or variable that gave it. `None` if there is no file.
pub fn config_path(flags: &Flags, variable: &VariableLookup<'_>) -> Option<(PathBuf, &'static str)> {
    // Callers may pass a lookup that does not filter empty values.
    let named = || Some((variable(CONFIG).filter(|path| !path.is_empty())?.into(), CONFIG));
    let found = || Some((flags.default_config.clone()?, DEFAULT_PATH));
    let given = flags.config.clone().map(|path| (path, "--config"));
    given.or_else(named).or_else(found)
}

/// Reads the file that `flags` or the environment names, if any, and builds the configuration.
///
/// Blocks for as long as a file does. `current` is the file meanwhile.
pub fn load_config(
    flags: &Flags,
    variable: &VariableLookup<'_>,
    current: &CurrentFile,
) -> Result<LoadedConfig, ConfigError> {
    let read_file = |path: &Path| current.during(path.display(), || read_regular(path));
    let Some((path, key)) = config_path(flags, variable) else {
        return build_config(None, flags, variable, &read_file);
    };
    let name = path.display().to_string();
    let distrust_reason = || current.during(&name, || trusted_file::distrust_reason(&path));
    let distrust = (key == DEFAULT_PATH).then(distrust_reason);
    if let Some(reason) = distrust.flatten() {
        let problem = ConfigProblem::new(key, format!("{name} is not used: {reason}"))
            .with_hint("or name the file with -c: then it is not checked");
        return Err(ConfigError {
            file: None,
            problems: vec![problem],
        });
    }
    // It may be a pipe, as in `-c <(…)`, or a device without an end.
    match current.during(&name, || read_text(File::open(&path)?)) {
        Ok(text) => build_config(Some((&name, &text)), flags, variable, &read_file),
        Err(error) => {
            let problem = ConfigProblem::new(key, format!("cannot read {name}: {error}"))
                .with_hint("name a readable TOML file, or leave it out: every key has a default");
            Err(ConfigError {
                file: None,
                problems: vec![problem],
            })
        }
    }
}

/// Builds the configuration from the name and text of the file, if there is one, the flags and the variables.
///
/// Reads nothing itself but the permissions of a file of rows: `variable` returns variables, and `read_file` the contents
/// of other files.
pub fn build_config(
    file: Option<(&str, &str)>,
    flags: &Flags,
    variable: &VariableLookup<'_>,
    read_file: &ReadFile<'_>,
) -> Result<LoadedConfig, ConfigError> {
    // Containers and shells often pass unset variables on as empty ones.
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let mut lowering = file.map(|(_, text)| read::read(text, &variable)).unwrap_or_default();
    // Overrides come before the conversion, so that a value is checked only if it takes effect.
    overlay::overlay_settings(&mut lowering, flags, &variable);
    admin::overlay_admin_token(&mut lowering, &variable, read_file);
    ledger::overlay_ledger_url(&mut lowering, &variable, read_file);
    let otel = OtelEnvironment::from_variables(&variable);
    traces::overlay_traces(&mut lowering, &otel);
    lowering.check_values();
    let environment = ForeignEnvironment {
        proxies: proxy_environment(&variable),
        otel,
        container: ContainerEnvironment::from_variables(&variable),
    };
    let config = lower_config(&mut lowering, environment, read_file);
    let mut problems = conceal_secrets(lowering.problems, &lowering.places);
    if problems.is_empty() {
        return Ok(LoadedConfig {
            config,
            effective: lowering.file,
        });
    }
    // Problems of variables and flags have no line and follow those of the file, as do those of other files.
    problems.sort_by_key(|problem| {
        let place = problem.place.as_ref().filter(|_| problem.file.is_none());
        place.map_or((usize::MAX, 0), |place| (place.line, place.column))
    });
    Err(ConfigError {
        file: file.map(|(name, _)| name.to_owned()),
        problems,
    })
}

/// Removes the text of lines that may contain a secret from all problems.
fn conceal_secrets(problems: Vec<ConfigProblem>, places: &BTreeMap<String, FilePlace>) -> Vec<ConfigProblem> {
    let private = places.iter().filter(|(key, _)| is_private(key));
    // By line and not by key: an inline table has harmless keys and secrets on one line.
    let lines: BTreeSet<usize> = private.map(|(_, place)| place.line).collect();
    let conceal = |problem: ConfigProblem| {
        let own = Some(&problem).filter(|problem| problem.file.is_none());
        let beside = own
            .and_then(ConfigProblem::line_number)
            .is_some_and(|line| lines.contains(&line));
        if beside || is_private(&problem.key) {
            problem.without_line_text()
        } else {
            problem
        }
    };
    problems.into_iter().map(conceal).collect()
}

/// Reads the variables of forward proxies.
pub fn proxy_environment(variable: &VariableLookup<'_>) -> ProxyEnvironment {
    // Lower case first, as curl does.
    let either = |name: &str| variable(&name.to_ascii_lowercase()).or_else(|| variable(name));
    ProxyEnvironment {
        https: either("HTTPS_PROXY"),
        http: either("HTTP_PROXY"),
        all: either("ALL_PROXY"),
        no: either("NO_PROXY"),
    }
}

/// Variables that other programs define too.
struct ForeignEnvironment {
    proxies: ProxyEnvironment,
    otel: OtelEnvironment,
    container: ContainerEnvironment,
}

/// Builds the settings of every room. An unusable value is reported, and a stand-in takes its place.
fn lower_config(lowering: &mut Lowering, environment: ForeignEnvironment, read_file: &ReadFile<'_>) -> Config {
    let ForeignEnvironment {
        proxies,
        otel,
        container,
    } = environment;
    let [tls, admin_tls] = tls::lower_tls(lowering, read_file);
    let server = server_settings(&lowering.file, tls);
    let admin_token = lowering.file.server.admin_token.as_ref().and_then(Written::value);
    let admin_listen = admin::lower_admin_listen(lowering, &server, admin_token.is_some());
    let mut proxy = lower_proxy(lowering);
    let rules = rules::lower_rules(lowering, read_file);
    proxy.refusals = rules.checked.reader.clone();
    let upstream = timeouts::upstream_settings(&lowering.file.timeouts, &proxy.timeouts, proxies);
    let body_memory_max = lower_body_memory(lowering, proxy.inspect_bytes_max);
    late::check_principals(lowering, &server, &proxy.principals);
    let ledger = ledger::lower_ledger(lowering);
    let late = late::lower_late(lowering, proxy.principals.clone());
    let upstreams = upstreams::lower_upstreams(lowering, &server);
    let limits = clients::lower_client_limits(lowering, &upstreams);
    proxy.client_tokens = proxy.client_tokens.with_limits(limits);
    let LoweredProfiles { profiles, sources } = profiles::lower_profiles(lowering, read_file, &container);
    profiles::check_exposure(lowering, &server, &profiles);
    let log = LogSettings {
        format: lowering.file.log.format.0,
        level: lowering.file.log.level.text().to_owned(),
    };
    let traces = traces::trace_settings(&lowering.file.traces, &otel);
    Config {
        server,
        body_memory_max,
        admin_listen,
        admin_tls,
        admin_token,
        proxy,
        upstream,
        upstreams,
        profiles,
        credential_sources: sources,
        late,
        ledger,
        rules,
        literal_secrets: std::mem::take(&mut lowering.secrets.literal_keys),
        old_keys: std::mem::take(&mut lowering.old_keys),
        log,
        traces,
        unusable_variables: otel.unusable,
    }
}

/// Builds the settings of the data listener.
fn server_settings(file: &ConfigFile, tls: Option<ListenerTls>) -> ServerSettings {
    let section = &file.server;
    // One client must not take all places.
    let quarter = (section.connections_max / 4).max(1);
    ServerSettings {
        listen: section.listen.value().unwrap_or_else(any_loopback_port),
        connections_max: section.connections_max,
        connections_per_address_max: section.connections_per_address_max.unwrap_or(quarter),
        trusted_proxies: section.trusted_proxies.iter().filter_map(Written::value).collect(),
        header_timeout: section.header_timeout.value_or_default(),
        client_stall: file.timeouts.client_stall.value_or_default(),
        drain_delay: section.drain_delay.value_or_default(),
        drain_timeout: section.drain_timeout.value_or_default(),
        tls,
    }
}

/// Returns the memory of all request bodies. `None` if it depends on the machine.
fn lower_body_memory(lowering: &mut Lowering, inspect_bytes_max: usize) -> Option<u64> {
    let bytes = lowering.file.server.body_memory_max.value_or_default()?;
    let least = budget::least_body_memory(inspect_bytes_max);
    if bytes < least {
        let problem = ConfigProblem::of_value(format!(
            "expected at least 2.2 times server.inspect_bytes_max: {least}B"
        ));
        lowering.report_problem("server.body_memory_max", problem);
    }
    Some(bytes)
}

/// Returns the mends that are switched off.
fn mends_off(repair: &RepairSection) -> Vec<MendKind> {
    if !repair.mends {
        return MendKind::all().collect();
    }
    let switches = [
        (repair.drop_parameter, MendKind::DropParameter),
        (repair.drop_beta, MendKind::DropBeta),
        (repair.thinking_off, MendKind::ThinkingOff),
        (repair.lower_max_tokens, MendKind::LowerMaxTokens),
        (repair.end_with_user, MendKind::EndWithUser),
    ];
    let off = switches.into_iter().filter(|(is_on, _)| !is_on);
    off.map(|(_, kind)| kind).collect()
}

/// Builds the settings of the data path.
fn lower_proxy(lowering: &mut Lowering) -> ProxySettings {
    let client_tokens =
        clients::lower_client_tokens(lowering).with_certificates(tls::lower_client_certificates(lowering));
    let file = &lowering.file;
    let (server, repair) = (&file.server, &file.repair);
    let origins = server.allow_origins.iter().filter_map(Written::value);
    let hosts = server.allow_hosts.iter().filter_map(Written::value);
    ProxySettings {
        inspect_bytes_max: server.inspect_bytes_max.value_or_default(),
        upload_idle_timeout: timeouts::old_or(
            server.upload_idle_timeout.as_ref(),
            server.header_timeout.value_or_default(),
        ),
        allow_origins: origins.collect(),
        allow_hosts: hosts.collect(),
        trust_mode_header: server.trust_mode_header,
        policy: RepairPolicy {
            late: repair.late.0,
            least_safe: repair.least.0,
            hygiene: repair.hygiene,
            shapes: repair.shapes,
            malformed_calls: repair.malformed_calls,
            continuity: repair.continuity,
            tiers: file
                .tools
                .iter()
                .map(|(name, tool)| (name.clone(), tool.tier.0))
                .collect(),
            foreign_thinking: if repair.foreign_thinking {
                OnForeignThinking::Remove
            } else {
                OnForeignThinking::Ignore
            },
            mends_off: mends_off(repair),
        },
        refusals: RefusalReader::default(),
        on_binding_error: repair.on_binding_error.0,
        explain: repair.explain,
        on_outage: file.ledger.on_outage.0,
        timeouts: timeouts::exchange_timeouts(&file.timeouts, &file.rotation),
        rotation: timeouts::rotation_settings(&file.rotation),
        client_tokens,
        principals: late::principal_settings(&file.principals),
    }
}
