//! `antiphon doctor --fix`: mends one session in place. No byte moves, and every step can be taken back.

use std::{
    fs::{File, Metadata, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use super::{
    changes::{ChangeSide, FileChanges},
    file_digest::DigestReader,
    journal::{FixJournal, FixManifest, list_journals, lock_root},
    live::{LiveSigns, LiveTarget},
    places::shown_path,
    reading::{SessionReading, UnreadFile, read_session},
    restore::{restore_file, restore_times},
    session_doctor::SessionDoctor,
    weights::count_weights,
};
use crate::{
    clock,
    sessions::{FixKind, SessionReport},
};

/// The mending of one session.
pub(super) struct FixJob<'j> {
    pub(super) doctor: &'j dyn SessionDoctor,
    /// The folder of all fixes.
    pub(super) root: &'j Path,
    pub(super) path: &'j Path,
    /// The name of the session, for commands that are advised.
    pub(super) name: &'j str,
    pub(super) is_dry_run: bool,
    pub(super) is_forced: bool,
}

/// The end of a fix.
#[derive(Debug)]
pub(super) struct FixDone {
    /// The file before the fix.
    pub(super) before: SessionReading,
    /// The file after it, or after a fix that was only shown.
    pub(super) after: SessionReport,
    pub(super) changes: FileChanges,
    /// The folder of the fix. `None` if nothing was written.
    pub(super) journal: Option<PathBuf>,
}

/// The reason why a session was not mended.
#[derive(Debug, thiserror::Error)]
pub(super) enum FixFault {
    /// The file was not read.
    #[error(transparent)]
    Unread(#[from] UnreadFile),
    /// Nothing was written, or everything was taken back.
    #[error("{0}")]
    Refused(String),
}

impl From<io::Error> for FixFault {
    fn from(error: io::Error) -> Self {
        Self::Refused(match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "the disk is full, so nothing is written: make room, then run this again".to_owned()
            }
            // The text says what to do.
            io::ErrorKind::InvalidData | io::ErrorKind::FileTooLarge | io::ErrorKind::ResourceBusy => error.to_string(),
            _ => format!("nothing is written: {error}"),
        })
    }
}

