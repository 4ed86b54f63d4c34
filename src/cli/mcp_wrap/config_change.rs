//! The change of a client's file: which servers it has, what becomes of each, and the text after it.

use std::path::Path;

use bytes::Bytes;

use super::{
    client_files::{ClientFile, FileSyntax, is_known_path, possible_kinds},
    entry_edits::EntryText,
    read_json::JsonText,
    read_toml::TomlText,
    server_entry::{EntryTimeout, LaunchFault, ServerEntry},
};
use crate::splice::{Edit, EditList};

/// The direction of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeKind {
    Wrap,
    Unwrap,
}

/// The outcome for one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryFate {
    /// It is changed.
    Changed,
    /// It is as it should be.
    Unchanged,
    /// It is wrapped with another time than its entry says now.
    OtherTimeout,
    /// It is wrapped, and no command of a server stands behind `--`.
    NoServer,
    /// It starts nothing that could be wrapped.
    Unusable(LaunchFault),
}

/// One server of the file, and what becomes of it.
#[derive(Debug)]
pub(super) struct ServerChange {
    pub(super) entry: ServerEntry,
    pub(super) fate: EntryFate,
}

/// The change of a file.
#[derive(Debug)]
pub(super) struct ConfigChange {
    pub(super) kind: &'static ClientFile,
    /// The servers that were asked for, in the order of the file.
    pub(super) servers: Vec<ServerChange>,
    /// The whole text after the change.
    pub(super) text: String,
}

/// The servers of a file.
#[derive(Debug)]
pub(super) struct ConfigServers {
    pub(super) kind: &'static ClientFile,
    pub(super) servers: Vec<ServerEntry>,
}

/// Reads the servers of a file. The error names the fault and its place.
pub(super) fn read_servers(path: &Path, text: &str) -> Result<ConfigServers, String> {
    let kinds = possible_kinds(path);
    let found = match kinds.first().map(|kind| kind.syntax) {
        Some(FileSyntax::Toml) => {
            let toml = TomlText::read(text)?;
            first_kind(&kinds, |kind| toml.servers(kind))?
        }
        Some(FileSyntax::Json) | None => {
            let json = JsonText::read(text)?;
            first_kind(&kinds, |kind| json.servers(kind))?
        }
    };
    match (found, kinds.as_slice()) {
        (Some(found), _) => Ok(found),
        // A file of this client without servers.
        (None, [kind]) if is_known_path(path) => Ok(ConfigServers {
            kind,
            servers: Vec::new(),
        }),
        (None, _) => Err(no_place_text(&kinds)),
    }
}

/// Returns the servers of the first kind that has a place for them.
fn first_kind(
    kinds: &[&'static ClientFile],
    read: impl Fn(&ClientFile) -> Result<Option<Vec<ServerEntry>>, String>,
) -> Result<Option<ConfigServers>, String> {
    for kind in kinds {
        if let Some(servers) = read(kind)? {
            return Ok(Some(ConfigServers { kind, servers }));
        }
    }
    Ok(None)
}

fn no_place_text(kinds: &[&'static ClientFile]) -> String {
    let ways = kinds.iter().filter_map(|kind| kind.ways.first()?.first().copied());
    let ways: Vec<&str> = ways.collect();
    format!(
        "no place for MCP servers was found in it: it has none of {}",
        ways.join(", ")
    )
}

impl ConfigServers {
    /// Returns the names that no server has.
    pub(super) fn missing_names<'n>(&self, names: &'n [String]) -> Vec<&'n str> {
        let is_missing = |name: &&String| !self.servers.iter().any(|server| server.name == **name);
        names.iter().filter(is_missing).map(String::as_str).collect()
    }

    /// Plans the change of the servers of these names, or of all without a name.
    pub(super) fn plan(
        self,
        path: &Path,
        text: &str,
        (change, names): (ChangeKind, &[String]),
        program: &str,
    ) -> Result<ConfigChange, String> {
        let is_wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
        let of_file = EntryText {
            text,
            syntax: self.kind.syntax,
        };
        let (mut edits, mut servers) = (Vec::new(), Vec::new());
        for entry in self.servers.into_iter().filter(|entry| is_wanted(&entry.name)) {
            let fate = fate_of(&entry, change, program);
            if let (Ok(launch), EntryFate::Changed) = (&entry.launch, fate) {
                edits.extend(match change {
                    ChangeKind::Wrap => of_file.wrap(launch, program, entry.timeout.flag_value().as_deref()),
                    ChangeKind::Unwrap => of_file.unwrap(launch, launch.own_command_index().unwrap_or_default()),
                });
            }
            servers.push(ServerChange { entry, fate });
        }
        let change_of_file = ConfigChange {
            kind: self.kind,
            servers,
            text: apply_edits(text, edits)?,
        };
        change_of_file.check(path, text, (change, program))?;
        Ok(change_of_file)
    }
}

