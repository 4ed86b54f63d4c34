//! The way from the last line of Claude Code's transcript back to its start, and the faults on it.

use std::collections::{HashMap, HashSet, hash_map::Entry};

use super::{ChainOwner, is_of_subagent};
use crate::{
    cli::input::{
        chain_fault::{ChainFault, ChainFaultKind},
        text_lines::TextLine,
    },
    sessions::ClientVersion,
};

/// A line that belongs to the conversation.
pub(super) struct ChainedLine<'a> {
    pub(super) line: TextLine<'a>,
    /// Id of the line. Empty if it has none.
    pub(super) uuid: String,
    pub(super) is_assistant: bool,
    /// Id of the answer. All blocks of one answer have the same.
    pub(super) message_id: String,
    pub(super) parent: String,
}

/// A line that others may follow. Lines without a message are links too.
struct ChainLink<'a> {
    line: &'a TextLine<'a>,
    parent: String,
    /// `true` for a sub-agent's line beside the main agent's.
    is_of_subagent: bool,
    /// Number of the line, if an earlier one with another message has the same id.
    twice: Option<usize>,
}

/// The links of a file, by the ids of their lines.
struct ChainLinks<'a> {
    by_uuid: HashMap<String, ChainLink<'a>>,
    /// The owner's lines with an id, as number and id, in the order of the file.
    own: Vec<(usize, String)>,
}

/// Returns the ids of the lines from the last message back to the start or the last compaction, and the faults on the
/// way.
pub(super) fn present_branch(
    lines: &[TextLine<'_>],
    chained: &[ChainedLine<'_>],
    owner: ChainOwner,
) -> (HashSet<String>, Vec<ChainFault>) {
    let links = ChainLinks::new(lines, owner);
    let last = chained.iter().rev().find(|chained| !chained.uuid.is_empty());
    let mut at = last.map(|last| last.uuid.clone()).unwrap_or_default();
    let (mut branch, mut faults) = (HashSet::new(), Vec::new());
    // A line that was seen ends the walk: a damaged file may have a circle.
    while !at.is_empty() && branch.insert(at.clone()) {
        let Some(link) = links.by_uuid.get(&at) else { break };
        faults.extend(link.twice.map(|number| (number, ChainFaultKind::UuidTwice)));
        let (fault, before) = (links.fault_of(link, &branch), links.line_before(link));
        // Where nothing stands before the line, nothing is lost.
        faults.extend(fault.filter(|_| before.is_some()).map(|kind| (link.line.number, kind)));
        at = match fault {
            None => link.parent.clone(),
            // The client goes this way too, and finds only what the sub-agent has said.
            Some(ChainFaultKind::ParentInSubagent) => break,
            // After a lost line the one before it goes on: what is lost must not hide what it leaves open.
            Some(_) => before.unwrap_or_default().to_owned(),
        };
    }
    let version = lines
        .iter()
        .rev()
        .find_map(|line| ClientVersion::parse(&line.text("version")));
    let fault = |(line, kind): (usize, ChainFaultKind)| ChainFault {
        line,
        kind,
        is_bridged: kind.is_bridged_by(version),
    };
    let mut faults: Vec<ChainFault> = faults.into_iter().map(fault).collect();
    faults.sort_by_key(|fault| fault.line);
    (branch, faults)
}

impl<'a> ChainLinks<'a> {
    fn new(lines: &'a [TextLine<'a>], owner: ChainOwner) -> Self {
        let (mut by_uuid, mut own) = (HashMap::new(), Vec::new());
        for line in lines {
            let uuid = line.text("uuid");
            if uuid.is_empty() {
                continue;
            }
            let mut link = ChainLink {
                line,
                parent: line.text("parentUuid"),
                is_of_subagent: owner == ChainOwner::MainAgent && is_of_subagent(line),
                twice: None,
            };
            if !link.is_of_subagent {
                own.push((line.number, uuid.clone()));
            }
            // Of two lines with one id, the last counts.
            match by_uuid.entry(uuid) {
                Entry::Vacant(place) => drop(place.insert(link)),
                Entry::Occupied(mut place) => {
                    let earlier: &ChainLink<'_> = place.get();
                    link.twice = if earlier.is_same(&link) {
                        earlier.twice
                    } else {
                        Some(line.number)
                    };
                    place.insert(link);
                }
            }
        }
        Self { by_uuid, own }
    }

    /// Returns the id of the owner's line before a line in the file. `None` if there is none.
    fn line_before(&self, link: &ChainLink<'_>) -> Option<&str> {
        let count = self.own.partition_point(|(number, _)| *number < link.line.number);
        let (_, uuid) = self.own.get(count.checked_sub(1)?)?;
        Some(uuid)
    }

    /// Returns the fault of the link to the line before.
    fn fault_of(&self, link: &ChainLink<'_>, seen: &HashSet<String>) -> Option<ChainFaultKind> {
        if link.parent.is_empty() {
            return None;
        }
        match self.by_uuid.get(&link.parent) {
            None => Some(ChainFaultKind::LostParent),
            Some(parent) if parent.is_of_subagent => Some(ChainFaultKind::ParentInSubagent),
            // Lines that share an id with another one make circles of their own.
            Some(parent) if seen.contains(&link.parent) && parent.twice.is_none() => Some(ChainFaultKind::ParentCircle),
            Some(_) => None,
        }
    }
}

impl ChainLink<'_> {
    /// Returns `true` if another line with this id is a copy.
    fn is_same(&self, other: &Self) -> bool {
        self.parent == other.parent && self.message() == other.message()
    }

    fn message(&self) -> Option<&[u8]> {
        let message = self.line.json.member(self.line.root, "message")?;
        Some(self.line.json.bytes(message))
    }
}
