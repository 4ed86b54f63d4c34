//! Sessions read in their order, small ones on all cores at once.

use std::{
    io, iter,
    num::NonZero,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::{
    reading::{SessionReading, UnreadFile, read_session},
    session_doctor::CoreDoctor,
    walk::FoundFile,
};

/// Largest file that is read beside others, in bytes. Larger ones are read alone, so that memory stays that of one file.
const SMALL_BYTES_MAX: u64 = 1024 * 1024;
/// Small files that are read before their results are told.
const AHEAD: usize = 64;

/// The result of reading a file.
pub(super) type ReadOutcome = Result<SessionReading, UnreadFile>;

/// Reads files, and gives each one with its result, in their order. `read_stored` reads a session of a database.
///
/// # Errors
///
/// Those of `each`, which end the reading.
pub(super) fn read_files(
    files: &[FoundFile],
    read_stored: impl Fn(&Path, &str) -> ReadOutcome,
    mut each: impl FnMut(&FoundFile, ReadOutcome) -> io::Result<()>,
) -> io::Result<()> {
    let mut left = files;
    while let Some(first) = left.first() {
        let is_small = |file: &&FoundFile| file.bytes <= SMALL_BYTES_MAX && file.stored.is_none();
        let small = left.iter().take(AHEAD).take_while(is_small).count();
        let (group, rest) = left.split_at_checked(small).unwrap_or_default();
        if group.is_empty() {
            let read = match &first.stored {
                Some(id) => read_stored(&first.path, id),
                None => read_session(&CoreDoctor, &first.path),
            };
            each(first, read)?;
            left = left.get(1..).unwrap_or_default();
            continue;
        }
        for (file, result) in group.iter().zip(read_group(group)) {
            each(file, result)?;
        }
        left = rest;
    }
    Ok(())
}

/// Reads some small files. Returns their results in the order of the files.
fn read_group(group: &[FoundFile]) -> Vec<ReadOutcome> {
    let read = |file: &FoundFile| read_session(&CoreDoctor, &file.path);
    let cores = thread::available_parallelism().map_or(1, NonZero::get).min(group.len());
    if cores == 1 {
        return group.iter().map(read).collect();
    }
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(group.len())));
    let work = || {
        let places = iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        for (place, file) in places.map_while(|place| Some((place, group.get(place)?))) {
            let result = read(file);
            done.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((place, result));
        }
    };
    thread::scope(|scope| {
        for _ in 1..cores {
            scope.spawn(work);
        }
        work();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use super::*;

    fn no_database(_path: &Path, _id: &str) -> ReadOutcome {
        Err(UnreadFile::NoContent)
    }

    #[test]
    fn results_come_in_the_order_of_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<FoundFile> = (0..3 * AHEAD)
            .map(|number| {
                let path = folder.path().join(format!("{number}.jsonl"));
                let record = format!(
                    r#"{{"type":"user","uuid":"u","parentUuid":null,"sessionId":"s{number}","message":{{"content":"x"}}}}"#
                );
                // Each eleventh is too large for a group, and each seventh is no session.
                let fill = if number % 11 == 3 { " ".repeat(1024 * 1024) } else { String::new() };
                let text = if number % 7 == 5 { "x\n".to_owned() } else { format!("{record}{fill}\n") };
                fs::write(&path, &text).unwrap();
                FoundFile {
                    path,
                    modified: Duration::ZERO,
                    bytes: text.len() as u64,
                    is_named: false,
                    stored: None,
                }
            })
            .collect();
        let mut seen = 0;
        read_files(&files, no_database, |file, result| {
            assert_eq!(file.path, files[seen].path);
            let session = result.ok().and_then(|reading| reading.report.session);
            let wanted = (seen % 7 != 5).then(|| format!("s{seen}"));
            assert_eq!(session, wanted, "{seen}");
            seen += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, files.len());
        // An error of the output ends the reading.
        let mut told = 0;
        let ended = read_files(&files, no_database, |_, _| {
            told += 1;
            Err(io::ErrorKind::BrokenPipe.into())
        });
        assert_eq!((ended.is_err(), told), (true, 1));
    }
}
