//! Ids in a path: the segments after the names of collections, and which answers name further ids.

use http::Method;

use super::ObjectId;
use crate::provider::decode_segment;

/// Path segments below which a provider stores objects of one key.
const COLLECTIONS: [&str; 26] = [
    "agents",
    "assistants",
    "batches",
    "cachedContents",
    "containers",
    "conversations",
    "documents",
    "environments",
    "evals",
    "file_batches",
    "files",
    "fileSearchStores",
    "interactions",
    "items",
    "jobs",
    "operations",
    "responses",
    "runs",
    "sessions",
    "skills",
    "threads",
    "uploads",
    "vaults",
    "vector_stores",
    "videos",
    "webhook_endpoints",
];

/// Verbs of Google's paths that create an object beside the model.
const CREATING_VERBS: [&str; 5] = [
    ":asyncBatchEmbedContent",
    ":batchGenerateContent",
    ":importFile",
    ":predictLongRunning",
    ":uploadToFileSearchStore",
];

/// Collections whose objects name further files in time.
const WITH_OUTPUTS: [&str; 2] = ["batches", "jobs"];

/// The query parameter that continues a resumable upload.
const UPLOAD_PARAMETER: &str = "upload_id";

/// Returns `true` if the path belongs to objects that a provider stores.
pub(super) fn is_object_path(path: &str) -> bool {
    path.split('/').any(is_collection) || CREATING_VERBS.iter().any(|verb| path.ends_with(verb))
}

/// Returns `true` if the answer to such a request names a new object, or the files that an object has produced.
pub(super) fn answer_names_objects(method: &Method, path: &str) -> bool {
    if !is_object_path(path) {
        return false;
    }
    let mut from_end = path.rsplit('/');
    let (_, collection) = (from_end.next(), from_end.next().unwrap_or_default());
    *method == Method::POST || *method == Method::PUT || *method == Method::GET && WITH_OUTPUTS.contains(&collection)
}

/// Returns the ids in a path and its query, in order.
pub(super) fn ids_in_path(path: &str, query: Option<&str>) -> Vec<ObjectId> {
    let mut ids = Vec::new();
    let mut before = "";
    for segment in path.split('/') {
        if is_collection(before) && !segment.is_empty() && !is_collection(segment) {
            // Google appends the method to the id with a colon.
            let id = segment.split(':').next().unwrap_or_default();
            ids.push(decode_segment(id).into());
        }
        before = segment;
    }
    let pairs = query.unwrap_or_default().split('&');
    let uploads = pairs.filter_map(|pair| pair.strip_prefix(UPLOAD_PARAMETER)?.strip_prefix('='));
    ids.extend(uploads.map(upload_object));
    ids
}

/// Returns the object of a resumable upload, from the address at which it goes on.
pub(super) fn upload_in_address(address: &str) -> Option<ObjectId> {
    let (_, query) = address.split_once('?')?;
    let mut pairs = query.split('&');
    let id = pairs.find_map(|pair| pair.strip_prefix(UPLOAD_PARAMETER)?.strip_prefix('='))?;
    Some(upload_object(id))
}

/// Returns the last segment of a name such as `files/abc`, or the whole text if it has none. `None` for an address that
/// belongs to no collection.
pub(super) fn id_in_name(name: &[u8]) -> Option<&[u8]> {
    let mut segments = name.rsplit(|byte| *byte == b'/');
    let (id, collection) = (segments.next()?, segments.next());
    let is_known = |collection: &[u8]| std::str::from_utf8(collection).is_ok_and(is_collection);
    collection
        .is_none_or(is_known)
        .then_some(id)
        .filter(|id| !id.is_empty())
}

fn is_collection(segment: &str) -> bool {
    COLLECTIONS.contains(&segment)
}

/// Returns the id of an upload. Such ids are very long, so their beginning stands for them.
fn upload_object(id: &str) -> ObjectId {
    const UPLOAD_BYTES_MAX: usize = 200;
    let id = id.as_bytes();
    id.get(..UPLOAD_BYTES_MAX).unwrap_or(id).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_stand_after_collections() {
        for (target, expected) in [
            ("/v1/files", &[][..]),
            ("/v1/files/file-1/content", &["file-1"]),
            ("/v1/responses/resp_1/cancel", &["resp_1"]),
            ("/v1/responses/input_tokens", &["input_tokens"]),
            ("/v1/messages/batches", &[]),
            ("/v1/messages/batches/msgbatch_1/results", &["msgbatch_1"]),
            ("/v1/messages", &[]),
            ("/v1/threads/runs", &[]),
            ("/v1/threads/thread_1/runs/run_1", &["thread_1", "run_1"]),
            ("/v1/fine_tuning/jobs/ftjob-1/events", &["ftjob-1"]),
            ("/v1beta/files/abc:download", &["abc"]),
            ("/v1beta/cachedContents/x", &["x"]),
            ("/v1beta/models/veo/operations/op1", &["op1"]),
            ("/upload/v1beta/files?upload_id=U&upload_protocol=resumable", &["U"]),
            ("/v1/files/file%2D1", &["file-1"]),
            ("/v1/chat/completions", &[]),
        ] {
            let (path, query) = target
                .split_once('?')
                .map_or((target, None), |(path, query)| (path, Some(query)));
            let ids = ids_in_path(path, query);
            let ids: Vec<&str> = ids.iter().map(|id| std::str::from_utf8(id).unwrap()).collect();
            assert_eq!(ids, expected, "{target}");
        }
    }

    #[test]
    fn answers_of_creating_requests_are_read() {
        for (method, path, is_read) in [
            (Method::POST, "/v1/files", true),
            (Method::POST, "/v1/uploads/upload_1/complete", true),
            (Method::POST, "/v1beta/models/m:batchGenerateContent", true),
            (Method::POST, "/v1/messages", false),
            (Method::GET, "/v1/files/file-1/content", false),
            (Method::GET, "/v1/files", false),
            (Method::GET, "/v1/batches/batch_1", true),
            (Method::GET, "/v1/batches", false),
            (Method::DELETE, "/v1/batches/batch_1", false),
        ] {
            assert_eq!(answer_names_objects(&method, path), is_read, "{method} {path}");
        }
    }

    #[test]
    fn a_name_is_an_id_only_in_a_collection() {
        for (name, expected) in [
            ("file-1", Some("file-1")),
            ("files/abc", Some("abc")),
            ("https://generativelanguage.test/v1beta/files/abc", Some("abc")),
            ("gs://bucket/film.mp4", None),
            ("https://example.org/watch?v=1", None),
            ("files/", None),
            ("", None),
        ] {
            let id = id_in_name(name.as_bytes()).map(|id| std::str::from_utf8(id).unwrap());
            assert_eq!(id, expected, "{name}");
        }
    }
}
