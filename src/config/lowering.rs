//! State of the conversion from file to settings. It collects every problem and stops at none.

use std::{collections::BTreeMap, time::Duration};

use super::{
    file::File,
    flaw::Flaw,
    hidden::Hidden,
    problem::{Place, Problem},
    values,
};

/// Shortest timeout that may be configured.
pub(super) const TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// Values of the file, their origin, and the problems found so far.
pub(super) struct Lowering {
    pub(super) file: File,
    /// Places of the file's values, by key.
    pub(super) places: BTreeMap<String, Place>,
    /// Variable or flag that set a value, by the key that it set.
    pub(super) origins: BTreeMap<String, String>,
    pub(super) hidden: Hidden,
    pub(super) problems: Vec<Problem>,
}

impl Lowering {
    /// Adds a problem that already has its key and place.
    pub(super) fn push(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Reports a problem with the value of `key`, under the name of the variable or flag that set it.
    pub(super) fn report(&mut self, key: &str, flaw: Flaw) {
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
    pub(super) fn take<T>(&mut self, key: &str, value: Result<T, Flaw>) -> Option<T> {
        value.map_err(|flaw| self.report(key, flaw)).ok()
    }

    /// Parses the duration of `key`, or reports its problem and returns zero.
    pub(super) fn duration(&mut self, key: &str, text: &str, min: Duration) -> Duration {
        // The zero is never used: a configuration with a problem is not returned.
        self.take(key, values::duration(text, min)).unwrap_or_default()
    }
}

/// Returns the stand-in for an address that has a problem.
pub(super) fn anywhere() -> std::net::SocketAddr {
    std::net::SocketAddr::from(([127, 0, 0, 1], 0))
}
