//! Ids of objects that belong to a key: requests that name one use the profile that created it.
//!
//! Files, responses, conversations, batches and others exist only for the key that created them, or for its project.
//! The ids come from answers. They are looked up for the same caller only.

mod in_answer;
mod in_body;
mod in_path;

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, Method,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};

use super::catch_core_panic::catch_core_panic;
use crate::{
    auth::Caller,
    ledger::RecordName,
    provider::Route,
    recall::{ObjectOwners, ObjectScope},
    wire::watch::TEXT_BYTES_MAX,
};
use in_answer::{DescriptionReader, MentionReader};
use in_body::ids_in_body;
use in_path::{answer_names_objects, ids_in_path, is_object_path, upload_in_address};

/// Returns `true` if only the body of such a request may name objects: its path has none, but belongs to some.
pub(super) fn depends_on_body(route: &Route<'_>) -> bool {
    let (path, query) = (route.target.path(), route.target.query());
    is_object_path(path) && ids_in_path(path, query).is_empty()
}

/// The id of an object.
type ObjectId = Box<[u8]>;

/// The header with the address at which a resumable upload goes on.
const UPLOAD_ADDRESS: HeaderName = HeaderName::from_static("x-goog-upload-url");

/// The objects that a request names, and the part of its answer that names further ones.
#[derive(Clone, Debug, Default)]
pub(super) struct NamedObjects {
    objects: Vec<NamedObject>,
    /// `true` if the path names one of them.
    is_in_path: bool,
    /// Part of the answer that is read.
    reading: AnswerReading,
}

/// One object that a request names.
#[derive(Clone, Debug)]
struct NamedObject {
    name: RecordName,
    /// The profile that owns it. `None` if none of the present ones is known to.
    owner: Option<Arc<str>>,
    /// `true` if a success proves that the profile in use owns it.
    is_proven: bool,
}

/// The part of an answer that names objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AnswerReading {
    /// No part.
    #[default]
    Nothing,
    /// The whole answer describes an object.
    Description,
    /// A model's answer, which may mention files and containers.
    Mentions,
}

impl NamedObjects {
    /// Reads the ids that a request names in its path, and in `body` if that is not empty. No owner is known yet.
    pub(super) fn read(scope: ObjectScope<'_>, route: &Route<'_>, method: &Method, body: &[u8]) -> Self {
        let (path, query) = (route.target.path(), route.target.query());
        let in_path = ids_in_path(path, query);
        let format = route.wire.map(|wire| wire.format);
        let in_body = catch_core_panic(|| Some(ids_in_body(body, format))).unwrap_or_default();
        let mut objects = Vec::new();
        for (index, id) in in_path.iter().chain(&in_body).enumerate() {
            // A word in a path, such as the name of an operation, has no digit.
            let is_object = || *method != Method::DELETE && id.iter().any(u8::is_ascii_digit);
            objects.extend(scope.object_name(id).map(|name| NamedObject {
                name,
                owner: None,
                is_proven: index < in_path.len() && is_object(),
            }));
        }
        let reading = if route.wire.is_some() && route.asks_for_turn() {
            AnswerReading::Mentions
        } else if answer_names_objects(method, path) {
            AnswerReading::Description
        } else {
            AnswerReading::Nothing
        };
        Self {
            objects,
            is_in_path: !in_path.is_empty(),
            reading,
        }
    }

    /// Returns the names of the objects, in order.
    pub(super) fn names(&self) -> Vec<RecordName> {
        self.objects.iter().map(|object| object.name).collect()
    }

    /// Sets the owners of the objects, in the order of their names.
    pub(super) fn set_owners(&mut self, owners: impl IntoIterator<Item = Option<Arc<str>>>) {
        for (object, owner) in self.objects.iter_mut().zip(owners) {
            object.owner = owner;
        }
    }

    /// Returns the owner of a named object: `pinned` if it owns one of them, else the owner of the first that has one.
    pub(super) fn owner(&self, pinned: Option<&str>) -> Option<Arc<str>> {
        let mut owners = self.objects.iter().filter_map(|object| object.owner.as_ref());
        let first = owners.clone().next();
        // With two owners no profile has all objects, so the lane stays.
        owners.find(|owner| pinned == Some(&***owner)).or(first).cloned()
    }

    /// Returns `true` if the path names an object.
    pub(super) const fn is_in_path(&self) -> bool {
        self.is_in_path
    }

    /// Returns `true` if the answer must not be compressed, because it is read.
    pub(super) fn reads_answer(&self) -> bool {
        self.reading != AnswerReading::Nothing
    }
}

