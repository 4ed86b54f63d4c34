//! A provider whose objects belong to the key that created them: files, responses, conversations, batches and others.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use super::{
    pool::key,
    still::{Step, error, json, say, sse},
    wire::Message,
};

/// The objects of all keys. Cheap to clone, so that they outlive a world.
#[derive(Clone, Debug, Default)]
pub struct KeyStores(Arc<Mutex<Stores>>);

#[derive(Debug, Default)]
struct Stores {
    /// The key that created each object.
    owners: BTreeMap<String, String>,
    /// Requests that named an object of another key.
    misdirected: Vec<String>,
}

/// A kind of object: the path that creates it, and the beginning of its ids.
pub type Kind = (&'static str, &'static str);

/// Kinds whose objects are created by a POST. A path that ends with another one comes first.
pub const KINDS: [Kind; 15] = [
    ("/anthropic/v1/messages/batches", "msgbatch_"),
    ("/anthropic/v1/files", "file_"),
    ("/openai/v1/files", "file-"),
    ("/openai/v1/conversations", "conv_"),
    ("/openai/v1/responses", "resp_"),
    ("/openai/v1/batches", "batch_"),
    ("/openai/v1/vector_stores", "vs_"),
    ("/openai/v1/uploads", "upload_"),
    ("/openai/v1/containers", "cntr_"),
    ("/openai/v1/threads", "thread_"),
    ("/openai/v1/assistants", "asst_"),
    ("/openai/v1/fine_tuning/jobs", "ftjob-"),
    ("/gemini/v1beta/cachedContents", "cachedContents/"),
    ("/gemini/upload/v1beta/files", "files/"),
    ("/gemini/v1beta/batches", "batches/"),
];

impl KeyStores {
    /// Answers a request, as the steps of a still provider.
    pub fn answer(&self, request: &Message) -> Vec<Step> {
        self.0.lock().unwrap().answer(request)
    }

    /// Returns the requests that named an object of another key.
    pub fn misdirected(&self) -> Vec<String> {
        self.0.lock().unwrap().misdirected.clone()
    }

    /// Returns the key that owns an object.
    pub fn owner(&self, id: &str) -> String {
        self.0.lock().unwrap().owners[id].clone()
    }

    /// Adds an object of a key that the proxy has not seen.
    pub fn add(&self, id: &str, key: &str) {
        self.0.lock().unwrap().owners.insert(id.to_owned(), key.to_owned());
    }
}

impl Stores {
    fn answer(&mut self, request: &Message) -> Vec<Step> {
        let (own, text) = (key(request), request.text().to_owned());
        let line = request.line().to_owned();
        let named = |id: &str| line.contains(id) || text.contains(id);
        let foreign = self.owners.iter().any(|(id, key)| named(id) && *key != own);
        if foreign {
            self.misdirected.push(format!("{own}: {line} {text}"));
            return error(
                404,
                &[],
                r#"{"error":{"message":"not found","type":"invalid_request_error"}}"#,
            );
        }
        let path = line.split(' ').nth(1).unwrap_or_default();
        let posts = line.starts_with("POST ");
        if posts && path.ends_with("/complete") {
            let file = self.create("file-", &own);
            return json(
                200,
                &format!(r#"{{"id":"upload_x","object":"upload","file":{{"id":"{file}"}}}}"#),
            );
        }
        if posts && path.ends_with("/messages") {
            return json(
                200,
                r#"{"id":"msg_1","type":"message","role":"assistant","content":[],"stop_reason":"end_turn"}"#,
            );
        }
        if posts && path.ends_with(":generateContent") {
            return json(
                200,
                r#"{"candidates":[{"content":{"parts":[{"text":"ok"}],"role":"model"},"finishReason":"STOP","index":0}]}"#,
            );
        }
        let is_anthropic = request.header("anthropic-version").is_some();
        let upstream = |full: &str| full.starts_with("/anthropic") == is_anthropic;
        let kind = KINDS.iter().find(|(full, _)| {
            let rest = full.splitn(3, '/').nth(2).unwrap();
            upstream(full) && path.split('?').next() == Some(&format!("/{rest}"))
        });
        let Some((_, begin)) = kind.filter(|_| posts) else {
            return self.read_object(path, &own);
        };
        let id = self.create(begin, &own);
        match *begin {
            "resp_" if text.contains(r#""stream":true"#) => {
                let event = |kind: &str, status: &str| {
                    let of = format!(r#"{{"id":"{id}","object":"response","status":"{status}","output":[]}}"#);
                    format!("event: {kind}\ndata: {{\"type\":\"{kind}\",\"response\":{of}}}\n\n")
                };
                let created = event("response.created", "in_progress");
                let done = event("response.completed", "completed");
                vec![sse(), say(created), say(done), Step::End]
            }
            "resp_" => json(
                200,
                &format!(r#"{{"id":"{id}","object":"response","status":"completed","output":[]}}"#),
            ),
            "files/" => json(
                200,
                &format!(r#"{{"file":{{"name":"{id}","uri":"https://gen.test/v1beta/{id}"}}}}"#),
            ),
            "cachedContents/" | "batches/" => json(200, &format!(r#"{{"name":"{id}","model":"models/m"}}"#)),
            _ => json(200, &format!("{{\n  \"object\": \"x\",\n  \"id\": \"{id}\"\n}}")),
        }
    }

    /// Answers a request about an object. A batch names its output.
    fn read_object(&mut self, path: &str, own: &str) -> Vec<Step> {
        let id = path.rsplit('/').next().unwrap_or_default();
        if id.starts_with("batch_") {
            let output = self.create("file-", own);
            return json(
                200,
                &format!(r#"{{"id":"{id}","output_file_id":"{output}","error_file_id":null}}"#),
            );
        }
        json(200, r#"{"object":"x","data":[]}"#)
    }

    fn create(&mut self, begin: &str, own: &str) -> String {
        // Spread over all digits, and of one length, so that no id begins with another.
        let number = (self.owners.len() as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let id = format!("{begin}{number:016x}");
        self.owners.insert(id.clone(), own.to_owned());
        id
    }
}
