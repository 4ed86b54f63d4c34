//! The folder of the repository, for tests of every package in it.

use std::path::{Path, PathBuf};

/// Returns the path of a file or folder of the repository.
pub fn repository(path: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package.ancestors().find(|folder| folder.join("tests/cases").is_dir());
    root.expect("a package inside the repository").join(path)
}
