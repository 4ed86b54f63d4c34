//! Codex' own list of turns, which is a database beside its sessions: how far it has read each of them.
//!
//! A list that is behind the file is brought up to date when Codex starts. One that is ahead of it, because the file has
//! lost its end, passes over all new records up to its own number (Codex 0.171, 2026-11).

use std::{
    cell::RefCell,
    collections::HashMap,
    path::{Path, PathBuf},
};

use super::{
    database::{DatabaseSnapshot, describe_error},
    places::{client_home, home_above, shown_path},
};
use crate::{
    cli::output::write_note,
    sessions::{Damage, SessionClient, SessionCode, SessionFinding, SessionReport},
};

/// The file of the list.
const NAME: &str = "thread_history_1.sqlite";
/// The largest list with a log of writes that is copied, in bytes.
const COPIED_BYTES_MAX: u64 = 256 << 20;
/// Sessions of a list that are compared.
const THREADS_MAX: usize = 1_000_000;

/// The number of the next record, by the id of the session.
type NextOrdinals = HashMap<String, u64>;

/// The lists of all folders of Codex that were met.
#[derive(Debug, Default)]
pub(super) struct CodexLists {
    by_home: RefCell<HashMap<PathBuf, NextOrdinals>>,
}

impl CodexLists {
    /// Returns a finding if the list is ahead of the file. While the client has the session open, its list may be ahead.
    pub(super) fn compare(&self, path: &Path, report: &SessionReport) -> Option<SessionFinding> {
        let (last, session) = (report.last_ordinal?, report.session.as_ref()?);
        let home = home_above(path, SessionClient::Codex).or_else(|| client_home(SessionClient::Codex));
        let home = home.filter(|_| report.client == SessionClient::Codex)?;
        let mut lists = self.by_home.borrow_mut();
        let list = lists.entry(home).or_insert_with_key(|home| read_list(home));
        let next = list.get(session).copied()?;
        let code = SessionCode::Damage(Damage::ProjectionAhead);
        (next > last.saturating_add(1)).then(|| SessionFinding {
            id: session.clone(),
            ..SessionFinding::told(code, report.lines, report.bytes, 0)
        })
    }
}

/// Reads the list in a folder of Codex. Empty if there is none, or none that can be read.
fn read_list(home: &Path) -> NextOrdinals {
    let path = home.join(NAME);
    // Older versions keep none.
    if !path.is_file() {
        return NextOrdinals::new();
    }
    let read = DatabaseSnapshot::take(&path, COPIED_BYTES_MAX).and_then(|snapshot| {
        let list = query_list(&snapshot).map_err(|error| describe_error(&error))?;
        snapshot.check_unchanged()?;
        Ok(list)
    });
    read.unwrap_or_else(|told| {
        write_note(&format!(
            "antiphon: {}: no session is compared with this list: {told}",
            shown_path(&path)
        ));
        NextOrdinals::new()
    })
}

fn query_list(snapshot: &DatabaseSnapshot) -> rusqlite::Result<NextOrdinals> {
    const WANTED: &[&str] = &["thread_id", "next_rollout_ordinal"];
    let table = "thread_history_projection_state";
    if !snapshot.has_columns(table, WANTED)? {
        return Ok(NextOrdinals::new());
    }
    let mut query = snapshot.connection.prepare(&format!(
        "SELECT thread_id, next_rollout_ordinal FROM {table} LIMIT {THREADS_MAX}"
    ))?;
    let mut rows = query.query([])?;
    let mut list = NextOrdinals::new();
    while let Some(row) = rows.next()? {
        let next: i64 = row.get(1)?;
        list.insert(row.get(0)?, u64::try_from(next).unwrap_or_default());
    }
    Ok(list)
}
