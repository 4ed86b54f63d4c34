//! Reads the rows of a ledger file without the code under test: layout 1, byte for byte, as lines of text.

use std::{fs, path::Path};

use rusqlite::{Connection, OpenFlags};

use crate::{
    frozen::golden::{self, freeze},
    support::state,
};

/// One row of the file.
pub(crate) struct Row {
    pub(crate) kind: u8,
    pub(crate) principal: [u8; 32],
    pub(crate) name: [u8; 32],
    pub(crate) index: Option<[u8; 16]>,
    pub(crate) value: Vec<u8>,
    pub(crate) version: u64,
    pub(crate) made_at: u64,
    pub(crate) expires_at: u64,
}

const NANOS: u64 = 1_000_000_000;

fn open(path: &Path) -> Connection {
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
}

/// Returns every row in insertion order.
pub(crate) fn rows(path: &Path) -> Vec<Row> {
    let connection = open(path);
    let columns = "kind, principal, name, idx, value, version, made_at, expires_at";
    let sql = format!("SELECT {columns} FROM records ORDER BY place");
    let mut statement = connection.prepare(&sql).unwrap();
    let number = |row: &rusqlite::Row<'_>, at| row.get::<_, i64>(at).map(i64::unsigned_abs);
    let rows = statement.query_map([], |row| {
        Ok(Row {
            kind: row.get(0)?,
            principal: row.get(1)?,
            name: row.get(2)?,
            index: row.get(3)?,
            value: row.get(4)?,
            version: number(row, 5)?,
            made_at: number(row, 6)?,
            expires_at: number(row, 7)?,
        })
    });
    rows.unwrap().map(Result::unwrap).collect()
}

/// Returns the file's own numbers, tables and indexes.
fn schema(path: &Path) -> Vec<String> {
    let connection = open(path);
    let number = |name: &str| {
        let number = connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
        format!("file: {name} {}", number.unwrap())
    };
    let mut facts = vec![number("application_id"), number("user_version")];
    let sql = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name";
    let mut statement = connection.prepare(sql).unwrap();
    let lines = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    facts.extend(lines.map(|line| format!("file: {}", line.unwrap())));
    facts
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The unread bytes of a value.
struct Value<'v>(&'v [u8]);

impl<'v> Value<'v> {
    fn take(&mut self, length: usize) -> &'v [u8] {
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn hash(&mut self) -> String {
        hex(self.take(32))
    }

    fn maybe(&mut self) -> String {
        match self.byte() {
            0 => "-".to_owned(),
            1 => self.hash(),
            other => panic!("flag {other}"),
        }
    }

    fn text(&mut self) -> String {
        let length = u64::from_le_bytes(self.take(8).try_into().unwrap());
        format!(
            "{:?}",
            String::from_utf8(self.take(usize::try_from(length).unwrap()).to_vec()).unwrap()
        )
    }

    /// Returns a moment as whole hours after the creation of the row.
    fn hours(&mut self, made_at: u64) -> String {
        let seconds = u64::from_le_bytes(self.take(8).try_into().unwrap());
        let nanos = u32::from_le_bytes(self.take(4).try_into().unwrap());
        assert!(u64::from(nanos) < NANOS);
        hours(seconds, made_at)
    }

    fn posted(&mut self, version: u8, made_at: u64) -> String {
        let is_apart = version > 1 && self.byte() == 1;
        let content = if is_apart {
            format!("{} bytes", u64::from_le_bytes(self.take(8).try_into().unwrap()))
        } else {
            self.text()
        };
        let (failed, digest) = (self.byte(), self.hash());
        let (at, service, attached) = (self.hours(made_at), self.text(), self.byte());
        format!("content={content} failed={failed} digest={digest} at={at} service={service} attached={attached}")
    }

    fn end(&self) {
        assert!(self.0.is_empty(), "{} bytes are left", self.0.len());
    }
}

/// Returns seconds since 1970 as whole hours after the creation of the row, rounded.
fn hours(seconds: u64, made_at: u64) -> String {
    let since = seconds.cast_signed() - (made_at / NANOS).cast_signed();
    format!("{}h", (since + 1800).div_euclid(3600))
}

fn call(value: &mut Value<'_>, version: u8, made_at: u64) -> String {
    let (account, lane, session) = (value.hash(), value.maybe(), value.maybe());
    let strong = value.byte();
    let (id, tool, input) = (value.text(), value.text(), value.maybe());
    let tier = value.byte();
    let [opened, heard, deadline, expires] = [(); 4].map(|()| value.hours(made_at));
    let state = value.byte();
    let posted = match value.byte() {
        0 => "-".to_owned(),
        _ => value.posted(version, made_at),
    };
    let withheld = if version > 1 {
        {
            let flags = [value.byte(), value.byte(), value.byte()];
            let label = if value.byte() == 1 {
                value.text()
            } else {
                "-".to_owned()
            };
            let intent = if version > 2 {
                format!(
                    " intent_input={} intent={} origin={}",
                    value.maybe(),
                    value.maybe(),
                    value.maybe()
                )
            } else {
                String::new()
            };
            let in_request = if version > 3 {
                format!(" in_request={}", value.byte())
            } else {
                String::new()
            };
            format!(" flags={flags:?} label={label}{intent}{in_request}")
        }
    } else {
        String::new()
    };
    format!(
        "account={account} lane={lane} session={session} strong={strong} id={id} tool={tool} input={input} tier={tier} \
         opened={opened} heard={heard} deadline={deadline} expires={expires} state={state}{withheld} posted: {posted}"
    )
}

