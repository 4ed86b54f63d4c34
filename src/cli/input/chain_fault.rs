//! Faults in the links between the lines of Claude Code's transcript, and what the client does with them.
//!
//! Tried with Claude Code 2.0.32, 2.1.42 and 2.1.332 (2026-11).

use crate::sessions::ClientVersion;

/// The first version that is known to go on with the line before, where a link leads nowhere.
const BRIDGES_LINKS: ClientVersion = ClientVersion([2, 1, 332]);

/// One fault in the links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) struct ChainFault {
    /// The line, counted from 1.
    pub(in crate::cli) line: usize,
    /// The kind of fault.
    pub(in crate::cli) kind: ChainFaultKind,
    /// `true` if the version that wrote the file is known to lose nothing by it.
    pub(in crate::cli) is_bridged: bool,
}

/// A kind of fault in the links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum ChainFaultKind {
    /// The parent is not in the file.
    LostParent,
    /// The parent is a line of a sub-agent.
    ParentInSubagent,
    /// The parent comes after the line, whose descendant it is.
    ParentCircle,
    /// Two different messages have one id.
    UuidTwice,
}

impl ChainFaultKind {
    /// Returns the stable name.
    pub(in crate::cli) const fn code(self) -> &'static str {
        match self {
            Self::LostParent => "lost_parent",
            Self::ParentInSubagent => "parent_in_subagent",
            Self::ParentCircle => "parent_circle",
            Self::UuidTwice => "uuid_twice",
        }
    }

    /// Returns one sentence for a human: the fault, and what the client does.
    pub(in crate::cli) const fn explanation(self) -> &'static str {
        match self {
            Self::LostParent => {
                "the line that it follows is not in the file: Claude Code 2.1.332 goes on with the line before it, and \
                 older versions send nothing of what stands before"
            }
            Self::ParentInSubagent => {
                "the line that it follows is one of a sub-agent: Claude Code sends nothing of what stands before it"
            }
            Self::ParentCircle => {
                "the line that it follows comes after it: Claude Code 2.1.332 goes on with the line before it, and older \
                 versions send nothing of what stands before, or do not load the session"
            }
            Self::UuidTwice => {
                "an earlier line has the same uuid: Claude Code sends one of the two, and older versions than 2.1.332 \
                 may send nothing of what stands before"
            }
        }
    }

    /// Returns `true` if a version of the client is known to lose nothing by the fault.
    pub(super) fn is_bridged_by(self, version: Option<ClientVersion>) -> bool {
        match self {
            Self::LostParent | Self::ParentCircle => version.is_some_and(|version| version >= BRIDGES_LINKS),
            Self::ParentInSubagent | Self::UuidTwice => false,
        }
    }
}
