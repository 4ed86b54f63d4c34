//! Configuration: validated and typed, with no text left that means something else.
//!
//! Built from one TOML file, variables and flags; a flag goes before a variable, a variable before the file, the file
//! before the default. No part of the program holds a [`Config`]: each is given its own settings.

mod admin;
mod changes;
mod clocks;
pub mod file;
mod flaw;
mod hidden;
mod interpolation;
mod late;
mod lower;
mod lowering;
mod places;
mod problem;
mod profiles;
mod read;
mod traces;
mod upstreams;
mod values;
mod variables;

use std::{collections::BTreeMap, io, net::SocketAddr, path::Path};

pub use changes::Changes;
pub use file::{File, schema};
pub use late::LedgerConfig;
pub use lower::{Flags, load, lower, path, process_environment};
pub use places::default_ledger_path;
pub use problem::{ConfigError, Place, Problem};
pub use values::client_name;
pub use variables::VARIABLES;

use crate::{
    auth::{Profile, TokenHash},
    late::LateSettings,
    provider::Upstream,
    proxy::ProxySettings,
    server::ServerSettings,
    telemetry::{LogSettings, TraceSettings},
    upstream::UpstreamSettings,
};

/// Answers with the value of a variable; an empty one counts as not set.
pub type Lookup<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Answers with what a file holds.
pub type ReadFile<'a> = dyn Fn(&Path) -> io::Result<String> + 'a;

/// The settings of every part.
#[derive(Clone, Debug)]
pub struct Config {
    /// The listener of the data path.
    pub server: ServerSettings,
    /// Where the dashboard, health, metrics and administration are; loopback without a token.
    pub admin_listen: SocketAddr,
    /// The hash of the token of those who may ask there for more than health; none: everybody on this machine.
    pub admin_token: Option<TokenHash>,
    /// The data path.
    pub proxy: ProxySettings,
    /// The client towards providers.
    pub upstream: UpstreamSettings,
    /// Built-in upstreams in their order, then the others by name.
    pub upstreams: Vec<Upstream>,
    /// The credentials of the operator's, by upstream; an upstream without any passes on the client's.
    pub profiles: BTreeMap<String, Vec<Profile>>,
    /// Late results.
    pub late: LateSettings,
    /// Where calls and results are kept.
    pub ledger: LedgerConfig,
    /// Keys of the file whose secret stands in the file itself, where it is easily copied along.
    pub literal_secrets: Vec<String>,
    /// Log lines.
    pub log: LogSettings,
    /// Traces; none are sent without.
    pub traces: Option<TraceSettings>,
    /// Variables of OpenTelemetry that are set to what we cannot use.
    pub unusable_variables: Vec<&'static str>,
}

/// A configuration, and the file that would say all of it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// Every key with its value in force, whoever gave it: what `config print` shows.
    pub effective: File,
}

impl Loaded {
    /// The effective file as TOML: read again, it gives the same configuration, but for secrets that stood in the file
    /// itself. They are printed as `***`, which is refused where it is read.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        let mut value = toml::Value::try_from(&self.effective)?;
        // Variables are put in already, but for secrets; what looks like one now is meant as it stands.
        hidden::escape(&mut value, schema().as_value());
        toml::to_string(&value)
    }
}
