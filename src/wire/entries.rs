//! Histories inside a body: the entries of a batch, and formats that wrap a request into another.

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
    /// The request's object.
    pub span: Span,
    /// The path to it, as the beginning of a place: `requests[3].params.`.
    pub path: String,
}

impl Format {
    /// The requests inside a body that has no history of its own. None where the format knows no such body.
    ///
    /// - Anthropic Message Batches: `requests[].params`.
    /// - Gemini countTokens: `generateContentRequest`; Code Assist (`/v1internal:…`): `request`; batchGenerateContent:
    ///   `batch.inputConfig.requests.requests[].request`.
    pub(crate) fn entries(self, body: &[u8]) -> Result<Vec<Entry>, Unreadable> {
        let json = Json::new(body);
        let mut found = Entries { json, done: Vec::new() };
        let root = json.root()?;
        match self {
            Self::Anthropic => found.list(root, &["requests"], "params")?,
            Self::Gemini => {
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
            Self::OpenAiChat | Self::OpenAiResponses => {}
        }
        Ok(found.done)
    }
}

struct Entries<'a> {
    json: Json<'a>,
    done: Vec<Entry>,
}

impl Entries<'_> {
    fn member(&self, object: Span, key: &str) -> Option<Span> {
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

    /// The objects under `inner` of the elements of the list at `path`.
    fn list(&mut self, root: Span, path: &[&str], inner: &str) -> Result<(), Unreadable> {
        let list = path.iter().try_fold(root, |object, key| self.member(object, key));
        let Some(list) = list.filter(|list| self.json.kind(*list) == Kind::Array) else {
            return Ok(());
        };
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
