//! State of the conversion from file to settings. It collects every problem and stops at none.

use std::{collections::BTreeMap, time::Duration};

use super::{
    file::ConfigFile,
    problem::{FilePlace, Problem},
    secrets::FileSecrets,
    value_problem::ValueProblem,
    values,
};

/// Shortest timeout that may be configured.
pub(super) const TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// Values of the file, their origin, and the problems found so far.
pub(super) struct Lowering {
    pub(super) file: ConfigFile,
    /// Places of the file's values, by key.
    pub(super) places: BTreeMap<String, FilePlace>,
    /// Variable or flag that set a value, by the key that it set.
    pub(super) origins: BTreeMap<String, String>,
    pub(super) secrets: FileSecrets,
    pub(super) problems: Vec<Problem>,
}

impl Lowering {
    /// Adds a problem that already has its key and place.
    pub(super) fn add_problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Reports a problem with the value of `key`, under the name of the variable or flag that set it.
    pub(super) fn report_problem(&mut self, key: &str, flaw: ValueProblem) {
        // A value from a variable or flag replaced that of the file, so the file's line would mislead.
        let (name, place) = match self.origins.get(key) {
            Some(origin) => (origin.clone(), None),
            None => (key.to_owned(), self.places.get(key).cloned()),
        };
        self.problems.push(Problem {
            key: name,
            message: flaw.message,
            hint: flaw.hint,
            place,
        });
    }

    /// Returns `true` if a problem of `key` was reported already.
    pub(super) fn has_problem(&self, key: &str) -> bool {
        self.problems.iter().any(|problem| problem.key == key)
    }

    /// Returns the value of `key`, or reports its problem and returns `None`.
    pub(super) fn value_or_report<T>(&mut self, key: &str, value: Result<T, ValueProblem>) -> Option<T> {
        value.map_err(|flaw| self.report_problem(key, flaw)).ok()
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
