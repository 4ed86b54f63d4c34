//! What owners and their exchanges read: their own, and nothing else.

use tokio::time::{Instant, timeout_at};

use super::{Found, Late, LateError, Wanted, entry::Call, names};
use crate::{
    auth::Caller,
    clock,
    ledger::{Key, Kind, Name, ROWS_MAX, Record, read_all},
    repair::is_strong,
    session::LaneId,
};

impl Late {
    /// The results of calls, as far as they were posted: of an id that names one call, or of the same lane, tool and
    /// input. A ledger that does not answer in time has none.
    pub async fn results(
        &self,
        caller: Caller,
        lane: Option<LaneId>,
        wanted: &[Wanted],
        by: Instant,
    ) -> Vec<Option<Found>> {
        let mut found = vec![None; wanted.len()];
        if !self.is_used() || wanted.is_empty() {
            return found;
        }
        let lane = lane.map(|lane| *lane.as_bytes());
        let name = |call: &Wanted| names::of_call(&call.id, &call.tool, lane.as_ref(), Some(&call.input_hash));
        let is_sure = |call: &Wanted| lane.is_some() || is_strong(&call.id, &call.tool);
        // Without a lane an id that comes again names nothing.
        let asked: Vec<usize> = (0..wanted.len())
            .filter(|place| wanted.get(*place).is_some_and(is_sure))
            .collect();
        let keys = asked.iter().filter_map(|place| wanted.get(*place));
        let keys: Vec<Key> = keys
            .map(|call| names::key(Kind::Call, caller.principal(), name(call)))
            .collect();
        let read = read_all(&*self.0.ledger, keys, clock::since_1970());
        let Ok(Ok(records)) = timeout_at(by, read).await else {
            self.0.telemetry.record_late_event("unread");
            return found;
        };
        for (place, record) in asked.into_iter().zip(records) {
            let Some(record) = record else { continue };
            let call = Call::decode(&record.value);
            let posted = call.and_then(|call| Some((call.id, call.posted?)));
            if let (Some(slot), Some((id, posted))) = (found.get_mut(place), posted) {
                *slot = Some(Found {
                    call: record.key.name,
                    id,
                    content: posted.content,
                    failed: posted.failed,
                });
            }
        }
        found
    }

    /// Results that wait for their owner, with the names of their calls, in the order in which they came.
    pub async fn outstanding(&self, caller: Caller) -> Result<Vec<(Name, Call)>, LateError> {
        let now = clock::since_1970();
        let waiting = self
            .0
            .ledger
            .list(Kind::Delivery, *caller.principal().as_bytes(), ROWS_MAX, now);
        let keys = waiting.await?;
        let keys = keys
            .iter()
            .map(|record| names::key(Kind::Call, caller.principal(), record.key.name));
        let calls = self.0.ledger.read(keys.collect(), now).await?;
        Ok(posted(&calls))
    }

    /// Those of these calls whose results wait for their owner, in the order in which they came. A ledger that does not
    /// answer in time has none.
    pub async fn waiting(&self, caller: Caller, among: impl Fn(&Name) -> bool, by: Instant) -> Vec<(Name, Call)> {
        let names = self.0.pending.among(caller.principal(), among);
        if names.is_empty() {
            return Vec::new();
        }
        let keys = names
            .iter()
            .map(|name| names::key(Kind::Call, caller.principal(), *name));
        let read = read_all(&*self.0.ledger, keys.collect(), clock::since_1970());
        let Ok(Ok(calls)) = timeout_at(by, read).await else {
            self.0.telemetry.record_late_event("unread");
            return Vec::new();
        };
        let mut waiting = posted(&calls);
        waiting.sort_by_key(|(_, call)| call.posted.as_ref().map(|posted| posted.posted_at));
        waiting
    }

    /// How many results wait for their owners, as far as those were seen since the start.
    pub fn waiting_in_all(&self) -> usize {
        self.0.pending.total()
    }

    /// How many results wait for their owner, from memory: 0 until [`Late::load`] has been there.
    pub fn pending(&self, caller: Caller) -> usize {
        if self.is_used() {
            self.0.pending.count(caller.principal(), clock::since_1970())
        } else {
            0
        }
    }

    /// Reads what waits for a principal, once. A ledger that does not answer in time is asked again with the next exchange.
    pub async fn load(&self, caller: Caller, by: Instant) {
        if !self.is_used() || !caller.is_authenticated() || !self.0.pending.wants(caller.principal()) {
            return;
        }
        let now = clock::since_1970();
        let list = self
            .0
            .ledger
            .list(Kind::Delivery, *caller.principal().as_bytes(), ROWS_MAX, now);
        match timeout_at(by, list).await {
            Ok(Ok(records)) => self.0.pending.load(caller.principal(), &records),
            Ok(Err(_)) | Err(_) => self.0.telemetry.record_late_event("unread"),
        }
    }

    /// The settled calls among one's own of these ids. Of ids that come again none is ever settled.
    pub async fn lookup(&self, caller: Caller, ids: &[Vec<u8>]) -> Result<Vec<Option<(Name, Call)>>, LateError> {
        let now = clock::since_1970();
        let ids = ids.get(..ids.len().min(ROWS_MAX)).unwrap_or_default();
        let strong = ids
            .iter()
            .map(|id| names::key(Kind::Call, caller.principal(), names::of_strong(id)));
        let records = self.0.ledger.read(strong.collect(), now).await?;
        Ok(records.iter().map(|record| settled(record.as_ref()?)).collect())
    }
}

fn posted(records: &[Option<Record>]) -> Vec<(Name, Call)> {
    records.iter().flatten().filter_map(settled).collect()
}

/// A call that has a posted result.
fn settled(record: &Record) -> Option<(Name, Call)> {
    let call = Call::decode(&record.value)?;
    call.posted.is_some().then_some((record.key.name, call))
}
