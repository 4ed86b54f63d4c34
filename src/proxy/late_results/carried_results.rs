//! Results of earlier conversations that a new one gets.

use tokio::time::Instant;

use super::{LateResults, lacking_results::choose_that_fit};
use crate::{
    ledger::{CommitStep, RecordName},
    recall::{APPENDED_CALLS_MAX, AppendedText},
    repair::{LateCall, LateText, late_text, requested_result},
};

/// Maximum bytes of results, with their marks, that a new conversation gets. More wait for the next one.
const CARRIED_BYTES_MAX: usize = 8 * 1024;
/// Maximum bytes of one result. Its marks and the note of its omission need the rest.
const RESULT_BYTES_MAX: usize = 7 * 1024;

/// Collects the results of the caller's earlier conversations for the first message of a new one, and reserves them for
/// it.
pub(super) async fn carried_texts(results: &LateResults, deadline: Instant) -> Option<(AppendedText, Vec<CommitStep>)> {
    let (late, caller) = (&results.late, results.caller);
    let (lane, origin) = (results.certain_lane()?, results.origin?);
    let carry_over = late.carry_over();
    let found = carry_over.find_left(caller, lane, &origin, deadline).await.ok()?;
    let mut chosen = choose_that_fit(found, RESULT_BYTES_MAX, CARRIED_BYTES_MAX);
    chosen.truncate(APPENDED_CALLS_MAX);
    let read = late.calls().read_for_request(caller, &chosen, deadline).await.ok()?;
    let (mut texts, mut room) = (Vec::new(), CARRIED_BYTES_MAX);
    for ((_, call), read) in chosen.iter().zip(read) {
        let Some((content, read)) = read else { continue };
        let (id, tool) = (String::from_utf8_lossy(&call.id), String::from_utf8_lossy(&call.tool));
        let content = requested_result(&content, &id, RESULT_BYTES_MAX);
        let failed = call.posted.as_ref().is_some_and(|posted| posted.failed);
        let text = late_text(&id, &tool, &content, failed, LateCall::InEarlierConversation);
        // Contents that are no text cannot be shortened.
        if text.len() <= room {
            room -= text.len();
            texts.push((read, text));
        }
    }
    let names: Vec<RecordName> = texts.iter().map(|(read, _)| *read.call()).collect();
    // Reserved last, because what is reserved must be sent.
    let reserved = carry_over.reserve(caller, lane, &names, deadline).await.ok()?;
    texts.retain(|(read, _)| reserved.contains(read.call()));
    let calls = texts.iter().map(|(read, _)| *read.call()).collect();
    let sent = texts.into_iter().map(|(read, text)| (read.into_mark(), text));
    let (marks, texts): (Vec<Option<CommitStep>>, Vec<String>) = sent.unzip();
    let late = LateText::from_text(texts.join("\n\n"));
    (!late.text.is_empty()).then(|| (AppendedText { late, calls }, marks.into_iter().flatten().collect()))
}
