//! Rollouts of Codex: one record for each item, with a number.
//!
//! | file | job |
//! |---|---|
//! | `record.rs` | one record: kind, time, number |
//! | `item.rs` | the item in it: call, output, message, and faults that it has by itself |
//! | `history.rs` | the items that are sent, after summaries and rollbacks |
//! | `ordinals.rs` | the numbers of records |
//! | `pairs.rs` | the faults of calls and outputs |
//! | `rewrite.rs` | the records that are written |
//! | `plan.rs` | the edits for one finding |

mod history;
mod item;
mod ordinals;
mod pairs;
mod plan;
mod record;
mod rewrite;
#[cfg(test)]
mod tests;

pub(super) use self::plan::plan_edits;
use self::{
    history::{CodexHistory, ItemPlace},
    item::{CodexItem, CodexItemKind, ItemFlaw, Speaker, read_item},
    ordinals::{NumberedPlace, OrdinalLog},
    pairs::{HistoryFaults, SessionTraits, find_faults},
    record::{RolloutKind, RolloutRecord},
};
use super::{
    client::ClientVersion,
    damage::{Damage, SessionCode},
    finding::{RecordLoss, SessionFinding},
    log::{LogFacts, SessionLog},
    records::SessionRecord,
};
use crate::work;

/// The log of a rollout of Codex.
#[derive(Debug, Default)]
pub(super) struct CodexLog {
    version: Option<ClientVersion>,
    /// The facts of the first record that names a session.
    meta: Option<RolloutFacts>,
    /// Set by the first record that is no name of a session.
    meta_missing: Option<SessionFinding>,
    /// `true` if the client skips the line of the first record, and therefore does not load the file.
    is_cut_off: bool,
    /// `true` once a record was seen.
    has_begun: bool,
    messages: u64,
    history: CodexHistory,
    ordinals: OrdinalLog,
}

/// The facts that the record with the name of a session tells.
#[derive(Debug)]
struct RolloutFacts {
    id: String,
    /// `true` if its records have numbers.
    is_paginated: bool,
    /// `true` if its history begins in the file of another session.
    has_base: bool,
    /// Name of the provider.
    provider: String,
}

impl SessionLog for CodexLog {
    fn add(&mut self, record: &SessionRecord<'_>) {
        let rollout = RolloutRecord::of_members(record.text, &record.members);
        let is_meta = rollout.is_some_and(|rollout| rollout.kind == RolloutKind::SessionMeta);
        if !self.has_begun && !is_meta {
            self.meta_missing = Some(missing_meta(record));
        }
        // Codex 0.171 skips a record with a byte that is no UTF-8, or with half of a character. The damage is told by itself.
        let is_skipped = record.is_skipped || record.has_bad_bytes || record.has_lone_surrogate;
        self.is_cut_off |= !self.has_begun && is_skipped;
        self.has_begun = true;
        // The client skips it, and says nothing.
        let Some(rollout) = rollout else {
            return;
        };
        let place = NumberedPlace {
            line: record.line,
            byte: record.byte,
            len: u64::try_from(record.text.len()).unwrap_or(u64::MAX),
        };
        if !is_skipped {
            self.ordinals.add(rollout.ordinal, place);
        }
        match rollout.kind {
            RolloutKind::SessionMeta => self.add_meta(&rollout),
            RolloutKind::ResponseItem => {
                let item = read_item(rollout.json, rollout.payload);
                let fits = self.may_fit(&item, record.text);
                self.add_item(&item, item_place(place, is_skipped, fits));
            }
            RolloutKind::AgentMessage => {
                self.history.note_message(true);
                self.count_item(is_skipped);
            }
            RolloutKind::Compacted if !is_skipped => self.add_summary(&rollout, place),
            RolloutKind::RolledBack if !is_skipped => self.history.roll_back(rollout.removed_turns()),
            RolloutKind::Compacted | RolloutKind::RolledBack | RolloutKind::Other => {}
        }
    }

