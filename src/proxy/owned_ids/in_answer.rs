//! Ids in an answer: those of the object that it describes, and those that a model's answer mentions.

use bytes::Bytes;
use memchr::memmem;

use super::{ObjectId, in_path::id_in_name};
use crate::{
    wire::json::{Json, JsonKind},
    work,
};

/// Bytes of an answer that are collected. A longer one describes no object.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The most times that a collected answer is read.
const READS_MAX: usize = 16;
/// Bytes at the end of a chunk that are searched again with the next one.
const TAIL_BYTES: usize = 320;
/// Bytes between a member's name and the end of its value.
const MEMBER_BYTES_MAX: usize = 300;
/// The most ids of one answer.
const IDS_MAX: usize = 256;

/// Collects the description of an object, and returns the ids in it.
#[derive(Debug, Default)]
pub(super) struct DescriptionReader {
    bytes: Vec<u8>,
    /// Last byte that is no white space.
    last: u8,
    reads: usize,
    /// `true` if the object has a parent in the path, through which it is always reached.
    is_child: bool,
}

impl DescriptionReader {
    /// Creates a reader. It ignores the id of the object itself if that is a child of the object in the path.
    pub(super) fn new(is_child: bool) -> Self {
        Self {
            is_child,
            ..Self::default()
        }
    }

    /// Adds bytes of the answer. Returns the ids once the description is complete.
    pub(super) fn push(&mut self, data: &Bytes) -> Vec<ObjectId> {
        if self.bytes.len().saturating_add(data.len()) > ANSWER_BYTES_MAX {
            self.reads = READS_MAX;
            self.bytes = Vec::new();
        }
        if self.reads >= READS_MAX {
            return Vec::new();
        }
        self.bytes.extend_from_slice(data);
        // Only the new piece is searched: blanks in many pieces would be passed again with each of them.
        work::count(data.len());
        if let Some(last) = data.trim_ascii_end().last() {
            self.last = *last;
        }
        // An object that does not end here is not read, so that one in many pieces costs little.
        if self.last != b'}' {
            return Vec::new();
        }
        self.reads = self.reads.saturating_add(1);
        ids_in_description(&self.bytes, self.is_child)
    }
}

/// Returns the ids in the description of an object.
fn ids_in_description(bytes: &[u8], is_child: bool) -> Vec<ObjectId> {
    let json = Json::new(bytes);
    let Ok(root) = json.root_span() else { return Vec::new() };
    let mut ids: Vec<ObjectId> = Vec::new();
    let mut add = |value| {
        let text = json.decode_string(value);
        ids.extend(id_in_name(&text).map(Into::into));
    };
    let walked = json.for_each_member(root, |key, value| match key {
        b"id" if !is_child => add(value),
        // Google's names have a collection. Others are words of a person.
        b"name" if !is_child && json.bytes(value).contains(&b'/') => add(value),
        b"output_file_id" | b"error_file_id" | b"thread_id" | b"container_id" => add(value),
        b"result_files" => json.elements(value).into_iter().take(IDS_MAX).for_each(&mut add),
        b"file" if json.kind(value) == JsonKind::Object => {
            let named = ["id", "name"]
                .into_iter()
                .filter_map(|name| json.string_member(value, name));
            named.for_each(&mut add);
        }
        _ => {}
    });
    // Half a description names nothing for certain.
    walked.map(|()| ids).unwrap_or_default()
}

/// Members of a model's answer that name the files and containers of its tools.
const MADE_BY_TOOLS: &[&[u8]] = &[b"\"file_id\"", b"\"container_id\"", b"\"container\""];
/// The same, and members of the events of a run, which describe no object as a whole.
const MADE_BY_RUNS: &[&[u8]] = &[
    b"\"file_id\"",
    b"\"container_id\"",
    b"\"container\"",
    b"\"thread_id\"",
    b"\"interaction\"",
    b"\"interaction_id\"",
];

/// Searches an answer for the objects that it mentions.
#[derive(Debug)]
pub(super) struct MentionReader {
    names: &'static [&'static [u8]],
    /// `true` if only ids in a provider's own form count.
    is_strict: bool,
    tail: Vec<u8>,
    seen: Vec<ObjectId>,
}

impl MentionReader {
    /// Creates a reader of a model's answer.
    pub(super) const fn of_turn() -> Self {
        Self::of_members(MADE_BY_TOOLS, true)
    }

    /// Creates a reader of the events of a run.
    pub(super) const fn of_run() -> Self {
        Self::of_members(MADE_BY_RUNS, false)
    }

