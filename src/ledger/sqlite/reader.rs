//! The reader threads, each with its own connection. A read never waits for a write to reach the disk.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::mpsc;

use super::{
    failure,
    rows::{self, nanoseconds, select},
    writer::Asker,
};
use crate::{
    ledger::{Index, Key, Kind, Moment, Record},
    session::PrincipalHash,
};

/// A request to a reader thread.
pub(super) enum Question {
    Read {
        keys: Vec<Key>,
        now: Moment,
        reply: Asker<Vec<Option<Record>>>,
    },
    List {
        kind: Kind,
        principal: PrincipalHash,
        limit: usize,
        now: Moment,
        reply: Asker<Vec<Record>>,
    },
    Find {
        kind: Kind,
        index: Index,
        limit: usize,
        now: Moment,
        reply: Asker<Vec<Record>>,
    },
}

/// Answers requests until the queue is closed and empty.
pub(super) fn run(connection: &Connection, questions: &Arc<Mutex<mpsc::Receiver<Question>>>) {
    loop {
        // One idle reader holds the lock while it waits for a request. The others wait for the lock.
        let question = questions.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
        match question {
            None => return,
            Some(Question::Read { keys, now, reply }) => answer(reply, || read(connection, &keys, now)),
            Some(Question::List {
                kind,
                principal,
                limit,
                now,
                reply,
            }) => answer(reply, || list(connection, kind, principal, limit, now)),
            Some(Question::Find {
                kind,
                index,
                limit,
                now,
                reply,
            }) => answer(reply, || find(connection, kind, index, limit, now)),
        }
    }
}

fn answer<T>(reply: Asker<T>, ask: impl FnOnce() -> rusqlite::Result<T>) {
    // A caller that hit its timeout has dropped the receiver: the read would be wasted work.
    if !reply.is_closed() {
        drop(reply.send(ask().map_err(|error| failure(&error))));
    }
}

fn read(connection: &Connection, keys: &[Key], now: Moment) -> rusqlite::Result<Vec<Option<Record>>> {
    // The transaction makes all keys be read from the same state.
    let snapshot = connection.unchecked_transaction()?;
    let one = |key: &Key| Ok(rows::by_key(&snapshot, key)?.and_then(|found| found.living(now)));
    keys.iter().map(one).collect()
}

fn list(
    connection: &Connection,
    kind: Kind,
    principal: PrincipalHash,
    limit: usize,
    now: Moment,
) -> rusqlite::Result<Vec<Record>> {
    let mut statement = connection.prepare_cached(select!(
        "INDEXED BY by_principal WHERE kind = ?1 AND principal = ?2 AND expires_at > ?3 ORDER BY place DESC"
    ))?;
    let rows = statement.query((kind as u8, principal, nanoseconds(now)))?;
    rows::collect(rows, limit, now, |record| {
        record.key.kind == kind && record.key.principal == principal
    })
}

fn find(connection: &Connection, kind: Kind, index: Index, limit: usize, now: Moment) -> rusqlite::Result<Vec<Record>> {
    let mut statement = connection.prepare_cached(select!(
        "INDEXED BY by_index WHERE kind = ?1 AND idx = ?2 AND expires_at > ?3 ORDER BY place DESC"
    ))?;
    let rows = statement.query((kind as u8, index, nanoseconds(now)))?;
    rows::collect(rows, limit, now, |record| {
        record.key.kind == kind && record.index == Some(index)
    })
}
