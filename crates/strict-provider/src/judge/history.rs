//! The places of histories in a body. A batch contains several, and a wrapped request contains its own further inside.

use serde_json::Value;

/// A history, and the list that contains it.
#[derive(Clone, Copy, Debug)]
pub(super) enum History<'a> {
    /// Messages and Chat Completions.
    Messages(&'a Value),
    /// Responses: a list of items, or one string.
    Input(&'a Value),
    /// Gemini.
    Contents(&'a Value),
}

/// Paths of a single request at Gemini's endpoints: plain, in a token count, and wrapped by Code Assist.
const WRAPPED: [&str; 3] = ["", "/generateContentRequest", "/request"];
/// Path of the requests in a Gemini batch.
const BATCH: &str = "/batch/inputConfig/requests/requests";

/// Returns the requests of an Anthropic batch. `None` for any other body.
pub(super) fn batch(body: &Value) -> Option<Vec<&Value>> {
    let entries = body.get("requests")?.as_array()?;
    entries.iter().map(|entry| entry.get("params")).collect()
}

/// Returns the requests of a Gemini body: objects that may contain `contents`. Empty without any.
pub(super) fn gemini(body: &Value) -> Vec<&Value> {
    if let Some(entries) = body.pointer(BATCH).and_then(Value::as_array) {
        return entries.iter().filter_map(|entry| entry.get("request")).collect();
    }
    let wrapped = WRAPPED.iter().filter_map(|path| body.pointer(path));
    wrapped.filter(|request| request.get("contents").is_some()).collect()
}

/// Returns every history of a body in any format.
pub(super) fn histories(body: &Value) -> Vec<History<'_>> {
    let mut found: Vec<History<'_>> = Vec::new();
    found.extend(body.get("messages").map(History::Messages));
    found.extend(body.get("input").map(History::Input));
    let entries = batch(body).into_iter().flatten();
    found.extend(entries.filter_map(|entry| entry.get("messages")).map(History::Messages));
    let requests = gemini(body).into_iter();
    found.extend(
        requests
            .filter_map(|request| request.get("contents"))
            .map(History::Contents),
    );
    found
}