    const fn of_members(names: &'static [&'static [u8]], is_strict: bool) -> Self {
        Self {
            names,
            is_strict,
            tail: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// Adds bytes of the answer. Returns the new ids in them.
    pub(super) fn push(&mut self, data: &[u8]) -> Vec<ObjectId> {
        if self.seen.len() >= IDS_MAX {
            return Vec::new();
        }
        let known = self.seen.len();
        let mut ids = std::mem::take(&mut self.seen);
        // A member may be cut by the end of a chunk.
        let begin = data.get(..TAIL_BYTES).unwrap_or(data);
        self.tail.extend_from_slice(begin);
        find_mentions(&self.tail, self.names, &mut ids);
        if data.len() > TAIL_BYTES {
            find_mentions(data, self.names, &mut ids);
            self.tail.clear();
            let end = data.len().saturating_sub(TAIL_BYTES);
            self.tail.extend_from_slice(data.get(end..).unwrap_or_default());
        } else {
            let surplus = self.tail.len().saturating_sub(TAIL_BYTES);
            self.tail.drain(..surplus);
        }
        let is_strict = self.is_strict;
        ids.retain(|id| !is_strict || is_made_id(id));
        ids.truncate(IDS_MAX);
        self.seen = ids;
        self.seen.get(known..).unwrap_or_default().to_vec()
    }
}

/// Adds the values of these members, or of the `id` with which the object there begins.
fn find_mentions(bytes: &[u8], names: &[&[u8]], ids: &mut Vec<ObjectId>) {
    for name in names {
        for at in memmem::find_iter(bytes, name).take(IDS_MAX) {
            let rest = bytes.get(at.saturating_add(name.len())..).unwrap_or_default();
            let rest = rest.get(..MEMBER_BYTES_MAX).unwrap_or(rest);
            let id = member_text(rest).filter(|id| !ids.iter().any(|known| **known == **id));
            ids.extend(id.map(Into::into));
        }
    }
}

/// Beginnings of the ids that providers give to what tools make.
const MADE_PREFIXES: &[&[u8]] = &[b"file-", b"file_", b"files/", b"cfile_", b"cntr_", b"container_"];

/// Returns `true` for an id in a provider's own form.
///
/// The arguments of a tool call may have members with the same names, and any word as their value.
fn is_made_id(id: &[u8]) -> bool {
    MADE_PREFIXES.iter().any(|prefix| id.starts_with(prefix))
}

/// Returns the string after a member's name, or that of the `id` with which the object there begins.
fn member_text(rest: &[u8]) -> Option<&[u8]> {
    let value = rest.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    let value = match value.strip_prefix(b"{") {
        Some(inside) => {
            let after = inside.trim_ascii_start().strip_prefix(b"\"id\"")?;
            after.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start()
        }
        None => value,
    };
    let text = value.strip_prefix(b"\"")?;
    // No id has an escape.
    let end = text.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    let (id, rest) = text.split_at_checked(end)?;
    (!id.is_empty() && rest.starts_with(b"\"")).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(ids: &[ObjectId]) -> Vec<String> {
        ids.iter().map(|id| String::from_utf8_lossy(id).into_owned()).collect()
    }

    #[cfg(debug_assertions)]
    #[test]
    fn blanks_in_many_pieces_cost_as_much_as_their_bytes() {
        let mut reader = DescriptionReader::new(false);
        reader.push(&Bytes::from_static(br#"{"id":"file-1""#));
        let blank = Bytes::from_static(b" ");
        let (steps, ()) = work::measure(|| (0..20_000).for_each(|_| drop(reader.push(&blank))));
        assert!(steps < 100_000, "{steps} steps for 20,000 bytes");
        assert_eq!(texts(&reader.push(&Bytes::from_static(b"}"))), ["file-1"]);
        assert!(reader.push(&blank).len() <= 1);
    }

    #[test]
    fn a_description_names_its_object_and_its_files() {
        for (is_child, answer, expected) in [
            (false, r#"{"object":"file","id":"file-1"}"#, &["file-1"][..]),
            (
                false,
                r#"{"id":"batch_1","output_file_id":"file-2","error_file_id":null}"#,
                &["batch_1", "file-2"],
            ),
            (true, r#"{"id":"upload_1","file":{"id":"file-1"}}"#, &["file-1"]),
            (
                false,
                r#"{"file":{"name":"files/abc","uri":"https://x/v1beta/files/abc"}}"#,
                &["abc"],
            ),
            (false, r#"{"name":"cachedContents/x","model":"models/m"}"#, &["x"]),
            (false, r#"{"name":"my store","id":"vs_1"}"#, &["vs_1"]),
            (
                false,
                r#"{"id":"ftjob-1","result_files":["file-1","file-2"]}"#,
                &["ftjob-1", "file-1", "file-2"],
            ),
            (false, r#"{"object":"list","data":[{"id":"file-1"}]}"#, &[]),
            (false, r#"[{"id":"file-1"}]"#, &[]),
        ] {
            for cut in 0..answer.len() {
                let mut reader = DescriptionReader::new(is_child);
                let (first, rest) = answer.split_at(cut);
                let mut ids = reader.push(&Bytes::from(first));
                ids.extend(reader.push(&Bytes::from(rest)));
                assert_eq!(texts(&ids), expected, "{answer} cut at {cut}");
            }
        }
    }

    #[test]
    fn a_long_answer_describes_no_object() {
        let mut reader = DescriptionReader::default();
        let long = format!(r#"{{"id":"file-1","text":"{}"}}"#, "x".repeat(ANSWER_BYTES_MAX));
        assert_eq!(reader.push(&Bytes::from(long)), Vec::<ObjectId>::new());
        assert_eq!(reader.push(&Bytes::from(r#"{"id":"file-1"}"#)), Vec::<ObjectId>::new());
    }

    #[test]
    fn mentions_are_found_however_the_answer_is_cut() {
        let answer = r#"data: {"content":{"type":"output","file_id": "file_1"},"container":{"id":"container_1"}}
data: {"annotations":[{"container_id":"cntr_1","file_id":"cfile_1"}],"text":"{\"file_id\":\"file_2\"}","file_id":null}"#;
        let expected = ["cfile_1", "cntr_1", "container_1", "file_1"];
        for size in 1..answer.len() {
            let mut reader = MentionReader::of_turn();
            let mut ids: Vec<String> = answer
                .as_bytes()
                .chunks(size)
                .flat_map(|chunk| texts(&reader.push(chunk)))
                .collect();
            ids.sort();
            ids.dedup();
            assert_eq!(ids, expected, "in pieces of {size}");
        }
    }
}
