//! Overrides of the file: variables first, then flags.

use std::{collections::BTreeMap, path::PathBuf};

use super::{
    VariableLookup,
    default_paths::find_default_config,
    file::{FileValue as _, Overrides, Written, join_key, split_list},
    lowering::Lowering,
    problem::ConfigProblem,
    variables::{LOG, RUST_LOG, UPSTREAM},
};
use crate::telemetry::LogSettings;

/// Values of the command line.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--config`.
    pub config: Option<PathBuf>,
    /// The file that was found at a default path. It counts only if neither flag nor variable names one.
    pub default_config: Option<PathBuf>,
    /// Values of the flags that override one key, by flag: `--listen`.
    pub given: BTreeMap<&'static str, String>,
    /// `--upstream`, each `NAME=URL`.
    pub upstreams: Vec<String>,
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

/// Values from outside the file, and what becomes of them.
struct OutsideValues<'a> {
    flags: &'a Flags,
    variable: &'a VariableLookup<'a>,
    origins: &'a mut BTreeMap<String, String>,
    flaws: Vec<(String, ConfigProblem)>,
}

impl Overrides for OutsideValues<'_> {
    fn text_for(&mut self, key: &str, variable: &'static str, flag: Option<&'static str>) -> Option<String> {
        let by_flag = flag.and_then(|flag| Some((self.flags.given.get(flag)?.clone(), flag)));
        let (text, origin) = by_flag.or_else(|| Some(((self.variable)(variable)?, variable)))?;
        // So that a problem names the flag or variable and not the file.
        self.origins.insert(key.to_owned(), origin.to_owned());
        Some(text)
    }

    fn report(&mut self, key: &str, flaw: ConfigProblem) {
        self.flaws.push((key.to_owned(), flaw));
    }
}

/// Overrides the file with variables, and both with flags.
pub(super) fn overlay_settings(lowering: &mut Lowering, flags: &Flags, variable: &VariableLookup<'_>) {
    let mut outside = OutsideValues {
        flags,
        variable,
        origins: &mut lowering.origins,
        flaws: Vec::new(),
    };
    lowering.file.override_with("", &mut outside);
    for (key, flaw) in outside.flaws {
        lowering.report_problem(&key, flaw);
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
            let problem = ConfigProblem::new(origin, "expected NAME=URL");
            let problem = problem.with_hint("write it like work=https://llm.example.com");
            lowering.problems.push(problem);
            continue;
        };
        if seen.contains(&name) {
            lowering
                .problems
                .push(ConfigProblem::new(origin, format!("upstream {name:?} is given twice")).with_hint("remove one"));
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
