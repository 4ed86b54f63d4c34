//! Text that was put at the end of messages, by what stands there: it follows wherever they stand.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::{BufMut, Bytes};
use moka::{ops::compute::Op, sync::Cache};
use tokio::time::{Instant, timeout_at};

use super::{FIRST, Recall};
use crate::{
    auth::Caller,
    clock,
    ledger::{Key, Kind, Name, Outcome, ROWS_MAX, Step},
    repair::Anchor,
};

/// Bytes of anchors in memory; another caller's are read anew.
const MEMORY_BYTES: u64 = 32 * 1024 * 1024;
/// Bytes that one takes beside its text.
const ANCHOR_BYTES: usize = 192;
/// How long a ledger that did not answer is not asked again.
const SILENT: Duration = Duration::from_secs(5);
/// The first byte of every record.
const VERSION: u8 = 1;
/// Bytes of a call's name.
const NAME: usize = 32;

/// Calls whose results one message takes.
pub const APPENDED_CALLS_MAX: usize = u8::MAX as usize;

/// Text at the end of a message, and the calls whose results it holds.
#[derive(Clone, PartialEq, Eq)]
pub struct Appended {
    /// The text.
    pub text: String,
    /// The calls.
    pub calls: Vec<Name>,
}

impl fmt::Debug for Appended {
    // Never the text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Appended({} bytes, {} calls)", self.text.len(), self.calls.len())
    }
}

impl Appended {
    /// Its bytes; none with more than [`APPENDED_CALLS_MAX`] calls.
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

/// A caller's, by what stands there.
pub type OfCaller = Arc<HashMap<Anchor, Arc<Appended>>>;

/// The anchors of callers, once they were read.
#[derive(Debug)]
pub(super) struct Anchors {
    own: Cache<Caller, OfCaller>,
    /// Until when the ledger, which did not answer, is not asked: healthy requests do not wait for it one after the other.
    silent: Mutex<Option<Instant>>,
}

impl Anchors {
    /// What was read stays for as long as a record `lasts`.
    pub(super) fn new(lasts: Duration) -> Self {
        let weigh = |_: &Caller, own: &OfCaller| {
            let bytes = own
                .values()
                .map(|appended| appended.text.len().saturating_add(ANCHOR_BYTES));
            u32::try_from(bytes.fold(ANCHOR_BYTES, usize::saturating_add)).unwrap_or(u32::MAX)
        };
        let cache = Cache::builder().max_capacity(MEMORY_BYTES).weigher(weigh);
        Self {
            own: cache.time_to_live(lasts).build(),
            silent: Mutex::new(None),
        }
    }

    fn silent(&self) -> MutexGuard<'_, Option<Instant>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A caller's; none where they were not read yet.
    fn of(&self, caller: Caller) -> Option<OfCaller> {
        self.own.get(&caller)
    }

    /// Notes what was read of a caller's. What was put meanwhile stays.
    fn load(&self, caller: Caller, read: impl IntoIterator<Item = (Anchor, Appended)>) -> OfCaller {
        let read = read.into_iter().map(|(anchor, appended)| (anchor, Arc::new(appended)));
        let known = self.own.entry(caller).or_insert_with(|| Arc::new(read.collect()));
        known.into_value()
    }

    /// Notes one of a caller whose others were read.
    fn put(&self, caller: Caller, anchor: Anchor, appended: &Arc<Appended>) {
        self.change(caller, |own| drop(own.insert(anchor, Arc::clone(appended))));
    }

    fn change(&self, caller: Caller, change: impl FnOnce(&mut HashMap<Anchor, Arc<Appended>>)) {
        drop(self.own.entry(caller).and_compute_with(|known| match known {
            Some(known) => {
                let mut own = known.into_value();
                change(Arc::make_mut(&mut own));
                Op::Put(own)
            }
            None => Op::Nop,
        }));
    }
}

impl Recall {
    /// What was put at the end of this caller's messages. None where it is not known, since the ledger does not answer.
    pub async fn appended(&self, caller: Caller, by: Instant) -> Option<OfCaller> {
        if let Some(known) = self.0.anchors.of(caller) {
            return Some(known);
        }
        if self.0.anchors.silent().is_some_and(|until| clock::now() < until) {
            return None;
        }
        let list = self.0.ledger.list(
            Kind::Anchor,
            *caller.principal().as_bytes(),
            ROWS_MAX,
            clock::since_1970(),
        );
        let Ok(Ok(records)) = timeout_at(by, list).await else {
            *self.0.anchors.silent() = Some(clock::now() + SILENT);
            self.0.telemetry.record_ledger_timeout("read");
            return None;
        };
        let read = records
            .iter()
            .filter_map(|record| Some((record.key.name, Appended::decode(&record.value)?)));
        Some(self.0.anchors.load(caller, read))
    }

    /// Keeps what is put at the end of a message, before it is sent. Hands back what stands there, and whether it was put
    /// now; none where it cannot be kept, so that nothing may be put.
    pub async fn append(
        &self,
        caller: Caller,
        anchor: Anchor,
        appended: Appended,
        by: Instant,
    ) -> Option<(Arc<Appended>, bool)> {
        if !self.0.callers.is_known(caller) {
            return None;
        }
        // What another request has put there stands already: nothing is written that would have to be taken back.
        if let Some(standing) = self.appended(caller, by).await?.get(&anchor) {
            return Some((Arc::clone(standing), false));
        }
        let key = anchor_key(caller, anchor);
        let insert = Step::Insert {
            key,
            index: None,
            value: appended.encode()?,
            expires_at: clock::since_1970() + self.0.settings.lasting,
        };
        let (standing, is_new) = match timeout_at(by, self.0.ledger.commit(vec![insert], clock::since_1970())).await {
            Ok(Ok(Outcome::Done)) => (appended, true),
            Ok(Ok(Outcome::Conflict(records))) => {
                let record = records.into_iter().flatten().next()?;
                (Appended::decode(&record.value)?, false)
            }
            Ok(Err(_)) | Err(_) => {
                self.0.telemetry.record_ledger_timeout("write");
                // It may be done all the same, and must not stand where nothing was put.
                self.unappend(caller, anchor);
                return None;
            }
        };
        let standing = Arc::new(standing);
        self.0.anchors.put(caller, anchor, &standing);
        Some((standing, is_new))
    }

    /// Takes back what was put at the end of a message that no provider took.
    pub fn unappend(&self, caller: Caller, anchor: Anchor) {
        self.0.anchors.change(caller, |own| drop(own.remove(&anchor)));
        self.0.later.write(vec![Step::Remove {
            key: anchor_key(caller, anchor),
            version: FIRST,
        }]);
    }
}

fn anchor_key(caller: Caller, anchor: Anchor) -> Key {
    Key {
        kind: Kind::Anchor,
        principal: *caller.principal().as_bytes(),
        name: anchor,
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
