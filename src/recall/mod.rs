//! What is remembered of a caller's calls: the answers that they were given, which stay as they are, and the results that
//! came.
//!
//! Memory stands in front of the ledger. An exchange waits for the ledger until its deadline and no longer: what was not
//! read in time counts as unknown, and what was not written in time is written later.

mod anchors;
mod patience;
mod row;
mod seen;

use std::{collections::HashMap, sync::Arc, time::Duration};

use moka::sync::Cache;
use tokio::time::{Instant, timeout_at};

use crate::{
    auth::Caller,
    callers::Callers,
    clock,
    digest::{digest_of, keyed_digest_of},
    ledger::{Key, Kind, Later, Ledger, Name, Outcome, ROWS_MAX, Record, Step, read_all},
    repair::{CallKey, ClientResult, PinnedAnswer, RealResult, names_call},
    telemetry::Telemetry,
};

pub use anchors::{APPENDED_CALLS_MAX, Appended, OfCaller};
pub use patience::Patience;
pub use row::Row;
pub use seen::{Scope, Wanted};

use anchors::Anchors;
use seen::Seen;

/// Bytes of rows in memory.
const MEMORY_BYTES: u64 = 32 * 1024 * 1024;
/// Bytes that a row takes beside its text.
const ROW_BYTES: usize = 192;
/// How long a row nobody asks for stays in memory.
const IDLE: Duration = Duration::from_secs(24 * 60 * 60);
/// Tries of one write against rows of others: each try adopts what stands there.
const TRIES: usize = 4;
/// The version of a row that nobody has confirmed.
const FIRST: u64 = 1;

/// An answer, by the call that it was given to.
pub type Given = (CallKey, PinnedAnswer);

/// How long, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecallSettings {
    /// How long a record lasts.
    pub lasting: Duration,
    /// Whether results that were only seen in requests go into the ledger too.
    pub keeps_seen: bool,
}

/// What is remembered. A cheap handle.
#[derive(Clone, Debug)]
pub struct Recall(Arc<Remembered>);

#[derive(Debug)]
struct Remembered {
    ledger: Arc<dyn Ledger>,
    later: Later,
    callers: Callers,
    telemetry: Telemetry,
    rows: Cache<Name, Known>,
    seen: Seen,
    anchors: Anchors,
    settings: RecallSettings,
}

/// A row in memory.
#[derive(Clone, Debug)]
struct Known {
    row: Row,
    /// Whether it is in the ledger, or on its way there.
    stored: bool,
}

impl Recall {
    /// Remembers in `ledger`.
    pub fn new(
        ledger: Arc<dyn Ledger>,
        later: Later,
        callers: Callers,
        telemetry: Telemetry,
        settings: RecallSettings,
    ) -> Self {
        let weigh =
            |_: &Name, known: &Known| u32::try_from(known.row.weight().saturating_add(ROW_BYTES)).unwrap_or(u32::MAX);
        Self(Arc::new(Remembered {
            ledger,
            later,
            callers,
            telemetry,
            rows: Cache::builder()
                .max_capacity(MEMORY_BYTES)
                .weigher(weigh)
                .time_to_idle(IDLE)
                .build(),
            seen: Seen::new(),
            anchors: Anchors::new(settings.lasting),
            settings,
        }))
    }

    /// The answer of a call, as far as memory knows.
    pub fn recalled(&self, scope: Scope, call: CallKey) -> Option<PinnedAnswer> {
        self.0.rows.get(&name(scope, call)).map(|known| known.row.answer)
    }

    /// Keeps results that a caller brought. Nobody's results are kept for nobody. Of a call that has brought another result
    /// before, the ledger keeps the first.
    pub fn saw(&self, scope: Scope, brought: Vec<ClientResult>) {
        if !scope.caller.is_authenticated() {
            return;
        }
        for result in brought {
            let fresh = self.0.seen.keep(scope, result);
            let kept = self.0.settings.keeps_seen && self.0.callers.is_known(scope.caller);
            if let Some((name, block)) = fresh.filter(|_| kept) {
                self.0.later.write(vec![Step::Insert {
                    key: seen_key(scope.caller, name),
                    index: None,
                    value: String::clone(&block).into(),
                    expires_at: clock::since_1970() + self.0.settings.lasting,
                }]);
            }
        }
    }

