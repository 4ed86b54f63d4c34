//! The files in which clients keep their MCP servers: names, places of the entries, and how a timeout is written.

use std::path::Path;

/// The key on a way that stands for every key.
pub(super) const ANY_KEY: &str = "*";

/// The language of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileSyntax {
    /// JSON, also with comments and trailing commas.
    Json,
    Toml,
}

/// The member of an entry with the time that its client waits for a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeoutKey {
    pub(super) key: &'static str,
    /// Seconds in one unit of its number.
    pub(super) unit_secs: f64,
    /// The shortest time that the client heeds, in milliseconds.
    pub(super) least_millis: u64,
}

/// One kind of file.
#[derive(Debug)]
pub(super) struct ClientFile {
    /// Its client, for people.
    pub(super) client: &'static str,
    /// The ends of its paths. A row without any is for files of another name, by their shape.
    paths: &'static [&'static str],
    pub(super) syntax: FileSyntax,
    /// The ways to the objects whose members are servers.
    pub(super) ways: &'static [&'static [&'static str]],
    pub(super) timeout: Option<TimeoutKey>,
    /// `true` if its client finds a program by its name. One that the desktop starts has another `PATH` than a shell.
    pub(super) has_path_of_shell: bool,
}

const MILLIS: TimeoutKey = TimeoutKey {
    key: "timeout",
    unit_secs: 0.001,
    least_millis: 1,
};

/// The setting of Claude Code: "Values below 1000ms are ignored", says the schema of 2.1.332.
const CLAUDE_MILLIS: TimeoutKey = TimeoutKey {
    least_millis: 1000,
    ..MILLIS
};

const SERVERS_OF_MOST: &[&str] = &["mcpServers"];

/// The files of JSON whose client has the usual member, and no time in its entries.
const USUAL: ClientFile = ClientFile {
    client: "",
    paths: &[],
    syntax: FileSyntax::Json,
    ways: &[SERVERS_OF_MOST],
    timeout: None,
    has_path_of_shell: true,
};

/// All kinds. Those with paths come first; of the others the first that finds an entry counts.
pub(super) const CLIENT_FILES: [ClientFile; 13] = [
    ClientFile {
        client: "Claude Code",
        paths: &[".mcp.json"],
        timeout: Some(CLAUDE_MILLIS),
        ..USUAL
    },
    ClientFile {
        client: "Claude Code",
        paths: &[".claude.json"],
        ways: &[SERVERS_OF_MOST, &["projects", ANY_KEY, "mcpServers"]],
        timeout: Some(CLAUDE_MILLIS),
        ..USUAL
    },
    ClientFile {
        client: "Claude Desktop",
        paths: &["claude_desktop_config.json"],
        has_path_of_shell: false,
        ..USUAL
    },
    ClientFile {
        client: "Cursor",
        paths: &[".cursor/mcp.json"],
        ..USUAL
    },
    ClientFile {
        client: "VS Code",
        paths: &[".vscode/mcp.json", "User/mcp.json"],
        ways: &[&["servers"]],
        ..USUAL
    },
    ClientFile {
        client: "opencode",
        paths: &["opencode.json", "opencode.jsonc"],
        ways: &[&["mcp"]],
        timeout: Some(MILLIS),
        ..USUAL
    },
    ClientFile {
        client: "gemini-cli",
        paths: &[".gemini/settings.json"],
        timeout: Some(MILLIS),
        ..USUAL
    },
    ClientFile {
        client: "Qwen Code",
        paths: &[".qwen/settings.json"],
        timeout: Some(MILLIS),
        ..USUAL
    },
    ClientFile {
        client: "Codex",
        paths: &[".codex/config.toml"],
        ..TOML_TABLES
    },
    // By their shape. Only where the unit of a time is certain, it is read.
    ClientFile {
        client: "a client with mcpServers",
        ways: &[SERVERS_OF_MOST, &["projects", ANY_KEY, "mcpServers"]],
        ..USUAL
    },
    ClientFile {
        client: "VS Code, by its shape",
        ways: &[&["servers"]],
        ..USUAL
    },
    ClientFile {
        client: "opencode, by its shape",
        ways: &[&["mcp"]],
        timeout: Some(MILLIS),
        ..USUAL
    },
    ClientFile {
        client: "Codex, by its shape",
        ..TOML_TABLES
    },
];

/// The files of Codex.
const TOML_TABLES: ClientFile = ClientFile {
    syntax: FileSyntax::Toml,
    ways: &[&["mcp_servers"]],
    timeout: Some(TimeoutKey {
        key: "tool_timeout_sec",
        unit_secs: 1.0,
        least_millis: 1,
    }),
    ..USUAL
};

/// Returns `true` if the path of a file tells its client.
pub(super) fn is_known_path(path: &Path) -> bool {
    find_by_path(path).is_some()
}

fn find_by_path(path: &Path) -> Option<&'static ClientFile> {
    let has_path = |kind: &&ClientFile| kind.paths.iter().any(|end| path.ends_with(end));
    CLIENT_FILES.iter().find(has_path)
}

/// Returns the kinds that a file may be of: the one whose path it has, or all that are known by their shape.
pub(super) fn possible_kinds(path: &Path) -> Vec<&'static ClientFile> {
    if let Some(kind) = find_by_path(path) {
        return vec![kind];
    }
    let is_toml = path
        .extension()
        .is_some_and(|ending| ending.eq_ignore_ascii_case("toml"));
    let syntax = if is_toml { FileSyntax::Toml } else { FileSyntax::Json };
    let fits = |kind: &&ClientFile| kind.paths.is_empty() && kind.syntax == syntax;
    CLIENT_FILES.iter().filter(fits).collect()
}
