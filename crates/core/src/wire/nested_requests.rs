//! Requests inside a body: the entries of a batch, and bodies that wrap one request in another.

use crate::{
    splice::Span,
    wire::{
        Format, HistoryShape, Unreadable,
        json::{Json, JsonKind},
    },
};

/// The most entries of a batch that is read. Each costs some hundred bytes of memory, and no provider takes more.
///
/// Anthropic's Message Batches: "limited to either 100,000 Message requests or 256 MB" (docs, 2026-11).
const ENTRIES_MAX: usize = 100_000;

/// One request inside a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NestedRequest {
    /// The object of the request.
    pub span: Span,
    /// The prefix for paths of findings inside it: `requests[3].params.`.
    pub path: String,
}

/// Finds the requests inside a body that has no history of its own. OpenAI's formats have no such body.
///
/// - Anthropic Message Batches: `requests[].params`.
/// - Gemini countTokens: `generateContentRequest`.
/// - Gemini Code Assist (`/v1internal:…`): `request`.
/// - Gemini batchGenerateContent: `batch.inputConfig.requests.requests[].request`.
pub(super) fn find_requests(format: Format, body: &[u8]) -> Result<Vec<NestedRequest>, Unreadable> {
    let json = Json::new(body);
    let mut found = RequestFinder {
        json,
        found: Vec::new(),
    };
    let root = json.root_span()?;
    match format.history() {
        HistoryShape::Messages => found.add_list(root, &["requests"], "params")?,
        HistoryShape::Contents => {
            // Proto JSON accepts both spellings of a name.
            for key in ["generateContentRequest", "generate_content_request", "request"] {
                found.add_object(root, key, "");
            }
            for path in [
                ["batch", "inputConfig", "requests", "requests"],
                ["batch", "input_config", "requests", "requests"],
            ] {
                found.add_list(root, &path, "request")?;
            }
        }
        HistoryShape::Chat | HistoryShape::Items => {}
    }
    Ok(found.found)
}

/// The requests that were found so far.
struct RequestFinder<'a> {
    json: Json<'a>,
    found: Vec<NestedRequest>,
}

impl RequestFinder<'_> {
    /// Adds the object under `key` of the object at `outer`. `prefix` is the prefix for paths inside `outer`.
    fn add_object(&mut self, outer: Span, key: &str, prefix: &str) {
        // Bodies of any shape get here: the value may be missing, or no object.
        let span = self.json.member(outer, key);
        let span = span.filter(|span| self.json.kind(*span) == JsonKind::Object);
        let path = format!("{prefix}{key}.");
        self.found.extend(span.map(|span| NestedRequest { span, path }));
    }

    /// Adds the object under `inner` of each element of the list at `path`.
    fn add_list(&mut self, root: Span, path: &[&str], inner: &str) -> Result<(), Unreadable> {
        let list = path.iter().try_fold(root, |object, key| self.json.member(object, key));
        let Some(list) = list.filter(|list| self.json.kind(*list) == JsonKind::Array) else {
            return Ok(());
        };
        // An entry without a request keeps its index, so paths count as the client does.
        let mut elements = Vec::new();
        self.json.for_each_element(list, |element| {
            if elements.len() <= ENTRIES_MAX {
                elements.push(element);
            }
        })?;
        if elements.len() > ENTRIES_MAX {
            return Err(Unreadable::Shape);
        }
        let path = path.join(".");
        for (index, element) in elements.into_iter().enumerate() {
            self.add_object(element, inner, &format!("{path}[{index}]."));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_with_more_entries_than_a_provider_takes_is_not_read() {
        let batch = |entries: usize| {
            let list = vec![r#"{"params":{}}"#; entries].join(",");
            let body = format!(r#"{{"requests":[{list}]}}"#);
            find_requests(Format::Anthropic, body.as_bytes()).map(|found| found.len())
        };
        assert_eq!(batch(ENTRIES_MAX), Ok(ENTRIES_MAX));
        assert_eq!(batch(ENTRIES_MAX + 1), Err(Unreadable::Shape));
    }
}