    /// The results that the caller brought for these calls, in their order.
    pub async fn seen(&self, scope: Scope, calls: &[Wanted], by: Instant) -> Vec<Option<RealResult>> {
        let names: Vec<Option<Name>> = calls.iter().map(|call| call.name(scope)).collect();
        let known = |name: &Option<Name>| name.as_ref().and_then(|name| self.0.seen.find(name));
        let mut found: Vec<Option<String>> = names.iter().map(known).collect();
        let wanted: Vec<usize> = (0..names.len())
            .filter(|place| {
                names.get(*place).is_some_and(Option::is_some) && found.get(*place).is_some_and(Option::is_none)
            })
            .collect();
        if self.0.settings.keeps_seen && !wanted.is_empty() {
            let named = wanted.iter().filter_map(|place| names.get(*place).copied().flatten());
            let keys = named.map(|name| seen_key(scope.caller, name)).collect();
            let read = read_all(&*self.0.ledger, keys, clock::since_1970());
            if let Ok(Ok(records)) = timeout_at(by, read).await {
                for (place, record) in wanted.into_iter().zip(records) {
                    let block = record.and_then(|record| String::from_utf8(record.value.to_vec()).ok());
                    if let Some(slot) = found.get_mut(place) {
                        *slot = block;
                    }
                }
            } else {
                self.0.telemetry.record_ledger_timeout("read");
            }
        }
        let is_its = |(block, call): (Option<String>, &Wanted)| {
            let block = block.filter(|block| !call.has_twin || names_call(block, &call.id))?;
            Some(RealResult::Block(block))
        };
        found.into_iter().zip(calls).map(is_its).collect()
    }

    /// Whether what is kept outlives the process.
    pub fn survives_restart(&self) -> bool {
        self.0.ledger.survives_restart()
    }

    /// The answers of these calls. Of a caller whom nobody has proven the ledger holds none.
    pub async fn fetch(&self, scope: Scope, calls: &[CallKey], deadline: Instant) -> HashMap<CallKey, PinnedAnswer> {
        let look = async {
            if !self.0.callers.is_proven(scope.caller).await {
                return Ok(Vec::new());
            }
            let keys = calls.iter().map(|call| key(scope, *call)).collect();
            read_all(&*self.0.ledger, keys, clock::since_1970()).await
        };
        let Ok(Ok(records)) = timeout_at(deadline, look).await else {
            self.0.telemetry.record_ledger_timeout("read");
            return HashMap::new();
        };
        let mut found = HashMap::new();
        for (call, record) in calls.iter().zip(records) {
            if let Some(row) = record.as_ref().and_then(decode) {
                found.insert(*call, self.adopt(scope, *call, row));
            }
        }
        found
    }

    /// Keeps these answers before they are sent. Hands back the answers of calls that were given others already: those
    /// stand.
    pub async fn freeze(&self, scope: Scope, given: &[Given], deadline: Instant) -> HashMap<CallKey, PinnedAnswer> {
        let mut standing = HashMap::new();
        let mut fresh: Vec<(CallKey, Row)> = Vec::new();
        for (call, answer) in given {
            let row = Row {
                answer: answer.clone(),
                firm: false,
            };
            let known = Known {
                row: row.clone(),
                stored: self.0.callers.is_known(scope.caller),
            };
            let entry = self.0.rows.entry(name(scope, *call)).or_insert(known);
            if entry.is_fresh() {
                fresh.push((*call, row));
            } else if entry.value().row.answer != *answer {
                standing.insert(*call, entry.into_value().row.answer);
            }
        }
        if !self.0.callers.is_known(scope.caller) {
            return standing;
        }
        while !fresh.is_empty() {
            let rest = fresh.split_off(fresh.len().min(ROWS_MAX));
            self.freeze_portion(scope, fresh, &mut standing, deadline).await;
            fresh = rest;
        }
        standing
    }

