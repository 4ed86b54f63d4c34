//! The folders of recorded cases.

use std::{fs, path::Path};

use antiphon_core::wire::Wire;

use super::repository::repository;

/// Returns the folder of all cases.
pub fn root() -> std::path::PathBuf {
    repository("tests/cases")
}

/// Returns every case folder with its wire.
pub fn folders() -> Vec<(Wire, std::path::PathBuf)> {
    let mut found = Vec::new();
    for wire in sorted(&root()) {
        let name = wire.file_name().unwrap().to_string_lossy().into_owned();
        let parsed: Wire = name.parse().unwrap_or_else(|_| panic!("{name} is no wire"));
        found.extend(sorted(&wire).into_iter().map(|folder| (parsed, folder)));
    }
    found
}

fn sorted(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.retain(|path| path.is_dir());
    entries.sort();
    entries
}
