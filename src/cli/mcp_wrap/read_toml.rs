//! The servers in a file of TOML, with the places of their members.

use toml::{
    Spanned,
    de::{DeString, DeTable, DeValue},
};

use super::{
    client_files::ClientFile,
    read_json::to_timeout,
    server_entry::{CommandMembers, EntryTimeout, Launch, LaunchFault, MemberKey, ServerEntry, TextToken, TokenList},
};
use crate::splice::Span;

/// The mark at the beginning of a file that says UTF-8.
const BYTE_ORDER_MARK: char = '\u{feff}';

type TomlKey<'t> = Spanned<DeString<'t>>;
type TomlMember<'t, 'd> = (&'d TomlKey<'t>, &'d Spanned<DeValue<'t>>);

/// Text of a file of TOML.
#[derive(Debug)]
pub(super) struct TomlText<'t> {
    text: &'t str,
    /// Bytes before the text that was parsed.
    skipped: usize,
    root: Spanned<DeTable<'t>>,
}

impl<'t> TomlText<'t> {
    /// Reads the text. The error names the fault and its place.
    pub(super) fn read(text: &'t str) -> Result<Self, String> {
        let parsed = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        if parsed.trim().is_empty() {
            return Err("it is empty".to_owned());
        }
        match DeTable::parse(parsed) {
            Ok(root) => Ok(Self {
                text,
                skipped: text.len().saturating_sub(parsed.len()),
                root,
            }),
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start);
                let before = parsed.get(..at).unwrap_or_default();
                let line = before.matches('\n').count().saturating_add(1);
                // The message alone: the rest of the error quotes the line, which may have a key in it.
                Err(format!("line {line}: {}", error.message()))
            }
        }
    }

    /// Returns the servers of a kind of file, in their order. `None` if it has no place for them.
    pub(super) fn servers(&self, kind: &ClientFile) -> Result<Option<Vec<ServerEntry>>, String> {
        let mut servers = None;
        for key in kind.ways.iter().filter_map(|way| way.first()) {
            let Some((_, value)) = find_member(self.root.get_ref(), key) else {
                continue;
            };
            let DeValue::Table(table) = value.get_ref() else {
                return Err(format!("its member {key:?} is not a table"));
            };
            let is_inline = self.is_inline(value);
            let entries = table.iter().map(|member| self.read_entry(member, is_inline, kind));
            servers.get_or_insert_with(Vec::new).extend(entries);
        }
        // The order of the file: tables come in that of their first keys.
        Ok(servers)
    }

    fn read_entry(&self, (name, value): TomlMember<'t, '_>, is_inline: bool, kind: &ClientFile) -> ServerEntry {
        ServerEntry {
            name: name.get_ref().to_string(),
            project: None,
            launch: self.read_launch(value, is_inline),
            timeout: read_timeout(value, kind),
        }
    }

    fn read_launch(&self, entry: &Spanned<DeValue<'t>>, is_inline: bool) -> Result<Launch, LaunchFault> {
        let DeValue::Table(table) = entry.get_ref() else {
            return Err(LaunchFault::NoObject);
        };
        if find_member(table, "url").is_some() {
            return Err(LaunchFault::Remote);
        }
        let (key, command) = find_member(table, "command").ok_or(LaunchFault::NoCommand)?;
        let command = self.read_token(command).filter(|command| !command.text.is_empty());
        let command = command.ok_or(LaunchFault::UnusableCommand)?;
        let is_inline = is_inline || self.is_inline(entry);
        let args = match find_member(table, "args") {
            Some((key, list)) => {
                let list = self.read_list(list).ok_or(LaunchFault::UnusableArgs)?;
                Some((self.read_key(key, is_inline), list))
            }
            None => None,
        };
        Ok(Launch::Members(CommandMembers {
            key: self.read_key(key, is_inline),
            command,
            args,
            is_by_lines: !is_inline,
        }))
    }

    fn span_of<T>(&self, value: &Spanned<T>) -> Span {
        let span = value.span();
        Span::new(span.start, span.end).shifted(self.skipped)
    }

    fn is_inline(&self, value: &Spanned<DeValue<'t>>) -> bool {
        self.span_of(value).of(self.text.as_bytes()).starts_with(b"{")
    }

    /// Returns the place of a key, with the keys before it on its line, or in its inline table.
    fn read_key(&self, key: &TomlKey<'t>, is_inline: bool) -> MemberKey {
        let last = self.span_of(key);
        let before = self.text.get(..last.start).unwrap_or_default();
        let ends: &[char] = if is_inline {
            &['{', ',', '\n']
        } else {
            &['\n', BYTE_ORDER_MARK]
        };
        let begin = before.rfind(ends).unwrap_or_default();
        let skipped = before.get(begin..).unwrap_or_default();
        let skipped = skipped.trim_start_matches(ends).trim_start();
        let start = last.start.saturating_sub(skipped.len());
        MemberKey {
            whole: Span::new(start, last.end),
            last,
        }
    }

    /// Returns a string. `None` for another value.
    fn read_token(&self, value: &Spanned<DeValue<'t>>) -> Option<TextToken> {
        match value.get_ref() {
            DeValue::String(text) => Some(TextToken {
                span: self.span_of(value),
                text: text.to_string(),
            }),
            _ => None,
        }
    }

    /// Returns a list of strings. `None` for another value.
    fn read_list(&self, value: &Spanned<DeValue<'t>>) -> Option<TokenList> {
        let DeValue::Array(items) = value.get_ref() else {
            return None;
        };
        let items = items.iter().map(|item| self.read_token(item));
        Some(TokenList {
            span: self.span_of(value),
            items: items.collect::<Option<_>>()?,
        })
    }
}

fn find_member<'t, 'd>(table: &'d DeTable<'t>, name: &str) -> Option<TomlMember<'t, 'd>> {
    table.iter().find(|(key, _)| *key.get_ref() == name)
}

fn read_timeout(entry: &Spanned<DeValue<'_>>, kind: &ClientFile) -> EntryTimeout {
    let DeValue::Table(table) = entry.get_ref() else {
        return EntryTimeout::Unset;
    };
    let Some((_, value)) = kind.timeout.and_then(|key| find_member(table, key.key)) else {
        return EntryTimeout::Unset;
    };
    let units = match value.get_ref() {
        DeValue::Integer(number) => number.to_string().parse::<f64>().ok(),
        DeValue::Float(number) => number.to_string().parse::<f64>().ok(),
        _ => None,
    };
    units.map_or(EntryTimeout::Unreadable, |units| to_timeout(units, kind))
}