fn parked(value: &mut Value<'_>, version: u8, made_at: u64) -> String {
    let id = value.text();
    let owner = match value.byte() {
        0 => "-".to_owned(),
        _ => hex(value.take(16)),
    };
    let posted = value.posted(version, made_at);
    if version > 1 {
        assert_eq!(
            [value.byte(), value.byte()],
            [0, 0],
            "no scene names a session or a tool"
        );
    }
    format!("id={id} owner={owner} posted: {posted}")
}

fn answer(value: &mut Value<'_>) -> String {
    let (firm, kind) = (value.byte(), char::from(value.byte()));
    let said = match kind {
        'p' => value.byte().to_string(),
        _ => format!("{:?}", std::str::from_utf8(value.take(value.0.len())).unwrap()),
    };
    format!("firm={firm} kind={kind} {said}")
}

fn anchor(value: &mut Value<'_>) -> String {
    let calls: Vec<String> = (0..value.byte()).map(|_| value.hash()).collect();
    let text = std::str::from_utf8(value.take(value.0.len())).unwrap();
    format!("calls={} {text:?}", calls.join(","))
}

/// Returns the fields of a value. Panics if it has another layout.
fn said(row: &Row) -> String {
    let mut value = Value(&row.value);
    let head = |value: &mut Value<'_>, form: &[u8]| {
        let found = value.take(form.len());
        assert_eq!(found, form, "the first bytes of a value of kind {}", row.kind);
    };
    let said = match row.kind {
        1 => String::new(),
        2 => {
            let version = value.byte();
            head(&mut value, &[1]);
            call(&mut value, version, row.made_at)
        }
        3 | 9 => {
            head(&mut value, &[1]);
            answer(&mut value)
        }
        4 => {
            head(&mut value, &[1]);
            anchor(&mut value)
        }
        5 => {
            head(&mut value, &[1]);
            match value.byte() {
                4 => String::new(),
                5 => "received".to_owned(),
                other => panic!("state {other}"),
            }
        }
        6 => {
            let version = value.byte();
            head(&mut value, &[2]);
            parked(&mut value, version, row.made_at)
        }
        7 => {
            let version = value.byte();
            head(&mut value, &[3]);
            let (id, why) = (value.text(), value.byte());
            format!("id={id} why={why} posted: {}", value.posted(version, row.made_at))
        }
        17 => "read".to_owned(),
        21 => {
            head(&mut value, &[1]);
            let (fact, about) = (value.byte(), value.hash());
            format!("fact={fact} about={about} {}", hex(value.take(value.0.len())))
        }
        22 => {
            head(&mut value, &[1]);
            format!("verdict={}", char::from(value.byte()))
        }
        23 => {
            head(&mut value, &[1, 1]);
            let count = u64::from_be_bytes(value.take(8).try_into().unwrap());
            format!("items={count} chain={} reasoning={}", value.hash(), value.byte())
        }
        8 | 11 => format!("{:?}", std::str::from_utf8(value.take(row.value.len())).unwrap()),
        other => panic!("kind {other}"),
    };
    value.end();
    said
}

/// Returns each record as one line, sorted. `lives` adds its lifetime.
fn lines(path: &Path, lives: bool) -> Vec<String> {
    let line = |row: &Row| {
        let principal = hex(&row.principal);
        // Made with the URL of the server, whose port is another one in each run.
        let name = if row.kind == 22 {
            "varies".to_owned()
        } else {
            hex(&row.name)
        };
        let index = row.index.map_or_else(|| "-".to_owned(), |index| hex(&index));
        let lives = if lives {
            format!(" lives={}", hours(row.expires_at / NANOS, row.made_at))
        } else {
            String::new()
        };
        let (kind, version) = (row.kind, row.version);
        let said = said(row);
        format!("record {kind} principal={principal} name={name} index={index} version={version}{lives} {said}")
    };
    let mut lines: Vec<String> = rows(path)
        .iter()
        .map(line)
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.sort();
    lines
}

/// Returns everything in a file, one fact per line.
pub(crate) fn facts(path: &Path, lives: bool) -> String {
    let facts = schema(path).into_iter().chain(lines(path, lives));
    facts.map(|line| line + "\n").collect()
}

/// Returns the identity of a record: its kind, its principal and its name.
fn identity(line: &str) -> String {
    line.split(' ').take(4).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_frozen_file_contains_the_written_records() {
    if !freeze().is_empty() {
        // With `FREEZE`, another test is writing the compared files.
        return;
    }
    let written = fs::read_to_string(golden::path("ledger-v1-records.txt")).unwrap();
    // A copy, because SQLite writes files beside the one that it opens.
    let copy = state::directory().join("ledger.db");
    fs::copy(golden::path("ledger-v1.db"), &copy).unwrap();
    let kept = facts(&copy, false);
    // Today's names of late texts add the call before them. `reading` shows that the old names are found too.
    let is_compared = |line: &&str| !line.starts_with("record 4 ");
    let [written, kept] =
        [&written, &kept].map(|facts| facts.lines().filter(is_compared).map(identity).collect::<Vec<_>>());
    // Today's proxy records more calls than version 0.1 did.
    let lost: Vec<&String> = kept.iter().filter(|line| !written.contains(line)).collect();
    assert!(
        lost.is_empty(),
        "today's proxy does not write these records of tests/frozen/ledger-v1.db: a ledger of version 0.1 cannot be \
         read: {lost:#?}"
    );
}
