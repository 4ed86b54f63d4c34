//! The clients whose session files are read, and their versions.

use std::fmt;

use crate::labels::labelled_enum;

labelled_enum! {
    /// A coding agent that keeps its sessions in files.
    pub enum SessionClient {
        /// Claude Code
        ClaudeCode = "claude-code",
        /// Codex
        Codex = "codex",
        /// GitHub Copilot CLI
        Copilot = "copilot",
        /// Qwen Code
        QwenCode = "qwen-code",
        /// opencode
        OpenCode = "opencode",
    }
}

impl SessionClient {
    /// Returns the name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::Codex => "Codex",
            Self::Copilot => "Copilot CLI",
            Self::QwenCode => "Qwen Code",
            Self::OpenCode => "opencode",
        }
    }

    /// Returns `true` if its sessions are mended. Those of the others are only read.
    pub const fn is_mended(self) -> bool {
        match self {
            Self::ClaudeCode | Self::Codex => true,
            Self::Copilot | Self::QwenCode | Self::OpenCode => false,
        }
    }
}

/// A version of a client, such as `2.1.332`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientVersion(pub [u32; 3]);

impl ClientVersion {
    /// Reads a version of three numbers; what follows a `-` or `+` is ignored. `None` if it is no such version.
    pub fn parse(text: &str) -> Option<Self> {
        let numbers = text.split(['-', '+']).next()?;
        let mut numbers = numbers.split('.').map(|number| number.parse().ok());
        let version = [numbers.next()??, numbers.next()??, numbers.next()??];
        numbers.next().is_none().then_some(Self(version))
    }
}

impl fmt::Display for ClientVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}
