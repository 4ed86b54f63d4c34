//! What `antiphon mcp wrap` and `unwrap` tell people: names of servers and reasons, never a value of the file.

use super::{
    config_change::{ChangeKind, ConfigChange, EntryFate, ServerChange},
    server_entry::{EntryTimeout, LaunchFault, ServerEntry},
};
use crate::printable::printable_text;

/// Returns the lines about a change, the first with the counts.
pub(super) fn report_lines(shown_path: &str, change: &ConfigChange, kind: ChangeKind) -> Vec<String> {
    let changed = |server: &&ServerChange| server.fate == EntryFate::Changed;
    let count = change.servers.iter().filter(changed).count();
    let verb = match kind {
        ChangeKind::Wrap => "to wrap",
        ChangeKind::Unwrap => "to unwrap",
    };
    let client = change.kind.client;
    let first = match change.servers.len() {
        0 => format!("antiphon: {shown_path} ({client}): it has no MCP servers"),
        all => format!("antiphon: {shown_path} ({client}): {count} of {all} servers {verb}"),
    };
    let rows = change.servers.iter().map(|server| server_line(server, kind));
    std::iter::once(first).chain(rows).collect()
}

fn server_line(server: &ServerChange, kind: ChangeKind) -> String {
    let name = shown_name(&server.entry);
    let sign = match (server.fate, kind) {
        (EntryFate::Changed, ChangeKind::Wrap) => '+',
        (EntryFate::Changed, ChangeKind::Unwrap) => '-',
        _ => ' ',
    };
    match reason(server, kind) {
        Some(reason) => format!("{sign} {name}: {reason}"),
        None => format!("{sign} {name}"),
    }
}

fn shown_name(entry: &ServerEntry) -> String {
    let name = printable_text(&entry.name);
    match &entry.project {
        Some(project) => format!("{name} (project {})", printable_text(project)),
        None => name,
    }
}

fn reason(server: &ServerChange, kind: ChangeKind) -> Option<String> {
    let text = match (server.fate, kind) {
        (EntryFate::Changed, ChangeKind::Wrap) => return timeout_note(server.entry.timeout),
        (EntryFate::Changed, ChangeKind::Unwrap) => return None,
        (EntryFate::Unchanged, ChangeKind::Wrap) => "is wrapped already",
        (EntryFate::Unchanged, ChangeKind::Unwrap) => "is not wrapped",
        (EntryFate::OtherTimeout, _) => {
            "is wrapped with another timeout than its entry has now: unwrap it, then wrap it"
        }
        (EntryFate::NoServer, _) => "has no command of a server behind --: change it by hand",
        (EntryFate::Unusable(LaunchFault::Remote), _) => {
            "is left alone, since it has a URL: write `antiphon mcp --url URL` by hand, or wrap mcp-remote"
        }
        (EntryFate::Unusable(LaunchFault::NoObject), _) => "is left alone: its entry is no object",
        (EntryFate::Unusable(LaunchFault::NoCommand), _) => "is left alone: it has no command",
        (EntryFate::Unusable(LaunchFault::UnusableCommand), _) => "is left alone: its command is no text",
        (EntryFate::Unusable(LaunchFault::UnusableArgs), _) => "is left alone: its args are no list of texts",
    };
    Some(text.to_owned())
}

/// Returns what is said about the time that a client waits for the calls of a wrapped server.
fn timeout_note(timeout: EntryTimeout) -> Option<String> {
    match timeout {
        EntryTimeout::Unset => None,
        EntryTimeout::Millis(_) => timeout.flag_value().map(|value| format!("its timeout is {value}")),
        EntryTimeout::Unreadable => Some("without a timeout: that of its entry is no positive number".to_owned()),
    }
}
