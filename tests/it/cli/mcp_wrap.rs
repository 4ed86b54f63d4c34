//! `antiphon mcp wrap` and `unwrap` through the built binary: the cases of `tests/mcp/wrap`, files that cannot be changed,
//! and random ones.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::{
    bodies::Rng,
    repository::repository,
    seed::{number, seed},
    state,
};

/// What `case.toml` says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrapCase {
    /// Path of the file, as a client has it.
    file: String,
    /// Servers that are asked for.
    #[serde(default)]
    names: Vec<String>,
    /// `true` if the lines of the file end as on Windows.
    #[serde(default)]
    crlf: bool,
    /// `true` if the file begins with a byte-order mark.
    #[serde(default)]
    mark: bool,
    /// `path` if the file names the program by its path.
    #[serde(default)]
    program: String,
    /// The lines of the report after the first one.
    told: Vec<String>,
}

/// A folder of its own, with the binary in a folder of the `PATH`.
struct Place {
    folder: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = state::directory();
        let programs = folder.join("programs");
        fs::create_dir(&programs).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_antiphon"), programs.join("antiphon")).unwrap();
        Self { folder }
    }

    /// Writes a file of the client.
    fn write(&self, name: &str, text: &[u8]) -> PathBuf {
        let path = self.folder.join("home").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn run(&self, verb: &str, flags: &[&str], path: &Path, names: &[String]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
        let command = state::apart(&mut command).args(["mcp", verb]).args(flags);
        let command = command.arg(path).args(names).env("PATH", self.folder.join("programs"));
        command.output().unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the text of a case as its file has it.
fn file_text(case: &WrapCase, path: &Path) -> String {
    let mut text = fs::read_to_string(path).unwrap_or_default();
    if case.crlf {
        text = text.replace('\n', "\r\n");
    }
    if case.mark {
        text.insert(0, '\u{feff}');
    }
    text
}

fn told_lines(output: &Output) -> Vec<String> {
    text(&output.stderr).lines().skip(1).map(str::to_owned).collect()
}

fn check_case(folder: &Path) {
    let name = folder.file_name().unwrap().display().to_string();
    let case: WrapCase = toml::from_str(&fs::read_to_string(folder.join("case.toml")).unwrap()).unwrap();
    let place = Place::new();
    let before = file_text(&case, &folder.join("before"));
    let path = place.write(&case.file, before.as_bytes());
    let output = place.run("wrap", &[], &path, &case.names);
    let told = told_lines(&output);
    assert_eq!(
        (output.status.code(), told),
        (Some(0), case.told.clone()),
        "{name}: {}",
        text(&output.stderr)
    );
    assert_eq!(
        fs::read(&path).unwrap(),
        before.as_bytes(),
        "{name}: nothing is written"
    );
    let program = if case.program == "path" {
        env!("CARGO_BIN_EXE_antiphon")
    } else {
        "antiphon"
    };
    let wrapped = text(&output.stdout);
    let shown = wrapped.replace(&format!("\"{program}\""), "\"ANTIPHON\"");
    let shown = shown.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    if std::env::var_os("UPDATE_CASES").is_some() {
        fs::write(folder.join("after"), &shown).unwrap();
    }
    assert_eq!(shown, fs::read_to_string(folder.join("after")).unwrap(), "{name}");
    assert_eq!(wrapped.starts_with('\u{feff}'), case.mark, "{name}");
    let ends = |text: &str| (text.matches("\r\n").count(), text.matches('\n').count());
    assert!(!case.crlf || ends(&wrapped).0 == ends(&wrapped).1, "{name}");
    // Written, wrapped again, and taken back.
    let written = place.run("wrap", &["--write"], &path, &case.names);
    assert_eq!(
        (written.status.code(), text(&written.stdout)),
        (Some(0), String::new()),
        "{name}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), wrapped, "{name}");
    let again = place.run("wrap", &[], &path, &case.names);
    assert_eq!((again.status.code(), text(&again.stdout)), (Some(1), wrapped), "{name}");
    let back = place.run("unwrap", &["--write"], &path, &case.names);
    assert_eq!(back.status.code(), Some(0), "{name}: {}", text(&back.stderr));
    assert_eq!(fs::read_to_string(&path).unwrap(), before, "{name}");
    let unwrapped = place.run("unwrap", &[], &path, &case.names);
    assert_eq!(
        (unwrapped.status.code(), text(&unwrapped.stdout)),
        (Some(1), before),
        "{name}"
    );
}

#[test]
fn each_case_is_wrapped_and_unwrapped_to_the_byte() {
    let mut folders: Vec<PathBuf> = fs::read_dir(repository("tests/mcp/wrap"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    folders.sort();
    assert!(folders.len() > 10, "{folders:?}");
    for folder in &folders {
        check_case(folder);
    }
}

/// Files, with the exit code and a part of what is told.
const REFUSED: [(&str, &str, i32, &str); 17] = [
    (".mcp.json", "", 2, "it is empty"),
    (".mcp.json", " \n", 2, "it is empty"),
    (".mcp.json", "[]", 2, "it is JSON, but not an object"),
    (
        ".mcp.json",
        "{\"mcpServers\": {",
        2,
        "line 1, column 16: it ends in the middle",
    ),
    (
        ".mcp.json",
        "{\n\"mcpServers\": nothing}",
        2,
        "line 2, column 16: expected ident",
    ),
    (
        ".mcp.json",
        "{\"mcpServers\": []}",
        2,
        "its member \"mcpServers\" is not an object",
    ),
    (".mcp.json", "{\"other\": 1}", 1, "it has no MCP servers"),
    (
        "any.json",
        "{\"other\": 1}",
        2,
        "no place for MCP servers was found in it: it has none of mcpServers, servers, mcp",
    ),
    ("any.toml", "other = 1", 2, "it has none of mcp_servers"),
    (".codex/config.toml", "\n", 2, "it is empty"),
    (".codex/config.toml", "a = 1\nb = \"secret", 2, "line 2: "),
    (
        ".codex/config.toml",
        "mcp_servers = 1",
        2,
        "its member \"mcp_servers\" is not a table",
    ),
    (
        ".mcp.json",
        "{\"mcpServers\": {\"a\": 1}}",
        1,
        "  a: is left alone: its entry is no object",
    ),
    (
        ".mcp.json",
        "{\"mcpServers\": {\"a\": {\"args\": []}}}",
        1,
        "  a: is left alone: it has no command",
    ),
    (
        ".mcp.json",
        "{\"mcpServers\": {\"a\": {\"command\": \"\"}}}",
        1,
        "  a: is left alone: its command is no text",
    ),
    (
        ".mcp.json",
        "{\"mcpServers\": {\"a\": {\"command\": \"x\", \"args\": [8080]}}}",
        1,
        "  a: is left alone: its args are no list of texts",
    ),
    (
        ".mcp.json",
        "{\"mcpServers\": {\"a\": {\"command\": \"/bin/antiphon\", \"args\": [\"mcp\", \"--\", \"x\"], \"timeout\": 2000}}}",
        1,
        "  a: is wrapped with another timeout than its entry has now: unwrap it, then wrap it",
    ),
];

#[test]
fn what_cannot_be_changed_is_told_and_left_alone() {
    let place = Place::new();
    for (file, before, code, told) in REFUSED {
        let path = place.write(file, before.as_bytes());
        for flags in [&[][..], &["--write"]] {
            let output = place.run("wrap", flags, &path, &[]);
            let stderr = text(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{before}: {stderr}");
            assert!(stderr.contains(told), "{before}: {stderr}");
            assert!(!stderr.contains("secret"), "{stderr}");
            // What is printed may replace the file.
            let printed = if code == 1 && flags.is_empty() { before } else { "" };
            assert_eq!(text(&output.stdout), printed, "{before}");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), before);
    }
    let path = place.write(".mcp.json", b"{\"mcpServers\": {\"a\": {\"command\": \"x\"}}}");
    let output = place.run("wrap", &["--write"], &path, &["a".to_owned(), "b".to_owned()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("it has no server b; its servers: a; nothing is changed"));
    let behind = "{\"mcpServers\": {\"a\": {\"command\": \"antiphon\", \"args\": [\"mcp\", \"--url\", \"x\"]}}}";
    let path = place.write(".mcp.json", behind.as_bytes());
    let output = place.run("unwrap", &[], &path, &[]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), behind));
    assert!(text(&output.stderr).contains("  a: has no command of a server behind --"));
    assert!(!place.folder.join("home/.mcp.json.antiphon-backup").exists());
}

#[test]
fn links_and_modes_stay_and_other_files_are_refused() {
    use std::os::unix::fs::PermissionsExt as _;

    let place = Place::new();
    let bare = "{\"mcpServers\": {\"a\": {\"command\": \"x\"}}}";
    let target = place.write("dotfiles/servers.json", bare.as_bytes());
    let set_mode = |mode| fs::set_permissions(&target, fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0o640);
    let link = place.folder.join("home/.mcp.json");
    std::os::unix::fs::symlink("dotfiles/servers.json", &link).unwrap();
    assert_eq!(place.run("wrap", &["--write"], &link, &[]).status.code(), Some(0));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let backup = target.with_file_name("servers.json.antiphon-backup");
    assert_eq!(fs::read_to_string(&backup).unwrap(), bare);
    for path in [&target, &backup] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o640);
    }
    let wrapped = fs::read_to_string(&target).unwrap();
    assert!(wrapped.contains("antiphon"), "{wrapped}");
    let refuse = |path: &Path, code: i32, told: &str| {
        let output = place.run("unwrap", &["--write"], path, &[]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(told), "{stderr}");
        assert_eq!(fs::read_to_string(&target).unwrap(), wrapped);
    };
    set_mode(0o440);
    refuse(&link, 1, "it is read-only");
    set_mode(0o640);
    let second = place.folder.join("home/second.json");
    fs::hard_link(&target, &second).unwrap();
    refuse(&link, 1, "it has more than one name");
    fs::remove_file(second).unwrap();
    let pipe = place.folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    refuse(&pipe, 2, "it is not a regular file");
    refuse(&place.folder, 2, "it is not a regular file");
    refuse(&place.folder.join("nothing.json"), 2, "nothing.json: ");
    fs::write(place.folder.join("latin.json"), b"{\"a\": \"\xe9\"}").unwrap();
    refuse(&place.folder.join("latin.json"), 2, "it is not UTF-8 text");
}

/// A random server.
struct RandomServer {
    name: String,
    command: String,
    args: Option<Vec<String>>,
}

const WORDS: [&str; 8] = ["npx", "-y", "a b", "--", "mcp", "größe", "C:\\x", "say \"hi\""];

fn random_servers(rng: &mut Rng) -> Vec<RandomServer> {
    let count = rng.below(6) + 1;
    let word = |rng: &mut Rng| WORDS[rng.below(WORDS.len())].to_owned();
    let server = |index| RandomServer {
        name: format!("s{index}"),
        command: word(rng),
        args: rng.chance(70).then(|| {
            let count = rng.below(4);
            (0..count).map(|_| word(rng)).collect()
        }),
    };
    (0..count).map(server).collect()
}

/// Returns a string in one of the ways that a file may write it.
fn write_string(rng: &mut Rng, text: &str, is_toml: bool) -> String {
    if is_toml && rng.chance(30) {
        let quotes = if rng.chance(50) { "'" } else { "'''" };
        return format!("{quotes}{text}{quotes}");
    }
    json!(text).to_string()
}

/// Returns blanks, perhaps with a comment.
fn random_blanks(rng: &mut Rng, is_toml: bool, may_break: bool) -> String {
    let comment = if is_toml { "# a, \"b\" ]\n" } else { "// a, \"b\" ]\n" };
    let choices = ["", " ", "\n\t", "\r\n  ", comment, " \t", "  ", ""];
    let choice = choices[rng.below(choices.len())];
    if may_break || !choice.contains('\n') {
        choice.to_owned()
    } else {
        " ".to_owned()
    }
}

fn write_list(rng: &mut Rng, items: &[String], is_toml: bool) -> String {
    let mut text = String::from("[");
    for (index, item) in items.iter().enumerate() {
        text += &random_blanks(rng, is_toml, true);
        text += &write_string(rng, item, is_toml);
        text += &random_blanks(rng, is_toml, true);
        if index + 1 < items.len() || rng.chance(30) {
            text += ",";
        }
    }
    text + &random_blanks(rng, is_toml, true) + "]"
}

/// Returns the members of a server in a random order.
fn random_members(rng: &mut Rng, server: &RandomServer, is_toml: bool) -> Vec<(String, String)> {
    let key = |name: &str| {
        if is_toml {
            name.to_owned()
        } else {
            format!("\"{name}\"")
        }
    };
    let mut members = vec![(key("command"), write_string(rng, &server.command, is_toml))];
    if let Some(args) = &server.args {
        members.push((key("args"), write_list(rng, args, is_toml)));
    }
    if rng.chance(40) {
        members.push((key("startup_timeout_sec"), "20".to_owned()));
    }
    let turns = rng.below(members.len());
    members.rotate_left(turns);
    members
}

fn random_json(rng: &mut Rng, servers: &[RandomServer]) -> String {
    let mut text = random_blanks(rng, false, true) + "{\"mcpServers\":" + &random_blanks(rng, false, true) + "{";
    for (index, server) in servers.iter().enumerate() {
        text += &format!(
            "{}\"{}\":{}{{",
            random_blanks(rng, false, true),
            server.name,
            random_blanks(rng, false, true)
        );
        let members = random_members(rng, server, false);
        for (at, (key, value)) in members.iter().enumerate() {
            let comma = if at + 1 < members.len() || rng.chance(20) {
                ","
            } else {
                ""
            };
            text += &format!(
                "{}{key}:{}{value}{comma}",
                random_blanks(rng, false, true),
                random_blanks(rng, false, true)
            );
        }
        text += &(random_blanks(rng, false, true) + "}");
        text += if index + 1 < servers.len() || rng.chance(20) {
            ","
        } else {
            ""
        };
    }
    text + "}}" + &random_blanks(rng, false, true)
}

fn random_toml(rng: &mut Rng, servers: &[RandomServer]) -> String {
    let end = if rng.chance(30) { "\r\n" } else { "\n" };
    let (mut root, mut tables) = (String::from("# é") + end, String::new());
    for server in servers {
        let members = random_members(rng, server, true);
        let line = |rng: &mut Rng, prefix: &str, (key, value): &(String, String)| {
            let comment = if rng.chance(30) { " # \"c\", [" } else { "" };
            format!(
                "{}{prefix}{key}{}={} {value}{comment}{end}",
                random_blanks(rng, true, false),
                random_blanks(rng, true, false),
                random_blanks(rng, true, false)
            )
        };
        match rng.below(3) {
            0 => {
                for member in &members {
                    root += &line(rng, &format!("mcp_servers.{}.", server.name), member);
                }
            }
            1 => {
                let inside = members.iter().map(|(key, value)| format!("{key} = {value}"));
                let inside = inside.collect::<Vec<_>>().join(", ");
                root += &format!("mcp_servers.\"{}\" = {{ {inside} }}{end}", server.name);
            }
            _ => {
                tables += &format!("[mcp_servers.{}]{end}", server.name);
                for member in &members {
                    tables += &line(rng, "", member);
                }
            }
        }
    }
    root + &tables
}

/// Returns the programs and arguments of a file, as another reader sees them.
fn seen_by_others(text: &str, is_toml: bool) -> Option<Value> {
    let value: Value = if is_toml {
        toml::from_str(text).ok()?
    } else {
        serde_json::from_str(text).ok()?
    };
    let list = value.get(if is_toml { "mcp_servers" } else { "mcpServers" })?;
    Some(list.clone())
}

fn check_random(place: &Place, rng: &mut Rng, is_toml: bool) -> bool {
    let servers = random_servers(rng);
    let before = if is_toml {
        random_toml(rng, &servers)
    } else {
        random_json(rng, &servers)
    };
    let path = place.write(
        if is_toml { ".codex/config.toml" } else { ".mcp.json" },
        before.as_bytes(),
    );
    let output = place.run("wrap", &["--write"], &path, &[]);
    assert_eq!(output.status.code(), Some(0), "{before}\n{}", text(&output.stderr));
    let wrapped = fs::read_to_string(&path).unwrap();
    let seen = seen_by_others(&wrapped, is_toml);
    for server in &servers {
        let Some(entry) = seen.as_ref().map(|seen| &seen[&server.name]) else {
            continue;
        };
        let mut args = vec!["mcp".to_owned(), "--".to_owned(), server.command.clone()];
        args.extend(server.args.clone().unwrap_or_default());
        assert_eq!(
            (&entry["command"], &entry["args"]),
            (&json!("antiphon"), &json!(args)),
            "{before}\n{wrapped}"
        );
    }
    let back = place.run("unwrap", &["--write"], &path, &[]);
    assert_eq!(back.status.code(), Some(0), "{wrapped}\n{}", text(&back.stderr));
    assert_eq!(fs::read_to_string(&path).unwrap(), before, "{wrapped}");
    drop(fs::remove_dir_all(place.folder.join("home")));
    // What is left after a cut or a repeat is refused, or comes back to the byte too.
    let mut cut = before.into_bytes();
    let (from, to) = (rng.below(cut.len()), rng.below(cut.len()));
    if from < to {
        cut.drain(from..to);
    } else {
        let piece = cut[to..from].to_vec();
        cut.splice(to..to, piece);
    }
    let path = place.write(if is_toml { ".codex/config.toml" } else { ".mcp.json" }, &cut);
    let output = place.run("wrap", &[], &path, &[]);
    assert!(matches!(output.status.code(), Some(0..=2)), "{output:?}");
    if output.status.code() == Some(0) {
        fs::write(&path, &output.stdout).unwrap();
        assert_eq!(
            place.run("unwrap", &[], &path, &[]).stdout,
            cut,
            "{}",
            text(&output.stdout)
        );
    }
    seen.is_some()
}

/// `STEPS` sets the number of files.
#[test]
fn random_files_come_back_to_the_byte() {
    let seed = seed();
    println!("SEED={seed}");
    let (mut rng, place) = (Rng::new(seed), Place::new());
    let steps = number("STEPS").unwrap_or(60);
    let seen = (0..steps)
        .filter(|step| check_random(&place, &mut rng, step % 2 == 0))
        .count();
    assert!(seen * 2 >= steps, "only {seen} of {steps} were read by others");
}