    /// Writes rows that memory holds since now. Of those that have others in the ledger, these stand.
    async fn freeze_portion(
        &self,
        scope: Scope,
        mut fresh: Vec<(CallKey, Row)>,
        standing: &mut HashMap<CallKey, PinnedAnswer>,
        deadline: Instant,
    ) {
        for _ in 0..TRIES {
            if fresh.is_empty() {
                return;
            }
            let steps = fresh.iter().map(|(call, row)| self.insert(scope, *call, row));
            let commit = self.0.ledger.commit(steps.collect(), clock::since_1970());
            match timeout_at(deadline, commit).await {
                Ok(Ok(Outcome::Done)) => return,
                Ok(Ok(Outcome::Conflict(records))) => {
                    let mut records = records.into_iter();
                    fresh.retain(|(call, _)| {
                        let Some(row) = records.next().flatten().as_ref().and_then(decode) else {
                            return true;
                        };
                        standing.insert(*call, self.adopt(scope, *call, row));
                        false
                    });
                }
                Ok(Err(_)) | Err(_) => break,
            }
        }
        self.0.telemetry.record_ledger_timeout("write");
        for (call, row) in &fresh {
            self.0.later.write(vec![self.insert(scope, *call, row)]);
        }
    }

    /// A request with these answers was answered with success: they are the calls' from now on.
    pub fn accepted(&self, scope: Scope, used: &[Given]) {
        let lasts = !used.is_empty() && self.0.callers.is_known(scope.caller);
        for (call, answer) in used {
            let known = self.0.rows.get(&name(scope, *call));
            // What a provider took first stays.
            if known.as_ref().is_some_and(|known| known.row.firm) {
                continue;
            }
            let row = Row {
                answer: answer.clone(),
                firm: true,
            };
            if lasts {
                let same = |known: &Known| known.row.answer == *answer && known.stored;
                if known.as_ref().is_some_and(same) {
                    self.0.later.write(vec![Step::Replace {
                        key: key(scope, *call),
                        version: FIRST,
                        value: row.encode(),
                        expires_at: clock::since_1970() + self.0.settings.lasting,
                    }]);
                } else if known.is_some_and(|known| known.stored) {
                    self.0.later.write(vec![remove(scope, *call)]);
                }
                // Where the row was taken back meanwhile it stands again; else this changes nothing.
                self.0.later.write(vec![self.insert(scope, *call, &row)]);
            }
            self.0.rows.insert(name(scope, *call), Known { row, stored: lasts });
        }
    }

    /// No request with these answers, which this one gave first, was answered with success: they are taken back, unless
    /// another's was.
    pub fn withdrawn<'g>(&self, scope: Scope, given: impl IntoIterator<Item = &'g Given>) {
        for (call, answer) in given {
            let name = name(scope, *call);
            let Some(known) = self.0.rows.get(&name) else { continue };
            if known.row.firm || known.row.answer != *answer {
                continue;
            }
            self.0.rows.invalidate(&name);
            if known.stored {
                self.0.later.write(vec![remove(scope, *call)]);
            }
        }
    }

    /// Takes over a row of the ledger.
    fn adopt(&self, scope: Scope, call: CallKey, row: Row) -> PinnedAnswer {
        let answer = row.answer.clone();
        self.0.rows.insert(name(scope, call), Known { row, stored: true });
        answer
    }

    fn insert(&self, scope: Scope, call: CallKey, row: &Row) -> Step {
        Step::Insert {
            key: key(scope, call),
            index: None,
            value: row.encode(),
            expires_at: clock::since_1970() + self.0.settings.lasting,
        }
    }
}

fn seen_key(caller: Caller, name: Name) -> Key {
    Key {
        kind: Kind::Seen,
        principal: *caller.principal().as_bytes(),
        name,
    }
}

fn remove(scope: Scope, call: CallKey) -> Step {
    Step::Remove {
        key: key(scope, call),
        version: FIRST,
    }
}

fn decode(record: &Record) -> Option<Row> {
    Row::decode(&record.value)
}

fn key(scope: Scope, call: CallKey) -> Key {
    Key {
        kind: Kind::Frozen,
        principal: *scope.caller.principal().as_bytes(),
        name: digest_of([scope.format.label().as_bytes(), call.as_bytes()]),
    }
}

/// The name of a row in memory. A result is of its format: another cannot hold it.
fn name(scope: Scope, call: CallKey) -> Name {
    let parts: [&[u8]; 2] = [scope.format.label().as_bytes(), call.as_bytes()];
    keyed_digest_of(scope.caller.principal().as_bytes(), parts)
}
