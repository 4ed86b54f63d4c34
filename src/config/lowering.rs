//! State of the conversion from file to settings. It collects every problem and stops at none.

use std::collections::BTreeMap;

use super::{
    file::{ConfigFile, FileValue as _},
    problem::{ConfigProblem, FilePlace},
    secrets::FileSecrets,
};

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
    pub(super) problems: Vec<ConfigProblem>,
    /// Old keys that the file sets, each with the advice to whoever sets it.
    pub(super) old_keys: Vec<(String, &'static str)>,
}

impl Lowering {
    /// Reports the problem of every value that is unusable by itself.
    pub(super) fn check_values(&mut self) {
        let mut flaws = Vec::new();
        self.file.check("", &mut |key, flaw| flaws.push((key.to_owned(), flaw)));
        for (key, flaw) in flaws {
            // An item that is not a string already has its own problem; the reader replaced it by an empty text.
            if !self.has_problem(&key) {
                self.report_problem(&key, flaw);
            }
        }
    }

    /// Reports a problem with the value of `key`, under the name of the variable or flag that set it.
    pub(super) fn report_problem(&mut self, key: &str, flaw: ConfigProblem) {
        // A value from a variable or flag replaced that of the file, so the file's line would mislead.
        let list = key.strip_suffix(']').and_then(|key| key.rsplit_once('['));
        let list = list.and_then(|(list, _)| self.origins.get(list));
        let (key, place) = match self.origins.get(key).or(list) {
            Some(origin) => (origin.clone(), None),
            None => (key.to_owned(), self.places.get(key).cloned()),
        };
        self.problems.push(ConfigProblem { key, place, ..flaw });
    }

    /// Returns `true` if a problem of `key` was reported already.
    pub(super) fn has_problem(&self, key: &str) -> bool {
        self.problems.iter().any(|problem| problem.key == key)
    }

    /// Returns the value of `key`, or reports its problem and returns `None`.
    pub(super) fn value_or_report<T>(&mut self, key: &str, value: Result<T, ConfigProblem>) -> Option<T> {
        value.map_err(|flaw| self.report_problem(key, flaw)).ok()
    }
}

/// Returns the stand-in for an address that has a problem.
pub(super) fn any_loopback_port() -> std::net::SocketAddr {
    std::net::SocketAddr::from(([127, 0, 0, 1], 0))
}