impl FixJob<'_> {
    /// Mends the session, or shows how it would be.
    pub(super) fn run(&self) -> Result<FixDone, FixFault> {
        // Links to the file stay, and what is written is the file itself.
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.to_owned());
        let before = read_session(self.doctor, &path)?;
        if before.is_compressed {
            let told = "it is compressed, and is only read: unpack it with unzstd, and mend the unpacked file";
            return Err(FixFault::Refused(told.to_owned()));
        }
        let mut session = OpenSession::open(&path)?;
        let _root = if self.is_dry_run {
            None
        } else {
            Some(lock_root(self.root, false)?)
        };
        self.refuse_unfinished(&path)?;
        let target = LiveTarget::of_file(before.report.client, &path, before.report.session.as_deref());
        // A fix that is only shown bothers no client.
        let _locks = if self.is_dry_run {
            Vec::new()
        } else {
            self.refuse_live(&target)?
        };
        let edits = self.doctor.plan_edits(&mut session.file)?;
        let changes = FileChanges::resolve(&edits, &mut session.file)?;
        let planned = Self::simulate(self.doctor, &session, &changes)?;
        if changes.is_empty() || self.is_dry_run {
            return Ok(FixDone {
                before,
                after: planned.report,
                changes,
                journal: None,
            });
        }
        refuse_worse(&before.report, &planned.report)?;
        let manifest = session.manifest(&path, &before.report, changes, &planned)?;
        let journal = FixJournal::create(self.root, &manifest, &session.file)?;
        // What another program writes from here on is not overwritten, and its size shows it.
        let told = if session.is_untouched(&path) {
            LiveSigns::gather().state_while_held(&target).refusal(self.is_forced)
        } else {
            Some(changed_meanwhile(&path))
        };
        if let Some(told) = told {
            drop(std::fs::remove_dir_all(&journal.folder));
            return Err(FixFault::Refused(told));
        }
        let written = session
            .write_changes(&path, &manifest)
            .and_then(|()| self.verify(&session, &manifest));
        match written {
            Ok(after) => {
                journal.mark_ended().map_err(|error| self.unmarked(&error))?;
                Ok(FixDone {
                    before,
                    after,
                    changes: manifest.changes,
                    journal: Some(journal.folder),
                })
            }
            Err(error) => Err(self.take_back(&session, &manifest, &journal, &error)),
        }
    }

    fn unmarked(&self, error: &io::Error) -> FixFault {
        FixFault::Refused(format!(
            "it is mended, but the end of the fix could not be noted ({error}): run antiphon doctor --undo {}, and mend it anew",
            self.name
        ))
    }

    /// Refuses a session whose last fix was stopped midway.
    fn refuse_unfinished(&self, path: &Path) -> Result<(), FixFault> {
        for journal in list_journals(self.root)?
            .iter()
            .filter(|journal| journal.is_unfinished())
        {
            // A manifest that cannot be read is told by --undo.
            if journal.read_manifest().is_ok_and(|manifest| manifest.path == path) {
                return Err(FixFault::Refused(format!(
                    "an earlier fix of this session was stopped midway: first run antiphon doctor --undo {}",
                    self.name
                )));
            }
        }
        Ok(())
    }

    /// Refuses a session that is in use. Returns the client's own locks.
    fn refuse_live(&self, target: &LiveTarget) -> Result<Vec<File>, FixFault> {
        let (state, locks) = match LiveSigns::gather().take_session(target) {
            Ok(taken) => taken,
            Err(state) => (state, Vec::new()),
        };
        match state.refusal(self.is_forced) {
            Some(told) => Err(FixFault::Refused(told)),
            None => Ok(locks),
        }
    }

    /// Reads the file as it will be, before anything is written.
    fn simulate(
        doctor: &dyn SessionDoctor,
        session: &OpenSession,
        changes: &FileChanges,
    ) -> Result<PlannedFile, FixFault> {
        let mut file = &session.file;
        file.rewind()?;
        let digest_before = DigestReader::new(file.take(changes.size_before)).finish()?;
        file.rewind()?;
        let mut view = DigestReader::new(changes.view(file, ChangeSide::New));
        let report = doctor.scan_file(&mut view)?.map_err(|reason| {
            FixFault::Refused(format!(
                "the mended file could not be read ({reason}), so nothing is written: please report this"
            ))
        })?;
        Ok(PlannedFile {
            report,
            digest_before,
            digest_after: view.finish()?,
        })
    }

    /// Reads the file again after the fix.
    fn verify(&self, session: &OpenSession, manifest: &FixManifest) -> Result<SessionReport, WriteFault> {
        let mut file = &session.file;
        file.rewind()?;
        let mut input = DigestReader::new(file);
        let scanned = self.doctor.scan_file(&mut input)?;
        let is_as_planned = input.finish()? == manifest.digest_after;
        scanned.ok().filter(|_| is_as_planned).ok_or(WriteFault::Differs)
    }

    /// Takes a fix back that did not succeed. Returns the error for the user.
    fn take_back(
        &self,
        session: &OpenSession,
        manifest: &FixManifest,
        journal: &FixJournal,
        error: &WriteFault,
    ) -> FixFault {
        let restored = match error {
            WriteFault::Raced => session.blank_appended(manifest),
            WriteFault::Io(_) | WriteFault::Differs => restore_file(&session.file, manifest).map_err(io::Error::other),
        };
        FixFault::Refused(match restored.and_then(|()| journal.mark_undone()) {
            Ok(()) => format!("{error}; everything was taken back"),
            Err(failed) => format!(
                "{error}, and taking it back has failed too ({failed}): end every program that uses the file, then run \
                 antiphon doctor --undo {}",
                self.name
            ),
        })
    }
}

/// A file as it will be.
struct PlannedFile {
    report: SessionReport,
    digest_before: String,
    digest_after: String,
}

