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

use super::{catch_core_panic::catch_core_panic, data_path::DataPath};
use crate::{
    auth::Caller,
    ledger::RecordName,
    provider::Route,
    recall::{LedgerBudget, ObjectOwners, ObjectScope},
    wire::{Format, watch::TEXT_BYTES_MAX},
};
use in_answer::{DescriptionReader, MentionReader};
use in_body::ids_in_body;
use in_path::{answer_names_objects, ids_in_path, is_object_path, upload_in_address};

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
    /// None.
    #[default]
    Nothing,
    /// The whole answer describes an object.
    Description,
    /// A model's answer, which may mention files and containers.
    Mentions,
}

impl NamedObjects {
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

/// The look-up of the objects that one request names.
#[derive(Clone, Copy)]
pub(super) struct OwnerLookup<'x> {
    pub(super) path: &'x DataPath,
    pub(super) route: &'x Route<'x>,
    pub(super) method: &'x Method,
}

impl OwnerLookup<'_> {
    /// Returns `true` if the owner may depend on the body of a request without a history: short JSON that names objects.
    pub(super) fn needs_body(&self, caller: Caller, headers: &HeaderMap) -> bool {
        let target = &self.route.target;
        let is_json = headers
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
        is_json
            && !headers.contains_key(CONTENT_ENCODING)
            && self.has_profiles()
            && is_object_path(target.path())
            // The path counts first, so the body could add nothing.
            && ids_in_path(target.path(), target.query()).is_empty()
            && self.path.objects.may_have(caller)
    }

    /// Looks up the objects in the path, and in the body if one was read. Waits no longer than the budget allows.
    pub(super) async fn find_objects(
        &self,
        caller: Caller,
        body: &[u8],
        ledger_budget: &mut LedgerBudget,
    ) -> NamedObjects {
        if !self.has_profiles() {
            return NamedObjects::default();
        }
        let (upstream, target) = (self.route.upstream.name.as_str(), &self.route.target);
        let store = &self.path.objects;
        let in_path = ids_in_path(target.path(), target.query());
        let (count, is_in_path) = (in_path.len(), !in_path.is_empty());
        let is_read = !body.is_empty() && store.may_have(caller);
        let format = self.route.wire.map(|wire| wire.format);
        let in_body = catch_core_panic(|| is_read.then(|| ids_in_body(body, format))).unwrap_or_default();
        let scope = ObjectScope { caller, upstream };
        let mut objects = Vec::new();
        for (index, id) in in_path.iter().chain(&in_body).enumerate() {
            objects.extend(scope.object_name(id).map(|name| NamedObject {
                name,
                owner: None,
                // A word in a path, such as the name of an operation, has no digit.
                is_proven: index < count && *self.method != Method::DELETE && id.iter().any(u8::is_ascii_digit),
            }));
        }
        if !objects.is_empty() && store.may_have(caller) {
            let names: Vec<RecordName> = objects.iter().map(|object| object.name).collect();
            let look = |deadline| store.find_owners(caller, &names, deadline);
            let owners = ledger_budget.spend(look).await;
            // An owner that is no longer configured owns nothing.
            let is_present = |label: &Arc<str>| self.path.profiles.find_profile(upstream, label).is_some();
            for (object, owner) in objects.iter_mut().zip(owners) {
                object.owner = owner.filter(is_present);
            }
        }
        NamedObjects {
            objects,
            is_in_path,
            reading: self.answer_reading(),
        }
    }

    fn has_profiles(&self) -> bool {
        self.path.profiles.has_profiles(&self.route.upstream.name)
    }

    fn answer_reading(&self) -> AnswerReading {
        let is_turn = self.route.wire.is_some() && self.route.asks_for_turn();
        if is_turn {
            AnswerReading::Mentions
        } else if answer_names_objects(self.method, self.route.target.path()) {
            AnswerReading::Description
        } else {
            AnswerReading::Nothing
        }
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
        path: &DataPath,
        route: &Route<'_>,
        caller: Caller,
        named: &NamedObjects,
        profile: &str,
        stores_answer: bool,
    ) -> Option<Self> {
        for object in &named.objects {
            let is_owner = object.owner.as_deref() == Some(profile);
            // A use renews the record. An object of unknown origin belongs to the profile that could use it.
            if is_owner || object.is_proven && object.owner.is_none() {
                path.objects.note_owner(caller, object.name, profile);
            }
        }
        let reader = match named.reading {
            AnswerReading::Nothing => return None,
            AnswerReading::Description => AnswerReader::Description(DescriptionReader::new(named.is_in_path)),
            AnswerReading::Mentions => AnswerReader::Mentions(MentionReader::default()),
        };
        let account = Caller::of_account(caller.account()).with_shared_credential(caller.is_shared());
        let is_user = path.settings.principals.trust_body_user && account.principal() != caller.principal();
        Some(Self {
            store: path.objects.clone(),
            callers: [Some(caller), is_user.then_some(account)],
            upstream: route.upstream.name.clone(),
            profile: profile.to_owned(),
            reader,
            stores_answer: stores_answer && route.wire.is_some_and(|wire| wire.format == Format::OpenAiResponses),
        })
    }

    /// Reads the head of the answer. Returns `false` if the body cannot be read.
    pub(super) fn read_head(&self, headers: &HeaderMap) -> bool {
        let address = headers.get(UPLOAD_ADDRESS).and_then(|address| address.to_str().ok());
        if let Some(id) = address.and_then(upload_in_address) {
            self.store_id(&id);
        }
        !headers.contains_key(CONTENT_ENCODING)
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
        for id in catch_core_panic(read).unwrap_or_default() {
            self.store_id(&id);
        }
    }

    fn store_id(&self, id: &[u8]) {
        for caller in self.callers.into_iter().flatten() {
            let upstream = &self.upstream;
            if let Some(name) = (ObjectScope { caller, upstream }).object_name(id) {
                self.store.note_owner(caller, name, &self.profile);
            }
        }
    }
}
