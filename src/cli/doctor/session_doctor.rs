//! The reader and the planner of session files, as the rest of the command meets them.

use std::{
    fs::File,
    io::{self, Read},
};

use super::progress::ProgressReader;
use crate::sessions::{
    NotRead, SessionClient, SessionEdit, SessionReport, SkipHoles, plan_fix, scan_session, scan_session_of,
    scan_sparse_session,
};

/// Reads session files, and plans how they are mended. Tests put another one in its place, which fails midway.
pub(super) trait SessionDoctor {
    /// Reads a file from its beginning on. `place` is the client in whose folder it is.
    fn scan_file(
        &self,
        place: Option<SessionClient>,
        input: &mut dyn Read,
    ) -> io::Result<Result<SessionReport, NotRead>>;

    /// Reads a file as [`SessionDoctor::scan_file`] does, and passes its holes.
    fn scan_sparse(
        &self,
        place: Option<SessionClient>,
        input: &mut dyn SkipHoles,
    ) -> io::Result<Result<SessionReport, NotRead>> {
        self.scan_file(place, input)
    }

    /// Plans the edits of a file.
    fn plan_edits(&self, file: &mut ProgressReader<&File>) -> io::Result<Vec<SessionEdit>>;
}

/// The doctor of the core.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoreDoctor;

impl SessionDoctor for CoreDoctor {
    fn scan_file(
        &self,
        place: Option<SessionClient>,
        mut input: &mut dyn Read,
    ) -> io::Result<Result<SessionReport, NotRead>> {
        match place {
            Some(client) => scan_session_of(client, &mut input),
            None => scan_session(&mut input),
        }
    }

    fn scan_sparse(
        &self,
        place: Option<SessionClient>,
        mut input: &mut dyn SkipHoles,
    ) -> io::Result<Result<SessionReport, NotRead>> {
        scan_sparse_session(place, &mut input)
    }

    fn plan_edits(&self, file: &mut ProgressReader<&File>) -> io::Result<Vec<SessionEdit>> {
        plan_fix(file)
    }
}
