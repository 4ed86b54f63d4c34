//! Configuration: one TOML file, variables and flags become validated, typed settings.
//!
//! Precedence: a flag overrides a variable, a variable overrides the file, the file overrides the default.
//! No other room takes a whole [`Config`]: `app` and `cli` hand each room its own settings.

mod admin;
mod changes;
mod clients;
mod credentials;
mod current_file;
mod default_paths;
pub mod file;
mod interpolation;
mod late;
mod ledger;
mod load;
mod lowering;
mod overlay;
mod problem;
mod profiles;
mod read;
mod rules;
mod secrets;
mod services;
mod timeouts;
mod tls;
mod traces;
mod trusted_file;
mod upstreams;
mod variables;
mod webhooks;

use std::{collections::BTreeMap, io, net::SocketAddr, path::Path};

pub use changes::ConfigChanges;
pub use current_file::CurrentFile;
pub use default_paths::{
    default_fixes_path, default_ledger_path, default_mcp_path, default_token_path, find_default_config,
    user_config_path,
};
pub use file::values::check_client_name;
pub use file::{ConfigFile, file_schema};
pub use ledger::{LedgerConfig, LedgerPlace};
pub use load::{
    build_config, config_at_default_path, config_path, load_config, process_environment, proxy_environment,
};
pub use overlay::Flags;
pub use problem::{ConfigError, ConfigProblem, FilePlace};
pub use rules::{LoadedRule, LoadedRules, load_rules};
pub use tls::exposed_key_warning;
pub use variables::VARIABLES;

use crate::{
    auth::{Profile, TokenHash},
    keys::credential_source::CredentialSources,
    late::LateSettings,
    provider::Upstream,
    proxy::ProxySettings,
    server::{ServerSettings, tls::ListenerTls},
    telemetry::{LogSettings, TraceSettings},
    upstream::UpstreamSettings,
};

/// Function that returns the value of an environment variable. An empty value counts as not set.
pub type VariableLookup<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Function that returns the contents of a file.
pub type ReadFile<'a> = dyn Fn(&Path) -> io::Result<String> + 'a;

/// Settings of every room.
#[derive(Clone, Debug)]
pub struct Config {
    /// Settings of the data listener.
    pub server: ServerSettings,
    /// Bytes that all request bodies together may have in memory. `None` if they depend on the machine.
    pub body_memory_max: Option<u64>,
    /// Address of the admin listener (dashboard, health, metrics, `/admin/v1`). Loopback unless there is a token.
    pub admin_listen: SocketAddr,
    /// TLS of the admin listener. `None` for plain HTTP.
    pub admin_tls: Option<ListenerTls>,
    /// Hash of the admin token. `None` if anybody on this machine may use the admin listener.
    pub admin_token: Option<TokenHash>,
    /// Settings of the data path.
    pub proxy: ProxySettings,
    /// Settings of the HTTP client towards providers.
    pub upstream: UpstreamSettings,
    /// Built-in upstreams in their fixed order, then the others by name.
    pub upstreams: Vec<Upstream>,
    /// The operator's credentials by upstream. An upstream without any passes the client's credential on.
    pub profiles: BTreeMap<String, Vec<Profile>>,
    /// The sources of credentials that change while the process runs.
    pub credential_sources: CredentialSources,
    /// Settings of late results.
    pub late: LateSettings,
    /// Settings of the ledger.
    pub ledger: LedgerConfig,
    /// Keys whose secret is written in the file itself. `serve` warns about each.
    pub literal_secrets: Vec<String>,
    /// The operator's own rows of refusals.
    pub rules: LoadedRules,
    /// Old keys that the file sets, each with the advice to whoever sets it. `serve` warns about each.
    pub old_keys: Vec<(String, &'static str)>,
    /// Settings of log lines.
    pub log: LogSettings,
    /// Settings of traces. `None` if no traces are sent.
    pub traces: Option<TraceSettings>,
    /// OpenTelemetry variables with values that cannot be used. `serve` warns about each.
    pub unusable_variables: Vec<&'static str>,
}

/// A configuration, and the file that spells out all of it.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    /// The settings.
    pub config: Config,
    /// Every key with its effective value, whether from file, variable, flag or default. `config print` shows it.
    pub effective: ConfigFile,
}

impl LoadedConfig {
    /// Returns the effective file as TOML. Reading it again gives the same configuration.
    ///
    /// Secrets that were written in the file itself are printed as `***`. The reader rejects that value.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        file_to_toml(&self.effective)
    }

    /// Returns the text of [`Self::to_toml`] with shortened hashes of tokens, for operators who may not read the file.
    pub fn to_shown_toml(&self) -> Result<String, toml::ser::Error> {
        let mut file = self.effective.clone();
        secrets::shorten_token_hashes(&mut file);
        file_to_toml(&file)
    }
}

fn file_to_toml(file: &ConfigFile) -> Result<String, toml::ser::Error> {
    let mut value = toml::Value::try_from(file)?;
    // Every `${NAME}` but those of secrets was replaced already, so what still looks like one is literal text.
    secrets::escape_references(&mut value, file_schema().as_value());
    toml::to_string(&value)
}