/// A failure after the first byte was written.
#[derive(Debug, thiserror::Error)]
enum WriteFault {
    #[error("the file could not be written: {0}")]
    Io(#[from] io::Error),
    /// The client has written at the same time.
    #[error("another program has written to the file at the same time: end it, then run this again")]
    Raced,
    #[error("the file is not as planned after the fix")]
    Differs,
}

/// A session file that is open for writing in place.
struct OpenSession {
    file: File,
    metadata: Metadata,
}

impl OpenSession {
    fn open(path: &Path) -> Result<Self, FixFault> {
        let refused = |told: &str| FixFault::Refused(told.to_owned());
        let opened = OpenOptions::new().read(true).write(true).open(path);
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => refused("no permission to write it: run this as its owner"),
            io::ErrorKind::ReadOnlyFilesystem => {
                refused("it is on a disk that cannot be written: copy it elsewhere, and mend the copy")
            }
            _ => FixFault::from(error),
        })?;
        let metadata = file.metadata()?;
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(refused("it belongs to another user: run this as its owner"));
        }
        if metadata.nlink() > 1 {
            return Err(FixFault::Refused(format!(
                "it has {} hard links, which a fix would change too: copy it elsewhere, and mend the copy",
                metadata.nlink()
            )));
        }
        match file.try_lock() {
            Ok(()) => Ok(Self { file, metadata }),
            Err(TryLockError::WouldBlock) => Err(refused(
                "another program has locked it, such as a second antiphon doctor: wait for it, then run this again",
            )),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }

    fn manifest(
        &self,
        path: &Path,
        report: &SessionReport,
        changes: FileChanges,
        planned: &PlannedFile,
    ) -> Result<FixManifest, FixFault> {
        if changes.size_before != self.metadata.len() {
            return Err(FixFault::Refused(
                "it has grown meanwhile: end its client, then run this again".to_owned(),
            ));
        }
        Ok(FixManifest {
            path: path.to_owned(),
            client: report.client,
            session: report.session.clone(),
            made_at: clock::rfc3339_date(clock::system_time()),
            device: self.metadata.dev(),
            inode: self.metadata.ino(),
            modified: (
                u64::try_from(self.metadata.mtime()).unwrap_or_default(),
                u32::try_from(self.metadata.mtime_nsec()).unwrap_or_default(),
            ),
            digest_before: planned.digest_before.clone(),
            digest_after: planned.digest_after.clone(),
            changes,
        })
    }

    /// Returns `true` if the path still leads to this file, and nobody has written to it.
    fn is_untouched(&self, path: &Path) -> bool {
        let facts = |metadata: &Metadata| {
            let time = (metadata.mtime(), metadata.mtime_nsec());
            (metadata.dev(), metadata.ino(), metadata.len(), time)
        };
        let known = facts(&self.metadata);
        let (of_path, of_file) = (std::fs::metadata(path), self.file.metadata());
        [of_path, of_file]
            .into_iter()
            .all(|found| found.is_ok_and(|found| facts(&found) == known))
    }

    /// Appends, overwrites, and puts the time of the last write back.
    fn write_changes(&self, path: &Path, manifest: &FixManifest) -> Result<(), WriteFault> {
        let changes = &manifest.changes;
        if !changes.appended.is_empty() {
            let mut end = OpenOptions::new().append(true).open(path)?;
            if end.metadata()?.ino() != self.metadata.ino() {
                return Err(WriteFault::Raced);
            }
            // In one write, so that records of a client stay whole, and behind them if it writes at this moment.
            end.write_all(&changes.appended)?;
            end.sync_all()?;
            if end.metadata()?.len() != changes.size_after() {
                return Err(WriteFault::Raced);
            }
        }
        changes.write_side(ChangeSide::New, |at, bytes| self.file.write_all_at(bytes, at))?;
        self.file.sync_all()?;
        Ok(restore_times(&self.file, manifest)?)
    }

    /// Overwrites what was appended by spaces, because a client has written around it.
    fn blank_appended(&self, manifest: &FixManifest) -> io::Result<()> {
        let appended = manifest.changes.appended.trim_ascii();
        let mut file = &self.file;
        file.seek(SeekFrom::Start(manifest.changes.size_before))?;
        let mut tail = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut tail)?;
        let Some(at) = memchr::memmem::find(&tail, appended) else {
            return Ok(());
        };
        let spaces: Vec<u8> = appended
            .iter()
            .map(|byte| if *byte == b'\n' { b'\n' } else { b' ' })
            .collect();
        let at = manifest
            .changes
            .size_before
            .saturating_add(u64::try_from(at).unwrap_or(u64::MAX));
        self.file.write_all_at(&spaces, at)?;
        self.file.sync_all()
    }
}

/// Bytes behind the old end in which an appended record is looked for.
const TAIL_BYTES: u64 = 128 * 1024 * 1024;

/// Refuses a plan after which the file would be no better.
fn refuse_worse(before: &SessionReport, after: &SessionReport) -> Result<(), FixFault> {
    let mendable = |report: &SessionReport| {
        report
            .findings
            .iter()
            .filter(|finding| finding.fix != FixKind::Told)
            .count()
    };
    let (old, new) = (count_weights(before), count_weights(after));
    let is_worse = new.errors > old.errors || new.errors + new.warnings > old.errors + old.warnings;
    if is_worse || mendable(after) >= mendable(before) {
        let told = "the planned fix would not make this file better, so nothing is written: please report this, with \
                    the version of the client";
        return Err(FixFault::Refused(told.to_owned()));
    }
    Ok(())
}

fn changed_meanwhile(path: &Path) -> String {
    format!(
        "another program has changed {} meanwhile, so nothing is written: end it, then run this again",
        shown_path(path)
    )
}
