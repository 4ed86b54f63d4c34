//! A database as it is at one moment, read without a lock that its program could meet.
//!
//! SQLite writes beside a database even to read it, as long as it has a log of writes (`-wal`). So a database with such
//! a log is copied to a private folder with it. One without it is read in its place, as a file that does not change.

use std::{
    fs::{self, File, Metadata},
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use rusqlite::{Connection, OpenFlags};

use super::file_facts::describe_fault;
use crate::server::regular_file::open_regular;

/// The beginning of every database of SQLite.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// The beginning of a log of writes, which changes when the log begins anew.
const LOG_HEAD_BYTES: u64 = 32;
/// Attempts to copy a database while its program writes.
const ATTEMPTS: usize = 5;
/// The files beside a database that belong to it.
const LOG_ENDINGS: [&str; 2] = ["-wal", "-journal"];

/// Returns `true` if a file begins like a database.
pub(super) fn is_database(path: &Path) -> bool {
    let mut head = [0; MAGIC.len()];
    open_regular(path).is_ok_and(|mut file| file.read_exact(&mut head).is_ok()) && head == *MAGIC
}

/// A database that is open for reading.
#[derive(Debug)]
pub(super) struct DatabaseSnapshot {
    /// Closed before the copy is removed.
    pub(super) connection: Connection,
    _copy: Option<PrivateFolder>,
    /// The file that is read in its place, and its state. `None` for a copy.
    in_place: Option<(PathBuf, FileState)>,
}

/// The state of a database, which a write to it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileState {
    size: u64,
    modified: Option<SystemTime>,
    /// Beginnings of the logs beside it. Empty if there is none.
    logs: Vec<Vec<u8>>,
}

impl DatabaseSnapshot {
    /// Opens the database. One with a log of writes is copied up to `copied_max` bytes. Fails with the reason.
    pub(super) fn take(path: &Path, copied_max: u64) -> Result<Self, String> {
        let file = open_regular(path).map_err(|error| describe_fault(&error))?;
        let metadata = file.metadata().map_err(|error| describe_fault(&error))?;
        if metadata.len() == 0 {
            return Err("not read: the database is empty".to_owned());
        }
        if !is_database(path) {
            return Err("not read: it is no database".to_owned());
        }
        let logs = logs_beside(path);
        let opened = if logs.is_empty() {
            let state = FileState::read(path).map_err(|error| describe_fault(&error))?;
            open_in_place(path).map(|connection| Self {
                connection,
                _copy: None,
                in_place: Some((path.to_owned(), state)),
            })
        } else {
            let size = total_size(&metadata, &logs);
            if size > copied_max {
                return Err(format!(
                    "not read: the database and its log have {size} bytes, and at most {copied_max} are copied: end its \
                     program, which folds the log in, then run this again"
                ));
            }
            let copy = copy_database(path, copied_max).map_err(|error| describe_copy_fault(&error))?;
            open_copy(&copy.path.join(COPY_NAME)).map(|connection| Self {
                connection,
                _copy: Some(copy),
                in_place: None,
            })
        };
        opened.map_err(|error| describe_error(&error))
    }

