//! The manifest of a fix: everything that takes it back.

use std::path::{Path, PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{
    cli::doctor::changes::{ByteChange, FileChanges},
    labels::Labelled as _,
    sessions::SessionClient,
};

/// The version of manifests. It rises when a key changes its meaning or goes away.
const VERSION: u64 = 1;

/// The manifest of a fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli::doctor) struct FixManifest {
    /// The session file, without links in its path.
    pub(in crate::cli::doctor) path: PathBuf,
    pub(in crate::cli::doctor) client: SessionClient,
    /// The id of the session that its records tell.
    pub(in crate::cli::doctor) session: Option<String>,
    /// The date of the fix.
    pub(in crate::cli::doctor) made_at: String,
    pub(in crate::cli::doctor) device: u64,
    pub(in crate::cli::doctor) inode: u64,
    /// The last write before the fix: seconds since 1970, and nanoseconds.
    pub(in crate::cli::doctor) modified: (u64, u32),
    pub(in crate::cli::doctor) digest_before: String,
    pub(in crate::cli::doctor) digest_after: String,
    pub(in crate::cli::doctor) changes: FileChanges,
}

impl FixManifest {
    /// Returns the document that is stored. `None` if the path is no UTF-8.
    pub(super) fn document(&self) -> Option<Value> {
        let edits: Vec<Value> = self.changes.overwrites.iter().map(ByteChange::document).collect();
        Some(json!({
            "version": VERSION,
            "path": self.path.to_str()?,
            "client": self.client.label(),
            "session": self.session,
            "made_at": self.made_at,
            "device": self.device,
            "inode": self.inode,
            "modified": { "seconds": self.modified.0, "nanoseconds": self.modified.1 },
            "size_before": self.changes.size_before,
            "size_after": self.changes.size_after(),
            "sha256_before": self.digest_before,
            "sha256_after": self.digest_after,
            "appended": STANDARD.encode(&self.changes.appended),
            "edits": edits,
        }))
    }

    /// Reads a document. `None` if it is no manifest of this version.
    pub(super) fn from_document(document: &Value) -> Option<Self> {
        if document["version"].as_u64()? != VERSION {
            return None;
        }
        let text = |key: &str| document[key].as_str().map(str::to_owned);
        let number = |key: &str| document[key].as_u64();
        let modified = &document["modified"];
        let edits = document["edits"].as_array()?.iter().map(ByteChange::from_document);
        let changes = FileChanges {
            overwrites: edits.collect::<Option<_>>()?,
            appended: STANDARD.decode(document["appended"].as_str()?).ok()?,
            size_before: number("size_before")?,
        };
        Some(Self {
            path: Path::new(document["path"].as_str()?).to_owned(),
            client: SessionClient::from_label(document["client"].as_str()?)?,
            session: text("session"),
            made_at: text("made_at")?,
            device: number("device")?,
            inode: number("inode")?,
            modified: (
                modified["seconds"].as_u64()?,
                u32::try_from(modified["nanoseconds"].as_u64()?).ok()?,
            ),
            digest_before: text("sha256_before")?,
            digest_after: text("sha256_after")?,
            changes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::SessionEdit;

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let edits = [
            SessionEdit::Blank { at: 2, len: 4 },
            SessionEdit::Overwrite {
                at: 7,
                new: b"\xff\"".to_vec(),
            },
            SessionEdit::Append { record: b"{}".to_vec() },
        ];
        let mut file = std::io::Cursor::new(&b"{}\0\0\0\0abc"[..]);
        let manifest = FixManifest {
            path: "/h/größe.jsonl".into(),
            client: SessionClient::Codex,
            session: Some("s1".to_owned()),
            made_at: "2026-11-30T16:30:00Z".to_owned(),
            device: 7,
            inode: u64::MAX,
            modified: (1_700_000_000, 123_456_789),
            digest_before: "aa".to_owned(),
            digest_after: "bb".to_owned(),
            changes: FileChanges::resolve(&edits, &mut file).unwrap(),
        };
        let document = manifest.document().unwrap();
        assert_eq!(FixManifest::from_document(&document), Some(manifest));
        for key in ["path", "edits", "appended", "size_before", "modified"] {
            let mut cut = document.clone();
            cut.as_object_mut().unwrap().remove(key);
            assert_eq!(FixManifest::from_document(&cut), None, "{key}");
        }
    }
}
