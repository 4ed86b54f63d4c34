//! Errors of other vendors' servers, with the sentence that clients of the format act on.

use super::{Attempts, large_body};
use crate::{
    proxy::{data_path::DataPath, exchange_log::ExchangeLog, exchange_route::ExchangeRoute, response::ProviderAnswer},
    repair::Mode,
    wire::{ErrorMeaning, Format},
};

/// Returns the format whose clients need other words for some errors of this provider. `None` if they need none: the
/// provider is the format's author, or nothing may be changed. Only for errors, since it compares hosts.
pub(super) fn explained_format(path: &DataPath, route: &ExchangeRoute<'_>, log: &ExchangeLog) -> Option<Format> {
    let may_change = match log.event.mode? {
        Mode::Repair | Mode::Strict => path.settings.explain,
        Mode::Observe => false,
    };
    route.foreign_format().filter(|_| may_change)
}

/// Appends to the text of an error what clients of the format look for, if the text is known.
///
/// Called for the answer that the client gets: retries, keys and resends follow from the provider's own words.
pub(super) async fn explain_to_client(attempts: &mut Attempts<'_>, answer: &mut ProviderAnswer, log: &mut ExchangeLog) {
    if answer.status().is_success() {
        return;
    }
    // First, so that the author's errors are not read for nothing.
    let Some(format) = explained_format(attempts.path, attempts.route, log) else {
        return;
    };
    let Some((row, meaning)) = answer.meaning() else { return };
    let tool = match meaning {
        ErrorMeaning::Overflow(_) => None,
        // Boxed, because it is rare, and the future of every exchange would be larger otherwise.
        ErrorMeaning::BadTool(index) => Box::pin(large_body::find_tool(attempts, index, log)).await,
    };
    if answer.explain(format, meaning, tool.as_deref()) {
        log.record_explanation(&row);
    }
}
