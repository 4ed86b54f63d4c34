//! Overrides of the file: variables first, then flags.

use std::path::PathBuf;

use super::default_paths::find_default_config;
use super::{
    VariableLookup,
    file::{ConfigFile, Word, Written, join_key},
    lowering::Lowering,
    problem::Problem,
    read,
    variables::{
        ADMIN_LISTEN, ALLOW_HOSTS, ALLOW_ORIGINS, DRAIN_TIMEOUT, LEDGER_BYTES_MAX, LEDGER_PATH, LEDGER_STORE, LISTEN,
        LOG, LOG_FORMAT, MODE, RUST_LOG, UPSTREAM,
    },
};
use crate::{labels::Labelled, telemetry::LogSettings};

/// Values of the command line.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--config`.
    pub config: Option<PathBuf>,
    /// The file that was found at a default path. It counts only if neither flag nor variable names one.
    pub default_config: Option<PathBuf>,
    /// `--listen`.
    pub listen: Option<String>,
    /// `--admin-listen`.
    pub admin_listen: Option<String>,
    /// `--upstream`, each `NAME=URL`.
    pub upstreams: Vec<String>,
    /// `--log-format`.
    pub log_format: Option<String>,
    /// Number of `-v` minus number of `-q`. 0 leaves the level to variables and file.
    pub verbosity: i8,
}

impl Flags {
    /// Adds the configuration file at a default path, if there is one.
    #[must_use]
    pub fn with_default_config(self, variable: &VariableLookup<'_>) -> Self {
        Self {
            default_config: find_default_config(variable),
            ..self
        }
    }
}

/// Function that writes a text or a list into the file.
type KeyWriter<T> = fn(&mut ConfigFile, T);

/// Keys with one text: the key, its variable, and its place in the file.
const TEXT_KEYS: [(&str, &str, KeyWriter<String>); 5] = [
    ("server.listen", LISTEN, |file, text| {
        file.server.listen = Written::new(text)
    }),
    ("server.admin_listen", ADMIN_LISTEN, |file, text| {
        file.server.admin_listen = Written::new(text);
    }),
    ("server.drain_timeout", DRAIN_TIMEOUT, |file, text| {
        file.server.drain_timeout = Written::new(text);
    }),
    ("ledger.path", LEDGER_PATH, |file, text| file.ledger.path = Some(text)),
    ("ledger.bytes_max", LEDGER_BYTES_MAX, |file, text| {
        file.ledger.bytes_max = Written::new(text);
    }),
];

/// Keys with a list of texts: the key, its variable, and its place in the file.
const LIST_KEYS: [(&str, &str, KeyWriter<Vec<String>>); 2] = [
    ("server.allow_hosts", ALLOW_HOSTS, |file, list| {
        file.server.allow_hosts = list.into_iter().map(Written::new).collect();
    }),
    ("server.allow_origins", ALLOW_ORIGINS, |file, list| {
        file.server.allow_origins = list.into_iter().map(Written::new).collect();
    }),
];

/// A value from outside the file, and the flag or variable that gave it.
struct GivenValue {
    text: String,
    origin: &'static str,
}

/// Overrides the file with variables, and both with flags.
pub(super) fn overlay_settings(lowering: &mut Lowering, flags: &Flags, variable: &VariableLookup<'_>) {
    // The origin is recorded too, so that a problem names the flag or variable and not the file.
    let given = |name: &'static str| {
        let (flag, value) = match name {
            LISTEN => ("--listen", flags.listen.clone()),
            ADMIN_LISTEN => ("--admin-listen", flags.admin_listen.clone()),
            LOG_FORMAT => ("--log-format", flags.log_format.clone()),
            _ => ("", None),
        };
        let by_flag = value.map(|text| GivenValue { text, origin: flag });
        by_flag.or_else(|| Some(variable(name)?).map(|text| GivenValue { text, origin: name }))
    };
    for (key, name, write_key) in TEXT_KEYS {
        if let Some(value) = given(name) {
            write_key(&mut lowering.file, value.text);
            lowering.origins.insert(key.into(), value.origin.into());
        }
    }
    for (key, name, write_key) in LIST_KEYS {
        if let Some(value) = given(name) {
            let list = split_list(&value.text).map(ToOwned::to_owned).collect();
            overlay_list(lowering, key, value.origin, list, write_key);
        }
    }
    if let Some(format) = read_word(lowering, "log.format", given(LOG_FORMAT)) {
        lowering.file.log.format = format;
    }
    if let Some(mode) = read_word(lowering, "repair.mode", given(MODE)) {
        lowering.file.repair.mode = mode;
    }
    if let Some(store) = read_word(lowering, "ledger.store", given(LEDGER_STORE)) {
        lowering.file.ledger.store = store;
    }
    overlay_level(lowering, flags.verbosity, variable);
    if let Some(list) = variable(UPSTREAM) {
        let pairs: Vec<&str> = split_list(&list).collect();
        overlay_upstreams(lowering, &pairs, UPSTREAM);
    }
    let pairs: Vec<&str> = flags.upstreams.iter().map(String::as_str).collect();
    // Flags last: for the same name they replace the URL of the variable.
    overlay_upstreams(lowering, &pairs, "--upstream");
}

