//! Requests inside a body: the entries of a batch, and bodies that wrap one request in another.

use crate::{
    splice::Span,
    wire::{
        Format, Unreadable,
        json::{Json, Kind},
    },
};

/// One request inside a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
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
pub(super) fn find(format: Format, body: &[u8]) -> Result<Vec<Entry>, Unreadable> {
    let json = Json::new(body);
    let mut found = Entries { json, done: Vec::new() };
    let root = json.root()?;
    match format {
        Format::Anthropic => found.list(root, &["requests"], "params")?,
        Format::Gemini => {
            // Proto JSON accepts both spellings of a name.
            for key in ["generateContentRequest", "generate_content_request", "request"] {
                found.object(root, key);
            }
            for path in [
                ["batch", "inputConfig", "requests", "requests"],
                ["batch", "input_config", "requests", "requests"],
            ] {
                found.list(root, &path, "request")?;
            }
        }
        Format::OpenAiChat | Format::OpenAiResponses => {}
    }
    Ok(found.done)
}

/// The requests that were found so far.
struct Entries<'a> {
    json: Json<'a>,
    done: Vec<Entry>,
}

impl Entries<'_> {
    fn member(&self, object: Span, key: &str) -> Option<Span> {
        // Bodies of any shape get here; a walk over anything but an object would be an error.
        (self.json.kind(object) == Kind::Object)
            .then(|| self.json.member(object, key))
            .flatten()
    }

    fn object(&mut self, root: Span, key: &str) {
        if let Some(span) = self
            .member(root, key)
            .filter(|span| self.json.kind(*span) == Kind::Object)
        {
            let path = format!("{key}.");
            self.done.push(Entry { span, path });
        }
    }

    /// Adds the object under `inner` of each element of the list at `path`.
    fn list(&mut self, root: Span, path: &[&str], inner: &str) -> Result<(), Unreadable> {
        let list = path.iter().try_fold(root, |object, key| self.member(object, key));
        let Some(list) = list.filter(|list| self.json.kind(*list) == Kind::Array) else {
            return Ok(());
        };
        // An entry without a request keeps its index, so paths count as the client does.
        let mut elements = Vec::new();
        self.json.elements(list, |element| elements.push(element))?;
        let path = path.join(".");
        for (index, element) in elements.into_iter().enumerate() {
            if let Some(span) = self
                .member(element, inner)
                .filter(|span| self.json.kind(*span) == Kind::Object)
            {
                let path = format!("{path}[{index}].{inner}.");
                self.done.push(Entry { span, path });
            }
        }
        Ok(())
    }
}
