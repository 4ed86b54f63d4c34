//! Default paths of files.

use std::path::{Path, PathBuf};

use super::VariableLookup;

/// `true` on macOS, which has its own folder for application state.
const APPLE: bool = cfg!(target_os = "macos");

/// Returns the default path of the ledger, in the user's state directory. `None` without a home directory.
pub fn default_ledger_path(variable: &VariableLookup<'_>) -> Option<PathBuf> {
    state_directory(variable, APPLE).map(|state| state.join("antiphon").join("ledger.db"))
}

fn state_directory(variable: &VariableLookup<'_>, apple: bool) -> Option<PathBuf> {
    // A relative path would mean a different file in each working directory, so it counts as not set.
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = |below: &str| absolute("HOME").map(|home| home.join(Path::new(below)));
    if apple {
        return home("Library/Application Support");
    }
    absolute("XDG_STATE_HOME").or_else(|| home(".local/state"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_where_the_platform_keeps_it() {
        let rows = [
            (false, Some("/s"), Some("/h"), Some("/s")),
            (false, Some("s"), Some("/h"), Some("/h/.local/state")),
            (false, None, Some("/h"), Some("/h/.local/state")),
            (false, None, Some("h"), None),
            (false, None, None, None),
            (true, Some("/s"), Some("/h"), Some("/h/Library/Application Support")),
            (true, Some("/s"), None, None),
        ];
        for (apple, state, home, wanted) in rows {
            let variable = |name: &str| match name {
                "XDG_STATE_HOME" => state.map(ToOwned::to_owned),
                "HOME" => home.map(ToOwned::to_owned),
                _ => None,
            };
            assert_eq!(
                state_directory(&variable, apple).as_deref(),
                wanted.map(Path::new),
                "{apple} {state:?} {home:?}"
            );
        }
    }
}
