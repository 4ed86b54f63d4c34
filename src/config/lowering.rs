//! The state of a configuration on its way from the file to settings: every problem is noted, none ends it.

use std::{collections::BTreeMap, time::Duration};

use super::{
    file::File,
    flaw::Flaw,
    hidden::Hidden,
    problem::{Place, Problem},
    values,
};

/// The shortest clock that makes sense.
pub(super) const TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// The file's values, and everything known about where they came from.
pub(super) struct Lowering {
    pub(super) file: File,
    /// Where values of the file stand, by key.
    pub(super) places: BTreeMap<String, Place>,
    /// Variables and flags that gave a value, by the key they gave it to.
    pub(super) origins: BTreeMap<String, String>,
    pub(super) hidden: Hidden,
    pub(super) problems: Vec<Problem>,
}

impl Lowering {
    pub(super) fn push(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Reports what is wrong with the value of `key`, under the name of whoever gave it.
    pub(super) fn report(&mut self, key: &str, flaw: Flaw) {
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

    pub(super) fn has_problem(&self, key: &str) -> bool {
        self.problems.iter().any(|problem| problem.key == key)
    }

    pub(super) fn take<T>(&mut self, key: &str, value: Result<T, Flaw>) -> Option<T> {
        value.map_err(|flaw| self.report(key, flaw)).ok()
    }

    pub(super) fn duration(&mut self, key: &str, text: &str, min: Duration) -> Duration {
        self.take(key, values::duration(text, min)).unwrap_or_default()
    }
}

/// Stands in for an address that has a problem.
pub(super) fn anywhere() -> std::net::SocketAddr {
    std::net::SocketAddr::from(([127, 0, 0, 1], 0))
}
