//! The word by which clients start this program.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use super::server_entry::PROGRAM;

/// Returns the name of this program if the `PATH` finds it by that, else its path.
pub(super) fn own_program(path: Option<&str>) -> Result<String, String> {
    let own = env::current_exe().map_err(|error| format!("the path of this program is unknown: {error}"))?;
    if path.is_some_and(|path| is_found_first(path, &own)) {
        return Ok(PROGRAM.to_owned());
    }
    let own = own.into_os_string().into_string();
    own.map_err(|_| "the path of this program is no UTF-8: put it into a folder of the PATH".to_owned())
}

/// Returns `true` if the first program of its name in the folders is this one.
fn is_found_first(folders: &str, own: &Path) -> bool {
    let name = format!("{PROGRAM}{}", env::consts::EXE_SUFFIX);
    let files = env::split_paths(folders).filter(|folder| folder.is_absolute());
    let first = files.map(|folder| folder.join(&name)).find(|file| is_program(file));
    let real = |path: &Path| -> Option<PathBuf> { fs::canonicalize(path).ok() };
    first
        .and_then(|first| real(&first))
        .is_some_and(|first| real(own) == Some(first))
}

#[cfg(unix)]
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;

    fs::metadata(path).is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(path: &Path) -> bool {
    path.is_file()
}
