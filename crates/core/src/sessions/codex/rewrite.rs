//! Records that are written: in the bytes of an old one, or behind the last one.

use std::iter;

use bytes::Bytes;

use super::{
    item::read_item,
    record::{RolloutKind, RolloutRecord},
};
use crate::{
    conversation::{CallFault, FlawKind},
    repair::{self, RepairPolicy},
    splice::{Edit, EditList, Piece, Span},
    wire::{self, FlawTexts, Format, Wire, json::Json},
};

/// The member of an item that names its turn.
const PASSTHROUGH: &str = "internal_chat_message_metadata_passthrough";

/// Longest record that is rewritten, in bytes. A list of a million parts would take a hundred times its memory.
const REWRITTEN_BYTES_MAX: usize = 1024 * 1024;

/// Writes the record in `text`, whose item is an output, with a message of the user that quotes it. As many bytes.
///
/// `None` if it is longer.
pub(super) fn quote_output(text: &[u8]) -> Option<Vec<u8>> {
    let record = RolloutRecord::read(text).filter(|_| text.len() <= REWRITTEN_BYTES_MAX)?;
    let message = repair_item(record.json.bytes(record.payload), 0)?;
    let kind = Json::new(&message)
        .member_text(Span::new(0, message.len()), "type")
        .into_owned();
    if kind != b"message" {
        return None;
    }
    let message = String::from_utf8(message).ok()?;
    // The facts about the old item are not true of the new one, but they may stay if there is room.
    [&[][..], &["metadata"]].into_iter().find_map(|without| {
        let payload = record
            .json
            .set_member(record.root, "payload", vec![Piece::Made(message.clone())]);
        let removed = record.json.remove_members(record.root, without);
        fill(text, apply(text, iter::once(payload).chain(removed).collect())?)
    })
}

/// Writes the record in `text`, whose item is a call, with an input that providers accept. As many bytes.
///
/// `None` if it is longer.
pub(super) fn mend_call(text: &[u8]) -> Option<Vec<u8>> {
    let record = RolloutRecord::read(text).filter(|_| text.len() <= REWRITTEN_BYTES_MAX)?;
    let payload = record.json.bytes(record.payload);
    let json = Json::new(payload);
    let call = Span::new(0, payload.len());
    let fault = wire::find_call_fault(Format::OpenAiResponses, json, call)?;
    // The name stays: another one is another tool.
    let fault = CallFault::new(fault.input, None)?;
    let edits = || {
        let flaw = FlawKind::Call(fault);
        wire::flaw_edits(Format::OpenAiResponses, json, call, flaw, None, FlawTexts::default())
    };
    let mended = [&[][..], &[PASSTHROUGH], &[PASSTHROUGH, "id"]]
        .into_iter()
        .find_map(|without| {
            let removed = json.remove_members(call, without);
            let payload = apply(payload, edits().into_iter().chain(removed).collect())?;
            let payload = Piece::Made(String::from_utf8(payload).ok()?);
            let set = record.json.set_member(record.root, "payload", vec![payload]);
            fill(text, apply(text, vec![set])?)
        })?;
    let after = RolloutRecord::read(&mended)?;
    // Without a name or an id the client skips it still.
    read_item(after.json, after.payload).flaw.is_none().then_some(mended)
}

/// Writes the record of an output for the call in `text`: the proxy's constant text for a lost result.
pub(super) fn write_output(text: &[u8], timestamp: &[u8], ordinal: Option<u64>) -> Option<Vec<u8>> {
    let record = RolloutRecord::read(text).filter(|record| record.kind == RolloutKind::ResponseItem)?;
    let item = repair_item(record.json.bytes(record.payload), 1)?;
    // The item belongs to the turn of its call, as the ones beside it.
    let turn = record.json.member(record.payload, PASSTHROUGH);
    let turn = turn.map(|turn| [format!(",\"{PASSTHROUGH}\":").as_bytes(), record.json.bytes(turn)].concat());
    let item = item.strip_suffix(b"}")?;
    let ordinal = ordinal
        .map(|ordinal| format!("\"ordinal\":{ordinal},"))
        .unwrap_or_default();
    let parts = [
        br#"{"timestamp":"#,
        timestamp,
        b",",
        ordinal.as_bytes(),
        br#""type":"response_item","payload":"#,
        item,
        turn.as_deref().unwrap_or_default(),
        b"}}",
    ];
    Some(parts.concat())
}

/// Writes the record in `text` with a number.
pub(super) fn number_record(text: &[u8], ordinal: u64) -> Option<Vec<u8>> {
    let record = RolloutRecord::read(text)?;
    let json = record.json;
    let edit = if json.member(record.root, "ordinal").is_some() {
        json.set_member(record.root, "ordinal", vec![Piece::Made(ordinal.to_string())])
    } else {
        // Codex writes it behind the time.
        Edit {
            span: Span::at(record.timestamp.end),
            pieces: vec![Piece::Made(format!(",\"ordinal\":{ordinal}"))],
        }
    };
    apply(text, vec![edit])
}

/// Repairs a history of this one item, and returns the item at `index` of the result.
fn repair_item(item: &[u8], index: usize) -> Option<Vec<u8>> {
    let body = Bytes::from([br#"{"input":["#, item, b"]}"].concat());
    let repaired = repair::repair(&body, Wire::OPENAI_RESPONSES, &RepairPolicy::default()).ok()?;
    let body = repaired.body.to_vec();
    let json = Json::new(&body);
    let list = json.member(json.root_span().ok()?, "input")?;
    let found = json.elements(list).get(index).copied()?;
    Some(json.bytes(found).to_vec())
}

/// Makes the edits in `text`.
fn apply(text: &[u8], edits: Vec<Edit>) -> Option<Vec<u8>> {
    let edits = EditList::new(edits, text.len()).ok()?;
    Some(edits.apply(&Bytes::copy_from_slice(text)).to_vec())
}

/// Fills a new record up to the length of the old one. `None` if it is longer.
fn fill(old: &[u8], mut new: Vec<u8>) -> Option<Vec<u8>> {
    let room = old.len().checked_sub(new.len())?;
    new.extend(iter::repeat_n(b' ', room));
    Some(new)
}
