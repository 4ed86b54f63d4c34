//! Converts the store of `[ledger]` to settings: memory, a file, or a database with its URL.

use std::path::{Path, PathBuf};

use super::{
    ReadFile, VariableLookup,
    file::{KeepSeenName, LedgerSection, MigrateName, StoreName, Written, values::Size},
    lowering::Lowering,
    problem::ConfigProblem,
    variables::{LEDGER_URL, LEDGER_URL_FILE},
};
use crate::{
    auth::Secret,
    ledger::{DatabaseAddress, DatabaseSettings, LedgerSettings},
};

const URL: &str = "ledger.url";
const LISTEN_URL: &str = "ledger.listen_url";

/// Settings of the ledger, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerConfig {
    /// Place of the records.
    pub place: LedgerPlace,
    /// `true` if the ledger also stores results that were only seen in requests.
    pub keeps_seen: bool,
    /// Limits on its size.
    pub settings: LedgerSettings,
    /// `true` if the proxy is not ready while the ledger does not work.
    pub ready_requires: bool,
}

/// Place of the records of a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerPlace {
    /// Memory of the process, lost when it ends.
    Memory,
    /// A file that survives a restart. `None` for the default path in the user's state directory.
    File(Option<PathBuf>),
    /// A database that several replicas share.
    Database(DatabaseSettings),
}

/// Overrides the URL of the file with that of a variable, or of the file that a variable names.
pub(super) fn overlay_ledger_url(lowering: &mut Lowering, variable: &VariableLookup<'_>, read_file: &ReadFile<'_>) {
    let (origin, text) = match (variable(LEDGER_URL), variable(LEDGER_URL_FILE)) {
        (Some(_), Some(_)) => {
            let problem = ConfigProblem::new(LEDGER_URL_FILE, format!("{LEDGER_URL} is set too"));
            return lowering.problems.push(problem.with_hint("keep one of them"));
        }
        (Some(url), None) => (LEDGER_URL, url),
        (None, Some(path)) => match read_file(Path::new(&path)) {
            Ok(text) => (LEDGER_URL_FILE, text),
            Err(error) => {
                let problem = ConfigProblem::new(LEDGER_URL_FILE, format!("cannot read the file: {error}"));
                return lowering
                    .problems
                    .push(problem.with_hint("name a readable file that contains only the URL"));
            }
        },
        (None, None) => return,
    };
    // Files and shells add a line break.
    let shown = lowering.secrets.set_secret(URL, Secret::new(text.trim().to_owned()));
    lowering.file.ledger.url = Some(shown);
    lowering.origins.insert(URL.into(), origin.into());
}

/// Builds the settings of the ledger.
pub(super) fn lower_ledger(lowering: &mut Lowering) -> LedgerConfig {
    let section = lowering.file.ledger.clone();
    let place = match section.store.0 {
        StoreName::Memory => LedgerPlace::Memory,
        StoreName::Sqlite => LedgerPlace::File(section.path.as_ref().map(PathBuf::from)),
        StoreName::Postgres => LedgerPlace::Database(lower_database(lowering, &section)),
    };
    if section.store.0 != StoreName::Postgres {
        for (key, value) in [(URL, &section.url), (LISTEN_URL, &section.listen_url)] {
            if value.is_some() {
                let flaw = ConfigProblem::of_value("has no effect, since ledger.store is not \"postgres\"");
                let hint = format!("set ledger.store = \"postgres\", or remove {key}");
                lowering.report_problem(key, flaw.with_hint(hint));
            }
        }
    }
    let size = |size: &Written<Size>| u64::try_from(size.value_or_default()).unwrap_or(u64::MAX);
    LedgerConfig {
        place,
        keeps_seen: section.keep_seen.0 == KeepSeenName::Disk,
        settings: LedgerSettings {
            bytes_max: size(&section.bytes_max),
            principal_bytes_max: size(&section.principal_bytes_max),
        },
        ready_requires: section.ready_requires,
    }
}

/// Builds the settings of the database.
fn lower_database(lowering: &mut Lowering, section: &LedgerSection) -> DatabaseSettings {
    if section.url.is_none() && !lowering.has_problem(URL) {
        let flaw = ConfigProblem::of_value("is missing, and ledger.store is \"postgres\"");
        let hint = format!("write url = \"${{NAME}}\" under [ledger], or set {LEDGER_URL} or {LEDGER_URL_FILE}");
        lowering.report_problem(URL, flaw.with_hint(hint));
    }
    let url = lower_url(lowering, URL, section);
    let listen_url = lower_url(lowering, LISTEN_URL, section);
    DatabaseSettings {
        url: url.unwrap_or_else(|| Secret::new(String::new())),
        listen_url,
        tls: section.tls.0,
        migrates: section.migrate.0 == MigrateName::Auto,
        allows_unsafe: section.allow_unsafe,
    }
}

/// Returns the URL of a key. Reports one that the driver could not use.
fn lower_url(lowering: &mut Lowering, key: &str, section: &LedgerSection) -> Option<Secret> {
    let url = lowering.secrets.get(key)?.clone();
    match DatabaseAddress::parse(&url, section.tls.0) {
        Ok(address) => {
            if !address.has_password() {
                lowering.secrets.literal_keys.retain(|literal| literal != key);
            }
        }
        Err(flaw) => lowering.report_problem(key, ConfigProblem::of_value(flaw.to_string()).with_hint(flaw.advice())),
    }
    Some(url)
}
