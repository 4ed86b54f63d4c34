//! Default paths of files.

use std::path::{Path, PathBuf};

use super::VariableLookup;

/// Name of the configuration file in the user's folder, below a folder of its own.
const CONFIG_NAME: &str = "antiphon.toml";
/// Configuration of the whole machine.
const SYSTEM_CONFIG: &str = "/etc/antiphon/antiphon.toml";

/// Systems that differ in the folders of users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Platform {
    Unix,
    /// It has its own folder for application state.
    Apple,
    Windows,
}

/// The system that this program was built for.
const PLATFORM: Platform = if cfg!(windows) {
    Platform::Windows
} else if cfg!(target_os = "macos") {
    Platform::Apple
} else {
    Platform::Unix
};

/// Returns the default path of the ledger, in the user's state directory. `None` without a home directory.
pub fn default_ledger_path(variable: &VariableLookup<'_>) -> Option<PathBuf> {
    state_directory(variable, PLATFORM).map(|state| state.join("antiphon").join("ledger.db"))
}

/// Returns the path of the token for commands of this user, beside the default ledger. `None` without a home directory.
pub fn default_token_path(variable: &VariableLookup<'_>) -> Option<PathBuf> {
    state_directory(variable, PLATFORM).map(|state| state.join("antiphon").join("token"))
}

/// Returns the folder in which `antiphon doctor` keeps its fixes. `None` without a home directory.
pub fn default_fixes_path(variable: &VariableLookup<'_>) -> Option<PathBuf> {
    state_directory(variable, PLATFORM).map(|state| state.join("antiphon").join("doctor"))
}

/// Returns the folder in which `antiphon mcp` marks runs and keeps results. `None` without a home directory.
pub fn default_mcp_path(variable: &VariableLookup<'_>) -> Option<PathBuf> {
    state_directory(variable, PLATFORM).map(|state| state.join("antiphon").join("mcp"))
}

/// Returns the default path of the user's configuration file. `None` without a home directory.
pub fn user_config_path(variable: &VariableLookup<'_>) -> Option<PathBuf> {
    config_directory(variable, PLATFORM).map(|folder| folder.join("antiphon").join(CONFIG_NAME))
}

/// Returns the configuration file at a default path: the user's, else that of the machine. `None` if neither exists.
///
/// The working directory is never searched: a repository that somebody else wrote must not configure the proxy.
pub fn find_default_config(variable: &VariableLookup<'_>) -> Option<PathBuf> {
    let system = (PLATFORM != Platform::Windows).then(|| PathBuf::from(SYSTEM_CONFIG));
    let paths = user_config_path(variable).into_iter().chain(system);
    // A dangling link counts as existing, so that it is reported instead of ignored.
    paths.into_iter().find(|path| std::fs::symlink_metadata(path).is_ok())
}

/// Returns the value of a variable that is an absolute path.
fn absolute_path(variable: &VariableLookup<'_>, name: &str) -> Option<PathBuf> {
    // A relative path would mean a different file in each working directory, so it counts as not set.
    variable(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn state_directory(variable: &VariableLookup<'_>, platform: Platform) -> Option<PathBuf> {
    let home = |below: &str| absolute_path(variable, "HOME").map(|home| home.join(Path::new(below)));
    match platform {
        Platform::Unix => absolute_path(variable, "XDG_STATE_HOME").or_else(|| home(".local/state")),
        Platform::Apple => home("Library/Application Support"),
        Platform::Windows => absolute_path(variable, "LOCALAPPDATA"),
    }
}

fn config_directory(variable: &VariableLookup<'_>, platform: Platform) -> Option<PathBuf> {
    match platform {
        Platform::Unix | Platform::Apple => {
            let home = || absolute_path(variable, "HOME").map(|home| home.join(".config"));
            absolute_path(variable, "XDG_CONFIG_HOME").or_else(home)
        }
        Platform::Windows => absolute_path(variable, "APPDATA"),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn lookup<'a>(set: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| {
            let (_, value) = set.iter().find(|(known, _)| *known == name)?;
            Some((*value).to_owned())
        }
    }

    /// A platform, its variables, and the folder that they give.
    type PathRow = (Platform, &'static [(&'static str, &'static str)], Option<&'static str>);

    #[test]
    fn state_is_where_the_platform_keeps_it() {
        let rows: [PathRow; 8] = [
            (Platform::Unix, &[("XDG_STATE_HOME", "/s"), ("HOME", "/h")], Some("/s")),
            (
                Platform::Unix,
                &[("XDG_STATE_HOME", "s"), ("HOME", "/h")],
                Some("/h/.local/state"),
            ),
            (Platform::Unix, &[("HOME", "/h")], Some("/h/.local/state")),
            (Platform::Unix, &[("HOME", "h")], None),
            (Platform::Unix, &[], None),
            (
                Platform::Apple,
                &[("XDG_STATE_HOME", "/s"), ("HOME", "/h")],
                Some("/h/Library/Application Support"),
            ),
            (Platform::Apple, &[("XDG_STATE_HOME", "/s")], None),
            (Platform::Windows, &[("LOCALAPPDATA", "/l"), ("HOME", "/h")], Some("/l")),
        ];
        for (platform, set, wanted) in rows {
            assert_eq!(
                state_directory(&lookup(set), platform).as_deref(),
                wanted.map(Path::new),
                "{platform:?} {set:?}"
            );
        }
    }

    #[test]
    fn the_configuration_is_in_the_users_folder_never_in_a_relative_one() {
        let rows: [PathRow; 5] = [
            (Platform::Unix, &[("XDG_CONFIG_HOME", "/c"), ("HOME", "/h")], Some("/c")),
            (
                Platform::Unix,
                &[("XDG_CONFIG_HOME", "."), ("HOME", "/h")],
                Some("/h/.config"),
            ),
            (Platform::Apple, &[("HOME", "/h")], Some("/h/.config")),
            (Platform::Unix, &[("HOME", ".")], None),
            (Platform::Windows, &[("APPDATA", "/a")], Some("/a")),
        ];
        for (platform, set, wanted) in rows {
            assert_eq!(
                config_directory(&lookup(set), platform).as_deref(),
                wanted.map(Path::new),
                "{platform:?} {set:?}"
            );
        }
    }
}
