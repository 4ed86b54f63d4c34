//! Text that was put at the end of messages, by what stands there: it follows wherever they stand.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::{BufMut, Bytes};
use moka::sync::Cache;

use crate::{auth::Principal, ledger::Name, repair::Anchor};

/// Callers whose anchors are in memory; another's are read anew.
const CALLERS_MAX: u64 = 10_000;
/// The first byte of every record.
const VERSION: u8 = 1;
/// Bytes of a call's name.
const NAME: usize = 32;

/// Text at the end of a message, and the calls whose results it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The text.
    pub text: String,
    /// The calls.
    pub calls: Vec<Name>,
}

impl Appended {
    /// Its bytes; none with more calls than a byte counts.
    pub(super) fn encode(&self) -> Option<Bytes> {
        let count = u8::try_from(self.calls.len()).ok()?;
        let mut bytes = vec![VERSION, count];
        for call in &self.calls {
            bytes.put_slice(call);
        }
        bytes.put_slice(self.text.as_bytes());
        Some(bytes.into())
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let [VERSION, count, rest @ ..] = bytes else {
            return None;
        };
        let (names, text) = rest.split_at_checked(usize::from(*count).checked_mul(NAME)?)?;
        let (names, _) = names.as_chunks::<NAME>();
        Some(Self {
            text: String::from_utf8(text.to_vec()).ok()?,
            calls: names.to_vec(),
        })
    }
}

type Own = Arc<Mutex<HashMap<Anchor, Arc<Appended>>>>;

/// The anchors of callers, once they were read.
#[derive(Debug)]
pub(super) struct Anchors {
    own: Cache<Principal, Own>,
    any: AtomicBool,
}

impl Anchors {
    pub(super) fn new() -> Self {
        Self {
            own: Cache::new(CALLERS_MAX),
            any: AtomicBool::default(),
        }
    }

    /// Whether this process has put text anywhere.
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// This process has put text somewhere.
    pub(super) fn was_used(&self) {
        self.any.store(true, Ordering::Relaxed);
    }

    /// A caller's; none where they were not read yet.
    pub(super) fn of(&self, who: Principal) -> Option<HashMap<Anchor, Arc<Appended>>> {
        let own = self.own.get(&who)?;
        let own = own.lock().unwrap_or_else(PoisonError::into_inner);
        Some(own.clone())
    }

    /// Notes what was read of a caller's.
    pub(super) fn load(&self, who: Principal, read: impl IntoIterator<Item = (Anchor, Appended)>) {
        let own = self.own.get_with(who, Own::default);
        let mut own = own.lock().unwrap_or_else(PoisonError::into_inner);
        for (anchor, appended) in read {
            own.entry(anchor).or_insert_with(|| Arc::new(appended));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_appended_comes_back_as_it_was() {
        for calls in [vec![], vec![[7; 32]], vec![[7; 32], [8; 32]]] {
            let appended = Appended {
                text: "[antiphon: é]".to_owned(),
                calls,
            };
            let bytes = appended.encode().unwrap();
            assert_eq!(Appended::decode(&bytes), Some(appended));
            for cut in 0..bytes.len() {
                drop(Appended::decode(&bytes[..cut]));
            }
        }
        assert_eq!(Appended::decode(&[1, 2, 0]), None);
        assert_eq!(Appended::decode(&[2, 0]), None);
    }
}
