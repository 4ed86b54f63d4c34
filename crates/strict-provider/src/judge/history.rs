//! Where a body keeps its histories: a batch keeps several, a wrapped request keeps its own further inside.

use serde_json::Value;

/// One history and the list that it is written in.
#[derive(Clone, Copy, Debug)]
pub(super) enum History<'a> {
    /// Messages, and Chat Completions.
    Messages(&'a Value),
    /// Responses: a list of items, or one string.
    Input(&'a Value),
    /// Gemini.
    Contents(&'a Value),
}

/// Where Gemini's endpoints put one request: plain, to be counted, and as Code Assist wraps it.
const WRAPPED: [&str; 3] = ["", "/generateContentRequest", "/request"];
/// Where Gemini's batches put their requests.
const BATCH: &str = "/batch/inputConfig/requests/requests";

/// The requests of an Anthropic batch; none where the body is no batch.
pub(super) fn batch(body: &Value) -> Option<Vec<&Value>> {
    let entries = body.get("requests")?.as_array()?;
    entries.iter().map(|entry| entry.get("params")).collect()
}

/// The requests of a Gemini body, each an object that may hold `contents`; none where it holds no request at all.
pub(super) fn gemini(body: &Value) -> Vec<&Value> {
    if let Some(entries) = body.pointer(BATCH).and_then(Value::as_array) {
        return entries.iter().filter_map(|entry| entry.get("request")).collect();
    }
    let wrapped = WRAPPED.iter().filter_map(|path| body.pointer(path));
    wrapped.filter(|request| request.get("contents").is_some()).collect()
}

/// Every history of a body of any format.
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
