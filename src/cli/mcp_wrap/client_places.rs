//! The files of the clients that `antiphon run` starts, and the search for wrapped servers in them.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use super::{
    config_change::read_servers,
    mcp_file::McpFile,
    server_entry::{Launch, PROGRAM},
};
use crate::config::process_environment;

/// The variable with the user's home directory.
const HOME: &str = if cfg!(windows) { "USERPROFILE" } else { "HOME" };
/// The working folder, in the place of a variable.
const HERE: &str = "";

/// The programs with their files: the variable that names a folder, and the path in it.
const PLACES: [(&str, &str, &str); 16] = [
    ("claude", HERE, ".mcp.json"),
    ("claude", "CLAUDE_CONFIG_DIR", ".claude.json"),
    ("claude", HOME, ".claude.json"),
    ("codex", HERE, ".codex/config.toml"),
    ("codex", "CODEX_HOME", "config.toml"),
    ("codex", HOME, ".codex/config.toml"),
    ("gemini", HERE, ".gemini/settings.json"),
    ("gemini", HOME, ".gemini/settings.json"),
    ("qwen", HERE, ".qwen/settings.json"),
    ("qwen", HOME, ".qwen/settings.json"),
    ("opencode", HERE, "opencode.json"),
    ("opencode", HERE, "opencode.jsonc"),
    ("opencode", "XDG_CONFIG_HOME", "opencode/opencode.json"),
    ("opencode", "XDG_CONFIG_HOME", "opencode/opencode.jsonc"),
    ("opencode", HOME, ".config/opencode/opencode.json"),
    ("opencode", HOME, ".config/opencode/opencode.jsonc"),
];

/// Returns the first file of a client that has a wrapped server. `None` if there is none that can be read.
pub(in crate::cli) fn find_wrapped_file(program: &OsStr) -> Option<PathBuf> {
    let program = Path::new(program).file_stem()?.to_str()?;
    let of_program = PLACES.iter().filter(|(known, ..)| *known == program);
    let mut files = of_program.filter_map(|(_, variable, path)| {
        if *variable == HERE {
            return Some(PathBuf::from(path));
        }
        process_environment(variable).map(|folder| Path::new(&folder).join(path))
    });
    files.find(|path| has_wrapped_server(path))
}

fn has_wrapped_server(path: &Path) -> bool {
    // A fault in it is the client's to tell.
    let Ok(file) = McpFile::read(path) else {
        return false;
    };
    let Ok(found) = read_servers(path, &file.text) else {
        return false;
    };
    let is_wrapped = |launch: &Launch| launch.is_wrapped(PROGRAM);
    found
        .servers
        .iter()
        .any(|server| server.launch.as_ref().is_ok_and(is_wrapped))
}
