//! The edits that put `antiphon mcp` before a server's command, and those that take it away.
//!
//! The old command keeps its bytes: it moves into the list of arguments as it is written. What is added says by its
//! blanks if the entry had arguments before, so that nothing beside the file is needed to take it away.

use super::{
    client_files::FileSyntax,
    server_entry::{CLIENT_TIMEOUT, CommandMembers, Launch, MemberKey, SEPARATOR, SUBCOMMAND, TokenList},
};
use crate::{
    splice::{Edit, Piece, Span},
    wire::json::quote_string,
};

/// The beginning and the end of a list that was added as a whole. One that was there has no blank before its end.
const ADDED_LIST: (&str, &str) = ("[ ", " ]");

/// The text of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryText<'t> {
    pub(super) text: &'t str,
    pub(super) syntax: FileSyntax,
}

impl EntryText<'_> {
    fn slice(&self, span: Span) -> &str {
        self.text.get(span.range()).unwrap_or_default()
    }

    /// Returns the edits that wrap a server: `program` is the path of this program.
    pub(super) fn wrap(&self, launch: &Launch, program: &str, timeout: Option<&str>) -> Vec<Edit> {
        let mut added = vec![quote_string(SUBCOMMAND)];
        if let Some(timeout) = timeout {
            added.extend([quote_string(CLIENT_TIMEOUT), quote_string(timeout)]);
        }
        added.push(quote_string(SEPARATOR));
        match launch {
            Launch::List(list) => {
                added.insert(0, quote_string(program));
                vec![self.add_to_list(list, &added)]
            }
            Launch::Members(members) => {
                added.push(self.slice(members.command.span).to_owned());
                let args = match &members.args {
                    Some((_, list)) => self.add_to_list(list, &added),
                    None => self.add_member(members, &added),
                };
                vec![replace(members.command.span, quote_string(program)), args]
            }
        }
    }

    /// Adds texts before the first one of a list.
    fn add_to_list(&self, list: &TokenList, added: &[String]) -> Edit {
        let Some(first) = list.items.first() else {
            let before_end = Span::at(list.span.end.saturating_sub(1));
            return replace(before_end, added.join(", "));
        };
        let inside = list.span.start.saturating_add(1);
        let between = match list.items.get(1) {
            Some(second) => self.blanks_before(second.span.start, inside),
            None => match self.blanks_before(first.span.start, inside) {
                "" => " ",
                blanks => blanks,
            },
        };
        let text = added.iter().map(|text| format!("{text},{between}"));
        replace(Span::at(first.span.start), text.collect())
    }

    /// Returns the blanks directly before a place.
    fn blanks_before(&self, at: usize, from: usize) -> &str {
        let before = self.slice(Span::new(from, at));
        before.get(before.trim_end().len()..).unwrap_or_default()
    }

    /// Adds the list of arguments as a member beside the command.
    fn add_member(&self, members: &CommandMembers, added: &[String]) -> Edit {
        let (begin, end) = ADDED_LIST;
        let list = format!("{begin}{}{end}", added.join(", "));
        let key = self.key_of_args(members.key);
        if members.is_by_lines {
            let at = members.key.whole.start;
            let next_line = self.line_end_before(at);
            return replace(Span::at(at), format!("{key}{list}{next_line}"));
        }
        replace(Span::at(members.command.span.end), format!(", {key}{list}"))
    }

    /// Returns the key of the arguments up to their list, as it is added beside the key of the command.
    fn key_of_args(&self, command: MemberKey) -> String {
        let prefix = self.slice(command.prefix());
        match self.syntax {
            FileSyntax::Json => format!("{prefix}\"args\": "),
            FileSyntax::Toml => format!("{prefix}args = "),
        }
    }

    /// Returns the end of the line before a place, with the blanks that its line begins with.
    fn line_end_before(&self, at: usize) -> String {
        let before = self.text.get(..at).unwrap_or_default();
        let begin = before.rfind('\n').map_or(0, |end| end.saturating_add(1));
        let blanks = before.get(begin..).unwrap_or_default().trim_start_matches('\u{feff}');
        let first_end = self.text.find('\n').and_then(|end| self.text.get(..end));
        let end = if first_end.is_some_and(|line| line.ends_with('\r')) {
            "\r\n"
        } else {
            "\n"
        };
        format!("{end}{blanks}")
    }

    /// Returns the edits that take `antiphon mcp` away: `index` is the place of the server's command among the tokens.
    pub(super) fn unwrap(&self, launch: &Launch, index: usize) -> Vec<Edit> {
        match launch {
            Launch::List(list) => {
                let (first, own) = (list.items.first(), list.items.get(index));
                let span = first
                    .zip(own)
                    .map(|(first, own)| Span::new(first.span.start, own.span.start));
                span.map(|span| replace(span, String::new())).into_iter().collect()
            }
            Launch::Members(members) => {
                let Some((key, list)) = &members.args else {
                    return Vec::new();
                };
                // The command itself is the first token.
                let Some(own) = index.checked_sub(1).and_then(|index| list.items.get(index)) else {
                    return Vec::new();
                };
                let args = match list.items.get(index) {
                    Some(next) => {
                        let first = list.items.first().unwrap_or(next);
                        Span::new(first.span.start, next.span.start)
                    }
                    None => self.rest_of_args(members, *key, list),
                };
                vec![
                    replace(members.command.span, self.slice(own.span).to_owned()),
                    replace(args, String::new()),
                ]
            }
        }
    }

    /// Returns what goes with the last argument: all that is in the list, or the member if it was added.
    fn rest_of_args(&self, members: &CommandMembers, key: MemberKey, list: &TokenList) -> Span {
        if let Some(added) = self.added_member(members, key, list) {
            return added;
        }
        let inside_end = list.span.end.saturating_sub(1);
        let (Some(first), Some(last)) = (list.items.first(), list.items.last()) else {
            return Span::at(inside_end);
        };
        let after = Span::new(last.span.end, inside_end);
        // A comma there, which a program for layout has set, would be one too many.
        let end = if self.slice(after).trim().is_empty() {
            last.span.end
        } else {
            inside_end
        };
        Span::new(first.span.start, end)
    }

    /// Returns the place of a list of arguments that was added with its member. `None` if the entry had one.
    fn added_member(&self, members: &CommandMembers, key: MemberKey, list: &TokenList) -> Option<Span> {
        let (begin, end) = ADDED_LIST;
        let text = self.slice(list.span);
        if !text.starts_with(begin) || !text.ends_with(end) {
            return None;
        }
        let key_text = self.key_of_args(members.key);
        if members.is_by_lines {
            let next_line = self.line_end_before(members.key.whole.start);
            let is_added = self.slice(Span::new(key.whole.start, list.span.start)) == key_text
                && self.slice(Span::new(list.span.end, members.key.whole.start)) == next_line;
            return is_added.then(|| Span::new(key.whole.start, members.key.whole.start));
        }
        let before = self.slice(Span::new(members.command.span.end, list.span.start));
        let is_added = before == format!(", {key_text}");
        is_added.then(|| Span::new(members.command.span.end, list.span.end))
    }
}

fn replace(span: Span, text: String) -> Edit {
    Edit {
        span,
        pieces: vec![Piece::Made(text)],
    }
}