/// Returns the items of a list that is separated by commas.
fn split_list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// Overrides a list.
fn overlay_list(
    lowering: &mut Lowering,
    key: &str,
    origin: &'static str,
    list: Vec<String>,
    write_key: KeyWriter<Vec<String>>,
) {
    // Problems are reported by item, so each item has the origin too.
    for i in 0..list.len() {
        lowering.origins.insert(format!("{key}[{i}]"), origin.into());
    }
    lowering.origins.insert(key.into(), origin.into());
    write_key(&mut lowering.file, list);
}

/// Returns the value of a word from a closed list. Reports any other word and returns `None`.
fn read_word<T: Labelled>(lowering: &mut Lowering, key: &str, given: Option<GivenValue>) -> Option<Word<T>> {
    let GivenValue { text, origin } = given?;
    lowering.origins.insert(key.into(), origin.into());
    let word = lowering.value_or_report(key, read::one_of(text, &Word::<T>::words()))?;
    T::from_label(&word).map(Word)
}

/// Overrides the log level. `-v` and `-q` come first, then `ANTIPHON_LOG`, then `RUST_LOG`.
fn overlay_level(lowering: &mut Lowering, verbosity: i8, variable: &VariableLookup<'_>) {
    let by_flags = match verbosity {
        0 => None,
        1 => Some("debug"),
        2.. => Some("trace"),
        -1 => Some("warn"),
        _ => Some("error"),
    };
    // `RUST_LOG` is often set for another program, so an unusable value is ignored.
    let foreign = || variable(RUST_LOG).filter(|level| LogSettings::check_level(level).is_ok());
    let given = by_flags
        .map(|level| (level.to_owned(), "-v/-q"))
        .or_else(|| Some((variable(LOG)?, LOG)))
        .or_else(|| Some((foreign()?, RUST_LOG)));
    if let Some((level, origin)) = given {
        lowering.file.log.level = Written::new(level);
        lowering.origins.insert("log.level".into(), origin.into());
    }
}

/// Adds or overrides upstreams, each given as `NAME=URL`.
fn overlay_upstreams(lowering: &mut Lowering, pairs: &[&str], origin: &str) {
    let mut seen = Vec::new();
    for pair in pairs {
        // An equals sign after `://` belongs to the URL: the name is missing.
        let Some((name, url)) = pair.split_once('=').filter(|(name, _)| !name.contains("://")) else {
            // The problem does not repeat the value: a URL may contain a password.
            let problem = Problem::new(origin, "expected NAME=URL");
            let problem = problem.with_hint("write it like work=https://llm.example.com");
            lowering.problems.push(problem);
            continue;
        };
        if seen.contains(&name) {
            lowering
                .problems
                .push(Problem::new(origin, format!("upstream {name:?} is given twice")).with_hint("remove one"));
            continue;
        }
        seen.push(name);
        lowering.file.upstreams.entry(name.to_owned()).or_default().url = Some(Written::new(url));
        let key = join_key("upstreams", name);
        // A problem of the name is reported under the table, one of the URL under its key.
        lowering.origins.insert(join_key(&key, "url"), origin.to_owned());
        lowering.origins.insert(key, origin.to_owned());
    }
}
