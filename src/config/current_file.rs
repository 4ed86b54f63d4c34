//! The file that a load of the configuration reads at present.

use std::{
    fmt::Display,
    sync::{Arc, Mutex, PoisonError},
};

/// The file that is being read. It shows for which file a load waits. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct CurrentFile(Arc<Mutex<Option<String>>>);

impl CurrentFile {
    /// Reads a file, or looks at it, by `read`. The file is the current one meanwhile.
    pub fn during<T>(&self, file: impl Display, read: impl FnOnce() -> T) -> T {
        self.replace(Some(file.to_string()));
        let done = read();
        self.replace(None);
        done
    }

    /// Returns the current file. `None` if nothing is being read.
    pub fn name(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, file: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = file;
    }
}
