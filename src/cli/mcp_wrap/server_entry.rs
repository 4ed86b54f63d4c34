//! One MCP server as a client's file names it: the texts that start it, with their places.

use std::path::Path;

use crate::splice::Span;

/// The first argument of a wrapped server.
pub(super) const SUBCOMMAND: &str = "mcp";
/// The argument before the server's own command.
pub(super) const SEPARATOR: &str = "--";
/// The flag with the time that the client waits for a call.
pub(super) const CLIENT_TIMEOUT: &str = "--client-timeout";
/// The name of this program.
pub(super) const PROGRAM: &str = "antiphon";

/// A string of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextToken {
    /// The string as it is written, quotes included.
    pub(super) span: Span,
    /// Its text.
    pub(super) text: String,
}

/// A list of strings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TokenList {
    /// From bracket to bracket.
    pub(super) span: Span,
    pub(super) items: Vec<TextToken>,
}

/// The key of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemberKey {
    /// The key with the keys before it on the way: `toy.command` in TOML.
    pub(super) whole: Span,
    /// The key alone.
    pub(super) last: Span,
}

impl MemberKey {
    /// Returns the place of the keys before the last one, with the dot behind them.
    pub(super) const fn prefix(self) -> Span {
        Span::new(self.whole.start, self.last.start)
    }
}

/// The command and the arguments of a server, in members of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommandMembers {
    pub(super) key: MemberKey,
    pub(super) command: TextToken,
    /// `None` if the entry has no arguments.
    pub(super) args: Option<(MemberKey, TokenList)>,
    /// `true` if each member has a line of its own, as in a table of TOML.
    pub(super) is_by_lines: bool,
}

/// The way in which an entry names what is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Launch {
    /// A command, and a list of arguments.
    Members(CommandMembers),
    /// One list, which begins with the command.
    List(TokenList),
}

impl Launch {
    /// Returns the command and its arguments, where they stand in the file.
    pub(super) fn tokens(&self) -> Vec<&TextToken> {
        match self {
            Self::Members(CommandMembers { command, args, .. }) => {
                let args = args.iter().flat_map(|(_, list)| &list.items);
                std::iter::once(command).chain(args).collect()
            }
            Self::List(list) => list.items.iter().collect(),
        }
    }

    /// Returns `true` if the entry runs `antiphon mcp`, the present program or another one of that name.
    pub(super) fn is_wrapped(&self, own_program: &str) -> bool {
        match *self.tokens() {
            [command, first, ..] => {
                let is_own = command.text == own_program || program_name(&command.text) == PROGRAM;
                is_own && first.text == SUBCOMMAND
            }
            _ => false,
        }
    }

    /// Returns the place of the server's own command among the tokens of a wrapped entry. `None` if it has none.
    pub(super) fn own_command_index(&self) -> Option<usize> {
        let tokens = self.tokens();
        let index = tokens
            .iter()
            .position(|token| token.text == SEPARATOR)?
            .checked_add(1)?;
        (index < tokens.len()).then_some(index)
    }

    /// Returns the time that a wrapped entry says its client waits.
    pub(super) fn told_timeout(&self) -> Option<&str> {
        let tokens = self.tokens();
        let flags = tokens.iter().take_while(|token| token.text != SEPARATOR);
        let mut values = flags.skip_while(|token| token.text != CLIENT_TIMEOUT).skip(1);
        values.next().map(|token| token.text.as_str())
    }
}

/// Returns the name of the program at a path of either system.
fn program_name(command: &str) -> &str {
    let name = command.rsplit(['/', '\\']).next().unwrap_or(command);
    let has_ending = Path::new(name)
        .extension()
        .is_some_and(|ending| ending.eq_ignore_ascii_case("exe"));
    if has_ending {
        name.rsplit_once('.').map_or(name, |(name, _)| name)
    } else {
        name
    }
}

/// The reason why an entry starts nothing that could be wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaunchFault {
    /// It has a URL.
    Remote,
    /// It is no object.
    NoObject,
    /// It has neither a command nor a URL.
    NoCommand,
    /// Its command is no text, or an empty one.
    UnusableCommand,
    /// Its arguments are no list of texts.
    UnusableArgs,
}

/// The time that a client waits for a call, as an entry says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryTimeout {
    /// The entry has none, or one that its client ignores.
    Unset,
    /// Milliseconds.
    Millis(u64),
    /// It is no positive number.
    Unreadable,
}

impl EntryTimeout {
    /// Returns the value of the flag. `None` without a time.
    pub(super) fn flag_value(self) -> Option<String> {
        match self {
            Self::Millis(millis) if millis.is_multiple_of(1000) => Some(format!("{}s", millis / 1000)),
            Self::Millis(millis) => Some(format!("{millis}ms")),
            Self::Unset | Self::Unreadable => None,
        }
    }
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerEntry {
    pub(super) name: String,
    /// The project whose server it is. `None` if the file has no projects, or for a server of all.
    pub(super) project: Option<String>,
    pub(super) launch: Result<Launch, LaunchFault>,
    pub(super) timeout: EntryTimeout,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_their_name_on_either_system() {
        for (command, name) in [
            ("antiphon", "antiphon"),
            ("/usr/local/bin/antiphon", "antiphon"),
            (r"C:\tools\antiphon.EXE", "antiphon"),
            ("antiphon.cmd", "antiphon.cmd"),
            ("antiphon-next", "antiphon-next"),
            ("", ""),
        ] {
            assert_eq!(program_name(command), name, "{command}");
        }
    }
}
