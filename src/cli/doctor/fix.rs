//! `antiphon doctor --fix`: mends one session in place. No byte moves, and every step can be taken back.

use std::{
    fs::{File, Metadata, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use super::{
    changes::{ChangeSide, FileChanges, too_large},
    file_digest::DigestReader,
    journal::{FixJournal, FixManifest, list_journals, lock_root},
    live::{LiveSigns, LiveTarget},
    places::{client_by_place, shown_path},
    progress::ProgressReader,
    reading::{SessionReading, UnreadFile, read_session},
    restore::{restore_file, restore_times},
    session_doctor::SessionDoctor,
    session_documents::session_id,
    weights::count_weights,
};
use crate::{
    clock,
    sessions::{EditFault, FixRefused, SessionClient, SessionEdit, SessionReport},
};

/// Bytes behind the old end in which an appended record is looked for.
const TAIL_BYTES: u64 = 128 * 1024 * 1024;

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

/// A session that was not mended, and the reason.
#[derive(Debug)]
pub(super) struct UnmendedSession {
    pub(super) fault: FixFault,
    /// `None` if it was not read.
    pub(super) client: Option<SessionClient>,
    /// Its id. `None` if it is not known.
    pub(super) session: Option<String>,
}

/// The reason why a session was not mended.
#[derive(Debug, thiserror::Error)]
pub(super) enum FixFault {
    /// No file has the name.
    #[error("{0}")]
    Unknown(String),
    /// The file was not read.
    #[error(transparent)]
    Unread(#[from] UnreadFile),
    /// Nothing was written, or everything was taken back.
    #[error("{0}")]
    Refused(String),
}

impl FixFault {
    /// Returns `true` if nothing is known about what was named.
    pub(super) const fn is_unread(&self) -> bool {
        match self {
            Self::Unknown(_) | Self::Unread(_) => true,
            Self::Refused(_) => false,
        }
    }
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
    pub(super) fn run(&self) -> Result<FixDone, UnmendedSession> {
        // Links to the file stay, and what is written is the file itself.
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.to_owned());
        let before = read_session(self.doctor, &path).map_err(|fault| UnmendedSession {
            fault: fault.into(),
            client: None,
            session: None,
        })?;
        let (client, session) = (Some(before.report.client), session_id(&before.report));
        self.mend(&path, before)
            .map_err(|fault| UnmendedSession { fault, client, session })
    }

    /// Mends a session that was read.
    fn mend(&self, path: &Path, before: SessionReading) -> Result<FixDone, FixFault> {
        if before.is_compressed {
            let told = "it is compressed, and is only read: unpack it with unzstd, and mend the unpacked file";
            return Err(FixFault::Refused(told.to_owned()));
        }
        if !before.report.client.is_mended() {
            return Err(FixFault::Refused(
                FixRefused::OnlyRead(before.report.client).to_string(),
            ));
        }
        let mut session = OpenSession::open(path)?;
        let _root = if self.is_dry_run {
            None
        } else {
            Some(lock_root(self.root, false)?)
        };
        self.refuse_unfinished(path)?;
        let target = LiveTarget::of_file(before.report.client, path, before.report.session.as_deref());
        // A fix that is only shown bothers no client.
        let _locks = if self.is_dry_run {
            Vec::new()
        } else {
            self.refuse_live(&target)?
        };
        if count_weights(&before.report).mendable == 0 {
            return Ok(FixDone {
                after: before.report.clone(),
                before,
                changes: FileChanges::default(),
                journal: None,
            });
        }
        let edits = session.plan_edits(self.doctor)?;
        let changes = FileChanges::resolve(&edits, &mut session.file)?;
        let planned = self.simulate(path, &session, &changes)?;
        if changes.is_empty() || self.is_dry_run {
            return Ok(FixDone {
                before,
                after: planned.report,
                changes,
                journal: None,
            });
        }
        refuse_worse(&before.report, &planned.report)?;
        let manifest = session.manifest(path, &before.report, changes, &planned)?;
        let journal = FixJournal::create(self.root, &manifest, &session.file)?;
        let after = self.write_kept(&session, &target, &manifest, &journal)?;
        Ok(FixDone {
            before,
            after,
            changes: manifest.changes,
            journal: Some(journal.folder),
        })
    }

    /// Writes what the journal keeps, and reads the file again. If that fails, everything is taken back.
    fn write_kept(
        &self,
        session: &OpenSession,
        target: &LiveTarget,
        manifest: &FixManifest,
        journal: &FixJournal,
    ) -> Result<SessionReport, FixFault> {
        // What another program writes from here on is not overwritten, and its size shows it.
        let told = if session.is_untouched(&manifest.path) {
            LiveSigns::gather().state_while_held(target).refusal(self.is_forced)
        } else {
            Some(changed_meanwhile(&manifest.path))
        };
        if let Some(told) = told {
            drop(std::fs::remove_dir_all(&journal.folder));
            return Err(FixFault::Refused(told));
        }
        let written = session.write_changes(manifest);
        match written.and_then(|()| self.verify(session, manifest)) {
            Ok(after) => {
                journal.mark_ended().map_err(|error| self.unmarked(&error))?;
                Ok(after)
            }
            Err(error) => Err(self.take_back(session, manifest, journal, &error)),
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
    fn simulate(&self, path: &Path, session: &OpenSession, changes: &FileChanges) -> Result<PlannedFile, FixFault> {
        let digest_before = {
            let mut input = session.read_anew("taking the digest")?;
            DigestReader::new((&mut input).take(changes.size_before)).finish()?
        };
        let input = session.read_anew("checking the plan")?;
        let mut view = DigestReader::new(changes.view(input, ChangeSide::New));
        let scanned = self.doctor.scan_file(client_by_place(path), &mut view)?;
        let report = scanned.map_err(|reason| {
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
        let mut input = DigestReader::new(session.read_anew("checking the result")?);
        let scanned = self.doctor.scan_file(client_by_place(&manifest.path), &mut input)?;
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
            Ok(()) if matches!(error, WriteFault::Raced) => format!("{error}; what was appended is blank now"),
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

    /// Reads the file from its beginning, with the name of the step for people who wait.
    fn read_anew(&self, step: &'static str) -> io::Result<ProgressReader<&File>> {
        let mut file = &self.file;
        file.rewind()?;
        Ok(ProgressReader::new(file, self.metadata.len(), step))
    }

    fn plan_edits(&self, doctor: &dyn SessionDoctor) -> Result<Vec<SessionEdit>, FixFault> {
        let mut file = self.read_anew("planning")?;
        doctor.plan_edits(&mut file).map_err(refuse_unplanned)
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
    fn write_changes(&self, manifest: &FixManifest) -> Result<(), WriteFault> {
        let changes = &manifest.changes;
        if !changes.appended.is_empty() {
            let mut end = OpenOptions::new().append(true).open(&manifest.path)?;
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

/// Refuses a plan after which as much would be left to mend.
fn refuse_worse(before: &SessionReport, after: &SessionReport) -> Result<(), FixFault> {
    if count_weights(after).mendable < count_weights(before).mendable {
        return Ok(());
    }
    let told = "the planned fix would not make this file better, so nothing is written: please report this, with the \
                version of the client";
    Err(FixFault::Refused(told.to_owned()))
}

/// Says that no plan is known.
fn refuse_unplanned(error: io::Error) -> FixFault {
    if error.kind() != io::ErrorKind::InvalidData {
        return error.into();
    }
    let refused = error.get_ref().and_then(|inner| inner.downcast_ref());
    // That is no fault of the plan.
    if let Some(FixRefused::Unfit {
        fault: EditFault::TooLarge,
        ..
    }) = refused
    {
        return too_large().into();
    }
    FixFault::Refused(format!(
        "no fix is known for this file ({error}), so nothing is written: please report this, with the version of the client"
    ))
}

fn changed_meanwhile(path: &Path) -> String {
    format!(
        "another program has changed {} meanwhile, so nothing is written: end it, then run this again",
        shown_path(path)
    )
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, fs, io::Read};

    use super::*;
    use crate::cli::doctor::journal::list_stopped;
    use crate::sessions::{Damage, FixKind, NotRead, RecordLoss, SessionClient, SessionCode, SessionFinding};

    /// A doctor of NUL bytes. `meanwhile` runs before each scan, with its number: of the file, of the plan, of the result.
    struct NulDoctor<'d> {
        scans: Cell<usize>,
        meanwhile: &'d dyn Fn(usize),
        spares: usize,
    }

    impl SessionDoctor for NulDoctor<'_> {
        fn scan_file(
            &self,
            _place: Option<SessionClient>,
            input: &mut dyn Read,
        ) -> io::Result<Result<SessionReport, NotRead>> {
            self.scans.set(self.scans.get() + 1);
            (self.meanwhile)(self.scans.get());
            let mut bytes = Vec::new();
            input.read_to_end(&mut bytes)?;
            let at = |(at, byte): (usize, &u8)| (*byte == 0).then_some(at as u64);
            let finding = |byte| SessionFinding {
                code: SessionCode::Damage(Damage::NulBytes),
                line: 1,
                byte,
                len: 1,
                id: String::new(),
                lines: Vec::new(),
                fix: FixKind::InPlace,
                loss: RecordLoss::Nothing,
            };
            Ok(Ok(SessionReport {
                client: SessionClient::Codex,
                version: None,
                session: None,
                bytes: bytes.len() as u64,
                lines: 1,
                messages: 1,
                reachable: 1,
                last_ordinal: None,
                findings: bytes.iter().enumerate().filter_map(at).map(finding).collect(),
                unlisted: 0,
            }))
        }

        fn plan_edits(&self, file: &mut ProgressReader<&File>) -> io::Result<Vec<SessionEdit>> {
            (self.meanwhile)(0);
            file.rewind()?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            let places = bytes
                .iter()
                .enumerate()
                .filter(|(_, byte)| **byte == 0)
                .skip(self.spares);
            let mut edits: Vec<SessionEdit> = places
                .map(|(at, _)| SessionEdit::Blank { at: at as u64, len: 1 })
                .collect();
            edits.push(SessionEdit::Append {
                record: b"{\"end\":1}".to_vec(),
            });
            Ok(edits)
        }
    }

    /// A doctor whose plan is the one given, or fails as the core's does.
    struct PlanDoctor<'d> {
        reader: NulDoctor<'d>,
        plan: fn() -> io::Result<Vec<SessionEdit>>,
    }

    impl SessionDoctor for PlanDoctor<'_> {
        fn scan_file(
            &self,
            place: Option<SessionClient>,
            input: &mut dyn Read,
        ) -> io::Result<Result<SessionReport, NotRead>> {
            self.reader.scan_file(place, input)
        }

        fn plan_edits(&self, _file: &mut ProgressReader<&File>) -> io::Result<Vec<SessionEdit>> {
            (self.plan)()
        }
    }

    const DAMAGED: &[u8] = b"{\"a\":1}\n\0\0{\"b\":1}\n";
    const MENDED: &[u8] = b"{\"a\":1}\n  {\"b\":1}\n{\"end\":1}\n";

    /// A folder with a damaged session, in the place of a rollout.
    fn session() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions").join("rollout-s1.jsonl");
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, DAMAGED).unwrap();
        (folder, path)
    }

    fn fix(folder: &Path, path: &Path, spares: usize, meanwhile: &dyn Fn(usize)) -> Result<FixDone, String> {
        let doctor = NulDoctor {
            scans: Cell::new(0),
            meanwhile,
            spares,
        };
        fix_with(&doctor, folder, path)
    }

    fn fix_with(doctor: &dyn SessionDoctor, folder: &Path, path: &Path) -> Result<FixDone, String> {
        let root = folder.join("fixes");
        let job = FixJob {
            doctor,
            root: &root,
            path,
            name: "s1",
            is_dry_run: false,
            is_forced: false,
        };
        job.run().map_err(|unmended| unmended.fault.to_string())
    }

    fn append(path: &Path) {
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(b"{\"new\":1}\n").unwrap();
    }

    #[test]
    fn a_fix_is_as_planned_and_noted_as_ended() {
        let (folder, path) = session();
        let done = fix(folder.path(), &path, 0, &|_| {}).unwrap();
        assert_eq!(fs::read(&path).unwrap(), MENDED);
        assert_eq!((done.before.report.findings.len(), done.after.findings.len()), (2, 0));
        let journal = FixJournal {
            folder: done.journal.unwrap(),
        };
        assert!(!journal.is_unfinished());
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        restore_file(&file, &journal.read_manifest().unwrap()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), DAMAGED);
    }

    /// Whatever the client does before the first write, its bytes stay and nothing else is written.
    #[test]
    fn a_session_that_changes_meanwhile_is_left_alone() {
        for step in [0, 2] {
            let (folder, path) = session();
            let grows = |at: usize| {
                if at == step {
                    append(&path);
                }
            };
            let told = fix(folder.path(), &path, 0, &grows).unwrap_err();
            assert!(told.contains("meanwhile"), "{step}: {told}");
            assert_eq!(fs::read(&path).unwrap(), [DAMAGED, b"{\"new\":1}\n"].concat(), "{step}");
            assert_eq!(list_journals(&folder.path().join("fixes")).unwrap(), [], "{step}");
        }
        let (folder, path) = session();
        let other = folder.path().join("other");
        fs::write(&other, DAMAGED).unwrap();
        let replaces = |at: usize| {
            if at == 2 {
                fs::rename(&other, &path).unwrap();
            }
        };
        let told = fix(folder.path(), &path, 0, &replaces).unwrap_err();
        assert!(told.contains("meanwhile"), "{told}");
        assert_eq!(fs::read(&path).unwrap(), DAMAGED);
    }

    #[test]
    fn a_result_that_is_not_as_planned_is_never_told_as_mended() {
        let (folder, path) = session();
        let changes = |at: usize| {
            if at == 3 {
                let file = OpenOptions::new().write(true).open(&path).unwrap();
                file.write_all_at(b"x", 2).unwrap();
            }
        };
        let told = fix(folder.path(), &path, 0, &changes).unwrap_err();
        assert!(told.contains("--undo s1"), "{told}");
        assert!(
            fs::read(&path).unwrap().starts_with(b"{\"x\":1}"),
            "what another program wrote stays"
        );
        // The next one says so too.
        let told = fix(folder.path(), &path, 0, &|_| {}).unwrap_err();
        assert!(told.contains("stopped midway"), "{told}");
    }

    /// While a fix is under way it has no end mark either, and its lock says that it was not stopped.
    #[test]
    fn a_fix_that_is_under_way_is_not_told_as_stopped() {
        let (folder, path) = session();
        let root = folder.path().join("fixes");
        let seen = Cell::new(0);
        let looks = |at: usize| {
            if at == 3 {
                let unfinished = list_journals(&root)
                    .unwrap()
                    .iter()
                    .filter(|journal| journal.is_unfinished())
                    .count();
                seen.set(unfinished);
                assert_eq!(list_stopped(&root), []);
            }
        };
        let done = fix(folder.path(), &path, 0, &looks).unwrap();
        assert_eq!((seen.get(), list_stopped(&root)), (1, Vec::new()));
        let journal = FixJournal {
            folder: done.journal.unwrap(),
        };
        fs::remove_file(journal.folder.join("ended")).unwrap();
        assert_eq!(list_stopped(&root), [journal]);
    }

    #[test]
    fn a_fix_that_would_append_too_much_is_refused() {
        let appends = || {
            let record = vec![b'1'; 64 * 1024 * 1024 + 1];
            Ok(vec![SessionEdit::Append { record }])
        };
        let is_refused_by_core = || {
            let (code, fault) = (SessionCode::Damage(Damage::JoinedRecords), EditFault::TooLarge);
            Err(FixRefused::Unfit { code, line: 1, fault }.into())
        };
        for plan in [appends as fn() -> _, is_refused_by_core] {
            let (folder, path) = session();
            let reader = NulDoctor {
                scans: Cell::new(0),
                meanwhile: &|_| {},
                spares: 0,
            };
            let told = fix_with(&PlanDoctor { reader, plan }, folder.path(), &path).unwrap_err();
            assert_eq!(
                told,
                "the fix would change more than 64 MiB of the file, so nothing is written"
            );
            assert_eq!(fs::read(&path).unwrap(), DAMAGED);
            assert_eq!(list_journals(&folder.path().join("fixes")).unwrap(), []);
        }
    }

    #[test]
    fn a_plan_that_mends_nothing_is_refused() {
        let (folder, path) = session();
        let told = fix(folder.path(), &path, 2, &|_| {}).unwrap_err();
        assert!(told.contains("would not make this file better"), "{told}");
        assert_eq!(fs::read(&path).unwrap(), DAMAGED);
        assert_eq!(list_journals(&folder.path().join("fixes")).unwrap(), []);
    }

    /// The client has written between the last look and the append, which is then behind its record.
    #[test]
    fn a_record_behind_those_of_a_client_becomes_blanks() {
        let (folder, path) = session();
        fix(folder.path(), &path, 0, &|_| {}).unwrap();
        let journal = list_journals(&folder.path().join("fixes")).unwrap().remove(0);
        let manifest = journal.read_manifest().unwrap();
        for (before, after) in [
            ("{\"new\":1}\n", ""),
            ("", "{\"new\":1}\n"),
            ("{\"new\":1}\n", "{\"newer\":1}\n"),
        ] {
            let start = String::from_utf8_lossy(DAMAGED);
            fs::write(&path, format!("{start}{before}{{\"end\":1}}\n{after}")).unwrap();
            OpenSession::open(&path).unwrap().blank_appended(&manifest).unwrap();
            let wanted = format!("{start}{before}         \n{after}");
            assert_eq!(fs::read_to_string(&path).unwrap(), wanted);
        }
    }
}