    /// Returns `true` if there is a table with these columns. A view of that name could compute anything.
    pub(super) fn has_columns(&self, table: &str, columns: &[&str]) -> rusqlite::Result<bool> {
        let mut query = self.connection.prepare(
            "SELECT count(*) FROM sqlite_schema AS known, pragma_table_xinfo(known.name) AS member \
             WHERE known.type = 'table' AND known.sql NOT LIKE 'CREATE VIRTUAL%' AND known.name = ?1 \
             AND member.name = ?2 AND member.hidden = 0",
        )?;
        for column in columns {
            let found: i64 = query.query_row([table, column], |row| row.get(0))?;
            if found != 1 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Checks that a database that is read in its place is still the same. Fails with the reason.
    pub(super) fn check_unchanged(&self) -> Result<(), String> {
        let Some((path, before)) = &self.in_place else {
            return Ok(());
        };
        match FileState::read(path) {
            Ok(now) if now == *before => Ok(()),
            Ok(_) => Err("not read: its program has begun to write to the database: run this again".to_owned()),
            Err(error) => Err(describe_fault(&error)),
        }
    }
}

impl FileState {
    fn read(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        let mut logs = Vec::new();
        for log in logs_beside(path) {
            let mut head = Vec::new();
            File::open(log)?.take(LOG_HEAD_BYTES).read_to_end(&mut head)?;
            logs.push(head);
        }
        Ok(Self {
            size: metadata.len(),
            modified: metadata.modified().ok(),
            logs,
        })
    }
}

/// Returns the logs of a database that are not empty.
fn logs_beside(path: &Path) -> Vec<PathBuf> {
    let logs = LOG_ENDINGS.iter().map(|ending| with_ending(path, ending));
    logs.filter(|log| fs::metadata(log).is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0))
        .collect()
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

fn total_size(metadata: &Metadata, logs: &[PathBuf]) -> u64 {
    let sizes = logs.iter().map(|log| fs::metadata(log).map_or(0, |log| log.len()));
    sizes.fold(metadata.len(), u64::saturating_add)
}

/// Opens a file that nobody writes to, without any file beside it.
fn open_in_place(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let absolute = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let connection =
        Connection::open_with_flags(format!("file:{}?mode=ro&immutable=1", escaped_path(&absolute)), flags)?;
    harden(connection)
}

/// Opens a private copy, in which SQLite folds the log in.
fn open_copy(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    harden(Connection::open_with_flags(path, flags)?)
}

/// Has a connection trust nothing that the file says, and write nothing.
fn harden(connection: Connection) -> rusqlite::Result<Connection> {
    connection.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA query_only = ON;")?;
    Ok(connection)
}

/// Returns a path as an address of a file has it.
fn escaped_path(path: &Path) -> String {
    let text = path.as_os_str().as_encoded_bytes();
    // A path of Windows begins with a letter, and one with `\\?\` is its long form.
    let text = text.strip_prefix(br"\\?\").unwrap_or(text);
    let root = if text.first() == Some(&b'/') { "" } else { "/" };
    let letters = text.iter().map(|byte| match byte {
        b'\\' if cfg!(windows) => "/".to_owned(),
        byte if byte.is_ascii_alphanumeric() || b"/._-~:".contains(byte) => char::from(*byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    root.to_owned() + &letters.collect::<String>()
}

/// The name of a copy.
const COPY_NAME: &str = "copy.db";

/// Copies a database with its logs as it is at one moment.
fn copy_database(path: &Path, copied_max: u64) -> io::Result<PrivateFolder> {
    for _ in 0..ATTEMPTS {
        let folder = PrivateFolder::create()?;
        let before = FileState::read(path)?;
        copy_file(path, &folder.path.join(COPY_NAME), copied_max)?;
        for ending in LOG_ENDINGS {
            let copy = folder.path.join(format!("{COPY_NAME}{ending}"));
            match copy_file(&with_ending(path, ending), &copy, copied_max) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        // What is appended to a log meanwhile is whole or left out. Only a log that was folded in does not fit.
        if FileState::read(path)? == before {
            return Ok(folder);
        }
    }
    Err(io::Error::new(
        io::ErrorKind::ResourceBusy,
        "its program writes to the database all the time: wait a moment, then run this again",
    ))
}

/// Copies the bytes of a file, and not its mode.
fn copy_file(from: &Path, to: &Path, bytes_max: u64) -> io::Result<()> {
    let mut source = open_regular(from)?.take(bytes_max);
    io::copy(&mut source, &mut File::create_new(to)?)?;
    Ok(())
}

fn describe_copy_fault(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "not read: no room for a private copy in the folder for temporary files".to_owned()
        }
        io::ErrorKind::ResourceBusy => format!("not read: {error}"),
        _ => format!("not read: the private copy could not be made: {error}"),
    }
}

/// Says why a database cannot be read, and what to do.
pub(super) fn describe_error(error: &rusqlite::Error) -> String {
    use rusqlite::ErrorCode;

    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => "not read: it is no database".to_owned(),
        Some(ErrorCode::DatabaseCorrupt) => {
            "not read: the database is damaged; sqlite3 FILE .recover reads what is left of it".to_owned()
        }
        Some(ErrorCode::DiskFull) => {
            "not read: no room for a private copy in the folder for temporary files".to_owned()
        }
        // Other texts of SQLite may quote what they have met.
        Some(code) => format!("not read: the database cannot be read ({code:?})"),
        None => "not read: a column of the database has a type that this version does not know".to_owned(),
    }
}

/// A folder of this user alone, which is removed at the end.
#[derive(Debug)]
struct PrivateFolder {
    path: PathBuf,
}

impl PrivateFolder {
    fn create() -> io::Result<Self> {
        let name = format!("antiphon-doctor-{}", uuid::Uuid::new_v4());
        let path = std::env::temp_dir().join(name);
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path)?;
        Ok(Self { path })
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_any_path() {
        for (path, wanted) in [
            ("/h/opencode.db", "/h/opencode.db"),
            ("/h/a b?c#d%.db", "/h/a%20b%3Fc%23d%25.db"),
            ("/h/ä", "/h/%C3%A4"),
        ] {
            assert_eq!(escaped_path(Path::new(path)), wanted);
        }
    }
}