/// Returns the text after the edits.
fn apply_edits(text: &str, edits: Vec<Edit>) -> Result<String, String> {
    let edits = EditList::new(edits, text.len()).map_err(|overlap| overlap.to_string())?;
    let changed = edits.apply(&Bytes::copy_from_slice(text.as_bytes())).to_vec();
    String::from_utf8(changed).map_err(|error| error.to_string())
}

/// Returns what becomes of a server.
fn fate_of(entry: &ServerEntry, change: ChangeKind, program: &str) -> EntryFate {
    let launch = match &entry.launch {
        Ok(launch) => launch,
        Err(fault) if change == ChangeKind::Wrap => return EntryFate::Unusable(*fault),
        Err(_) => return EntryFate::Unchanged,
    };
    match (change, launch.is_wrapped(program)) {
        (ChangeKind::Wrap, true) => {
            let is_same = launch.told_timeout() == entry.timeout.flag_value().as_deref();
            // A time that was given by hand, to a client whose file has none, is as it should be.
            if is_same || entry.timeout == EntryTimeout::Unset {
                EntryFate::Unchanged
            } else {
                EntryFate::OtherTimeout
            }
        }
        (ChangeKind::Unwrap, false) => EntryFate::Unchanged,
        (ChangeKind::Unwrap, true) if launch.own_command_index().is_none() => EntryFate::NoServer,
        (ChangeKind::Wrap, false) | (ChangeKind::Unwrap, true) => EntryFate::Changed,
    }
}

impl ConfigChange {
    /// Returns `true` if the text differs from that of the file.
    pub(super) fn has_changes(&self) -> bool {
        self.servers.iter().any(|server| server.fate == EntryFate::Changed)
    }

    /// Reads the text after the change once more, and checks that each server runs what it should, and that wrapped ones
    /// can be unwrapped to the byte.
    ///
    /// A form of TOML that the edits do not fit is found here, before anything is written.
    fn check(&self, path: &Path, old_text: &str, (change, program): (ChangeKind, &str)) -> Result<(), String> {
        if !self.has_changes() {
            return Ok(());
        }
        let of_file = EntryText {
            text: &self.text,
            syntax: self.kind.syntax,
        };
        let unfit = || "an entry is written in a form that cannot be changed safely: change it by hand".to_owned();
        let after = read_servers(path, &self.text).map_err(|_| unfit())?;
        let mut back = Vec::new();
        for before in self.servers.iter().filter(|before| before.fate == EntryFate::Changed) {
            let same = |entry: &&ServerEntry| entry.name == before.entry.name && entry.project == before.entry.project;
            let after = after
                .servers
                .iter()
                .find(same)
                .and_then(|entry| entry.launch.as_ref().ok());
            let (Ok(old), Some(new)) = (&before.entry.launch, after) else {
                return Err(unfit());
            };
            let (bare, wrapped) = match change {
                ChangeKind::Wrap => (old, new),
                ChangeKind::Unwrap => (new, old),
            };
            let index = wrapped.own_command_index().unwrap_or(usize::MAX);
            let inside = wrapped.tokens().into_iter().skip(index);
            let is_same = inside
                .map(|token| &token.text)
                .eq(bare.tokens().iter().map(|token| &token.text));
            if !is_same || !wrapped.is_wrapped(program) {
                return Err(unfit());
            }
            if change == ChangeKind::Wrap {
                back.extend(of_file.unwrap(wrapped, index));
            }
        }
        let is_exact = change == ChangeKind::Unwrap || apply_edits(&self.text, back)? == old_text;
        if is_exact { Ok(()) } else { Err(unfit()) }
    }
}
