//! State of the conversion from file to settings. It collects every problem and stops at none.

use std::{collections::BTreeMap, time::Duration};

use super::{
    file::ConfigFile,
    problem::{FilePlace, Problem},
    secrets::FileSecrets,
    values,
};

/// Shortest timeout that may be configured.
pub(super) const TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// Values of the file as far as they are usable, their origin, and the problems found so far.
#[derive(Debug, Default)]
pub(super) struct Lowering {
    /// Values of the file. A missing or unusable value has its default.
    pub(super) file: ConfigFile,
    /// Places of the file's values, by key, also of unusable ones.
    pub(super) places: BTreeMap<String, FilePlace>,
    /// Variable or flag that set a value, by the key that it set.
    pub(super) origins: BTreeMap<String, String>,
    /// Secrets by their key.
    pub(super) secrets: FileSecrets,
    pub(super) problems: Vec<Problem>,
}

impl Lowering {
    /// Reports a problem with the value of `key`, under the name of the variable or flag that set it.
    pub(super) fn report_problem(&mut self, key: &str, flaw: Problem) {
        // A value from a variable or flag replaced that of the file, so the file's line would mislead.
        let (key, place) = match self.origins.get(key) {
            Some(origin) => (origin.clone(), None),
            None => (key.to_owned(), self.places.get(key).cloned()),
        };
        self.problems.push(Problem { key, place, ..flaw });
    }

    /// Returns `true` if a problem of `key` was reported already.
    pub(super) fn has_problem(&self, key: &str) -> bool {
        self.problems.iter().any(|problem| problem.key == key)
    }

    /// Returns the value of `key`, or reports its problem and returns `None`.
    pub(super) fn value_or_report<T>(&mut self, key: &str, value: Result<T, Problem>) -> Option<T> {
        value.map_err(|flaw| self.report_problem(key, flaw)).ok()
    }

    /// Parses the items of the list `key`, and reports the problem of each that has one.
    pub(super) fn items_or_report<T>(
        &mut self,
        key: &str,
        texts: &[String],
        parse: impl Fn(&str) -> Result<T, Problem>,
    ) -> Vec<T> {
        let mut parsed = Vec::new();
        for (i, text) in texts.iter().enumerate() {
            let key = format!("{key}[{i}]");
            // An item that is not a string already has its own problem; the reader replaced it by an empty text.
            if !self.has_problem(&key) {
                parsed.extend(self.value_or_report(&key, parse(text)));
            }
        }
        parsed
    }

    /// Parses the duration of `key`, or reports its problem and returns zero.
    pub(super) fn duration_or_report(&mut self, key: &str, text: &str, min: Duration) -> Duration {
        // The zero is never used: a configuration with a problem is not returned.
        self.value_or_report(key, values::parse_duration(text, min))
            .unwrap_or_default()
    }
}

/// Returns the stand-in for an address that has a problem.
pub(super) fn any_loopback_port() -> std::net::SocketAddr {
    std::net::SocketAddr::from(([127, 0, 0, 1], 0))
}