    fn finish(self: Box<Self>) -> LogFacts {
        let meta = self.meta.as_ref();
        let is_numbered = meta.map_or_else(|| self.ordinals.has_any(), |meta| meta.is_paginated);
        let is_dead = self.meta_missing.is_some()
            || self.is_cut_off
            || is_numbered && (self.ordinals.lacks_last() || self.ordinals.is_full());
        let traits = SessionTraits {
            has_base: meta.is_some_and(|meta| meta.has_base),
            refuses_open_reasoning: meta.is_some_and(|meta| meta.provider == "openai"),
            can_append: !is_numbered || self.ordinals.can_number_last(),
        };
        let last_ordinal = self.ordinals.highest().filter(|_| is_numbered);
        let HistoryFaults { mut findings, dropped } = find_faults(&self.history, traits);
        if is_numbered {
            findings.extend(self.ordinals.finish());
        }
        findings.extend(self.meta_missing);
        findings.sort_by_key(|finding| (finding.line, finding.byte));
        let sent = self.history.extent.sent.saturating_sub(dropped);
        LogFacts {
            version: self.version,
            session: self.meta.map(|meta| meta.id).filter(|id| !id.is_empty()),
            messages: self.messages,
            // Nothing is sent if the client does not load the file.
            reachable: if is_dead { 0 } else { sent },
            last_ordinal,
            findings,
        }
    }
}

impl CodexLog {
    /// Adds the record that names the session. A fork may hold that of its parent too.
    fn add_meta(&mut self, record: &RolloutRecord<'_>) {
        let version = ClientVersion::parse(&record.payload_text("cli_version"));
        self.version = self.version.max(version);
        if self.meta.is_some() {
            return;
        }
        let base = record.json.member(record.payload, "history_base");
        self.meta = Some(RolloutFacts {
            id: record.payload_text("id"),
            is_paginated: record.payload_text("history_mode") == "paginated",
            has_base: base.is_some_and(|base| record.json.bytes(base) != b"null"),
            provider: record.payload_text("model_provider"),
        });
    }

    /// Adds an item of the history.
    fn add_item(&mut self, item: &CodexItem<'_>, place: ItemPlace) {
        // First, since a rollback of the turn removes this message too.
        if let Some(speaker) = item.speaker {
            self.history.note_message(speaker == Speaker::User);
        }
        self.count_item(place.is_skipped);
        let Some(kind) = item.kind else {
            return;
        };
        if kind != CodexItemKind::Reasoning || item.flaw.is_some() {
            self.history.add(kind, &item.id, item.flaw, place);
        }
    }

    /// Adds a summary. Its list replaces everything before it. Without a list, only messages of the user stay.
    fn add_summary(&mut self, record: &RolloutRecord<'_>, place: NumberedPlace) {
        self.history.replace_all();
        let list = record.json.member(record.payload, "replacement_history");
        let Some(list) = list else {
            return;
        };
        // One after the other: a hostile list has more places than memory.
        let walked = record.json.for_each_element(list, |span| {
            work::count(1);
            let item = read_item(record.json, span);
            let place = ItemPlace {
                is_alone: false,
                ..item_place(place, false, false)
            };
            // Its messages are no turns of the file: a rollback goes by those.
            let speaker = item.speaker.map(|_| Speaker::Other);
            self.add_item(&CodexItem { speaker, ..item }, place);
        });
        // Something else than a list replaces everything too.
        let _ = walked.is_ok();
    }

    fn count_item(&mut self, is_skipped: bool) {
        self.messages = self.messages.saturating_add(1);
        self.history.count_item(is_skipped);
    }

    /// Returns `true` if the record of an item fits into its bytes after it was mended.
    fn may_fit(&self, item: &CodexItem<'_>, text: &[u8]) -> bool {
        match (item.kind, item.flaw) {
            (Some(kind), Some(ItemFlaw::UnreadCall | ItemFlaw::OddCall)) if kind.is_call() => {
                rewrite::mend_call(text).is_some()
            }
            (Some(CodexItemKind::Reasoning) | None, _) => false,
            // Nearly all outputs are awaited, and need no quote.
            (Some(kind), _) => {
                !kind.is_call() && !self.history.awaits_output(&item.id) && rewrite::quote_output(text).is_some()
            }
        }
    }
}

const fn item_place(record: NumberedPlace, is_skipped: bool, fits: bool) -> ItemPlace {
    ItemPlace {
        line: record.line,
        byte: record.byte,
        len: record.len,
        is_skipped,
        fits,
        is_alone: true,
    }
}

fn missing_meta(record: &SessionRecord<'_>) -> SessionFinding {
    let code = SessionCode::Damage(Damage::SessionMetaMissing);
    let len = u64::try_from(record.text.len()).unwrap_or(u64::MAX);
    SessionFinding {
        loss: RecordLoss::First,
        ..SessionFinding::told(code, record.line, record.byte, len)
    }
}