/// Everything that the objects of one answer are stored under.
pub(super) struct ObjectNote {
    store: ObjectOwners,
    /// The caller, and the account if the body named a user of it: later requests without a body are the account's.
    callers: [Option<Caller>; 2],
    upstream: String,
    profile: String,
    reader: AnswerReader,
    /// `true` if the id of the answer itself is stored.
    stores_answer: bool,
}

/// The reader of an answer.
enum AnswerReader {
    Description(DescriptionReader),
    Mentions(MentionReader),
}

// The collected bytes may be content, which never reaches a log.
impl fmt::Debug for ObjectNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectNote({})", self.profile)
    }
}

impl ObjectNote {
    /// Stores what a success of `profile` proves, and returns the note for its answer. `None` if nothing of it is read.
    ///
    /// `stores_answer` is `true` if the provider stores the answer under an id of its own.
    pub(super) fn begin(
        store: &ObjectOwners,
        callers: [Option<Caller>; 2],
        route: &Route<'_>,
        named: &NamedObjects,
        profile: &str,
        stores_answer: bool,
    ) -> Option<Self> {
        for object in &named.objects {
            let is_owner = object.owner.as_deref() == Some(profile);
            // A use renews the record. An object of unknown origin belongs to the profile that could use it.
            if let ([Some(caller), _], true) = (callers, is_owner || object.is_proven && object.owner.is_none()) {
                store.note_owner(caller, object.name, profile);
            }
        }
        let reader = match named.reading {
            AnswerReading::Nothing => return None,
            AnswerReading::Description => AnswerReader::Description(DescriptionReader::new(named.is_in_path)),
            AnswerReading::Mentions => AnswerReader::Mentions(MentionReader::of_turn()),
        };
        Some(Self {
            store: store.clone(),
            callers,
            upstream: route.upstream.name.clone(),
            profile: profile.to_owned(),
            reader,
            stores_answer: stores_answer && route.wire.is_some_and(|wire| wire.format.continues_by_id()),
        })
    }

    /// Reads the head of the answer. Returns `false` if the body cannot be read.
    pub(super) fn read_head(&mut self, headers: &HeaderMap) -> bool {
        let address = headers.get(UPLOAD_ADDRESS).and_then(|address| address.to_str().ok());
        if let Some(id) = address.and_then(upload_in_address) {
            self.store_id(&id);
        }
        let is_stream = headers
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        if is_stream && matches!(self.reader, AnswerReader::Description(_)) {
            self.reader = AnswerReader::Mentions(MentionReader::of_run());
        }
        headers.get(CONTENT_ENCODING).is_none_or(|coding| coding == "identity")
    }

    /// Reads bytes of the answer, and stores the ids in them. `answer_id` is the id of the answer, once it is known.
    pub(super) fn read_body(&mut self, data: &Bytes, answer_id: Option<&str>) {
        // Of a longer id only the beginning is known.
        if let Some(id) = answer_id.filter(|id| self.stores_answer && id.len() < TEXT_BYTES_MAX) {
            self.store_id(id.as_bytes());
            self.stores_answer = false;
        }
        let reader = &mut self.reader;
        let read = || {
            Some(match reader {
                AnswerReader::Description(reader) => reader.push(data),
                AnswerReader::Mentions(reader) => reader.push(data),
            })
        };
        let ids = catch_core_panic(read).unwrap_or_default();
        for id in ids {
            match self.reader {
                AnswerReader::Description(_) => self.store_id(&id),
                AnswerReader::Mentions(_) => self.store_mention(&id),
            }
        }
    }

    fn store_id(&self, id: &[u8]) {
        for (caller, name) in self.names_of(id) {
            self.store.note_owner(caller, name, &self.profile);
        }
    }

    /// Stores an id that an answer mentions. It may be that of an object which another profile has created.
    fn store_mention(&self, id: &[u8]) {
        for (caller, name) in self.names_of(id) {
            if !self.store.has_owner(caller, name) {
                self.store.note_owner(caller, name, &self.profile);
            }
        }
    }

    fn names_of(&self, id: &[u8]) -> impl Iterator<Item = (Caller, RecordName)> {
        let upstream = &self.upstream;
        let named = self.callers.into_iter().flatten().filter_map(move |caller| {
            let name = (ObjectScope { caller, upstream }).object_name(id)?;
            Some((caller, name))
        });
        named.collect::<Vec<_>>().into_iter()
    }
}
